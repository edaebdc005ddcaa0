//! Least time: the server that is expected to be done first.
//!
//! The score is `t * (1 + a) / w`, where `t` is the moving average of the time to the response's header or to its last
//! byte. As in NGINX, times are rounded up to 20 ms, so that servers of about the same speed tie; times above 5 s are
//! equal; the time of a server without requests is halved once in each fail timeout, so that it is tried again; and
//! only successful requests count, so that a server that fails quickly does not look fast. With `inflight` the age of
//! the requests that wait for a response counts if it is greater than the average.
//!
//! Unlike in NGINX, a server without a response yet has the median time of the others, so that it is not flooded; and
//! each failure in a row doubles a server's time, so that a server that fails at once, and so has few requests in
//! flight, does not attract all requests when `max_fails` does not close it.
//!
//! Source: NGINX `least_time`. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a
//! completion.
//! If no server is eligible, the driver goes to the backups.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::Nanos;
use crate::averages::average;
use crate::report::{Outcome, Report};
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::structures::typical::{Failing, Typical};
use crate::tier::Tier;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;
/// Times are rounded up to this, in milliseconds.
const STEP: u64 = 20;
/// Times beyond this are all the same, in milliseconds.
const SLOWEST: u64 = 5_000;

pub(crate) const ENTRY: Entry = Entry {
    name: "least_time",
    aliases: &["response_time"],
    summary: "the server with the least expected time for its weight",
    what: "\
        The server with the smallest t * (1 + a) / w gets the request: t is the moving average of the time to the \
        response's header or to its last byte, a the number of its requests in flight, w its weight. With inflight, \
        the age of the requests that wait for a response counts if it is greater than t.\n\n\
        As in NGINX, times are rounded up to 20 ms, so servers of about the same speed are used in rotation; all \
        times above 5 s are equal; and the weight divides the time, although a faster server has a lower time \
        already. The time of a server that gets no requests is halved once in each fail_timeout, so that it is tried \
        again. Unlike in NGINX, a new server has the median time of the others, and each failure or error response \
        in a row doubles a server's time, so that failing fast does not look fast. During slow start a server counts \
        with its current weight. Backup servers are used when all others are closed or full.",
    when: "\
        Use it for servers of different speed or distance, with or without weights, and for several balancers in \
        front of the same servers: response times also show the requests of the other balancers.",
    when_not: "\
        Do not use it if a few very long requests come among short ones: one of them makes its server look slow; use \
        least_conn or combined. Do not use it to compare servers of a few milliseconds, because of the rounding; use \
        combined. It leaves a server that hangs only when the requests in flight there outweigh its low time; with \
        inflight=on it leaves it earlier.",
    nginx: Some("least_time header | last_byte [inflight]"),
    parameters: &[
        Parameter {
            name: "by",
            summary: "time to the response's header, or to its last byte",
            kind: Kind::Choice(&["header", "last_byte"]),
            default: "header",
        },
        Parameter {
            name: "inflight",
            summary: "also count the age of requests that wait for a response",
            kind: Kind::Switch,
            default: "off",
        },
    ],
    source: "NGINX",
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
        let by = By::of(spec.choice("by")).unwrap_or(By::Header);
        least_score(tier, Timing::new(tier, by, spec.switch("inflight")))
    },
};

/// Which time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Header,
    LastByte,
}

impl By {
    pub fn of(word: &str) -> Option<By> {
        match word {
            "header" => Some(By::Header),
            "last_byte" => Some(By::LastByte),
            _ => None,
        }
    }
}

/// The requests of one server that wait for an answer.
#[derive(Default)]
struct Waiting {
    /// How many, in the low bits, and above them the sum of the times they were sent at, modulo 2^44 of [`TICK`]: one word,
    /// so that both change at once.
    sent: AtomicU64,
    /// Moving average of their mean age, one sample a pick.
    age: AtomicU64,
}

/// Bits of a count of requests that wait.
const COUNT: u32 = 20;
/// Bits of a nanosecond that do not count in an age: times are compared by the 20 milliseconds.
const TICK: u32 = 16;

impl Waiting {
    fn one(at: Nanos) -> u64 {
        at >> TICK << COUNT | 1
    }

    fn add(&self, now: Nanos) {
        self.sent.fetch_add(Self::one(now), AcqRel);
    }

    fn remove(&self, now: Nanos, age: Option<Nanos>) {
        let age = age.unwrap_or_else(|| self.mean_age(now));
        self.sent.fetch_sub(Self::one(now.wrapping_sub(age)), AcqRel);
    }

    fn is_empty(&self) -> bool {
        self.sent.load(Acquire) & ((1 << COUNT) - 1) == 0
    }

