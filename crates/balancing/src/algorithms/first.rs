//! First: servers are filled up one after another, in the order of the configuration.
//!
//! The first server that is not full is chosen. Its score is its position in the configuration.
//! Source: HAProxy first, Crossroads first-available. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a
//! dispatch and a completion.
//! If no server is eligible, the driver goes to the next tier.

use crate::Nanos;
use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "first",
    aliases: &["first_available"],
    summary: "the first server that is not full, in the order of the configuration",
    what: "\
        The first server in the order of the configuration that is below its max_conns gets the request. The next \
        server is used when all before it are full. Weights have no effect.\n\n\
        During slow start a server is skipped with probability 1 - current weight / full weight. Backup servers are \
        used when all others are closed or full.",
    when: "\
        Use it to keep as few servers busy as possible, so that the others can be switched off: for machines that \
        are paid by the hour, and for long sessions.",
    when_not: "\
        Do not use it without max_conns on all servers but the last: the first server then gets all requests. Do not \
        use it for short response times: it fills one server while others are idle.",
    nginx: None,
    parameters: &[],
    source: "HAProxy first; Crossroads first-available",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Order,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |_, tier| least_score(tier, Place),
};

struct Place;

impl Score for Place {
    #[inline]
    fn score(&self, _tier: &Tier, _now: Nanos, i: usize) -> f64 {
        i as f64
    }
}
