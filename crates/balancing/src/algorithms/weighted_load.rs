//! Weighted by load: turns in proportion to the weight times the capacity that the server reports to be free.
//!
//! The effective weight is `w * (1 - L)`, where L is the load that the server reported last, from 0 to 1, and at least a
//! sixty-fourth of w, so that a server that reports to be full is still asked now and then. A server without a report, or
//! whose report is too old, is taken to be as loaded as the median of the others: where nobody reports it is round robin.
//! Source: ZenLoad Weight. Cost: a scan of up to 32 servers in smooth turns; beyond, draws by weight of which those that
//! the load speaks against are drawn again, about twice on average. Nobody eligible: the driver goes on to the next level.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::SCAN;
use super::least_load::STALE;
use super::round_robin::RoundRobin;
use crate::Nanos;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::rng::Rng;
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::typical::{Failing, Loads};

pub(crate) const ENTRY: Entry = Entry {
    name: "weighted_load",
    aliases: &["weight_load"],
    summary: "turns in proportion to the weight times the reported free capacity",
    description: "\
        A server's effective weight is w * (1 - L), where L is the load that it reported last, from 0 to 1 when it is \
        fully busy: a server that is half busy gets half of its turns. Servers take smooth turns by these weights, more \
        than 32 are drawn at random by them.\n\n\
        Steadier than least_load, which sends everything to the least loaded: for reports that come seldom. Reports \
        older than stale do not count; a server without one is taken to be as loaded as the median of the others, so \
        that without any reports it is round robin. A server that reports to be full keeps a sixty-fourth of its weight. \
        Slow start lessens the weight as well. Backups are used when all others are closed or full.",
    nginx: None,
    parameters: &[STALE],
    source: "ZenLoad Weight",
    cost: "a scan up to 32 servers, then O(1) draws",
    linear: false,
    times: Times::Always,
    host: Host::Reports,
    share: Share::Weights,
    key: Key::None,
    backup: true,
    build: |spec, level| {
        let capacity = Arc::new(Capacity {
            loads: Loads::new(spec.time("stale")),
            failing: Failing::new(level),
            most: AtomicU64::new(WHOLE),
        });
        if level.len() <= SCAN {
            return Arc::new(TurnsPlan { level: level.clone(), capacity });
        }
        let alias = Arc::new(Alias::new(level));
        with_turns(level, move |_, _| Draws { alias: alias.clone(), capacity: capacity.clone(), completions: 0 })
    },
};

/// A server's free capacity is measured in this many parts.
const WHOLE: u64 = 64;
/// Draws before the last one has to do.
const DRAWS: u32 = 64;
/// Servers that the greatest free capacity is taken of.
const SAMPLE: usize = 64;

struct Capacity {
    loads: Loads,
    failing: Failing,
    /// The greatest free capacity of the servers, about.
    most: AtomicU64,
}

impl Capacity {
    /// Free parts of [`WHOLE`], at least one.
    fn free(&self, level: &Level, now: Nanos, i: usize) -> u64 {
        let load = self.loads.of(level, now, i) + self.failing.load(now, i);
        let free = (1.0 - load) * WHOLE as f64;
        (free.round() as u64).max(1)
    }
}

struct TurnsPlan {
    level: Arc<Level>,
    capacity: Arc<Capacity>,
}

impl Plan for TurnsPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let n = self.level.len();
        let mut turns = Turns { current: vec![0; n].into(), capacity: self.capacity.clone(), completions: 0 };
        // Several workers begin each at a random place in its part of a round (or of the first turns of a long one).
        let workers = start.workers.max(1) as u64;
        if workers > 1 {
            let round = self.level.total_weight.min(4096);
            let skipped = round * start.worker as u64 / workers + rng.below(round.div_ceil(workers));
            for _ in 0..skipped {
                turns.turn(&self.level, Nanos::MAX, |_| true);
            }
        }
        Box::new(turns)
    }
}

/// Smooth turns with weights that change: each turn every candidate gains its weight, the one ahead pays the sum.
struct Turns {
    current: Box<[i64]>,
    capacity: Arc<Capacity>,
    completions: u32,
}

impl Turns {
    /// The candidates gain; returns the one ahead and the sum.
    fn gain(&mut self, level: &Level, now: Nanos, candidate: impl Fn(usize) -> bool) -> Option<(usize, i64)> {
        let (mut best, mut sum) = (None, 0);
        for i in (0..level.len()).filter(|i| candidate(*i)) {
            let gain = (level.weight(i, now) * self.capacity.free(level, now, i)) as i64;
            self.current[i] += gain;
            sum += gain;
            if best.is_none_or(|b| self.current[i] > self.current[b]) {
                best = Some(i);
            }
        }
        best.map(|best| (best, sum))
    }

    fn turn(&mut self, level: &Level, now: Nanos, candidate: impl Fn(usize) -> bool) -> Option<usize> {
        let (best, sum) = self.gain(level, now, candidate)?;
        self.current[best] -= sum;
        Some(best)
    }
}

impl Policy for Turns {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        self.turn(cx.level, cx.now, |i| cx.open(i))
    }

    fn on_dispatch(&mut self, now: Nanos, level: &Level, index: usize, by_policy: bool) {
        // A request that was bound for the server is its turn, unless it owes many already.
        let limit = 16 * 256 * WHOLE as i64 * level.total_weight as i64;
        if !by_policy
            && self.current[index] > -limit
            && let Some((_, sum)) = self.gain(level, now, |i| i == index || level.accepts(i, now))
        {
            self.current[index] -= sum;
        }
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.completions = self.completions.wrapping_add(1);
        self.capacity.failing.learn(now, index, report);
        self.capacity.loads.learn(level, now, self.completions);
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(self.capacity.loads.of(cx.level, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Turn
    }
}

struct Draws {
    alias: Arc<Alias>,
    capacity: Arc<Capacity>,
    completions: u32,
}

impl Search for Draws {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        let most = self.capacity.most.load(Relaxed);
        let mut last = None;
        for _ in 0..DRAWS {
            let index = self.alias.draw(cx.rng);
            if !cx.admits(index) {
                continue;
            }
            if cx.rng.below(most) < self.capacity.free(cx.level, cx.now, index) {
                return Some(index);
            }
            last = Some(index);
        }
        last
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.completions = self.completions.wrapping_add(1);
        self.capacity.failing.learn(now, index, report);
        self.capacity.loads.learn(level, now, self.completions);
        if self.completions.is_multiple_of(64) {
            let first = self.completions as usize;
            let sample = (0..SAMPLE.min(level.len())).map(|k| (first + k) % level.len());
            let most = sample.map(|i| self.capacity.free(level, now, i)).max();
            self.capacity.most.store(most.unwrap_or(WHOLE), Relaxed);
        }
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(self.capacity.loads.of(cx.level, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Draw
    }
}
