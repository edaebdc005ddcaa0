//! What a target counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use balanza_balancing::{Latencies, Nanos};
use serde::{Deserialize, Serialize};

/// A target's counters at one moment; the JSON at [`STATS_PATH`](super::STATS_PATH) has the same fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The target's name.
    pub name: String,
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests whose client went away before the answer.
    pub aborted: u64,
    /// Requests being worked on now.
    pub in_flight: u64,
    /// The most that were worked on at once.
    pub max_in_flight: u64,
    /// Requests read and waiting for one of the `concurrency` places now.
    pub queued: u64,
    /// The most that waited at once.
    pub max_queued: u64,
    /// Sum over the answered requests of the time from the whole request read to the answer ready, in microseconds.
    pub time_us: u64,
}

/// The live counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    aborted: AtomicU64,
    in_flight: Gauge,
    queued: Gauge,
    time_us: AtomicU64,
    /// The same times, by the requests that were present when a request came.
    latencies: Latencies,
}

/// Age of a latency that probes are not told any more.
const OLD: Nanos = 5_000_000_000;

/// When the counters' clock began.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now() -> Nanos {
    EPOCH.elapsed().as_nanos() as Nanos
}

impl Counters {
    /// Requests read and not answered.
    pub(super) fn present(&self) -> u64 {
        self.in_flight.now.load(Relaxed) + self.queued.now.load(Relaxed)
    }

    /// What probes of `balance prequal` are told: requests read and not answered, and the median time of recent requests
    /// that found about as many; 0, which is unknown, without recent ones. A server that kept telling of one slow second
    /// would get no request that shows otherwise.
    pub(super) fn load(&self) -> String {
        self.load_at(now())
    }

    fn load_at(&self, now: Nanos) -> String {
        let present = self.present();
        let known = self.latencies.at(now, present as u32).filter(|(_, age)| *age < OLD);
        let median = known.map_or(0.0, |(median, _)| median);
        format!("in_flight={present} latency_us={}\n", (median / 1e3) as u64)
    }

    /// An answer was ready so long after its request, which had found so many others.
    fn finish(&self, time: Duration, found: u32) {
        self.requests.fetch_add(1, Relaxed);
        self.time_us.fetch_add(time.as_micros() as u64, Relaxed);
        self.latencies.add(now(), found, time.as_nanos() as Nanos);
    }

    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(super) fn snapshot(&self, name: &str) -> Stats {
        Stats {
            name: name.to_owned(),
            connections: self.connections.load(Relaxed),
            requests: self.requests.load(Relaxed),
            aborted: self.aborted.load(Relaxed),
            in_flight: self.in_flight.now.load(Relaxed),
            max_in_flight: self.in_flight.max.load(Relaxed),
            queued: self.queued.now.load(Relaxed),
            max_queued: self.queued.max.load(Relaxed),
            time_us: self.time_us.load(Relaxed),
        }
    }
}

/// A number that goes up and down, with its maximum.
#[derive(Debug, Default)]
struct Gauge {
    now: AtomicU64,
    max: AtomicU64,
}

impl Gauge {
    fn up(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.max.fetch_max(now, Relaxed);
    }

    fn down(&self) {
        self.now.fetch_sub(1, Relaxed);
    }
}

/// One request's way through the counters. Dropped before [`Visit::finish`], it counts as aborted, so a client that
/// goes away at any point leaves the gauges right.
#[derive(Debug)]
pub(super) struct Visit {
    counters: Arc<Counters>,
    since: Instant,
    /// Other requests that were present when it came.
    found: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Arrived,
    Queued,
    Working,
    Done,
}

impl Visit {
    /// A request was read.
    pub(super) fn arrive(counters: &Arc<Counters>) -> Self {
        let found = counters.present() as u32;
        Self { counters: Arc::clone(counters), since: Instant::now(), found, phase: Phase::Arrived }
    }

    /// It has to wait for its turn.
    pub(super) fn queue(&mut self) {
        self.enter(Phase::Queued);
    }

    /// Its work begins.
    pub(super) fn work(&mut self) {
        self.enter(Phase::Working);
    }

    /// There is nothing to do for it.
    pub(super) fn at_once(mut self) {
        self.work();
        self.finish();
    }

    /// Its answer is ready.
    pub(super) fn finish(mut self) {
        self.enter(Phase::Done);
        self.counters.finish(self.since.elapsed(), self.found);
    }

    fn enter(&mut self, phase: Phase) {
        let gauge = |phase| match phase {
            Phase::Queued => Some(&self.counters.queued),
            Phase::Working => Some(&self.counters.in_flight),
            Phase::Arrived | Phase::Done => None,
        };
        if let Some(left) = gauge(self.phase) {
            left.down();
        }
        if let Some(entered) = gauge(phase) {
            entered.up();
        }
        self.phase = phase;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.phase != Phase::Done {
            self.enter(Phase::Done);
            self.counters.aborted.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_hear_of_recent_requests_that_found_as_many() {
        let counters = Arc::new(Counters::default());
        counters.finish(Duration::from_millis(8), 0);
        counters.finish(Duration::from_millis(30), 2);
        assert_eq!(counters.load(), "in_flight=0 latency_us=8000\n");
        assert_eq!(counters.load_at(now() + OLD), "in_flight=0 latency_us=0\n");
        let (mut one, mut other) = (Visit::arrive(&counters), Visit::arrive(&counters));
        one.work();
        other.work();
        assert_eq!(counters.load(), "in_flight=2 latency_us=30000\n");
        assert_eq!(Visit::arrive(&counters).found, 2);
        assert_eq!(counters.snapshot("x").time_us, 38_000);
    }

    #[test]
    fn a_visit_dropped_in_any_phase_leaves_the_gauges_at_zero() {
        let counters = Arc::new(Counters::default());
        drop(Visit::arrive(&counters));
        let mut waiting = Visit::arrive(&counters);
        waiting.queue();
        let mut working = Visit::arrive(&counters);
        working.work();
        assert_eq!(counters.load(), "in_flight=2 latency_us=0\n");
        let during = counters.snapshot("x");
        assert_eq!((during.queued, during.in_flight, during.aborted), (1, 1, 1));
        drop(waiting);
        drop(working);
        let mut done = Visit::arrive(&counters);
        done.work();
        done.finish();
        let after = counters.snapshot("x");
        assert_eq!((after.queued, after.in_flight), (0, 0));
        assert_eq!((after.max_queued, after.max_in_flight), (1, 1));
        assert_eq!((after.aborted, after.requests), (3, 1));
    }
}
