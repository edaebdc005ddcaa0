//! Never queue: an idle server if there is one, else the one with the shortest expected delay.
//!
//! Idle servers take turns in proportion to their weights; without one the least `(a + 1) / w` wins.
//! Source: LVS nq, which takes the first idle server. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a
//! dispatch and a completion. Nobody eligible: the driver goes on to the next level.

use super::shortest_expected_delay::Delay;
use crate::Nanos;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};

pub(crate) const ENTRY: Entry = Entry {
    name: "never_queue",
    aliases: &["nq"],
    summary: "an idle server if there is one, else the one that is expected to be done first",
    description: "\
        A request never waits behind another while some server is idle: idle servers take turns in proportion to their \
        weights. When none is idle the least (a + 1) / w wins, as with shortest_expected_delay.\n\n\
        For few long requests on servers of different speeds, where shortest_expected_delay would queue on the fast ones \
        and leave the slow ones idle. The score 0 stands for an idle server. Backups are used when all others are closed \
        or full.",
    nginx: None,
    parameters: &[],
    source: "LVS nq",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Weights,
    key: Key::None,
    backup: true,
    build: |_, level| least_score(level, IdleFirst),
};

struct IdleFirst;

impl Score for IdleFirst {
    #[inline]
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        if level.slots[i].cell.in_flight() == 0 { 0.0 } else { Delay.score(level, now, i) }
    }
}
