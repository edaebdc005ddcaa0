//! Combined: response time, requests in flight and weight in one score.
//!
//! The least `p * t / t~ + (1 - p) * (1 + a) / w` wins: t is the server's average time to the last byte of a response,
//! t~ the median of all servers' times, a its requests in flight, and p how much time counts. Both terms are 1 for an
//! idle server of typical speed and weight 1; being slower by t~ counts as much as (1 - p) / p requests in flight. The
//! weight does not divide the time: a server that is faster because it is bigger has a lower time already.
//!
//! Times are not rounded as in `least_time`, so servers of 2 ms and 10 ms differ, and have no upper bound. An average
//! fades by `e^(-t/10s)` while the server has no requests, so that a slow server is tried again. While the server has
//! requests, its time is at least the time since its last response, up to eight times t~, so that a server that hangs
//! gets no new ones. Each failure or error response in a row doubles the average. A server without a response yet
//! counts as a little quicker than a typical one.
//! Source: "combinación" (Universidad de Granada), ZenLoad; the formula is ours. Cost: a scan of up to 32 servers; beyond,
//! O(log8 n) for a pick, a dispatch and a completion.
//! If no server is eligible, the driver goes to the next tier.

use crate::Nanos;
use crate::averages::fading;
use crate::report::{Outcome, Report};
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::kept::Kept;
use crate::structures::scored::{Score, least_score};
use crate::structures::silence::Silence;
use crate::structures::timed_average::TimedAverage;
use crate::structures::typical::{FORGIVING, Failing, Typical, UNKNOWN};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "combined",
    aliases: &["combinacion"],
    summary: "response time, requests in flight and weight in one score",
    what: "\
        The server with the smallest p * t / t~ + (1 - p) * (1 + a) / w gets the request: t is the average time to \
        the last byte of its responses, t~ the median of all servers' times, a the number of its requests in flight, \
        w its weight, p the parameter time. With p at 50 %, a server of weight 1 that takes twice the median time \
        counts as if it had one more request in flight. The weight does not divide the time, which is lower already \
        if the server is faster. Times are not rounded: it can tell 2 ms from 10 ms. With time=0 it is \
        shortest_expected_delay; with time=100 requests in flight do not count.\n\n\
        The time of a server without requests fades, so that it is tried again. The time of a server that does not \
        answer is at least the time since its last answer, up to eight times t~. A new server begins with the median \
        of the others. Failures and error responses in a row double the time. During slow start a server is skipped \
        with probability 1 - current weight / full weight, and its requests in flight are divided by the current \
        weight. Backup servers are used when all others are closed or full.",
    when: "\
        Use it if you do not know how fast the servers are, or if that changes. Time and requests in flight are \
        added, not multiplied as in least_time, so a slow server keeps a part of the requests, and one long response \
        does not take all requests from a server.",
    when_not: "\
        Do not use it if the duration of a response says little about its server, for example with long polling or \
        large downloads to slow clients: use least_conn, or least_time, which can use the time to the header.",
    nginx: None,
    parameters: &[Parameter {
        name: "time",
        summary: "weight of the response time in the score, in percent; the rest is for requests in flight",
        kind: Kind::Number(0, 100),
        default: "50",
    }],
    source: "UGR combinación; ZenLoad",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Always,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        let time = spec.number("time") as f64 / 100.0;
        let kept = Kept::new("combined", tier);
        // What other algorithms have measured is where a new average begins.
        for slot in &tier.slots {
            let average = kept.of(slot).map(TimedAverage::of).filter(|average| average.get().is_none());
            if let (Some(average), Some(time)) = (average, slot.state.last_byte_time()) {
                average.set(slot.state.checked(), time as f64);
            }
        }
        let combined = Combined {
            time,
            kept,
            failing: Failing::new(tier),
            silence: Silence::new(tier),
            typical: Typical::default(),
        };
        combined.typical.sample(tier, |i| combined.known(tier, 0, i));
        least_score(tier, combined)
    },
};

/// What a new response moves an average by, of the difference.
const GAIN: f64 = 1.0 / 20.0;

struct Combined {
    time: f64,
    /// [`TimedAverage`] of each server, of response times.
    kept: Kept,
    failing: Failing,
    silence: Silence,
    typical: Typical,
}

impl Combined {
    #[inline]
    fn timed<'a>(&self, tier: &'a Tier, i: usize) -> Option<TimedAverage<'a>> {
        self.kept.of(&tier.slots[i]).map(TimedAverage::of)
    }

    /// The average, faded for as long as the server had no requests.
    fn average(&self, tier: &Tier, now: Nanos, i: usize) -> Option<f64> {
        let (average, last) = self.timed(tier, i)?.get()?;
        Some(average * fading(self.silence.idle(now, i, last), FORGIVING))
    }

    fn known(&self, tier: &Tier, now: Nanos, i: usize) -> Option<u64> {
        self.average(tier, now, i).map(|average| (average as u64).max(1))
    }

    /// The time of a response over that of a typical server.
    fn relative(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let typical = self.typical.get().max(1);
        let time = self.average(tier, now, i).unwrap_or(typical as f64 * UNKNOWN);
        let time = time.max(self.silence.of(now, i, typical));
        self.failing.penalty(now, i, time, typical, FORGIVING) / typical as f64
    }
}

impl Score for Combined {
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let load = (tier.burden(i, now) + 256) as f64 / tier.whole_weight(i) as f64;
        self.time * self.relative(tier, now, i) + (1.0 - self.time) * load
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
        if let (Outcome::Success, Some(time), Some(kept)) = (report.outcome, report.last_byte_time, self.timed(tier, i))
        {
            let time = time.max(1) as f64;
            let average = kept.get();
            let old = average.map(|(old, last)| old * fading(self.silence.idle_before(i, last), FORGIVING));
            kept.set(now, old.map_or(time, |old| old + (time - old) * GAIN));
        }
        self.silence.on_complete(now, i, report);
        self.typical.learn(tier, nth, |i| self.known(tier, now, i));
    }
}
