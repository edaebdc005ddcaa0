//! The state of upstreams that workers share.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context as _;
use balanza_balancing::{Cell, Fleet, Group, ServerSpec};
use balanza_config::model::{self, ServerAddress};
use balanza_net::clock;

use crate::upstream::sticky::Bonds;

/// The state of every server that a configuration has named, by upstream and address: it outlives configurations, so
/// that a reload keeps it.
#[derive(Default)]
pub struct Cells {
    http: Known,
    stream: Known,
}

impl Cells {
    /// Those of `http`.
    pub fn of_http(&mut self) -> &mut Known {
        &mut self.http
    }

    /// Those of `stream`, where an upstream of the same name is another one.
    pub fn of_stream(&mut self) -> &mut Known {
        &mut self.stream
    }

    /// Removes servers that are in no configuration any more.
    pub fn keep_used(&mut self) {
        self.http.keep_used();
        self.stream.keep_used();
    }
}

/// Those of one protocol.
#[derive(Default)]
pub struct Known {
    by_server: HashMap<(String, ServerAddress, usize), Arc<Cell>>,
}

impl Known {
    /// The cells of an upstream's servers, in order; new ones for new servers, with slow start if the upstream already
    /// has others.
    fn of(&mut self, upstream: &model::Upstream, at_work: bool) -> Vec<Arc<Cell>> {
        let mut seen: HashMap<&ServerAddress, usize> = HashMap::new();
        upstream
            .servers
            .iter()
            .map(|server| {
                let nth = seen.entry(&server.address).and_modify(|nth| *nth += 1).or_insert(0);
                let key = (upstream.name.clone(), server.address.clone(), *nth);
                let new = || {
                    let cell = Cell::new();
                    if at_work {
                        cell.warm_up(clock::now());
                    }
                    Arc::new(cell)
                };
                Arc::clone(self.by_server.entry(key).or_insert_with(new))
            })
            .collect()
    }

    fn keep_used(&mut self) {
        self.by_server.retain(|_, cell| Arc::strong_count(cell) > 1);
    }
}

/// An upstream with what its workers share.
pub struct Shared {
    /// Its configuration.
    pub conf: Arc<model::Upstream>,
    /// The servers and the tables of the algorithm.
    pub fleet: Arc<Fleet>,
    /// The state of `sticky`.
    pub bonds: Option<Arc<Bonds>>,
}

impl Shared {
    /// The upstreams of a configuration. One that has not changed since `before` keeps its fleet, and so its position
    /// in the round robin.
    ///
    /// # Errors
    /// An algorithm that refuses its servers.
    pub fn all(
        upstreams: &[Arc<model::Upstream>],
        before: &[Shared],
        cells: &mut Known,
    ) -> anyhow::Result<Vec<Shared>> {
        upstreams.iter().map(|upstream| Shared::new(upstream, before, cells)).collect()
    }

    fn new(conf: &Arc<model::Upstream>, before: &[Shared], cells: &mut Known) -> anyhow::Result<Shared> {
        let before = before.iter().find(|before| before.conf.name == conf.name);
        let bonds = Bonds::new(conf, before.and_then(|before| before.bonds.as_deref())).map(Arc::new);
        let fleet = match before.filter(|before| same_fleet(&before.conf, conf)) {
            Some(before) => Arc::clone(&before.fleet),
            None => {
                let servers = conf.servers.iter().map(server_spec).zip(cells.of(conf, before.is_some())).collect();
                let group = |group: &model::Group| Group { priority: group.priority, max_conns: group.max_conns };
                let groups: Vec<Group> = conf.groups.iter().map(group).collect();
                let fleet = match before {
                    Some(before) => before.fleet.next(&conf.balance.spec, servers, &groups),
                    None => Fleet::with_groups(&conf.balance.spec, servers, &groups),
                };
                Arc::new(fleet.with_context(|| format!("in upstream \"{}\"", conf.name))?)
            }
        };
        Ok(Shared { conf: Arc::clone(conf), fleet, bonds })
    }
}

fn server_spec(server: &model::UpstreamServer) -> ServerSpec {
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

fn same_fleet(one: &model::Upstream, other: &model::Upstream) -> bool {
    let describe =
        |upstream: &model::Upstream| format!("{:?}{:?}{:?}", upstream.servers, upstream.groups, upstream.balance.spec);
    one.servers.len() == other.servers.len() && describe(one) == describe(other)
}
