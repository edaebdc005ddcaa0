//! What happened to each request, and whether it may have.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use balanza_net::clock::{self, Nanos};
use balanza_net::simulation;

use super::plan::{AttemptPlan, Body, CLIENT, ClientFault, Kind, Knobs, Place, RequestPlan, ServerFault, content};

/// What a client got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A response that is complete by its framing: its status, and the attempt that it names.
    Complete(u16, Option<u64>),
    /// A part of one.
    Partial,
    /// Nothing.
    Nothing,
}

/// A request and what became of it.
pub struct Record {
    pub plan: Rc<RequestPlan>,
    /// When it was begun.
    pub begun: Nanos,
    /// The client waited for its response on a connection that was to be kept.
    pub awaited: bool,
    /// All of it has left the client.
    pub sent: bool,
    pub outcome: Option<Outcome>,
    pub attempts: Vec<Attempt>,
}

/// What a server knows of a request.
pub struct Attempt {
    pub plan: Rc<AttemptPlan>,
    /// Bytes of the request's body.
    pub received: usize,
    /// The response has left whole.
    pub finished: bool,
}

/// What is known of a run.
pub struct Ledger {
    pub knobs: Knobs,
    pub places: Vec<Place>,
    requests: RefCell<BTreeMap<u64, Record>>,
    violations: RefCell<Vec<String>>,
}

impl Ledger {
    pub fn new(knobs: Knobs, places: Vec<Place>) -> Rc<Ledger> {
        Rc::new(Ledger { knobs, places, requests: RefCell::default(), violations: RefCell::default() })
    }

    /// Something happened that must not.
    pub fn violated(&self, what: std::fmt::Arguments<'_>) {
        simulation::note(format_args!("VIOLATED: {what}"));
        self.violations.borrow_mut().push(what.to_string());
    }

    pub fn violations(&self) -> Vec<String> {
        self.violations.borrow().clone()
    }

    /// Changes a request's record.
    pub fn with<T>(&self, id: u64, act: impl FnOnce(&mut Record) -> T) -> Option<T> {
        self.requests.borrow_mut().get_mut(&id).map(act)
    }

    /// A client begins a request.
    pub fn begin(&self, plan: &Rc<RequestPlan>) {
        let (plan, begun) = (Rc::clone(plan), clock::now());
        let record = Record { plan, begun, awaited: false, sent: false, outcome: None, attempts: Vec::new() };
        self.requests.borrow_mut().insert(record.plan.id, record);
    }

    /// A request has reached a server: its plan, the attempt's number and the server's plan.
    pub fn attempt(&self, id: u64, server: u64) -> Option<(Rc<RequestPlan>, u64, Rc<AttemptPlan>)> {
        let attempt = self.with(id, |record| {
            let number = record.attempts.len() as u64;
            let plan = Rc::new(AttemptPlan::new(&record.plan, number, &self.knobs));
            record.attempts.push(Attempt { plan: Rc::clone(&plan), received: 0, finished: false });
            (Rc::clone(&record.plan), number, plan)
        });
        if let Some((plan, number, attempt)) = &attempt {
            simulation::note(format_args!("request {id} at server {server}, attempt {number}: {attempt:?}"));
            let repeats = matches!(plan.kind, Kind::Proxied(place) if self.places[place].repeats_all);
            if *number > 0 && !plan.is_idempotent() && !repeats {
                self.violated(format_args!("{} {id} was sent {} times", plan.method, number + 1));
            }
        }
        attempt
    }

    /// A piece of a request's body has reached a server.
    pub fn received(&self, id: u64, attempt: u64, piece: &[u8]) {
        let from = self.with(id, |record| {
            let attempt = &mut record.attempts[attempt as usize];
            let from = attempt.received;
            attempt.received += piece.len();
            from
        });
        if content(id, CLIENT, from.unwrap_or(0), piece.len()) != piece {
            self.violated(format_args!("the body of request {id} is not its own at a server"));
        }
    }

