//! The data plane as its host sees it: start, reload, reopen logs, drain.

mod changes;
mod drains;
mod experiments;
mod plane;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use balanza_config::model::membership::{Change, ChangeError, Changes, Notify, Protocol};
use balanza_config::model::{self, Config, Level, ListenAddress, ServerAddress, UpstreamServer, WorkerMemory};
use balanza_config::read_method;
use balanza_net::memory::{self, Gauge, Limit};
use balanza_resolver::Counts;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::discovery::Discoveries;
use crate::essential;
use crate::follower::Follower;
use crate::health::CHECKS;
use crate::limits::Decisions;
use crate::lists::{Lists, Told};
use crate::log::LogFiles;
use crate::log::error::ErrorWriter;
use crate::metrics::{Attempts, Connections, Requests};
use crate::names::Names;
use crate::outside::Outside;
use crate::random;
use crate::reports::REPORTS;
use crate::running_config::Generation;
use crate::servers::health::HealthCounts;
use crate::servers::membership::{ServerId, Servers, Shared};
use crate::servers::queue::QueueCounts;
use crate::stapling::STAPLES;
use crate::watchdog::Watchdog;
use crate::worker::{self, Command, Place};

/// How long it is known that a server was set down at a deadline: the thread that keeps events looks once a second.
const CUT_OFF_KNOWN: Duration = Duration::from_secs(10);

/// How long the process waits at its end for the collector of spans.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// A configuration with everything that was opened for it.
pub struct Setup {
    /// The configuration.
    pub config: Arc<Config>,
    /// Listening sockets by address: one for each worker, or fewer.
    pub listeners: Vec<(ListenAddress, Vec<OwnedFd>)>,
    /// Open log files by the path that the configuration names.
    pub logs: Vec<(PathBuf, OwnedFd)>,
    /// How many workers.
    pub threads: usize,
    /// Changes of upstreams' servers that were made before the engine started. A reload keeps the engine's own.
    pub changes: Changes,
    /// How many processes like this one were started in the place of one that died.
    pub respawned: u64,
}

/// A running data plane.
pub struct Engine {
    state: Arc<Mutex<State>>,
    names: Arc<Names>,
    discoveries: Arc<Discoveries>,
    lists: Lists,
    listed: Told,
}

struct State {
    servers: Servers,
    /// Changes of upstreams' servers since their configuration.
    changes: Changes,
    /// Servers of upstreams in the place of those in their configuration, because a `server_list` has changed.
    listed: HashMap<(Protocol, String), Vec<UpstreamServer>>,
    notify: Option<Notify>,
    generation: Arc<Generation>,
    workers: Vec<WorkerThread>,
    respawned: u64,
    /// Workers started so far.
    started: u64,
    /// Workers that a reload has removed; they finish their requests.
    leaving: Vec<WorkerThread>,
    /// Threads that ask the servers for their load, check them, and fetch the status of certificates.
    followers: Vec<Follower>,
    watchdog: Watchdog,
    /// Tells the thread that waits for deadlines of drains that they have changed.
    drainer: Option<Sender<()>>,
    /// Servers that were set down at such a deadline lately: when, and how much they still served.
    cut_off: HashMap<ServerId, (Instant, u32)>,
    /// Itself, for that thread.
    me: Weak<Mutex<State>>,
}

struct WorkerThread {
    serial: u64,
    commands: UnboundedSender<Command>,
    thread: JoinHandle<()>,
}

