//! Health checks: one thread of the process asks the servers of all upstreams whether they work, so that each server is
//! asked once and not by each worker.
//!
//! A check of `http` is a request that no client has sent, with the settings of its location. It goes to one server
//! directly: no algorithm is asked, and nothing counts it as a request. Each server has a task for each check.

mod http;
mod judge;
mod stream;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use balanza_balancing::ServerState;
use balanza_config::model::LocationTree;
use balanza_config::model::{HealthCheck, Level, Location, Server, ServerAddress, StreamServer, UpstreamServer};
use balanza_net::event_loop::{self, TaskHandle};

use self::http::Kept;
use crate::essential;
use crate::fault;
use crate::follower::{Duty, Generations};
use crate::log::error::ErrorWriter;
use crate::running_config::{Generation, Listener, RunningConfig};
use crate::servers::health::{Health, Rule, Standing};
use crate::servers::membership::{ServerId, Shared};
use crate::thread::Thread;

/// Between the first checks of two servers, so that thousands do not begin at the same moment.
const STAGGER: Duration = Duration::from_micros(100);

/// How often checks that have ended in a panic begin again.
const RESTART: Duration = Duration::from_secs(1);

/// Checks the servers of upstreams whose locations or servers have `health_check`.
pub static CHECKS: Duty = Duty {
    name: "health checks",
    called: "the thread of health checks",
    purpose: "check servers",
    is_needed: |generation| !generation.config.http.checked.is_empty() || !generation.config.stream.checked.is_empty(),
    run: |generations| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
        let main = essential::task("the thread of health checks", obey(generations));
        let ran = runtime.block_on(event_loop::run(main));
        drop(runtime);
        balanza_net::buffer::release();
        ran
    },
};

/// A check of a server.
type Key = (ServerId, usize);

async fn obey(mut generations: Generations) {
    let thread = Rc::<Thread>::default();
    let broken = Broken::default();
    let Some(mut generation) = generations.recv().await else { return };
    let mut stage = Stage::new(&generation, &thread);
    let mut restart = tokio::time::interval(RESTART);
    restart.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    stage.arrange(&generation, &broken);
    loop {
        tokio::select! {
            newer = generations.recv() => {
                let Some(newer) = newer else { return };
                generation = newer;
                if generation.number != stage.running.number {
                    stage.close();
                    stage = Stage::new(&generation, &thread);
                }
                stage.arrange(&generation, &broken);
            }
            _ = restart.tick() => {
                let keys = std::mem::take(&mut *broken.borrow_mut());
                if !keys.is_empty() {
                    stage.tasks.retain(|key, _| !keys.contains(key));
                    stage.arrange(&generation, &broken);
                }
            }
        }
    }
}

/// Checks that have ended in a panic.
type Broken = Rc<RefCell<Vec<Key>>>;

/// The checks of a configuration.
struct Stage {
    thread: Rc<Thread>,
    running: Rc<RunningConfig>,
    /// What `http` and `stream` check.
    plans: Vec<Rc<Plan>>,
    tasks: HashMap<Key, TaskHandle>,
}

/// A check with all that it needs but the server.
struct Plan {
    check: HealthCheck,
    place: Place,
    thread: Rc<Thread>,
    running: Rc<RunningConfig>,
    log: ErrorWriter,
    upstream: String,
}

/// Where a check stands in the configuration.
enum Place {
    Http { listener: Rc<Listener>, server: Arc<Server>, location: Arc<Location> },
    Stream(Arc<StreamServer>),
}

impl Stage {
    fn new(generation: &Arc<Generation>, thread: &Rc<Thread>) -> Stage {
        let running = Rc::new(RunningConfig::for_checks(generation));
        let config = Arc::clone(&generation.config);
        let mut stage =
            Stage { thread: Rc::clone(thread), running: Rc::clone(&running), plans: Vec::new(), tasks: HashMap::new() };
        if let Some(listen) = config.http.listens.first() {
            let listener =
                Rc::new(Listener { address: listen.address.clone(), running: Rc::clone(&running), index: 0 });
            for server in &config.http.checked {
                stage.plan_locations(&server.locations, server, &listener);
            }
        }
        for server in &config.stream.checked {
            for check in &server.health_checks {
                let log = running.errors_of(&server.error_log);
                let upstream = config.stream.upstreams[check.upstream].name.clone();
                stage.plan(check, Place::Stream(Arc::clone(server)), log, upstream);
            }
        }
        stage
    }

    fn plan_locations(&mut self, locations: &LocationTree, server: &Arc<Server>, listener: &Rc<Listener>) {
        for location in locations.iter() {
            for check in &location.health_checks {
                let place = Place::Http {
                    listener: Rc::clone(listener),
                    server: Arc::clone(server),
                    location: Arc::clone(location),
                };
                let log = self.running.errors_of(&location.settings.error_log);
                let upstream = self.running.config.http.upstreams[check.upstream].name.clone();
                self.plan(check, place, log, upstream);
            }
            self.plan_locations(&location.nested, server, listener);
        }
    }

