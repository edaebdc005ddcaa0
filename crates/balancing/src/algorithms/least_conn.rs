//! Least connections, weighted: the server with the fewest requests in flight for its weight.
//!
//! The least `a / w` wins; ties are broken by round robin, in proportion to the weights.
//! Source: NGINX, LVS lc and wlc, HAProxy leastconn. Up to 32 servers the picks are NGINX's, one by one; beyond, a
//! tournament shared by the workers finds the least, with ties broken by deadlines.
//! Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a completion.
//! If no server is eligible, the driver goes to the backups.

use std::cmp::Ordering;

use crate::Nanos;
use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "least_conn",
    aliases: &["leastconn", "lc", "wlc"],
    summary: "the server with the fewest requests in flight for its weight",
    what: "\
        The server with the smallest a / w gets the request: a is the number of its requests in flight, w its \
        weight. Ties are broken by round robin, in proportion to the weights, so idle servers are used in rotation.\n\n\
        During slow start a server is skipped with probability 1 - current weight / full weight, and its requests in \
        flight are divided by the current weight. Backup servers are used when all others are closed or full.",
    when: "\
        Use it if some requests take much longer than others, or if the servers' speeds are unknown or change: a \
        slow server has more requests in flight and gets fewer new ones.",
    when_not: "\
        Do not use it if a server may fail fast, unless proxy_next_upstream names the error: a server that answers \
        errors at once has nothing in flight and attracts requests. If several balancers share the servers, each of \
        them counts only its own requests; use least_time there.",
    nginx: Some("least_conn"),
    parameters: &[],
    source: "NGINX; LVS lc, wlc; HAProxy leastconn",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |_, tier| least_score(tier, Connections),
};

/// `a / w`.
pub(crate) struct Connections;

impl Score for Connections {
    #[inline]
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        tier.burden(i, now) as f64 / tier.whole_weight(i) as f64
    }
}

/// Compares `a / w` of two servers.
#[inline]
pub(crate) fn compare(tier: &Tier, now: Nanos, i: usize, j: usize) -> Ordering {
    Connections.score(tier, now, i).total_cmp(&Connections.score(tier, now, j))
}
