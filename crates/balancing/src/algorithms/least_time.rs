//! Least time: the server that is expected to be done first.
//!
//! The score is `t * (1 + a) / w`, where `t` is the moving average of the time to the response's header or to its last
//! byte. As in NGINX, times are rounded up to 20 ms, so that servers of about the same speed take turns; beyond 5 s all
//! are equally slow; a server that nobody asked for a while has its time halved once in each fail timeout, so that it is
//! tried again; only successful requests count, so that failing quickly makes nobody look fast. With `inflight` the age
//! of the requests that wait for an answer counts as well, if it is the greater.
//!
//! Other than in NGINX, a server without an answer yet is taken to be as fast as the median of the others, so that it is
//! not flooded; and each failure in a row doubles a server's time, so that one that fails at once, and so never has much
//! in flight, does not draw all requests when `max_fails` does not close it.
//!
//! Source: NGINX `least_time`. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a
//! completion. Nobody eligible: the driver goes to the backups.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use super::SCAN;
use crate::Nanos;
use crate::averages::average;
use crate::driver::{Outcome, Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share};
use crate::rng::Rng;
use crate::structures::contest::{Contest, Watch};
use crate::structures::smooth::{Smooth, least};

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;
/// Times are rounded up to this, in milliseconds.
const STEP: u64 = 20;
/// Times beyond this are all the same, in milliseconds.
const SLOWEST: u64 = 5_000;
/// Failures in a row that count.
const FAILING_MAX: u32 = 12;
/// Servers that a median is taken of.
const SAMPLE: usize = 31;

pub(crate) const ENTRY: Entry = Entry {
    name: "least_time",
    aliases: &["response_time"],
    summary: "the server with the least expected time for its weight",
    description: "\
        The server with the least t * (1 + a) / w gets the request: t is the moving average of the time to \
        the response's header or to its last byte, a counts the requests in flight. For servers of different \
        speeds and distances, where waiting time matters more than even counts.\n\n\
        Times are rounded up to 20 ms, so that servers of about the same speed take turns. A server that \
        nobody asked for a while has its time halved again and again, so that it is tried again; a new one \
        begins with the median of the others; one that fails has its time doubled by each failure in a row, \
        so that failing quickly does not look fast. In slow start a server counts with the weight it has by \
        then. Backups are used when all others are closed or full.",
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
            summary: "count requests that still wait for an answer",
            kind: Kind::Switch,
            default: "off",
        },
    ],
    source: "NGINX",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |spec, level| {
        let by = By::of(spec.choice("by")).unwrap_or(By::Header);
        let timing = Arc::new(Timing::new(level, by, spec.switch("inflight")));
        let contest = (level.len() > SCAN).then(|| Arc::new(Contest::new(level)));
        Arc::new(LeastTimePlan { level: level.clone(), timing, contest })
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
    count: AtomicU32,
    /// Sum of the times they were sent at, modulo 2^64.
    since: AtomicU64,
    /// Moving average of their mean age, one sample a pick.
    age: AtomicU64,
}

impl Waiting {
    fn add(&self, now: Nanos) {
        // In this order, and the reverse in `remove`, a reader between the two sees too low an age, never a huge one.
        self.since.fetch_add(now, AcqRel);
        self.count.fetch_add(1, AcqRel);
    }

    fn remove(&self, now: Nanos, age: Option<Nanos>) {
        let age = age.unwrap_or_else(|| self.mean_age(now));
        self.count.fetch_sub(1, AcqRel);
        self.since.fetch_sub(now.wrapping_sub(age), AcqRel);
    }

    /// Mean age of those that wait; 0 if none does.
    fn mean_age(&self, now: Nanos) -> Nanos {
        let count = u64::from(self.count.load(Acquire));
        let ages = count.wrapping_mul(now).wrapping_sub(self.since.load(Acquire));
        // A negative sum is a moment between two steps of another thread.
        let ages = i64::try_from(ages).unwrap_or(0).unsigned_abs();
        ages.checked_div(count).unwrap_or(0)
    }
}

/// The times of a level's servers, shared by the workers.
pub(crate) struct Timing {
    by: By,
    /// With `inflight`.
    waiting: Option<Box<[Waiting]>>,
    /// Failures of each server since its last success.
    failing: Box<[AtomicU32]>,
    /// Whether the host tells when headers come; if not, requests wait until they are complete.
    hears_headers: AtomicBool,
    /// Median of the known averages; 0 if none is known.
    typical: AtomicU64,
    /// Where the next sample of a large level begins.
    cursor: AtomicU32,
}

