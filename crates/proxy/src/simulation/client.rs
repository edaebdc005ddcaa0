//! A simulated client: a connection with some requests, each as its plan says.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use balanza_config::model::ListenAddress;
use balanza_net::clock::{self, Nanos};
use balanza_net::listening;
use balanza_net::simulation::{Peer, Random};
use tokio::sync::Notify;

use super::ledger::{Ledger, Outcome};
use super::plan::{Body, CLIENT, CLIENT_IDS, ClientFault, Kind, RequestPlan, TEXT, content};
use super::scenario;
use super::wire::{Framing, Head, Pace, Reader, Stop};
use crate::worker::Worker;

/// How long a client waits for "100 Continue".
const CONTINUE_PATIENCE: Duration = Duration::from_secs(3);

/// A connection.
pub struct Client {
    pub ledger: Rc<Ledger>,
    pub worker: Rc<Worker>,
    /// Its ids begin with this.
    pub number: u64,
    pub random: Random,
}

/// What writer and reader know of each other.
#[derive(Default)]
struct Progress {
    /// Requests begun.
    begun: Cell<usize>,
    /// Requests whose client was told to continue.
    continued: Cell<usize>,
    /// Responses read.
    answered: Cell<usize>,
    /// Nothing more may be sent.
    stopped: Cell<bool>,
    /// The client has ended its direction or has not read for long, so the proxy may give up on it.
    excused: Cell<bool>,
    changed: Notify,
    /// The client goes away; true for a reset.
    leaves: Cell<Option<bool>>,
    left: Notify,
}

impl Progress {
    async fn until(&self, is_so: impl Fn(&Progress) -> bool) {
        while !is_so(self) {
            self.changed.notified().await;
        }
    }

    fn leave(&self, resets: bool) {
        self.leaves.set(Some(resets));
        self.left.notify_one();
    }

    fn answer(&self, count: usize, stops: bool) {
        self.answered.set(count);
        self.stopped.set(self.stopped.get() || stops);
        self.changed.notify_one();
    }
}

impl Client {
    /// Everything that it does.
    pub async fn run(mut self) {
        let begin = self.random.size(5_000);
        tokio::time::sleep(Duration::from_millis(begin)).await;
        let knobs = &self.ledger.knobs;
        let count = self.random.between(1, knobs.requests);
        let plans: Vec<Rc<RequestPlan>> = (1..=count)
            .map(|nth| {
                let id = self.number * CLIENT_IDS + nth;
                Rc::new(RequestPlan::new(id, knobs, &self.ledger.places, nth == count, &mut self.random))
            })
            .collect();
        let from = SocketAddr::from(([10, 9, 0, self.number as u8], 20_000));
        let mut peer = None;
        let to = SocketAddr::from(scenario::LISTEN);
        self.worker.serve_client(&ListenAddress::Inet(to), listening::Peer::Inet(from), || {
            let (near, far) = Peer::dial(from, to);
            peer = Some(near);
            far
        });
        let Some(peer) = peer else {
            self.ledger.violated(format_args!("a client is turned away"));
            return;
        };
        let progress = Progress::default();
        let pipelines = self.random.percent(knobs.pipelines);
        let (writing, reading) = (self.random.split(), self.random.split());
        tokio::select! {
            biased;
            () = progress.left.notified() => {}
            _ = async { tokio::join!(
                self.write(&peer, &plans, &progress, pipelines, writing),
                self.read(&peer, &plans, &progress, reading),
            ) } => {}
        }
        if progress.leaves.get() == Some(true) {
            peer.reset();
        }
    }

