//! Which sources are followed: those of the configuration, and those that are as before go on.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use balanza_config::model::Config;
use balanza_config::model::discover::{Discover, Source};
use balanza_config::model::membership::Found;
use balanza_net::event_loop::{self, TaskHandle};

use super::consul::Consul;
use super::docker::Docker;
use super::etcd::Etcd;
use super::kubernetes::Kubernetes;
use super::sink::{Place, Places, Sink};
use super::{Key, Shared, lock, task};
use crate::essential;
use crate::log::error::ErrorWriter;
use crate::source_condition::Condition;

/// Who follows sources.
pub struct Follower {
    shared: Arc<Shared>,
    groups: HashMap<Key, Group>,
}

/// The sources of an upstream.
struct Group {
    discovers: Vec<Discover>,
    tasks: Vec<TaskHandle>,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(TaskHandle::abort);
    }
}

impl Follower {
    /// Nothing is followed yet.
    pub fn new(shared: Arc<Shared>) -> Follower {
        Follower { shared, groups: HashMap::new() }
    }

    /// Follows the sources of this configuration and no others. Clones of `known` are dropped when a source that is new
    /// has been asked.
    pub fn follow(&mut self, config: &Config, log: &ErrorWriter, known: &mpsc::Sender<()>) {
        let mut before = std::mem::take(&mut self.groups);
        for (protocol, upstream) in config.upstreams().filter(|(_, upstream)| !upstream.discovers.is_empty()) {
            let key = (protocol, upstream.name.clone());
            let group = match before.remove(&key) {
                Some(old) if old.discovers == upstream.discovers => old,
                old => self.start(&key, upstream.discovers.clone(), old.as_ref(), log, known),
            };
            self.groups.insert(key, group);
        }
        lock(&self.shared.conditions).retain(|key, _| self.groups.contains_key(key));
    }

    /// Servers of a source that is as before stay until it answers again, also those that another process has found.
    fn start(
        &self,
        key: &Key,
        discovers: Vec<Discover>,
        old: Option<&Group>,
        log: &ErrorWriter,
        known: &mpsc::Sender<()>,
    ) -> Group {
        let before = lock(&self.shared.found).get(key).cloned().unwrap_or_default();
        let place = |discover: &Discover| {
            let source = discover.source.identity();
            let kept = before.iter().find(|found| found.source == source);
            Place { servers: kept.map(|found| found.servers.clone()), source }
        };
        let places: Places = Rc::new(RefCell::new(discovers.iter().map(place).collect()));
        self.expect(key, &discovers, &before);
        let is_known = |discover: &Discover| {
            old.is_some_and(|old| old.discovers.iter().any(|known| known.source == discover.source))
        };
        let mut tasks = Vec::new();
        for (index, discover) in discovers.iter().enumerate() {
            let known = (!is_known(discover)).then(|| known.clone());
            let shared = Arc::clone(&self.shared);
            let sink = Sink::new(key.clone(), index, discover, Rc::clone(&places), shared, log.clone(), known);
            let task: std::pin::Pin<Box<dyn Future<Output = ()>>> = match &discover.source {
                Source::Consul(consul) => Box::pin(task::run(Consul::new(consul.clone()), sink)),
                Source::Docker(docker) => Box::pin(task::run(Docker::new(docker.clone()), sink)),
                Source::Etcd(etcd) => Box::pin(task::run(Etcd::new(etcd.clone()), sink)),
                Source::Kubernetes(it) => Box::pin(task::run(Kubernetes::new(it.clone()), sink)),
            };
            tasks.push(event_loop::spawn(essential::task("the discovery of servers", task)));
        }
        Group { discovers, tasks }
    }

    /// These are the sources of an upstream. What is known of one that is as before stays known.
    fn expect(&self, key: &Key, discovers: &[Discover], found: &[Found]) {
        let mut all = lock(&self.shared.conditions);
        let mut before = all.remove(key).unwrap_or_default();
        let condition = |discover: &Discover| {
            let source = discover.source.identity();
            let servers = found.iter().find(|found| found.source == source).map_or(0, |found| found.servers.len());
            let new = || Condition { servers, ..Condition::new(discover.source.to_string()) };
            let condition = before.remove(&source).unwrap_or_else(new);
            (source, condition)
        };
        all.insert(key.clone(), discovers.iter().map(condition).collect());
    }
}
