//! IP hash: a client's address decides, so that a client keeps its server.
//!
//! The first three octets of an IPv4 address, or all 16 bytes of an IPv6 address, are folded as
//! `h = (h * 113 + byte) % 6271` from 89; `h` modulo the sum of weights falls on a server. A closed server sends the
//! client on by folding again, up to 20 times, then round robin decides.
//! Source: NGINX, whose choices it repeats for every address. Only 6271 values exist, so shares of large fleets are
//! uneven; `hash` has no such limit.
//! Cost: O(log n) for different weights, O(1) for equal ones. Nobody eligible: the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use super::round_robin::{RoundRobin, RoundRobinPlan};
use crate::Nanos;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::registry::{Entry, Key};
use crate::rng::Rng;
use crate::structures::wheel::Wheel;

pub(crate) const ENTRY: Entry = Entry {
    name: "ip_hash",
    aliases: &[],
    summary: "the client's address chooses the server",
    nginx: Some("ip_hash"),
    parameters: &[],
    source: "NGINX",
    cost: "O(log n); O(1) for equal weights",
    key: Key::ClientAddress,
    backup: false,
    build: |_, level| Arc::new(IpHashPlan { wheel: Wheel::new(level), fallback: RoundRobinPlan::new(level) }),
};

struct IpHashPlan {
    wheel: Wheel,
    fallback: RoundRobinPlan,
}

impl Plan for IpHashPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let fallback = self.fallback.instance(start, rng);
        Box::new(IpHash { plan: self, fallback })
    }
}

struct IpHash {
    plan: Arc<IpHashPlan>,
    fallback: RoundRobin,
}

impl Policy for IpHash {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        if cx.level.len() < 2 {
            return self.fallback.pick(cx);
        }
        let address = match cx.key.len() {
            4 => &cx.key[..3],
            16 => cx.key,
            _ => &[0; 3],
        };
        if cx.tried.progress.rounds == 0 {
            cx.tried.progress.hash = 89;
        }
        while cx.tried.progress.tries <= DRAWS {
            let fold = |h, byte: &u8| (h * 113 + u32::from(*byte)) % 6271;
            let hash = address.iter().fold(cx.tried.progress.hash, fold);
            cx.tried.progress.hash = hash;
            cx.tried.progress.rounds += 1;
            let index = self.plan.wheel.at(hash)?;
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
