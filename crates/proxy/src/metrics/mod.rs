//! What the workers count: connections, requests by zone, attempts by server.
//!
//! Each worker writes counters of its own, so that no two threads write to one place; a reader adds them up. They belong to a
//! zone's name or a server's identity, so that a reload keeps them.

mod codes;
mod histogram;
mod registry;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use balanza_balancing::Outcome;
use balanza_config::template;
use balanza_net::clock::Nanos;

use self::codes::Codes;
pub use self::histogram::{BUCKETS, Histogram, KeptTimes, Times, upper_bound};
pub use self::registry::{Registry, Summed};

/// A number that one thread writes and any thread reads.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only its own thread may.
    pub fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Relaxed);
    }

    /// Takes away what was added before.
    pub fn subtract(&self, less: u64) {
        self.add(less.wrapping_neg());
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The connections of a worker's clients.
#[derive(Default)]
pub struct ConnectionMetrics {
    /// Accepted so far.
    pub accepted: Counter,
    /// Closed at once, because there was no room.
    pub dropped: Counter,
    /// Open now.
    pub active: Counter,
    /// Of these, those that wait for a request.
    pub idle: Counter,
    /// Of these, those that wait for the rest of a request's head.
    pub reading: Counter,
    /// Requests so far, those in flight included.
    pub requests: Counter,
    /// TLS handshakes that were completed.
    pub handshakes: Counter,
    /// TLS handshakes that failed; clients that have just gone do not count.
    pub handshakes_failed: Counter,
    /// Completed handshakes that went on with an earlier session.
    pub session_reuses: Counter,
}

/// The connections of all workers.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Accepted so far.
    pub accepted: u64,
    /// Closed at once, because there was no room.
    pub dropped: u64,
    /// Open now.
    pub active: u64,
    /// Of these, those that wait for a request.
    pub idle: u64,
    /// Of these, those that wait for the rest of a request's head.
    pub reading: u64,
    /// Requests so far, those in flight included.
    pub requests: u64,
    /// TLS handshakes that were completed.
    pub handshakes: u64,
    /// TLS handshakes that failed; clients that have just gone do not count.
    pub handshakes_failed: u64,
    /// Completed handshakes that went on with an earlier session.
    pub session_reuses: u64,
}

impl Connections {
    /// The value of a variable.
    pub fn number(&self, which: template::Connections) -> u64 {
        match which {
            template::Connections::Active => self.active,
            template::Connections::Reading => self.reading,
            template::Connections::Waiting => self.idle,
            template::Connections::Writing => self.writing(),
        }
    }

    /// Those whose request is served. The workers' counters are read one by one, so that their sum may be short.
    pub fn writing(&self) -> u64 {
        self.active.saturating_sub(self.idle.saturating_add(self.reading))
    }
}

impl Summed for ConnectionMetrics {
    type Sum = Connections;

    fn add_to(&self, sum: &mut Connections) {
        sum.accepted += self.accepted.get();
        sum.dropped += self.dropped.get();
        sum.active += self.active.get();
        sum.idle += self.idle.get();
        sum.reading += self.reading.get();
        sum.requests += self.requests.get();
        sum.handshakes += self.handshakes.get();
        sum.handshakes_failed += self.handshakes_failed.get();
        sum.session_reuses += self.session_reuses.get();
    }

    fn subtract(sum: &mut Connections, before: &Connections) {
        sum.accepted -= before.accepted.min(sum.accepted);
        sum.dropped -= before.dropped.min(sum.dropped);
        sum.requests -= before.requests.min(sum.requests);
        sum.handshakes -= before.handshakes.min(sum.handshakes);
        sum.handshakes_failed -= before.handshakes_failed.min(sum.handshakes_failed);
        sum.session_reuses -= before.session_reuses.min(sum.session_reuses);
    }
}

/// Counts by status, from 100 to 599; a class has room from its first status on.
#[derive(Default)]
struct Statuses([OnceLock<Box<[Counter; 100]>>; 5]);

impl Statuses {
    fn count(&self, status: u16) {
        let (class, rest) = (usize::from(status / 100), usize::from(status % 100));
        if let Some(class) = class.checked_sub(1).and_then(|class| self.0.get(class)) {
            class.get_or_init(|| Box::new([const { Counter(AtomicU64::new(0)) }; 100]))[rest].add(1);
        }
    }
}

/// The requests of a virtual server, or the sessions of a server of `stream`, in one worker.
#[derive(Default)]
pub struct ZoneMetrics {
    /// Requests or sessions in flight.
    pub processing: Counter,
    statuses: Statuses,
    discarded: Counter,
    received: Counter,
    sent: Counter,
    times: OnceLock<Box<Histogram>>,
}

impl ZoneMetrics {
    /// A request or session has ended: its status (0 without a response), the bytes of both directions, and how long it took.
    pub fn record(&self, status: u16, received: u64, sent: u64, time: Nanos) {
        match status {
            0 => self.discarded.add(1),
            status => self.statuses.count(status),
        }
        self.received.add(received);
        self.sent.add(sent);
        self.times.get_or_init(Box::default).record(time);
    }
}

/// The requests or sessions of a zone.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// In flight now.
    pub processing: u64,
    /// How many had which status.
    pub statuses: BTreeMap<u16, u64>,
    /// How many had no response.
    pub discarded: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
    /// How long they took.
    pub times: Times,
}

