//! First: servers are filled up one after another, in the order of the configuration.
//!
//! The first server that has room wins. The score is the server's place, so that the common machinery finds it.
//! Source: HAProxy first, Crossroads first-available. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a
//! dispatch and a completion. Nobody eligible: the driver goes on to the next level.

use crate::Nanos;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Share, Times};
use crate::structures::scored::{Score, least_score};

pub(crate) const ENTRY: Entry = Entry {
    name: "first",
    aliases: &["first_available"],
    summary: "the first server with room, so that as few as possible are in use",
    description: "\
        The first server in the order of the configuration that is below its max_conns gets the request; the next one is \
        used when those before it are full. So as few servers as possible work, and the others can be switched off: for \
        machines that are paid by the hour, and for long sessions.\n\n\
        It needs max_conns on all servers but the last. Weights mean nothing to it. In slow start a server is passed \
        over as often as its weight is short of the whole. Backups are used when all others are closed or full.",
    nginx: None,
    parameters: &[],
    source: "HAProxy first; Crossroads first-available",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::First,
    key: Key::None,
    backup: true,
    build: |_, level| least_score(level, Place),
};

struct Place;

impl Score for Place {
    #[inline]
    fn score(&self, _level: &Level, _now: Nanos, i: usize) -> f64 {
        i as f64
    }
}
