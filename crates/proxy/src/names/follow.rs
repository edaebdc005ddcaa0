//! Follows the names of upstreams: resolves each one again when its answer expires, and reports changes of servers.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use balanza_config::model::{self, Config, Level, ResolvedServer, ServerAddress, Upstream, UpstreamServer};
use balanza_resolver::{Failure, Place, Resolver};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep};

use super::{Key, Resolvers, Shared, lock, why};
use crate::log::error::ErrorWriter;
use crate::source_condition::Condition;

/// The least time between two queries for a name.
const LEAST: Duration = Duration::from_secs(1);
/// The longest pause before a failed query is repeated; the pauses grow up to it.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The same for a name that does not exist, unless `valid` says another time (as NGINX).
const ABSENT: Duration = Duration::from_secs(10);
/// The least time between two updates of an upstream. An update costs as much as the upstream has servers, so changes
/// that arrive together are applied together.
const BETWEEN: Duration = Duration::from_millis(100);
/// After a slow update, the pause is this many times what the update took. It is limited, because an update also looks
/// slow if the machine stood still.
const REST: u32 = 10;
const REST_MAX: Duration = Duration::from_secs(2);

/// Follows names.
pub(super) struct Follower {
    pub resolvers: Resolvers,
    shared: Arc<Shared>,
    groups: HashMap<Key, Group>,
}

