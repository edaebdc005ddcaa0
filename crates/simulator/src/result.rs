//! What simulations give: plain data, for tables, JSON and pictures.
//!
//! Times are in seconds, lengths of queues count the requests at a server, those in service included. What is said of
//! one path and not of all replications says so.

use serde::{Deserialize, Serialize};

use crate::scenario::Scenario;

/// The algorithms of a scenario, on the same arrivals, at each of its loads.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// As it was run.
    pub scenario: Scenario,
    /// One for each load, or each number of users.
    pub points: Vec<Point>,
    /// Wall-clock seconds that it took.
    pub elapsed: f64,
}

/// All algorithms at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Offered work as a part of all servers' capacity; for a closed loop, the part that was used (of the first algorithm).
    pub load: f64,
    /// Arrivals a second, on average; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Of a closed loop.
    pub users: Option<u32>,
    /// Virtual time of a replication, the warm-up included.
    pub duration: f64,
    /// Virtual time at whose end measurement begins, the same for all algorithms and replications.
    pub warmup: f64,
    /// How the warm-up was found: "stated" or "MSER-5".
    pub warmup_by: &'static str,
    /// What the reader has to know: a system that has not settled, a load of 1 or more.
    pub warnings: Vec<String>,
    /// In the order of the scenario's algorithms.
    pub runs: Vec<Run>,
    /// Each pair of algorithms.
    pub differences: Vec<Difference>,
}

/// One algorithm at one load, over all replications.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// As written in the scenario: `two_choices choices=3`.
    pub algorithm: String,
    /// How many servers.
    pub servers: usize,
    /// As in [`Point::load`].
    pub load: f64,
    /// From a request's arrival to its end, failures and time-outs included: the mean over replications of their means.
    pub mean_time_in_system: f64,
    /// Half the width of the 95 % confidence interval of the mean, by Student's t over replications; `None` for one.
    pub ci95: Option<f64>,
    /// Standard deviation of the time in system over requests.
    pub sd_time_in_system: f64,
    /// Quantiles of the time in system over all requests; the maximum is a maximum, with no interval.
    pub quantiles: Quantiles,
    /// Used part of all servers' capacity.
    pub utilization: f64,
    /// The longest queue at any server in any replication: a maximum.
    pub max_queue: u32,
    /// Mean number of requests at a server, by time.
    pub mean_queue: f64,
    /// Jain's index of the servers' utilisations: 1 when all are equal, 1/n when one does everything. Mean over replications.
    pub jain: f64,
    /// Requests that ended well, a second.
    pub throughput: f64,
    /// Counts of all replications, after the warm-up.
    pub counts: Counts,
    /// The mean time in system of each replication, in order: pairs between algorithms share their arrivals.
    pub replication_means: Vec<f64>,
    /// Other figures of each replication, in the same order.
    #[serde(skip)]
    pub each: Vec<Replication>,
    /// Times in system of all replications in logarithmic bins, empty ones left out.
    pub histogram: Vec<Bin>,
    /// Requests sent to each server and its mean queue; beyond 1,000 servers, of groups of neighbours. Means over replications.
    pub per_server: Vec<ServerResult>,
    /// Standard deviation over servers of the requests sent to them, by the number of requests so far, from the start;
    /// mean over replications.
    pub load_sd: Vec<LoadSd>,
    /// Queues over time on the path of the first replication, from the start.
    pub queues: Vec<QueueSample>,
    /// Lengths of each server's queue on that path; one row for each of `queues`, beyond 200 servers the means of groups.
    pub heat: Vec<Vec<f32>>,
    /// Events of all replications, the warm-up included: arrivals, services, messages, time-outs, refreshes.
    pub events: u64,
    /// Events for each second of processor time; a replication runs on one core.
    pub events_per_second: f64,
    /// The scenario's.
    pub seed: u64,
    /// How many.
    pub replications: u32,
}

/// What is compared of single replications, beside their means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replication {
    /// Half of the times in system are below.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// The part of the requests that failed or were not answered in time.
    pub failed: f64,
}

/// The few numbers of a [`Run`] that are looked at first.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in Run and Quantiles")]
pub struct Summary<'a> {
    pub algorithm: &'a str,
    pub servers: usize,
    pub load: f64,
    pub mean_time_in_system: f64,
    pub ci95: Option<f64>,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub utilization: f64,
    pub max_queue: u32,
    pub jain: f64,
    pub events: u64,
    pub events_per_second: f64,
    pub seed: u64,
    pub replications: u32,
}

