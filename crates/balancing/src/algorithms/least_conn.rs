//! Least connections, weighted: the server with the fewest requests in flight for its weight.
//!
//! The least `a / w` wins; servers that share the least take turns as in round robin, in proportion to their weights.
//! Source: NGINX, LVS lc and wlc, HAProxy leastconn. Up to 32 servers the picks are NGINX's, one by one; beyond, a
//! tournament shared by the workers finds the least, with ties broken by deadlines.
//! Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a completion.
//! Nobody eligible: the driver goes to the backups.

use std::cmp::Ordering;

use crate::Nanos;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};

pub(crate) const ENTRY: Entry = Entry {
    name: "least_conn",
    aliases: &["leastconn", "lc", "wlc"],
    summary: "the server with the fewest requests in flight for its weight",
    description: "\
        The server with the least a / w gets the request, where a counts its requests in flight; servers \
        that share the least take turns in proportion to their weights. For requests of very different \
        lengths, and for servers of different speeds: who is slow has more in flight and gets less.\n\n\
        In an idle fleet it is round robin. In slow start a server is passed over as often as its weight is \
        short of the whole, and has at most its part in flight. Backups are used when all others are closed \
        or full.",
    nginx: Some("least_conn"),
    parameters: &[],
    source: "NGINX; LVS lc, wlc; HAProxy leastconn",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |_, level| least_score(level, Connections),
};

/// `a / w`.
pub(crate) struct Connections;

impl Score for Connections {
    #[inline]
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        level.burden(i, now) as f64 / level.whole_weight(i) as f64
    }
}

/// Compares `a / w` of two servers.
#[inline]
pub(crate) fn compare(level: &Level, now: Nanos, i: usize, j: usize) -> Ordering {
    Connections.score(level, now, i).total_cmp(&Connections.score(level, now, j))
}
