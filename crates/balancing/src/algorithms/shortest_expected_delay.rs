//! Shortest expected delay: the server that is done first with what it has and the request, if weights are speeds.
//!
//! The least `(a + 1) / w` wins; servers that share the least take turns in proportion to their weights.
//! Source: LVS sed. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a completion.
//! Nobody eligible: the driver goes on to the next level.

use crate::Nanos;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};

pub(crate) const ENTRY: Entry = Entry {
    name: "shortest_expected_delay",
    aliases: &["sed"],
    summary: "the server that is expected to be done first, by requests in flight and weight",
    description: "\
        The server with the least (a + 1) / w gets the request, where a counts its requests in flight: the time until it \
        has done all of them and the new one, if its weight is its speed. Other than least_conn it counts the request \
        itself, so that among idle servers the fastest is first and a slow one waits until that pays.\n\n\
        For servers of very different speeds whose weights say so. With equal weights it is least_conn. In an idle \
        fleet the heaviest servers get everything. In slow start what a server has in flight counts for more, and it is \
        passed over as often as its weight is short of the whole. Backups are used when all others are closed or full.",
    nginx: None,
    parameters: &[],
    source: "LVS sed",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |_, level| least_score(level, Delay),
};

/// `(a + 1) / w`.
pub(crate) struct Delay;

impl Score for Delay {
    #[inline]
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        (level.burden(i, now) + 256) as f64 / level.whole_weight(i) as f64
    }
}
