//! One run: fresh servers, a fresh balancer, one load.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use super::events::{Events, Watched};
use super::evidence;
use super::jobs::{Job, seed};
use super::source::reaching;
use crate::environment::now;
use crate::load::{self, Schedule, Spec, Watch};
use crate::plan::{Algorithm, Farm, Load, Plan, Server, System, Tool};
use crate::ports;
use crate::process::{self, Process, Sampler, how};
use crate::record::{Measured, Role, Run};
use crate::results::Results;
use crate::servers::{Servers, ask::ask, said};
use crate::system::{self, Backend, Programs, Running, Setup, backends, is_port_taken};
use crate::tools;

/// Another process may take a port between its choice and its use; it will not do so often.
const PORTS_MAX: u32 = 3;

/// How long the first answer may take.
const FIRST_MAX: Duration = Duration::from_secs(30);

/// How often the observer is told.
const TELL: Duration = Duration::from_millis(200);

/// The user has asked for the end: not a failure of the run.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(super) struct Interrupted;

/// What all runs need.
pub(super) struct Bench<'a> {
    pub plan: &'a Plan,
    pub programs: &'a Programs,
    pub results: &'a Results,
    pub stop: &'a AtomicBool,
    /// Those of the loads that are logs, by the load's name.
    pub schedules: &'a BTreeMap<String, Arc<Schedule>>,
}

/// Hears of seconds since the load began, answers and failures.
pub(super) type Tell<'a> = &'a dyn Fn(f64, u64, u64);

impl Bench<'_> {
    /// Makes a run.
    ///
    /// Errors: something does not start, or ends while it is measured; [`Interrupted`].
    pub(super) fn measure(&self, job: &Job, tell: Tell<'_>) -> anyhow::Result<Run> {
        let (farm, algorithm, load) = self.parts(job)?;
        let logs = self.results.logs()?;
        let program = &self.programs.balanza.path;
        let mut servers = Servers::start(program, &farm, seed(self.plan, job.repetition, 1), &logs)?;
        let named: Vec<(String, SocketAddr)> = servers.names().into_iter().zip(servers.addresses()).collect();
        let backends = backends(algorithm, &named).map_err(|reason| anyhow!(reason))?;
        let mut system = self.system(job, algorithm, load, &backends, &logs)?;
        self.results.configuration(&job.cell, load.keep_alive, &system.configuration().files)?;
        first(&mut system, load)?;
        let sources = self.sources(job, algorithm, load, &system)?;
        let host = system.host().to_owned();
        let seed = seed(self.plan, job.repetition, 2);
        let schedule = self.schedules.get(&load.name).cloned();
        let spec = Spec { target: system.address(), host, load: load.clone(), sources, seed, schedule };

        let workers = evidence::workers(&mut system);
        let before = servers.stats()?;
        let started = now();
        let sampler = Sampler::start(watched(&mut servers, &mut system, load.tool));
        let begin = Instant::now();
        let mut events = Events::new(&farm, load.warmup.0);
        let mut hands = Watched { servers: &mut servers, sampler: &sampler };
        let measured = self.load(&spec, &logs, &mut hands, &mut events, &mut system, tell)?;
        servers.thaw();
        let events = events.finish();
        let elapsed = begin.elapsed().as_secs_f64();
        let mut processes = sampler.finish();
        let servers = evidence::difference(&before, servers.stats()?);
        let mut invalid = match load.tool {
            Tool::Balanza => {
                processes.extend(evidence::client(&measured, elapsed));
                load::invalid(&measured)
            }
            _ => tools::invalid(&measured),
        };
        invalid.extend(evidence::replaced(&workers, &mut system));
        invalid.extend(evidence::uncounted(&measured, &servers, &events, &job.cell.system));
        let Job { cell, repetition, order } = job.clone();
        Ok(Run { cell, repetition, order, started, measured, servers, processes, events, invalid })
    }

    /// What the cell names: the farm with those servers alone that the algorithm has, so that no other's idleness counts.
    fn parts(&self, job: &Job) -> anyhow::Result<(Farm, &Algorithm, &Load)> {
        let gone = |part: &str, name: &str| anyhow!("the plan has no {part} \"{name}\"");
        let farm = self.plan.farm(&job.cell.farm).ok_or_else(|| gone("farm", &job.cell.farm))?;
        let name = &job.cell.algorithm;
        let algorithm = self.plan.algorithm(name).ok_or_else(|| gone("algorithm", name))?;
        let load = self.plan.load(&job.cell.load).ok_or_else(|| gone("load", &job.cell.load))?;
        let chosen = farm.chosen(algorithm).map_err(|reason| anyhow!(reason))?;
        let each: Vec<(String, &Server)> = farm.each().collect();
        let server = |&place: &usize| {
            let (name, server) = &each[place];
            Server { name: name.clone(), count: 1, ..(*server).clone() }
        };
        let servers = chosen.iter().map(server).collect();
        let names: Vec<String> = chosen.iter().map(|&place| each[place].0.clone()).collect();
        let events = farm.events_of(&names);
        Ok((Farm { name: farm.name.clone(), servers, events }, algorithm, load))
    }

    /// Starts the system on a port of its own.
    fn system(
        &self,
        job: &Job,
        algorithm: &Algorithm,
        load: &Load,
        servers: &[Backend],
        logs: &Path,
    ) -> anyhow::Result<Running> {
        let mut tries = 0;
        loop {
            tries += 1;
            let setup = Setup {
                system: &job.cell.system,
                algorithm,
                servers,
                port: ports::free()?,
                keep_alive: load.keep_alive,
                workers: process::balancer_processors(),
            };
            match system::start(self.programs, &setup, &logs.join("system")) {
                Err(error) if tries < PORTS_MAX && is_port_taken(&error) => {}
                result => return result,
            }
        }
    }

    /// Where the load comes from.
    fn sources(
        &self,
        job: &Job,
        algorithm: &Algorithm,
        load: &Load,
        system: &Running,
    ) -> anyhow::Result<Vec<Ipv4Addr>> {
        match &algorithm.reaches {
            // Without a balancer there is nothing to find.
            Some(server) if job.cell.system != System::Direct => {
                let path = page(load);
                Ok(vec![reaching(server, system.address(), system.host(), &path, self.stop)?])
            }
            _ if load.sources > 1 && !system.address().ip().is_loopback() => bail!(
                "load \"{}\" has {} source addresses, which only balancers on this machine see: {} is at {}",
                load.name,
                load.sources,
                job.cell.system,
                system.address()
            ),
            _ if load.sources > 1 => Ok(load::sources(load.sources)),
            _ => Ok(Vec::new()),
        }
    }

    /// Puts the load on, on a thread of its own, and looks after everything else meanwhile.
    fn load(
        &self,
        spec: &Spec,
        logs: &Path,
        hands: &mut Watched<'_>,
        events: &mut Events,
        system: &mut Running,
        tell: Tell<'_>,
    ) -> anyhow::Result<Measured> {
        let watch = Watch::default();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let (result, ended) = channel();
            let watching = &watch;
            scope.spawn(move || {
                process::pin(Role::Client);
                let measured = match spec.load.tool {
                    Tool::Balanza => load::run(spec, watching),
                    _ => tools::run(spec, logs, watching),
                };
                // The other end waits for it.
                let _ = result.send(measured);
            });
            let mut broken = None;
            let mut wait = TELL;
            loop {
                match ended.recv_timeout(wait) {
                    Ok(measured) => {
                        // One that ended in the last moment is found here.
                        return match broken.or_else(|| end_of_one(hands.servers, system)) {
                            Some(error) => Err(error),
                            None => measured,
                        };
                    }
                    Err(RecvTimeoutError::Disconnected) => bail!("the load generator has failed"),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                tell(begin.elapsed().as_secs_f64(), watch.answered.load(Relaxed), watch.failed.load(Relaxed));
                if broken.is_none() {
                    broken = match self.stop.load(Relaxed) {
                        true => Some(Interrupted.into()),
                        false => end_of_one(hands.servers, system),
                    };
                }
                wait = TELL;
                if broken.is_none() {
                    match events.advance(begin.elapsed(), hands) {
                        Ok(next) => wait = next.map_or(TELL, |next| next.min(TELL)),
                        Err(error) => broken = Some(error),
                    }
                }
                if broken.is_some() {
                    watch.stop.store(true, Relaxed);
                }
            }
        })
    }
}

