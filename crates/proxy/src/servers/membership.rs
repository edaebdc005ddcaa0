//! The servers of upstreams as all workers share them: who they are, and which of them an upstream has now.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use balanza_balancing::overload::{Concurrency, Hedge, Outliers, RetryBudget, Settings};
use balanza_balancing::registry::Spec;
use balanza_balancing::{Authority, Fleet, Group, ServerSpec, ServerState};
use balanza_config::model;
use balanza_config::model::membership::{Changed, Changes, Found, Protocol, ServerKey, keys};
use balanza_config::model::{Checked, UpstreamServer};
use balanza_config::read_method;
use balanza_net::clock;
use rustc_hash::FxHashSet;

use super::affinity::Affinity;
use super::blocks::Running;
use super::health::Health;
use super::picks::Picks;
use super::queue::Queue;
use super::shadows::Beside;
use crate::outside::Outside;

/// A server of an upstream: the same through reloads and changes, for as long as it is named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ServerId {
    upstream: u32,
    number: u32,
}

impl ServerId {
    /// Counts the servers that its upstream has had from 0.
    pub fn number(self) -> u32 {
        self.number
    }

    /// For tests.
    #[cfg(test)]
    pub const fn new(number: u32) -> ServerId {
        ServerId { upstream: 0, number }
    }
}

/// A server that is named.
#[derive(Clone)]
struct Known {
    id: ServerId,
    state: Arc<ServerState>,
    health: Arc<Health>,
}

/// Every server that is named, by protocol, upstream and key. Their state outlives configurations.
#[derive(Default)]
pub struct Servers {
    known: HashMap<(Protocol, String, ServerKey), Known>,
    /// The next server of each upstream.
    next: HashMap<(Protocol, String), ServerId>,
    upstreams: u32,
}

impl Servers {
    /// The servers of a list, in order; new ones for those that are not known, with slow start if the upstream already
    /// has others.
    fn of(&mut self, protocol: Protocol, upstream: &str, servers: &[UpstreamServer], at_work: bool) -> Vec<Known> {
        let (next, upstreams) = (&mut self.next, &mut self.upstreams);
        let next = next.entry((protocol, upstream.to_owned())).or_insert_with(|| {
            *upstreams += 1;
            ServerId { upstream: *upstreams, number: 0 }
        });
        let find = |key: ServerKey| {
            let new = || {
                let id = *next;
                next.number += 1;
                let state = ServerState::new();
                if at_work {
                    state.warm_up(clock::now());
                }
                Known { id, state: Arc::new(state), health: Arc::default() }
            };
            self.known.entry((protocol, upstream.to_owned(), key)).or_insert_with(new).clone()
        };
        keys(servers).into_iter().map(find).collect()
    }

    /// Forgets servers that nothing uses any more.
    pub fn keep_used(&mut self) {
        self.known.retain(|_, known| Arc::strong_count(&known.state) > 1);
    }

    /// How many servers of each upstream have left it and still serve requests.
    pub fn zombies<'m>(&self, upstreams: impl Iterator<Item = &'m Shared>) -> HashMap<(Protocol, String), usize> {
        let present: HashSet<ServerId> = upstreams.flat_map(|shared| shared.membership().ids.clone()).collect();
        let mut zombies = HashMap::new();
        let left = self.known.iter().filter(|(_, known)| !present.contains(&known.id) && known.state.in_flight() > 0);
        for ((protocol, upstream, _), _) in left {
            *zombies.entry((*protocol, upstream.clone())).or_insert(0) += 1;
        }
        zombies
    }

    /// Forgets the upstreams that a configuration does not have. Their numbers are not used again.
    pub fn keep_upstreams(&mut self, is_named: impl Fn(Protocol, &str) -> bool) {
        self.next.retain(|(protocol, name), _| is_named(*protocol, name));
    }
}

/// How the servers of an upstream are chosen.
pub struct Balancing {
    /// The method.
    pub balance: model::Balance,
    /// It as it was written at run time; none for that of the configuration.
    pub chosen: Option<String>,
    /// The block of an experiment that it belongs to.
    pub block: Option<Arc<Running>>,
}

impl Balancing {
    /// That of a configuration.
    fn configured(conf: &model::Upstream) -> Arc<Balancing> {
        Arc::new(Balancing { balance: conf.balance.clone(), chosen: None, block: None })
    }

