//! A bounded search with round robin as the fallback, for algorithms that hash or draw.

use std::sync::Arc;

use crate::Nanos;
use crate::policy::{Basis, Context, Plan, Policy, Start};
use crate::report::Report;
use crate::rng::Rng;
use crate::server::Member;
use crate::structures::round_robin::{RoundRobin, RoundRobinPlan};
use crate::tier::Tier;

/// One worker's instance of an algorithm that may come to its limit.
pub(crate) trait Search: Send {
    /// Chooses a server for which [`Context::admits`] is true; `None` leaves the choice to the round robin. `turns` is
    /// that round robin, whose turns the search may use.
    fn find(&mut self, cx: &mut Context<'_>, turns: &mut RoundRobin) -> Option<usize>;

    /// See [`Policy::on_dispatch`].
    fn on_dispatch(&mut self, _now: Nanos, _tier: &Tier, _index: usize, _by_policy: bool) {}

    /// See [`Policy::on_complete`].
    fn on_complete(&mut self, _now: Nanos, _tier: &Tier, _index: usize, _report: &Report) {}

    /// See [`Policy::on_header`].
    fn on_header(&mut self, _now: Nanos, _index: usize, _time: Nanos) {}

    /// See [`Policy::wants_header`].
    fn wants_header(&self) -> bool {
        false
    }

    /// See [`Policy::on_latency`].
    fn on_latency(&mut self, _now: Nanos, _index: usize, _in_flight: u32, _latency: Nanos) {}

    /// See [`Policy::wants_latency`].
    fn wants_latency(&self) -> bool {
        false
    }

    /// See [`Policy::score`].
    fn score(&self, _cx: &Context<'_>, _index: usize) -> Option<f64> {
        None
    }

    /// See [`Policy::probability`]; without an index, the probability that no server is found.
    fn probability(&self, _cx: &Context<'_>, _index: Option<usize>, _tries: u32) -> Option<f64> {
        None
    }

    /// See [`Policy::basis`]; of a search that found a server.
    fn basis(&self) -> Basis;

    /// See [`Policy::take_probes`].
    fn take_probes(&mut self, _now: Nanos, _tier: &Tier, _members: &mut Vec<Member>) {}

    /// See [`Policy::on_probe`].
    fn on_probe(&mut self, _now: Nanos, _tier: &Tier, _index: usize, _in_flight: u32, _latency: Nanos) {}

    /// See [`Policy::wants_probes`].
    fn wants_probes(&self) -> bool {
        false
    }
}

/// The plan of a search: `search` makes each worker's instance.
pub(crate) fn with_turns<S: Search + 'static>(
    tier: &Arc<Tier>,
    search: impl Fn(Start, &mut Rng) -> S + Send + Sync + 'static,
) -> Arc<dyn Plan> {
    Arc::new(SearchPlan { search, turns: RoundRobinPlan::new(tier) })
}

struct SearchPlan<F> {
    search: F,
    turns: RoundRobinPlan,
}

impl<S: Search + 'static, F: Fn(Start, &mut Rng) -> S + Send + Sync> Plan for SearchPlan<F> {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let turns = self.turns.instance(start, rng);
        Box::new(Searching { search: (self.search)(start, rng), turns, found: true })
    }
}

struct Searching<S> {
    search: S,
    turns: RoundRobin,
    /// Whether the last pick was the search's.
    found: bool,
}

impl<S: Search> Policy for Searching<S> {
    #[inline]
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let found = self.search.find(cx, &mut self.turns);
        self.found = found.is_some();
        found.or_else(|| self.turns.pick(cx))
    }

    #[inline]
    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, by_policy: bool) {
        self.search.on_dispatch(now, tier, index, by_policy);
    }

    #[inline]
    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        self.turns.on_complete(now, tier, index, report);
        self.search.on_complete(now, tier, index, report);
    }

    fn on_header(&mut self, now: Nanos, index: usize, time: Nanos) {
        self.search.on_header(now, index, time);
    }

    fn wants_header(&self) -> bool {
        self.search.wants_header()
    }

    fn on_latency(&mut self, now: Nanos, index: usize, in_flight: u32, latency: Nanos) {
        self.search.on_latency(now, index, in_flight, latency);
    }

    fn wants_latency(&self) -> bool {
        self.search.wants_latency()
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        self.search.score(cx, index)
    }

    fn probability(&self, cx: &Context<'_>, index: usize, tries: u32) -> Option<f64> {
        self.search.probability(cx, Some(index).filter(|_| self.found), tries)
    }

    fn basis(&self) -> Basis {
        if self.found { self.search.basis() } else { Basis::Fallback }
    }

    fn take_probes(&mut self, now: Nanos, tier: &Tier, members: &mut Vec<Member>) {
        self.search.take_probes(now, tier, members);
    }

    fn on_probe(&mut self, now: Nanos, tier: &Tier, index: usize, in_flight: u32, latency: Nanos) {
        self.search.on_probe(now, tier, index, in_flight, latency);
    }

    fn wants_probes(&self) -> bool {
        self.search.wants_probes()
    }
}