    /// Mean age of those that wait; 0 if none does.
    fn mean_age(&self, now: Nanos) -> Nanos {
        let sent = self.sent.load(Acquire);
        let count = sent & ((1 << COUNT) - 1);
        let ages = count.wrapping_mul(now >> TICK).wrapping_sub(sent >> COUNT) & (u64::MAX >> COUNT);
        // A division of 32 bits is the quicker one, and enough for three days.
        let mean = match (u32::try_from(ages), count as u32) {
            (_, 0) => 0,
            (Ok(ages), count) => u64::from(ages / count),
            (Err(_), _) => ages / count,
        };
        mean << TICK
    }
}

/// The times of a tier's servers, shared by the workers.
pub(crate) struct Timing {
    by: By,
    /// With `inflight`.
    waiting: Option<Box<[Waiting]>>,
    failing: Failing,
    /// Whether the host tells when headers come; if not, requests wait until they are complete.
    hears_headers: AtomicBool,
    typical: Typical,
    /// When the first response came: the time of a server that was not chosen since is halved as well, or it would stay
    /// behind one that was halved and is chosen again and again. 0 before.
    first: AtomicU64,
}

impl Timing {
    pub fn new(tier: &Tier, by: By, inflight: bool) -> Timing {
        let timing = Timing {
            by,
            waiting: inflight.then(|| tier.slots.iter().map(|_| Waiting::default()).collect()),
            failing: Failing::new(tier),
            hears_headers: AtomicBool::new(false),
            typical: Typical::default(),
            first: AtomicU64::new(0),
        };
        timing.typical.sample(tier, |i| timing.known(tier, i));
        timing
    }

    fn known(&self, tier: &Tier, i: usize) -> Option<Nanos> {
        let state = &tier.slots[i].state;
        match self.by {
            By::Header => state.header_time(),
            By::LastByte => state.last_byte_time(),
        }
    }

    /// The time of a response in milliseconds, with what speaks for more: failures, and the age of what waits.
    fn time(&self, tier: &Tier, now: Nanos, i: usize, age: impl Fn(&Waiting) -> Nanos) -> u64 {
        let slot = &tier.slots[i];
        let known = self.known(tier, i).unwrap_or_else(|| self.typical.get());
        let failing = self.failing.of(i);
        let mut time = (known / MILLISECOND).max(u64::from(failing.min(1))) << failing;
        let since = match slot.state.checked() {
            0 => self.first.load(Relaxed),
            checked => checked,
        };
        let idle = if since == 0 { 0 } else { now.saturating_sub(since) };
        if idle > slot.fail_timeout {
            let halvings = idle / (slot.fail_timeout + SECOND);
            time = time.checked_shr(halvings.min(64) as u32).unwrap_or(0);
        }
        if let Some(waiting) = &self.waiting
            && !waiting[i].is_empty()
        {
            time = time.max(age(&waiting[i]) / MILLISECOND);
        }
        stepped(time)
    }

    /// Expected time to work off what is in flight and one request more, for a unit of weight.
    fn eta(&self, tier: &Tier, now: Nanos, i: usize, age: impl Fn(&Waiting) -> Nanos) -> f64 {
        let load = (tier.burden(i, now) + 256) as f64 / 256.0;
        self.time(tier, now, i, age) as f64 * load / f64::from(tier.slots[i].weight)
    }
}

/// Rounds milliseconds up, so that servers of about the same speed are equal.
fn stepped(time: u64) -> u64 {
    if time > SLOWEST { SLOWEST } else { time - time % STEP + STEP }
}

impl Score for Timing {
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        self.eta(tier, now, i, |w| w.age.load(Relaxed))
    }

    fn observe(&self, now: Nanos, i: usize) {
        if let Some(waiting) = &self.waiting
            && !waiting[i].is_empty()
        {
            average(&waiting[i].age, waiting[i].mean_age(now));
        }
    }

    fn score_unobserved(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        self.eta(tier, now, i, |w| w.mean_age(now))
    }

    fn on_dispatch(&self, now: Nanos, _tier: &Tier, i: usize) {
        if let Some(waiting) = &self.waiting {
            waiting[i].add(now);
        }
    }

    fn on_header(&self, now: Nanos, i: usize, time: Nanos) {
        if let (Some(waiting), By::Header) = (&self.waiting, self.by) {
            self.hears_headers.store(true, Relaxed);
            waiting[i].remove(now, Some(time));
        }
    }

    fn on_complete(&self, now: Nanos, tier: &Tier, i: usize, report: &Report, nth: u32) {
        let answered = self.wants_header() && report.header_time.is_some() && self.hears_headers.load(Relaxed);
        if let (Some(waiting), false) = (&self.waiting, answered) {
            waiting[i].remove(now, report.last_byte_time);
        }
        self.failing.learn(now, i, report);
        if self.first.load(Relaxed) == 0 && report.outcome == Outcome::Success {
            self.first.store(now, Relaxed);
        }
        self.typical.learn(tier, nth, |i| self.known(tier, i));
    }

    fn wants_header(&self) -> bool {
        self.by == By::Header && self.waiting.is_some()
    }
}
