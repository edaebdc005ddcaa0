//! What is counted of a load.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hdrhistogram::Histogram;
use nix::time::ClockId;

use super::latency::{Recorder, histogram};
use super::trust::LAG_ALLOWED;
use crate::record::{ErrorKind, Latency, Measured, Second};

/// An answer, as far as it is counted.
pub(super) struct Answer<'a> {
    pub status: u16,
    pub bytes: u64,
    pub server: Option<&'a [u8]>,
    /// From the (intended) start to the end of the answer.
    pub latency: Duration,
}

/// Counters of a load.
pub(super) struct Tally {
    /// When the measured time begins.
    from: u64,
    pub ended: u64,
    answered: u64,
    errors: BTreeMap<ErrorKind, u64>,
    statuses: BTreeMap<u16, u64>,
    by_server: HashMap<Vec<u8>, u64>,
    bytes: u64,
    latency: Recorder,
    connect: Recorder,
    waiting: Recorder,
    lag: Recorder,
    /// Requests of an open loop that were sent later than is allowed.
    sent_late: u64,
    timeline: Timeline,
    pub connections_max: u64,
    /// When the last counted request ended.
    pub last: u64,
    /// Times and processor times at the beginning and the end of the measured time.
    processor: Option<[(u64, u64); 2]>,
}

impl Tally {
    pub fn new(from: u64) -> Self {
        Self {
            from,
            ended: 0,
            answered: 0,
            errors: BTreeMap::new(),
            statuses: BTreeMap::new(),
            by_server: HashMap::new(),
            bytes: 0,
            latency: Recorder::default(),
            connect: Recorder::default(),
            waiting: Recorder::default(),
            lag: Recorder::default(),
            sent_late: 0,
            timeline: Timeline::default(),
            connections_max: 0,
            last: from,
            processor: None,
        }
    }

    /// A request has ended at a time: with an answer, whatever its status, or without. Those that are not `counted` are
    /// seen in the timeline only.
    pub fn end(&mut self, at: u64, counted: bool, outcome: Result<Answer<'_>, ErrorKind>) -> bool {
        let error = match &outcome {
            Err(kind) => Some(*kind),
            Ok(answer) if answer.status >= 500 => Some(ErrorKind::ServerError),
            Ok(answer) if answer.status >= 400 => Some(ErrorKind::ClientError),
            Ok(_) => None,
        };
        let latency = outcome.as_ref().ok().filter(|_| error.is_none()).map(|answer| answer.latency);
        self.timeline.add(at, latency);
        if !counted {
            return error.is_none();
        }
        self.ended += 1;
        self.last = self.last.max(at);
        if let Some(kind) = error {
            *self.errors.entry(kind).or_default() += 1;
        }
        if let Some(latency) = latency {
            self.answered += 1;
            self.latency.record(latency);
        }
        if let Ok(answer) = outcome {
            self.bytes += answer.bytes;
            *self.statuses.entry(answer.status).or_default() += 1;
            if let Some(server) = answer.server {
                match self.by_server.get_mut(server) {
                    Some(count) => *count += 1,
                    None => drop(self.by_server.insert(server.to_vec(), 1)),
                }
            }
        }
        error.is_none()
    }

    /// A connection was established.
    pub fn connected(&mut self, now: u64, took: u64) {
        if now >= self.from {
            self.connect.record(Duration::from_nanos(took));
        }
    }

    /// The first byte of an answer has come.
    pub fn first_byte(&mut self, now: u64, took: u64) {
        if now >= self.from {
            self.waiting.record(Duration::from_nanos(took));
        }
    }

    /// Something was handled that was due, or had been told of, so long ago.
    pub fn late(&mut self, now: u64, by: u64) {
        if now >= self.from {
            self.lag.record(Duration::from_nanos(by));
        }
    }

    /// A request of an open loop was sent so long after it was meant to be.
    pub fn sent(&mut self, intended: u64, by: u64) {
        if intended >= self.from && by as f64 > LAG_ALLOWED * 1e9 {
            self.sent_late += 1;
        }
    }

    /// Notes the processor time so far, once the measured time has begun.
    pub fn note_processor_time(&mut self, now: u64) {
        if now < self.from {
            return;
        }
        let Ok(used) = ClockId::CLOCK_THREAD_CPUTIME_ID.now() else { return };
        let mark = (now, Duration::from(used).as_nanos() as u64);
        let first = self.processor.map_or(mark, |[first, _]| first);
        self.processor = Some([first, mark]);
    }

    /// Whether [`note_processor_time`](Self::note_processor_time) has something to note for the first time.
    pub fn begins(&self, now: u64) -> bool {
        self.processor.is_none() && now >= self.from
    }

    /// The whole, for a measured time that ended at `until`.
    pub fn measured(self, closed_loop: bool, until: u64) -> Measured {
        let told = |recorder: &Recorder| Some(recorder.latency()).filter(|latency: &Latency| latency.count > 0);
        let names =
            self.by_server.into_iter().map(|(name, count)| (String::from_utf8_lossy(&name).into_owned(), count));
        let cpu = self.processor.filter(|[first, last]| last.0 > first.0);
        Measured {
            closed_loop,
            seconds: Duration::from_nanos(until.saturating_sub(self.from)).as_secs_f64(),
            ended: self.ended,
            answered: self.answered,
            errors: self.errors,
            statuses: self.statuses,
            bytes: Some(self.bytes),
            latency: self.latency.latency(),
            connect: told(&self.connect),
            waiting: told(&self.waiting),
            by_server: names.collect(),
            timeline: self.timeline.seconds(),
            connections_max: Some(self.connections_max),
            lag: told(&self.lag),
            sent_late: (!closed_loop).then_some(self.sent_late),
            cpu: cpu.map(|[first, last]| (last.1 - first.1) as f64 / (last.0 - first.0) as f64),
            ..Measured::default()
        }
    }
}

/// Second after second, with the times of the one that runs.
struct Timeline {
    seconds: Vec<Second>,
    times: Histogram<u64>,
    max: Duration,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { seconds: Vec::new(), times: histogram(Duration::from_secs(3600), 2), max: Duration::ZERO }
    }
}

impl Timeline {
    fn add(&mut self, at: u64, latency: Option<Duration>) {
        // Ends come in order but for what an added delay moves; that little is counted in the second that runs.
        let second = (at / 1_000_000_000) as usize;
        if second >= self.seconds.len() {
            self.close();
            self.seconds.resize(second + 1, Second::default());
        }
        let Some(current) = self.seconds.last_mut() else { return };
        match latency {
            None => current.failed += 1,
            Some(latency) => {
                current.answered += 1;
                self.times.saturating_record(latency.as_micros() as u64);
                self.max = self.max.max(latency);
            }
        }
    }

    fn close(&mut self) {
        if let Some(current) = self.seconds.last_mut().filter(|_| !self.times.is_empty()) {
            let max = self.max.as_secs_f64();
            current.median = Some((self.times.value_at_quantile(0.5) as f64 / 1e6).min(max));
            current.max = Some(max);
        }
        self.times.reset();
        self.max = Duration::ZERO;
    }

    fn seconds(mut self) -> Vec<Second> {
        self.close();
        self.seconds
    }
}
