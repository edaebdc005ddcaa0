//! Consistent hash of a key: ketama.
//!
//! A key belongs to the first point of the ring at or after its checksum (see `structures::ring`). A closed server
//! sends the request to the next point, up to 20 of them, then round robin decides. Servers of one name (a host of
//! several addresses, or a server that is written many times) own the same points and share them in proportion to their
//! weights. A point costs the same for any number of servers of one name.
//! Source: ketama (2007), in NGINX's form, with the same choices.
//! Cost: the length of the key and O(1).
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use crate::Nanos;
use crate::crc32::crc32;
use crate::policy::{Basis, Context, Plan, Start};
use crate::report::Report;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::ring::Ring;
use crate::structures::rotation::{Rotation, RotationPlan};
use crate::structures::round_robin::RoundRobin;
use crate::structures::smooth::Smooth;
use crate::tier::{SCAN, Tier};

/// The plan of one tier.
pub(crate) fn consistent(tier: &Arc<Tier>) -> Arc<dyn Plan> {
    let ring = Arc::new(Ring::new(tier));
    // A large tier's round robin has no turns for a part of it.
    let own_turns = tier.len() > SCAN && ring.is_shared();
    let turns_of = tier.clone();
    let rotation = |(owner, servers): (u32, &[u32])| (owner, Arc::new(RotationPlan::of(tier, servers.iter().copied())));
    let rotations: Box<[_]> = ring.owners_of_many(SCAN).map(rotation).collect();
    with_turns(tier, move |start, rng| Consistent {
        ring: ring.clone(),
        turns: own_turns.then(|| Smooth::new(&turns_of, Start::default(), rng)),
        rotations: rotations
            .iter()
            .map(|(owner, plan)| (*owner, Rotation::without_debts(plan.clone(), start, rng)))
            .collect(),
    })
}

struct Consistent {
    ring: Arc<Ring>,
    /// Turns among servers of one name, when the round robin does not keep them.
    turns: Option<Smooth>,
    /// Turns among those of one name that are too many to be scanned, by owner.
    rotations: Box<[(u32, Rotation)]>,
}

impl Search for Consistent {
    fn find(&mut self, cx: &mut Context<'_>, turns: &mut RoundRobin) -> Option<usize> {
        let ring = &*self.ring;
        if cx.tier.len() < 2 || cx.key.is_empty() || ring.len() == 0 {
            return None;
        }
        if cx.tried.progress.rounds == 0 {
            cx.tried.progress.rounds = 1;
            cx.tried.progress.hash = ring.find(crc32(cx.key)) as u32;
        }
        while cx.tried.progress.tries <= DRAWS {
            let owner = ring.owner(cx.tried.progress.hash as usize);
            let servers = ring.servers(&owner);
            let turns = match turns {
                RoundRobin::Smooth(smooth) => Some(smooth),
                RoundRobin::Rotation(_) => self.turns.as_mut(),
            };
            let tier = cx.tier;
            let found = if servers.len() > SCAN {
                let known = self.rotations.binary_search_by_key(&owner, |(owner, _)| *owner);
                known.ok().and_then(|at| self.rotations[at].1.turn(cx))
            } else {
                let mut admitted = servers.iter().map(|i| *i as usize).filter(|i| cx.admits(*i));
                match turns {
                    Some(smooth) => smooth.turn(tier, admitted),
                    None => admitted.next(),
                }
            };
            if found.is_some() {
                return found;
            }
            cx.tried.progress.hash += 1;
            cx.tried.progress.tries += 1;
        }
        None
    }

    fn on_complete(&mut self, _now: Nanos, tier: &Tier, index: usize, report: &Report) {
        if let (Some(turns), true) = (&mut self.turns, report.failed()) {
            turns.on_failure(tier, index);
        }
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}