    /// The method that was chosen at run time, or that of the configuration, in a block of an experiment or outside.
    ///
    /// # Errors
    /// It does not suit the upstream with its own servers. Those of names and sources come and go, and a configuration is
    /// not checked with them either.
    pub fn of(
        conf: &model::Upstream,
        protocol: Protocol,
        changed: &Changed,
        block: Option<Arc<Running>>,
    ) -> Result<Arc<Balancing>, String> {
        let chosen = changed.method_in_use();
        let balance = match chosen {
            Some(text) => method(text, protocol, conf, changed.servers())?,
            None => conf.balance.clone(),
        };
        Ok(Arc::new(Balancing { balance, chosen: chosen.map(str::to_owned), block }))
    }

    fn spec(&self) -> &Spec {
        &self.balance.spec
    }
}

/// A method that is written at run time, or for an experiment in the configuration.
///
/// # Errors
/// What is wrong with it.
pub fn method(
    text: &str,
    protocol: Protocol,
    conf: &model::Upstream,
    servers: &[UpstreamServer],
) -> Result<model::Balance, String> {
    match conf.experiment.as_ref().and_then(|experiment| experiment.arm(text)) {
        Some(arm) => Ok(arm.balance.clone()),
        None => read_method(text, protocol, conf, servers),
    }
}

/// Servers of which one is looked for, shared by all who look.
pub type Present = Arc<FxHashSet<ServerId>>;

/// The servers of an upstream at one time.
pub struct Membership {
    /// As configured, or as changed since.
    pub servers: Vec<UpstreamServer>,
    /// Who they are.
    pub ids: Vec<ServerId>,
    /// The same, for a look whether one is among them.
    pub present: Present,
    /// What checks have found out about them.
    pub health: Vec<Arc<Health>>,
    /// Their state, and the tables of the algorithm.
    pub fleet: Arc<Fleet>,
    /// How one of them is chosen.
    pub balancing: Arc<Balancing>,
    /// `shadow`.
    pub shadows: Vec<Beside>,
    /// `sticky`.
    pub affinity: Option<Arc<Affinity>>,
    /// `outlier`.
    pub outliers: Option<Arc<Outliers>>,
    /// Those of the membership before, until this one is in use.
    outliers_before: Option<Arc<Outliers>>,
    /// `concurrency`, and that of the membership before.
    pub concurrency: Option<Arc<Concurrency>>,
    concurrency_before: Option<Arc<Concurrency>>,
    /// How many servers a request may try.
    pub tries: u32,
}

impl Membership {
    fn new(
        conf: &model::Upstream,
        protocol: Protocol,
        list: Vec<UpstreamServer>,
        balancing: Arc<Balancing>,
        before: Option<&Membership>,
        same_fleet: bool,
        servers: &mut Servers,
    ) -> anyhow::Result<Membership> {
        let known = servers.of(protocol, &conf.name, &list, before.is_some());
        let specs = list.iter().map(server_spec).zip(known.iter().map(|known| Arc::clone(&known.state))).collect();
        let group = |group: &model::Group| Group { priority: group.priority, max_conns: group.max_conns };
        let groups: Vec<Group> = conf.groups.iter().map(group).collect();
        let fleet = match before {
            Some(before) if same_fleet => Ok(Arc::clone(&before.fleet)),
            Some(before) => before.fleet.next(balancing.spec(), specs, &groups).map(Arc::new),
            None => Fleet::with_groups(balancing.spec(), specs, &groups).map(Arc::new),
        };
        let fleet = fleet.with_context(|| format!("in upstream \"{}\"", conf.name))?;
        let shadows_before = before.map_or(&[][..], |before| &before.shadows);
        let shadows = Beside::all(conf, &fleet, shadows_before, same_fleet)?;
        let affinity = Affinity::new(conf, &list, before.and_then(|before| before.affinity.as_deref()));
        let outliers_before = before.and_then(|before| before.outliers.clone());
        let outliers = conf.overload.outlier.as_ref();
        let outliers = outliers.map(|outlier| Outliers::new(outlier, &fleet, outliers_before.as_deref()));
        let concurrency_before = before.and_then(|before| before.concurrency.clone());
        let concurrency = conf.overload.concurrency.as_ref();
        let concurrency = concurrency.map(|it| Concurrency::new(it, &fleet, concurrency_before.as_deref()));
        let ids: Vec<ServerId> = known.iter().map(|known| known.id).collect();
        Ok(Membership {
            tries: list.iter().filter(|server| !server.down).count() as u32,
            present: Arc::new(ids.iter().copied().collect()),
            ids,
            health: known.into_iter().map(|known| known.health).collect(),
            fleet,
            balancing,
            shadows,
            affinity: affinity.map(Arc::new),
            outliers: outliers.map(Arc::new),
            outliers_before,
            concurrency: concurrency.map(Arc::new),
            concurrency_before,
            servers: list,
        })
    }

