//! The syntax of `host[:port]`, in Host and in absolute targets.

use std::net::Ipv6Addr;

use crate::bytes::{PLAIN_HOST, decimal, hex_digit, is};

/// A valid authority, without user information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority {
    /// Length of the name or address at its start, brackets of an IPv6 address included, one final dot left out.
    pub host: usize,
    /// The port, where one is written.
    pub port: Option<u16>,
    /// Whether the name has capitals.
    pub capitals: bool,
}

/// Reads `host[:port]`. `None` if it is empty or no registered name, IPv4 or bracketed IPv6 address (RFC 3986, 3.2),
/// if it has user information, two dots in a row, or a port that is no number up to 65535.
#[inline]
pub fn parse_authority(text: &[u8]) -> Option<Authority> {
    let (host, capitals) = if text.first() == Some(&b'[') { (ipv6(text)?, true) } else { name(text)? };
    let port = match &text[host..] {
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(u16::try_from(decimal(digits)?).ok()?),
        _ => return None,
    };
    let host = if text[..host].ends_with(b".") { host - 1 } else { host };
    (host > 0).then_some(Authority { host, port, capitals })
}

/// Length of the address in brackets at the start.
fn ipv6(text: &[u8]) -> Option<usize> {
    let end = text.iter().position(|&b| b == b']')?;
    let address = &text[1..end];
    if !is_future(address) {
        std::str::from_utf8(address).ok()?.parse::<Ipv6Addr>().ok()?;
    }
    Some(end + 1)
}

/// Whether this is an address of a version to come (RFC 3986, 3.2.2): `v1.…`.
fn is_future(address: &[u8]) -> bool {
    let Some(rest) = address.strip_prefix(b"v").or_else(|| address.strip_prefix(b"V")) else { return false };
    let Some(dot) = rest.iter().position(|&b| b == b'.') else { return false };
    let (version, rest) = (&rest[..dot], &rest[dot + 1..]);
    let is_sign = |b: &u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:".contains(b);
    !version.is_empty() && version.iter().all(u8::is_ascii_hexdigit) && !rest.is_empty() && rest.iter().all(is_sign)
}

/// Length of the registered name at the start, and whether it has capitals.
fn name(text: &[u8]) -> Option<(usize, bool)> {
    let mut capitals = false;
    for (i, &b) in text.iter().enumerate() {
        if is(b, PLAIN_HOST) {
            continue;
        }
        match b {
            b'.' if text.get(i + 1) != Some(&b'.') => {}
            b':' => return Some((i, capitals)),
            b'A'..=b'Z' => capitals = true,
            b'%' if text.get(i + 1..i + 3).is_some_and(|hex| hex.iter().all(|&h| hex_digit(h).is_some())) => {}
            _ => return None,
        }
    }
    Some((text.len(), capitals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_and_ports(text in "([a-z0-9-]{1,12}\\.){0,3}[a-z0-9-]{1,12}", port: u16) {
            let plain = Authority { host: text.len(), port: None, capitals: false };
            prop_assert_eq!(parse_authority(text.as_bytes()), Some(plain));
            let expected = Authority { port: Some(port), ..plain };
            prop_assert_eq!(parse_authority(format!("{text}:{port}").as_bytes()), Some(expected));
        }
    }

    #[test]
    fn authorities() {
        let valid: &[(&[u8], &[u8], Option<u16>)] = &[
            (b"example.com", b"example.com", None),
            (b"example.com:80", b"example.com", Some(80)),
            (b"example.com:", b"example.com", None),
            (b"example.com.", b"example.com", None),
            (b"example.com.:8080", b"example.com", Some(8080)),
            (b"127.0.0.1:65535", b"127.0.0.1", Some(65535)),
            (b"[::1]", b"[::1]", None),
            (b"[2001:db8::1]:443", b"[2001:db8::1]", Some(443)),
            (b"[v1.fe80::a+en1]:80", b"[v1.fe80::a+en1]", Some(80)),
            (b"a_b.example", b"a_b.example", None),
            (b"x%20y", b"x%20y", None),
        ];
        for (text, host, port) in valid {
            let authority = parse_authority(text).unwrap_or_else(|| panic!("{:?}", text.escape_ascii().to_string()));
            assert_eq!((&text[..authority.host], authority.port), (*host, *port));
        }
        assert!(parse_authority(b"Example.com").unwrap().capitals);
        let invalid: &[&[u8]] = &[
            b"",
            b".",
            b":80",
            b"a..b",
            b"user@host",
            b"user:pass@host",
            b"a b",
            b"a\tb",
            b"a\0b",
            b"a/b",
            b"a?b",
            b"a#b",
            b"host:80x",
            b"host:+80",
            b"host:-1",
            b"host:65536",
            b"host:80:80",
            b"[::1",
            b"[::1]x",
            b"[::1]:x",
            b"[1.2.3.4]",
            b"[v1]",
            b"[v.a]",
            b"[vg.a]",
            b"[v1.]",
            b"[v1.a/b]",
            b"[fe80::1%25eth0]",
            b"::1",
            b"a,b,c d",
            b"h\xc3\xa4",
            b"x%2",
            b"x%zz",
            b"a\\b",
            b"\"a\"",
            b"a[b]",
            b"<a>",
            b"host:\x0d80",
            b"host: 80",
        ];
        for text in invalid {
            assert_eq!(parse_authority(text), None, "{}", text.escape_ascii());
        }
    }
}
