//! The header of the PROXY protocol: versions 1 and 2 are read, version 1 is written. No I/O.
//!
//! Source: <https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>. A header is read from the bytes that a
//! connection begins with; a verdict other than [`First::Incomplete`] does not change with more bytes.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header that is accepted, with its TLVs.
pub const LONGEST: usize = 4096;

/// The longest line of version 1.
const LONGEST_LINE: usize = 107;

/// What a header of version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The signature, version and command, family and transport, length.
const FIXED: usize = 16;

/// The type of the TLV that holds those of TLS.
const TLV_SSL: u8 = 0x20;

/// The names of TLVs.
const TLVS: &[(&[u8], u8)] =
    &[(b"alpn", 0x01), (b"authority", 0x02), (b"unique_id", 0x05), (b"ssl", TLV_SSL), (b"netns", 0x30)];

/// The names of TLVs in that of TLS.
const TLVS_OF_SSL: &[(&[u8], u8)] =
    &[(b"version", 0x21), (b"cn", 0x22), (b"cipher", 0x23), (b"sig_alg", 0x24), (b"key_alg", 0x25)];

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The client.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
    /// The TLVs of version 2, as they came.
    tlvs: Box<[u8]>,
}

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// More of them are needed.
    Incomplete,
    /// A header of this length. It has no addresses if the sender does not know them or speaks for itself.
    Header(usize, Option<Header>),
    /// No header, or none that is accepted.
    Broken(Problem),
}

/// Why a header is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// It has no valid form.
    Malformed,
    /// Of version 2: it is longer than [`LONGEST`].
    TooLarge,
    /// It has the signature of version 2 and another version.
    Version(u8),
}

/// Reads the header that `bytes` begin with.
pub fn read(bytes: &[u8]) -> First {
    let begun = bytes.len().min(SIGNATURE.len());
    if bytes[..begun] == SIGNATURE[..begun] {
        return read_binary(bytes);
    }
    let line = &bytes[..bytes.len().min(LONGEST_LINE)];
    match line.iter().position(|byte| *byte == b'\n') {
        Some(end) => match line[..end].strip_suffix(b"\r").and_then(read_line) {
            Some(header) => First::Header(end + 1, header),
            None => First::Broken(Problem::Malformed),
        },
        None if line.len() == LONGEST_LINE || !may_be_line(line) => First::Broken(Problem::Malformed),
        None => First::Incomplete,
    }
}

/// Whether bytes without a line end can be the beginning of a header of version 1.
fn may_be_line(line: &[u8]) -> bool {
    [&b"PROXY TCP4 "[..], b"PROXY TCP6 ", b"PROXY UNKNOWN"].iter().any(|begin| {
        let length = line.len().min(begin.len());
        line[..length] == begin[..length]
    })
}

/// Reads a line of version 1, without its end.
fn read_line(line: &[u8]) -> Option<Option<Header>> {
    let rest = line.strip_prefix(b"PROXY ")?;
    if rest.starts_with(b"UNKNOWN") {
        return Some(None);
    }
    let is_v4 = match rest.get(..5)? {
        b"TCP4 " => true,
        b"TCP6 " => false,
        _ => return None,
    };
    let mut parts = rest[5..].split(|byte| *byte == b' ').map(std::str::from_utf8);
    let mut part = || parts.next()?.ok();
    let (source, destination) = (address(part()?, is_v4)?, address(part()?, is_v4)?);
    let (from, to) = (port(part()?)?, port(part()?)?);
    if parts.next().is_some() {
        return None;
    }
    let (source, destination) = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
    Some(Some(Header { source, destination, tlvs: Box::default() }))
}

fn address(text: &str, is_v4: bool) -> Option<IpAddr> {
    if is_v4 { text.parse().ok().map(IpAddr::V4) } else { text.parse().ok().map(IpAddr::V6) }
}

