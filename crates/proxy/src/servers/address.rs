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

/// Removes the port from a host.
pub fn strip_port(host: &mut Vec<u8>) {
    let port = host.iter().rposition(|byte| *byte == b':').filter(|colon| !host[*colon..].contains(&b']'));
    // The colons of an IPv6 address without brackets are not before a port.
    if let Some(colon) = port.filter(|colon| host.starts_with(b"[") || !host[..*colon].contains(&b':')) {
        host.truncate(colon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_their_ports() {
        let stripped = |host: &str| {
            let mut host = host.as_bytes().to_vec();
            strip_port(&mut host);
            String::from_utf8(host).unwrap()
        };
        assert_eq!(stripped("app.test:8443"), "app.test");
        assert_eq!(stripped("app.test"), "app.test");
        assert_eq!(stripped("[::1]:443"), "[::1]");
        assert_eq!((stripped("[::1]"), stripped("::1")), ("[::1]".into(), "::1".into()));
    }
}
