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
//! A server that fails fast does not look fast: each failure or error response in a row doubles the cost, at least that
//! of a typical server, and this fades as well. A server without a response yet counts as a little quicker than a
//! typical one: the costs of the others fade below the median between two responses, and it would never be tried.
//! Source: Finagle's p2cPeakEwma, linkerd. Cost: O(1).
//! If no server is eligible, the driver goes to the next tier.

use super::two_choices::{CHOICES, best_of};
use crate::Nanos;
use crate::averages::fading;
use crate::report::{Outcome, Report};
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::kept::Kept;
use crate::structures::scored::Score;
use crate::structures::silence::Silence;
use crate::structures::timed_average::TimedAverage;
use crate::structures::typical::{Failing, Typical, UNKNOWN};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "peak_ewma",
    aliases: &["ewma"],
    summary: "the better of two servers drawn at random, by latencies that rise at once and fall slowly",
    what: "\
        Two servers are drawn at random, in proportion to the weights. The one with the smaller cost * (a / w + 1) \
        gets the request: a is the number of its requests in flight, w its weight. The cost is an average of \
        response times. A slower response replaces the cost at once; a faster one lowers it with the time constant \
        decay: new = old * e^(-t/decay) + sample * (1 - e^(-t/decay)), where t is the time since the last response. \
        The weight does not divide the latency, which is lower already if the server is faster.\n\n\
        While a server has no requests, its cost fades, so that it is tried again. While requests wait for it, the \
        cost does not fade and is at least the time since the server last answered, up to eight times the typical \
        cost: a server that hangs is left after a few requests. (In Finagle the cost fades then as well, and a \
        server that hangs attracts requests.) A new server begins with the median of the others. A failure or error \
        response doubles the cost. During slow start a server is skipped with probability 1 - current weight / full \
        weight, and another one is drawn. Backup servers are used when all others are closed or full.",
    when: "\
        Use it for servers that become slow for short times: garbage collection, cold caches, other programs on the \
        machine.",
    when_not: "\
        Do not use it if most servers are much slower than the others and the weights do not say so: as with \
        two_choices, both drawn servers are slow too often. Do not use it if a few very long requests come among \
        short ones: one of them makes its server look slow; use least_conn or combined.",
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
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        let score = PeakCost {
            kept: Kept::new("peak_ewma", tier),
            tau: spec.time("decay"),
            failing: Failing::new(tier),
            silence: Silence::new(tier),
            typical: Typical::default(),
        };
        score.typical.sample(tier, |i| score.known(tier, 0, i));
        best_of(tier, spec.number("choices") as usize, score)
    },
};

struct PeakCost {
    /// [`TimedAverage`] of each server.
    kept: Kept,
    tau: Nanos,
    failing: Failing,
    silence: Silence,
    /// Median of the costs; the faded cost of a server without requests does not count.
    typical: Typical,
}

impl PeakCost {
    #[inline]
    fn peak<'a>(&self, tier: &'a Tier, i: usize) -> Option<TimedAverage<'a>> {
        self.kept.of(&tier.slots[i]).map(TimedAverage::of)
    }

    /// The average, faded for as long as the server had no requests.
    fn faded(&self, tier: &Tier, now: Nanos, i: usize) -> Option<f64> {
        let (cost, last) = self.peak(tier, i)?.get()?;
        Some(cost * fading(self.silence.idle(now, i, last), self.tau))
    }

    fn known(&self, tier: &Tier, now: Nanos, i: usize) -> Option<u64> {
        self.faded(tier, now, i).map(|cost| cost as u64).filter(|cost| *cost != 0)
    }

    /// Nanoseconds.
    fn cost(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let typical = self.typical.get();
        let cost = self.faded(tier, now, i).unwrap_or(typical as f64 * UNKNOWN);
        let cost = cost.max(self.silence.of(now, i, typical));
        self.failing.penalty(now, i, cost, typical, self.tau)
    }
}

impl Score for PeakCost {
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let in_flight = tier.burden(i, now) as f64 / tier.whole_weight(i) as f64;
        self.cost(tier, now, i) * (in_flight + 1.0)
    }

    fn on_dispatch(&self, now: Nanos, _tier: &Tier, i: usize) {
        self.silence.on_dispatch(now, i);
    }

    fn on_header(&self, now: Nanos, i: usize, _time: Nanos) {
        self.silence.on_header(now, i);
    }

    fn wants_header(&self) -> bool {
        true
    }

    fn on_complete(&self, now: Nanos, tier: &Tier, i: usize, report: &Report, nth: u32) {
        self.failing.learn(now, i, report);
        let Some(peak) = self.peak(tier, i) else { return };
        match (report.outcome, report.last_byte_time) {
            (Outcome::Success, Some(time)) => peak.add_peak(now, self.tau, time),
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
        self.typical.learn(tier, nth, |i| self.known(tier, now, i));
    }
}