/// A server or the system that has ended without being told to.
fn end_of_one(servers: &mut Servers, system: &mut Running) -> Option<anyhow::Error> {
    let check = |process: &mut Process| {
        let status = process.ended()?;
        let (name, pid) = (process.name(), process.pid());
        Some(said(process, format!("{name} (process {pid}) ended during the run ({})", how(status))))
    };
    system.process().and_then(check).or_else(|| servers.processes().find_map(check))
}

/// The first request, which no figure has in it.
fn first(system: &mut Running, load: &Load) -> anyhow::Result<()> {
    let answer = ask(system.address(), system.host(), &page(load), None, FIRST_MAX);
    let words = system.process().map(|process| process.last_output()).unwrap_or_default();
    let address = system.address();
    match answer {
        Ok(answer) if answer.status < 500 => Ok(()),
        Ok(answer) => bail!("the first answer from {address} has status {}\n{words}", answer.status),
        Err(error) => Err(error).with_context(|| format!("no first answer from {address}\n{words}")),
    }
}

fn page(load: &Load) -> String {
    load.path.replace("{}", "1")
}

fn watched(servers: &mut Servers, system: &mut Running, tool: Tool) -> Vec<(String, Role, i32)> {
    let entry = |process: &mut Process| (process.name().to_owned(), process.role(), process.pid());
    let mut all: Vec<(String, Role, i32)> = system.process().map(entry).into_iter().collect();
    all.extend(servers.processes().map(entry));
    if tool != Tool::Balanza {
        all.push((evidence::CLIENT.into(), Role::Client, std::process::id().cast_signed()));
    }
    all
}
