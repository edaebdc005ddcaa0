//! The typed model: what a configuration means, with every default, inheritance and address resolved.
//!
//! The data plane reads nothing else. Times are [`Duration`]s, sizes are bytes. Everything here is plain data:
//! it opens no socket and reads no file. `Default` is the empty value of a type, not NGINX's default: that is in the
//! table of directives.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::names::ServerNames;
use crate::regex::Regex;
use crate::template::{Template, VariableNames};

mod answers;
mod client;
mod connection;
pub mod discover;
mod experiment;
mod fields;
mod filters;
mod health;
mod http2;
mod ignored;
mod keyval;
mod limits;
mod locations;
mod logs;
mod lookup;
pub mod membership;
mod process;
mod proxy;
mod resolver;
mod rewrite;
mod sockets;
mod store;
mod stream;
mod subrequests;
mod syslog;
mod temporary;
mod tls;
mod traces;
mod try_files;
mod tunnel;
mod upstream;

pub use answers::*;
pub use client::*;
pub use connection::*;
pub use experiment::{ARMS_MAX, Experiment, ExperimentArm, Settings as ExperimentSettings};
pub use fields::*;
pub use filters::*;
pub use health::*;
pub use http2::*;
pub use ignored::*;
pub use keyval::*;
pub use limits::*;
pub use locations::*;
pub use logs::*;
pub use lookup::*;
pub use process::*;
pub use proxy::*;
pub use resolver::*;
pub use rewrite::*;
pub use store::*;
pub use stream::*;
pub use subrequests::*;
pub use syslog::*;
pub use temporary::*;
pub use tls::*;
pub use traces::*;
pub use try_files::*;
pub use tunnel::*;
pub use upstream::*;

/// The version of NGINX whose dialect this is.
pub const DIALECT_VERSION: &str = "1.31.4";

/// A whole configuration.
#[derive(Debug)]
pub struct Config {
    /// Process-wide settings (main and `events` contexts).
    pub core: Core,
    /// The `http` block.
    pub http: Http,
    /// The `stream` block.
    pub stream: Stream,
    /// Certificates that are shown to clients and servers, without those in the text.
    pub certificates: Vec<Certificate>,
    /// `ssl_certificate_cache`: those that are in use at handshakes.
    pub certificate_caches: Vec<CertificateCache>,
    /// `ssl_stapling`: certificates whose responses of OCSP are fetched.
    pub staplings: Vec<Arc<Stapling>>,
}

/// A certificate's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Absolute path.
    pub file: PathBuf,
    /// When the certificate ends, in seconds since 1970.
    pub ends: i64,
}

impl Config {
    /// Its upstreams: those of `http`, then those of `stream`.
    pub fn upstreams(&self) -> impl Iterator<Item = (membership::Protocol, &Arc<Upstream>)> {
        let of = |protocol| self.upstreams_of(protocol).iter().map(move |upstream| (protocol, upstream));
        of(membership::Protocol::Http).chain(of(membership::Protocol::Stream))
    }

    /// The upstreams of a protocol.
    pub fn upstreams_of(&self, protocol: membership::Protocol) -> &[Arc<Upstream>] {
        match protocol {
            membership::Protocol::Http => &self.http.upstreams,
            membership::Protocol::Stream => &self.stream.upstreams,
        }
    }

    /// The sockets that it listens on, each with the file and line that ask for it: those of `http`, then those of
    /// `stream`.
    pub fn sockets(&self) -> impl Iterator<Item = (&ListenAddress, &ListenOptions, &str)> {
        let http = self.http.listens.iter().map(|listen| (&listen.address, &listen.options, &*listen.place));
        let stream = self.stream.listens.iter().map(|listen| (&listen.address, &listen.options, &*listen.place));
        http.chain(stream)
    }

    /// The files of all access logs without variables, and of the error logs below the main context.
    pub fn log_files(&self) -> impl Iterator<Item = &PathBuf> {
        let (http, stream) = (&self.http, &self.stream);
        let files = [&http.error_log_files, &http.access_log_files, &stream.error_log_files, &stream.access_log_files];
        files.into_iter().flatten()
    }
}

