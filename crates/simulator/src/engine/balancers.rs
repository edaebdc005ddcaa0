//! The dispatchers: the product's drivers, and what they know of the servers.

use std::io;
use std::sync::Arc;

use balanza_balancing::overload::{Concurrency, Hedge, Outliers, RetryBudget, Verdict};
use balanza_balancing::registry::{Host, Key, Spec};
use balanza_balancing::{
    Driver, Fleet, FleetError, Member, Nanos, Outcome, Report, ServerSpec, ServerState, Start, Tried,
};

use super::guards::Guards;
use super::request::Request;
use crate::error::Error;
use crate::helper::Helper;
use crate::random::{Purpose, Random};
use crate::scenario::View;

/// A server for a request.
pub(crate) struct Picked {
    pub server: u32,
    /// How many others it has in flight.
    pub found: u32,
    /// The request is the probe of an ejected server.
    pub probe: bool,
}

/// All dispatchers of one replication.
pub(crate) struct Balancers {
    drivers: Vec<Driver>,
    /// Of dispatchers before each new beginning: they end what they have, unless a restart took them away.
    before: Vec<Vec<Driver>>,
    fleets: Vec<Arc<Fleet>>,
    guards: Guards,
    /// One for each fleet, if there are any.
    outliers: Vec<Outliers>,
    concurrency: Vec<Concurrency>,
    budgets: Vec<RetryBudget>,
    hedges: Vec<Hedge>,
    /// Of a board: a worker of the same fleet that keeps the books, and the numbers as they stand there.
    board: Option<(Driver, Vec<u32>)>,
    view: View,
    seeds: Random,
    pub keyed: bool,
    wants_header: bool,
    wants_latency: bool,
    pub wants_probes: bool,
    scratch: Tried,
    /// The programs of `external`, one for each dispatcher, and what went wrong with one of them.
    helpers: Vec<Helper>,
    trouble: Option<io::Error>,
}

impl Balancers {
    pub fn new(
        spec: &Spec,
        guards: &Guards,
        servers: impl Fn() -> Vec<ServerSpec>,
        count: usize,
        view: View,
        seeds: Random,
    ) -> Result<Balancers, Error> {
        // Servers that say that they are idle tell one dispatcher, whatever the dispatchers see themselves.
        let told = spec.entry().host == Host::Idleness;
        let fleets = if view == View::Own && !told { count } else { 1 };
        let fleet = |_| {
            let servers = servers().into_iter().map(|server| (server, Arc::new(ServerState::new()))).collect();
            Fleet::new(spec, servers).map(Arc::new)
        };
        let fleets = (0..fleets).map(fleet).collect::<Result<Vec<_>, _>>()?;
        let mut balancers = Balancers {
            drivers: Vec::with_capacity(count),
            before: Vec::new(),
            guards: guards.clone(),
            outliers: Vec::new(),
            concurrency: Vec::new(),
            budgets: fleets.iter().filter_map(|_| guards.retry_budget.as_ref().map(RetryBudget::new)).collect(),
            hedges: fleets.iter().filter_map(|_| guards.hedge.as_ref().map(Hedge::new)).collect(),
            fleets,
            board: None,
            view,
            seeds,
            keyed: spec.entry().key != Key::None,
            wants_header: false,
            wants_latency: false,
            wants_probes: false,
            scratch: Tried::default(),
            helpers: (0..count).filter_map(|_| Helper::of(spec).transpose()).collect::<Result<_, _>>()?,
            trouble: None,
        };
        balancers.drive(count);
        balancers.find_outliers();
        balancers.find_concurrency();
        Ok(balancers)
    }

    /// The stream that seeds come from.
    pub fn seeds(seed: u64, replication: u32) -> Random {
        Random::new(seed, replication, Purpose::Policy)
    }

    /// Outliers of the fleets; what is known of servers that stay goes on.
    fn find_outliers(&mut self) {
        let before = std::mem::take(&mut self.outliers);
        let Some(settings) = &self.guards.outlier else { return };
        for (at, fleet) in self.fleets.iter().enumerate() {
            let outliers = Outliers::new(settings, fleet, before.get(at));
            if let Some(before) = before.get(at) {
                before.retire(Some(&outliers));
            }
            outliers.begin();
            self.outliers.push(outliers);
        }
    }

    /// The same for limits that are measured.
    fn find_concurrency(&mut self) {
        let before = std::mem::take(&mut self.concurrency);
        let Some(settings) = &self.guards.concurrency else { return };
        for (at, fleet) in self.fleets.iter().enumerate() {
            let concurrency = Concurrency::new(settings, fleet, before.get(at));
            if let Some(before) = before.get(at) {
                before.retire(Some(&concurrency));
            }
            concurrency.begin();
            self.concurrency.push(concurrency);
        }
    }

