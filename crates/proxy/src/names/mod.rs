//! Host names that are resolved at run time: servers with `resolve`, and hosts from variables.
//!
//! One thread of the process queries the name servers, so that workers never wait and all see the same addresses. It is
//! started when a configuration needs it.

mod follow;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use balanza_config::model::membership::Protocol;
use balanza_config::model::{self, Config, UpstreamServer};
use balanza_resolver::{Counts, Failure, Resolver, Settings, Statistics};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use self::follow::Follower;
use crate::essential;
use crate::log::error::ErrorWriter;
use crate::source_condition::Condition;

/// How long a start or a reload waits for names that are not known yet. After this time, their upstreams have no
/// servers until the answer arrives.
const FIRST: Duration = Duration::from_secs(1);

/// The key of an upstream.
type Key = (Protocol, String);

/// The current servers of names, by upstream.
type Resolved = HashMap<Key, Vec<UpstreamServer>>;

/// Called from the thread of names when the servers of an upstream's names have changed.
pub type Notify = Arc<dyn Fn(Protocol, &str) + Send + Sync>;

/// All names of the process.
#[derive(Default)]
pub struct Names {
    shared: Arc<Shared>,
    thread: Mutex<Option<UnboundedSender<Request>>>,
}

/// State that the thread shares with others.
#[derive(Default)]
struct Shared {
    resolved: Mutex<Resolved>,
    /// The state of each name, by upstream.
    conditions: Mutex<HashMap<Key, Vec<Condition>>>,
    notify: Mutex<Option<Notify>>,
    /// The statistics of resolvers, by `status_zone`.
    statistics: Mutex<BTreeMap<String, Arc<Statistics>>>,
}

/// Requests to the thread.
enum Request {
    /// Follow the names of this configuration and no others.
    Follow {
        config: Arc<Config>,
        log: ErrorWriter,
        /// Dropped when each new name has been queried once.
        known: mpsc::Sender<()>,
    },
    /// Resolve a host.
    Find { resolver: Arc<model::Resolver>, host: String, answer: oneshot::Sender<Result<Arc<[IpAddr]>, Failure>> },
}

impl Names {
    /// Follows the names of a configuration from now on. Waits up to a second for names that are not known yet.
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
        // Nothing is sent: the channel is closed when all names are known.
        let _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        Ok(())
    }

    /// Returns to a configuration that was followed before.
    pub fn follow_again(&self, config: &Arc<Config>, log: ErrorWriter) {
        if lock(&self.thread).is_some() {
            let (known, _) = mpsc::channel();
            let _ = self.send(Request::Follow { config: Arc::clone(config), log, known });
        }
    }

    /// Resolves a host with this resolver, and adds a port to each address.
    ///
    /// # Errors
    /// The host has no addresses, or they cannot be resolved.
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

    /// The current servers of an upstream's names.
    pub fn resolved_of(&self, protocol: Protocol, upstream: &str) -> Vec<UpstreamServer> {
        lock(&self.shared.resolved).get(&(protocol, upstream.to_owned())).cloned().unwrap_or_default()
    }

    /// The state of each name of an upstream, in the order of the configuration.
    pub fn conditions(&self, protocol: Protocol, upstream: &str) -> Vec<Condition> {
        lock(&self.shared.conditions).get(&(protocol, upstream.to_owned())).cloned().unwrap_or_default()
    }

    /// Sets the function that is called after every change.
    pub fn on_change(&self, notify: Notify) {
        *lock(&self.shared.notify) = Some(notify);
    }

    /// The queries and answers of resolvers with a `status_zone`.
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

/// Starts the thread. It ends when the process drops the sender.
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

/// Resolvers by their configuration. One whose configuration is unchanged keeps its cached answers.
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

    /// Drops resolvers that only this map still refers to, unless a configuration could query them.
    fn keep(&mut self, is_named: impl Fn(&model::Resolver) -> bool) {
        self.known.retain(|conf, resolver| is_named(conf) || Rc::strong_count(resolver) > 1);
    }
}

/// Why a name could not be resolved, in NGINX's words.
fn why(failure: Failure) -> String {
    format!("{}: {failure}", failure.code())
}
