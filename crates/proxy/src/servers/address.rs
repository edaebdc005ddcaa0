//! Addresses of servers, and those that they are reached from.

use std::net::SocketAddr;
use std::rc::Rc;

use balanza_config::model::ServerAddress;
use balanza_net::transport::Destination;

/// Where to connect to for a server.
pub fn destination(address: &ServerAddress) -> Destination<'_> {
    match address {
        ServerAddress::Inet(address) => Destination::Inet(*address),
        ServerAddress::Unix(path) => Destination::Unix(path),
    }
}

/// An address as `$upstream_addr` shows it.
pub fn address_text(address: &ServerAddress) -> Rc<str> {
    address.to_string().into()
}

/// The local address that `proxy_bind` came to.
pub fn parse_local(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.trim_matches(['[', ']']).parse().ok()?, 0)))
}
