//! Least load: the server that reports the least load, with what was sent to it since.
//!
//! The least `(L + s * a) / w` wins: L is the load that the server reported last (1.0 is fully busy), a its requests in
//! flight and s what one of them is taken to add. A failure or error response adds the load of a busy server, twice as
//! much with each in a row, until a success or some seconds without requests: a server that fails fast does not look idle. A server without a report, or whose report is too old, is taken to be as
//! loaded as the median of the others: where nobody reports, connections decide.
//! Source: Octopus least load, BalanceNG Least Resource. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a
//! dispatch and a completion. Nobody eligible: the driver goes on to the next level.

use crate::Nanos;
use crate::driver::Report;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::structures::typical::{Failing, Loads};

pub(crate) const ENTRY: Entry = Entry {
    name: "least_load",
    aliases: &["least_resource"],
    summary: "the server that reports the least load, with what was sent to it since",
    description: "\
        The server with the least (L + s * a) / w gets the request: L is the load that it reported last, from 0 to 1 when \
        it is fully busy, a counts its requests in flight, and s, the parameter session_weight, is what one of them adds. \
        Reports come seconds apart, and s keeps everything from going to one server in between.\n\n\
        For servers that do other work as well, or whose requests cost very different amounts of what the balancer cannot \
        see. Reports older than stale do not count; a server without one is taken to be as loaded as the median of the \
        others, so that without any reports the connections decide. In slow start what a server has in flight counts for \
        more, and it is passed over as often as its weight is short of the whole. Backups are used when all others are \
        closed or full.",
    nginx: None,
    parameters: &[
        Parameter {
            name: "session_weight",
            summary: "load that one request in flight adds, in percent of a busy server",
            kind: Kind::Number(0, 100),
            default: "1",
        },
        STALE,
    ],
    source: "Octopus least load; BalanceNG Least Resource",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Always,
    host: Host::Reports,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |spec, level| {
        let session = spec.number("session_weight") as f64 / 100.0;
        least_score(
            level,
            ReportedLoad { session, loads: Loads::new(spec.time("stale")), failing: Failing::new(level) },
        )
    },
};

/// Also of `weighted_load`.
pub(crate) const STALE: Parameter = Parameter {
    name: "stale",
    summary: "age at which a report does not count any more",
    kind: Kind::Time(1, 86_400_000),
    default: "15s",
};

struct ReportedLoad {
    session: f64,
    loads: Loads,
    failing: Failing,
}

impl Score for ReportedLoad {
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        // Without reports and session weight the connections decide all the same.
        let session = if self.session == 0.0 && !self.loads.any() { 1.0 } else { self.session };
        let reported = self.loads.of(level, now, i) + self.failing.load(now, i);
        let load = reported + session * level.burden(i, now) as f64 / 256.0;
        load / f64::from(level.slots[i].weight)
    }

    fn on_complete(&self, now: Nanos, level: &Level, i: usize, report: &Report, nth: u32) {
        self.failing.learn(now, i, report);
        self.loads.learn(level, now, nth);
    }
}
