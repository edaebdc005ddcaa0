//! Random, weighted: each request goes to a server drawn with probability `w / T`.
//!
//! A closed server is drawn again, up to 20 times in a request, then round robin decides.
//! Source: NGINX `random`; the draw is Walker's alias method (1977).
//! Cost: O(1) a draw. Nobody eligible: the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use super::round_robin::{RoundRobin, RoundRobinPlan};
use crate::Nanos;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::registry::{Entry, Key};
use crate::rng::Rng;
use crate::structures::alias::Alias;

pub(crate) const ENTRY: Entry = Entry {
    name: "random",
    aliases: &[],
    summary: "a server drawn at random, in proportion to the weights",
    nginx: Some("random"),
    parameters: &[],
    source: "NGINX; Walker's alias method",
    cost: "O(1)",
    key: Key::None,
    backup: false,
    build: |_, level| Arc::new(RandomPlan { alias: Alias::new(level), fallback: RoundRobinPlan::new(level) }),
};

struct RandomPlan {
    alias: Alias,
    fallback: RoundRobinPlan,
}

impl Plan for RandomPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let fallback = self.fallback.instance(start, rng);
        Box::new(Random { plan: self, fallback })
    }
}

struct Random {
    plan: Arc<RandomPlan>,
    fallback: RoundRobin,
}

impl Policy for Random {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        while cx.tried.progress.tries <= DRAWS {
            let index = self.plan.alias.draw(cx.rng);
            if cx.open(index) {
                return Some(index);
            }
            cx.tried.progress.tries += 1;
        }
        self.fallback.pick(cx)
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.fallback.on_complete(now, level, index, report);
    }
}
