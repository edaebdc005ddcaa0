//! Never queue: the fastest idle server if there is one, else the one with the shortest expected delay.
//!
//! Among idle servers the least `1 / w` wins, which is the shortest expected delay; without one the least `(a + 1) / w`.
//! Equals take turns.
//! Source: Shenker, Weinrib, "The optimal control of heterogeneous queueing systems" (1989): an arrival takes the fastest
//! idle server; LVS nq, which takes the first idle one of its list. Cost: a scan of up to 32 servers; beyond, O(log8 n)
//! for a pick, a dispatch and a completion. Nobody eligible: the driver goes on to the next level.

use super::shortest_expected_delay::Delay;
use crate::Nanos;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};

pub(crate) const ENTRY: Entry = Entry {
    name: "never_queue",
    aliases: &["nq"],
    summary: "the fastest idle server if there is one, else the one that is expected to be done first",
    description: "\
        A request never waits behind another while some server is idle: it goes to the idle server with the greatest \
        weight; idle servers of equal weight take turns. When none is idle the least (a + 1) / w wins, as with \
        shortest_expected_delay.\n\n\
        For few long requests on servers of different speeds, where shortest_expected_delay would queue on the fast ones \
        and leave the slow ones idle. In an idle fleet the heaviest servers get everything. Scores of idle servers are \
        divided by 2^64, so that they are less than all others. Backups are used when all others are closed or full.",
    nginx: None,
    parameters: &[],
    source: "Shenker, Weinrib 1989; LVS nq",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |_, level| least_score(level, IdleFirst),
};

/// What the score of an idle server is multiplied by. The least score of a busy server is above 2^-32.
const IDLE: f64 = 1.0 / (1u128 << 64) as f64;

struct IdleFirst;

impl Score for IdleFirst {
    #[inline]
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        let delay = Delay.score(level, now, i);
        if level.slots[i].cell.in_flight() == 0 { delay * IDLE } else { delay }
    }
}
