//! Rendezvous hashing, weighted: for each key the servers have scores, and the highest gets it.
//!
//! See `structures::skeleton` for the scores, which the names and weights give, and for how many servers are handled.
//! Up to 32 servers a closed one's keys go to their next best. With more the request's key is hashed again, up to 20
//! times, then round robin decides; either way a closed server's keys spread over all others. An empty key means round
//! robin.
//! Source: Thaler, Ravishankar, "A name-based mapping scheme for rendezvous" (1996), highest random weight.
//! Cost: the length of the key; a scan of up to 32 servers, then O(log n). Nobody eligible: the driver goes to the
//! backups.

use std::sync::Arc;

use super::DRAWS;
use super::round_robin::{RoundRobin, RoundRobinPlan};
use crate::Nanos;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::key::{in_round, key_hash};
use crate::policy::{Context, Plan, Policy};
use crate::registry::{Entry, Key};
use crate::rng::Rng;
use crate::structures::skeleton::Skeleton;

pub(crate) const ENTRY: Entry = Entry {
    name: "rendezvous",
    aliases: &["hrw"],
    summary: "a key chooses the server, the one with the highest score for it",
    nginx: None,
    parameters: &[],
    source: "Thaler, Ravishankar 1996; the tree: Wang et al. 2009",
    cost: "the key's length; a scan up to 32 servers, then O(log n)",
    key: Key::Any,
    backup: false,
    build: |_, level| Arc::new(RendezvousPlan { skeleton: Skeleton::new(level), fallback: RoundRobinPlan::new(level) }),
};

struct RendezvousPlan {
    skeleton: Skeleton,
    fallback: RoundRobinPlan,
}

impl Plan for RendezvousPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let fallback = self.fallback.instance(start, rng);
        Box::new(Rendezvous { plan: self, fallback })
    }
}

struct Rendezvous {
    plan: Arc<RendezvousPlan>,
    fallback: RoundRobin,
}

impl Policy for Rendezvous {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        if cx.key.is_empty() {
            return self.fallback.pick(cx);
        }
        let skeleton = &self.plan.skeleton;
        let hash = key_hash(cx.key);
        if skeleton.is_flat() {
            let weight = |i: usize| if cx.open(i) { u64::from(cx.level.slots[i].weight) } else { 0 };
            return skeleton.best(hash, weight);
        }
        while cx.tried.progress.tries <= DRAWS {
            let index = skeleton.owner(in_round(hash, cx.tried.progress.tries))?;
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
