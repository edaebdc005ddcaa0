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
use super::round_robin::RoundRobin;
use crate::key::{in_round, key_hash};
use crate::policy::Context;
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::structures::fallback::{Search, with_turns};
use crate::structures::skeleton::Skeleton;

pub(crate) const ENTRY: Entry = Entry {
    name: "rendezvous",
    aliases: &["hrw"],
    summary: "a key chooses the server, the one with the highest score for it",
    description: "\
        Every server has a score for every key, w / -ln(h) with a hash h of both between 0 and 1, and the \
        highest wins. When a server comes or goes exactly its own keys move, and shares are the weights. For \
        caches and sessions by key, without a table to build.\n\n\
        Up to 32 servers are compared; more stand in a tree of which one branch is followed, so that the \
        cost hardly grows. During slow start a server's scores grow with its weight, so that it takes a \
        growing part of its keys, always the same ones. There are no backups.",
    nginx: None,
    parameters: &[],
    source: "Thaler, Ravishankar 1996; the tree: Wang et al. 2009",
    cost: "the key's length; a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::Any,
    backup: false,
    build: |_, level| {
        let skeleton = Arc::new(Skeleton::new(level));
        with_turns(level, move |_, _| Rendezvous { skeleton: skeleton.clone() })
    },
};

struct Rendezvous {
    skeleton: Arc<Skeleton>,
}

impl Search for Rendezvous {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        if cx.key.is_empty() {
            return None;
        }
        let skeleton = &self.skeleton;
        let hash = key_hash(cx.key);
        if skeleton.is_flat() {
            let weight = |i: usize| if cx.open(i) { cx.level.weight(i, cx.now) } else { 0 };
            return skeleton.best(hash, weight);
        }
        while cx.tried.progress.tries <= DRAWS {
            let index = skeleton.owner(in_round(hash, cx.tried.progress.tries))?;
            if cx.admits(index) {
                return Some(index);
            }
            cx.tried.progress.tries += 1;
        }
        None
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}