    fn plan(&mut self, check: &HealthCheck, place: Place, log: ErrorWriter, upstream: String) {
        self.plans.push(Rc::new(Plan {
            check: check.clone(),
            place,
            thread: Rc::clone(&self.thread),
            running: Rc::clone(&self.running),
            log,
            upstream,
        }));
    }

    /// Begins the checks of new servers, at once, and ends those of servers that have left.
    fn arrange(&mut self, generation: &Generation, broken: &Broken) {
        let mut wanted = HashSet::new();
        let mut delay = Duration::ZERO;
        for plan in &self.plans {
            let shared: &Shared = match &plan.place {
                Place::Http { .. } => &generation.http[plan.check.upstream],
                Place::Stream(_) => &generation.stream[plan.check.upstream],
            };
            let membership = shared.membership();
            let states = membership.fleet.members().map(|member| membership.fleet.shared_cell(member));
            let servers = membership.servers.iter().zip(&membership.ids).zip(&membership.health).zip(states);
            for (((server, id), health), state) in servers.filter(|(((server, _), _), _)| !server.down) {
                let key = (*id, plan.check.index);
                wanted.insert(key);
                self.tasks.entry(key).or_insert_with(|| {
                    let subject = Subject::new(plan, server, health, state);
                    let task = follow(subject, delay, Guard { key, broken: Rc::clone(broken) });
                    delay += STAGGER;
                    event_loop::spawn(task)
                });
            }
        }
        let left: Vec<Key> = self.tasks.keys().filter(|key| !wanted.contains(key)).copied().collect();
        left.iter().filter_map(|key| self.tasks.remove(key)).for_each(TaskHandle::abort);
    }

    fn close(&mut self) {
        self.tasks.drain().for_each(|(_, task)| task.abort());
    }
}

/// Notes that a check has ended in a panic.
struct Guard {
    key: Key,
    broken: Broken,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broken.borrow_mut().push(self.key);
        }
    }
}

/// A server that is checked.
struct Subject {
    plan: Rc<Plan>,
    /// For messages: as the configuration writes it, or the address that a followed name has.
    name: String,
    /// As the configuration writes it.
    configured_name: String,
    /// Where it is asked.
    address: ServerAddress,
    health: Arc<Health>,
    state: Arc<ServerState>,
    epoch: u64,
}

/// Why a check has not passed.
enum Trouble {
    /// The server does not do as it should.
    Server(String),
    /// This machine cannot ask. It says nothing about the server.
    Own(String),
}

impl Subject {
    fn new(plan: &Rc<Plan>, server: &UpstreamServer, health: &Arc<Health>, state: &Arc<ServerState>) -> Subject {
        let address = match (&server.address, plan.check.port) {
            (ServerAddress::Inet(address), Some(port)) => ServerAddress::Inet(SocketAddr::new(address.ip(), port)),
            (address, _) => address.clone(),
        };
        Subject {
            plan: Rc::clone(plan),
            name: server.name.clone(),
            configured_name: server.configured_name().to_owned(),
            address,
            health: Arc::clone(health),
            state: Arc::clone(state),
            epoch: health.epoch(),
        }
    }

    /// Counts the result of a check, and says so if the server is something else now.
    fn judge(&self, result: Result<(), Trouble>) {
        let HealthCheck { fails, passes, index, .. } = self.plan.check;
        let (passed, why) = match &result {
            Ok(()) => (true, ""),
            Err(Trouble::Server(why)) => (false, why.as_str()),
            Err(Trouble::Own(why)) => return self.note(Level::Alert, format_args!("{why}")),
        };
        let rule = Rule { fails, passes };
        match self.health.judge(&self.state, self.epoch, index, rule, passed) {
            Some(Standing::Healthy) => self.note(Level::Notice, format_args!("the server is healthy")),
            Some(_) => self.note(Level::Warn, format_args!("the server is unhealthy: {why}")),
            None if !passed => self.note(Level::Info, format_args!("failed: {why}")),
            None => {}
        }
    }

    fn note(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let Plan { log, upstream, .. } = &*self.plan;
        log.write(level, format_args!("health check of \"{}\" in upstream \"{upstream}\": {message}", self.name));
    }
}

/// Checks a server again and again.
async fn follow(subject: Subject, delay: Duration, _guard: Guard) {
    let check = &subject.plan.check;
    let mut kept = Kept::default();
    tokio::time::sleep(delay).await;
    loop {
        tokio::time::sleep(random_below(check.jitter)).await;
        fault::point("check");
        let result = match &subject.plan.place {
            Place::Http { listener, server, location } => {
                Box::pin(http::check(&subject, listener, server, location, &mut kept)).await
            }
            Place::Stream(server) => Box::pin(stream::check(&subject, server)).await,
        };
        subject.judge(result);
        tokio::time::sleep(check.interval).await;
    }
}

/// A random time.
fn random_below(most: Duration) -> Duration {
    if most.is_zero() {
        return most;
    }
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    most.mul_f64(random as f64 / u64::MAX as f64)
}
