//! The `stream` block.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    AccessLog, AccessRule, AccessWho, ConnectionZone, ErrorLog, ExplainedPicks, HealthCheck, KeyvalZone, Limits,
    Listen, ListenAddress, Map, ProxyBind, Resolver, ServerTls, SocketBuffers, Upstream, UpstreamTls,
};
use crate::template::{Template, UserSlot};

/// The `stream` block: TCP connections and datagrams passed on as they are.
#[derive(Debug, Default)]
pub struct Stream {
    /// Named upstream groups and those that `proxy_pass` to an address implies.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Sockets to listen on, one for each bound address.
    pub listens: Vec<Listen<StreamServer>>,
    /// `limit_conn_zone`.
    pub connection_zones: Vec<ConnectionZone>,
    /// `map`, `geo` and `split_clients`, by [`crate::template::Variable::Map`].
    pub maps: Vec<Map>,
    /// By [`UserSlot`](crate::template::UserSlot): the names of the variables that `set` defines.
    pub set_names: Vec<Option<Box<str>>>,
    /// Names that sessions are counted for: the first address of a server.
    pub status_zones: Vec<String>,
    /// Servers with a `health_check`.
    pub checked: Vec<Arc<StreamServer>>,
    /// `keyval_zone`.
    pub keyval_zones: Vec<KeyvalZone>,
    /// What is asked of choices of servers.
    pub explains_picks: ExplainedPicks,
    /// Access-log files in use, so that they can be opened before privileges are dropped.
    pub access_log_files: Vec<PathBuf>,
    /// Error-log files of the `stream` context and below, for the same reason.
    pub error_log_files: Vec<PathBuf>,
}

/// A `server` block of `stream`, with everything it inherits.
#[derive(Debug, Clone, Default)]
pub struct StreamServer {
    /// What its sessions are counted for: an index into [`Stream::status_zones`].
    pub status_zone: usize,
    /// `proxy_pass`.
    pub target: StreamTarget,
    /// Something asks for what the client sends first: the session begins with reading it.
    pub prereads: bool,
    /// `preread_buffer_size` (16k).
    pub preread_buffer_size: usize,
    /// `ssl_preread` (off): the first message of TLS is read.
    pub ssl_preread: bool,
    /// `listen … ssl`: clients speak TLS by this.
    pub tls: Option<Arc<ServerTls>>,
    /// `ssl_handshake_timeout` (60s).
    pub handshake_timeout: Duration,
    /// `proxy_ssl` (off).
    pub proxy_ssl: bool,
    /// `proxy_ssl_…`, if `proxy_ssl` is on.
    pub proxy_tls: Option<Arc<UpstreamTls>>,
    /// `proxy_ssl_name` (the host of `proxy_pass`).
    pub ssl_name: Option<Template>,
    /// `preread_timeout` (30s).
    pub preread_timeout: Duration,
    /// `resolver`, for hosts in `proxy_pass` with variables.
    pub resolver: Arc<Resolver>,
    /// `tcp_nodelay` (on).
    pub tcp_nodelay: bool,
    /// `proxy_protocol_timeout` (30s).
    pub proxy_protocol_timeout: Duration,
    /// `proxy_protocol` (off): servers are sent a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// `set_real_ip_from`: those whose header of the PROXY protocol is believed.
    pub real_ip_from: Vec<AccessWho>,
    /// `set`, in order.
    pub sets: Vec<(UserSlot, Template)>,
    /// `allow` and `deny`, in order; the first match decides.
    pub access: Vec<AccessRule>,
    /// `limit_conn…`.
    pub limits: Arc<Limits>,
    /// `access_log`; none unless given.
    pub access_logs: Vec<AccessLog>,
    /// `error_log`.
    pub error_log: Vec<ErrorLog>,
    /// `proxy_connect_timeout` (60s).
    pub connect_timeout: Duration,
    /// `health_check`.
    pub health_checks: Vec<HealthCheck>,
    /// `health_check_timeout` (5s): for the answer to a check.
    pub health_check_timeout: Duration,
    /// `proxy_timeout` (10m), between two reads or writes on either side.
    pub timeout: Duration,
    /// `proxy_next_upstream` (on).
    pub next_upstream: bool,
    /// `proxy_next_upstream_tries` (0, unlimited).
    pub next_upstream_tries: u32,
    /// `proxy_next_upstream_timeout` (0, unlimited).
    pub next_upstream_timeout: Duration,
    /// `proxy_buffer_size` (16k), for each direction.
    pub buffer_size: usize,
    /// `proxy_bind`; `None` for `off`.
    pub bind: Option<ProxyBind>,
    /// `proxy_socket_keepalive` (off).
    pub socket_keepalive: bool,
    /// `proxy_socket_rcvbuf` and `proxy_socket_sndbuf`.
    pub socket_buffers: SocketBuffers,
    /// `proxy_upload_rate`: bytes a second from the client; 0 is unlimited.
    pub upload_rate: Template,
    /// `proxy_download_rate`: bytes a second from the server.
    pub download_rate: Template,
    /// `proxy_requests` (0): datagrams of a client after which its next one begins another session; 0 is no limit.
    pub requests: u32,
    /// `proxy_responses`: datagrams that a server is expected to answer each of the client's with; no end unless given.
    pub responses: Option<u32>,
    /// `proxy_half_close` (off): the end of one direction leaves the other open.
    pub half_close: bool,
}

/// The address part of `proxy_pass` in `stream`.
#[derive(Debug, Clone)]
pub enum StreamTarget {
    /// Index into [`Stream::upstreams`].
    Fixed(usize),
    /// Evaluated for each session: an upstream's name, an IP address with a port, or a Unix socket.
    Dynamic(Template),
    /// `return`: the client gets this text, and the session ends.
    Return(Template),
    /// `pass`: another listening socket of this process serves the connection.
    Pass(Pass),
}

/// The listening socket of `pass`.
#[derive(Debug, Clone)]
pub enum Pass {
    /// The one that has this address.
    To(ListenAddress),
    /// Evaluated for each session: an IP address with a port, or a Unix-domain socket.
    Dynamic(Template),
}

impl Default for StreamTarget {
    fn default() -> StreamTarget {
        StreamTarget::Dynamic(Template::default())
    }
}

/// What an algorithm takes for the time of a response's header in a session of `stream`, which has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstSign {
    /// The established connection (`least_time connect`).
    #[default]
    Connect,
    /// The server's first byte (`least_time first_byte`).
    FirstByte,
}
