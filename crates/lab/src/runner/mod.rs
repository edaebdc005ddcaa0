//! Runs a plan: every cell as often as the plan says, in an order of its own in each repetition, every run with fresh
//! servers and a fresh balancer. What is finished is kept at once, and a later call goes on from there.

mod events;
mod evidence;
mod forecast;
mod jobs;
mod measure;
mod source;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use crate::environment::{Environment, raise_limits};
use crate::load::Schedule;
use crate::plan::{Cell, Cells, Load, Plan, Replay, System, Tool};
use crate::record::Run;
use crate::results::Results;
use crate::system::{Programs, reports, supports};
use crate::tools;
use crate::units::count;

use forecast::Forecast;
pub use jobs::{Job, jobs};
use measure::{Bench, Interrupted};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the results.
    pub out: PathBuf,
    /// Whether finished runs in it are kept and left out.
    pub resume: bool,
}

/// What happens, for a screen.
#[derive(Debug)]
pub enum Event<'a> {
    /// All that is to be done is known.
    Begun {
        /// Runs of the plan.
        total: usize,
        /// Of these, finished before.
        finished: usize,
        /// How long the rest will take, roughly.
        expected: Duration,
    },
    /// A combination that the plan asks for is not run, nor are those of other farms and loads for the same reason.
    LeftOut {
        /// Which.
        cell: &'a Cell,
        /// Why.
        reason: &'a str,
    },
    /// A run begins.
    Started {
        /// Which.
        job: &'a Job,
        /// Its number among all of the plan's, those finished before included, from 1.
        number: usize,
        /// How many there are.
        total: usize,
    },
    /// A load lasts.
    Progress {
        /// Seconds since it began.
        seconds: f64,
        /// Seconds that it will last, roughly.
        expected: f64,
        /// Requests answered so far.
        answered: u64,
        /// Requests failed so far.
        failed: u64,
    },
    /// A run has failed and is made again.
    Failed {
        /// Which.
        job: &'a Job,
        /// Why.
        error: &'a anyhow::Error,
    },
    /// A run is finished and kept.
    Ended {
        /// What was measured.
        run: &'a Run,
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        total: usize,
        /// How long the rest will take, roughly.
        eta: Duration,
    },
}

/// Somebody who is told what happens.
pub trait Watcher: Send + Sync {
    /// Called in the order of events.
    fn event(&self, event: &Event<'_>);
}

/// How far it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// All runs that are finished, those of earlier calls included.
    pub runs: Vec<Run>,
    /// How many of the plan's are finished.
    pub finished: usize,
    /// How many the plan has.
    pub total: usize,
    /// Combinations that the plan asks for and that are not run, and why.
    pub left_out: Vec<(Cell, String)>,
    /// Where it ran.
    pub environment: Environment,
    /// Whether it was ended by the stop flag.
    pub interrupted: bool,
}

impl Outcome {
    /// For one that was interrupted: what is finished, and how to go on.
    pub fn advice(&self, options: &Options) -> Option<String> {
        self.interrupted.then(|| format!("interrupted: {}", kept(self.finished, self.total, options)))
    }
}

/// Runs what is not finished of a plan. Ends soon after `stop` is set; the run that it interrupts is not kept.
///
/// Errors: the directory is not this plan's ([`Results::create`]); nothing of the plan can be run here; a run fails
/// twice; a result cannot be written. What was finished before is kept, and the message says how to go on.
pub fn run(plan: &Plan, options: &Options, watcher: &dyn Watcher, stop: &AtomicBool) -> anyhow::Result<Outcome> {
    raise_limits();
    run_with(&Programs::find(), plan, options, watcher, stop)
}

