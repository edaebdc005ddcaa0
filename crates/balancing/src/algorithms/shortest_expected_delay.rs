//! Shortest expected delay: the server that is done first with what it has and the request, if weights are speeds.
//!
//! The least `(a + 1) / w` wins; ties are broken by round robin, in proportion to the weights.
//! Source: LVS sed. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a completion.
//! If no server is eligible, the driver goes to the next tier.

use crate::Nanos;
use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "shortest_expected_delay",
    aliases: &["sed"],
    summary: "the server that is expected to be done first, by requests in flight and weight",
    what: "\
        The server with the smallest (a + 1) / w gets the request: a is the number of its requests in flight, w its \
        weight. If the weights are the servers' speeds, that is the time until the server has done all of its \
        requests and the new one. Unlike least_conn it counts the new request, so of idle servers the fastest is \
        chosen, and a slow server is used only when it is expected to be done earlier. Ties are broken by round \
        robin, in proportion to the weights.\n\n\
        During slow start a server is skipped with probability 1 - current weight / full weight, and its requests in \
        flight are divided by the current weight. Backup servers are used when all others are closed or full.",
    when: "\
        Use it for servers of very different speed whose weights say so, with few requests at a time.",
    when_not: "\
        Do not use it if the weights are not the speeds. With equal weights it is the same as least_conn. Do not use \
        it if every server has to get requests at all times: at low load the servers with the greatest weight get \
        all of them. As with least_conn, a server that fails fast attracts requests.",
    nginx: None,
    parameters: &[],
    source: "LVS sed",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |_, tier| least_score(tier, Delay),
};

/// `(a + 1) / w`.
pub(crate) struct Delay;

impl Score for Delay {
    #[inline]
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        (tier.burden(i, now) + 256) as f64 / tier.whole_weight(i) as f64
    }
}
