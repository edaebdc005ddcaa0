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
use crate::registry::{Entry, Key};
use crate::rng::Rng;
use crate::structures::contest::{Contest, Watch};
use crate::structures::smooth::{Smooth, least};

pub(crate) const ENTRY: Entry = Entry {
    name: "least_conn",
    aliases: &["leastconn", "lc", "wlc"],
    summary: "the server with the fewest requests in flight for its weight",
    nginx: Some("least_conn"),
    parameters: &[],
    source: "NGINX; LVS lc, wlc; HAProxy leastconn",
    cost: "a scan up to 32 servers, then O(log n)",
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
pub(crate) fn compare(level: &Level, i: usize, j: usize) -> Ordering {
    let (a, b) = (&level.slots[i], &level.slots[j]);
    let product = |x: u32, w: u32| u64::from(x) * u64::from(w);
    product(a.cell.in_flight(), b.weight).cmp(&product(b.cell.in_flight(), a.weight))
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
        least(cx, &mut self.0, |i, j| compare(cx.level, i, j))
    }

    #[inline]
    fn on_complete(&mut self, _now: Nanos, level: &Level, index: usize, report: &Report) {
        if report.failed() {
            self.0.on_failure(level, index);
        }
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
fn load(level: &Level, i: usize) -> u64 {
    u64::from(level.slots[i].cell.in_flight())
}

impl Policy for ManyPolicy {
    #[inline]
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let level = cx.level;
        self.contest.pick(cx, &mut self.watch, |i| load(level, i))
    }

    #[inline]
    fn on_dispatch(&mut self, now: Nanos, level: &Level, index: usize) {
        self.contest.dispatched(level, now, index, |i| load(level, i));
    }

    #[inline]
    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        if report.failed() {
            self.watch.add(level, index);
        }
        self.contest.refresh(level, now, index, || load(level, index));
    }
}