    /// Which of the fleets, and of what belongs to them, a dispatcher has.
    fn fleet_of(&self, dispatcher: u16) -> usize {
        usize::from(dispatcher).min(self.fleets.len() - 1)
    }

    /// A request begins.
    #[inline]
    pub fn begins(&self, now: Nanos, dispatcher: u16) {
        if !self.budgets.is_empty() {
            self.budgets[self.fleet_of(dispatcher)].request(now);
        }
    }

    /// Whether an attempt that failed may be followed by another one.
    pub fn may_retry(&self, now: Nanos, dispatcher: u16) -> bool {
        self.budgets.is_empty() || self.budgets[self.fleet_of(dispatcher)].retry(now)
    }

    /// How long after its beginning an attempt is followed by a second one.
    #[inline]
    pub fn hedge_delay(&self, now: Nanos, dispatcher: u16) -> Option<Nanos> {
        self.hedges.get(self.fleet_of(dispatcher))?.delay(now)
    }

    /// The answer to a first attempt has come, or it was given up.
    #[inline]
    pub fn note_time(&self, dispatcher: u16, time: Nanos) {
        if let Some(hedge) = self.hedges.get(self.fleet_of(dispatcher)) {
            hedge.answered(time);
        }
    }

    fn drive(&mut self, count: usize) {
        let shared = self.fleets.len() == 1;
        for d in 0..count {
            let fleet = &self.fleets[if shared { 0 } else { d }];
            // Dispatchers of their own begin where they like, as processes do.
            let start = Start { worker: d, workers: count };
            self.drivers.push(Driver::new(fleet.clone(), self.seeds.next(), start));
        }
        if self.view == View::Board {
            let scribe = Driver::new(self.fleets[0].clone(), self.seeds.next(), Start::default());
            self.board = Some((scribe, vec![0; self.fleets[0].len()]));
        }
        self.wants_header = self.drivers[0].wants_header();
        self.wants_latency = self.drivers[0].wants_latency();
        self.wants_probes = self.drivers[0].wants_probes();
    }

    /// The dispatchers start again, with their counts (a reload) or without them (a restart).
    pub fn restart(&mut self, now: Nanos, keep_counts: bool) -> Result<(), FleetError> {
        // The new ones have to write the board themselves.
        let board = self.board.as_ref().filter(|_| keep_counts).map(|(_, known)| known.clone());
        self.refresh(now, |_| 0);
        for fleet in &mut self.fleets {
            let state = |m| if keep_counts { fleet.shared_cell(m).clone() } else { Arc::new(ServerState::new()) };
            let servers = fleet.members().map(|m| (fleet.server(m).clone(), state(m))).collect();
            *fleet = Arc::new(if keep_counts {
                fleet.next(fleet.spec(), servers, &[])?
            } else {
                Fleet::new(fleet.spec(), servers)?
            });
        }
        let old = std::mem::take(&mut self.drivers);
        let count = old.len();
        if !keep_counts {
            self.before.iter_mut().for_each(Vec::clear);
        }
        self.before.push(if keep_counts { old } else { Vec::new() });
        self.drive(count);
        self.find_outliers();
        self.find_concurrency();
        if let Some(known) = board {
            self.refresh(now, |i| known[i]);
        }
        Ok(())
    }

    /// Which of the beginnings is the present one.
    #[inline]
    pub fn epoch(&self) -> u16 {
        self.before.len() as u16
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.drivers.len()
    }

    /// A server for a request.
    #[inline]
    pub fn pick(&mut self, now: Nanos, dispatcher: u16, key: &[u8], tried: Option<&mut Tried>) -> Option<Picked> {
        let outliers = self.outliers.get(self.fleet_of(dispatcher));
        let driver = &mut self.drivers[usize::from(dispatcher)];
        let tried = tried.unwrap_or_else(|| {
            self.scratch.clear();
            &mut self.scratch
        });
        let mut probed = None;
        if let Some(outliers) = outliers {
            outliers.tick(now, &mut |_| ());
            probed = if tried.is_empty() { outliers.probe(now) } else { None };
            if let Some(member) = probed
                && driver.claim_probe(now, member, tried).is_err()
            {
                outliers.refused(now, member);
                probed = None;
            }
        }
        let member = match self.helpers.get_mut(usize::from(dispatcher)) {
            _ if probed.is_some() => probed?,
            None => driver.pick(now, key, tried).ok()?,
            Some(_) if self.trouble.is_some() => return None,
            Some(helper) => match helper.pick(driver, now, key, tried) {
                Ok(member) => member?,
                Err(error) => {
                    self.trouble = Some(error);
                    return None;
                }
            },
        };
        let found = driver.fleet().state(member).in_flight().saturating_sub(1);
        if let Some((scribe, _)) = &mut self.board {
            // The board does not show what was sent since.
            scribe.complete(now, member, &Report::default());
        }
        Some(Picked { server: member.0, found, probe: probed.is_some() })
    }

