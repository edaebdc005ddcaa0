//! The result of one run.

use anyhow::Context;
use balanza_simulator::result::{Counts, Point, Quantiles};
use serde::{Deserialize, Serialize};

/// What is kept of a run: nothing that depends on when, where or how fast it was performed. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The unit's.
    pub id: String,
    /// As written.
    pub algorithm: String,
    /// The random numbers' start.
    pub seed: u64,
    /// How many servers.
    pub servers: usize,
    /// Offered work as a part of all servers' capacity; for users, the part that was used.
    pub load: f64,
    /// Arrivals a second; `None` for users.
    pub rate: Option<f64>,
    /// Of a closed loop.
    pub users: Option<u32>,
    /// Virtual time, with the warm-up.
    pub duration: f64,
    /// Virtual time at whose end measurement begins.
    pub warmup: f64,
    /// Mean time from a request's arrival to its end, failures and time-outs included.
    pub mean_time_in_system: f64,
    /// Its standard deviation over requests.
    pub sd_time_in_system: f64,
    /// Quantiles of it.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Used part of all servers' capacity.
    pub utilization: f64,
    /// Mean number of requests at a server, by time.
    pub mean_queue: f64,
    /// The longest queue at any server.
    pub max_queue: u32,
    /// Jain's index of the servers' utilisations.
    pub jain: f64,
    /// Requests that ended well, a second.
    pub throughput: f64,
    /// How requests ended.
    #[serde(flatten)]
    pub counts: Counts,
    /// Events of the simulation.
    pub events: u64,
}

impl Record {
    pub(crate) fn of(id: &str, point: &Point) -> anyhow::Result<Record> {
        let run = point.runs.first().context("a run has one algorithm")?;
        Ok(Record {
            id: id.into(),
            algorithm: run.algorithm.clone(),
            seed: run.seed,
            servers: run.servers,
            load: point.load,
            rate: point.rate,
            users: point.users,
            duration: point.duration,
            warmup: point.warmup,
            mean_time_in_system: run.mean_time_in_system,
            sd_time_in_system: run.sd_time_in_system,
            quantiles: run.quantiles,
            utilization: run.utilization,
            mean_queue: run.mean_queue,
            max_queue: run.max_queue,
            jain: run.jain,
            throughput: run.throughput,
            counts: run.counts,
            events: run.events,
        })
    }

    /// The part of the requests that failed or were not answered in time.
    pub fn failed(&self) -> f64 {
        let bad = self.counts.errors + self.counts.timeouts;
        bad as f64 / ((self.counts.ok + bad) as f64).max(1.0)
    }

    /// As a line of JSON, without its end.
    pub fn line(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}
