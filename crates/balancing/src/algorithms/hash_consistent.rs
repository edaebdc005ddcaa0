//! Consistent hash of a key: ketama.
//!
//! A key belongs to the first point of the ring at or after its checksum (see `structures::ring`). A closed server sends
//! the request to the next point, up to 20 of them, then round robin decides. Servers of one name (a host of several
//! addresses) own the same points and take turns by weight.
//! Source: ketama (2007), in the form of NGINX, whose choices it repeats.
//! Cost: the length of the key and O(1). Nobody eligible: the driver goes to the backups.

use std::sync::Arc;

use super::round_robin::RoundRobin;
use super::{DRAWS, SCAN};
use crate::Nanos;
use crate::crc32::crc32;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan};
use crate::reason::Basis;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::ring::Ring;
use crate::structures::smooth::Smooth;

/// The plan of one level.
pub(crate) fn consistent(level: &Arc<Level>) -> Arc<dyn Plan> {
    let ring = Arc::new(Ring::new(level));
    // A large level's round robin has no turns for a part of it.
    let own_turns = level.len() > SCAN && ring.is_shared();
    let turns_of = level.clone();
    with_turns(level, move |_, rng| Consistent {
        ring: ring.clone(),
        turns: own_turns.then(|| Smooth::new(&turns_of, Start::default(), rng)),
    })
}

struct Consistent {
    ring: Arc<Ring>,
    /// Turns among servers of one name, when the round robin does not keep them.
    turns: Option<Smooth>,
}

impl Search for Consistent {
    fn find(&mut self, cx: &mut Context<'_>, turns: &mut RoundRobin) -> Option<usize> {
        let ring = &*self.ring;
        if cx.level.len() < 2 || cx.key.is_empty() || ring.len() == 0 {
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
            let level = cx.level;
            let mut admitted = servers.iter().map(|i| *i as usize).filter(|i| cx.admits(*i));
            let found = match turns {
                Some(smooth) => smooth.turn(level, admitted),
                None => admitted.next(),
            };
            if found.is_some() {
                return found;
            }
            cx.tried.progress.hash += 1;
            cx.tried.progress.tries += 1;
        }
        None
    }

    fn on_complete(&mut self, _now: Nanos, level: &Level, index: usize, report: &Report) {
        if let (Some(turns), true) = (&mut self.turns, report.failed()) {
            turns.on_failure(level, index);
        }
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}
