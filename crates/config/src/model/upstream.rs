//! Upstreams: servers, how they are chosen, what is known of their load, and how sessions stay on them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use balanza_balancing::Group;
use balanza_balancing::overload::{Settings, find};
use serde::{Deserialize, Serialize};

use super::FirstSign;
use super::discover::Discover;
use super::experiment::Experiment;
use super::resolver::{ResolvedServer, Resolver};
use crate::template::Template;

/// An `upstream` block, or the group that an address in `proxy_pass` implies.
#[derive(Debug)]
pub struct Upstream {
    /// Its name; for an implied group the host and port as written.
    pub name: String,
    /// Implied by `proxy_pass`.
    pub implicit: bool,
    /// The servers, one for each address that a name resolves to, in order; backups among them.
    pub servers: Vec<UpstreamServer>,
    /// Servers with `resolve`; `servers` are the others.
    pub resolved: Vec<ResolvedServer>,
    /// What resolves them; none without such servers.
    pub resolver: Option<Arc<Resolver>>,
    /// `discover`: what has further servers.
    pub discovers: Vec<Discover>,
    /// The algorithm.
    pub balance: Balance,
    /// The directive that chooses it, as it is written.
    pub method: String,
    /// `shadow`: algorithms that run beside it; at most [`SHADOWS_MAX`].
    pub shadows: Vec<Shadow>,
    /// `experiment`: methods that take turns, and are compared.
    pub experiment: Option<Experiment>,
    /// `sticky`.
    pub sticky: Option<Sticky>,
    /// `priority NUMBER max_conns=…`: what the servers of one priority take together.
    pub groups: Vec<Group>,
    /// `load_report`, at most one of a kind.
    pub reports: Vec<LoadReport>,
    /// `zone NAME SIZE`: cells are shared between workers in any case; the name is for tools.
    pub zone: Option<String>,
    /// `queue`: requests that wait while no server can take them.
    pub queue: Option<QueueLimits>,
    /// `outlier`, `retry_budget`, `concurrency`, `hedge`: what keeps failing and slow servers from harming more than they must.
    pub overload: Overload,
    /// `state` or `server_list`: a file with servers.
    pub list: Option<ServerList>,
    /// What begins with the `health_check`s of its servers, in their order.
    pub checks: Vec<Checked>,
    /// `keepalive`, `keepalive_requests`, …
    pub keepalive: UpstreamKeepalive,
    /// `ntlm`: a connection over which a client has authenticated itself is for this client alone.
    pub ntlm: bool,
}

/// What keeps failing and slow servers from harming more than they must; none unless it is set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overload {
    /// `outlier`.
    pub outlier: Option<Settings>,
    /// `retry_budget`.
    pub retry_budget: Option<Settings>,
    /// `concurrency`.
    pub concurrency: Option<Settings>,
    /// `hedge`, which has a `retry_budget` in any case.
    pub hedge: Option<Settings>,
}

impl Overload {
    /// With what the directives need of each other.
    pub(crate) fn complete(mut self) -> Overload {
        if self.hedge.is_some() && self.retry_budget.is_none() {
            self.retry_budget = find("retry_budget").and_then(|budget| Settings::new(budget, &[]).ok());
        }
        self
    }
}

/// `queue NUMBER [timeout=TIME]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// How many requests may wait.
    pub length: usize,
    /// `timeout=` (60s): for how long each of them may.
    pub timeout: Duration,
}

/// A file that names servers and is watched. [`Upstream::servers`] has those that it named when the configuration was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerList {
    /// The file, absolute.
    pub path: PathBuf,
    /// `state`: changes of the servers are written to it.
    pub is_state: bool,
    /// How many of [`Upstream::servers`] come from the text of the configuration; they are in front.
    pub own: usize,
}

/// How the servers of an upstream begin that has a `health_check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// `mandatory`.
    pub mandatory: bool,
    /// `persistent`.
    pub persistent: bool,
}

