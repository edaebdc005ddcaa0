//! A configuration in operation: what its workers share, and what each of them adds.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context as _;
use balanza_balancing::{Cell as ServerCell, Driver, Fleet, Group, ServerSpec, Start};
use balanza_config::model::{self, Config, ListenAddress, ServerAddress};

use crate::clock;
use crate::log::LogFiles;
use crate::log::access::AccessWriter;
use crate::log::error::ErrorWriter;
use crate::upstream::external::External;
use crate::upstream::feedback::Feedback;
use crate::upstream::plan::Plan;
use crate::upstream::pool::IdlePool;
use crate::upstream::probe::Prober;
use crate::upstream::sticky::Bonds;

/// The state of every server that a configuration has named, by upstream and address: it outlives configurations,
/// so that a reload forgets nothing.
#[derive(Default)]
pub struct Cells {
    by_server: HashMap<(String, ServerAddress, usize), Arc<ServerCell>>,
}

impl Cells {
    /// The cells of an upstream's servers, in order; new ones for new servers, which start slowly where others are
    /// at work.
    fn of(&mut self, upstream: &model::Upstream, at_work: bool) -> Vec<Arc<ServerCell>> {
        let mut seen: HashMap<&ServerAddress, usize> = HashMap::new();
        upstream
            .servers
            .iter()
            .map(|server| {
                let nth = seen.entry(&server.address).and_modify(|nth| *nth += 1).or_insert(0);
                let key = (upstream.name.clone(), server.address.clone(), *nth);
                let new = || {
                    let cell = ServerCell::new();
                    if at_work {
                        cell.warm_up(clock::now());
                    }
                    Arc::new(cell)
                };
                Arc::clone(self.by_server.entry(key).or_insert_with(new))
            })
            .collect()
    }

    /// Forgets servers that only the past knew.
    fn keep_used(&mut self) {
        self.by_server.retain(|_, cell| Arc::strong_count(cell) > 1);
    }
}

/// One loaded configuration, shared by the workers.
pub struct Generation {
    /// Counts configurations; a connection compares it to see that there is a newer one.
    pub number: u64,
    /// The configuration.
    pub config: Arc<Config>,
    /// One fleet for each upstream.
    pub fleets: Vec<Arc<Fleet>>,
    /// What `sticky` of each upstream binds clients by.
    pub bonds: Vec<Option<Arc<Bonds>>>,
    /// Open log files.
    pub logs: LogFiles,
}

impl Generation {
    /// Prepares a configuration. Upstreams that have not changed keep their fleet, and so their place in the turn.
    ///
    /// # Errors
    /// An algorithm that refuses its servers.
    pub fn new(
        config: Arc<Config>,
        logs: LogFiles,
        cells: &mut Cells,
        previous: Option<&Generation>,
    ) -> anyhow::Result<Generation> {
        let mut fleets = Vec::with_capacity(config.http.upstreams.len());
        let mut bonds = Vec::with_capacity(config.http.upstreams.len());
        for upstream in &config.http.upstreams {
            let before = previous.and_then(|previous| previous.place_of(upstream));
            let bonds_before = previous.zip(before).and_then(|(previous, before)| previous.bonds[before].as_deref());
            bonds.push(Bonds::new(upstream, bonds_before).map(Arc::new));
            if let Some(fleet) = previous.and_then(|previous| previous.unchanged(upstream)) {
                fleets.push(fleet);
                continue;
            }
            let servers = upstream.servers.iter().map(server_spec).zip(cells.of(upstream, before.is_some())).collect();
            let group = |group: &model::Group| Group { priority: group.priority, max_conns: group.max_conns };
            let groups: Vec<Group> = upstream.groups.iter().map(group).collect();
            let fleet = Fleet::with_groups(&upstream.balance.spec, servers, &groups)
                .with_context(|| format!("in upstream \"{}\"", upstream.name))?;
            if let Some((previous, before)) = previous.zip(before) {
                fleet.remember(&previous.fleets[before]);
            }
            fleets.push(Arc::new(fleet));
        }
        cells.keep_used();
        Ok(Generation { number: previous.map_or(1, |previous| previous.number + 1), config, fleets, bonds, logs })
    }

    /// Where this configuration has an upstream of the same name.
    fn place_of(&self, upstream: &model::Upstream) -> Option<usize> {
        self.config.http.upstreams.iter().position(|mine| mine.name == upstream.name)
    }

