//! Replications of all algorithms at all loads, and what they give together.

use std::path::Path;
use std::time::Instant;

use balanza_experiment::Times;
use rayon::prelude::*;

use crate::engine::{Engine, Looks, Outcomes, Setup};
use crate::error::Error;
use crate::model::arrivals::Arrivals;
use crate::prepare::{self, Load, Parts, Trace};
use crate::progress::Progress;
use crate::result::{Bin, Comparison, Counts, Difference, LoadSd, Point, Quantiles, Replication, Run, ServerResult};
use crate::scenario::{Scenario, Time};
use crate::statistics::intervals::mean_and_ci95;
use crate::statistics::warmup::mser5;

/// Spans of the replication that the end of the warm-up is found with.
const PILOT_SPANS: u32 = 1_000;
/// Times at which the queues of the first replication are noted: of few servers, of more, of many.
const SAMPLES: [(usize, u32); 3] = [(10_000, 240), (100_000, 60), (usize::MAX, 20)];

/// Servers of all replications that run at a time: each takes up to a kilobyte.
const SERVERS_AT_ONCE: usize = 4_000_000;

/// Simulates a scenario. Files that it names are relative to `directory`.
pub fn run(scenario: &Scenario, directory: &Path, progress: &Progress) -> Result<Comparison, Error> {
    of_parts(prepare::parts(scenario, directory)?, progress)
}

/// How large a replication is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Its virtual time in seconds.
    pub duration: f64,
    /// Arrivals, on average.
    pub requests: f64,
    /// States of servers that it keeps: one for each view of a server.
    pub states: usize,
}

/// Checks a scenario, and tells how large a replication at its first load is.
pub fn extent(scenario: &Scenario, directory: &Path) -> Result<Extent, Error> {
    let parts = prepare::parts(scenario, directory)?;
    let load = parts.loads[0];
    let duration = parts.duration(load) as f64 / 1e9;
    Ok(Extent { duration, requests: duration * parts.rate(load), states: parts.states() })
}

/// How many replications of so many states have room at a time.
pub fn at_once(states: usize) -> usize {
    (SERVERS_AT_ONCE / states.max(1)).max(1)
}

/// Simulates a scenario whose arrivals are traces in memory: one replication for each, so that an interval over
/// replications is one over traces. The first tenth of each is warm-up.
pub fn run_traces(scenario: &Scenario, traces: &[Trace], progress: &Progress) -> Result<Comparison, Error> {
    let scenario = Scenario {
        arrivals: crate::scenario::Arrivals::Trace { file: String::new() },
        loads: Vec::new(),
        replications: traces.len() as u32,
        run: crate::scenario::Run { warmup: Some(Time::from_secs(0.0)), ..scenario.run.clone() },
        ..scenario.clone()
    };
    of_parts(prepare::with_traces(&scenario, ".".as_ref(), traces)?, progress)
}

fn of_parts(parts: Parts, progress: &Progress) -> Result<Comparison, Error> {
    let begin = Instant::now();
    let scenario = &parts.scenario;
    let (loads, algorithms) = (parts.loads.len() as f64, parts.specs.len() as f64);
    let pilots = if scenario.run.warmup.is_none() { 1.0 } else { 0.0 };
    progress.expect(loads * algorithms * (f64::from(scenario.replications) + pilots));
    let points = parts.loads.iter().map(|load| point(&parts, *load, progress)).collect::<Result<_, _>>()?;
    if progress.is_cancelled() {
        return Err(Error::Cancelled);
    }
    Ok(Comparison { scenario: scenario.clone(), points, elapsed: begin.elapsed().as_secs_f64() })
}

/// Seconds of processor time that this thread has used: other work on the machine does not count.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// One replication, and the seconds of a processor that its run took.
fn replicate(setup: &Setup, replication: u32, looks: Looks, progress: &Progress) -> Result<(Outcomes, f64), Error> {
    let engine = Engine::new(setup, replication, looks, progress)?;
    let begin = processor_time();
    let outcomes = engine.run()?;
    Ok((outcomes, processor_time() - begin))
}

/// Does the jobs, as many at a time as there are processors and memory for; the results are in their order.
fn side_by_side<J: Copy + Sync, T: Send>(
    parts: &Parts,
    jobs: &[J],
    work: impl Fn(J) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    // One job has no company, and stays on the thread of the caller, which may be one of many.
    if let [job] = jobs {
        return Ok(vec![work(*job)?]);
    }
    let at_once = at_once(parts.states()).min(jobs.len().max(1));
    let mut results = Vec::with_capacity(jobs.len());
    for jobs in jobs.chunks(at_once) {
        results.extend(jobs.par_iter().map(|job| work(*job)).collect::<Result<Vec<T>, Error>>()?);
    }
    Ok(results)
}

