//! Rendezvous hashing, weighted: for each key the servers have ranks, and the least gets it.
//!
//! See `structures::ranks` for the ranks, which the names and weights give. A closed server's keys go to their next ranks,
//! up to 20 other servers, then round robin decides; so they spread over all others. An empty key means round robin.
//! Source: Thaler, Ravishankar, "A name-based mapping scheme for rendezvous" (1996), highest random weight; following the
//! order of a key's ranks: Dong, Wang, "DxHash" (2021).
//! Cost: the length of the key and on average at most some 500 quick steps, where about 500 units of weight are compared.
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use crate::key::key_hash;
use crate::policy::{Basis, Context};
use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::fallback::{Search, with_turns};
use crate::structures::ranks::Ranks;
use crate::structures::round_robin::RoundRobin;

pub(crate) const ENTRY: Entry = Entry {
    name: "rendezvous",
    aliases: &["hrw"],
    summary: "a key chooses the server, the first one in the key's own order of the servers",
    what: "\
        Each key has its own order of the servers, in which a server has as many places as its weight. The first \
        server of this order gets the request. If it is closed, the next one does, up to 20 others; then round robin \
        chooses. So the keys of a closed server spread over all others. When a server is added or removed, only its \
        own keys move, as long as there are no more than a few hundred servers. Shares of the keys are the weights. \
        An empty key means round robin.\n\n\
        The order is a permutation of 262,144 slots. The servers own some of them, by their names. With few servers \
        the ranks of their slots are compared; with many servers the order is followed to the first slot that has an \
        owner. Both find the same server. With more servers some names give the same slot, and other keys move as \
        well: 5 % as many as the server's own with 10,000 servers, 50 % as many with 100,000. With weights \
        whose sum is above 131,072, or with more servers, one more server moves up to 2.5 times as many keys as it gets. \
        During slow start a server gets a growing part of its keys, always the same ones. Backup servers are not allowed.",
    when: "\
        Use it for caches and sessions by key if no key of the remaining servers may move when a server is added or \
        removed.",
    when_not: "\
        Do not use it for many thousand servers, where other keys move as well. At some 500 servers a choice takes \
        up to 500 steps on average; maglev takes one. If a few keys bring most of the requests, use bounded_hash. It \
        does not react to load: a slow server keeps its keys.",
    nginx: None,
    parameters: &[],
    source: "Thaler, Ravishankar 1996; Dong, Wang 2021 (DxHash)",
    cost: "the key's length; on average at most 500 quick steps, at some 500 servers",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::Any,
    needs_key: false,
    strict: None,
    backup: false,
    build: |_, tier| {
        let ranks = Arc::new(Ranks::new(tier));
        with_turns(tier, move |_, _| Rendezvous { ranks: ranks.clone() })
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
