//! A configuration in operation: the state that its workers share, and the state of each worker.

mod shared;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::{Driver, Fleet, Start};
use balanza_config::model::{self, Config, ListenAddress, ServerAddress};
use balanza_net::clock;

pub use self::shared::{Cells, Shared};
use crate::log::LogFiles;
use crate::log::access::AccessWriter;
use crate::log::error::ErrorWriter;
use crate::upstream::external::External;
use crate::upstream::feedback::Feedback;
use crate::upstream::plan::Plan;
use crate::upstream::pool::IdlePool;
use crate::upstream::probe::Prober;
use crate::upstream::sticky::Bonds;

/// One loaded configuration, shared by the workers.
pub struct Generation {
    /// Counts configurations; a connection compares it to see that there is a newer one.
    pub number: u64,
    /// The configuration.
    pub config: Arc<Config>,
    /// The upstreams of `http`.
    pub http: Vec<Shared>,
    /// The upstreams of `stream`.
    pub stream: Vec<Shared>,
    /// Open log files.
    pub logs: LogFiles,
}

impl Generation {
    /// Prepares a configuration. Upstreams that have not changed keep their fleet, and so their position in the round
    /// robin.
    ///
    /// # Errors
    /// An algorithm that refuses its servers.
    pub fn new(
        config: Arc<Config>,
        logs: LogFiles,
        cells: &mut Cells,
        previous: Option<&Generation>,
    ) -> anyhow::Result<Generation> {
        let before = |which: fn(&Generation) -> &Vec<Shared>| previous.map_or(&[][..], |previous| which(previous));
        let http = Shared::all(&config.http.upstreams, before(|previous| &previous.http), cells.of_http())?;
        let stream = Shared::all(&config.stream.upstreams, before(|previous| &previous.stream), cells.of_stream())?;
        cells.keep_used();
        Ok(Generation { number: previous.map_or(1, |previous| previous.number + 1), config, http, stream, logs })
    }

    /// All upstreams.
    pub fn upstreams(&self) -> impl Iterator<Item = &Shared> {
        self.http.iter().chain(&self.stream)
    }
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
    /// How many servers a request may try.
    pub tries: u32,
    /// `sticky`.
    pub bonds: Option<Arc<Bonds>>,
    /// The program that chooses, with `balance external`.
    pub external: Option<Rc<External>>,
    /// Asks servers for what the algorithm wants to know.
    pub prober: Option<Rc<Prober>>,
    /// Servers report their load in a field of their responses.
    pub feedback: Option<Feedback>,
    /// `$upstream_pick_reason` is used.
    pub explains: bool,
    fleet: Arc<Fleet>,
}

impl Upstream {
    /// This worker's part of an upstream. What `kept` has, which is the same fleet under the configuration before, is
    /// taken over.
    fn new(
        shared: &Shared,
        kept: Option<&Rc<Upstream>>,
        explains: bool,
        errors: &ErrorWriter,
        driver: impl Fn(Arc<Fleet>) -> Driver,
    ) -> Upstream {
        let conf = &shared.conf;
        let external = match kept {
            Some(kept) => kept.external.clone(),
            None => External::of(conf, errors).map(Rc::new),
        };
        let (driver, idle) = match kept {
            Some(kept) => {
                kept.idle.borrow_mut().set_keepalive(conf.keepalive);
                (Rc::clone(&kept.driver), Rc::clone(&kept.idle))
            }
            None => {
                let idle = IdlePool::new(conf.servers.len(), conf.keepalive);
                (Rc::new(RefCell::new(driver(Arc::clone(&shared.fleet)))), Rc::new(RefCell::new(idle)))
            }
        };
        let prober = match kept {
            Some(kept) => kept.prober.clone(),
            None => Prober::of(conf, &driver.borrow(), errors).map(Rc::new),
        };
        Upstream {
            conf: Arc::clone(conf),
            driver,
            idle,
            unavailable_logged: Cell::new(false),
            addresses: conf.servers.iter().map(|server| address_text(&server.address)).collect(),
            tries: conf.servers.iter().filter(|server| !server.down).count() as u32,
            bonds: shared.bonds.clone(),
            external,
            prober,
            feedback: Feedback::of(conf),
            explains,
            fleet: Arc::clone(&shared.fleet),
        }
    }

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
    /// By `Config.stream.upstreams`.
    pub stream_upstreams: Vec<Rc<Upstream>>,
    access: Vec<Rc<AccessWriter>>,
    logs: LogFiles,
    errors: ErrorWriter,
    plans: RefCell<Vec<Option<Rc<Plan>>>>,
}

impl Site {
    /// Sets up a worker's part of a generation, with the unchanged parts of the previous one.
    pub fn new(generation: &Generation, previous: Option<&Site>, start: Start, seed: u64) -> Site {
        let config = &generation.config;
        let errors = ErrorWriter::new(&config.core.error_log, &generation.logs);
        let upstreams = |shared: &[Shared], explains: bool| -> Vec<Rc<Upstream>> {
            let take = |shared: &Shared| {
                let kept =
                    previous.and_then(|site| site.all_upstreams().find(|kept| Arc::ptr_eq(&kept.fleet, &shared.fleet)));
                Rc::new(Upstream::new(shared, kept, explains, &errors, |fleet| {
                    Driver::new(fleet, seed ^ generation.number, start)
                }))
            };
            shared.iter().map(take).collect()
        };
        let (http, stream) = (&config.http, &config.stream);
        let of_http = upstreams(&generation.http, http.explains_picks);
        let of_stream = upstreams(&generation.stream, stream.explains_picks);
        let files: BTreeSet<_> = http.access_log_files.iter().chain(&stream.access_log_files).collect();
        let access = files.into_iter().filter_map(|path| {
            let kept = previous.and_then(|site| site.access_writer(path));
            kept.cloned().or_else(|| Some(Rc::new(AccessWriter::new(Arc::clone(generation.logs.find(path)?)))))
        });
        Site {
            number: generation.number,
            config: Arc::clone(config),
            upstreams: of_http,
            stream_upstreams: of_stream,
            access: access.collect(),
            errors,
            logs: generation.logs.clone(),
            plans: RefCell::default(),
        }
    }

    fn all_upstreams(&self) -> impl Iterator<Item = &Rc<Upstream>> {
        self.upstreams.iter().chain(&self.stream_upstreams)
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
        for upstream in self.all_upstreams() {
            if !next.all_upstreams().any(|taken| Rc::ptr_eq(&taken.idle, &upstream.idle)) {
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
        // As bytes: comparing paths takes them apart.
        self.access.iter().find(|writer| writer.path().as_os_str() == path.as_os_str())
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

    /// The error log of a location or a server, which may differ from the main one.
    pub fn errors_of(&self, directives: &[model::ErrorLog]) -> ErrorWriter {
        ErrorWriter::new(directives, &self.logs)
    }

    /// Closes a connection that is kept for later requests, because this process needs the place; false when there is none.
    pub fn close_idle_connection(&self) -> bool {
        self.all_upstreams().any(|upstream| upstream.idle.borrow_mut().close_oldest())
    }

    /// Closes connections to servers that were idle for too long or were closed by the server.
    pub fn sweep_idle_connections(&self) {
        for upstream in self.all_upstreams() {
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