/// The `http` block.
#[derive(Debug, Default)]
pub struct Http {
    /// Named upstream groups and those that `proxy_pass` to an address implies.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Sockets to listen on, one for each bound address.
    pub listens: Vec<Listen>,
    /// `map`, `geo` and `split_clients`, by [`crate::template::Variable::Map`].
    pub maps: Vec<Map>,
    /// `limit_req_zone`.
    pub request_zones: Vec<RequestZone>,
    /// `limit_conn_zone`.
    pub connection_zones: Vec<ConnectionZone>,
    /// `keyval_zone`.
    pub keyval_zones: Vec<KeyvalZone>,
    /// `otel_exporter`.
    pub exporter: Option<Arc<Exporter>>,
    /// `$uid_reset`, if something sets it.
    pub uid_reset: Option<Template>,
    /// The character sets of `charset` and `charset_map`.
    pub charsets: Charsets,
    /// How many user variables a request needs (`set` variables and named captures).
    pub user_slots: usize,
    /// By [`UserSlot`](crate::template::UserSlot): the names of the variables that `set` defines.
    pub set_names: Vec<Option<Box<str>>>,
    /// The variables that pages of `ssi` can name.
    pub variable_names: VariableNames,
    /// Names that requests are counted for: `status_zone`, the first name of a server, or its first address.
    pub status_zones: Vec<String>,
    /// `status_zone` of locations.
    pub location_zones: Vec<String>,
    /// Whether a location shows or changes what runs: `api` or `metrics`.
    pub is_controlled: bool,
    /// Servers with a location that has a `health_check`.
    pub checked: Vec<Arc<Server>>,
    /// What is asked of choices of servers.
    pub explains_picks: ExplainedPicks,
    /// Access-log files in use, so that they can be opened before privileges are dropped.
    pub access_log_files: Vec<PathBuf>,
    /// Error-log files of the `http` context and below, for the same reason.
    pub error_log_files: Vec<PathBuf>,
    /// Directories of temporary files, so that they can be made and given to the worker's account.
    pub temp_directories: Vec<PathBuf>,
}

/// A socket to bind.
#[derive(Debug)]
pub struct Listen<T = Server> {
    /// The address to bind.
    pub address: ListenAddress,
    /// Socket options.
    pub options: ListenOptions,
    /// Its first `listen`: file and line.
    pub place: String,
    /// Virtual servers by local address: several when a wildcard address and specific ones share the port.
    /// The last entry has `local: None` and takes what no other does.
    pub groups: Vec<AddressGroup<T>>,
}

/// A listening address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListenAddress {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix-domain stream socket.
    Unix(PathBuf),
    /// UDP.
    Udp(SocketAddr),
}

/// Parameters of `listen` that belong to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenOptions {
    /// `backlog=`; NGINX's default on Linux is 511.
    pub backlog: i32,
    /// `reuseport`.
    pub reuseport: bool,
    /// `ipv6only=`; on by default.
    pub ipv6only: bool,
    /// `deferred`: wake the acceptor when data is there.
    pub deferred: bool,
    /// `rcvbuf=`.
    pub rcvbuf: Option<usize>,
    /// `sndbuf=`.
    pub sndbuf: Option<usize>,
    /// `so_keepalive=on|off|idle:interval:count`.
    pub keepalive: Option<TcpKeepalive>,
    /// `fastopen=`.
    pub fastopen: Option<i32>,
}

/// `so_keepalive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TcpKeepalive {
    Off,
    On { idle: Option<Duration>, interval: Option<Duration>, count: Option<u32> },
}

/// The virtual servers of one local address.
#[derive(Debug)]
pub struct AddressGroup<T = Server> {
    /// The local address it is for; `None` for any.
    pub local: Option<SocketAddr>,
    /// `ssl`: clients speak TLS.
    pub ssl: bool,
    /// Clients without TLS may begin with HTTP/2.
    pub http2: bool,
    /// `proxy_protocol`: connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Serves requests whose host matches no name.
    pub default_server: Arc<T>,
    /// Host name to server.
    pub names: ServerNames<T>,
}

/// A `server` block.
#[derive(Debug)]
pub struct Server {
    /// What its requests are counted for: an index into [`Http::status_zones`].
    pub status_zone: usize,
    /// The first `server_name`, for `$server_name` ("" unless given).
    pub name: String,
    /// The rewrite module in the server context, run before a location is looked for.
    pub rewrite: Vec<RewriteOp>,
    /// The locations.
    pub locations: LocationTree,
    /// What holds outside every location: the implicit root location.
    pub root: Arc<Location>,
    /// Connection-level settings taken from the server context.
    pub connection: ConnectionSettings,
    /// A `tunnel_pass` is in it: CONNECT is a method that it knows.
    pub opens_tunnels: bool,
    /// `ssl_certificate` and what belongs to it; none without one.
    pub tls: Option<Arc<ServerTls>>,
}

