//! Weighted by load: round robin in proportion to the requests that each server handles for the load that it reports.
//!
//! A server's weight is the requests sent to it in a second over the load that it reports with them, both averaged: the
//! requests that it could handle when fully busy. Failures and error responses in a row add to the load. A weight is
//! used when reports have come for the blackout period and the last one is not stale; a server without one has the
//! average of the others, for its configured weight, and where fewer than two servers have one it is round robin. A
//! weight is at least a tenth of that average and at most ten times it, so that every server still gets requests.
//! Unlike the free capacity, this weight does not change with the traffic that it causes: a server that gets more
//! requests reports more load, and the quotient stays.
//! Source: gRPC weighted_round_robin (gRFC A58), Envoy client_side_weighted_round_robin, where the server reports its
//! rate of requests as well; ZenLoad Weight. Cost: a scan of up to 32 servers in smooth turns; beyond, a draw by
//! configured weight that is repeated with a probability by the measured weight.
//! If no server is eligible, the driver goes to the next tier.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::policy::{Basis, Context, Plan, Policy, Start};
use crate::report::Report;
use crate::rng::Rng;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::structures::typical::Failing;
use crate::tier::{SCAN, Tier};

pub(crate) const ENTRY: Entry = Entry {
    name: "weighted_load",
    aliases: &["weight_load"],
    summary: "round robin with weights that are the requests served for the reported load",
    what: "\
        A server's weight is its number of requests per second divided by the load that it reports (1 is fully \
        busy), both averaged over half a minute or eight reports: a server that does the same work with half the \
        load gets twice the requests. Up to 32 servers are used in rotation by these weights; of more servers one is \
        drawn at random. This is the weighted round robin of gRPC and Envoy. Failures and error responses in a row \
        add to the load, as errors do there.\n\n\
        A weight is used when the server has reported for the time blackout, and until its last report is older than \
        stale. Otherwise the server has the average of the others, in proportion to the configured weights; so \
        without reports this is round robin. A weight is at least a tenth of that average and at most ten times it. \
        Slow start reduces it. Backup servers are used when all others are closed or full.",
    when: "\
        Use it if reports are averages over some seconds and each server handles many requests at a time.",
    when_not: "\
        Do not use it if a server handles only a few requests at a time: its average load of the last seconds says \
        little about the next ones, and requests in flight are not counted. Do not use it if several balancers share \
        the servers: each counts only its own requests, but the load is that of all, so a server to which it sends \
        more requests looks faster (the servers of gRPC report the rate of all requests). In both cases use least_load.",
    nginx: None,
    parameters: &[
        Parameter {
            name: "blackout",
            summary: "how long a server has to report before its weight is used",
            kind: Kind::Time(0, 86_400_000),
            default: "10s",
        },
        Parameter {
            name: "stale",
            summary: "age of the last report above which the weight is not used",
            kind: Kind::Time(1, 86_400_000),
            default: "3m",
        },
    ],
    source: "gRPC weighted_round_robin (gRFC A58); Envoy client_side_weighted_round_robin; ZenLoad Weight",
    cost: "a scan up to 32 servers, then O(1) draws",
    linear: false,
    times: Times::Always,
    host: Host::Reports,
    share: Share::Weights,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        let measured = Arc::new(Measured {
            blackout: spec.time("blackout"),
            stale: spec.time("stale"),
            failing: Failing::new(tier),
            mean: AtomicU64::new(0),
            most: AtomicU64::new(WHOLE),
        });
        if tier.len() <= SCAN {
            return Arc::new(TurnsPlan { tier: tier.clone(), measured });
        }
        let alias = Arc::new(Alias::new(tier));
        with_turns(tier, move |_, _| Draws { alias: alias.clone(), measured: measured.clone(), completions: 0 })
    },
};

/// A measured weight over the average is in these parts, and within these bounds.
const WHOLE: u64 = 1024;
const BOUNDS: (f64, f64) = (0.1, 10.0);
/// How often the weights of a small tier are computed.
const UPDATE: Nanos = 100_000_000;
/// Draws before the last one has to do.
const DRAWS: u32 = 64;
/// Servers of a large tier that the average is taken of at a time.
const SAMPLE: usize = 64;

/// What the reports tell of the servers, shared by the workers.
struct Measured {
    blackout: Nanos,
    stale: Nanos,
    failing: Failing,
    /// The average of the measured weights for a unit of configured weight, the bits of an `f64`; 0 if there are none.
    mean: AtomicU64,
    /// The greatest part of the servers, about.
    most: AtomicU64,
}

impl Measured {
    /// Requests a second that the server could serve, if that is known.
    fn weight(&self, tier: &Tier, now: Nanos, i: usize) -> Option<f64> {
        let (rate, load) =
            tier.slots[i].state.reports.rate_and_load(now, self.blackout, self.stale, tier.is_shadow())?;
        Some(rate / (load + self.failing.load(now, i)))
    }

    /// The measured weight over the average, in parts of [`WHOLE`].
    fn part(&self, tier: &Tier, now: Nanos, i: usize) -> u64 {
        let mean = f64::from_bits(self.mean.load(Relaxed));
        let weight = if mean == 0.0 { None } else { self.weight(tier, now, i) };
        let part = match weight {
            Some(weight) => weight / (mean * f64::from(tier.slots[i].weight)),
            // Of an average server that is busy, failures take as much.
            None => 1.0 / (1.0 + self.failing.load(now, i)),
        };
        (part.clamp(BOUNDS.0, BOUNDS.1) * WHOLE as f64).round() as u64
    }

