//! A configuration in operation: the state that its workers share, and the state of each worker.

mod listeners;
pub mod plan;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use balanza_balancing::Start;
use balanza_config::model::membership::{Changes, Protocol};
use balanza_config::model::{self, AccessLog, Config, ExplainedPicks};
use balanza_net::clock;

pub use self::listeners::{Listener, Listeners};
use self::plan::Plan;
use crate::access_log::AccessLogs;
use crate::certificates;
use crate::desk::Desk;
use crate::discovery::Discoveries;
use crate::keyval::Keyvals;
use crate::limits::Zones;
use crate::log::LogFiles;
use crate::log::error::ErrorWriter;
use crate::metrics::{ConnectionMetrics, Connections, Registry, ServerMetrics, ZoneMetrics};
use crate::names::Names;
use crate::outside::Outside;
use crate::servers::group::{Upstream, Viewer};
use crate::servers::membership::{ServerId, Servers, Shared};
use crate::traces::{Exporter, Tracer};

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
    /// The zones of `limit_req` and `limit_conn`.
    pub limits: Arc<Zones>,
    /// The zones of `keyval`.
    pub keyvals: Arc<Keyvals>,
    /// What sends spans of requests to a collector.
    pub exporter: Option<Arc<Exporter>>,
    /// Open log files.
    pub logs: LogFiles,
    /// What the workers count; all generations have the same.
    pub metrics: Arc<Metrics>,
    /// What resolves names; all generations have the same.
    pub names: Arc<Names>,
    /// What follows sources of servers; all generations have the same.
    pub discoveries: Arc<Discoveries>,
    /// Takes questions about all workers; all generations have the same.
    pub desk: Arc<Desk>,
    /// When it was loaded.
    pub loaded: SystemTime,
}

/// What the workers count.
#[derive(Default)]
pub struct Metrics {
    /// Connections of clients.
    pub connections: Registry<(), ConnectionMetrics>,
    /// Requests and sessions, by the zone's name.
    pub zones: Registry<(Protocol, String), ZoneMetrics>,
    /// Requests, by the zone of their location.
    pub locations: Registry<String, ZoneMetrics>,
    /// Attempts, by server.
    pub servers: Arc<Registry<ServerId, ServerMetrics>>,
}

impl Generation {
    /// Prepares a configuration with the changes made at run time. Upstreams whose servers are the same keep their fleet,
    /// and so their position in the round robin.
    ///
    /// # Errors
    /// An algorithm that refuses its servers, or a limit's zone with another key than before.
    pub fn new(
        config: Arc<Config>,
        changes: &mut Changes,
        outside: &Outside<'_>,
        logs: LogFiles,
        servers: &mut Servers,
        previous: Option<&Generation>,
    ) -> anyhow::Result<Generation> {
        let limits = Arc::new(Zones::new(&config, previous.map(|previous| &*previous.limits))?);
        let before = |which: fn(&Generation) -> &Vec<Shared>| previous.map_or(&[][..], |previous| which(previous));
        let of_http = before(|previous| &previous.http);
        let http = Shared::all(&config.http.upstreams, Protocol::Http, changes, outside, of_http, servers)?;
        let of_stream = before(|previous| &previous.stream);
        let stream = Shared::all(&config.stream.upstreams, Protocol::Stream, changes, outside, of_stream, servers)?;
        http.iter().chain(&stream).for_each(|upstream| upstream.open(previous.is_some()));
        servers.keep_used();
        servers.keep_upstreams(|protocol, name| {
            let upstreams = if protocol == Protocol::Http { &http } else { &stream };
            upstreams.iter().any(|upstream| upstream.conf.name == name)
        });
        let (number, metrics, desk) = match previous {
            Some(previous) => (previous.number + 1, Arc::clone(&previous.metrics), Arc::clone(&previous.desk)),
            None => (1, Arc::default(), Arc::default()),
        };
        let keyvals = Arc::new(Keyvals::new(&config, previous.map(|previous| &*previous.keyvals)));
        let (names, discoveries) = (Arc::clone(outside.names), Arc::clone(outside.discoveries));
        let errors = ErrorWriter::new(&config.core.error_log, &logs);
        let exporter = previous.and_then(|previous| previous.exporter.as_ref());
        let exporter = Exporter::of(config.http.exporter.as_ref(), exporter, errors)?;
        // The status of certificates that stay is shown at once.
        for stapling in &config.staplings {
            let before = previous.iter().flat_map(|previous| &previous.config.staplings);
            before.for_each(|known| stapling.staple.continue_from(&known.staple));
        }
        let loaded = SystemTime::now();
        Ok(Generation {
            number,
            config,
            http,
            stream,
            limits,
            keyvals,
            exporter,
            logs,
            metrics,
            names,
            discoveries,
            desk,
            loaded,
        })
    }

