//! `proxy_pass` of a session of datagrams: finds a server and passes on what either side sends, until nothing more is
//! expected or the session has been silent for too long.
//!
//! A datagram socket connects at once, whether or not a server is there. So an attempt lasts until the server's first
//! answer: one whose host reports the port as closed has failed, and the first datagrams go to another one.

use std::fmt::Arguments;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use balanza_balancing::Outcome;
use balanza_config::model::{FirstSign, Level, StreamTarget};
use balanza_net::clock::{self, Nanos};
use balanza_net::listening::Peer;
use balanza_net::shortage::Shortage;
use balanza_net::udp::connected::{self, Connected};

use super::flow::Flow;
use crate::downstream::Rate;
use crate::proxy_protocol;
use crate::servers::address::destination;
use crate::servers::failure::{Cause, Doing, Failure};
use crate::servers::search::{Books, Choice, Limits, Seeker, Target, Unreached, finish, search};
use crate::stream::{Session, Status, connect, passing};
use crate::undecided::Undecided;

/// How a session or an attempt came to its end.
enum End {
    /// All that was expected has come.
    Done,
    /// Nothing came for too long.
    Silent,
    /// The worker ends, and the server owes nothing.
    Drained,
}

/// What an attempt came to.
struct Reached {
    server: Rc<Connected>,
    /// The session is over with it.
    end: Option<End>,
}

/// A session that looks for a server.
struct Sending<'a> {
    session: &'a mut Session,
    flow: Rc<Flow>,
    first_sign: FirstSign,
    begun: Nanos,
}

/// Finds a server and passes datagrams on until the session's end.
pub async fn pass(session: &mut Session) -> Status {
    let Some(flow) = session.flow() else { return Status::InternalError };
    if let StreamTarget::Return(_) = &session.server.target {
        let text = session.returned();
        return text.map_or(Status::InternalError, |text| {
            if !text.is_empty() {
                flow.say(&text);
            }
            Status::Ok
        });
    }
    if let StreamTarget::Pass(_) = &session.server.target {
        return passing::pass(session);
    }
    let target = match connect::target(session).await {
        Ok(target) => target,
        Err(status) => return status,
    };
    let conf = Arc::clone(&session.server);
    let limits = Limits { tries: conf.next_upstream_tries, timeout: clock::nanos(conf.next_upstream_timeout) };
    let first_sign = match &target {
        Target::Group(upstream) => upstream.members().shared.balancing.balance.first_sign,
        Target::Addresses(..) => FirstSign::default(),
    };
    let begun = clock::recent();
    flow.limit(session.upload, begun);
    let mut sending = Sending { session, flow, first_sign, begun };
    match search(&mut sending, &target, &limits).await {
        Ok((mut choice, Reached { server, end })) => {
            let end = match end {
                Some(end) => Ok(end),
                None => sending.exchange(&server, false).await.map(|end| end.unwrap_or(End::Done)),
            };
            sending.session.count_datagrams();
            let (status, outcome, doing) = sending.judge(end);
            finish(&mut sending, &mut choice.lease, outcome, doing);
            status
        }
        Err(Unreached::Undecided) => Status::InternalError,
        Err(Unreached::Failed(failure)) if failure.cause.is_own() => Status::InternalError,
        Err(_) => Status::BadGateway,
    }
}

impl Seeker for Sending<'_> {
    type Reached = Reached;

    fn books(&mut self) -> Books<'_> {
        self.session.books()
    }

    fn report(&self, level: Level, message: Arguments<'_>) {
        self.session.report(level, message);
    }

    fn chosen(&mut self, _: &Choice) -> Result<(), Undecided> {
        connect::settle_for_server(self.session)
    }

    async fn attempt(&mut self, choice: &mut Choice) -> Result<Reached, Failure> {
        if !self.session.client.thread.clients.make_room(&self.session.listener.running) {
            return Err(Failure::connecting(Cause::Own(Shortage::Connections)));
        }
        let options = self.session.connect_options();
        let server = connected::connect(&destination(&choice.address), &options);
        let server = Rc::new(server.map_err(|error| Failure::connecting(error.into()))?);
        choice.opens(server.hang_up());
        let now = clock::recent();
        let attempt = self.session.attempt();
        let connected = attempt.started;
        attempt.connect_time = Some(now - connected);
        let mut header = Vec::new();
        if self.session.server.proxy_protocol {
            let source = match self.session.peer {
                Peer::Inet(address) => Some(address),
                Peer::Unix => None,
            };
            proxy_protocol::write(source, self.session.local(), &mut header);
        }
        self.flow.begin_server(Rc::clone(&server), &header);
        let end = self.exchange(&server, true).await;
        self.session.count_datagrams();
        let end = end.map_err(|cause| {
            self.flow.end_server();
            Failure { cause, doing: Doing::Proxying, sent: true }
        })?;
        if let Some(End::Silent) = end
            && !self.flow.is_answered()
        {
            self.flow.end_server();
            return Err(Failure { cause: Cause::TimedOut, doing: Doing::Proxying, sent: true });
        }
        if let (Some(lease), true) = (&mut choice.lease, self.flow.account().responses > 0) {
            let now = clock::recent();
            lease.alive(now);
            lease.header(if self.first_sign == FirstSign::Connect { connected } else { now });
        }
        Ok(Reached { server, end })
    }

    fn failed(&mut self, failure: &Failure) -> bool {
        !matches!(failure.cause, Cause::Own(_) | Cause::TimedOut) && self.session.server.next_upstream
    }
}