impl Timing {
    pub fn new(level: &Level, by: By, inflight: bool) -> Timing {
        let timing = Timing {
            by,
            waiting: inflight.then(|| level.slots.iter().map(|_| Waiting::default()).collect()),
            failing: level.slots.iter().map(|_| AtomicU32::new(0)).collect(),
            hears_headers: AtomicBool::new(false),
            typical: AtomicU64::new(0),
            cursor: AtomicU32::new(0),
        };
        timing.sample(level);
        timing
    }

    fn known(&self, level: &Level, i: usize) -> Option<Nanos> {
        let cell = &level.slots[i].cell;
        match self.by {
            By::Header => cell.header_time(),
            By::LastByte => cell.last_byte_time(),
        }
    }

    /// Takes the median of the known averages, of up to 31 servers.
    fn sample(&self, level: &Level) {
        let n = level.len();
        let first = if n > SAMPLE { self.cursor.fetch_add(SAMPLE as u32, Relaxed) as usize } else { 0 };
        let mut times = [0; SAMPLE];
        let mut count = 0;
        for k in 0..n.min(SAMPLE) {
            if let Some(time) = self.known(level, (first + k) % n) {
                times[count] = time;
                count += 1;
            }
        }
        if count > 0 {
            times[..count].sort_unstable();
            self.typical.store(times[count / 2], Relaxed);
        }
    }

    /// Learns from a completion, and keeps the median up to date: every so many completions, and as long as nothing is
    /// known.
    pub fn completed(&self, level: &Level, i: usize, report: &Report, completions: &mut u32) {
        match report.outcome {
            Outcome::Failure => {
                self.failing[i].fetch_add(1, Relaxed);
            }
            Outcome::Success if self.failing[i].load(Relaxed) != 0 => self.failing[i].store(0, Relaxed),
            _ => {}
        }
        *completions = completions.wrapping_add(1);
        let period = if level.len() > SCAN { 64 } else { 16 };
        if completions.is_multiple_of(period) || self.typical.load(Relaxed) == 0 {
            self.sample(level);
        }
    }

    /// Expected time in 1/256 of a millisecond to work off what is in flight and one request more; not yet divided by the
    /// weight.
    fn eta(&self, level: &Level, now: Nanos, i: usize, age: impl Fn(&Waiting) -> Nanos) -> u64 {
        let slot = &level.slots[i];
        let known = self.known(level, i).unwrap_or_else(|| self.typical.load(Relaxed));
        let failing = self.failing[i].load(Relaxed).min(FAILING_MAX);
        let mut time = (known / MILLISECOND).max(u64::from(failing.min(1))) << failing;
        let idle = now.saturating_sub(slot.cell.checked());
        if idle > slot.fail_timeout && self.known(level, i).is_some() {
            let halvings = idle / (slot.fail_timeout + SECOND);
            time = time.checked_shr(halvings.min(64) as u32).unwrap_or(0);
        }
        if let Some(waiting) = &self.waiting
            && waiting[i].count.load(Acquire) > 0
        {
            time = time.max(age(&waiting[i]) / MILLISECOND);
        }
        let time = if time > SLOWEST { SLOWEST } else { time - time % STEP + STEP };
        time * (256 + level.burden(i, now))
    }

    /// Expected time with the age that [`Timing::observe`] keeps.
    fn observed_eta(&self, level: &Level, now: Nanos, i: usize) -> u64 {
        self.eta(level, now, i, |w| w.age.load(Relaxed))
    }

    /// Compares the scores of two servers, exactly.
    pub fn compare(&self, level: &Level, now: Nanos, i: usize, j: usize) -> Ordering {
        compare(level, (i, self.observed_eta(level, now, i)), (j, self.observed_eta(level, now, j)))
    }