impl Run {
    /// The few numbers that are looked at first.
    pub fn summary(&self) -> Summary<'_> {
        let Quantiles { p50, p90, p99, p999, .. } = self.quantiles;
        Summary {
            algorithm: &self.algorithm,
            servers: self.servers,
            load: self.load,
            mean_time_in_system: self.mean_time_in_system,
            ci95: self.ci95,
            p50,
            p90,
            p99,
            p999,
            utilization: self.utilization,
            max_queue: self.max_queue,
            jain: self.jain,
            events: self.events,
            events_per_second: self.events_per_second,
            seed: self.seed,
            replications: self.replications,
        }
    }
}

/// Quantiles of the time in system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Quantiles {
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    pub max: f64,
}

/// How requests ended. `carried` + `arrivals` = `ok` + `errors` + `timeouts` + `in_system`, in every replication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that came.
    pub arrivals: u64,
    /// In the system when measurement began.
    pub carried: u64,
    /// Answered.
    pub ok: u64,
    /// Refused, lost with a server, answered with an error, or not taken by any server.
    pub errors: u64,
    /// Not answered in time.
    pub timeouts: u64,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Connection attempts that found the listen queue full and were repeated by the client's kernel.
    pub syn_retries: u64,
    /// In the system at the end.
    pub in_system: u64,
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            arrivals: self.arrivals + other.arrivals,
            carried: self.carried + other.carried,
            ok: self.ok + other.ok,
            errors: self.errors + other.errors,
            timeouts: self.timeouts + other.timeouts,
            retries: self.retries + other.retries,
            syn_retries: self.syn_retries + other.syn_retries,
            in_system: self.in_system + other.in_system,
        }
    }
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// Lower bound, included.
    pub from: f64,
    /// Upper bound, excluded.
    pub to: f64,
    /// Requests.
    pub count: u64,
}

/// One server, or the means of a group of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServerResult {
    /// The first server of the group, 0-based.
    pub first: usize,
    /// How many servers.
    pub servers: usize,
    /// Requests (attempts) sent to one.
    pub requests: f64,
    /// Requests at the server, by time.
    pub mean_queue: f64,
    /// Used part of its capacity.
    pub utilization: f64,
}

/// A point of the curve that the notebook of the two-choices experiment draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadSd {
    /// Requests so far.
    pub requests: u64,
    /// Standard deviation over servers of what they got.
    pub sd: f64,
}

/// Queues at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueSample {
    /// Virtual time.
    pub time: f64,
    /// Over servers.
    pub mean: f64,
    /// The longest at this time.
    pub max: u32,
    /// Part of the servers without work.
    pub idle: f64,
    /// Part of the servers that are up.
    pub up: f64,
    /// Requests that ended since the sample before.
    pub ended: u64,
    /// Those of them that failed or were not answered in time.
    pub failed: u64,
}

/// Two algorithms on the same arrivals.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Indices into [`Point::runs`].
    pub first: usize,
    /// See `first`.
    pub second: usize,
    /// Mean over replications of the second's mean time in system less the first's.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval, by Student's t over the pairs; `None` for one replication.
    pub ci95: Option<f64>,
    /// Whether the interval leaves out 0. If not: no detectable difference.
    pub detectable: bool,
}

/// Balls into bins: requests that stay.
#[derive(Clone, Debug, Serialize)]
pub struct Bins {
    /// As written.
    pub algorithm: String,
    /// How many servers.
    pub servers: usize,
    /// How many requests.
    pub requests: u64,
    /// The greatest load of a server in the end, mean over replications.
    pub max_load: f64,
    /// Half the width of its 95 % confidence interval; `None` for one replication.
    pub max_load_ci95: Option<f64>,
    /// The greatest of any replication: a maximum.
    pub max_load_max: f64,
    /// Load of a server in the end, on average.
    pub mean_load: f64,
    /// Standard deviation over servers in the end, mean over replications.
    pub sd: f64,
    /// Half the width of its 95 % confidence interval; `None` for one replication.
    pub sd_ci95: Option<f64>,
    /// The same by the number of requests so far.
    pub series: Vec<LoadSd>,
    /// The seed.
    pub seed: u64,
    /// How many.
    pub replications: u32,
}