impl Sending<'_> {
    /// Passes the server's datagrams on; the receiver does so with the client's. With `first` until the first one.
    ///
    /// # Errors
    /// The server has refused a datagram.
    async fn exchange(&mut self, server: &Connected, first: bool) -> Result<Option<End>, Cause> {
        let flow = Rc::clone(&self.flow);
        let timeout = clock::nanos(self.session.server.timeout);
        let (rate, begun, session) = (self.session.download, self.begun, &mut *self.session);
        let earlier = flow.account().responses;
        poll_fn(|cx| {
            flow.watch(cx);
            session.client.entry.watch(cx.waker());
            if let Some(error) = flow.failure() {
                return Poll::Ready(Err(Cause::of("send", error, Cause::Send)));
            }
            let mut paused = false;
            loop {
                if flow.is_done() {
                    return Poll::Ready(Ok(Some(End::Done)));
                }
                if first && flow.account().responses > earlier {
                    return Poll::Ready(Ok(None));
                }
                if let Some(pause) = pause(rate, flow.account().from_server, clock::recent().saturating_sub(begun)) {
                    paused = true;
                    if !session.timer.poll_expired(cx, clock::recent().saturating_add(pause)) {
                        break;
                    }
                    clock::now();
                    continue;
                }
                let mut answer = |datagram: &[u8]| {
                    // What is more than expected belongs to no session.
                    if !flow.is_done() {
                        flow.answer(datagram);
                    }
                };
                match server.poll_receive(cx, rate.limit > 0, &mut answer) {
                    Poll::Ready(Ok(())) => {
                        let now = clock::recent();
                        let attempt = session.attempt();
                        attempt.header_time.get_or_insert(now - attempt.started);
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(Cause::of("recv", error, Cause::Receive))),
                    Poll::Pending => break,
                }
            }
            if session.client.thread.clients.is_draining() && flow.is_answered() {
                return Poll::Ready(Ok(Some(End::Drained)));
            }
            if !paused && session.timer.poll_expired(cx, flow.account().deadline(timeout)) {
                return Poll::Ready(Ok(Some(End::Silent)));
            }
            Poll::Pending
        })
        .await
    }

    /// The status of a session, and how its server is to be judged.
    fn judge(&mut self, end: Result<End, Cause>) -> (Status, Outcome, &'static str) {
        let doing = Doing::Proxying;
        let failed = |cause| Failure { cause, doing, sent: true };
        let how = match end {
            Ok(End::Done) => "done",
            Ok(End::Drained) => "disconnected on shutdown",
            Ok(End::Silent) if self.flow.is_answered() => "timed out",
            Ok(End::Silent) => return self.blame(&failed(Cause::TimedOut)),
            Err(cause) => return self.blame(&failed(cause)),
        };
        let session = &self.session;
        if session.wants(Level::Info) {
            let (account, attempt) = (self.flow.account(), session.attempts.last());
            let (received, sent) = attempt.map_or((0, 0), |attempt| (attempt.bytes_received, attempt.bytes_sent));
            let (packets, bytes) = ((account.requests, account.responses), session.bytes_text(received, sent));
            let serial = session.client.serial;
            let text = format_args!("*{serial} udp {how}, packets from/to client:{}/{}, {bytes}", packets.0, packets.1);
            session.note(Level::Info, text);
        }
        (Status::Ok, Outcome::Success, doing.text())
    }

    fn blame(&self, failure: &Failure) -> (Status, Outcome, &'static str) {
        if let Some((level, message)) = failure.message() {
            self.session.report(level, format_args!("{message}"));
        }
        (Status::BadGateway, failure.outcome(), failure.doing.text())
    }
}

/// How long to wait until more may come, in nanoseconds.
fn pause(rate: Rate, received: u64, elapsed: Nanos) -> Option<Nanos> {
    rate.allowance(received, elapsed, 1).err().map(clock::nanos)
}

impl Session {
    /// Takes over what was counted.
    pub(super) fn count_datagrams(&mut self) {
        let Some(flow) = self.flow() else { return };
        let account = flow.account();
        (self.received, self.sent) = (account.from_client, account.to_client);
        if !self.attempts.is_empty() {
            let attempt = self.attempt();
            (attempt.bytes_received, attempt.bytes_sent) = (account.from_server, account.to_server);
        }
    }
}
