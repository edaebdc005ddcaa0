//! A limit of requests in flight for each server that is found by measuring: as many as the server works on, and a few that wait.
//!
//! From time to time a server gets a few requests at a time only, and the mean of their times is how long it takes without a
//! queue; one server after the other, so that the others have the load. Otherwise that is compared with the times in a short window:
//! their ratio (the gradient) says by how much the limit is too high. Its square root is added, so that there is a short queue that
//! shows when more is possible. The limit grows only while it is used.
//!
//! Source: Envoy's adaptive concurrency; Netflix's concurrency-limits (2018), whose Gradient2 has a long-term average instead of
//! the measured time, which lasting overload raises.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Feature, Settings, parameter};
use crate::Nanos;
use crate::fleet::Fleet;
use crate::server::Member;
use crate::server_state::ServerState;
use crate::spec::Kind;

/// So many requests at a time are no queue.
const LIGHT: u32 = 3;
/// A window's times count if there are so many, and a measurement that takes long.
const SAMPLES: u32 = 10;
/// How long a measurement takes at most.
const PATIENCE: Nanos = 10_000_000_000;
const NONE: u32 = u32::MAX;

const LIMITS: Kind = Kind::Number(LIGHT as u64, 100_000);

pub(super) static FEATURE: Feature = Feature {
    name: "concurrency",
    summary: "finds a limit of requests in flight for each server by measuring",
    parameters: &[
        parameter("initial", "the limit before the first measurement", LIMITS, "20"),
        parameter("min", "the least limit", LIMITS, "3"),
        parameter("max", "the greatest limit", LIMITS, "1000"),
        parameter(
            "tolerance",
            "percent that responses may take longer than without a queue",
            Kind::Number(0, 1_000),
            "25",
        ),
        parameter("window", "the time over which responses are averaged", Kind::Time(10, 60_000), "100ms"),
        parameter("interval", "how often the time without a queue is measured", Kind::Time(1_000, 3_600_000), "1m"),
        parameter("requests", "responses of a measurement", Kind::Number(SAMPLES as u64, 10_000), "50"),
    ],
    source: "Envoy's adaptive concurrency; Netflix's concurrency-limits",
};

#[derive(Clone, Copy, Debug)]
struct Rules {
    initial: f64,
    min: f64,
    max: f64,
    tolerance: f64,
    window: Nanos,
    interval: Nanos,
    requests: u32,
}

/// What is known of one server. It outlives memberships.
#[derive(Default, Debug)]
struct Gauge {
    /// When the window ends, its responses, their times, and the most requests in flight.
    ends: AtomicU64,
    count: AtomicU32,
    time: AtomicU64,
    busiest: AtomicU32,
    /// The time is measured, by these responses.
    measures: AtomicBool,
    light_count: AtomicU32,
    light_time: AtomicU64,
    /// The time without a queue; 0 before the first measurement.
    base: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Default, Debug)]
struct Book {
    /// 0 before the first window.
    limit: f64,
    /// When the last measurement began or ended.
    measured: Nanos,
}

impl Gauge {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limits of an upstream's servers.
#[derive(Debug)]
pub struct Concurrency {
    rules: Rules,
    servers: Box<[(Arc<ServerState>, Arc<Gauge>)]>,
    /// The server that is measured.
    measured: AtomicU32,
    /// Another membership is in use.
    retired: AtomicBool,
}

impl Concurrency {
    /// For the servers of a fleet; what is known of them, by their states, goes on. [`Concurrency::begin`] puts it to use.
    pub fn new(settings: &Settings, fleet: &Fleet, before: Option<&Concurrency>) -> Concurrency {
        let number = |name| settings.number(name) as f64;
        let (min, max) = (number("min"), number("max").max(number("min")));
        let rules = Rules {
            initial: number("initial").clamp(min, max),
            min,
            max,
            tolerance: 1.0 + number("tolerance") / 100.0,
            window: settings.time("window"),
            interval: settings.time("interval"),
            requests: settings.number("requests") as u32,
        };
        let known: HashMap<_, _> =
            before.iter().flat_map(|b| &b.servers).map(|(state, gauge)| (Arc::as_ptr(state), gauge)).collect();
        let server = |member: Member| {
            let state = fleet.shared_cell(member);
            let gauge = known.get(&Arc::as_ptr(state)).map(|gauge| Arc::clone(gauge)).unwrap_or_default();
            (Arc::clone(state), gauge)
        };
        let servers = fleet.members().map(server).collect();
        Concurrency { rules, servers, measured: AtomicU32::new(NONE), retired: AtomicBool::new(false) }
    }