impl Summed for ZoneMetrics {
    type Sum = Requests;

    fn add_to(&self, sum: &mut Requests) {
        sum.processing = sum.processing.wrapping_add(self.processing.get());
        for (class, counters) in (1..).zip(&self.statuses.0) {
            let counters = counters.get().map_or(&[][..], |counters| &counters[..]);
            for (rest, counter) in (0..).zip(counters).filter(|(_, counter)| counter.get() > 0) {
                *sum.statuses.entry(100 * class + rest).or_default() += counter.get();
            }
        }
        sum.discarded += self.discarded.get();
        sum.received += self.received.get();
        sum.sent += self.sent.get();
        if let Some(times) = self.times.get() {
            sum.times.add(times);
        }
    }

    fn subtract(sum: &mut Requests, before: &Requests) {
        subtract_each(&mut sum.statuses, &before.statuses);
        sum.discarded -= before.discarded.min(sum.discarded);
        sum.received -= before.received.min(sum.received);
        sum.sent -= before.sent.min(sum.sent);
        sum.times.subtract(&before.times);
    }
}

/// Takes counts out of others; what is 0 afterwards is left out.
fn subtract_each(counts: &mut BTreeMap<u16, u64>, before: &BTreeMap<u16, u64>) {
    for (key, count) in before {
        match counts.get(key).map_or(0, |now| now.saturating_sub(*count)) {
            0 => counts.remove(key),
            left => counts.insert(*key, left),
        };
    }
}

impl Requests {
    /// Those that have ended.
    pub fn ended(&self) -> u64 {
        self.responses() + self.discarded
    }

    /// Those that had a response.
    pub fn responses(&self) -> u64 {
        self.statuses.values().sum()
    }
}

/// The attempts of a worker to reach a server.
#[derive(Default)]
pub struct ServerMetrics {
    classes: [Counter; 5],
    codes: Codes,
    attempts: Counter,
    failures: Counter,
    disabled: Counter,
    received: Counter,
    sent: Counter,
    headers: Counter,
    header_time: Counter,
    times: OnceLock<Box<Histogram>>,
}

/// What an attempt to reach a server came to.
pub struct Attempted {
    /// How it counts.
    pub outcome: Outcome,
    /// The server is not tried any more for its `fail_timeout`.
    pub disabled: bool,
    /// Status of the response; 0 without one.
    pub status: u16,
    /// Bytes from the server.
    pub received: u64,
    /// Bytes to the server.
    pub sent: u64,
    /// How long its head was awaited.
    pub header_time: Option<Nanos>,
    /// How long it took in all.
    pub time: Nanos,
}

impl ServerMetrics {
    /// An attempt has ended.
    pub fn record(&self, attempt: &Attempted) {
        self.attempts.add(1);
        let class = usize::from(attempt.status / 100).checked_sub(1);
        if let Some(class) = class.and_then(|class| self.classes.get(class)) {
            class.add(1);
            self.codes.count(attempt.status);
        }
        if attempt.outcome == Outcome::Failure {
            self.failures.add(1);
        }
        self.disabled.add(attempt.disabled.into());
        self.received.add(attempt.received);
        self.sent.add(attempt.sent);
        if let Some(time) = attempt.header_time {
            self.headers.add(1);
            self.header_time.add(time);
            self.times.get_or_init(Box::default).record(attempt.time);
        }
    }
}

/// The attempts to reach a server.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// How many responses were 1xx, 2xx and so on.
    pub classes: [u64; 5],
    /// How many had which status; each worker counts 16 different ones of a server.
    pub codes: BTreeMap<u16, u64>,
    /// All attempts.
    pub attempts: u64,
    /// Those that counted against the server.
    pub failures: u64,
    /// How often it was not tried any more for its `fail_timeout`.
    pub disabled: u64,
    /// Bytes from the server.
    pub received: u64,
    /// Bytes to the server.
    pub sent: u64,
    /// Responses whose head has come, and how long they were awaited in all.
    pub headers: u64,
    /// Nanoseconds.
    pub header_time: u64,
    /// How long those attempts took in all.
    pub times: Times,
}

impl Summed for ServerMetrics {
    type Sum = Attempts;

    fn add_to(&self, sum: &mut Attempts) {
        for (total, class) in sum.classes.iter_mut().zip(&self.classes) {
            *total += class.get();
        }
        self.codes.add_to(&mut sum.codes);
        sum.attempts += self.attempts.get();
        sum.failures += self.failures.get();
        sum.disabled += self.disabled.get();
        sum.received += self.received.get();
        sum.sent += self.sent.get();
        sum.headers += self.headers.get();
        sum.header_time += self.header_time.get();
        if let Some(times) = self.times.get() {
            sum.times.add(times);
        }
    }

    fn subtract(sum: &mut Attempts, before: &Attempts) {
        subtract_each(&mut sum.codes, &before.codes);
        let counts = [
            (&mut sum.attempts, before.attempts),
            (&mut sum.failures, before.failures),
            (&mut sum.disabled, before.disabled),
            (&mut sum.received, before.received),
            (&mut sum.sent, before.sent),
            (&mut sum.headers, before.headers),
            (&mut sum.header_time, before.header_time),
        ];
        let classes = sum.classes.iter_mut().zip(before.classes);
        for (now, before) in counts.into_iter().chain(classes) {
            *now = now.saturating_sub(before);
        }
        sum.times.subtract(&before.times);
    }
}