/// Settings that act before a location is known.
#[derive(Debug, Clone, Default)]
pub struct ConnectionSettings {
    /// `client_header_timeout` (60 s): for a whole request head.
    pub client_header_timeout: Duration,
    /// `client_header_buffer_size` (1k).
    pub client_header_buffer_size: usize,
    /// `large_client_header_buffers` (4 8k): number and size; a request line or a field must fit into one.
    pub large_client_header_buffers: (usize, usize),
    /// `max_headers` (1000): fields in a request.
    pub max_headers: usize,
    /// `ignore_invalid_headers` (on).
    pub ignore_invalid_headers: bool,
    /// `underscores_in_headers` (off).
    pub underscores_in_headers: bool,
    /// `merge_slashes` (on).
    pub merge_slashes: bool,
    /// `http2…`.
    pub http2: Http2,
}

/// A `location` with everything it inherits.
#[derive(Debug)]
pub struct Location {
    /// As written in the configuration, for messages: "/api/", "@fallback".
    pub name: String,
    /// How it matches.
    pub matcher: Matcher,
    /// `internal`: reachable by internal redirects only.
    pub internal: bool,
    /// The rewrite module, in order.
    pub rewrite: Vec<RewriteOp>,
    /// `limit_except`.
    pub limit_except: Option<LimitExcept>,
    /// `try_files`.
    pub try_files: Option<TryFiles>,
    /// What answers.
    pub handler: Handler,
    /// Everything that is inherited.
    pub settings: Arc<Settings>,
    /// Locations inside this one.
    pub nested: LocationTree,
    /// `health_check`.
    pub health_checks: Vec<HealthCheck>,
    /// With `proxy_pass` and a prefix that ends in "/": a request for the prefix without it gets 301.
    pub auto_redirect: bool,
}

/// How a location matches a normalised URI.
#[derive(Debug, Clone)]
pub enum Matcher {
    /// `= /x`.
    Exact(Box<[u8]>),
    /// `/x`, or `^~ /x`, which keeps regular expressions from being tried.
    Prefix {
        /// The prefix.
        prefix: Box<[u8]>,
        /// `^~`.
        no_regex: bool,
    },
    /// `~` and `~*`.
    Regex(Regex),
    /// `@name`.
    Named(Box<[u8]>),
}

/// What answers in a location.
#[derive(Debug, Clone)]
pub enum Handler {
    /// `stub_status`.
    StubStatus,
    /// `empty_gif`.
    EmptyGif,
    /// `api`.
    Api {
        /// `write=on`.
        write: bool,
    },
    /// `metrics`.
    Metrics,
    /// `dashboard`.
    Dashboard {
        /// The path of the API.
        api: Box<str>,
    },
    /// Files under `root` or `alias`.
    Static,
    /// `proxy_pass` or `grpc_pass`.
    Proxy(Box<ProxyPass>),
    /// `tunnel_pass`.
    Tunnel(TunnelTarget),
}