/// The names of an upstream.
struct Group {
    conf: Arc<Upstream>,
    /// The servers of each name; none before the first answer.
    places: Rc<RefCell<Vec<Option<Vec<Place>>>>>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Follower {
    pub fn new(shared: Arc<Shared>, resolvers: Resolvers) -> Follower {
        Follower { resolvers, shared, groups: HashMap::new() }
    }

    /// Follows the names of this configuration and no others. Clones of `known` are dropped when each new name has been
    /// queried once.
    pub fn follow(&mut self, config: &Config, log: &Rc<ErrorWriter>, known: &mpsc::Sender<()>) {
        let mut before = std::mem::take(&mut self.groups);
        for (protocol, conf) in config.upstreams().filter(|(_, upstream)| !upstream.resolved.is_empty()) {
            let key = (protocol, conf.name.clone());
            let old = before.remove(&key);
            let group = self.group(&key, Arc::clone(conf), old, log, known);
            self.groups.insert(key, group);
        }
        // The servers of removed names are kept for one more configuration, in case this one is refused and the
        // previous one is restored.
        let left: HashSet<Key> = before.into_keys().collect();
        lock(&self.shared.resolved).retain(|key, _| self.groups.contains_key(key) || left.contains(key));
        lock(&self.shared.conditions).retain(|key, _| self.groups.contains_key(key));
        let resolvers = self.groups.values().filter_map(|group| group.conf.resolver.as_deref());
        let named: HashSet<&model::Resolver> = resolvers.collect();
        self.resolvers.keep(|resolver| named.contains(resolver));
    }

    fn group(
        &mut self,
        key: &Key,
        conf: Arc<Upstream>,
        old: Option<Group>,
        log: &Rc<ErrorWriter>,
        known: &mpsc::Sender<()>,
    ) -> Group {
        if let Some(mut old) = old {
            let same = old.conf.resolved == conf.resolved && old.conf.resolver == conf.resolver;
            if same {
                old.conf = conf;
                return old;
            }
            // Known addresses are kept, with the new parameters.
            let is_same = |one: &ResolvedServer, other: &ResolvedServer| {
                (&one.host, one.port, &one.service) == (&other.host, other.port, &other.service)
            };
            let places = old.places.borrow();
            let find = |server: &ResolvedServer| {
                let index = old.conf.resolved.iter().position(|known| is_same(known, server))?;
                places[index].clone()
            };
            let kept = conf.resolved.iter().map(find).collect();
            drop(places);
            return self.start(key, conf, kept, log, known);
        }
        let unknown = vec![None; conf.resolved.len()];
        self.start(key, conf, unknown, log, known)
    }

    fn start(
        &mut self,
        key: &Key,
        conf: Arc<Upstream>,
        places: Vec<Option<Vec<Place>>>,
        log: &Rc<ErrorWriter>,
        known: &mpsc::Sender<()>,
    ) -> Group {
        let condition = |(server, places): (&ResolvedServer, &Option<Vec<Place>>)| Condition {
            servers: places.as_ref().map_or(0, Vec::len),
            ..Condition::new(called(server))
        };
        let conditions = conf.resolved.iter().zip(&places).map(condition).collect();
        lock(&self.shared.conditions).insert(key.clone(), conditions);
        let resolver = conf.resolver.as_ref().map(|resolver| self.resolvers.of(resolver));
        let places = Rc::new(RefCell::new(places));
        let publisher = Publisher {
            key: key.clone(),
            names: conf.resolved.clone(),
            places: Rc::clone(&places),
            shared: Arc::clone(&self.shared),
            changed: Notify::new(),
            waiting: RefCell::default(),
        };
        let publisher = Rc::new(publisher);
        if places.borrow().iter().any(Option::is_some) {
            publisher.store();
        }
        let mut tasks = vec![spawn_local(publish(Rc::clone(&publisher))).abort_handle()];
        for index in 0..conf.resolved.len() {
            let Some(resolver) = resolver.clone() else { break };
            let known = places.borrow()[index].is_none().then(|| known.clone());
            let (publisher, log) = (Rc::clone(&publisher), Rc::clone(log));
            tasks.push(spawn_local(follow_one(resolver, index, publisher, log, known)).abort_handle());
        }
        Group { conf, places, tasks }
    }
}

/// A name, with its service if it has one.
fn called(server: &ResolvedServer) -> String {
    match &server.service {
        Some(service) => format!("{} service={service}", server.host),
        None => server.host.clone(),
    }
}

/// The same in NGINX's words.
fn in_messages(server: &ResolvedServer) -> String {
    match &server.service {
        Some(service) => format!("service {service} of {}", server.host),
        None => server.host.clone(),
    }
}

/// Resolves a name repeatedly.
async fn follow_one(
    resolver: Rc<Resolver>,
    index: usize,
    publisher: Rc<Publisher>,
    log: Rc<ErrorWriter>,
    mut known: Option<mpsc::Sender<()>>,
) {
    let server = &publisher.names[index];
    let mut retry = LEAST;
    let mut is_incomplete = false;
    let mut absent = Vec::new();
    loop {
        let pause = retry;
        retry = (retry * 2).min(LONGEST_RETRY);
        let last = publisher.places.borrow()[index].clone().unwrap_or_default();
        let found = match &server.service {
            Some(service) => resolver.places_of_service(service, &server.host, &last).await,
            None => resolver.places(&server.host, server.port, &last).await,
        };
        let if_absent = resolver.valid().unwrap_or(ABSENT);
        let wait = match found {
            Ok(places) => {
                if let Some(failure) = places.incomplete.filter(|_| !is_incomplete) {
                    let (host, why) = (&server.host, why(failure));
                    let message =
                        format_args!("some addresses of {host} could not be asked for ({why}); the last ones stay");
                    log.write(Level::Warn, message);
                }
                for target in places.absent.iter().filter(|target| !absent.contains(*target)) {
                    let (service, why) = (in_messages(server), why(Failure::NotFound));
                    let message = format_args!("{target} could not be resolved ({why}) while resolving {service}");
                    log.write(Level::Error, message);
                }
                absent = places.absent;
                is_incomplete = places.incomplete.is_some();
                if !is_incomplete {
                    retry = LEAST;
                }
                publisher.set(index, places.list, known.take());
                publisher.note(index, |condition| condition.error = places.incomplete.map(why));
                let holds = places.until.saturating_duration_since(Instant::now());
                let holds = if absent.is_empty() { holds } else { holds.min(if_absent) };
                if is_incomplete { holds.min(pause) } else { holds }.max(LEAST)
            }
            Err(failure) => {
                let (name, why) = (in_messages(server), why(failure));
                log.write(Level::Error, format_args!("{name} could not be resolved ({why})"));
                // A name that does not exist has no servers. After other failures, the last good answer is kept.
                let is_absent = failure == Failure::NotFound;
                if is_absent {
                    publisher.set(index, Vec::new(), known.take());
                }
                publisher.note(index, |condition| condition.error = Some(why));
                if is_absent { pause.min(if_absent).max(LEAST) } else { pause }
            }
        };
        // Nothing waits for the first answer any more, even if there was none.
        known.take();
        sleep(wait + jitter(wait)).await;
    }
}

/// A random time of up to a tenth of `wait`, within limits, so that names queried together do not stay together.
fn jitter(wait: Duration) -> Duration {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let most = (wait / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
    most.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

/// Stores and reports the servers of an upstream after changes. Changes in the following pause are applied together.
async fn publish(publisher: Rc<Publisher>) {
    loop {
        publisher.changed.notified().await;
        let begun = Instant::now();
        publisher.store();
        let known = publisher.waiting.take();
        let notify = lock(&publisher.shared.notify).clone();
        if let Some(notify) = notify {
            notify(publisher.key.0, &publisher.key.1);
        }
        drop(known);
        sleep((begun.elapsed() * REST).clamp(BETWEEN, REST_MAX)).await;
    }
}

/// The current servers of an upstream's names.
struct Publisher {
    key: Key,
    names: Vec<ResolvedServer>,
    places: Rc<RefCell<Vec<Option<Vec<Place>>>>>,
    shared: Arc<Shared>,
    /// Notified when servers have changed since they were stored.
    changed: Notify,
    /// Dropped when the servers are stored.
    waiting: RefCell<Vec<mpsc::Sender<()>>>,
}

impl Publisher {
    /// Sets the servers of one name. Drops `known` when they are stored.
    fn set(&self, index: usize, mut places: Vec<Place>, known: Option<mpsc::Sender<()>>) {
        // Name servers rotate answers, so their order means nothing.
        places.sort();
        places.dedup_by(|one, other| one.address == other.address);
        self.note(index, |condition| condition.answered(places.len()));
        if self.places.borrow()[index].as_ref() == Some(&places) {
            return;
        }
        self.places.borrow_mut()[index] = Some(places);
        self.waiting.borrow_mut().extend(known);
        self.changed.notify_one();
    }

    /// Updates the state of a name.
    fn note(&self, index: usize, note: impl FnOnce(&mut Condition)) {
        let mut all = lock(&self.shared.conditions);
        if let Some(condition) = all.get_mut(&self.key).and_then(|all| all.get_mut(index)) {
            note(condition);
        }
    }

    fn store(&self) {
        let places = self.places.borrow();
        let named = self.names.iter().zip(places.iter());
        let servers = named.flat_map(|(server, places)| servers(server, places.as_deref().unwrap_or_default()));
        let servers = servers.collect();
        lock(&self.shared.resolved).insert(self.key.clone(), servers);
    }
}

/// The servers of a name. If the name is a backup, only servers of a service's first priority are used, all as backups. A
/// weight in the configuration replaces those of a service.
fn servers(named: &ResolvedServer, places: &[Place]) -> Vec<UpstreamServer> {
    let template = &named.template;
    let used = places.iter().filter(|place| !(template.backup && place.is_backup));
    let weight = |place: &Place| match place.weight {
        Some(weight) if template.weight == 1 => u32::from(weight).max(1),
        _ => template.weight,
    };
    let server = |place: &Place| UpstreamServer {
        // Hash algorithms must distinguish the addresses of a name.
        name: place.address.to_string(),
        resolved_from: Some(template.name.clone()),
        address: ServerAddress::Inet(place.address),
        weight: weight(place),
        backup: template.backup || place.is_backup,
        ..template.clone()
    };
    used.map(server).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use balanza_config::model::membership::Protocol;

    use super::*;

    fn place(last: u8, is_backup: bool, weight: Option<u16>) -> Place {
        Place { is_backup, address: format!("10.0.0.{last}:80").parse().unwrap(), weight, host: None }
    }

    fn named(weight: u32, backup: bool) -> ResolvedServer {
        let address = ServerAddress::Inet("0.0.0.0:80".parse().unwrap());
        let template = UpstreamServer { weight, backup, ..UpstreamServer::new("app".into(), address) };
        ResolvedServer { host: "app".into(), port: 80, service: None, template }
    }

    #[test]
    fn servers_have_the_parameters_of_their_name() {
        let of = |weight, backup| {
            let places = [place(1, false, None), place(2, false, Some(0)), place(3, true, Some(7))];
            let servers = servers(&named(weight, backup), &places);
            servers.iter().map(|server| (server.name.clone(), server.weight, server.backup)).collect::<Vec<_>>()
        };
        let expected = [("10.0.0.1:80", 1, false), ("10.0.0.2:80", 1, false), ("10.0.0.3:80", 7, true)];
        assert_eq!(of(1, false), expected.map(|(name, weight, backup)| (name.to_owned(), weight, backup)));
        // A weight in the configuration replaces those of a service.
        let expected = [("10.0.0.1:80", 5, true), ("10.0.0.2:80", 5, true)];
        assert_eq!(of(5, true), expected.map(|(name, weight, backup)| (name.to_owned(), weight, backup)));
    }

    #[test]
    fn names_that_are_asked_for_together_do_not_stay_together() {
        for (seconds, most) in [(1, 100), (5, 500), (3600, 1000)] {
            let times: Vec<u128> = (0..500).map(|_| jitter(Duration::from_secs(seconds)).as_millis()).collect();
            assert!(times.iter().all(|time| *time <= most), "{times:?}");
            let tenths: HashSet<u128> = times.iter().map(|time| time * 10 / (most + 1)).collect();
            assert_eq!(tenths.len(), 10, "{times:?}");
        }
    }

    /// In virtual time: a thousand names that change within a second or two are applied in few updates; none is lost.
    #[test]
    fn names_that_change_together_are_adopted_together() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(tokio::task::LocalSet::new().run_until(async {
            let shared = Arc::<Shared>::default();
            let told = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&told);
            *lock(&shared.notify) = Some(Arc::new(move |_: Protocol, _: &str| {
                count.fetch_add(1, Relaxed);
            }));
            let key = (Protocol::Http, "app".to_owned());
            let publisher = Rc::new(Publisher {
                key: key.clone(),
                names: vec![named(1, false); 1000],
                places: Rc::new(RefCell::new(vec![None; 1000])),
                shared: Arc::clone(&shared),
                changed: Notify::new(),
                waiting: RefCell::default(),
            });
            spawn_local(publish(Rc::clone(&publisher)));
            let (known, stored) = mpsc::channel();
            for index in 0..1000 {
                publisher.set(index, vec![place((index % 250) as u8, false, None)], Some(known.clone()));
                sleep(Duration::from_millis(1)).await;
            }
            drop(known);
            sleep(2 * BETWEEN).await;
            assert_eq!(stored.try_recv(), Err(mpsc::TryRecvError::Disconnected), "all are stored");
            assert_eq!(lock(&shared.resolved)[&key].len(), 1000);
            let told = told.load(Relaxed);
            assert!((10..=40).contains(&told), "{told} steps");
        }));
    }
}