fn port(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Reads a header of version 2.
fn read_binary(bytes: &[u8]) -> First {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else { return First::Incomplete };
    let [.., version_and_command, family_and_transport, high, low] = *fixed;
    if version_and_command >> 4 != 2 {
        return First::Broken(Problem::Version(version_and_command >> 4));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if FIXED + length > LONGEST {
        return First::Broken(Problem::TooLarge);
    }
    let Some(body) = rest.get(..length) else { return First::Incomplete };
    let whole = FIXED + length;
    // LOCAL and unknown commands, transports and families come without addresses.
    if version_and_command & 15 != 1 || family_and_transport & 15 != 1 {
        return First::Header(whole, None);
    }
    let header = match family_and_transport >> 4 {
        1 => body.split_first_chunk::<12>().map(|(ends, tlvs)| {
            let [s0, s1, s2, s3, d0, d1, d2, d3, ports @ ..] = *ends;
            (Ipv4Addr::new(s0, s1, s2, s3).into(), Ipv4Addr::new(d0, d1, d2, d3).into(), ports, tlvs)
        }),
        2 => body.split_first_chunk::<16>().and_then(|(source, rest)| {
            let (destination, rest) = rest.split_first_chunk::<16>()?;
            let (ports, tlvs) = rest.split_first_chunk::<4>()?;
            Some((Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), *ports, tlvs))
        }),
        _ => return First::Header(whole, None),
    };
    let Some((source, destination, [a, b, c, d], tlvs)) = header else { return First::Broken(Problem::Malformed) };
    let source = SocketAddr::new(source, u16::from_be_bytes([a, b]));
    let destination = SocketAddr::new(destination, u16::from_be_bytes([c, d]));
    First::Header(whole, Some(Header { source, destination, tlvs: tlvs.into() }))
}

impl Header {
    /// Appends a TLV by its name in `$proxy_protocol_tlv_…`; false if it has none.
    pub fn tlv(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(of_ssl) = name.strip_prefix(b"ssl_") else {
            return append(find_named(&self.tlvs, name, TLVS), out);
        };
        // One byte of flags and four of the result of the verification precede the inner TLVs.
        let Some((fixed, inner)) = find(&self.tlvs, TLV_SSL).and_then(<[u8]>::split_first_chunk::<5>) else {
            return false;
        };
        if of_ssl == b"verify" {
            let [_, verify @ ..] = *fixed;
            out.extend_from_slice(u32::from_be_bytes(verify).to_string().as_bytes());
            return true;
        }
        append(find_named(inner, of_ssl, TLVS_OF_SSL), out)
    }
}

fn append(value: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value.unwrap_or_default());
    value.is_some()
}

fn find_named<'t>(tlvs: &'t [u8], name: &[u8], names: &[(&[u8], u8)]) -> Option<&'t [u8]> {
    let number = match name.strip_prefix(b"0x") {
        Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
        }
        _ => names.iter().find(|(known, _)| *known == name)?.1,
    };
    find(tlvs, number)
}

/// The value of the first TLV of a type. What follows a TLV that is cut off is not looked at.
fn find(mut tlvs: &[u8], wanted: u8) -> Option<&[u8]> {
    while let Some(([kind, high, low], rest)) = tlvs.split_first_chunk::<3>() {
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        if *kind == wanted {
            return Some(value);
        }
        tlvs = rest;
    }
    None
}

/// Appends a header of version 1 for a connection from `source` to `destination`; without both they are unknown.
pub fn write(source: Option<SocketAddr>, destination: Option<SocketAddr>, out: &mut Vec<u8>) {
    let (Some(source), Some(destination)) = (source, destination) else {
        out.extend_from_slice(b"PROXY UNKNOWN\r\n");
        return;
    };
    let (mut from, mut to) = (source.ip(), destination.ip());
    // Both addresses of a line have one family.
    if from.is_ipv4() != to.is_ipv4() {
        (from, to) = (mapped(from), mapped(to));
    }
    let family = if from.is_ipv4() { 4 } else { 6 };
    // Writing to memory cannot fail.
    let _ = write!(out, "PROXY TCP{family} {from} {to} {} {}\r\n", source.port(), destination.port());
}

