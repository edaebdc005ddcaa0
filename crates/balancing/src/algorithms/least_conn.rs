//! Least connections, weighted: the server with the fewest requests in flight for its weight.
//!
//! The least `a / w` wins; servers that share the least take turns as in round robin, in proportion to their weights.
//! Source: NGINX, LVS lc and wlc, HAProxy leastconn. Up to 32 servers the picks are NGINX's, one by one; beyond, a
//! tournament shared by the workers finds the least, with ties broken by deadlines.
//! Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a completion.
//! Nobody eligible: the driver goes to the backups.

use std::cmp::Ordering;
use std::sync::Arc;

use super::SCAN;
use crate::Nanos;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Share};
use crate::rng::Rng;
use crate::structures::contest::{Contest, Watch};
use crate::structures::smooth::{Smooth, least};

pub(crate) const ENTRY: Entry = Entry {
    name: "least_conn",
    aliases: &["leastconn", "lc", "wlc"],
    summary: "the server with the fewest requests in flight for its weight",
    description: "\
        The server with the least a / w gets the request, where a counts its requests in flight; servers \
        that share the least take turns in proportion to their weights. For requests of very different \
        lengths, and for servers of different speeds: who is slow has more in flight and gets less.\n\n\
        In an idle fleet it is round robin. In slow start a server is passed over as often as its weight is \
        short of the whole, and has at most its part in flight. Backups are used when all others are closed \
        or full.",
    nginx: Some("least_conn"),
    parameters: &[],
    source: "NGINX; LVS lc, wlc; HAProxy leastconn",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |_, level| {
        if level.len() > SCAN {
            Arc::new(Many { level: level.clone(), contest: Arc::new(Contest::new(level)) })
        } else {
            Arc::new(Few { level: level.clone() })
        }
    },
};

/// Compares `a / w` of two servers, exactly.
#[inline]
pub(crate) fn compare(level: &Level, now: Nanos, i: usize, j: usize) -> Ordering {
    let product = |a: usize, w: usize| level.burden(a, now) * u64::from(level.slots[w].weight);
    product(i, j).cmp(&product(j, i))
}

/// `a / w`.
pub(crate) fn score(level: &Level, now: Nanos, i: usize) -> f64 {
    level.burden(i, now) as f64 / level.whole_weight(i).max(1) as f64
}

struct Few {
    level: Arc<Level>,
}

impl Plan for Few {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        Box::new(FewPolicy(Smooth::new(&self.level, start, rng)))
    }
}

struct FewPolicy(Smooth);

impl Policy for FewPolicy {
    #[inline]
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let (level, now) = (cx.level, cx.now);
        least(cx, &mut self.0, |i, j| compare(level, now, i, j))
    }

    #[inline]
    fn on_dispatch(&mut self, now: Nanos, level: &Level, index: usize, by_policy: bool) {
        if !by_policy {
            self.0.charge(level, now, index);
        }
    }

    #[inline]
    fn on_complete(&mut self, _now: Nanos, level: &Level, index: usize, report: &Report) {
        if report.failed() {
            self.0.on_failure(level, index);
        }
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(score(cx.level, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}

struct Many {
    level: Arc<Level>,
    contest: Arc<Contest>,
}

impl Plan for Many {
    fn policy(self: Arc<Self>, _: Start, _: &mut Rng) -> Box<dyn Policy> {
        Box::new(ManyPolicy { contest: self.contest.clone(), watch: Watch::new(&self.level) })
    }
}

struct ManyPolicy {
    contest: Arc<Contest>,
    watch: Watch,
}

#[inline]
fn load(level: &Level, now: Nanos, i: usize) -> u64 {
    level.burden(i, now).div_ceil(256)
}

impl Policy for ManyPolicy {
    #[inline]
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let (level, now) = (cx.level, cx.now);
        self.contest.pick(cx, &mut self.watch, |i| load(level, now, i))
    }

    #[inline]
    fn on_dispatch(&mut self, now: Nanos, level: &Level, index: usize, _by_policy: bool) {
        self.contest.dispatched(level, now, index, |i| load(level, now, i));
    }

    #[inline]
    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        if report.failed() {
            self.watch.add(level, index);
        }
        self.contest.refresh(level, now, index, || load(level, now, index));
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(score(cx.level, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}
