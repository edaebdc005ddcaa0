//! Values in the forms of a configuration, for changes while the program runs.

use std::net::SocketAddr;
use std::time::Duration;

use crate::address::{self, Host, Use};
use crate::model::ServerAddress;
use crate::values;

/// Why a text is no address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAddress {
    /// It is a host's name.
    Name,
    /// It is malformed.
    Invalid(&'static str),
}

/// The address of a server: an IP address with a port, or a Unix-domain socket. Without a default the port must be given.
///
/// # Errors
/// It is a name, or malformed.
pub fn address(text: &str, default_port: Option<u16>) -> Result<ServerAddress, NoAddress> {
    let parsed = address::parse(text.as_bytes(), default_port.unwrap_or(0), Use::Server).map_err(NoAddress::Invalid)?;
    match parsed.host {
        Host::Unix(path) => Ok(ServerAddress::Unix(path)),
        Host::Name(_) => Err(NoAddress::Name),
        Host::Ip(_) if parsed.no_port && default_port.is_none() => Err(NoAddress::Invalid("no port")),
        Host::Ip(ip) => Ok(ServerAddress::Inet(SocketAddr::new(ip, parsed.port))),
    }
}

/// A time in whole seconds: "10s", "1m".
pub fn seconds(text: &str) -> Option<Duration> {
    values::seconds(text.as_bytes())
}

/// A time in milliseconds: "1500ms", "10s".
pub fn milliseconds(text: &str) -> Option<Duration> {
    values::milliseconds(text.as_bytes())
}