    /// Sends the requests.
    async fn write(
        &self,
        peer: &Peer,
        plans: &[Rc<RequestPlan>],
        progress: &Progress,
        pipelines: bool,
        mut random: Random,
    ) {
        for (nth, plan) in plans.iter().enumerate() {
            if !pipelines {
                progress.until(|progress| progress.answered.get() >= nth || progress.stopped.get()).await;
                let pause = if random.percent(30) { random.size(1_000) } else { 0 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            if progress.stopped.get() {
                return;
            }
            self.ledger.begin(plan);
            progress.begun.set(nth + 1);
            let mut pace = Pace::new(random.split(), self.ledger.knobs.pauses);
            if !self.write_request(peer, nth, plan, progress, &mut pace).await {
                return;
            }
        }
    }

    /// Sends a request; false if none may follow.
    async fn write_request(
        &self,
        peer: &Peer,
        nth: usize,
        plan: &RequestPlan,
        progress: &Progress,
        pace: &mut Pace,
    ) -> bool {
        let (head, length) = (plan.head(), plan.body.len());
        let (end, leaves) = match plan.fault {
            ClientFault::Stalls(end) => (end, None),
            ClientFault::Leaves(end, resets) => (end, Some(resets)),
            _ => (usize::MAX, None),
        };
        let is_whole = end >= head.len() + length;
        self.ledger.with(plan.id, |record| record.sent = is_whole);
        let mut written = pace.write(peer, &head[..head.len().min(end)]).await;
        if written && end > head.len() {
            if plan.expects && !self.awaits_continue(nth, progress).await {
                return false;
            }
            let to = length.min(end - head.len());
            written = pace.write_body(peer, (plan.id, CLIENT), plan.body, if is_whole { length } else { to }).await;
        }
        if let Some(resets) = leaves {
            progress.leave(resets);
        }
        if plan.fault == ClientFault::HalfCloses {
            progress.excused.set(true);
            peer.shutdown_write();
        }
        written && is_whole && plan.fault != ClientFault::HalfCloses && !matches!(plan.kind, Kind::Tunnel(..))
    }

    /// Waits for "100 Continue"; false if there is a response instead.
    async fn awaits_continue(&self, nth: usize, progress: &Progress) -> bool {
        let news = |progress: &Progress| {
            progress.continued.get() > nth || progress.answered.get() > nth || progress.stopped.get()
        };
        // A client may send the body all the same after a while.
        let _ = tokio::time::timeout(CONTINUE_PATIENCE, progress.until(news)).await;
        !(progress.answered.get() > nth || progress.stopped.get())
    }

    /// Reads the responses.
    async fn read(&self, peer: &Peer, plans: &[Rc<RequestPlan>], progress: &Progress, mut random: Random) {
        let mut reader = Reader::new(peer, Pace::new(random.split(), self.ledger.knobs.pauses));
        for (nth, plan) in plans.iter().enumerate() {
            let begun = reader.begin().await;
            if plan.fault == ClientFault::ReadsLate {
                progress.excused.set(true);
                tokio::time::sleep(Duration::from_secs(100)).await;
            }
            if progress.begun.get() <= nth {
                if begun.is_ok() {
                    self.ledger.violated(format_args!("a response comes before request {}", plan.id));
                }
                progress.answer(nth, true);
                return;
            }
            reader.limit = match plan.fault {
                ClientFault::LeavesReading(bytes, _) => reader.total + bytes,
                _ => usize::MAX,
            };
            let outcome = match begun {
                Ok(()) => self.read_response(peer, &mut reader, nth, plan, progress).await,
                Err(stop) => Err((Outcome::Nothing, stop)),
            };
            match outcome {
                Ok((outcome, true)) => {
                    self.ledger.finish(plan.id, outcome, !progress.excused.get());
                    progress.answer(nth + 1, false);
                }
                Ok((outcome, false)) => {
                    self.ledger.finish(plan.id, outcome, !progress.excused.get());
                    progress.answer(nth + 1, true);
                    return self.expect_end(&mut reader, plan.id).await;
                }
                Err((outcome, stop)) => {
                    self.ledger.finish(plan.id, outcome, !progress.excused.get());
                    progress.answer(nth, true);
                    return self.stopped(plan, stop, progress);
                }
            }
        }
        if random.percent(50) {
            let last = plans.last().map_or(0, |plan| plan.id);
            self.expect_end(&mut reader, last).await;
        }
        progress.leave(false);
    }

    /// A response ended before its end.
    fn stopped(&self, plan: &RequestPlan, stop: Stop, progress: &Progress) {
        // The writer may wait for room that will not come.
        let resets = stop == Stop::Limit && matches!(plan.fault, ClientFault::LeavesReading(_, true));
        progress.leave(resets);
        match stop {
            Stop::Malformed(what) => self.ledger.violated(format_args!("response {}: {what}", plan.id)),
            Stop::Silence => self.ledger.violated(format_args!("silence instead of a response to {plan:?}")),
            Stop::Limit | Stop::End | Stop::Reset => {}
        }
    }

    /// The connection has to end, and nothing may come before.
    async fn expect_end(&self, reader: &mut Reader<'_>, id: u64) {
        let (more, stop) = reader.rest().await;
        if !more.is_empty() {
            let text = String::from_utf8_lossy(&more[..more.len().min(80)]).into_owned();
            self.ledger.violated(format_args!("{} bytes follow the last response, {id}: {text:?}", more.len()));
        }
        if stop == Stop::Silence {
            self.ledger.violated(format_args!("the connection stays open after response {id}"));
        }
    }

    /// Reads a response, and tells whether another may follow.
    async fn read_response(
        &self,
        peer: &Peer,
        reader: &mut Reader<'_>,
        nth: usize,
        plan: &RequestPlan,
        progress: &Progress,
    ) -> Result<(Outcome, bool), (Outcome, Stop)> {
        let head = loop {
            let head = reader.head().await.map_err(|stop| (Outcome::Partial, stop))?;
            match head.status() {
                Some(100) if plan.expects => {
                    progress.continued.set(nth + 1);
                    progress.changed.notify_one();
                }
                Some(status) if status >= 200 || status == 101 => break head,
                _ => {
                    let what = format!("{:?} is not expected", head.start);
                    return Err((Outcome::Partial, Stop::Malformed(what)));
                }
            }
        };
        let status = head.status().unwrap_or(0);
        let attempt = self.check_head(plan, &head, status);
        if status == 101 {
            return self.tunnel(peer, reader, plan, attempt, progress).await;
        }
        let bodiless = plan.method == "HEAD" || matches!(status, 204 | 304);
        let framing = if bodiless { Framing::Length(0) } else { head.framing() };
        let until_close = framing == Framing::UntilClose;
        if until_close && !plan.http10 {
            self.ledger.violated(format_args!("response {} has no length", plan.id));
        }
        let mut got = 0;
        let begun = self.ledger.with(plan.id, |record| record.begun).unwrap_or(0);
        let read = reader
            .body(framing, |piece| {
                self.check_piece(plan, attempt, status, got, piece);
                got += piece.len();
                self.check_rate(plan, got, begun);
            })
            .await;
        read.map_err(|stop| (Outcome::Partial, stop))?;
        let whole = attempt.and_then(|attempt| {
            self.ledger
                .with(plan.id, |record| record.attempts.get(attempt as usize).map(|it| it.plan.body.len()))
                .flatten()
        });
        if until_close && whole != Some(got) {
            // Such a client cannot know.
            return Ok((Outcome::Partial, false));
        }
        if let Some(attempt) = attempt {
            self.ledger.check_complete(plan.id, attempt, got);
        } else if let Kind::File(length) = plan.kind
            && (status, got) != (200, length)
        {
            self.ledger.violated(format_args!("{got} of {length} bytes of a file, status {status}"));
        }
        let said = if plan.http10 { head.says("connection", "keep-alive") } else { !head.says("connection", "close") };
        Ok((Outcome::Complete(status, attempt), said && !until_close))
    }

    /// The attempt that a head names.
    fn check_head(&self, plan: &RequestPlan, head: &Head, status: u16) -> Option<u64> {
        match head.number("x-id") {
            Some(id) if id != plan.id => {
                self.ledger.violated(format_args!("request {} got the response to {id}", plan.id));
                None
            }
            Some(_) => head.number("x-attempt"),
            None => {
                let own = match plan.kind {
                    Kind::Proxied(place) => {
                        matches!(status, 502 | 504) || status == 503 && self.ledger.places[place].replaces_503
                    }
                    Kind::Tunnel(..) => matches!(status, 502 | 504),
                    Kind::File(_) | Kind::Text => status == 200,
                };
                if !own {
                    self.ledger.violated(format_args!("request {plan:?} got an own {:?}", head.start));
                }
                None
            }
        }
    }

    fn check_piece(&self, plan: &RequestPlan, attempt: Option<u64>, status: u16, from: usize, piece: &[u8]) {
        let expected = match (plan.kind, attempt) {
            (_, Some(attempt)) => content(plan.id, attempt, from, piece.len()),
            (Kind::File(length), None) if status == 200 => content(length as u64, CLIENT, from, piece.len()),
            (Kind::Text, None) if status == 200 => {
                TEXT.as_bytes().get(from..from + piece.len()).unwrap_or_default().to_vec()
            }
            _ => return,
        };
        if expected != piece {
            self.ledger.violated(format_args!("the body of response {} is not its own from {from} on", plan.id));
        }
    }

    fn check_rate(&self, plan: &RequestPlan, got: usize, begun: Nanos) {
        if let Kind::Proxied(place) = plan.kind
            && let Some(rate) = self.ledger.places[place].rate
        {
            let seconds = (clock::now() - begun) / 1_000_000_000;
            if got as u64 > rate * (seconds + 1) {
                self.ledger.violated(format_args!("{got} bytes of response {} in {seconds} s", plan.id));
            }
        }
    }

    /// Sends and reads the bytes of a tunnel.
    async fn tunnel(
        &self,
        peer: &Peer,
        reader: &mut Reader<'_>,
        plan: &RequestPlan,
        attempt: Option<u64>,
        progress: &Progress,
    ) -> Result<(Outcome, bool), (Outcome, Stop)> {
        let Kind::Tunnel(there, back) = plan.kind else {
            return Err((Outcome::Partial, Stop::Malformed("101 without being asked to".to_owned())));
        };
        let mut pace = Pace::new(Random::new(plan.id), self.ledger.knobs.pauses);
        let write = async {
            let written = pace.write_body(peer, (plan.id, CLIENT), Body::Length(there), there).await;
            peer.shutdown_write();
            written
        };
        let mut got = 0;
        let read = reader.body(Framing::UntilClose, |piece| {
            self.check_piece(plan, attempt, 101, got, piece);
            got += piece.len();
        });
        let (_, read) = tokio::join!(write, read);
        read.map_err(|stop| (Outcome::Partial, stop))?;
        let received = attempt.and_then(|attempt| {
            self.ledger.with(plan.id, |record| record.attempts.get(attempt as usize).map(|it| it.received)).flatten()
        });
        if !progress.excused.get() && (Some(there), back) != (received, got) {
            let what = format_args!("tunnel {}: {received:?} of {there} there, {got} of {back} back", plan.id);
            self.ledger.violated(what);
        }
        Ok((Outcome::Complete(101, attempt), false))
    }
}
