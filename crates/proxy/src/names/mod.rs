//! Host names that are resolved while the program runs: servers with `resolve`, and hosts that a variable gives.
//!
//! One thread of the process asks the name servers, so that no worker waits for them and all workers see the same. It is
//! started when a configuration needs it.

mod follow;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use balanza_config::model::membership::Protocol;
use balanza_config::model::{self, Config, Level, UpstreamServer};
use balanza_resolver::{Counts, Failure, Resolver, Settings, Statistics};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use self::follow::Follower;
use crate::essential;
use crate::log::error::ErrorWriter;
use crate::source_condition::Condition;

/// How long a start or a reload waits for names that are not known yet. After this time their upstreams have no servers
/// until the answer comes.
const FIRST: Duration = Duration::from_secs(1);

/// An upstream.
type Key = (Protocol, String);

/// Servers that names have at present, by upstream.
type Resolved = HashMap<Key, Vec<UpstreamServer>>;

/// Called when the servers of an upstream's names have changed, from the thread of names.
pub type Notify = Arc<dyn Fn(Protocol, &str) + Send + Sync>;

/// The names of the process.
#[derive(Default)]
pub struct Names {
    shared: Arc<Shared>,
    thread: Mutex<Option<UnboundedSender<Request>>>,
}

/// What the thread shares with others.
#[derive(Default)]
struct Shared {
    resolved: Mutex<Resolved>,
    /// How each name of an upstream is.
    conditions: Mutex<HashMap<Key, Vec<Condition>>>,
    notify: Mutex<Option<Notify>>,
    /// By `status_zone`.
    statistics: Mutex<BTreeMap<String, Arc<Statistics>>>,
}

/// What the thread is asked to do.
enum Request {
    /// Follow the names of this configuration and no others.
    Follow {
        config: Arc<Config>,
        log: ErrorWriter,
        /// Dropped when all names that are new have been asked for once.
        known: mpsc::Sender<()>,
    },
    /// The addresses of a host.
    Find { resolver: Arc<model::Resolver>, host: String, answer: oneshot::Sender<Result<Arc<[IpAddr]>, Failure>> },
}

impl Names {
    /// Follows the names of a configuration from now on. Waits a moment for those that are not known yet.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(&self, config: &Arc<Config>, log: ErrorWriter) -> anyhow::Result<()> {
        if lock(&self.thread).is_none() && config.upstreams().all(|(_, upstream)| upstream.resolved.is_empty()) {
            return Ok(());
        }
        let (known, wait) = mpsc::channel();
        let request = Request::Follow { config: Arc::clone(config), log, known };
        self.send(request)?;
        let deadline = Instant::now() + FIRST;
        // Nothing is sent: the channel is closed when all are known.
        let _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        Ok(())
    }

    /// Goes back to a configuration that was followed before.
    pub fn follow_again(&self, config: &Arc<Config>, log: ErrorWriter) {
        if lock(&self.thread).is_some() {
            let (known, _) = mpsc::channel();
            let _ = self.send(Request::Follow { config: Arc::clone(config), log, known });
        }
    }

    /// The addresses of a host, by this resolver, with a port.
    ///
    /// # Errors
    /// It has none, or they cannot be had.
    pub async fn find(
        &self,
        resolver: &Arc<model::Resolver>,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let (answer, found) = oneshot::channel();
        let request = Request::Find { resolver: Arc::clone(resolver), host: host.to_owned(), answer };
        if self.send(request).is_err() {
            return Err(Failure::Overloaded);
        }
        let list = found.await.unwrap_or(Err(Failure::Overloaded))?;
        Ok(list.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
    }

    /// The servers that the names of an upstream have at present.
    pub fn resolved_of(&self, protocol: Protocol, upstream: &str) -> Vec<UpstreamServer> {
        lock(&self.shared.resolved).get(&(protocol, upstream.to_owned())).cloned().unwrap_or_default()
    }

    /// How the names of an upstream are, in its order.
    pub fn conditions(&self, protocol: Protocol, upstream: &str) -> Vec<Condition> {
        lock(&self.shared.conditions).get(&(protocol, upstream.to_owned())).cloned().unwrap_or_default()
    }

    /// Calls this after every change from now on.
    pub fn on_change(&self, notify: Notify) {
        *lock(&self.shared.notify) = Some(notify);
    }

    /// What the resolvers with a `status_zone` have asked and been answered.
    pub fn statistics(&self) -> BTreeMap<String, Counts> {
        lock(&self.shared.statistics).iter().map(|(zone, statistics)| (zone.clone(), statistics.counts())).collect()
    }

    fn send(&self, request: Request) -> anyhow::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            *thread = Some(start(Arc::clone(&self.shared))?);
        }
        let requests = thread.as_ref().context("the thread of names")?;
        requests.send(request).ok().context("the thread of names has ended")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread ends when the process drops what sends to it.
fn start(shared: Arc<Shared>) -> anyhow::Result<UnboundedSender<Request>> {
    let (requests, receiver) = unbounded_channel();
    let run = move || {
        let _guard = essential::Guard::new("the thread of names");
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => LocalSet::new().block_on(&runtime, obey(receiver, shared)),
            Err(error) => essential::end_process(format_args!("cannot resolve names: {error}")),
        }
    };
    std::thread::Builder::new().name("names".into()).spawn(run).context("cannot start a thread")?;
    Ok(requests)
}

async fn obey(mut requests: UnboundedReceiver<Request>, shared: Arc<Shared>) {
    let resolvers = Resolvers { shared: Arc::clone(&shared), known: HashMap::new() };
    let mut follower = Follower::new(shared, resolvers);
    while let Some(request) = requests.recv().await {
        match request {
            Request::Follow { config, log, known } => follower.follow(&config, &Rc::new(log), &known),
            Request::Find { resolver, host, answer } => {
                let resolver = follower.resolvers.of(&resolver);
                spawn_local(async move {
                    let found = resolver.addresses(&host).await;
                    let _ = answer.send(found.map(|addresses| addresses.list));
                });
            }
        }
    }
}

/// Resolvers by what the configuration says of them. One that is as before keeps its answers.
struct Resolvers {
    shared: Arc<Shared>,
    known: HashMap<model::Resolver, Rc<Resolver>>,
}

impl Resolvers {
    fn of(&mut self, conf: &model::Resolver) -> Rc<Resolver> {
        if let Some(known) = self.known.get(conf) {
            return Rc::clone(known);
        }
        let resolver = Rc::new(Resolver::new(Settings {
            servers: conf.servers.clone(),
            valid: conf.valid,
            v4: conf.ipv4,
            v6: conf.ipv6,
            timeout: conf.timeout,
        }));
        if let Some(zone) = &conf.status_zone {
            lock(&self.shared.statistics).insert(zone.clone(), Arc::clone(resolver.statistics()));
        }
        self.known.insert(conf.clone(), Rc::clone(&resolver));
        resolver
    }

    /// Forgets those that only this map has, unless a configuration could still ask for them.
    fn keep(&mut self, is_named: impl Fn(&model::Resolver) -> bool) {
        self.known.retain(|conf, resolver| is_named(conf) || Rc::strong_count(resolver) > 1);
    }
}

/// Writes that a name could not be resolved, in NGINX's words.
fn complain(log: &ErrorWriter, host: &str, failure: Failure) {
    log.write(Level::Error, format_args!("{host} could not be resolved ({})", why(failure)));
}

fn why(failure: Failure) -> String {
    format!("{}: {failure}", failure.code())
}