    /// The request's body has ended at a server.
    pub fn received_all(&self, id: u64, attempt: u64) {
        let (received, planned, sent) = self
            .with(id, |record| (record.attempts[attempt as usize].received, record.plan.body.len(), record.sent))
            .unwrap_or_default();
        if received != planned {
            self.violated(format_args!("a server took {received} of {planned} bytes of request {id} for all"));
        } else if !sent && planned > 0 {
            self.violated(format_args!("a server has got more of request {id} than was sent"));
        }
    }

    /// What a client got for a request that it sent on a connection that was open.
    /// `awaited` tells whether it had not said that it sends no more.
    pub fn finish(&self, id: u64, outcome: Outcome, awaited: bool) {
        simulation::note(format_args!("response {id}: {outcome:?}"));
        self.with(id, |record| (record.outcome, record.awaited) = (Some(outcome), awaited));
    }

    /// A response is complete for its client: so it must have been at its server.
    pub fn check_complete(&self, id: u64, attempt: u64, got: usize) {
        let known = self.with(id, |record| {
            let bodiless = record.plan.method == "HEAD";
            let attempt = record.attempts.get(attempt as usize)?;
            Some((attempt.finished, if bodiless { 0 } else { attempt.plan.body.len() }))
        });
        match known.flatten() {
            None => self.violated(format_args!("response {id} names an attempt {attempt} that no server has seen")),
            Some((finished, whole)) if !finished || got != whole => {
                let what = "bytes are taken for all; sent whole";
                self.violated(format_args!("response {id}: {got} of {whole} {what}: {finished}"));
            }
            Some(_) => {}
        }
    }

    /// What can be said when everything has ended.
    pub fn check(&self) {
        let requests = self.requests.take();
        for record in requests.values() {
            if let Some(why) = self.judge(record) {
                let (plan, outcome) = (&record.plan, &record.outcome);
                self.violated(format_args!("{why}: {plan:?} came to {outcome:?}"));
            }
        }
    }

    fn judge(&self, record: &Record) -> Option<String> {
        let plan = &record.plan;
        if !record.awaited || plan.fault != ClientFault::None && plan.fault != ClientFault::ReadsLate {
            return None;
        }
        let complete = match &record.outcome {
            Some(Outcome::Complete(status, attempt)) => Some((*status, *attempt)),
            _ => None,
        };
        let expected =
            |status: u16| (complete.map(|(status, _)| status) != Some(status)).then(|| format!("not {status}"));
        if plan.fault == ClientFault::ReadsLate {
            return None;
        }
        let place = match plan.kind {
            Kind::File(_) | Kind::Text => return expected(200),
            Kind::Tunnel(..) if self.knobs.reaches_servers() && self.knobs.server_faults == 0 => return expected(101),
            Kind::Tunnel(..) => return None,
            Kind::Proxied(place) => &self.places[place],
        };
        let first = record.attempts.first().map(|attempt| &attempt.plan);
        // A second one may have been faster.
        let is_hedged = self.knobs.hedges && record.attempts.len() > 1;
        if let Some(first) = first.filter(|first| first.is_good() && self.knobs.reaches_servers() && !is_hedged) {
            if first.status == 503 && (place.retries_503 || place.replaces_503) {
                return None;
            }
            return expected(first.status);
        }
        let trouble = self.knobs.refuses
            + self.knobs.silent
            + self.knobs.closes_idle
            + self.knobs.server_faults
            + self.knobs.early;
        if trouble == 0 && first.is_none() {
            return Some("no server was asked".to_owned());
        }
        // Whatever fails may be tried again: so every server was.
        let (status, _) = complete?;
        let all_read = place.request_buffering || plan.body == Body::None;
        // Its head was valid, so it is the answer.
        let answered = |attempt: &Attempt| matches!(attempt.plan.fault, ServerFault::BadChunk(_));
        let tries = place.tries.min(self.knobs.servers) as usize;
        let repeatable = place.retries && (plan.is_idempotent() || place.repeats_all) && all_read;
        if matches!(status, 502 | 504)
            && complete?.1.is_none()
            && repeatable
            && self.knobs.refuses + self.knobs.silent + self.knobs.changes == 0
            && record.attempts.len() < tries
            && !record.attempts.iter().any(answered)
        {
            return Some(format!("{} of {tries} servers were asked", record.attempts.len()));
        }
        None
    }
}
