//! The address of a client behind proxies: that in a field, if those who have set it are believed.

use std::net::{IpAddr, SocketAddr};

use balanza_config::model::AccessWho;
use balanza_net::listening::Peer;

use crate::access;
use crate::proxy_protocol::Header;

/// The client in the lists of `values`, the nearest to this server first; none if `connected` is not trusted. With
/// `recursive` it is the last one that is not trusted itself.
pub fn forwarded<'v>(
    connected: Peer,
    values: impl Iterator<Item = &'v [u8]>,
    trusted: &[AccessWho],
    recursive: bool,
) -> Option<Peer> {
    let mut found = None;
    for value in values {
        let mut left = Some(value);
        while let Some(list) = left {
            if !access::is_any(trusted, found.unwrap_or(connected)) {
                return found;
            }
            let (before, last) = split_last(list);
            let Some(address) = address(last) else { return found };
            found = Some(Peer::Inet(address));
            if !recursive {
                return found;
            }
            left = before;
        }
    }
    found
}

/// The client in a header of the PROXY protocol; none if `connected` is not trusted.
pub fn believed(connected: Peer, header: &Header, trusted: &[AccessWho]) -> Option<Peer> {
    access::is_any(trusted, connected).then_some(Peer::Inet(header.source))
}

/// The last address of a list, and what precedes it.
fn split_last(list: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let separates = |byte: &u8| matches!(byte, b' ' | b',');
    let end = list.iter().rposition(|byte| !separates(byte)).map_or(0, |last| last + 1);
    let list = &list[..end];
    match list.iter().rposition(separates) {
        Some(separator) => (Some(&list[..separator]), &list[separator + 1..]),
        None => (None, list),
    }
}

/// An address, with a port or without one.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, 0));
    }
    text.parse().ok().filter(|address: &SocketAddr| address.port() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str, length: u8) -> AccessWho {
        AccessWho::Net(text.parse().unwrap(), length)
    }

    fn find(fields: &[&str], recursive: bool) -> Option<String> {
        let trusted = [net("127.0.0.0", 8), net("10.0.0.0", 8), net("fd00::", 8)];
        let connected = Peer::Inet("127.0.0.1:4711".parse().unwrap());
        let fields = fields.iter().rev().map(|field| field.as_bytes());
        forwarded(connected, fields, &trusted, recursive).map(|peer| match peer {
            Peer::Inet(address) => address.to_string(),
            Peer::Unix => "unix:".into(),
        })
    }

    #[test]
    fn the_last_address_counts() {
        assert_eq!(find(&["192.0.2.1, 192.0.2.2"], false).unwrap(), "192.0.2.2:0");
        assert_eq!(find(&["192.0.2.1", "10.0.0.1"], false).unwrap(), "10.0.0.1:0");
        assert_eq!(find(&["192.0.2.1 , ,"], false).unwrap(), "192.0.2.1:0");
        assert_eq!(find(&["[2001:db8::1]:443"], false).unwrap(), "[2001:db8::1]:443");
        assert_eq!(find(&["192.0.2.1:80"], false).unwrap(), "192.0.2.1:80");
        for invalid in ["", " ", "unknown", "192.0.2.1:0", "192.0.2.1:x", "192.0.2.1;", "[2001:db8::1]"] {
            assert_eq!(find(&[invalid], false), None, "{invalid}");
        }
    }

    #[test]
    fn trusted_ones_are_skipped() {
        assert_eq!(find(&["192.0.2.9, 192.0.2.1, 10.0.0.7, fd00::1"], true).unwrap(), "192.0.2.1:0");
        assert_eq!(find(&["192.0.2.1", "10.0.0.7", "10.0.0.8"], true).unwrap(), "192.0.2.1:0");
        assert_eq!(find(&["10.0.0.6,10.0.0.7"], true).unwrap(), "10.0.0.6:0");
        assert_eq!(find(&["192.0.2.1, x, 10.0.0.7"], true).unwrap(), "10.0.0.7:0");
        assert_eq!(find(&["192.0.2.1", ",10.0.0.7"], true).unwrap(), "10.0.0.7:0");
    }

    #[test]
    fn others_are_not_believed() {
        let stranger = Peer::Inet("198.51.100.1:1".parse().unwrap());
        let field = [&b"192.0.2.1"[..]];
        assert!(forwarded(stranger, field.into_iter(), &[net("127.0.0.0", 8)], false).is_none());
        assert!(forwarded(Peer::Unix, field.into_iter(), &[net("0.0.0.0", 0)], false).is_none());
        assert!(forwarded(Peer::Unix, field.into_iter(), &[AccessWho::Unix], false).is_some());
    }
}
