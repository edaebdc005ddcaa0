//! What one replication measures.

use balanza_balancing::Nanos;
use balanza_experiment::Times;

use super::server::Server;
use crate::result::{Counts, LoadSd, QueueSample};

/// Servers, or groups of them, in the rows of the heat strip.
pub(crate) const ROWS: usize = 200;
/// Servers, or groups of them, that results are given of.
pub(crate) const GROUPS: usize = 1_000;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Ok,
    Failed,
    TimedOut,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Measures {
    pub histogram: Times,
    /// Sums of times in system, in seconds, and of their squares.
    pub sum: f64,
    pub squares: f64,
    pub counts: Counts,
    pub max_queue: u32,
    /// Sum and number of the times in system in each span of the run: for the end of the warm-up.
    pub spans: Vec<(f64, u64)>,
    span: (f64, u64),
    pub load_sd: Vec<LoadSd>,
    pub queues: Vec<QueueSample>,
    pub heat: Vec<Vec<f32>>,
    /// Requests that had ended, and those of them that had failed, at the last sample.
    sampled: (u64, u64),
    pub events: u64,
    /// Requests since the start, and at how many the deviation of the servers is looked at next.
    arrivals: u64,
    checkpoint: u64,
    /// Requests in the system.
    pub in_system: u64,
}

impl Measures {
    pub fn new() -> Measures {
        Measures { checkpoint: checkpoint(0), ..Measures::default() }
    }

    /// A request has come. True if [`Measures::look`] is to be called once it has been sent.
    #[inline]
    pub fn arrived(&mut self) -> bool {
        self.counts.arrivals += 1;
        self.in_system += 1;
        self.arrivals += 1;
        self.arrivals == self.checkpoint
    }

    /// Notes the deviation of the requests sent to the servers.
    pub fn look(&mut self, servers: &[Server]) {
        let sd = deviation(servers.iter().map(|s| f64::from(s.sent)));
        self.load_sd.push(LoadSd { requests: self.arrivals, sd });
        self.checkpoint = checkpoint(self.load_sd.len());
    }

    #[inline]
    pub fn ended(&mut self, time: Nanos, ending: Ending) {
        self.in_system -= 1;
        match ending {
            Ending::Ok => self.counts.ok += 1,
            Ending::Failed => self.counts.errors += 1,
            Ending::TimedOut => self.counts.timeouts += 1,
        }
        let seconds = time as f64 * 1e-9;
        self.histogram.add(time);
        self.sum += seconds;
        self.squares += seconds * seconds;
        self.span.0 += seconds;
        self.span.1 += 1;
    }

    /// A span of time is over.
    pub fn end_span(&mut self) {
        self.spans.push(std::mem::take(&mut self.span));
    }

    /// The warm-up is over: what was counted so far does not count.
    pub fn begin(&mut self) {
        self.histogram = Times::default();
        (self.sum, self.squares, self.max_queue) = (0.0, 0.0, 0);
        self.counts = Counts { carried: self.in_system, ..Counts::default() };
        self.sampled = (0, 0);
    }

    /// Notes the queues of all servers, and how requests ended since the sample before.
    pub fn sample(&mut self, now: Nanos, servers: &[Server]) {
        let n = servers.len() as f64;
        let queues = || servers.iter().map(Server::queue);
        let failed = self.counts.errors + self.counts.timeouts;
        let ended = self.counts.ok + failed;
        let before = std::mem::replace(&mut self.sampled, (ended, failed));
        self.queues.push(QueueSample {
            time: now as f64 / 1e9,
            mean: queues().map(f64::from).sum::<f64>() / n,
            max: queues().max().unwrap_or(0),
            idle: queues().filter(|q| *q == 0).count() as f64 / n,
            up: servers.iter().filter(|s| s.health == super::server::Health::Well).count() as f64 / n,
            ended: ended - before.0,
            failed: failed - before.1,
        });
        let mean = |group: &[Server]| group.iter().map(|s| s.queue() as f32).sum::<f32>() / group.len() as f32;
        self.heat.push(servers.chunks(servers.len().div_ceil(ROWS)).map(mean).collect());
    }
}

/// The numbers of requests at which deviations are noted: eight for each tenfold, from 10 on.
pub(crate) fn checkpoint(index: usize) -> u64 {
    10f64.powf((index + 8) as f64 / 8.0).round() as u64
}

/// Standard deviation of all of these.
pub(crate) fn deviation(values: impl Iterator<Item = f64>) -> f64 {
    // Welford's way.
    let (mut n, mut mean, mut sum) = (0.0, 0.0, 0.0);
    for value in values {
        n += 1.0;
        let off = value - mean;
        mean += off / n;
        sum += off * (value - mean);
    }
    (sum / f64::max(n, 1.0)).sqrt()
}