    /// What finds servers outside the configuration.
    pub fn outside(&self) -> Outside<'_> {
        Outside { names: &self.names, discoveries: &self.discoveries }
    }

    /// Forgets the counters of what neither this configuration nor a request has any more.
    pub fn tidy_metrics(&self) {
        let has_zone = |(protocol, name): &(Protocol, String)| match protocol {
            Protocol::Http => self.config.http.status_zones.contains(name),
            Protocol::Stream => self.config.stream.status_zones.contains(name),
        };
        self.metrics.zones.tidy(has_zone);
        self.metrics.locations.tidy(|name| self.config.http.location_zones.contains(name));
        let servers: HashSet<ServerId> = self.upstreams().flat_map(|shared| shared.membership().ids.clone()).collect();
        self.metrics.servers.tidy(|id| servers.contains(id));
        self.metrics.connections.tidy(|()| true);
    }

    /// All upstreams.
    pub fn upstreams(&self) -> impl Iterator<Item = &Shared> {
        self.http.iter().chain(&self.stream)
    }

    /// The upstream of this name.
    pub fn upstream(&self, protocol: Protocol, name: &str) -> Option<&Shared> {
        self.upstreams().find(|upstream| upstream.protocol == protocol && upstream.conf.name == name)
    }
}

/// A configuration as one worker runs it.
pub struct RunningConfig {
    /// Which generation.
    pub number: u64,
    /// The configuration.
    pub config: Arc<Config>,
    /// By `Config.http.upstreams`.
    pub upstreams: Vec<Rc<Upstream>>,
    /// By `Config.stream.upstreams`.
    pub stream_upstreams: Vec<Rc<Upstream>>,
    /// The zones of `limit_req` and `limit_conn`.
    pub limits: Arc<Zones>,
    /// The zones of `keyval`.
    pub keyvals: Arc<Keyvals>,
    /// Takes the spans of requests.
    pub tracer: Option<Rc<Tracer>>,
    metrics: Arc<Metrics>,
    access_logs: AccessLogs,
    logs: LogFiles,
    errors: ErrorWriter,
    /// What resolves names.
    pub names: Arc<Names>,
    /// Takes questions about all workers.
    pub desk: Arc<Desk>,
    plans: RefCell<Vec<Option<Rc<Plan>>>>,
    /// By `Config.certificate_caches`.
    pub certificates: Vec<RefCell<certificates::Cache>>,
    /// By `Config.http.status_zones`.
    pub zones: Vec<Arc<ZoneMetrics>>,
    /// By `Config.http.location_zones`.
    pub location_zones: Vec<Arc<ZoneMetrics>>,
    /// By `Config.stream.status_zones`.
    pub stream_zones: Vec<Arc<ZoneMetrics>>,
}

impl RunningConfig {
    /// What health checks see of a generation: no upstreams, and nothing that counts requests.
    pub fn for_checks(generation: &Generation) -> RunningConfig {
        RunningConfig {
            number: generation.number,
            config: Arc::clone(&generation.config),
            upstreams: Vec::new(),
            stream_upstreams: Vec::new(),
            limits: Arc::clone(&generation.limits),
            keyvals: Arc::clone(&generation.keyvals),
            tracer: None,
            metrics: Arc::clone(&generation.metrics),
            access_logs: AccessLogs::new(std::iter::empty(), &generation.logs, None),
            errors: ErrorWriter::new(&generation.config.core.error_log, &generation.logs),
            logs: generation.logs.clone(),
            names: Arc::clone(&generation.names),
            desk: Arc::clone(&generation.desk),
            plans: RefCell::default(),
            certificates: Vec::new(),
            zones: Vec::new(),
            location_zones: Vec::new(),
            stream_zones: Vec::new(),
        }
    }

