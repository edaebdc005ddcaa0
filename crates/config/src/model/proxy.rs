//! `proxy_…` and `grpc_…`.

use std::sync::Arc;
use std::time::Duration;

use super::{IgnoredFields, ProxyStore, TempPath, UpstreamTls};
use crate::regex::Regex;
use crate::template::Template;

/// `proxy_pass` or `grpc_pass`.
#[derive(Debug, Clone)]
pub struct ProxyPass {
    /// Where to.
    pub target: ProxyTarget,
    /// Identifies the location for `keepalive N local` pools: unique in the configuration.
    pub id: usize,
    /// It is a `grpc_pass`: `grpc_…` stand in [`Settings::proxy`] in the place of `proxy_…`.
    pub grpc: bool,
    /// `proxy_ssl_…`, where servers may speak TLS.
    pub tls: Option<Arc<UpstreamTls>>,
}

/// The address part of `proxy_pass`.
#[derive(Debug, Clone)]
pub enum ProxyTarget {
    /// Without variables.
    Fixed {
        /// Index into [`Http::upstreams`].
        upstream: usize,
        /// `$proxy_host`: as written, without the default port.
        host: Box<[u8]>,
        /// `$proxy_port`.
        port: u16,
        /// `https://`: the servers speak TLS.
        tls: bool,
        /// The URI part, when the directive has one: replaces what the location matched.
        uri: Option<Box<[u8]>>,
    },
    /// With variables: the URL is evaluated for each request; a host is an upstream's name or an IP address.
    Dynamic(Template),
}

/// `proxy_*` directives.
#[derive(Debug, Clone, Default)]
pub struct ProxySettings {
    /// Fields of the request to the server, `proxy_set_header` merged with its defaults (`Host: $proxy_host`, and
    /// `Connection` absent). A value that evaluates to "" drops the field. Client fields with these names are
    /// not passed.
    pub set_headers: Vec<SetHeader>,
    /// `proxy_http_version` (1.1).
    pub http_version: HttpVersion,
    /// `proxy_method`.
    pub method: Option<Template>,
    /// `proxy_set_body`.
    pub set_body: Option<Template>,
    /// `proxy_pass_request_headers` (on).
    pub pass_request_headers: bool,
    /// `proxy_pass_request_body` (on).
    pub pass_request_body: bool,
    /// Response fields not passed to the client, lower case: NGINX's own (Date, Server, X-Pad, X-Accel-…) and
    /// `proxy_hide_header`, less `proxy_pass_header`.
    pub hide_headers: Vec<Box<[u8]>>,
    /// `proxy_ignore_headers`.
    pub ignored: IgnoredFields,
    /// `proxy_cookie_…`.
    pub cookies: CookieRules,
    /// `proxy_force_ranges` (off).
    pub force_ranges: bool,
    /// `proxy_redirect`; empty for `off`.
    pub redirects: Vec<ProxyRedirect>,
    /// `proxy_buffering` (on).
    pub buffering: bool,
    /// `proxy_buffers` (8 4k, page size): number and size; `None` unless given.
    pub buffers: Option<(usize, usize)>,
    /// `proxy_buffer_size` (4k); `None` unless given.
    pub buffer_size: Option<usize>,
    /// `proxy_busy_buffers_size`; `None` unless given.
    pub busy_buffers_size: Option<usize>,
    /// `proxy_max_temp_file_size` (1024m); 0 disables temporary files.
    pub max_temp_file_size: u64,
    /// `proxy_temp_path`; `None` for the system's directory of temporary files.
    pub temp_path: Option<Arc<TempPath>>,
    /// `proxy_request_buffering` (on).
    pub request_buffering: bool,
    /// `proxy_connect_timeout` (60s).
    pub connect_timeout: Duration,
    /// `proxy_read_timeout` (60s), between two reads.
    pub read_timeout: Duration,
    /// `proxy_send_timeout` (60s), between two writes.
    pub send_timeout: Duration,
    /// `proxy_next_upstream` (error timeout).
    pub next_upstream: NextUpstream,
    /// `proxy_next_upstream_tries` (0, unlimited).
    pub next_upstream_tries: u32,
    /// `proxy_next_upstream_timeout` (0, unlimited).
    pub next_upstream_timeout: Duration,
    /// `proxy_pass_trailers` (off).
    pub pass_trailers: bool,
    /// `proxy_intercept_errors` (off).
    pub intercept_errors: bool,
    /// `proxy_bind`; `None` for `off`.
    pub bind: Option<ProxyBind>,
    /// `proxy_limit_rate`, bytes a second.
    pub limit_rate: Option<Template>,
    /// `proxy_socket_keepalive` (off).
    pub socket_keepalive: bool,
    /// `proxy_socket_rcvbuf` and `proxy_socket_sndbuf`.
    pub socket_buffers: SocketBuffers,
    /// `proxy_ignore_client_abort` (off).
    pub ignore_client_abort: bool,
    /// `proxy_store`; `None` for `off`.
    pub store: Option<ProxyStore>,
    /// `proxy_store_access` (user:rw): the mode of the files.
    pub store_access: u32,
    /// `proxy_ssl_name` ($proxy_host).
    pub ssl_name: Option<Template>,
    /// What is worked out for each server.
    pub per_server: PerServer,
}