/// One address of a `server` in an `upstream`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpstreamServer {
    /// The address as written ("app1.example.com:80" → "app1.example.com:80"): consistent hashing uses it.
    pub name: String,
    /// The name in the configuration, where `name` is one of the addresses that it has at the time.
    #[serde(default)]
    pub resolved_from: Option<String>,
    /// The resolved address.
    pub address: ServerAddress,
    /// `weight=` (1).
    pub weight: u32,
    /// `max_conns=` (0, unlimited).
    pub max_conns: u32,
    /// `soft_max_conns=` (0, none): from this number of requests on, new clients use other servers; returning clients
    /// still use it up to `max_conns`.
    pub soft_max_conns: u32,
    /// `max_fails=` (1; 0 never fails).
    pub max_fails: u32,
    /// `fail_timeout=` (10s).
    pub fail_timeout: Duration,
    /// `slow_start=` (0, none): how long a server that comes back takes to get its whole share.
    pub slow_start: Duration,
    /// `priority=` (0): groups are used in the order of their numbers, backups after all.
    pub priority: u32,
    /// `backup`.
    pub backup: bool,
    /// `down`.
    pub down: bool,
    /// `drain`: only clients bound to this server use it.
    pub draining: bool,
    /// `route=`: the name by which `sticky` knows it, instead of the hash of its address.
    pub route: Option<String>,
    /// `report=`: where it is asked for its load, instead of its own host.
    pub report: Option<ServerAddress>,
}

impl UpstreamServer {
    /// A server with NGINX's defaults.
    pub fn new(name: String, address: ServerAddress) -> UpstreamServer {
        UpstreamServer {
            name,
            resolved_from: None,
            address,
            weight: 1,
            max_conns: 0,
            soft_max_conns: 0,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            slow_start: Duration::ZERO,
            priority: 0,
            backup: false,
            down: false,
            draining: false,
            route: None,
            report: None,
        }
    }

    /// Its name, as the configuration has it.
    pub fn configured_name(&self) -> &str {
        self.resolved_from.as_ref().unwrap_or(&self.name)
    }
}

/// `sticky`: how a client is sent to the server that it was on.
#[derive(Debug, Clone)]
pub enum Sticky {
    /// `sticky cookie NAME …`: in a cookie that names the server.
    Cookie(StickyCookie),
    /// `sticky route $variable …`: the first variable that is not empty names the server.
    Route(Vec<Template>),
    /// `sticky learn …`: in a table of sessions, whose names come from the servers' answers.
    Learn(StickyLearn),
}

/// `sticky cookie`.
#[derive(Debug, Clone)]
pub struct StickyCookie {
    /// Its name.
    pub name: Box<[u8]>,
    /// `expires=`.
    pub expires: CookieExpires,
    /// `domain=`; without the attribute when it evaluates to "".
    pub domain: Option<Template>,
    /// `path=`.
    pub path: Option<Box<[u8]>>,
    /// `httponly`.
    pub httponly: bool,
    /// `secure`.
    pub secure: bool,
    /// `samesite=`: `strict`, `lax` or `none` in any case, or a text with variables; without the attribute when that
    /// evaluates to "", and `strict` when it evaluates to another word.
    pub samesite: Option<Template>,
}

/// How long a browser keeps a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieExpires {
    /// Until it is closed: the cookie has neither `expires` nor `max-age`.
    Session,
    /// For this time, in whole seconds.
    After(Duration),
    /// `max`: until 2037-12-31 23:55:55, `max-age` ten years.
    Max,
}