    /// What went wrong with a program that chooses.
    pub fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Whether the first dispatcher takes a server to be eligible.
    #[inline]
    pub fn accepts(&self, now: Nanos, server: u32) -> bool {
        self.fleets[0].accepts(now, Member(server))
    }

    /// What the end of an attempt says of its server beside the algorithm.
    fn judge(&self, now: Nanos, attempt: &Request, outcome: Outcome) {
        let (member, time) = (Member(attempt.server), now - attempt.sent);
        if let Some(concurrency) = self.concurrency.get(self.fleet_of(attempt.dispatcher))
            && outcome != Outcome::Neutral
        {
            let failed = outcome != Outcome::Success;
            concurrency.complete(now, member, u32::from(attempt.found), time, failed);
        }
        if let Some(outliers) = self.outliers.get(self.fleet_of(attempt.dispatcher)) {
            let verdict = match outcome {
                Outcome::Success => Verdict::Good(Some(time)),
                Outcome::Neutral => Verdict::Unknown,
                _ => Verdict::Bad,
            };
            outliers.complete(now, member, verdict, attempt.probe, &mut |_| ());
        }
    }

    /// What a dispatcher learns of the end of an attempt.
    #[inline]
    pub fn complete(&mut self, now: Nanos, attempt: &Request, outcome: Outcome, bytes: u64) {
        let (member, sent) = (Member(attempt.server), attempt.sent);
        let is_known = self.before.get(usize::from(attempt.epoch)).is_none_or(|before| !before.is_empty());
        if is_known {
            self.judge(now, attempt, outcome);
        }
        let mut drivers = &mut self.drivers;
        if let Some(before) = self.before.get_mut(usize::from(attempt.epoch)) {
            if before.is_empty() {
                return;
            }
            // On a board there is nothing that only those before know.
            if self.board.is_none() {
                drivers = before;
            }
        }
        let driver = &mut drivers[usize::from(attempt.dispatcher)];
        if let Some((scribe, _)) = &mut self.board {
            self.scratch.clear();
            if scribe.claim(now, member, &mut self.scratch, true).is_err() {
                return;
            }
        }
        let time = Some(now - sent);
        let answered = matches!(outcome, Outcome::Success | Outcome::ErrorResponse);
        if self.wants_header && answered {
            driver.header(now, member, now - sent);
        }
        if self.wants_latency && outcome == Outcome::Success {
            driver.latency(now, member, u32::from(attempt.found), now - sent);
        }
        let (header_time, bytes) = if answered { (time, bytes) } else { (None, 0) };
        driver.complete(now, member, &Report { outcome, header_time, last_byte_time: time, bytes });
    }

    /// Renews the board: `queue` is the number of requests at a server.
    pub fn refresh(&mut self, now: Nanos, queue: impl Fn(usize) -> u32) {
        let Some((scribe, known)) = &mut self.board else { return };
        for (i, known) in known.iter_mut().enumerate() {
            let (member, actual) = (Member(i as u32), queue(i));
            while *known < actual {
                self.scratch.clear();
                if scribe.claim(now, member, &mut self.scratch, true).is_err() {
                    break;
                }
                *known += 1;
            }
            while *known > actual {
                scribe.complete(now, member, &Report::default());
                *known -= 1;
            }
        }
    }

    /// The servers to be probed.
    pub fn take_probes(&mut self, now: Nanos, dispatcher: u16, members: &mut Vec<Member>) {
        self.drivers[usize::from(dispatcher)].take_probes(now, members);
    }

    pub fn probed(&mut self, now: Nanos, dispatcher: u16, server: u32, in_flight: u32, latency: Nanos) {
        self.drivers[usize::from(dispatcher)].probed(now, Member(server), in_flight, latency);
    }

    /// The states of a server, one for each view.
    pub fn states(&self, server: u32) -> impl Iterator<Item = &ServerState> {
        self.fleets.iter().map(move |fleet| fleet.state(Member(server)))
    }
}