impl Engine {
    /// Starts the workers.
    ///
    /// # Errors
    /// The configuration cannot run, or no thread could be made.
    pub fn start(setup: Setup) -> anyhow::Result<Engine> {
        let mut servers = Servers::default();
        let logs = LogFiles::new(setup.logs, &LogFiles::default());
        let names: Arc<Names> = Arc::default();
        let discoveries: Arc<Discoveries> = Arc::default();
        let errors = ErrorWriter::new(&setup.config.core.error_log, &logs);
        let mut changes = still_named(experiments::ended(setup.changes, &errors), &setup.config, &errors);
        // Both are asked at the same time.
        discoveries.begin_with(&changes);
        let asked = discoveries.follow(&setup.config, errors.clone())?;
        names.follow(&setup.config, errors)?;
        asked.wait();
        let outside = Outside { names: &names, discoveries: &discoveries };
        let generation = Arc::new(Generation::new(setup.config, &mut changes, &outside, logs, &mut servers, None)?);
        let watchdog = Watchdog::start()?;
        let mut state = State {
            servers,
            changes,
            listed: HashMap::new(),
            notify: None,
            generation,
            workers: Vec::new(),
            respawned: setup.respawned,
            started: 0,
            leaving: Vec::new(),
            followers: vec![Follower::new(&REPORTS), Follower::new(&CHECKS), Follower::new(&STAPLES)],
            watchdog,
            drainer: None,
            cut_off: HashMap::new(),
            me: Weak::new(),
        };
        state.watch();
        state.set_workers(setup.threads)?;
        state.set_followers()?;
        state.limit_memory();
        let state = Arc::new(Mutex::new(state));
        {
            let mut locked = lock(&state);
            locked.me = Arc::downgrade(&state);
            locked.watch_drains();
        }
        let told = Arc::downgrade(&state);
        let adopt = Arc::new(move |protocol: Protocol, upstream: &str| {
            if let Some(state) = told.upgrade() {
                lock(&state).adopt_outside(protocol, upstream);
            }
        });
        names.on_change(adopt.clone());
        discoveries.on_change(adopt);
        let told = Arc::downgrade(&state);
        let listed: Told = Arc::new(move |protocol, upstream, servers| {
            if let Some(state) = told.upgrade() {
                lock(&state).adopt_list(protocol, upstream, servers);
            }
        });
        let engine = Engine { state, names, discoveries, lists: Lists::default(), listed };
        let config = Arc::clone(&engine.state().generation.config);
        engine.lists.follow(&config, &engine.listed)?;
        engine.open_desk()?;
        // The first request may be one to the API.
        engine.state().distribute(setup.listeners);
        // What was found before anything was told of it.
        engine.state().adopt_all_outside();
        Ok(engine)
    }

    /// Changes to another configuration. Connections stay open; requests in flight end with the configuration they
    /// began with.
    ///
    /// # Errors The configuration cannot run; the one before stays in use.
    pub fn reload(&self, setup: Setup) -> anyhow::Result<()> {
        let logs = LogFiles::new(setup.logs, &self.state().generation.logs);
        // Without the state, which the threads of names and sources need to tell of changes.
        let errors = ErrorWriter::new(&setup.config.core.error_log, &logs);
        let asked = self.discoveries.follow(&setup.config, errors.clone())?;
        self.names.follow(&setup.config, errors.clone())?;
        asked.wait();
        let mut state = self.state();
        let state = &mut *state;
        let mut changes = still_named(state.changes.clone(), &setup.config, &errors);
        let before = Some(&*state.generation);
        let outside = Outside { names: &self.names, discoveries: &self.discoveries };
        let new = Generation::new(setup.config, &mut changes, &outside, logs, &mut state.servers, before);
        state.generation = match new {
            Ok(generation) => Arc::new(generation),
            Err(error) => {
                let Generation { config, logs, .. } = &*state.generation;
                let errors = ErrorWriter::new(&config.core.error_log, logs);
                let _ = self.discoveries.follow(config, errors.clone());
                self.names.follow_again(config, errors);
                return Err(error);
            }
        };
        state.changes = changes;
        state.listed.clear();
        self.discoveries.keep(&state.generation.config);
        state.tell_changes();
        state.watch();
        state.set_workers(setup.threads)?;
        state.set_followers()?;
        state.limit_memory();
        state.distribute(setup.listeners);
        state.generation.tidy_metrics();
        state.adopt_all_outside();
        // It only sends a message.
        self.lists.follow(&state.generation.config, &self.listed)?;
        self.open_desk_of(&state.generation)
    }