/// `sticky learn`.
#[derive(Debug, Clone)]
pub struct StickyLearn {
    /// `create=`: the first variable that is not empty names a new session.
    pub create: Vec<Template>,
    /// `lookup=`: the first variable that is not empty names a session that may be known.
    pub lookup: Vec<Template>,
    /// `zone=NAME:SIZE`: the table's name; no two upstreams have the same.
    pub zone: String,
    /// How many sessions the table holds: 128 bytes of the zone's size for each, as in NGINX.
    pub entries: usize,
    /// `timeout=` (10m): a session that is not used for so long is forgotten.
    pub timeout: Duration,
    /// `header`: a session begins with the response's head, not with its end.
    pub header: bool,
}

/// `load_report`: how the servers' load becomes known.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadReport {
    /// Where from.
    pub source: LoadSource,
    /// `interval=` (5s): between two questions.
    pub interval: Duration,
    /// `timeout=` (1s, and at most the interval): for an answer.
    pub timeout: Duration,
    /// `stale=` (3): a report holds for so many intervals, then balancing goes by connections again.
    pub stale: u32,
}

impl LoadReport {
    /// How long a report holds.
    pub fn max_age(&self) -> Duration {
        self.interval.saturating_mul(self.stale)
    }
}

/// Where reports of a server's load come from.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadSource {
    /// HAProxy's agent: a line of text over TCP.
    Agent {
        /// `port=`, on the server's own host.
        port: u16,
        /// `send=`: sent when connected; mostly nothing.
        send: Vec<u8>,
    },
    /// SNMP version 2c over UDP.
    Snmp {
        /// `port=` (161), on the server's own host.
        port: u16,
        /// `community=` (public).
        community: String,
        /// `oid=` (1.3.6.1.4.1.2021.10.1.3.1, the load of the last minute in UCD-SNMP-MIB).
        oid: Vec<u32>,
        /// `full=` (1): the value that stands for a server that is 100 % busy.
        full: f64,
    },
    /// A number in a field of each response. No server is asked: `interval` times `stale` is `stale_after=`.
    Header {
        /// The field's name as written.
        name: Box<[u8]>,
        /// `full=` (100): the value that stands for a server that is 100 % busy.
        full: f64,
    },
    /// A program that stays running.
    Program {
        /// The program and its arguments.
        argv: Vec<String>,
    },
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ServerAddress {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix-domain stream socket.
    Unix(PathBuf),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Inet(address) => write!(f, "{address}"),
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The chosen algorithm.
#[derive(Debug, Clone)]
pub struct Balance {
    /// The registry's entry and its parameters.
    pub spec: balanza_balancing::registry::Spec,
    /// The request's key, for algorithms that have one (`hash KEY`, `balance … key=`); `$remote_addr` unless given.
    pub key: Option<Template>,
    /// What the algorithm takes for the time of a response's header, in an upstream of `stream`.
    pub first_sign: FirstSign,
}

/// How many shadows an upstream may have.
pub const SHADOWS_MAX: usize = 4;

/// An algorithm beside the one that decides. It is known by the name of the algorithm.
#[derive(Debug, Clone)]
pub struct Shadow {
    /// The algorithm.
    pub balance: Balance,
    /// The directive, as it is written.
    pub text: String,
}

impl Shadow {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.balance.spec.entry().name
    }
}

/// `keepalive …` of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpstreamKeepalive {
    /// Idle connections kept by each worker (32); 0 keeps none.
    pub connections: usize,
    /// `local` (the default without the directive): connections are not shared between locations.
    pub local: bool,
    /// `keepalive_requests` (1000).
    pub requests: u64,
    /// `keepalive_time` (1h).
    pub time: Duration,
    /// `keepalive_timeout` (60s).
    pub timeout: Duration,
}

/// What variables ask of choices of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExplainedPicks {
    /// `$upstream_pick_reason`.
    pub reason: bool,
    /// `$upstream_choice_probability`.
    pub probability: bool,
    /// `$upstream_last_server_name`.
    pub name: bool,
}

impl ExplainedPicks {
    /// Whether they ask why a server was chosen.
    #[inline]
    pub fn asks_why(self) -> bool {
        self.reason || self.probability
    }
}
