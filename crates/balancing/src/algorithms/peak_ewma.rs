//! Peak EWMA: the better of two random choices, by a latency that rises at once and is forgiven slowly.
//!
//! A server's cost is an average of its response times: a slower answer replaces it at once, a faster one pulls it down
//! by `1 - e^(-t/tau)`, where t is the time since the answer before, and without answers it fades by `e^(-t/tau)`. Of two
//! servers drawn the one with the lesser `cost * (a + 1) / w` wins.
//!
//! Only answers count, so that failing quickly makes nobody look fast; each failure in a row doubles the cost, at least
//! that of a typical server, and fades as well. A server without an answer yet is taken to be a little quicker than a
//! typical one: those that answer fade below the typical between two answers, and it would never be asked.
//! Source: Finagle's p2cPeakEwma, linkerd. Cost: O(1). Nobody eligible: the driver goes on to the next level.

use super::two_choices::{CHOICES, best_of};
use crate::Nanos;
use crate::driver::{Outcome, Report};
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::Score;
use crate::structures::typical::{Failing, Typical};

pub(crate) const ENTRY: Entry = Entry {
    name: "peak_ewma",
    aliases: &["ewma"],
    summary: "the better of two servers drawn at random, by latencies that rise at once and fall slowly",
    description: "\
        Two servers are drawn at random, in proportion to the weights, and the lesser cost * (a + 1) / w wins; a counts \
        the requests in flight. The cost is an average of response times that takes a slow answer at its word at once and \
        forgives it with the time constant decay: new = old * e^(-t/decay) + sample * (1 - e^(-t/decay)), t being the \
        time since the last answer. So a server that stalls is left within one answer, and tried again later.\n\n\
        For services whose servers have bad moments: garbage collection, cold caches, noisy neighbours. A new server \
        begins as the median of the others; a failure doubles the cost. In slow start a server that is drawn steps back as \
        often as its weight is short of the whole. Backups are used when all others are closed or full.",
    nginx: None,
    parameters: &[
        Parameter {
            name: "decay",
            summary: "time in which a cost falls to 37 %",
            kind: Kind::Time(1, 3_600_000),
            default: "10s",
        },
        CHOICES,
    ],
    source: "Finagle, linkerd",
    cost: "O(1)",
    linear: false,
    times: Times::Always,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |spec, level| {
        let score = PeakCost { tau: spec.time("decay"), failing: Failing::new(level), typical: Typical::default() };
        score.typical.sample(level, |i| score.known(level, 0, i));
        best_of(level, spec.number("choices") as usize, score)
    },
};

/// What a server without an answer yet is taken for, beside a typical one.
const UNKNOWN: f64 = 0.9;

struct PeakCost {
    tau: Nanos,
    failing: Failing,
    /// Median of the costs; servers that nobody asks any more do not count with what has faded.
    typical: Typical,
}

impl PeakCost {
    fn known(&self, level: &Level, now: Nanos, i: usize) -> Option<u64> {
        level.slots[i].cell.peak.cost(now, self.tau).map(|cost| cost as u64).filter(|cost| *cost != 0)
    }

    /// Nanoseconds.
    fn cost(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        let typical = self.typical.get();
        let cost = level.slots[i].cell.peak.cost(now, self.tau).unwrap_or(typical as f64 * UNKNOWN);
        self.failing.penalty(level, now, i, cost, typical, self.tau)
    }
}

impl Score for PeakCost {
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        self.cost(level, now, i) * (level.burden(i, now) + 256) as f64 / level.whole_weight(i) as f64
    }

    fn on_complete(&self, now: Nanos, level: &Level, i: usize, report: &Report, nth: u32) {
        self.failing.learn(i, report);
        if let (Outcome::Success, Some(time)) = (report.outcome, report.last_byte_time) {
            level.slots[i].cell.peak.add(now, self.tau, time);
        }
        self.typical.learn(level, nth, |i| self.known(level, now, i));
    }
}
