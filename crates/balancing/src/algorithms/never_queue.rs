//! Never queue: the fastest idle server if there is one, else the one with the shortest expected delay.
//!
//! Among idle servers the least `1 / w` wins, which is the shortest expected delay; without one the least `(a + 1) /
//! w`. Ties are broken by round robin.
//! Source: Shenker, Weinrib, "The optimal control of heterogeneous queueing systems" (1989): an arrival takes the fastest
//! idle server; LVS nq, which takes the first idle one of its list. Cost: a scan of up to 32 servers; beyond, O(log8 n)
//! for a pick, a dispatch and a completion.
//! If no server is eligible, the driver goes to the next tier.

use super::shortest_expected_delay::Delay;
use crate::Nanos;
use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "never_queue",
    aliases: &["nq"],
    summary: "the fastest idle server; if none is idle, the server that is expected to be done first",
    what: "\
        If a server is idle, the request goes to the idle server with the greatest weight; ties are broken by round \
        robin. If none is idle, the server with the smallest (a + 1) / w gets the request, as in \
        shortest_expected_delay. So a request never waits behind another one while a server is idle.\n\n\
        The scores of idle servers are divided by 2^64, so that they are less than all others. During slow start a \
        server is skipped with probability 1 - current weight / full weight. Backup servers are used when all others \
        are closed or full.",
    when: "\
        Use it for few long requests on servers of different speed, where shortest_expected_delay would queue \
        requests on the fast servers and leave the slow ones idle.",
    when_not: "\
        Do not use it if waiting for a fast server takes less time than a slow, idle one: use \
        shortest_expected_delay. At low load the servers with the greatest weight get all requests. As with \
        least_conn, a server that fails fast attracts requests.",
    nginx: None,
    parameters: &[],
    source: "Shenker, Weinrib 1989; LVS nq",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |_, tier| least_score(tier, IdleFirst),
};

/// What the score of an idle server is multiplied by. The least score of a busy server is above 2^-32.
const IDLE: f64 = 1.0 / (1u128 << 64) as f64;

struct IdleFirst;

impl Score for IdleFirst {
    #[inline]
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let delay = Delay.score(tier, now, i);
        if tier.slots[i].state.in_flight() == 0 { delay * IDLE } else { delay }
    }
}