fn mapped(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
        IpAddr::V6(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header of version 2.
    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[0x20 | command, family], &length, body].concat()
    }

    fn of(bytes: &[u8]) -> Header {
        match read(bytes) {
            First::Header(length, Some(header)) if length == bytes.len() => header,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_are_read() {
        let header = of(b"PROXY TCP4 192.0.2.1 203.0.113.7 4711 443\r\n");
        assert_eq!(header.source, "192.0.2.1:4711".parse().unwrap());
        assert_eq!(header.destination, "203.0.113.7:443".parse().unwrap());
        assert_eq!(of(b"PROXY TCP6 2001:db8::1 ::1 1 0\r\n").source, "[2001:db8::1]:1".parse().unwrap());
        assert_eq!(read(b"PROXY UNKNOWN\r\nGET"), First::Header(15, None));
        assert_eq!(read(b"PROXY UNKNOWN ffff::1 x 1 2\r\n"), First::Header(29, None));
    }

    #[test]
    fn what_is_no_line_is_refused_as_soon_as_that_is_known() {
        for text in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"G",
            b"PROXY TCP5",
            b"PROXY  ",
            b"PROXY TCP4 192.0.2.1 203.0.113.7 4711 443\n",
            b"PROXY TCP4 192.0.2.1 203.0.113.7 4711 65536\r\n",
            b"PROXY TCP4 192.0.2.1 203.0.113.7 +1 443\r\n",
            b"PROXY TCP4 192.0.2.1 203.0.113.7 4711 443 \r\n",
            b"PROXY TCP4 192.0.2.1 203.0.113.7 4711\r\n",
            b"PROXY TCP4 192.0.2.256 203.0.113.7 4711 443\r\n",
            b"PROXY TCP4 ::1 ::1 4711 443\r\n",
            b"PROXY TCP6 192.0.2.1 192.0.2.1 4711 443\r\n",
            &[&b"PROXY UNKNOWN"[..], &[b' '; 100]].concat(),
        ] {
            assert_eq!(read(text), First::Broken(Problem::Malformed), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn binary_headers_are_read() {
        let ends = [192, 0, 2, 1, 203, 0, 113, 7, 18, 103, 1, 187];
        let header = of(&binary(1, 0x11, &ends));
        assert_eq!(
            (header.source, header.destination),
            ("192.0.2.1:4711".parse().unwrap(), "203.0.113.7:443".parse().unwrap())
        );
        let ends = [&[0; 15][..], &[1], &[0; 15], &[2], &[0, 1, 0, 2]].concat();
        assert_eq!(of(&binary(1, 0x21, &ends)).destination, "[::2]:2".parse().unwrap());
        // LOCAL, UDP, a Unix socket, and no family.
        for (command, family) in [(0, 0x11), (0, 0), (1, 0x12), (1, 0x31), (1, 0), (2, 0x11)] {
            let header = binary(command, family, &[7; 20]);
            assert_eq!(read(&header), First::Header(header.len(), None));
        }
        assert_eq!(read(&binary(1, 0x11, &[1; 11])), First::Broken(Problem::Malformed));
        assert_eq!(read(&binary(1, 0x21, &[1; 35])), First::Broken(Problem::Malformed));
        assert_eq!(read(&binary(1, 0x11, &[1; LONGEST])), First::Broken(Problem::TooLarge));
        let mut other = binary(1, 0x11, &[1; 12]);
        other[12] = 0x31;
        assert_eq!(read(&other), First::Broken(Problem::Version(3)));
    }

    #[test]
    fn tlvs_are_found_by_name_and_number() {
        let tlv = |kind: u8, value: &[u8]| [&[kind, 0, u8::try_from(value.len()).unwrap()], value].concat();
        let ssl = [&[7, 0, 0, 1, 2][..], &tlv(0x21, b"TLSv1.3"), &tlv(0x22, b"name")].concat();
        let tlvs = [tlv(4, b"pad"), tlv(1, b"h2"), tlv(0xe0, b"own"), tlv(0x20, &ssl), tlv(0x30, b"")].concat();
        let header = of(&binary(1, 0x11, &[&[1; 12][..], &tlvs].concat()));
        let value = |name: &[u8]| {
            let mut out = Vec::new();
            header.tlv(name, &mut out).then_some(out)
        };
        assert_eq!(value(b"alpn").as_deref(), Some(&b"h2"[..]));
        assert_eq!(value(b"0x01"), value(b"alpn"));
        assert_eq!(value(b"0xe0").as_deref(), Some(&b"own"[..]));
        assert_eq!(value(b"0xE0"), value(b"0xe0"));
        assert_eq!(value(b"netns").as_deref(), Some(&b""[..]));
        assert_eq!(value(b"ssl_version").as_deref(), Some(&b"TLSv1.3"[..]));
        assert_eq!(value(b"ssl_0x22").as_deref(), Some(&b"name"[..]));
        assert_eq!(value(b"ssl_verify").as_deref(), Some(&b"258"[..]));
        assert_eq!(value(b"ssl").as_deref(), Some(&ssl[..]));
        for name in [&b"authority"[..], b"ssl_cipher", b"0x02", b"0x1ff", b"0x", b"", b"ssl_", b"0x+1"] {
            assert_eq!(value(name), None, "{}", name.escape_ascii());
        }
    }

    fn sockets() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(source in sockets(), destination in sockets(), more in any::<Vec<u8>>()) {
            let mut bytes = Vec::new();
            write(Some(source), Some(destination), &mut bytes);
            let length = bytes.len();
            prop_assert!(length <= LONGEST_LINE);
            for end in 0..length {
                prop_assert_eq!(read(&bytes[..end]), First::Incomplete);
            }
            bytes.extend(more);
            let First::Header(read, Some(header)) = read(&bytes) else { panic!("not read") };
            prop_assert_eq!(read, length);
            prop_assert_eq!(header.source.ip().to_canonical(), source.ip().to_canonical());
            prop_assert_eq!(header.destination.ip().to_canonical(), destination.ip().to_canonical());
            prop_assert_eq!((header.source.port(), header.destination.port()), (source.port(), destination.port()));
        }

        #[test]
        fn a_verdict_stands(body in proptest::collection::vec(any::<u8>(), 0..80), command in 0u8..3, family in any::<u8>(),
                            cut in any::<proptest::sample::Index>()) {
            let bytes = binary(command, family, &body);
            let cut = cut.index(bytes.len() + 1);
            let early = read(&bytes[..cut]);
            prop_assert!(early == First::Incomplete || early == read(&bytes));
            prop_assert!(cut == bytes.len() || early == First::Incomplete);
        }

        #[test]
        fn any_bytes_have_a_verdict(bytes in any::<Vec<u8>>(), name in any::<Vec<u8>>(), tlvs in any::<Vec<u8>>()) {
            if let First::Header(length, _) = read(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            let ends = "1.2.3.4:5".parse().unwrap();
            let header = Header { source: ends, destination: ends, tlvs: tlvs.into() };
            for name in [&name[..], b"ssl_verify", b"alpn", b"ssl_cn", b"0x00"] {
                header.tlv(name, &mut Vec::new());
            }
        }
    }
}
