//! Rendezvous hashing, weighted: for each key the servers have ranks, and the least gets it.
//!
//! See `structures::ranks` for the ranks, which the names and weights give. A closed server's keys go to their next ranks,
//! up to 20 other servers, then round robin decides; so they spread over all others. An empty key means round robin.
//! Source: Thaler, Ravishankar, "A name-based mapping scheme for rendezvous" (1996), highest random weight; following the
//! order of a key's ranks: Dong, Wang, "DxHash" (2021).
//! Cost: the length of the key and on average at most some 500 quick steps, where about 500 units of weight are compared. Nobody
//! eligible: the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use super::round_robin::RoundRobin;
use crate::key::key_hash;
use crate::policy::Context;
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::structures::fallback::{Search, with_turns};
use crate::structures::ranks::Ranks;

pub(crate) const ENTRY: Entry = Entry {
    name: "rendezvous",
    aliases: &["hrw"],
    summary: "a key chooses the server, the one with the least rank for it",
    description: "\
        Every key puts the servers into an order of its own, in which a server has as many places as its weight, and the \
        first wins. When a server comes or goes its own keys move and, among a few hundred servers, no others; and shares \
        are the weights. For caches and sessions by key, without a table to build.\n\n\
        The order is a permutation of 262,144 slots, of which servers own some by their names. With few servers the ranks of \
        their slots are compared, with many the order is followed to the first slot that is owned; both find the same \
        server. Of more servers some names give the same slot, and a few other keys move as well: 5 % as many as \
        the server's own with 10,000 servers, half as many with 100,000. Weights whose sum is above 131,072 are divided by a \
        power of two, and many keys move when that power changes. During slow start a server takes a growing part of its keys, always the same ones. There are no \
        backups.",
    nginx: None,
    parameters: &[],
    source: "Thaler, Ravishankar 1996; Dong, Wang 2021 (DxHash)",
    cost: "the key's length; on average at most 500 quick steps, at some 500 servers",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::Any,
    backup: false,
    build: |_, level| {
        let ranks = Arc::new(Ranks::new(level));
        with_turns(level, move |_, _| Rendezvous { ranks: ranks.clone() })
    },
};

/// Ranks that a request looks at, among them those of heavy servers that it has looked at before.
const LOOKS: u32 = 8 * DRAWS;

struct Rendezvous {
    ranks: Arc<Ranks>,
}

impl Search for Rendezvous {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        if cx.key.is_empty() {
            return None;
        }
        let hash = key_hash(cx.key);
        let mut last = None;
        for _ in 0..LOOKS {
            let (rank, index) = self.ranks.next(hash, cx.tried.progress.hash)?;
            if last != Some(index) {
                if cx.admits(index) {
                    return Some(index);
                }
                last = Some(index);
                cx.tried.progress.tries += 1;
                if cx.tried.progress.tries > DRAWS {
                    return None;
                }
            }
            // The next attempt of the request goes on from there.
            cx.tried.progress.hash = rank + 1;
        }
        None
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}
