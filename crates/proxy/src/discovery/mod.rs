//! Servers that are found outside the configuration (`discover`): each source is followed by a task of one thread, so that
//! no worker waits for it and each source is asked once.
//!
//! A source is one file with an implementation of [`Discovery`](task::Discovery). What it tells goes to a
//! [`Sink`](sink::Sink), which stores the servers and lets the engine adopt them. The thread is started when a
//! configuration needs it.

pub mod api;
mod consul;
mod docker;
mod etcd;
pub mod exchange;
mod follow;
mod kubernetes;
mod server;
mod sink;
mod task;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use balanza_config::model::discover::Discover;
use balanza_config::model::membership::{Changes, Found, Protocol};
use balanza_config::model::{Config, Upstream};
use balanza_net::event_loop;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::follow::Follower;
pub use self::task::jitter;
use crate::background;
use crate::essential;
use crate::log::error::ErrorWriter;
use crate::source_condition::Condition;

/// How long a start or a reload waits for sources that have not answered yet. After this time their upstreams have no
/// servers of theirs until the answer comes.
const FIRST: Duration = Duration::from_secs(1);

/// An upstream.
type Key = (Protocol, String);

/// Called when the servers of an upstream's sources have changed, from the thread of the sources.
pub type Notify = Arc<dyn Fn(Protocol, &str) + Send + Sync>;

/// The sources of the process.
#[derive(Default)]
pub struct Discoveries {
    shared: Arc<Shared>,
    thread: Mutex<Option<UnboundedSender<Request>>>,
}

/// What the thread shares with others.
#[derive(Default)]
struct Shared {
    found: Mutex<HashMap<Key, Vec<Found>>>,
    /// How each source is, by the text that names it.
    conditions: Mutex<HashMap<Key, HashMap<String, Condition>>>,
    notify: Mutex<Option<Notify>>,
}

impl Shared {
    /// Stores what these sources have. What others have stays: the configuration in use may be another one.
    fn store(&self, key: &Key, sources: &[&str], found: Vec<Found>) {
        let mut all = lock(&self.found);
        let all = all.entry(key.clone()).or_default();
        all.retain(|known| !sources.contains(&known.source.as_str()));
        all.extend(found);
    }

    /// Notes how a source is.
    fn note(&self, key: &Key, source: &str, note: impl FnOnce(&mut Condition)) {
        if let Some(condition) = lock(&self.conditions).get_mut(key).and_then(|all| all.get_mut(source)) {
            note(condition);
        }
    }

    fn tell(&self, key: &Key) {
        let notify = lock(&self.notify).clone();
        if let Some(notify) = notify {
            notify(key.0, &key.1);
        }
    }
}

/// Follow the sources of this configuration and no others.
struct Request {
    config: Arc<Config>,
    log: ErrorWriter,
    /// Dropped when all sources that are new have been asked once.
    known: mpsc::Sender<()>,
}

/// What a start or a reload waits for.
pub struct Waiting {
    known: Option<mpsc::Receiver<()>>,
    until: Instant,
}

impl Waiting {
    /// Waits for sources that have not answered yet, for a moment.
    pub fn wait(self) {
        if let Some(known) = self.known {
            // Nothing is sent: the channel is closed when all are known.
            let _ = known.recv_timeout(self.until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Discoveries {
    /// Follows the sources of a configuration from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(&self, config: &Arc<Config>, log: ErrorWriter) -> anyhow::Result<Waiting> {
        let until = Instant::now() + FIRST;
        let mut thread = lock(&self.thread);
        if thread.is_none() && config.upstreams().all(|(_, upstream)| upstream.discovers.is_empty()) {
            return Ok(Waiting { known: None, until });
        }
        if thread.is_none() {
            *thread = Some(start(Arc::clone(&self.shared))?);
        }
        let (known, wait) = mpsc::channel();
        let requests = thread.as_ref().context("the thread")?;
        let request = Request { config: Arc::clone(config), log, known };
        requests.send(request).ok().context("the thread of discovery has ended")?;
        Ok(Waiting { known: Some(wait), until })
    }

    /// Begins with what the process before this one had found.
    pub fn begin_with(&self, changes: &Changes) {
        let found = changes.iter().filter(|(_, changed)| !changed.found().is_empty());
        lock(&self.shared.found).extend(found.map(|(key, changed)| (key.clone(), changed.found().to_vec())));
    }

    /// What the sources of an upstream have at present, in its order.
    pub fn found(&self, protocol: Protocol, upstream: &Upstream) -> Vec<Found> {
        let sources: Vec<String> = upstream.discovers.iter().map(|discover| discover.source.identity()).collect();
        let place = |found: &Found| sources.iter().position(|source| *source == found.source);
        let all = lock(&self.shared.found);
        let known = all.get(&(protocol, upstream.name.clone())).into_iter().flatten();
        let mut found: Vec<Found> = known.filter(|found| place(found).is_some()).cloned().collect();
        found.sort_by_key(place);
        found
    }

    /// How the sources of an upstream are, in its order.
    pub fn conditions(&self, protocol: Protocol, upstream: &Upstream) -> Vec<Condition> {
        let all = lock(&self.shared.conditions);
        let known = all.get(&(protocol, upstream.name.clone()));
        let find = |discover: &Discover| known?.get(&discover.source.identity()).cloned();
        upstream.discovers.iter().filter_map(find).collect()
    }

    /// Forgets what the sources of other configurations had: this one is in use.
    pub fn keep(&self, config: &Config) {
        let sources = |upstream: &Upstream| upstream.discovers.iter().map(|it| it.source.identity()).collect();
        let wanted = config.upstreams().map(|(protocol, it)| ((protocol, it.name.clone()), sources(it)));
        let wanted: HashMap<Key, HashSet<String>> = wanted.collect();
        lock(&self.shared.found).retain(|key, found| {
            found.retain(|found| wanted.get(key).is_some_and(|sources| sources.contains(&found.source)));
            !found.is_empty()
        });
    }

    /// Calls this after every change from now on.
    pub fn on_change(&self, notify: Notify) {
        *lock(&self.shared.notify) = Some(notify);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread ends when the process drops what sends to it.
fn start(shared: Arc<Shared>) -> anyhow::Result<UnboundedSender<Request>> {
    let (requests, receiver) = unbounded_channel();
    let run = move || {
        let _guard = essential::Guard::new("the thread of discovery");
        let ran = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .and_then(|runtime| runtime.block_on(event_loop::run(obey(receiver, shared))));
        if let Err(error) = ran {
            essential::end_process(format_args!("cannot discover servers: {error}"));
        }
    };
    background::spawn("discovery", run).context("cannot start a thread")?;
    Ok(requests)
}

async fn obey(mut requests: UnboundedReceiver<Request>, shared: Arc<Shared>) {
    let mut follower = Follower::new(shared);
    while let Some(Request { config, log, known }) = requests.recv().await {
        follower.follow(&config, &log, &known);
    }
}
