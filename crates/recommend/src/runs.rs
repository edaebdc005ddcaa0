//! The candidates on the fitted servers, simulated on the same requests.

use balanza_simulator::scenario::{Discipline, Errors, Network, Requests, Servers, Time};
use balanza_simulator::{Progress, Scenario, Trace, run_traces};
use serde::Serialize;

use crate::Error;
use crate::candidates::Candidate;
use crate::farm::Farm;
use crate::queue::Order;
use crate::setting::Current;

/// What a candidate gives. Times are in seconds, from a request's arrival at the balancer to the end of the answer of its
/// server.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What was simulated.
    pub candidate: Candidate,
    /// Over all requests.
    pub mean: f64,
    /// Half of them are below.
    pub p50: f64,
    /// 90 of 100.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// The part that failed.
    pub failed: f64,
    /// Used part of the servers' capacity.
    pub utilization: f64,
    /// Requests that had no end yet when the log was over, as a part of all: the servers cannot keep up.
    pub unfinished: f64,
    /// (mean, p99, failed) of each replication.
    #[serde(skip)]
    pub each: Vec<(f64, f64, f64)>,
    /// Distribution: upper bounds in seconds and counts.
    #[serde(skip)]
    pub histogram: Vec<(f64, u64)>,
}

/// What is simulated beside the candidates.
pub struct Conditions<'a> {
    /// The servers.
    pub farm: &'a Farm,
    /// What the balancer is told of them.
    pub current: &'a Current,
    /// Retries of a failed attempt.
    pub retries: u32,
    /// Indices of servers that are not there.
    pub lost: &'a [usize],
    /// Of all random numbers.
    pub seed: u64,
}

impl Conditions<'_> {
    fn present(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.farm.servers.len()).filter(|index| !self.lost.contains(index))
    }

    fn servers(&self) -> Vec<Servers> {
        let server = |index: usize| {
            let (is, told) = (&self.farm.servers[index], self.current.of(&self.farm.servers[index].name));
            let shared = self.farm.order == Order::Shared && is.parallel.is_some();
            Servers {
                speed: is.speed,
                weight: told.weight,
                concurrency: is.concurrency(),
                discipline: if shared { Discipline::Ps } else { Discipline::Fifo },
                error_rate: is.failed,
                max_conns: told.max_conns,
                max_fails: told.max_fails,
                fail_timeout: Time::from_secs(told.fail_timeout),
                backup: told.backup,
                ..Servers::default()
            }
        };
        self.present().map(server).collect()
    }

    /// Simulates candidates on the same traces.
    ///
    /// # Errors
    /// The simulator's.
    pub fn run(&self, candidates: &[Candidate], traces: &[Trace], progress: &Progress) -> Result<Vec<Outcome>, Error> {
        let algorithms = candidates.iter().map(|candidate| {
            let weights = self.present().map(|index| candidate.weights[index]).collect();
            Candidate { weights, ..candidate.clone() }.text()
        });
        let errors = if self.retries > 0 { Errors::Fail } else { Errors::Pass };
        let scenario = Scenario {
            name: String::new(),
            description: String::new(),
            algorithms: algorithms.collect(),
            loads: Vec::new(),
            seed: self.seed,
            replications: traces.len() as u32,
            run: Default::default(),
            arrivals: Default::default(),
            service: Default::default(),
            servers: self.servers(),
            dispatchers: Default::default(),
            network: Network { delay: Time::from_secs(self.farm.delay / 1e6), ..Network::default() },
            requests: Requests { retries: self.retries, errors, ..Requests::default() },
            reports: Default::default(),
            events: Vec::new(),
        };
        let comparison = run_traces(&scenario, traces, progress)?;
        let runs = &comparison.points[0].runs;
        let outcome = |(candidate, run): (&Candidate, &balanza_simulator::result::Run)| {
            let each = run.replication_means.iter().zip(&run.each);
            Outcome {
                candidate: candidate.clone(),
                mean: run.mean_time_in_system,
                p50: run.quantiles.p50,
                p90: run.quantiles.p90,
                p99: run.quantiles.p99,
                failed: run.each.iter().map(|each| each.failed).sum::<f64>() / run.each.len().max(1) as f64,
                utilization: run.utilization,
                unfinished: run.counts.in_system as f64 / run.counts.arrivals.max(1) as f64,
                each: each.map(|(mean, each)| (*mean, each.p99, each.failed)).collect(),
                histogram: run.histogram.iter().map(|bin| (bin.to, bin.count)).collect(),
            }
        };
        Ok(candidates.iter().zip(runs).map(outcome).collect())
    }
}