    /// The score: milliseconds for a unit of weight.
    pub fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        self.observed_eta(level, now, i) as f64 / level.whole_weight(i).max(1) as f64
    }

    /// The load of a server in a contest: the score before the division, in steps.
    fn load(&self, level: &Level, now: Nanos, i: usize) -> u64 {
        self.eta(level, now, i, |w| w.mean_age(now)).div_ceil(256 * STEP)
    }

    /// Takes a sample of the age of what waits.
    fn observe(&self, now: Nanos, i: usize) {
        if let Some(waiting) = &self.waiting
            && waiting[i].count.load(Acquire) > 0
        {
            average(&waiting[i].age, waiting[i].mean_age(now));
        }
    }

    fn dispatched(&self, now: Nanos, i: usize) {
        if let Some(waiting) = &self.waiting {
            waiting[i].add(now);
        }
    }

    fn wants_header(&self) -> bool {
        self.by == By::Header && self.waiting.is_some()
    }

    fn header(&self, now: Nanos, i: usize, time: Nanos) {
        if let (Some(waiting), By::Header) = (&self.waiting, self.by) {
            self.hears_headers.store(true, Relaxed);
            waiting[i].remove(now, Some(time));
        }
    }

    fn done(&self, now: Nanos, i: usize, report: &Report) {
        let answered = self.wants_header() && report.header_time.is_some() && self.hears_headers.load(Relaxed);
        if let (Some(waiting), false) = (&self.waiting, answered) {
            waiting[i].remove(now, report.last_byte_time);
        }
    }
}

/// Compares the scores of two servers, given with their expected times.
fn compare(level: &Level, (i, a): (usize, u64), (j, b): (usize, u64)) -> Ordering {
    let product = |eta: u64, i: usize| u128::from(eta) * u128::from(level.slots[i].weight);
    product(a, j).cmp(&product(b, i))
}

struct LeastTimePlan {
    level: Arc<Level>,
    timing: Arc<Timing>,
    contest: Option<Arc<Contest>>,
}

impl Plan for LeastTimePlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let timing = self.timing.clone();
        match &self.contest {
            Some(contest) => {
                let watch = Watch::new(&self.level);
                Box::new(Many { timing, contest: contest.clone(), watch, completions: 0 })
            }
            None => Box::new(Few { timing, smooth: Smooth::new(&self.level, start, rng), completions: 0 }),
        }
    }
}

struct Few {
    timing: Arc<Timing>,
    smooth: Smooth,
    completions: u32,
}

impl Policy for Few {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let (level, now) = (cx.level, cx.now);
        let mut etas = [0; SCAN];
        for (i, eta) in etas[..level.len()].iter_mut().enumerate() {
            self.timing.observe(now, i);
            *eta = self.timing.observed_eta(level, now, i);
        }
        least(cx, &mut self.smooth, |i, j| compare(level, (i, etas[i]), (j, etas[j])))
    }

    fn on_dispatch(&mut self, now: Nanos, level: &Level, index: usize, by_policy: bool) {
        if !by_policy {
            self.smooth.charge(level, now, index);
        }
        self.timing.dispatched(now, index);
    }

    fn on_header(&mut self, now: Nanos, index: usize, time: Nanos) {
        self.timing.header(now, index, time);
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.timing.done(now, index, report);
        self.timing.completed(level, index, report, &mut self.completions);
        if report.failed() {
            self.smooth.on_failure(level, index);
        }
    }

    fn wants_header(&self) -> bool {
        self.timing.wants_header()
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(self.timing.score(cx.level, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}

struct Many {
    timing: Arc<Timing>,
    contest: Arc<Contest>,
    watch: Watch,
    completions: u32,
}

impl Policy for Many {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let (level, now) = (cx.level, cx.now);
        self.contest.pick(cx, &mut self.watch, |i| self.timing.load(level, now, i))
    }

    fn on_dispatch(&mut self, now: Nanos, level: &Level, index: usize, _by_policy: bool) {
        self.timing.dispatched(now, index);
        self.contest.dispatched(level, now, index, |i| self.timing.load(level, now, i));
    }

    fn on_header(&mut self, now: Nanos, index: usize, time: Nanos) {
        self.timing.header(now, index, time);
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.timing.done(now, index, report);
        self.timing.completed(level, index, report, &mut self.completions);
        if report.failed() {
            self.watch.add(level, index);
        }
        self.contest.refresh(level, now, index, || self.timing.load(level, now, index));
    }

    fn wants_header(&self) -> bool {
        self.timing.wants_header()
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(self.timing.score(cx.level, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}
