//! Sockets to listen on, and the virtual servers behind each.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Server;
use crate::names::ServerNames;

/// A socket to bind.
#[derive(Debug)]
pub struct Listen {
    /// The address to bind.
    pub address: ListenAddress,
    /// Socket options.
    pub options: ListenOptions,
    /// Its first `listen`: file and line.
    pub place: String,
    /// Virtual servers by local address: several when a wildcard address and specific ones share the port.
    /// The last entry has `local: None` and takes what no other does.
    pub groups: Vec<AddressGroup>,
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
pub struct AddressGroup {
    /// The local address it is for; `None` for any.
    pub local: Option<SocketAddr>,
    /// `ssl`: clients speak TLS.
    pub ssl: bool,
    /// Clients without TLS may begin with HTTP/2.
    pub http2: bool,
    /// `proxy_protocol`: connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Serves requests whose host matches no name.
    pub default_server: Arc<Server>,
    /// Host name to server.
    pub names: ServerNames<Server>,
}