/// Everything that a location inherits.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `root` or `alias`.
    pub root: Root,
    /// `status_zone`: an index into [`Http::location_zones`].
    pub location_zone: Option<usize>,
    /// `index` ("index.html").
    pub index: Vec<Template>,
    /// `error_page`.
    pub error_pages: Vec<ErrorPage>,
    /// `add_header`, in order.
    pub add_headers: Vec<AddHeader>,
    /// `add_trailer`, in order.
    pub add_trailers: Vec<AddHeader>,
    /// `types`: extension (lower case) to media type.
    pub types: Arc<std::collections::HashMap<Box<str>, Box<str>>>,
    /// `default_type` ("text/plain").
    pub default_type: Box<str>,
    /// `keepalive_disable` (msie6).
    pub keepalive_disable: KeepaliveDisable,
    /// `lingering_…`.
    pub lingering: Lingering,
    /// `server_tokens` (on).
    pub server_tokens: ServerTokens,
    /// `http2_chunk_size` (8k): most bytes of a body in a frame of HTTP/2.
    pub http2_chunk_size: usize,
    /// `resolver`, for hosts in `proxy_pass` with variables.
    pub resolver: Arc<Resolver>,
    /// `keepalive_timeout` (75s); zero disables keep-alive.
    pub keepalive_timeout: Duration,
    /// The second argument: sent as `Keep-Alive: timeout=`.
    pub keepalive_header: Option<Duration>,
    /// `keepalive_requests` (1000).
    pub keepalive_requests: u64,
    /// `keepalive_time` (1h).
    pub keepalive_time: Duration,
    /// `client_body_timeout` (60s), between two reads.
    pub client_body_timeout: Duration,
    /// `send_timeout` (60s), between two writes.
    pub send_timeout: Duration,
    /// `client_body_buffer_size` (16k).
    pub client_body_buffer_size: usize,
    /// `client_body_temp_path`; `None` for the system's directory of temporary files.
    pub client_body_temp_path: Option<Arc<TempPath>>,
    /// `client_body_in_file_only` (off).
    pub client_body_files: BodyFiles,
    /// `client_max_body_size` (1m); 0 for no limit.
    pub client_max_body_size: u64,
    /// `limit_rate`, bytes a second; `None` or a result of 0 is unlimited.
    pub limit_rate: Option<Template>,
    /// `limit_rate_after`.
    pub limit_rate_after: Option<Template>,
    /// `allow` and `deny`, in order; the first match decides.
    pub access: Vec<AccessRule>,
    /// `satisfy` (all).
    pub satisfy: Satisfy,
    /// `auth_basic…`.
    pub auth_basic: AuthBasic,
    /// `auth_delay` (0).
    pub auth_delay: Duration,
    /// There are `limit_req` or `limit_conn`.
    pub limited: bool,
    /// `limit_req…` and `limit_conn…`.
    pub limits: Arc<Limits>,
    /// `access_log`; empty for `off`.
    pub access_logs: Vec<AccessLog>,
    /// `error_log`.
    pub error_log: Vec<ErrorLog>,
    /// `tcp_nodelay` (on).
    pub tcp_nodelay: bool,
    /// `reset_timedout_connection` (off).
    pub reset_timedout_connection: bool,
    /// `log_not_found` (on).
    pub log_not_found: bool,
    /// `etag` (on).
    pub etag: bool,
    /// `if_modified_since` (exact).
    pub if_modified_since: IfModifiedSince,
    /// `absolute_redirect` (on).
    pub absolute_redirect: bool,
    /// `server_name_in_redirect` (off).
    pub server_name_in_redirect: bool,
    /// `port_in_redirect` (on).
    pub port_in_redirect: bool,
    /// `auth_request`, `mirror` and what belongs to them.
    pub subrequests: Subrequests,
    /// `recursive_error_pages` (off).
    pub recursive_error_pages: bool,
    /// `rewrite_log` (off).
    pub rewrite_log: bool,
    /// `uninitialized_variable_warn` (on).
    pub uninitialized_variable_warn: bool,
    /// `expires`, `autoindex` and the like.
    pub answers: Arc<Answers>,
    /// `gzip_static` (off).
    pub gzip_static: GzipStatic,
    /// `early_hints`: interim responses of servers go to the client if one of these is neither empty nor "0".
    pub early_hints: Vec<Template>,
    /// Filters may change responses.
    pub filtered: bool,
    /// `gzip`, `gunzip`, `charset`, `sub_filter`, `ssi`, `add_before_body`.
    pub filters: Arc<Filters>,
    /// `otel_trace` or `otel_trace_context` ask for something.
    pub traced: bool,
    /// `otel_…`.
    pub tracing: Arc<Tracing>,
    /// `proxy_*`.
    pub proxy: Arc<ProxySettings>,
    /// What is known of a client: its address, what it was told, where it comes from.
    pub client: Arc<ClientSettings>,
}

/// `root` or `alias`.
#[derive(Debug, Clone)]
pub enum Root {
    /// The path precedes the whole URI; relative paths are resolved against the prefix.
    Root(Template),
    /// The path replaces the part that the location matched.
    Alias(Template),
}

impl Default for Root {
    fn default() -> Root {
        Root::Root(Template::default())
    }
}

/// `error_page`.
#[derive(Debug, Clone)]
pub struct ErrorPage {
    /// The status that it answers.
    pub status: u16,
    /// The status to send instead.
    pub overwrite: Overwrite,
    /// A URI, a named location ("@name") or a URL.
    pub target: Template,
}

/// `error_page … =…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// The original status.
    Keep,
    /// `=code`.
    Status(u16),
    /// `=`: whatever the page's handler answers.
    Handler,
}

/// `add_header` and `add_trailer`.
#[derive(Debug, Clone)]
pub struct AddHeader {
    /// Field name.
    pub name: Box<[u8]>,
    /// Value; when it evaluates to "" the field is not sent.
    pub value: Template,
    /// `always`: with every status, not only 200, 201, 204, 206, 301, 302, 303, 304, 307, 308.
    pub always: bool,
}