fn point(parts: &Parts, load: Load, progress: &Progress) -> Result<Point, Error> {
    let setup = |(_, spec, guards, groups): &(_, _, _, Vec<_>)| parts.setup(spec, guards, groups, load);
    let setups: Vec<Setup> = parts.specs.iter().map(setup).collect();
    let mut warnings = parts.warnings(load);
    let (warmup, warmup_by) = match parts.scenario.run.warmup {
        Some(time) => (time.nanos(), "stated"),
        None => (pilot(&setups, parts, &mut warnings, progress)?, "MSER-5"),
    };
    let setups: Vec<Setup> = setups.into_iter().map(|setup| Setup { warmup, ..setup }).collect();
    let replications = parts.scenario.replications.max(1);
    let samples = SAMPLES.iter().find(|(n, _)| parts.servers <= *n).map_or(20, |(_, samples)| *samples);
    let jobs: Vec<(usize, u32)> =
        (0..setups.len()).flat_map(|a| (0..replications).map(move |replication| (a, replication))).collect();
    let one = |(a, replication): (usize, u32)| {
        let looks = Looks { spans: samples, queues: replication == 0 };
        replicate(&parts.of_replication(&setups[a], replication), replication, looks, progress)
    };
    let mut outcomes = side_by_side(parts, &jobs, one)?.into_iter();
    let runs: Vec<Run> = (0..setups.len())
        .map(|a| {
            let of: Vec<_> = outcomes.by_ref().take(replications as usize).collect();
            summary(parts, &parts.specs[a].0, of)
        })
        .collect();
    warnings.extend(runs.iter().filter_map(unfinished));
    let utilization = runs.first().map_or(0.0, |run| run.utilization);
    let (load_of, rate, users) = match setups[0].arrivals {
        Arrivals::Closed { users } => (utilization, None, Some(users)),
        _ => (parts.offered(load), Some(parts.rate(load)), None),
    };
    let runs: Vec<Run> = runs.into_iter().map(|run| Run { load: load_of, ..run }).collect();
    let duration = setups[0].duration as f64 / 1e9;
    let differences = differences(&runs);
    let warmup = warmup as f64 / 1e9;
    Ok(Point { load: load_of, rate, users, duration, warmup, warmup_by, warnings, runs, differences })
}

/// The times of requests that have not ended are not known: where they have become more, the mean says too little.
fn unfinished(run: &Run) -> Option<String> {
    let more = run.counts.in_system.saturating_sub(run.counts.carried) as f64;
    let part = more / run.counts.arrivals.max(1) as f64;
    let algorithm = &run.algorithm;
    (part > 0.005).then(|| {
        format!(
            "{algorithm}: {:.1}% of the requests had no end yet; their times are missing in its results",
            part * 100.0
        )
    })
}

/// The end of the warm-up: the latest of what MSER-5 finds in a first replication of each algorithm.
fn pilot(setups: &[Setup], parts: &Parts, warnings: &mut Vec<String>, progress: &Progress) -> Result<u64, Error> {
    let looks = Looks { spans: PILOT_SPANS, queues: false };
    let found = |a: usize| -> Result<(f64, Option<String>), Error> {
        let (outcomes, _) = replicate(&setups[a], 0, looks, progress)?;
        let mut last = 0.0;
        let means = outcomes.measures.spans.iter().map(|(sum, count)| {
            if *count > 0 {
                last = sum / *count as f64;
            }
            last
        });
        let (part, late) = mser5(&means.collect::<Vec<f64>>());
        let settled = late.then(|| format!("{} has not settled by half of the time: run it longer", parts.specs[a].0));
        Ok((part, settled))
    };
    let found = side_by_side(parts, &(0..setups.len()).collect::<Vec<_>>(), found)?;
    warnings.extend(found.iter().filter_map(|(_, warning)| warning.clone()));
    let part = found.iter().fold(0.0, |most: f64, (part, _)| most.max(*part));
    Ok((part * setups[0].duration as f64) as u64)
}