    /// The fleet of an upstream that this configuration has in the very same form.
    fn unchanged(&self, upstream: &model::Upstream) -> Option<Arc<Fleet>> {
        let mine = self.place_of(upstream)?;
        same_fleet(&self.config.http.upstreams[mine], upstream).then(|| Arc::clone(&self.fleets[mine]))
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

/// An upstream as one worker sees it.
pub struct Upstream {
    /// Its configuration.
    pub conf: Arc<model::Upstream>,
    /// This worker's instance of the algorithm; outlives configurations that leave the servers as they are.
    pub driver: Rc<RefCell<Driver>>,
    /// Idle connections to its servers, which outlive them too.
    pub idle: Rc<RefCell<IdlePool>>,
    /// `no live upstreams` was logged and no server has answered since.
    pub unavailable_logged: Cell<bool>,
    /// The servers' addresses as `$upstream_addr` shows them.
    pub addresses: Vec<Rc<str>>,
    /// How many servers a request may be tried on.
    pub tries: u32,
    /// `sticky`.
    pub bonds: Option<Arc<Bonds>>,
    /// The program that chooses, with `balance external`.
    pub external: Option<Rc<External>>,
    /// Asks servers for what the algorithm wants to know.
    pub prober: Option<Rc<Prober>>,
    /// Servers report their load in a field of their responses.
    pub feedback: Option<Feedback>,
    /// Somebody asks for `$upstream_pick_reason`.
    pub explains: bool,
    fleet: Arc<Fleet>,
}

impl Upstream {
    /// The servers and their state.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }
}

/// An address as `$upstream_addr` shows it.
pub fn address_text(address: &ServerAddress) -> Rc<str> {
    match address {
        ServerAddress::Inet(address) => address.to_string().into(),
        ServerAddress::Unix(path) => format!("unix:{}", path.display()).into(),
    }
}

/// A configuration as one worker runs it.
pub struct Site {
    /// Which generation.
    pub number: u64,
    /// The configuration.
    pub config: Arc<Config>,
    /// By `Config.http.upstreams`.
    pub upstreams: Vec<Rc<Upstream>>,
    access: Vec<Rc<AccessWriter>>,
    logs: LogFiles,
    errors: ErrorWriter,
    plans: RefCell<Vec<Option<Rc<Plan>>>>,
}

impl Site {
    /// Sets up a worker's part of a generation; what remains of the previous one is taken over.
    pub fn new(generation: &Generation, previous: Option<&Site>, start: Start, seed: u64) -> Site {
        let config = &generation.config;
        let errors = ErrorWriter::new(&config.core.error_log, &generation.logs);
        let upstreams = config.http.upstreams.iter().zip(&generation.fleets).zip(&generation.bonds);
        let upstreams = upstreams.map(|((conf, fleet), bonds)| {
            let kept =
                previous.and_then(|site| site.upstreams.iter().find(|upstream| Arc::ptr_eq(&upstream.fleet, fleet)));
            let external = match kept {
                Some(kept) => kept.external.clone(),
                None => External::of(conf, &errors).map(Rc::new),
            };
            let (driver, idle) = match kept {
                Some(kept) => {
                    kept.idle.borrow_mut().set_keepalive(conf.keepalive);
                    (Rc::clone(&kept.driver), Rc::clone(&kept.idle))
                }
                None => {
                    let driver = Driver::new(Arc::clone(fleet), seed ^ generation.number, start);
                    let idle = IdlePool::new(conf.servers.len(), conf.keepalive);
                    (Rc::new(RefCell::new(driver)), Rc::new(RefCell::new(idle)))
                }
            };
            let prober = match kept {
                Some(kept) => kept.prober.clone(),
                None => Prober::of(conf, &driver.borrow(), &errors).map(Rc::new),
            };
            Rc::new(Upstream {
                conf: Arc::clone(conf),
                driver,
                idle,
                unavailable_logged: Cell::new(false),
                addresses: conf.servers.iter().map(|server| address_text(&server.address)).collect(),
                tries: conf.servers.iter().filter(|server| !server.down).count() as u32,
                bonds: bonds.clone(),
                external,
                prober,
                feedback: Feedback::of(conf),
                explains: config.http.explains_picks,
                fleet: Arc::clone(fleet),
            })
        });
        let access = config.http.access_log_files.iter().filter_map(|path| {
            let kept = previous.and_then(|site| site.access_writer(path));
            kept.cloned().or_else(|| Some(Rc::new(AccessWriter::new(Arc::clone(generation.logs.find(path)?)))))
        });
        Site {
            number: generation.number,
            config: Arc::clone(config),
            upstreams: upstreams.collect(),
            access: access.collect(),
            errors,
            logs: generation.logs.clone(),
            plans: RefCell::default(),
        }
    }

    /// The plan of a `proxy_pass`, worked out when it is first used.
    pub fn plan(&self, id: usize, location: &model::Location) -> Rc<Plan> {
        let mut plans = self.plans.borrow_mut();
        if plans.len() <= id {
            plans.resize(id + 1, None);
        }
        Rc::clone(plans[id].get_or_insert_with(|| Rc::new(Plan::new(location))))
    }

    /// Closes the idle connections to servers that the next configuration does not take over, and ends their programs.
    pub fn leave_to(&self, next: &Site) {
        for upstream in &self.upstreams {
            if !next.upstreams.iter().any(|taken| Rc::ptr_eq(&taken.idle, &upstream.idle)) {
                upstream.idle.borrow_mut().close();
                if let Some(external) = &upstream.external {
                    external.end();
                }
                if let Some(prober) = &upstream.prober {
                    prober.close();
                }
            }
        }
    }

    /// The writer of an access log.
    pub fn access_writer(&self, path: &std::path::Path) -> Option<&Rc<AccessWriter>> {
        self.access.iter().find(|writer| writer.path() == path)
    }

    /// Writes what the access logs have buffered.
    pub fn flush_access_logs(&self) {
        for writer in &self.access {
            writer.flush();
        }
    }

    /// The main error log.
    pub fn errors(&self) -> &ErrorWriter {
        &self.errors
    }

    /// The error log of a location, which may differ from the main one.
    pub fn errors_of(&self, settings: &model::Settings) -> ErrorWriter {
        ErrorWriter::new(&settings.error_log, &self.logs)
    }

    /// Closes connections to servers that were idle for too long or were closed by the server.
    pub fn sweep_idle_connections(&self) {
        for upstream in &self.upstreams {
            upstream.idle.borrow_mut().sweep(clock::now());
            if let Some(prober) = &upstream.prober {
                prober.sweep(clock::now());
            }
        }
    }
}

/// A listening socket of a worker.
pub struct Listener {
    /// The address, which finds its successor in the next configuration.
    pub address: ListenAddress,
    /// The configuration it belongs to.
    pub site: Rc<Site>,
    /// Index into `Config.http.listens`.
    pub index: usize,
}

impl Listener {
    /// Its part of the configuration.
    pub fn conf(&self) -> &model::Listen {
        &self.site.config.http.listens[self.index]
    }
}