    /// Sets up a worker's part of a generation, with the unchanged parts of the previous one.
    pub fn new(
        generation: &Generation,
        previous: Option<&RunningConfig>,
        start: Start,
        seed: u64,
        serial: u64,
    ) -> RunningConfig {
        let config = &generation.config;
        let errors = ErrorWriter::new(&config.core.error_log, &generation.logs);
        let metrics = Arc::clone(&generation.metrics.servers);
        let samples = config.http.is_controlled;
        let viewer = Viewer { start, seed: seed ^ generation.number, serial, samples, metrics };
        let upstreams = |shared: &[Shared], before: &[Rc<Upstream>], explains: ExplainedPicks| -> Vec<Rc<Upstream>> {
            let take = |shared: &Shared| {
                let before = before.iter().find(|before| before.conf.name == shared.conf.name);
                Rc::new(Upstream::new(shared, before, explains, &errors, &viewer))
            };
            shared.iter().map(take).collect()
        };
        let (http, stream) = (&config.http, &config.stream);
        let zones = |protocol: Protocol, names: &[String]| {
            let zone = |name: &String| generation.metrics.zones.of(&(protocol, name.clone()), serial);
            names.iter().map(zone).collect()
        };
        let before = previous.map_or(&[][..], |running| &running.upstreams[..]);
        let of_http = upstreams(&generation.http, before, http.explains_picks);
        let before = previous.map_or(&[][..], |running| &running.stream_upstreams[..]);
        let of_stream = upstreams(&generation.stream, before, stream.explains_picks);
        let files: BTreeSet<_> = http.access_log_files.iter().chain(&stream.access_log_files).collect();
        let kept = previous.map(|running| &running.access_logs);
        let access_logs = AccessLogs::new(files.into_iter(), &generation.logs, kept);
        RunningConfig {
            number: generation.number,
            config: Arc::clone(config),
            upstreams: of_http,
            stream_upstreams: of_stream,
            limits: Arc::clone(&generation.limits),
            keyvals: Arc::clone(&generation.keyvals),
            tracer: generation.exporter.as_deref().and_then(Tracer::new),
            metrics: Arc::clone(&generation.metrics),
            access_logs,
            errors,
            logs: generation.logs.clone(),
            names: Arc::clone(&generation.names),
            plans: RefCell::default(),
            certificates: config.certificate_caches.iter().map(|conf| certificates::Cache::new(conf).into()).collect(),
            zones: zones(Protocol::Http, &http.status_zones),
            location_zones: http
                .location_zones
                .iter()
                .map(|name| generation.metrics.locations.of(name, serial))
                .collect(),
            desk: Arc::clone(&generation.desk),
            stream_zones: zones(Protocol::Stream, &stream.status_zones),
        }
    }

    fn all_upstreams(&self) -> impl Iterator<Item = &Rc<Upstream>> {
        self.upstreams.iter().chain(&self.stream_upstreams)
    }

    /// The connections of all workers. This takes a lock that the workers share: only requests that show the numbers do it.
    pub fn connections(&self) -> Connections {
        self.metrics.connections.sum(&())
    }

    /// The plan of a `proxy_pass`, worked out when it is first used.
    pub fn plan(&self, id: usize, location: &model::Location) -> Rc<Plan> {
        let mut plans = self.plans.borrow_mut();
        if plans.len() <= id {
            plans.resize(id + 1, None);
        }
        Rc::clone(plans[id].get_or_insert_with(|| Rc::new(Plan::new(location))))
    }

    fn upstream(&self, protocol: Protocol, name: &str) -> Option<&Rc<Upstream>> {
        let upstreams = match protocol {
            Protocol::Http => &self.upstreams,
            Protocol::Stream => &self.stream_upstreams,
        };
        upstreams.iter().find(|upstream| upstream.conf.name == name)
    }

    /// Takes over a change of an upstream's servers.
    pub fn adopt(&self, shared: &Shared) {
        if let Some(upstream) = self.upstream(shared.protocol, &shared.conf.name) {
            upstream.adopt(shared);
        }
    }

    /// Closes the connections to a server, whatever they are used for.
    pub fn hang_up(&self, protocol: Protocol, upstream: &str, server: ServerId) {
        if let Some(upstream) = self.upstream(protocol, upstream) {
            upstream.open.hang_up(server);
        }
    }

    /// Closes what the next configuration has not taken over: idle connections, programs that choose, probes. Spans that wait
    /// are sent.
    pub fn leave_to(&self, next: &RunningConfig) {
        self.flush_spans();
        let leave = |mine: &[Rc<Upstream>], theirs: &[Rc<Upstream>]| {
            for upstream in mine {
                let successor = theirs.iter().find(|next| next.conf.name == upstream.conf.name);
                upstream.leave_to(successor.map(Rc::as_ref));
            }
        };
        leave(&self.upstreams, &next.upstreams);
        leave(&self.stream_upstreams, &next.stream_upstreams);
    }

    /// Writes a composed line to an access log; `path` is that of a log whose path has variables.
    pub fn write_access_log(&self, log: &AccessLog, line: &[u8], path: &[u8]) {
        self.access_logs.write(log, line, path, &self.errors);
    }

    /// Sends the spans that wait for others.
    pub fn flush_spans(&self) {
        if let Some(tracer) = &self.tracer {
            tracer.flush();
        }
    }

    /// Writes what the access logs have buffered.
    pub fn flush_access_logs(&self) {
        self.access_logs.flush();
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
        self.all_upstreams().any(|upstream| {
            upstream.idle.borrow_mut().close_oldest() || upstream.multiplexed.borrow_mut().close_oldest()
        })
    }

    /// Closes connections to servers that were idle for too long or were closed by the server.
    pub fn sweep_idle_connections(&self) {
        for upstream in self.all_upstreams() {
            upstream.idle.borrow_mut().sweep(clock::now());
            upstream.multiplexed.borrow_mut().sweep(clock::now());
            if let Some(bound) = &upstream.bound {
                bound.sweep();
            }
            if let Some(prober) = &*upstream.prober.borrow() {
                prober.sweep(clock::now());
            }
        }
    }
}