    /// Changes the servers of an upstream, without another configuration and without losing a request. Idle connections,
    /// counters, averages and affinities of the servers that stay are kept. Changes outlive reloads.
    ///
    /// # Errors
    /// There is no such upstream or server, or the algorithm refuses the servers. Nothing has changed.
    pub fn change(&self, protocol: Protocol, upstream: &str, change: Change) -> Result<(), ChangeError> {
        self.state().change(protocol, upstream, vec![change])
    }

    /// Calls this after every change from now on, with all that was changed.
    pub fn on_change(&self, notify: Notify) {
        let mut state = self.state();
        // Sources may have answered before.
        if state.changes.values().any(|changed| !changed.found().is_empty()) {
            notify(&state.changes);
        }
        state.notify = Some(notify);
    }

    /// What was changed at run time.
    pub fn changes(&self) -> Changes {
        self.state().changes.clone()
    }

    /// Requests in flight at the servers of an upstream, by address.
    pub fn in_flight(&self, protocol: Protocol, upstream: &str) -> Vec<(ServerAddress, u32)> {
        let state = self.state();
        let Some(membership) = state.generation.upstream(protocol, upstream).map(Shared::membership) else {
            return Vec::new();
        };
        let in_flight = membership.fleet.members().map(|member| membership.fleet.state(member).in_flight());
        membership.servers.iter().map(|server| server.address.clone()).zip(in_flight).collect()
    }

    /// What the resolvers with a `status_zone` have asked and been answered, by zone.
    pub fn resolvers(&self) -> BTreeMap<String, Counts> {
        self.names.statistics()
    }

    /// What the clients' connections came to so far.
    pub fn connections(&self) -> Connections {
        self.state().generation.metrics.connections.sum(&())
    }

    /// What the requests of a zone of `http`, or the sessions of one of `stream`, came to so far.
    pub fn requests(&self, protocol: Protocol, zone: &str) -> Requests {
        self.state().generation.metrics.zones.sum(&(protocol, zone.to_owned()))
    }

    /// What the attempts to reach the servers of an upstream came to so far, by address.
    pub fn attempts(&self, protocol: Protocol, upstream: &str) -> Vec<(ServerAddress, Attempts)> {
        let state = self.state();
        let Some(membership) = state.generation.upstream(protocol, upstream).map(Shared::membership) else {
            return Vec::new();
        };
        let sums = membership.ids.iter().map(|id| state.generation.metrics.servers.sum(id));
        membership.servers.iter().map(|server| server.address.clone()).zip(sums).collect()
    }

    /// What the health checks of the servers of an upstream came to so far, by address.
    pub fn health(&self, protocol: Protocol, upstream: &str) -> Vec<(ServerAddress, HealthCounts)> {
        let state = self.state();
        let Some(membership) = state.generation.upstream(protocol, upstream).map(Shared::membership) else {
            return Vec::new();
        };
        let counts = membership.health.iter().map(|health| health.counts());
        membership.servers.iter().map(|server| server.address.clone()).zip(counts).collect()
    }

    /// What the queue of an upstream has; none without `queue`.
    pub fn queue(&self, upstream: &str) -> Option<QueueCounts> {
        let state = self.state();
        let shared = state.generation.upstream(Protocol::Http, upstream)?;
        Some(shared.queue.as_ref()?.counts(shared.conf.queue?.length))
    }

    /// What the zone of this name of `limit_req` or `limit_conn` has decided so far.
    pub fn decisions(&self, zone: &str) -> Option<Decisions> {
        self.state().generation.limits.decisions(zone)
    }

    /// Continues in new log files, after a rotation.
    pub fn reopen_logs(&self, logs: Vec<(PathBuf, OwnedFd)>) {
        let state = self.state();
        for worker in &state.workers {
            let _ = worker.commands.send(Command::FlushLogs);
        }
        state.generation.logs.reopen(logs);
    }

    /// Stops accepting, answers one last request of each idle client if it comes in time, and finishes the requests in
    /// flight.
    pub fn drain(&self) {
        for worker in &self.state().workers {
            let _ = worker.commands.send(Command::Drain);
        }
    }