/// The same with these programs.
///
/// Errors: see [`run`].
pub fn run_with(
    programs: &Programs,
    plan: &Plan,
    options: &Options,
    watcher: &dyn Watcher,
    stop: &AtomicBool,
) -> anyhow::Result<Outcome> {
    let Cells { run: cells, left_out } = possible(plan, programs);
    if cells.is_empty() {
        bail!("nothing of the plan {} can be run here{}", plan.name, reasons(&left_out));
    }
    let schedules = schedules(plan, &cells)?;
    let (results, finished) = Results::create(&options.out, plan, options.resume)?;
    let environment = Environment::examine(versions(plan, &cells, programs));
    results.environment(&environment, &left_out)?;

    let jobs = jobs(plan, &cells, &finished);
    let total = cells.len() * plan.repetitions as usize;
    let mut runs = finished;
    // Those that are made again do not count as finished.
    runs.retain(|run| !jobs.iter().any(|job| job.cell == run.cell && job.repetition == run.repetition));
    let mut forecast = Forecast::new(plan, &jobs);
    let mut done = total - jobs.len();
    watcher.event(&Event::Begun { total, finished: done, expected: forecast.rest() });
    for (at, (cell, reason)) in left_out.iter().enumerate() {
        // What a system lacks is the same for all farms and loads.
        let same = |(other, why): &(Cell, String)| {
            (&other.system, &other.algorithm, why) == (&cell.system, &cell.algorithm, reason)
        };
        if !left_out[..at].iter().any(same) {
            watcher.event(&Event::LeftOut { cell, reason });
        }
    }

    let bench = Bench { plan, programs, results: &results, stop, schedules: &schedules };
    let mut interrupted = false;
    for job in &jobs {
        watcher.event(&Event::Started { job, number: done + 1, total });
        let expected = forecast.load(job).as_secs_f64();
        let tell = |seconds, answered, failed| {
            watcher.event(&Event::Progress { seconds, expected, answered, failed });
        };
        let begin = Instant::now();
        let result = bench.measure(job, &tell).or_else(|error| {
            if stop.load(Relaxed) || error.is::<Interrupted>() {
                return Err(Interrupted.into());
            }
            watcher.event(&Event::Failed { job, error: &error });
            bench.measure(job, &tell)
        });
        let run = match result {
            Err(_) if stop.load(Relaxed) => {
                interrupted = true;
                break;
            }
            result => result.and_then(|run| results.save(&run).map(|()| run)).map_err(|error| {
                let Job { cell, repetition, .. } = job;
                let (number, logs, kept) = (done + 1, options.out.join("logs"), kept(done, total, options));
                anyhow!(
                    "run {number} of {total} failed: {cell}, repetition {repetition}: {error:#}\nlogs are in {}; {kept}",
                    logs.display()
                )
            })?,
        };
        forecast.done(job, begin.elapsed());
        done += 1;
        watcher.event(&Event::Ended { run: &run, number: done, total, eta: forecast.rest() });
        runs.push(run);
        if stop.load(Relaxed) && done < total {
            interrupted = true;
            break;
        }
    }
    Ok(Outcome { runs, finished: done, total, left_out, environment, interrupted })
}

/// The requests of the loads that are logs. All runs send the same.
fn schedules(plan: &Plan, cells: &[Cell]) -> anyhow::Result<BTreeMap<String, Arc<Schedule>>> {
    let loads = plan.loads.iter().filter(|load| cells.iter().any(|cell| cell.load == load.name));
    let logs = loads.filter_map(|load| Some((load, load.log.as_ref()?)));
    let read = |(load, log): (&Load, &Replay)| {
        let schedule = Schedule::read(log).with_context(|| format!("load \"{}\"", load.name))?;
        Ok((load.name.clone(), Arc::new(schedule)))
    };
    logs.map(read).collect()
}

/// The plan's combinations that this machine can run.
pub fn possible(plan: &Plan, programs: &Programs) -> Cells {
    let mut cells = plan.cells(&|system, algorithm, farm| {
        let servers = farm.chosen(algorithm).map_or(0, |servers| servers.len());
        supports(programs, system, algorithm, servers)?;
        reports(system, algorithm, farm)
    });
    let without_tool = |cell: &Cell| {
        let load = plan.load(&cell.load).filter(|load| load.tool != Tool::Balanza)?;
        match tools::program(load.tool) {
            None => Some(format!("{} is not installed: see balanza lab doctor", load.tool.name())),
            Some(_) => {
                let algorithm = plan.algorithm(&cell.algorithm)?;
                let chosen = usize::from(algorithm.reaches.is_some() && cell.system != System::Direct);
                load.check_tool().and_then(|()| load.tool.check_sources(chosen)).err()
            }
        }
    };
    cells.run.retain(|cell| match without_tool(cell) {
        None => true,
        Some(reason) => {
            cells.left_out.push((cell.clone(), reason));
            false
        }
    });
    cells
}

/// Versions of what takes part.
fn versions(plan: &Plan, cells: &[Cell], programs: &Programs) -> Vec<(String, String)> {
    let mut versions = programs.versions();
    let uses = |system: &System| cells.iter().any(|cell| cell.system == *system);
    versions.retain(|(name, _)| match name.as_str() {
        "NGINX" => uses(&System::Nginx) || uses(&System::NginxBalanza),
        "NGINX module" => uses(&System::NginxBalanza),
        "HAProxy" => uses(&System::Haproxy),
        "Caddy" => uses(&System::Caddy),
        _ => true,
    });
    let is_used = |tool: &Tool| cells.iter().any(|cell| plan.load(&cell.load).is_some_and(|load| load.tool == *tool));
    let tools = [Tool::Ab, Tool::Siege, Tool::Httperf, Tool::Wrk, Tool::Locust].into_iter().filter(is_used);
    versions.extend(tools.filter_map(|tool| Some((tool.name().to_owned(), tools::version(tool)?))));
    versions
}

fn reasons(left_out: &[(Cell, String)]) -> String {
    let mut reasons: Vec<String> =
        left_out.iter().map(|(cell, reason)| format!("\n{}: {reason}", cell.system)).collect();
    reasons.sort();
    reasons.dedup();
    reasons.concat()
}

/// What is finished, and how to go on.
fn kept(finished: usize, total: usize, options: &Options) -> String {
    let out = options.out.display();
    match finished {
        0 => format!("none of {} is finished", count(total as u64, "run")),
        _ => {
            format!("{finished} of {} are finished and kept in {out}: go on with --resume", count(total as u64, "run"))
        }
    }
}
