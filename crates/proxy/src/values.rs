//! Values of variables, common to requests of `http` and sessions of `stream`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use balanza_config::template::{ClientValue, Variable};
use balanza_message::push_decimal;
use balanza_net::clock;
use balanza_net::listening::Peer;

use crate::proxy_protocol::Header;
use crate::servers::attempt::Attempt;

/// Appends what a variable says of the process and of the time.
pub fn of_process(variable: &Variable, out: &mut Vec<u8>) -> bool {
    match variable {
        Variable::Msec => {
            let now = clock::wall();
            write(out, format_args!("{}.{:03}", now.as_secs(), now.subsec_millis()))
        }
        Variable::TimeLocal => {
            crate::dates::write_log_time(out);
            true
        }
        Variable::TimeIso8601 => {
            crate::dates::write_iso_time(out);
            true
        }
        Variable::Hostname => nonempty(rustix::system::uname().nodename().to_bytes(), out),
        Variable::NginxVersion => found(Some(balanza_config::model::DIALECT_VERSION.as_bytes()), out),
        Variable::Pid => number(u64::from(std::process::id()), out),
        _ => false,
    }
}

/// Appends what a variable says of the client's address.
pub fn of_peer(variable: &Variable, peer: Peer, out: &mut Vec<u8>) -> bool {
    match (variable, peer) {
        (Variable::RemoteAddr, _) => remote_address(peer, out),
        (Variable::BinaryRemoteAddr, _) => {
            binary_address(peer, out);
            true
        }
        // An address from a field may have no port.
        (Variable::RemotePort, Peer::Inet(address)) => address.port() == 0 || number(u64::from(address.port()), out),
        (Variable::RemotePort, Peer::Unix) => true,
        _ => false,
    }
}

/// Appends what a variable says of the client by its header of the PROXY protocol.
pub fn of_header(variable: &ClientValue, header: &Header, out: &mut Vec<u8>) -> bool {
    match variable {
        ClientValue::ProxyProtocolAddr => write(out, format_args!("{}", header.source.ip())),
        ClientValue::ProxyProtocolPort => number(u64::from(header.source.port()), out),
        ClientValue::ProxyProtocolServerAddr => write(out, format_args!("{}", header.destination.ip())),
        ClientValue::ProxyProtocolServerPort => number(u64::from(header.destination.port()), out),
        ClientValue::ProxyProtocolTlv(name) => header.tlv(name, out),
        _ => false,
    }
}

/// Appends the client's address as bytes: the key of algorithms that go by it.
pub fn binary_address(peer: Peer, out: &mut Vec<u8>) {
    match peer {
        Peer::Inet(address) => match address.ip().to_canonical() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        },
        Peer::Unix => out.extend_from_slice(b"unix:"),
    }
}

/// Appends `$remote_addr`.
pub fn remote_address(peer: Peer, out: &mut Vec<u8>) -> bool {
    match peer {
        Peer::Inet(SocketAddr::V4(address)) => {
            for (index, octet) in address.ip().octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                push_decimal(out, u64::from(octet));
            }
            true
        }
        Peer::Inet(address) => write(out, format_args!("{}", address.ip())),
        Peer::Unix => found(Some(b"unix:"), out),
    }
}

/// Appends a value that may be missing; false when it is.
pub fn found(value: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    if let Some(value) = value {
        out.extend_from_slice(value);
    }
    value.is_some()
}

/// Appends a value that is missing when it is empty.
pub fn nonempty(value: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value);
    !value.is_empty()
}

/// Appends a number.
pub fn number(value: u64, out: &mut Vec<u8>) -> bool {
    push_decimal(out, value);
    true
}

/// Whether a value fulfils a condition, as everywhere in NGINX: it is neither empty nor "0".
pub fn is_true(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0")
}

/// Appends a text.
pub fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) -> bool {
    // Writing to memory cannot fail.
    let _ = out.write_fmt(text);
    true
}

/// Seconds with milliseconds.
pub fn seconds(time: Option<clock::Nanos>, out: &mut Vec<u8>) -> bool {
    time.is_some_and(|time| write(out, format_args!("{}.{:03}", time / 1_000_000_000, time / 1_000_000 % 1000)))
}

/// A probability with six significant digits.
pub fn probability(value: Option<f64>, out: &mut Vec<u8>) -> bool {
    value.is_some_and(|value| {
        let digits = -(value.max(1e-12).log10().floor() as i32) as usize + 5;
        write(out, format_args!("{value:.digits$}"))
    })
}

/// Appends a value for each attempt: ", " between servers, " : " after an internal redirect, "-" for none.
pub fn attempts(list: &[Attempt], out: &mut Vec<u8>, value: impl Fn(&Attempt, &mut Vec<u8>) -> bool) -> bool {
    for (index, attempt) in list.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(if attempt.after_redirect { b" : " } else { b", " });
        }
        let before = out.len();
        if !value(attempt, out) {
            out.truncate(before);
            out.push(b'-');
        }
    }
    !list.is_empty()
}