    /// From now on this sets the limits.
    pub fn begin(&self) {
        for (state, gauge) in &self.servers {
            gauge.measures.store(false, Relaxed);
            let mut book = gauge.lock();
            if book.limit == 0.0 {
                book.limit = self.rules.initial;
            }
            self.limit(state, &mut book);
        }
    }

    /// Another one sets the limits from now on, or none.
    pub fn retire(&self, next: Option<&Concurrency>) {
        self.retired.store(true, Relaxed);
        if next.is_none() {
            for (state, gauge) in &self.servers {
                let _book = gauge.lock();
                state.set_ceiling(None);
            }
        }
    }

    fn limit(&self, state: &ServerState, book: &mut Book) {
        book.limit = book.limit.clamp(self.rules.min, self.rules.max);
        state.set_ceiling(Some(book.limit as u32));
    }

    /// A response has come after `time`, or an attempt has `failed`; the server had `others` requests in flight when it was
    /// sent. Failures that come fast say nothing of load.
    #[inline]
    pub fn complete(&self, now: Nanos, member: Member, others: u32, time: Nanos, failed: bool) {
        let gauge = &*self.servers[member.0 as usize].1;
        if failed && time <= gauge.base.load(Relaxed).max(1) {
            return;
        }
        gauge.count.fetch_add(1, Relaxed);
        gauge.time.fetch_add(time, Relaxed);
        if gauge.busiest.load(Relaxed) <= others {
            gauge.busiest.fetch_max(others + 1, Relaxed);
        }
        if others < LIGHT && gauge.measures.load(Relaxed) && !failed {
            gauge.light_time.fetch_add(time, Relaxed);
            gauge.light_count.fetch_add(1, AcqRel);
        }
        if now >= gauge.ends.load(Relaxed) {
            self.close(now, member);
        }
    }

    /// Ends a window of a server.
    #[cold]
    fn close(&self, now: Nanos, member: Member) {
        let (state, gauge) = &self.servers[member.0 as usize];
        let Ok(mut book) = gauge.book.try_lock() else { return };
        if self.retired.load(Relaxed) || now < gauge.ends.load(Relaxed) {
            return;
        }
        gauge.ends.store(now + self.rules.window, Relaxed);
        let (count, time) = (gauge.count.swap(0, Relaxed), gauge.time.swap(0, Relaxed));
        let busiest = gauge.busiest.swap(0, Relaxed);
        if gauge.measures.load(Relaxed) {
            return self.measure(now, member, &mut book);
        }
        if gauge.base.load(Relaxed) == 0 || now.saturating_sub(book.measured) >= self.rules.interval {
            if self.begins(member) {
                gauge.light_count.store(0, Relaxed);
                gauge.light_time.store(0, Relaxed);
                gauge.measures.store(true, Relaxed);
                book.measured = now;
                state.set_ceiling(Some(LIGHT));
                return;
            }
            self.hurry(now, member);
        }
        let base = gauge.base.load(Relaxed);
        if count < SAMPLES || base == 0 {
            return;
        }
        let mean = time as f64 / f64::from(count);
        let gradient = (base as f64 * self.rules.tolerance / mean.max(1.0)).clamp(0.5, 2.0);
        let next = book.limit * gradient + book.limit.sqrt();
        if next < book.limit || f64::from(busiest) * 2.0 >= book.limit {
            book.limit = next;
            self.limit(state, &mut book);
        }
    }

