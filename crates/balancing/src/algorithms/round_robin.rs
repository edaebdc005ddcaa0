//! Round robin, weighted: every server gets its share, spread as evenly as possible.
//!
//! Source: NGINX's smooth weighted round robin (2012); for many servers earliest deadline first over classes of equal
//! weight, the scheduler that LVS and Envoy use in other forms. Up to 32 servers the picks are NGINX's, one by one; with
//! more servers of equal weight as well, as long as none fails.
//! Cost: a scan of up to 32 servers; beyond, O(log c) in the number `c` of different weights.
//! State: each worker has its own, so no worker waits for another.
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::round_robin::RoundRobinPlan;

pub(crate) const ENTRY: Entry = Entry {
    name: "round_robin",
    aliases: &["rr", "wrr"],
    summary: "the servers in rotation, each as often as its weight says",
    what: "\
        Requests go to the servers in rotation. A server of weight w gets w of every T requests, where T is the sum \
        of the weights. The requests of a server are spread as evenly as possible: with weights 5, 1, 1 the order is \
        a a b a c a a, not a a a a a b c.\n\n\
        For each request, the counter of every server grows by its weight. The server with the greatest counter is \
        chosen, and its counter is reduced by T. A failure reduces a server's weight for a while. A request that \
        goes to a server for another reason, such as client affinity, counts as one of its requests. During slow \
        start a server is skipped with probability 1 - current weight / full weight. Backup servers are used when \
        all others are closed or full.",
    when: "\
        Use it for servers of equal speed, or with weights that are the speeds, and for requests of similar cost. It \
        is the default. It keeps no measurements that could mislead it.",
    when_not: "\
        Do not use it if a server may become slower than the others, or if some requests take much longer than \
        others. It does not count requests in flight, so a slow server still gets its full share and its queue \
        grows. Use least_conn there.",
    nginx: Some(""),
    parameters: &[],
    source: "NGINX, smooth weighted round robin",
    cost: "a scan up to 32 servers, then O(log c) for c different weights",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Weights,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |_, tier| Arc::new(RoundRobinPlan::new(tier)),
};