fn summary(parts: &Parts, algorithm: &str, of: Vec<(Outcomes, f64)>) -> Run {
    let count = of.len() as f64;
    let mean = |value: &dyn Fn(&Outcomes) -> f64| of.iter().map(|(o, _)| value(o)).sum::<f64>() / count;
    let mut histogram = Times::default();
    of.iter().for_each(|(o, _)| histogram.merge(&o.measures.histogram));
    let ended = |o: &Outcomes| (o.measures.counts.ok + o.measures.counts.errors + o.measures.counts.timeouts) as f64;
    let replication_means: Vec<f64> = of.iter().map(|(o, _)| o.measures.sum / ended(o).max(1.0)).collect();
    let (mean_time_in_system, ci95) = mean_and_ci95(&replication_means);
    let requests = of.iter().map(|(o, _)| ended(o)).sum::<f64>().max(1.0);
    let overall = of.iter().map(|(o, _)| o.measures.sum).sum::<f64>() / requests;
    let squares = of.iter().map(|(o, _)| o.measures.squares).sum::<f64>() / requests;
    let quantile = |p| histogram.quantile(p);
    let events = of.iter().map(|(o, _)| o.measures.events).sum::<u64>();
    let seconds = of.iter().map(|(_, seconds)| seconds).sum::<f64>();
    let first = &of[0].0.measures;
    Run {
        algorithm: algorithm.into(),
        servers: parts.servers,
        load: 0.0,
        mean_time_in_system,
        ci95,
        sd_time_in_system: (squares - overall * overall).max(0.0).sqrt(),
        quantiles: Quantiles {
            p50: quantile(0.5),
            p75: quantile(0.75),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            p9999: quantile(0.9999),
            max: histogram.max(),
        },
        utilization: mean(&|o| o.utilization),
        max_queue: of.iter().map(|(o, _)| o.measures.max_queue).max().unwrap_or(0),
        mean_queue: mean(&|o| o.mean_queue),
        jain: mean(&|o| o.jain),
        throughput: mean(&|o| o.measures.counts.ok as f64 / o.measured),
        counts: of.iter().fold(Counts::default(), |sum, (o, _)| sum + o.measures.counts),
        replication_means,
        each: of.iter().map(|(o, _)| replication(o)).collect(),
        histogram: histogram.bins().map(|(from, to, count)| Bin { from, to, count }).collect(),
        per_server: per_server(parts, &of),
        load_sd: load_sd(&of),
        queues: first.queues.clone(),
        heat: first.heat.clone(),
        events,
        events_per_second: events as f64 / seconds.max(1e-9),
        seed: parts.scenario.seed,
        replications: of.len() as u32,
    }
}

/// What is compared of single replications.
fn replication(of: &Outcomes) -> Replication {
    let (histogram, counts) = (&of.measures.histogram, of.measures.counts);
    let ended = (counts.ok + counts.errors + counts.timeouts) as f64;
    Replication {
        p50: histogram.quantile(0.5),
        p90: histogram.quantile(0.9),
        p99: histogram.quantile(0.99),
        failed: (counts.errors + counts.timeouts) as f64 / ended.max(1.0),
    }
}

fn per_server(parts: &Parts, of: &[(Outcomes, f64)]) -> Vec<ServerResult> {
    let groups = of[0].0.per_server.len();
    let size = parts.servers.div_ceil(groups);
    let count = of.len() as f64;
    let result = |g: usize| {
        let mean =
            |value: fn(&(f64, f64, f64)) -> f64| of.iter().map(|(o, _)| value(&o.per_server[g])).sum::<f64>() / count;
        ServerResult {
            first: g * size,
            servers: size.min(parts.servers - g * size),
            requests: mean(|s| s.0),
            mean_queue: mean(|s| s.1),
            utilization: mean(|s| s.2),
        }
    };
    (0..groups).map(result).collect()
}

/// Where all replications have a value.
fn load_sd(of: &[(Outcomes, f64)]) -> Vec<LoadSd> {
    let len = of.iter().map(|(o, _)| o.measures.load_sd.len()).min().unwrap_or(0);
    let mean = |i: usize| of.iter().map(|(o, _)| o.measures.load_sd[i].sd).sum::<f64>() / of.len() as f64;
    (0..len).map(|i| LoadSd { requests: of[0].0.measures.load_sd[i].requests, sd: mean(i) }).collect()
}

/// Of each pair, on the same arrivals.
fn differences(runs: &[Run]) -> Vec<Difference> {
    let pairs = (0..runs.len()).flat_map(|first| (first + 1..runs.len()).map(move |second| (first, second)));
    let difference = |(first, second): (usize, usize)| {
        let means = runs[first].replication_means.iter().zip(&runs[second].replication_means);
        let (mean, ci95) = mean_and_ci95(&means.map(|(a, b)| b - a).collect::<Vec<_>>());
        Difference { first, second, mean, ci95, detectable: ci95.is_some_and(|half| mean.abs() > half) }
    };
    pairs.map(difference).collect()
}