    /// Whether a server may be measured now: no other one is.
    fn begins(&self, Member(m): Member) -> bool {
        self.measured.compare_exchange(NONE, m, AcqRel, Acquire).is_ok()
    }

    /// A measurement goes on, or ends.
    fn measure(&self, now: Nanos, member: Member, book: &mut Book) {
        let (_, gauge) = &self.servers[member.0 as usize];
        let (count, time) = (gauge.light_count.load(Acquire), gauge.light_time.load(Relaxed));
        let late = now.saturating_sub(book.measured) >= PATIENCE;
        if count >= if late { SAMPLES } else { self.rules.requests } {
            gauge.base.store((time / u64::from(count)).max(1), Relaxed);
        } else if !late {
            return;
        }
        self.end(now, member, book);
    }

    fn end(&self, now: Nanos, Member(m): Member, book: &mut Book) {
        let (state, gauge) = &self.servers[m as usize];
        gauge.measures.store(false, Relaxed);
        book.measured = now;
        self.limit(state, book);
        let _ = self.measured.compare_exchange(m, NONE, AcqRel, Relaxed);
    }

    /// Ends the measurement of another server if it takes too long, because that has no requests.
    fn hurry(&self, now: Nanos, Member(m): Member) {
        let measured = self.measured.load(Acquire);
        if let Some((_, gauge)) = self.servers.get(measured as usize)
            && measured != m
            && let Ok(mut book) = gauge.book.try_lock()
            && now.saturating_sub(book.measured) >= PATIENCE
        {
            self.end(now, Member(measured), &mut book);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::ServerSpec;
    use crate::spec::Spec;

    const MS: Nanos = 1_000_000;
    const SECOND: Nanos = 1_000 * MS;

    struct Farm {
        fleet: Fleet,
        concurrency: Concurrency,
        now: Nanos,
    }

    impl Farm {
        fn new(servers: usize, given: &[(&str, &str)]) -> Farm {
            let servers = (0..servers).map(|n| (ServerSpec::new(&format!("s{n}")), Arc::new(ServerState::new())));
            let fleet = Fleet::new(&Spec::default(), servers.collect()).unwrap();
            let concurrency = Concurrency::new(&Settings::new(&FEATURE, given).unwrap(), &fleet, None);
            concurrency.begin();
            Farm { fleet, concurrency, now: 100 * SECOND }
        }

        fn limit(&self, m: u32) -> u32 {
            self.fleet.state(Member(m)).ceiling().unwrap()
        }

        /// Windows in which the server has as many requests as it may, up to `most`, works on `places` of them at a time, for
        /// `time`.
        fn windows(&mut self, m: u32, count: usize, most: u32, places: u32, time: Nanos) {
            for _ in 0..count {
                self.now += 100 * MS;
                let others = self.limit(m).min(most) - 1;
                let time = time * u64::from((others + 1).max(places)) / u64::from(places);
                for _ in 0..50 {
                    self.concurrency.complete(self.now, Member(m), others, time, false);
                }
            }
        }
    }

    #[test]
    fn it_finds_what_a_server_works_on() {
        for places in [4, 16, 100] {
            let mut farm = Farm::new(1, &[]);
            assert_eq!(farm.limit(0), 20);
            farm.windows(0, 1, 500, places, 10 * MS);
            assert_eq!(farm.limit(0), LIGHT, "it is measured");
            farm.windows(0, 2, 500, places, 10 * MS);
            assert!(farm.limit(0) >= 20);
            farm.windows(0, 100, 500, places, 10 * MS);
            // In balance l (1 - 1.25 p / l) = sqrt(l).
            let limit = f64::from(farm.limit(0));
            let expected = 1.25 * f64::from(places) + limit.sqrt();
            assert!((limit / expected - 1.0).abs() < 0.1, "{places}: {limit}, not {expected}");
        }
    }

    #[test]
    fn it_follows_a_server_that_becomes_slower_and_measures_again() {
        let mut farm = Farm::new(1, &[("interval", "20s")]);
        farm.windows(0, 100, 500, 50, 10 * MS);
        let before = farm.limit(0);
        farm.windows(0, 20, 500, 50, 30 * MS);
        assert!(farm.limit(0) < before / 3, "{before} {}", farm.limit(0));
        // It is not busy, but slow: that is found when it is measured.
        farm.windows(0, 150, 500, 50, 30 * MS);
        assert!(farm.limit(0).abs_diff(before) < 10, "{before} {}", farm.limit(0));
    }

    #[test]
    fn an_unused_limit_does_not_grow() {
        let mut farm = Farm::new(1, &[]);
        farm.windows(0, 50, 5, 100, 10 * MS);
        assert_eq!(farm.limit(0), 20);
    }

    #[test]
    fn one_is_measured_at_a_time_and_one_without_requests_does_not_stop_the_others() {
        let mut farm = Farm::new(3, &[]);
        for m in 0..3 {
            farm.windows(m, 1, 10, 10, 10 * MS);
        }
        assert_eq!([0, 1, 2].map(|m| farm.limit(m)), [LIGHT, 20, 20]);
        farm.windows(1, 50, 10, 10, 10 * MS);
        assert_eq!([0, 1].map(|m| farm.limit(m)), [LIGHT, 20]);
        farm.windows(1, 52, 10, 10, 10 * MS);
        assert!(farm.limit(0) == 20 && farm.concurrency.servers[1].1.base.load(Relaxed) == 10 * MS);
    }

    #[test]
    fn failures_that_come_fast_say_nothing_and_slow_ones_do() {
        let mut farm = Farm::new(1, &[]);
        farm.windows(0, 20, 500, 50, 10 * MS);
        let before = farm.limit(0);
        let fail = |farm: &mut Farm, time| {
            for _ in 0..10 {
                farm.now += 100 * MS;
                (0..50).for_each(|_| farm.concurrency.complete(farm.now, Member(0), 60, time, true));
            }
        };
        fail(&mut farm, MS);
        assert_eq!(farm.limit(0), before);
        fail(&mut farm, SECOND);
        assert!(farm.limit(0) < before / 4, "{before} {}", farm.limit(0));
    }

    #[test]
    fn the_next_membership_goes_on() {
        let mut farm = Farm::new(1, &[]);
        farm.windows(0, 50, 500, 50, 10 * MS);
        let limit = farm.limit(0);
        let settings = Settings::new(&FEATURE, &[]).unwrap();
        let next = Concurrency::new(&settings, &farm.fleet, Some(&farm.concurrency));
        farm.concurrency.retire(Some(&next));
        next.begin();
        farm.windows(0, 50, 500, 1, 10 * MS);
        assert_eq!(farm.limit(0), limit, "the one before says nothing any more");
        next.retire(None);
        assert_eq!(farm.fleet.state(Member(0)).ceiling(), None);
    }

    proptest! {
        /// Whatever comes, the limit is within its bounds, and that of a measurement.
        #[test]
        fn bounds_hold(steps in prop::collection::vec((0u32..3, 0u32..100, 0u64..1_000_000_000, any::<bool>()), 0..400)) {
            let mut farm = Farm::new(3, &[("min", "5"), ("max", "40"), ("requests", "10"), ("interval", "1s")]);
            for (m, others, time, failed) in steps {
                farm.now += time / 20;
                farm.concurrency.complete(farm.now, Member(m), others, time, failed);
                let limits = [0, 1, 2].map(|m| farm.limit(m));
                prop_assert!(limits.iter().filter(|limit| **limit == LIGHT).count() <= 1);
                prop_assert!(limits.iter().all(|limit| *limit == LIGHT || (5..=40).contains(limit)));
            }
        }
    }
}