    /// Takes the average of some servers, from `first` on.
    fn learn(&self, tier: &Tier, now: Nanos, first: usize) {
        let n = tier.len();
        let some = || (0..n.min(SAMPLE)).map(|k| (first + k) % n).filter(|i| tier.slots[*i].weight != 0);
        let (mut weights, mut units, mut count) = (0.0, 0u64, 0);
        for i in some() {
            if let Some(weight) = self.weight(tier, now, i) {
                weights += weight;
                units += u64::from(tier.slots[i].weight);
                count += 1;
            }
        }
        // With one alone there is nothing to compare it with.
        let mean = if count < 2 { 0.0 } else { weights / units as f64 };
        let known = f64::from_bits(self.mean.load(Relaxed));
        let smooth = n > SAMPLE && known != 0.0 && mean != 0.0;
        let mean = if smooth { known + (mean - known) / 8.0 } else { mean };
        self.mean.store(mean.to_bits(), Relaxed);
        let most = some().map(|i| self.part(tier, now, i)).max().unwrap_or(WHOLE);
        // Of many servers the greatest may be in another sample.
        let kept = if n > SAMPLE { self.most.load(Relaxed) * 31 / 32 } else { 0 };
        self.most.store(most.max(kept), Relaxed);
    }
}

struct TurnsPlan {
    tier: Arc<Tier>,
    measured: Arc<Measured>,
}

impl Plan for TurnsPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let n = self.tier.len();
        let (current, parts) = (vec![0; n].into(), vec![WHOLE; n].into());
        let mut turns = Turns { current, parts, updated: None, measured: self.measured.clone() };
        // Several workers begin each at a random place in its part of a round (or of the first turns of a long one).
        let workers = start.workers.max(1) as u64;
        if workers > 1 {
            let round = self.tier.total_weight.min(4096);
            let skipped = round * start.worker as u64 / workers + rng.below(round.div_ceil(workers));
            for _ in 0..skipped {
                turns.turn(&self.tier, Nanos::MAX, |_| true);
            }
        }
        Box::new(turns)
    }
}

/// Smooth turns with weights that change: each turn every candidate gains its weight, the one ahead pays the sum.
struct Turns {
    current: Box<[i64]>,
    /// Of each server, as of the last update.
    parts: Box<[u64]>,
    updated: Option<Nanos>,
    measured: Arc<Measured>,
}

impl Turns {
    /// Computes the weights, if it is time.
    #[inline]
    fn update(&mut self, tier: &Tier, now: Nanos) {
        if self.updated.is_none_or(|updated| now.saturating_sub(updated) >= UPDATE) {
            self.updated = Some(now);
            self.measured.learn(tier, now, 0);
            for i in 0..tier.len() {
                self.parts[i] = self.measured.part(tier, now, i);
            }
        }
    }

    /// The candidates gain; returns the one ahead and the sum.
    fn gain(&mut self, tier: &Tier, now: Nanos, candidate: impl Fn(usize) -> bool) -> Option<(usize, i64)> {
        let (mut best, mut sum) = (None, 0);
        for i in (0..tier.len()).filter(|i| candidate(*i)) {
            let gain = (tier.weight(i, now) * self.parts[i]) as i64;
            self.current[i] += gain;
            sum += gain;
            if best.is_none_or(|b| self.current[i] > self.current[b]) {
                best = Some(i);
            }
        }
        best.map(|best| (best, sum))
    }

    fn turn(&mut self, tier: &Tier, now: Nanos, candidate: impl Fn(usize) -> bool) -> Option<usize> {
        let (best, sum) = self.gain(tier, now, candidate)?;
        self.current[best] -= sum;
        Some(best)
    }
}

impl Policy for Turns {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        self.update(cx.tier, cx.now);
        self.turn(cx.tier, cx.now, |i| cx.open(i))
    }

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, by_policy: bool) {
        // A request that was bound for the server is its turn, unless it owes many already.
        let limit = 16 * 256 * WHOLE as i64 * tier.total_weight as i64;
        if !by_policy
            && self.current[index] > -limit
            && let Some((_, sum)) = self.gain(tier, now, |i| i == index || tier.accepts(i, now))
        {
            self.current[index] -= sum;
        }
    }

    fn on_complete(&mut self, now: Nanos, _tier: &Tier, index: usize, report: &Report) {
        self.measured.failing.learn(now, index, report);
    }

    /// The time between two of its turns, over that of an average server.
    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(WHOLE as f64 / self.measured.part(cx.tier, cx.now, index) as f64)
    }

    fn basis(&self) -> Basis {
        Basis::Turn
    }
}

struct Draws {
    alias: Arc<Alias>,
    measured: Arc<Measured>,
    completions: u32,
}

impl Search for Draws {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        let most = self.measured.most.load(Relaxed);
        let mut last = None;
        for _ in 0..DRAWS {
            let index = self.alias.draw(cx.rng);
            if !cx.admits(index) {
                continue;
            }
            if cx.rng.below(most) < self.measured.part(cx.tier, cx.now, index) {
                return Some(index);
            }
            last = Some(index);
        }
        last
    }

    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        self.measured.failing.learn(now, index, report);
        self.completions = self.completions.wrapping_add(1);
        if self.completions.is_multiple_of(SAMPLE as u32) {
            self.measured.learn(tier, now, self.completions as usize);
        }
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(WHOLE as f64 / self.measured.part(cx.tier, cx.now, index) as f64)
    }

    fn basis(&self) -> Basis {
        Basis::Draw
    }
}
