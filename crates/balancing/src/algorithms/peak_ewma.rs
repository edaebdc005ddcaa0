//! Peak EWMA: the better of two random choices, by a latency that rises at once and is forgiven slowly.
//!
//! A server's cost is an average of its response times: a slower response replaces it at once, a faster one pulls it down
//! by `1 - e^(-t/tau)`, where t is the time since the response before, and while the server has no requests it fades by
//! `e^(-t/tau)`. Of two servers drawn, in proportion to the weights, the one with the lesser `cost * (a / w + 1)` wins. The
//! weight does not divide the cost: a server that is faster because it is bigger has a lower latency already.
//!
//! Finagle's cost also fades while requests wait, so that a server that hangs looks better by a factor of e each tau and
//! attracts the traffic. Here it does not fade while a request waits for its response to begin, and is at least the time for
//! which the server has been silent, up to eight times what is typical: its next response can only be slower. A request that
//! ends without a response counts as a response of its age, if that is more than the cost.
//!
//! Failing fast makes no server look fast: each failure or error response in a row doubles the cost, at least that of a
//! typical server, and this fades as well. A server without a response yet is taken to be a little quicker than a typical
//! one: those that respond fade below the typical between two responses, and it would never be asked.
//! Source: Finagle's p2cPeakEwma, linkerd. Cost: O(1). Nobody eligible: the driver goes on to the next level.

use super::two_choices::{CHOICES, best_of};
use crate::Nanos;
use crate::averages::fading;
use crate::driver::{Outcome, Report};
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::Score;
use crate::structures::silence::Silence;
use crate::structures::typical::{Failing, Typical, UNKNOWN};

pub(crate) const ENTRY: Entry = Entry {
    name: "peak_ewma",
    aliases: &["ewma"],
    summary: "the better of two servers drawn at random, by latencies that rise at once and fall slowly",
    description: "\
        Two servers are drawn at random, in proportion to the weights, and the lesser cost * (a / w + 1) wins; a counts \
        the requests in flight. The cost is an average of response times that takes a slow response at its word at once \
        and forgives it with the time constant decay: new = old * e^(-t/decay) + sample * (1 - e^(-t/decay)), t being the \
        time since the last response. While no request waits for a server its cost fades, so that it is tried again. While \
        some do it does not, and the cost is at least the time since the server last answered, up to eight times the \
        typical cost: a server that hangs is left after a few requests. (In Finagle the cost fades then as well, and a \
        server that hangs attracts the traffic.)\n\n\
        For services whose servers have bad moments: garbage collection, cold caches, noisy neighbours. Weights say how \
        often a server is drawn and divide what it has in flight. They do not divide its latency, which is lower already \
        if the server is faster. A new server begins as the median of the \
        others; a failure or error response doubles the cost. In slow start a server that is drawn steps back as \
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
        let score = PeakCost {
            tau: spec.time("decay"),
            failing: Failing::new(level),
            silence: Silence::new(level),
            typical: Typical::default(),
        };
        score.typical.sample(level, |i| score.known(level, 0, i));
        best_of(level, spec.number("choices") as usize, score)
    },
};

struct PeakCost {
    tau: Nanos,
    failing: Failing,
    silence: Silence,
    /// Median of the costs; servers that nobody asks any more do not count with what has faded.
    typical: Typical,
}

impl PeakCost {
    /// The average, faded for as long as the server had no requests.
    fn faded(&self, level: &Level, now: Nanos, i: usize) -> Option<f64> {
        let (cost, last) = level.slots[i].cell.peak.get()?;
        Some(cost * fading(self.silence.idle(now, i, last), self.tau))
    }

    fn known(&self, level: &Level, now: Nanos, i: usize) -> Option<u64> {
        self.faded(level, now, i).map(|cost| cost as u64).filter(|cost| *cost != 0)
    }

    /// Nanoseconds.
    fn cost(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        let typical = self.typical.get();
        let cost = self.faded(level, now, i).unwrap_or(typical as f64 * UNKNOWN);
        let cost = cost.max(self.silence.of(now, i, typical));
        self.failing.penalty(now, i, cost, typical, self.tau)
    }
}

impl Score for PeakCost {
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        let in_flight = level.burden(i, now) as f64 / level.whole_weight(i) as f64;
        self.cost(level, now, i) * (in_flight + 1.0)
    }

    fn on_dispatch(&self, now: Nanos, _level: &Level, i: usize) {
        self.silence.on_dispatch(now, i);
    }

    fn on_header(&self, now: Nanos, i: usize, _time: Nanos) {
        self.silence.on_header(now, i);
    }

    fn wants_header(&self) -> bool {
        true
    }

    fn on_complete(&self, now: Nanos, level: &Level, i: usize, report: &Report, nth: u32) {
        self.failing.learn(now, i, report);
        let peak = &level.slots[i].cell.peak;
        match (report.outcome, report.last_byte_time) {
            (Outcome::Success, Some(time)) => peak.add(now, self.tau, time),
            // No response: it would have come later.
            (_, Some(age)) if report.header_time.is_none() => {
                if let Some((cost, last)) = peak.get() {
                    let cost = cost * fading(self.silence.idle_before(i, last), self.tau);
                    peak.set(now, cost.max(age as f64));
                }
            }
            _ => {}
        }
        self.silence.on_complete(now, i, report);
        self.typical.learn(level, nth, |i| self.known(level, now, i));
    }
}
