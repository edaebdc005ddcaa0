//! Consistent hash of a key: ketama.
//!
//! A key belongs to the first point of the ring at or after its checksum (see `structures::ring`). A closed server sends
//! the request to the next point, up to 20 of them, then round robin decides. Servers of one name (a host of several
//! addresses) own the same points and take turns by weight.
//! Source: ketama (2007), in the form of NGINX, whose choices it repeats.
//! Cost: the length of the key and O(1). Nobody eligible: the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use super::round_robin::{RoundRobin, RoundRobinPlan};
use crate::Nanos;
use crate::crc32::crc32;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::rng::Rng;
use crate::structures::ring::Ring;
use crate::structures::smooth::Smooth;

/// The ring of one level.
pub(crate) struct ConsistentPlan {
    level: Arc<Level>,
    ring: Ring,
    fallback: RoundRobinPlan,
}

impl ConsistentPlan {
    pub fn new(level: &Arc<Level>) -> ConsistentPlan {
        ConsistentPlan { level: level.clone(), ring: Ring::new(level), fallback: RoundRobinPlan::new(level) }
    }
}

impl Plan for ConsistentPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let fallback = self.fallback.instance(start, rng);
        let large = matches!(fallback, RoundRobin::Rotation(_));
        let turns = (large && self.ring.is_shared()).then(|| Smooth::new(&self.level, Start::default(), rng));
        Box::new(Consistent { plan: self, fallback, turns })
    }
}

struct Consistent {
    plan: Arc<ConsistentPlan>,
    fallback: RoundRobin,
    /// Turns among servers of one name, when the fallback does not keep them.
    turns: Option<Smooth>,
}

impl Policy for Consistent {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let ring = &self.plan.ring;
        if cx.level.len() < 2 || cx.key.is_empty() || ring.len() == 0 {
            return self.fallback.pick(cx);
        }
        if cx.tried.progress.rounds == 0 {
            cx.tried.progress.rounds = 1;
            cx.tried.progress.hash = ring.find(crc32(cx.key)) as u32;
        }
        while cx.tried.progress.tries <= DRAWS {
            let owner = ring.owner(cx.tried.progress.hash as usize);
            let servers = ring.servers(&owner);
            let turns = match &mut self.fallback {
                RoundRobin::Smooth(smooth) => Some(smooth),
                RoundRobin::Rotation(_) => self.turns.as_mut(),
            };
            let mut open = servers.iter().map(|i| *i as usize).filter(|i| cx.open(*i));
            let found = match turns {
                Some(smooth) => smooth.turn(cx.level, open),
                None => open.next(),
            };
            if found.is_some() {
                return found;
            }
            cx.tried.progress.hash += 1;
            cx.tried.progress.tries += 1;
        }
        self.fallback.pick(cx)
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.fallback.on_complete(now, level, index, report);
        if let (Some(turns), true) = (&mut self.turns, report.failed()) {
            turns.on_failure(level, index);
        }
    }
}
