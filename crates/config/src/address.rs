//! Addresses as NGINX reads them: `host:port`, `[v6]:port`, `unix:/path`, a port alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::source::Source;

/// An address split into its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub host: Host,
    /// The port; the default when none is written.
    pub port: u16,
    /// The end of a range of ports (`listen` only).
    pub last_port: Option<u16>,
    /// No port is written.
    pub no_port: bool,
    /// The host as written: with brackets, or "unix:/path".
    pub host_text: Vec<u8>,
    /// What follows the address: "/path?query".
    pub uri: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Ip(IpAddr),
    Name(String),
    Unix(PathBuf),
}

/// Where an address stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// `listen`: a port alone, `*`, and port ranges are allowed.
    Listen,
    /// `server` in an upstream.
    Server,
    /// `proxy_pass`: a URI may follow.
    Url,
}

fn port(text: &[u8]) -> Result<u16, &'static str> {
    match crate::values::number(text) {
        Some(number @ 1..=65535) => Ok(number as u16),
        _ => Err("invalid port"),
    }
}

/// A port, or a range of ports.
fn ports(text: &[u8], usage: Use) -> Result<(u16, Option<u16>), &'static str> {
    let Some(dash) = text.iter().position(|b| *b == b'-').filter(|_| usage == Use::Listen) else {
        return Ok((port(text)?, None));
    };
    let last = port(&text[dash + 1..])?;
    let first = port(&text[..dash])?;
    if first > last { Err("invalid port range") } else { Ok((first, Some(last))) }
}

/// Splits an address; the error is NGINX's wording.
pub(crate) fn parse(text: &[u8], default_port: u16, usage: Use) -> Result<Address, &'static str> {
    if text.len() >= 5 && text[..5].eq_ignore_ascii_case(b"unix:") {
        return parse_unix(text, usage);
    }
    if text.first() == Some(&b'[') {
        return parse_v6(text, default_port, usage);
    }
    let mut rest = text;
    let mut uri: &[u8] = b"";
    if let Some(start) = text.iter().position(|b| matches!(b, b'/' | b'?')) {
        if usage != Use::Url {
            return Err("invalid host");
        }
        (rest, uri) = text.split_at(start);
    }
    let whole = |host, port, last_port, host_text: &[u8]| Address {
        host,
        port,
        last_port,
        no_port: false,
        host_text: host_text.to_vec(),
        uri: uri.to_vec(),
    };
    let (host, first, last, no_port) = match rest.iter().position(|b| *b == b':') {
        Some(colon) => {
            let (first, last) = ports(&rest[colon + 1..], usage)?;
            (&rest[..colon], first, last, false)
        }
        None => {
            let only_port = |text: &[u8]| !text.is_empty() && text.iter().all(|b| b.is_ascii_digit() || *b == b'-');
            if usage == Use::Listen && only_port(rest) && rest.first() != Some(&b'-') {
                let (first, last) = ports(rest, usage)?;
                return Ok(whole(Host::Ip(Ipv4Addr::UNSPECIFIED.into()), first, last, b"*"));
            }
            (rest, default_port, None, true)
        }
    };
    if host.is_empty() {
        return Err("no host");
    }
    let text = std::str::from_utf8(host).map_err(|_| "invalid host")?;
    let parsed = if usage == Use::Listen && host == b"*" {
        Host::Ip(Ipv4Addr::UNSPECIFIED.into())
    } else {
        match text.parse::<Ipv4Addr>() {
            Ok(ip) => Host::Ip(ip.into()),
            Err(_) => Host::Name(text.to_string()),
        }
    };
    Ok(Address { no_port, ..whole(parsed, first, last, host) })
}

fn parse_unix(text: &[u8], usage: Use) -> Result<Address, &'static str> {
    let mut path = &text[5..];
    let mut uri: &[u8] = b"";
    if usage == Use::Url {
        // In a URL a ":" ends the path, and the URI follows it.
        if let Some(colon) = path.iter().position(|b| *b == b':') {
            (path, uri) = (&path[..colon], &path[colon + 1..]);
        }
    }
    if path.is_empty() {
        return Err("no path in the unix domain socket");
    }
    // The size of sockaddr_un's path, with the terminating zero.
    if path.len() + 1 > 108 {
        return Err("too long path in the unix domain socket");
    }
    Ok(Address {
        host: Host::Unix(crate::tree::bytes_path(path)),
        port: 0,
        last_port: None,
        no_port: true,
        host_text: text[..5 + path.len()].to_vec(),
        uri: uri.to_vec(),
    })
}

fn parse_v6(text: &[u8], default_port: u16, usage: Use) -> Result<Address, &'static str> {
    let close = text.iter().position(|b| *b == b']').ok_or("invalid host")?;
    let mut rest = &text[close + 1..];
    let mut uri: &[u8] = b"";
    if let Some(start) = rest.iter().position(|b| matches!(b, b'/' | b'?')) {
        if usage != Use::Url {
            return Err("invalid host");
        }
        (rest, uri) = rest.split_at(start);
    }
    let (first, last, no_port) = match rest {
        [] => (default_port, None, true),
        [b':', digits @ ..] => {
            let (first, last) = ports(digits, usage)?;
            (first, last, false)
        }
        _ => return Err("invalid host"),
    };
    if close == 1 {
        return Err("no host");
    }
    let ip = std::str::from_utf8(&text[1..close]).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
    let ip = ip.ok_or("invalid IPv6 address")?;
    Ok(Address {
        host: Host::Ip(ip.into()),
        port: first,
        last_port: last,
        no_port,
        host_text: text[..=close].to_vec(),
        uri: uri.to_vec(),
    })
}

/// The addresses of a host; names are resolved.
pub(crate) fn resolve(source: &dyn Source, host: &Host, port: u16) -> Result<Vec<SocketAddr>, &'static str> {
    match host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, port)]),
        Host::Unix(_) => Ok(Vec::new()),
        Host::Name(name) => {
            let addresses = source.resolve(name).map_err(|_| "host not found")?;
            if addresses.is_empty() {
                return Err("host not found");
            }
            Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
        }
    }
}
