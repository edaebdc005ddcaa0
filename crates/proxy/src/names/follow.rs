//! Follows the names of upstreams: asks again when an answer has ended, and tells when the servers have changed.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use balanza_config::model::{self, Config, ResolvedServer, ServerAddress, Upstream, UpstreamServer};
use balanza_resolver::{Failure, Place, Resolver};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep};

use super::{Key, Resolvers, Shared, complain, lock};
use crate::log::error::ErrorWriter;

/// A name is not asked for more often.
const LEAST: Duration = Duration::from_secs(1);
/// A name that could not be asked for is tried again after a time that grows to this.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Who follows names.
pub(super) struct Follower {
    pub resolvers: Resolvers,
    shared: Arc<Shared>,
    groups: HashMap<Key, Group>,
}

/// The names of an upstream.
struct Group {
    conf: Arc<Upstream>,
    /// Servers by name; none before the first answer.
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

    /// Follows the names of this configuration and no others. Clones of `known` are dropped when a name that is new has
    /// been asked for.
    pub fn follow(&mut self, config: &Config, log: &Rc<ErrorWriter>, known: &mpsc::Sender<()>) {
        let mut before = std::mem::take(&mut self.groups);
        for (protocol, conf) in config.upstreams().filter(|(_, upstream)| !upstream.resolved.is_empty()) {
            let key = (protocol, conf.name.clone());
            let old = before.remove(&key);
            let group = self.group(&key, Arc::clone(conf), old, log, known);
            self.groups.insert(key, group);
        }
        // What the configuration before this one had stays known for one that is refused and taken back.
        let left: HashSet<Key> = before.into_keys().collect();
        lock(&self.shared.resolved).retain(|key, _| self.groups.contains_key(key) || left.contains(key));
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
            // Addresses that are known go on with the new parameters.
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
        let resolver = conf.resolver.as_ref().map(|resolver| self.resolvers.of(resolver));
        let places = Rc::new(RefCell::new(places));
        let publisher = Publisher {
            key: key.clone(),
            conf: Arc::clone(&conf),
            places: Rc::clone(&places),
            shared: Arc::clone(&self.shared),
        };
        let publisher = Rc::new(publisher);
        if places.borrow().iter().any(Option::is_some) {
            publisher.store();
        }
        let mut tasks = Vec::new();
        for (index, server) in conf.resolved.iter().enumerate() {
            let Some(resolver) = resolver.clone() else { break };
            let known = places.borrow()[index].is_none().then(|| known.clone());
            let (publisher, server, log) = (Rc::clone(&publisher), server.clone(), Rc::clone(log));
            tasks.push(spawn_local(follow_one(resolver, server, index, publisher, log, known)).abort_handle());
        }
        Group { conf, places, tasks }
    }
}

/// Asks for a name again and again.
async fn follow_one(
    resolver: Rc<Resolver>,
    server: ResolvedServer,
    index: usize,
    publisher: Rc<Publisher>,
    log: Rc<ErrorWriter>,
    mut known: Option<mpsc::Sender<()>>,
) {
    let mut retry = LEAST;
    loop {
        let found = match &server.service {
            Some(service) => resolver.places_of_service(service, &server.host).await,
            None => resolver.places(&server.host, server.port).await,
        };
        let wait = match found {
            Ok((places, until)) => {
                retry = LEAST;
                publisher.set(index, places);
                until.saturating_duration_since(Instant::now()).max(LEAST)
            }
            Err(failure) => {
                complain(&log, &server.host, failure);
                // A name that does not exist has no servers; other failures leave the last good answer.
                if failure == Failure::NotFound {
                    publisher.set(index, Vec::new());
                }
                retry = (retry * 2).min(LONGEST_RETRY);
                retry / 2
            }
        };
        // Whoever waits for the first answer waits no longer.
        known.take();
        sleep(wait + jitter(wait)).await;
    }
}

/// Up to a tenth of a second or of the time: names that were asked for together are not asked for together again.
fn jitter(wait: Duration) -> Duration {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let most = (wait / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
    most.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

/// Stores what the names of an upstream have become, and tells of it.
struct Publisher {
    key: Key,
    conf: Arc<Upstream>,
    places: Rc<RefCell<Vec<Option<Vec<Place>>>>>,
    shared: Arc<Shared>,
}

impl Publisher {
    /// The servers of one name.
    fn set(&self, index: usize, mut places: Vec<Place>) {
        // The order of an answer says nothing: name servers rotate it.
        places.sort();
        places.dedup_by(|one, other| one.address == other.address);
        if self.places.borrow()[index].as_ref() == Some(&places) {
            return;
        }
        self.places.borrow_mut()[index] = Some(places);
        self.store();
        let notify = lock(&self.shared.notify).clone();
        if let Some(notify) = notify {
            notify(self.key.0, &self.key.1);
        }
    }

    fn store(&self) {
        let places = self.places.borrow();
        let named = self.conf.resolved.iter().zip(places.iter());
        let servers = named.flat_map(|(server, places)| servers(server, places.as_deref().unwrap_or_default()));
        lock(&self.shared.resolved).insert(self.key.clone(), servers.collect());
    }
}

/// The servers of a name. If it is a backup, so are those of a service's first priority, and there are no others.
fn servers(named: &ResolvedServer, places: &[Place]) -> Vec<UpstreamServer> {
    let template = &named.template;
    let used = places.iter().filter(|place| !(template.backup && place.is_backup));
    let server = |place: &Place| UpstreamServer {
        // Algorithms that hash tell the addresses of a name apart.
        name: place.address.to_string(),
        resolved_from: Some(template.name.clone()),
        address: ServerAddress::Inet(place.address),
        weight: place.weight.map_or(template.weight, |weight| u32::from(weight).max(1)),
        backup: template.backup || place.is_backup,
        ..template.clone()
    };
    used.map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(last: u8, is_backup: bool, weight: Option<u16>) -> Place {
        Place { is_backup, address: format!("10.0.0.{last}:80").parse().unwrap(), weight, host: None }
    }

    fn named(backup: bool) -> ResolvedServer {
        let address = ServerAddress::Inet("0.0.0.0:80".parse().unwrap());
        let template = UpstreamServer { weight: 5, backup, ..UpstreamServer::new("app".into(), address) };
        ResolvedServer { host: "app".into(), port: 80, service: None, template }
    }

    #[test]
    fn servers_have_the_parameters_of_their_name() {
        let of = |backup| {
            let places = [place(1, false, None), place(2, false, Some(0)), place(3, true, Some(7))];
            let servers = servers(&named(backup), &places);
            servers.iter().map(|server| (server.name.clone(), server.weight, server.backup)).collect::<Vec<_>>()
        };
        let expected = [("10.0.0.1:80", 5, false), ("10.0.0.2:80", 1, false), ("10.0.0.3:80", 7, true)];
        assert_eq!(of(false), expected.map(|(name, weight, backup)| (name.to_owned(), weight, backup)));
        let expected = [("10.0.0.1:80", 5, true), ("10.0.0.2:80", 1, true)];
        assert_eq!(of(true), expected.map(|(name, weight, backup)| (name.to_owned(), weight, backup)));
    }
}