/// What is worked out anew for each server that a request tries. What it is made of may name that server:
/// `$upstream_last_addr`, `$upstream_last_server_name`.
#[derive(Debug, Clone, Default)]
pub struct PerServer {
    /// `proxy_bind_dynamic` (off): the local address.
    pub bind: bool,
    /// `proxy_request_dynamic` (off): the request.
    pub request: bool,
    /// `proxy_allow_upstream`: the server may be asked if all of these are neither empty nor "0".
    pub allow: Vec<Template>,
}

impl PerServer {
    /// Whether anything is.
    pub fn is_any(&self) -> bool {
        self.bind || self.request || !self.allow.is_empty()
    }
}

/// `proxy_set_header`.
#[derive(Debug, Clone)]
pub struct SetHeader {
    /// Field name as written.
    pub name: Box<[u8]>,
    /// Value.
    pub value: Template,
}

/// One rule of `proxy_redirect`.
#[derive(Debug, Clone)]
pub struct ProxyRedirect {
    /// What a Location or Refresh must begin with (or match).
    pub pattern: RedirectPattern,
    /// What replaces it.
    pub replacement: Template,
}

/// The left side of `proxy_redirect`.
#[derive(Debug, Clone)]
pub enum RedirectPattern {
    /// A prefix.
    Prefix(Template),
    /// `~` or `~*`.
    Regex(Regex),
}

/// `proxy_bind`.
#[derive(Debug, Clone)]
pub struct ProxyBind {
    /// Address, or address:port.
    pub address: Template,
    /// `transparent`.
    pub transparent: bool,
}

/// `proxy_http_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HttpVersion {
    Http10,
    #[default]
    Http11,
    Http2,
}

/// `proxy_next_upstream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct NextUpstream {
    pub error: bool,
    pub timeout: bool,
    pub invalid_header: bool,
    pub non_idempotent: bool,
    pub http_500: bool,
    pub http_502: bool,
    pub http_503: bool,
    pub http_504: bool,
    pub http_403: bool,
    pub http_404: bool,
    pub http_429: bool,
    /// The server is denied by `proxy_allow_upstream`.
    pub denied: bool,
    /// `off`: never.
    pub off: bool,
}

/// `proxy_cookie_…`: what is changed in cookies that a server sets.
#[derive(Debug, Clone, Default)]
pub struct CookieRules {
    /// `proxy_cookie_domain`: a pattern is the whole domain, without a dot in front.
    pub domains: Vec<ProxyRedirect>,
    /// `proxy_cookie_path`.
    pub paths: Vec<ProxyRedirect>,
    /// `proxy_cookie_flags`.
    pub flags: Vec<CookieFlags>,
}

impl CookieRules {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.paths.is_empty() && self.flags.is_empty()
    }
}

/// `proxy_cookie_flags`.
#[derive(Debug, Clone)]
pub struct CookieFlags {
    /// The name of the cookie.
    pub name: RedirectPattern,
    /// The flags to set and to remove.
    pub flags: Vec<Template>,
}

/// Sizes of the system's buffers of a connection to a server, in bytes; the system chooses those that are not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketBuffers {
    /// SO_RCVBUF.
    pub receive: Option<usize>,
    /// SO_SNDBUF.
    pub send: Option<usize>,
}