    /// Whether one of its servers is set down.
    pub fn is_down(&self, id: ServerId) -> bool {
        self.ids.iter().zip(&self.servers).any(|(known, server)| *known == id && server.down)
    }

    /// Its servers are in use, whatever was said about them when they left earlier. Those that no check knows begin as the
    /// checks want it.
    fn open(&self, checks: &[Checked], reloaded: bool) {
        if let Some(before) = &self.outliers_before {
            before.retire(self.outliers.as_deref());
        }
        if let Some(outliers) = &self.outliers {
            outliers.begin();
        }
        if let Some(before) = &self.concurrency_before {
            before.retire(self.concurrency.as_deref());
        }
        if let Some(concurrency) = &self.concurrency {
            concurrency.begin();
        }
        for (member, health) in self.fleet.members().zip(&self.health) {
            let state = self.fleet.state(member);
            health.begin(state, checks, reloaded);
            state.set_down_by(Authority::Membership, false);
        }
    }

    /// Closes its servers that are not in `next`, also for requests that began with them.
    fn close_all_but(&self, next: &Membership) {
        for (id, member) in self.ids.iter().zip(self.fleet.members()) {
            if !next.present.contains(id) {
                self.fleet.state(member).set_down_by(Authority::Membership, true);
            }
        }
    }
}

/// The servers of an upstream now.
pub type Newest = Arc<ArcSwap<Membership>>;

/// An upstream with what its workers share.
pub struct Shared {
    /// Its configuration.
    pub conf: Arc<model::Upstream>,
    /// Where it is.
    pub protocol: Protocol,
    /// `queue`; all configurations have the same.
    pub queue: Option<Arc<Queue>>,
    /// The last choices of its servers; all configurations have the same.
    pub picks: Arc<Picks>,
    /// `retry_budget`, with its parameters.
    budget: Option<(Settings, Arc<RetryBudget>)>,
    /// `hedge`, with its parameters.
    hedge: Option<(Settings, Arc<Hedge>)>,
    membership: Newest,
    /// Servers at earlier times that requests or workers may still use. They are freed by the next change: a worker that
    /// is the last to leave thousands of them would keep its requests waiting.
    left: Mutex<Vec<Arc<Membership>>>,
}

impl Shared {
    /// The upstreams of a configuration with the changes made at run time and the servers of names and sources. One whose
    /// servers and algorithm are the same as `before` keeps its fleet, and so its position in the round robin. If the
    /// algorithm refuses what sources have now, it keeps what `changes` has of them, which is what is used from now on.
    ///
    /// # Errors
    /// An algorithm that refuses its servers.
    pub fn all(
        upstreams: &[Arc<model::Upstream>],
        protocol: Protocol,
        changes: &mut Changes,
        outside: &Outside<'_>,
        before: &[Shared],
        servers: &mut Servers,
    ) -> anyhow::Result<Vec<Shared>> {
        let new = |conf: &Arc<model::Upstream>| {
            let key = (protocol, conf.name.clone());
            let mut changed = changes.get(&key).cloned().unwrap_or_else(|| Changed::new(&conf.servers));
            let before = before.iter().find(|before| before.conf.name == conf.name);
            let block = before.and_then(|before| before.membership().balancing.block.clone());
            let block = block.filter(|_| changed.arm().is_some());
            let balancing = Balancing::of(conf, protocol, &changed, block);
            let balancing = balancing.unwrap_or_else(|_| Balancing::configured(conf));
            let mut with = |found: &[Found]| {
                let list = outside.behind(changed.servers(), protocol, conf, found);
                let same = before.is_some_and(|before| before.has_fleet_of(conf, &balancing, &list));
                let before = before.map(Shared::membership);
                Membership::new(conf, protocol, list, Arc::clone(&balancing), before.as_deref(), same, servers)
            };
            let mut found = outside.found(protocol, conf);
            let mut membership = with(&found);
            if membership.is_err() && found != changed.found() {
                found = changed.found().to_vec();
                membership = with(&found);
            }
            // Nothing serves with them yet.
            if membership.is_err() && !found.is_empty() && before.is_none() {
                found.clear();
                membership = with(&found);
            }
            let membership = membership?;
            changed.set_found(found);
            model::membership::keep(changes, key, changed);
            let queue = before.and_then(|before| before.queue.clone());
            let queue = conf.queue.map(|_| queue.unwrap_or_default());
            let picks = before.map(|before| Arc::clone(&before.picks)).unwrap_or_default();
            let budget = before.and_then(|before| before.budget.as_ref());
            let budget = kept_or_new(conf.overload.retry_budget.as_ref(), budget, RetryBudget::new);
            let hedge = before.and_then(|before| before.hedge.as_ref());
            let hedge = kept_or_new(conf.overload.hedge.as_ref(), hedge, Hedge::new);
            Ok(Shared {
                conf: Arc::clone(conf),
                protocol,
                queue,
                picks,
                budget,
                hedge,
                membership: Arc::new(ArcSwap::from_pointee(membership)),
                left: Mutex::default(),
            })
        };
        upstreams.iter().map(new).collect()
    }

