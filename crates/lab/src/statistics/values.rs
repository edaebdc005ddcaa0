//! The metrics of one run.

use std::collections::BTreeMap;

use crate::plan::{Algorithm, Farm, Plan};
use crate::record::{Latency, ProcessRecord, Role, Run};

/// What one run comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// Metric of the whole to value.
    pub cell: BTreeMap<&'static str, f64>,
    /// For each server by name, in the farm's order: metric to value.
    pub servers: Vec<(String, BTreeMap<&'static str, f64>)>,
}

impl Values {
    /// A metric of the whole, or of one server.
    pub fn value(&self, metric: &str, server: Option<&str>) -> Option<f64> {
        match server {
            None => self.cell.get(metric).copied(),
            Some(name) => self.servers.iter().find(|(server, _)| server == name)?.1.get(metric).copied(),
        }
    }
}

/// All metrics that the run has. What its tool does not say is absent.
pub fn of_run(plan: &Plan, run: &Run) -> Values {
    let measured = &run.measured;
    let seconds = measured.seconds;
    let errors = measured.ended.saturating_sub(measured.answered);
    let of_the_client: u64 =
        measured.errors.iter().filter(|(kind, _)| kind.is_of_the_client()).map(|(_, count)| count).sum();
    let per_second = |count: u64| Some(count as f64 / seconds);
    let mut found = Found::default();
    found.add("rps", per_second(measured.answered));
    found.add("offered", per_second(measured.ended));
    found.add("requests", Some(measured.answered as f64));
    found.add("errors", Some(errors as f64));
    found.add("errors_per_second", per_second(errors));
    found.add("failures_per_second", per_second(errors.saturating_sub(of_the_client)));
    found.add("client_errors_per_second", per_second(of_the_client));
    found.add("error_share", Some(errors as f64 / measured.ended as f64));
    found.add("transfer_rate", measured.bytes.and_then(per_second));
    found.add("connections_max", measured.connections_max.map(|most| most as f64));
    found.latency(&measured.latency);
    found.add("connect_mean", measured.connect.as_ref().and_then(|latency| latency.mean));
    found.add("waiting_mean", measured.waiting.as_ref().and_then(|latency| latency.mean));

    let elapsed = elapsed(plan, run);
    let cpu = |role| processors(run.processes.iter().filter(|process| process.role == role), elapsed);
    found.add("cpu_balancer", cpu(Role::Balancer));
    found.add("cpu_servers", cpu(Role::Server));
    found.add("cpu_client", measured.cpu.or_else(|| cpu(Role::Client)));
    let balancers = run.processes.iter().filter(|process| process.role == Role::Balancer);
    found.add("memory_balancer", balancers.map(|process| process.memory_max as f64).reduce(|a, b| a + b));

    let servers = of_servers(plan, run, elapsed);
    found.add("jain", jain(servers.iter().filter_map(|(_, values)| values.get("share").copied())));
    Values { cell: found.0, servers }
}

/// Metrics that have a value: what is divided by nothing has none.
#[derive(Default)]
struct Found(BTreeMap<&'static str, f64>);

impl Found {
    fn add(&mut self, name: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.0.insert(name, value);
        }
    }

    fn latency(&mut self, latency: &Latency) {
        self.add("mean", latency.mean);
        self.add("sd", latency.sd);
        self.add("min", latency.min);
        self.add("max", latency.max);
        for (name, part) in [("median", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
            self.add(name, latency.quantile(part));
        }
    }
}

/// How long processes were watched.
fn elapsed(plan: &Plan, run: &Run) -> f64 {
    let sampled = run.processes.iter().filter_map(|process| process.samples.last()).map(|(at, _)| *at);
    let warmup = plan.load(&run.cell.load).map_or(0.0, |load| load.warmup.0.as_secs_f64());
    sampled
        .fold(None, |most: Option<f64>, at| Some(most.map_or(at, |most| most.max(at))))
        .unwrap_or(run.measured.seconds + warmup)
}

fn processors<'a>(processes: impl Iterator<Item = &'a ProcessRecord>, elapsed: f64) -> Option<f64> {
    let used = processes.map(|process| process.user + process.system).reduce(|a, b| a + b)?;
    Some(used / elapsed).filter(|share| share.is_finite())
}

/// Processor time over elapsed time and resident memory of each process by name, in the run's order.
pub(super) fn of_processes(plan: &Plan, run: &Run) -> Vec<(String, Role, f64, f64)> {
    let elapsed = elapsed(plan, run);
    let of = |process: &ProcessRecord| {
        let cpu = processors(std::iter::once(process), elapsed)?;
        Some((process.name.clone(), process.role, cpu, process.memory_max as f64))
    };
    run.processes.iter().filter_map(of).collect()
}

/// Servers that may get requests, by the plan; others that did, behind them.
fn of_servers(plan: &Plan, run: &Run, elapsed: f64) -> Vec<(String, BTreeMap<&'static str, f64>)> {
    let (farm, algorithm) = (plan.farm(&run.cell.farm), plan.algorithm(&run.cell.algorithm));
    // What the client counted is of the measured time; what servers counted has the warm-up in it.
    let counted: BTreeMap<&str, u64> = match run.measured.by_server.is_empty() {
        true => run.servers.iter().map(|server| (server.name.as_str(), server.requests)).collect(),
        false => run.measured.by_server.iter().map(|(name, count)| (name.as_str(), *count)).collect(),
    };
    let total: u64 = counted.values().sum();
    let mut names = farm.map(|farm| used(farm, algorithm)).unwrap_or_default();
    let more = counted.iter().filter(|(name, count)| **count > 0 && !names.iter().any(|known| known == *name));
    names.extend(more.map(|(name, _)| name.to_string()).collect::<Vec<_>>());
    let values = |name: &String| {
        let mut found = Found::default();
        if total > 0 {
            found.add("share", Some(counted.get(name.as_str()).map_or(0.0, |count| *count as f64 / total as f64)));
        }
        let processes = run.processes.iter().filter(|process| process.role == Role::Server && process.name == *name);
        found.add("cpu", processors(processes, elapsed));
        if let Some(server) = run.servers.iter().find(|server| server.name == *name) {
            found.add("in_flight_max", Some(server.in_flight_max as f64));
            found.add("queued_max", Some(server.queued_max as f64));
        }
        found.0
    };
    names.into_iter().map(|name| (name.clone(), values(&name))).collect()
}

/// The names of the servers that an algorithm has of a farm.
fn used(farm: &Farm, algorithm: Option<&Algorithm>) -> Vec<String> {
    let names = farm.names();
    match algorithm.map(|algorithm| farm.chosen(algorithm)) {
        Some(Ok(places)) => places.into_iter().map(|place| names[place].clone()).collect(),
        _ => names,
    }
}

/// Jain's index: 1 when all shares are equal, 1/n when one has everything.
fn jain(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let shares: Vec<f64> = shares.collect();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}
