//! A server's slot, held by a request or a session.

use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::overload::Verdict;
use balanza_balancing::{Member, Outcome, Report};
use balanza_net::clock::{self, Nanos};
use balanza_net::hang_up::HangUp;

use super::attempt::Attempt;
use super::group::{Members, Upstream};
use super::membership::ServerId;
use crate::metrics::Attempted;

/// A server chosen for a request: its slot is returned exactly once, even if the request is aborted.
pub struct Lease {
    /// Of which upstream.
    pub upstream: Rc<Upstream>,
    /// Of which servers.
    pub members: Rc<Members>,
    /// Which.
    pub member: Member,
    begun: Nanos,
    /// Other requests that the server had in flight then.
    in_flight: u32,
    header_time: Option<Nanos>,
    /// Its response goes to the client, so it may begin a session of `sticky learn`.
    pub answers: bool,
    /// It finds out whether an ejected server works again.
    pub is_probe: bool,
    /// It is the second one of a request.
    pub is_hedge: bool,
    /// The phase of an experiment that it began in.
    phase: u8,
    /// Another server was faster, so that its time is no answer's.
    is_lost: bool,
    /// The outliers know already that it works.
    judged: bool,
    finished: bool,
}

impl Lease {
    /// For a slot that a pick or a claim has taken.
    pub fn new(upstream: &Rc<Upstream>, members: &Rc<Members>, member: Member, begun: Nanos) -> Lease {
        let in_flight = members.fleet().state(member).in_flight().saturating_sub(1);
        let phase = members.recording.as_ref().map_or(0, |recording| recording.begin());
        let (upstream, members) = (Rc::clone(upstream), Rc::clone(members));
        Lease {
            upstream,
            members,
            member,
            begun,
            in_flight,
            header_time: None,
            answers: false,
            is_probe: false,
            is_hedge: false,
            phase,
            is_lost: false,
            judged: false,
            finished: false,
        }
    }

    /// Who the server is.
    pub fn server(&self) -> ServerId {
        self.members.id(self.member)
    }

    /// The arm of the experiment that it counts for; none in a washout.
    pub fn arm(&self) -> Option<Arc<str>> {
        self.members.recording.as_ref().and_then(|recording| recording.arm(self.phase))
    }

    /// A connection to the server begins.
    pub fn opens(&self, connection: HangUp) {
        self.upstream.open.add(self.server(), connection);
    }

    /// Whether the connections to the server were ended.
    pub fn is_cut_off(&self) -> bool {
        self.upstream.open.has_ended(self.server())
    }

    /// The response's head has arrived.
    pub fn header(&mut self, now: Nanos) {
        let time = now - self.begun;
        self.header_time = Some(time);
        self.note_time(time);
        let mut driver = self.members.driver.borrow_mut();
        if driver.wants_header() {
            driver.header(now, self.member, time);
        }
        if let Some(shadows) = &self.members.shadows {
            shadows.header(now, self.member, time);
        }
    }

    /// How long a request had to wait, for `hedge`.
    #[inline]
    fn note_time(&self, time: Nanos) {
        if let Some(hedge) = &self.upstream.hedge
            && !self.is_hedge
        {
            hedge.answered(time);
        }
    }

    /// Another server has answered first: that says nothing of this one.
    pub fn cancel(mut self, attempt: &Attempt) {
        self.note_time(clock::recent() - self.begun);
        self.is_lost = true;
        self.complete(Outcome::Neutral, attempt);
    }

    /// The server is serving a long request.
    pub fn alive(&mut self, now: Nanos) {
        self.upstream.unavailable_logged.set(false);
        self.judge(now, Verdict::Good(None));
        self.judged = true;
        self.members.driver.borrow_mut().alive(now, self.member);
    }

    /// Tells the outliers.
    #[inline]
    fn judge(&mut self, now: Nanos, verdict: Verdict) {
        let Some(outliers) = &self.members.shared.outliers else { return };
        if self.judged && verdict != Verdict::Bad {
            return;
        }
        let probe = std::mem::take(&mut self.is_probe);
        outliers.complete(now, self.member, verdict, probe, &mut |notice| self.upstream.note(&self.members, notice));
    }

    /// Returns the slot and counts the outcome of its attempt. True when the server has just been disabled for its
    /// `fail_timeout`.
    pub fn complete(&mut self, outcome: Outcome, attempt: &Attempt) -> bool {
        self.finished = true;
        let ended = outcome == Outcome::Failure && self.is_cut_off();
        let outcome = if ended { Outcome::Neutral } else { outcome };
        let now = clock::recent();
        let (time, bytes) = (now - self.begun, attempt.bytes_received);
        let report = Report { outcome, header_time: self.header_time, last_byte_time: Some(time), bytes };
        if matches!(outcome, Outcome::Success | Outcome::ErrorResponse) {
            self.upstream.unavailable_logged.set(false);
        }
        let mut driver = self.members.driver.borrow_mut();
        if outcome == Outcome::Success && driver.wants_latency() {
            driver.latency(now, self.member, self.in_flight, time);
        }
        let disabled = driver.complete(now, self.member, &report).disabled;
        drop(driver);
        if let Some(shadows) = &self.members.shadows {
            let latency = (outcome == Outcome::Success).then_some((self.in_flight, time));
            shadows.complete(now, self.member, &report, latency);
        }
        if let Some(concurrency) = &self.members.shared.concurrency
            && outcome != Outcome::Neutral
        {
            let (failed, time) = (outcome != Outcome::Success, self.header_time.unwrap_or(time));
            concurrency.complete(now, self.member, self.in_flight, time, failed);
        }
        self.judge(
            now,
            match outcome {
                Outcome::Success => Verdict::Good(Some(self.header_time.unwrap_or(time))),
                Outcome::Failure => Verdict::Bad,
                Outcome::ErrorResponse if attempt.status >= 500 => Verdict::Bad,
                Outcome::ErrorResponse | Outcome::Neutral => Verdict::Unknown,
            },
        );
        if let Some(queue) = &self.upstream.queue {
            queue.call();
        }
        if let Some(recording) = &self.members.recording {
            // A client that goes away without an answer may have waited for a server that does not answer.
            let unanswered = outcome == Outcome::Neutral && self.header_time.is_none();
            match self.is_lost {
                true => recording.forget(self.phase),
                false => recording.record(
                    self.phase,
                    time,
                    outcome == Outcome::Failure || attempt.status >= 500 || unanswered,
                ),
            }
        }
        self.members.metrics[self.member.0 as usize].record(&Attempted {
            outcome,
            disabled,
            status: attempt.status,
            received: bytes,
            sent: attempt.bytes_sent,
            header_time: self.header_time,
            time,
        });
        disabled
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.finished {
            self.complete(Outcome::Neutral, &Attempt::default());
        }
    }
}
