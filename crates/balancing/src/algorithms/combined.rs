//! Combined: response time, requests in flight and weight in one score.
//!
//! The least `(p * t / t~ + (1 - p) * (1 + a)) / w` wins: t is the server's average time to the last byte of a response,
//! t~ the median of all servers' times, a its requests in flight, and p how much time counts. Both terms are 1 for an idle
//! server of typical speed; being slower by t~ weighs as much as (1 - p) / p requests in flight. Times are treated as
//! `least_time` treats them: rounded, fading while nobody asks, doubled by failures, typical where unknown.
//! Source: "combinación" (Universidad de Granada), ZenLoad; the formula is ours. Cost: a scan of up to 32 servers; beyond,
//! O(log8 n) for a pick, a dispatch and a completion. Nobody eligible: the driver goes on to the next level.

use super::least_time::{By, Timing};
use crate::Nanos;
use crate::driver::Report;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::{Score, least_score};

pub(crate) const ENTRY: Entry = Entry {
    name: "combined",
    aliases: &["combinacion"],
    summary: "response time, requests in flight and weight in one score",
    description: "\
        The server with the least (p * t / t~ + (1 - p) * (1 + a)) / w gets the request: t is its average time to the \
        last byte of a response, t~ the median of all servers' times, a its requests in flight, p the parameter time. A \
        server twice as slow as the typical one is treated as if it had a request more in flight, with p at 50 %.\n\n\
        Milder than least_time, which multiplies: a slow server keeps a part of the traffic, and one long response does \
        not empty it. With time=0 it is shortest_expected_delay, with time=100 requests in flight do not count at all. \
        New and failing servers are treated as by least_time. In slow start what a server has in flight counts for more, \
        and it is passed over as often as its weight is short of the whole. Backups are used when all others are closed \
        or full.",
    nginx: None,
    parameters: &[Parameter {
        name: "time",
        summary: "how much the response time counts, in percent; the rest is what is in flight",
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
    backup: true,
    build: |spec, level| {
        let timing = Timing::new(level, By::LastByte, false);
        least_score(level, Combined { timing, time: spec.number("time") as f64 / 100.0 })
    },
};

struct Combined {
    timing: Timing,
    time: f64,
}

impl Score for Combined {
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        let time = self.timing.relative(level, now, i);
        let load = (level.burden(i, now) + 256) as f64 / 256.0;
        (self.time * time + (1.0 - self.time) * load) / f64::from(level.slots[i].weight)
    }

    fn on_complete(&self, now: Nanos, level: &Level, i: usize, report: &Report, nth: u32) {
        self.timing.on_complete(now, level, i, report, nth);
    }
}
