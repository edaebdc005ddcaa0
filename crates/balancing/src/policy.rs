//! The interface between the driver and the algorithms.

use std::fmt;
use std::sync::Arc;

use crate::Nanos;
use crate::client_table::ClientTable;
use crate::key::{key_hash, mix, reduce};
use crate::report::Report;
use crate::rng::Rng;
use crate::server::Member;
use crate::tier::Tier;
use crate::tried::Tried;

/// The worker that a driver belongs to. Worker 0 of 1 begins at the same server as NGINX; several workers begin at
/// different servers, so that they do not all send their first request to the first server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// 0-based.
    pub worker: usize,
    /// At least 1.
    pub workers: usize,
}

impl Default for Start {
    fn default() -> Start {
        Start { worker: 0, workers: 1 }
    }
}

/// How an algorithm came to its choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Basis {
    /// It was the server's turn.
    #[default]
    Turn,
    /// Drawn at random.
    Draw,
    /// The request's key leads to it.
    Key,
    /// It had the best score.
    Score,
    /// It was idle.
    Idle,
    /// First in order with room.
    Order,
    /// The client was there before.
    Affinity,
    /// Probes were in its favour.
    Probe,
    /// Another program chose it.
    External,
    /// The algorithm's own search found no server, and round robin chose.
    Fallback,
    /// No other server was eligible.
    Only,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Basis::Turn => "turn",
            Basis::Draw => "draw",
            Basis::Key => "key",
            Basis::Score => "score",
            Basis::Idle => "idle",
            Basis::Order => "order",
            Basis::Affinity => "affinity",
            Basis::Probe => "probe",
            Basis::External => "external",
            Basis::Fallback => "fallback",
            Basis::Only => "only",
        })
    }
}

/// The tables of one algorithm for one tier, shared by the workers.
pub(crate) trait Plan: Send + Sync {
    /// One worker's instance.
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy>;

    /// The table of the servers that keys had, if it has one: an index into [`Tier::slots`] in the low 24 bits, the
    /// algorithm's own bits above. Values with the highest bit set are not servers.
    fn table(&self) -> Option<&ClientTable> {
        None
    }
}

/// One worker's instance of an algorithm. Servers are indices into [`Tier::slots`].
pub(crate) trait Policy: Send {
    /// Chooses a server for which [`Context::open`] is true; `None` only if there is none. Servers that take less than
    /// their weight are chosen less often, by [`Context::admits`] or by [`Tier::weight`].
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize>;

    /// Whether the request may go to one server of this tier only; asked before a pick.
    fn binds(&self, _cx: &Context<'_>) -> bool {
        false
    }

    /// The driver has taken a slot of a server: the one that [`Policy::pick`] chose (`by_policy`), or another one that
    /// the request had to go to, which is then charged for it.
    fn on_dispatch(&mut self, _now: Nanos, _tier: &Tier, _index: usize, _by_policy: bool) {}

    /// Instead of [`Policy::on_dispatch`] for a shadow: the request went to `index`, and the last pick `chose` another server
    /// or the same; `None` if there was no pick. Turns and keys go by the choice, loads by where the request went.
    fn on_shadow_dispatch(&mut self, now: Nanos, tier: &Tier, chose: Option<usize>, index: usize) {
        self.on_dispatch(now, tier, index, chose.is_some());
    }

    /// The header of a response has arrived; called if [`Policy::wants_header`].
    fn on_header(&mut self, _now: Nanos, _index: usize, _time: Nanos) {}

    /// A request is over, its slot released and its state updated.
    fn on_complete(&mut self, _now: Nanos, _tier: &Tier, _index: usize, _report: &Report) {}

    /// How long a request took that found so many others in flight; called by drivers that tell.
    fn on_latency(&mut self, _now: Nanos, _index: usize, _in_flight: u32, _latency: Nanos) {}

    /// Whether it wants [`Policy::on_latency`].
    fn wants_latency(&self) -> bool {
        false
    }

    /// Whether it wants [`Policy::on_header`].
    fn wants_header(&self) -> bool {
        false
    }

    /// The score of a server before the dispatch; less is better.
    fn score(&self, _cx: &Context<'_>, _index: usize) -> Option<f64> {
        None
    }

    /// The probability that a pick with these servers chooses `index`, or comes to the same fallback, for an algorithm that draws; `tries` is
    /// [`Progress::tries`](crate::tried::Progress::tries) before the pick.
    fn probability(&self, _cx: &Context<'_>, _index: usize, _tries: u32) -> Option<f64> {
        None
    }

    /// How the last pick came to its choice.
    fn basis(&self) -> Basis;

    /// Adds the servers to probe now.
    fn take_probes(&mut self, _now: Nanos, _tier: &Tier, _members: &mut Vec<Member>) {}

    /// The answer to a probe: the server's requests in flight and its latency.
    fn on_probe(&mut self, _now: Nanos, _tier: &Tier, _index: usize, _in_flight: u32, _latency: Nanos) {}

    /// Whether it ever asks for probes.
    fn wants_probes(&self) -> bool {
        false
    }
}

/// [`Policy::on_shadow_dispatch`] of an algorithm by key for the one that it uses `otherwise`, which is charged for choices
/// `by_key`.
pub(crate) fn charge_otherwise(
    otherwise: &mut dyn Policy,
    now: Nanos,
    tier: &Tier,
    (chose, by_key): (Option<usize>, bool),
    index: usize,
) {
    match chose.filter(|_| by_key) {
        Some(chose) => otherwise.on_dispatch(now, tier, chose, false),
        None => otherwise.on_shadow_dispatch(now, tier, chose, index),
    }
}

/// The data of a pick.
pub(crate) struct Context<'a> {
    pub now: Nanos,
    pub tier: &'a Tier,
    pub key: &'a [u8],
    /// Whether the algorithm uses the key.
    pub keyed: bool,
    pub tried: &'a mut Tried,
    pub rng: &'a mut Rng,
    /// The pick has taken a slot of the server itself, because it keeps a limit of its own.
    pub taken: bool,
}

impl Context<'_> {
    /// Whether the server takes this request: eligible, and not tried by it.
    #[inline]
    pub fn open(&self, index: usize) -> bool {
        !self.tried.contains(self.tier.slots[index].member) && self.tier.accepts(index, self.now)
    }

    /// As [`Context::open`], but a server that takes less than its weight (slow start, share) is skipped in that
    /// proportion, so that no table has to be rebuilt: at random, or by key, so that a key keeps its server.
    #[inline]
    pub fn admits(&mut self, index: usize) -> bool {
        self.open(index) && self.spares(index)
    }

    /// The second half of [`Context::admits`].
    #[inline]
    pub fn spares(&mut self, index: usize) -> bool {
        let (weight, whole) = (self.tier.weight(index, self.now), self.tier.whole_weight(index));
        weight >= whole || self.drawn(index, weight, whole)
    }

    #[cold]
    fn drawn(&mut self, index: usize, weight: u64, whole: u64) -> bool {
        if !self.keyed || self.key.is_empty() {
            return self.rng.below(whole) < weight;
        }
        let name = key_hash(self.tier.names[index].as_bytes());
        reduce(mix(key_hash(self.key) ^ mix(name)), whole) < weight
    }

    /// The first open server from a random place on, for algorithms whose own search reached its limit.
    pub fn any(&mut self) -> Option<usize> {
        let n = self.tier.len();
        let start = self.rng.below(n as u64) as usize;
        (start..n).chain(0..start).find(|i| self.open(*i))
    }
}