    /// Whether its fleet suits another configuration.
    fn has_fleet_of(&self, conf: &model::Upstream, balancing: &Balancing, list: &[UpstreamServer]) -> bool {
        let mine = self.membership.load();
        let spec = |balancing: &Balancing| format!("{:?}", balancing.spec());
        self.conf.groups == conf.groups && spec(&mine.balancing) == spec(balancing) && mine.servers == list
    }

    /// `retry_budget`.
    pub fn retry_budget(&self) -> Option<&Arc<RetryBudget>> {
        self.budget.as_ref().map(|(_, budget)| budget)
    }

    /// `hedge`.
    pub fn hedge(&self) -> Option<&Arc<Hedge>> {
        self.hedge.as_ref().map(|(_, hedge)| hedge)
    }

    /// The servers now.
    pub fn membership(&self) -> Arc<Membership> {
        self.membership.load_full()
    }

    /// Where its servers are found from now on.
    pub fn newest(&self) -> Newest {
        Arc::clone(&self.membership)
    }

    /// Works out another list of servers.
    ///
    /// # Errors
    /// The algorithm refuses them.
    pub fn prepare(&self, list: Vec<UpstreamServer>, servers: &mut Servers) -> anyhow::Result<Arc<Membership>> {
        let balancing = Arc::clone(&self.membership().balancing);
        self.prepare_with(list, balancing, servers)
    }

    /// How one of these servers is chosen after a change.
    ///
    /// # Errors
    /// A method that does not suit the upstream.
    pub fn balancing(&self, changed: &Changed) -> Result<Arc<Balancing>, String> {
        let now = Arc::clone(&self.membership().balancing);
        match now.chosen.as_deref() == changed.method_in_use() {
            true => Ok(now),
            false => Balancing::of(&self.conf, self.protocol, changed, now.block.clone()),
        }
    }

    /// Works out another list of servers, or another way to choose one of them.
    ///
    /// # Errors
    /// The algorithm refuses them.
    pub fn prepare_with(
        &self,
        list: Vec<UpstreamServer>,
        balancing: Arc<Balancing>,
        servers: &mut Servers,
    ) -> anyhow::Result<Arc<Membership>> {
        let before = self.membership();
        Ok(Arc::new(Membership::new(&self.conf, self.protocol, list, balancing, Some(&before), false, servers)?))
    }

    /// Opens its servers; `reloaded` if there was another configuration before.
    pub fn open(&self, reloaded: bool) {
        self.membership().open(&self.conf.checks, reloaded);
    }

    /// Uses these servers from now on.
    pub fn replace(&self, membership: Arc<Membership>) {
        membership.open(&self.conf.checks, false);
        let before = self.membership.swap(Arc::clone(&membership));
        before.close_all_but(&membership);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|membership| Arc::strong_count(membership) > 1);
        left.push(before);
    }
}

/// What belongs to a directive: that of the configuration before, if its parameters are the same.
fn kept_or_new<T>(
    settings: Option<&Settings>,
    before: Option<&(Settings, Arc<T>)>,
    new: impl Fn(&Settings) -> T,
) -> Option<(Settings, Arc<T>)> {
    let settings = settings?;
    let same = before.filter(|(before, _)| before == settings);
    Some(same.cloned().unwrap_or_else(|| (settings.clone(), Arc::new(new(settings)))))
}

fn server_spec(server: &UpstreamServer) -> ServerSpec {
    ServerSpec {
        name: server.name.as_str().into(),
        weight: server.weight,
        max_conns: server.max_conns,
        max_fails: server.max_fails,
        fail_timeout: clock::nanos(server.fail_timeout),
        slow_start: clock::nanos(server.slow_start),
        soft_max_conns: server.soft_max_conns,
        priority: server.priority,
        backup: server.backup,
        down: server.down,
        draining: server.draining,
    }
}