    /// Whether all workers have ended.
    pub fn is_drained(&self) -> bool {
        let state = self.state();
        state.workers.iter().chain(&state.leaving).all(|worker| worker.thread.is_finished())
    }

    /// Waits until everything in flight has finished, at most for `timeout`; true if it has.
    pub fn wait_drained(&self, timeout: Option<Duration>) -> bool {
        let begun = Instant::now();
        while !self.is_drained() {
            if timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Ends all workers at once and aborts the requests in flight.
    pub fn stop(&self) {
        let mut state = self.state();
        for worker in state.workers.iter().chain(&state.leaving) {
            let _ = worker.commands.send(Command::Stop);
        }
        let mut followers = std::mem::take(&mut state.followers);
        drop(state);
        followers.iter_mut().for_each(Follower::stop);
        self.wait_drained(Some(Duration::from_secs(5)));
        let exporter = self.state().generation.exporter.clone();
        if let Some(exporter) = exporter {
            exporter.finish(LAST_SPANS);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Writes to the error log of the configuration.
    fn log(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let generation = &self.generation;
        ErrorWriter::new(&generation.config.core.error_log, &generation.logs).write(level, message);
    }

    /// The workers, and what asks servers, are to use the servers that an upstream has now.
    fn tell_workers(&mut self, protocol: Protocol, upstream: &str) {
        for worker in &self.workers {
            let generation = Arc::clone(&self.generation);
            let _ = worker.commands.send(Command::Adopt(generation, protocol, upstream.to_owned()));
        }
        self.followers.iter().for_each(|follower| follower.tell(&self.generation));
        self.servers.keep_used();
    }

    /// The names or sources of an upstream have other servers.
    fn adopt_outside(&mut self, protocol: Protocol, upstream: &str) {
        let generation = Arc::clone(&self.generation);
        let Some(shared) = generation.upstream(protocol, upstream) else { return };
        let mut found = generation.outside().found(protocol, &shared.conf);
        let mut adopted = self.prepare_found(shared, &found);
        if let Err(error) = &adopted {
            let message = format_args!("the servers of upstream \"{upstream}\" stay as they were: {error:#}");
            self.log(Level::Error, message);
            // Its names may have changed as well.
            found = self.found(shared).to_vec();
            adopted = self.prepare_found(shared, &found);
        }
        let Ok(membership) = adopted else { return };
        if let Some(membership) = membership {
            shared.replace(membership);
            self.tell_workers(protocol, upstream);
        }
        self.remember_found(shared, found);
    }

    fn adopt_all_outside(&mut self) {
        let generation = Arc::clone(&self.generation);
        let has_outside = |conf: &model::Upstream| !conf.resolved.is_empty() || !conf.discovers.is_empty();
        for shared in generation.upstreams().filter(|shared| has_outside(&shared.conf)) {
            self.adopt_outside(shared.protocol, &shared.conf.name);
        }
    }

    fn tell_changes(&mut self) {
        self.cut_off.retain(|_, (when, _)| when.elapsed() < CUT_OFF_KNOWN);
        self.watch_drains();
        if let Some(notify) = &self.notify {
            notify(&self.changes);
        }
    }

    /// Alerts go to the error log of the configuration, and its `worker_watchdog` applies.
    fn watch(&self) {
        let Generation { config, logs, .. } = &*self.generation;
        let errors = ErrorWriter::new(&config.core.error_log, logs);
        self.watchdog.configure(config.core.worker_watchdog, errors.clone());
        essential::log_to(errors);
    }

    fn set_workers(&mut self, count: usize) -> anyhow::Result<()> {
        let count = count.max(1);
        self.leaving.retain(|worker| !worker.thread.is_finished());
        while self.workers.len() > count {
            let worker = self.workers.pop().context("a worker to dismiss")?;
            let _ = worker.commands.send(Command::Drain);
            self.leaving.push(worker);
        }
        while self.workers.len() < count {
            self.started += 1;
            let place =
                Place { worker: self.workers.len(), workers: count, serial: self.started, seed: random::seed() };
            let (commands, receiver) = unbounded_channel();
            let pulse = self.watchdog.watch(place.worker);
            let connections = self.generation.metrics.connections.of(&(), place.serial);
            let thread = std::thread::Builder::new()
                .name(format!("worker {}", place.worker))
                .spawn(move || {
                    let _guard = essential::Guard::new("a worker thread");
                    if let Err(error) = worker::run(place, receiver, pulse, connections) {
                        essential::end_process(format_args!("worker thread {}: {error:#}", place.worker));
                    }
                })
                .context("cannot start a worker thread")?;
            self.workers.push(WorkerThread { serial: place.serial, commands, thread });
        }
        Ok(())
    }

    /// Starts, updates or ends the threads that ask and check the servers.
    fn set_followers(&mut self) -> anyhow::Result<()> {
        self.followers.iter_mut().try_for_each(|follower| follower.follow(&self.generation))
    }

    /// Uses this configuration's memory limit from now on.
    fn limit_memory(&self) {
        let limit = memory_limit(self.generation.config.core.worker_memory);
        memory::configure(limit);
        if let Some(Limit { bytes, source, .. }) = limit {
            self.log(Level::Notice, format_args!("memory is limited to {} MiB ({source})", bytes >> 20));
        }
    }

    /// Distributes the sockets of each address to the workers by round robin.
    fn distribute(&self, listeners: Vec<(ListenAddress, Vec<OwnedFd>)>) {
        let mut dealt: Vec<Vec<(ListenAddress, Vec<OwnedFd>)>> = self.workers.iter().map(|_| Vec::new()).collect();
        for (address, sockets) in listeners {
            // A socket for each worker, all of them on the same queue where there are fewer sockets than workers.
            let mut hands: Vec<Vec<OwnedFd>> = dealt.iter().map(|_| Vec::new()).collect();
            let missing = hands.len().saturating_sub(sockets.len());
            for worker in 0..missing {
                if let Some(shared) = sockets.get(worker % sockets.len().max(1)).and_then(|fd| fd.try_clone().ok()) {
                    hands[sockets.len() + worker].push(shared);
                }
            }
            let workers = hands.len();
            for (nth, socket) in sockets.into_iter().enumerate() {
                hands[nth % workers].push(socket);
            }
            for (worker, hand) in dealt.iter_mut().zip(hands) {
                worker.push((address.clone(), hand));
            }
        }
        for (worker, sockets) in self.workers.iter().zip(dealt) {
            let _ = worker.commands.send(Command::Configure(Arc::clone(&self.generation), sockets));
        }
    }
}

/// The changes of upstreams that a configuration still has, on top of its servers.
fn still_named(mut changes: Changes, config: &Config, log: &ErrorWriter) -> Changes {
    changes.retain(|(protocol, name), changed| {
        let mut upstreams = config.upstreams_of(*protocol).iter();
        let Some(upstream) = upstreams.find(|upstream| upstream.name == *name) else { return false };
        changed.reconfigure(&upstream.servers);
        if let Some(method) = changed.method() {
            let text = &method.text;
            if method.instead_of != upstream.method {
                changed.end_method();
            } else if let Err(why) = read_method(text, *protocol, upstream, changed.servers()) {
                let message = format_args!(
                    "upstream \"{name}\" goes back to its configured method, because \"{text}\" is impossible: {why}"
                );
                log.write(Level::Error, message);
                changed.end_method();
            }
        }
        experiments::keep_arm(changed, *protocol, upstream);
        changed.keep_found(&upstream.discovers);
        !changed.is_as_configured()
    });
    changes
}

/// The limit that the directive asks for.
fn memory_limit(directive: WorkerMemory) -> Option<Limit> {
    match directive {
        WorkerMemory::Off => None,
        WorkerMemory::Bytes(bytes) => Some(Limit { bytes, source: "worker_memory", gauge: Gauge::of_process() }),
        WorkerMemory::Auto => Limit::of_system(),
    }
}
