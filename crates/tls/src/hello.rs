//! The first message of a TLS client, read without answering it: the server's name that it asks for decides which
//! certificate it gets, and `ssl_preread` routes by it.

/// What of a ClientHello matters before it is answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The name of the server (SNI), in lower case; a final dot is left out.
    pub server_name: Option<Box<str>>,
    /// The protocols that the client offers (ALPN), best first.
    pub alpn: Vec<Box<[u8]>>,
    /// The cipher suites that it offers, as on the wire.
    pub suites: Vec<u16>,
    /// The groups that it offers, as on the wire.
    pub groups: Vec<u16>,
    /// The highest version that it offers, as on the wire: 0x0303 is TLS 1.2, 0x0304 TLS 1.3.
    pub version: u16,
}

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// A whole ClientHello.
    Hello(ClientHello),
    /// Its beginning.
    Incomplete,
    /// No TLS.
    Foreign,
    /// A record of TLS with something that no client begins with.
    Malformed,
}

/// Bytes that a ClientHello may have; OpenSSL accepts as many.
const HELLO_MAX: usize = 128 * 1024;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_MAX: usize = 16384 + 256;

/// Reads the first bytes of a connection.
pub fn read(bytes: &[u8]) -> First {
    match bytes.first() {
        None => return First::Incomplete,
        Some(&HANDSHAKE) => {}
        // A ClientHello of SSL 2.0, which TLS clients of the last century began with, is foreign, too.
        Some(_) => return First::Foreign,
    }
    // The message may be spread over records.
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let Some((head, body)) = rest.split_at_checked(5) else { return incomplete(rest) };
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if head[0] != HANDSHAKE || head[1] != 3 || length == 0 || length > RECORD_MAX {
            return First::Malformed;
        }
        let whole = body.len() >= length;
        message.extend_from_slice(&body[..length.min(body.len())]);
        if let Some(kind) = message.first()
            && *kind != CLIENT_HELLO
        {
            return First::Malformed;
        }
        if let Some(&[_, a, b, c]) = message.first_chunk::<4>() {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if length > HELLO_MAX {
                return First::Malformed;
            }
            if let Some(hello) = message.get(4..4 + length) {
                return parse(hello).map_or(First::Malformed, First::Hello);
            }
        }
        if !whole {
            return First::Incomplete;
        }
        rest = &body[length..];
    }
}

/// The beginning of a record's head.
fn incomplete(head: &[u8]) -> First {
    match head {
        [] | [HANDSHAKE] | [HANDSHAKE, 3, ..] => First::Incomplete,
        _ => First::Malformed,
    }
}

/// A ClientHello (RFC 8446, section 4.1.2).
fn parse(mut hello: &[u8]) -> Option<ClientHello> {
    let version = u16::from_be_bytes(take(&mut hello, 2)?.try_into().ok()?);
    let _random = take(&mut hello, 32)?;
    let _session = short(&mut hello)?;
    let suites = numbers(long(&mut hello)?);
    let _compression = short(&mut hello)?;
    let mut found = ClientHello { version, suites, ..ClientHello::default() };
    if hello.is_empty() {
        return Some(found);
    }
    let mut extensions = long(&mut hello)?;
    if !hello.is_empty() {
        return None;
    }
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(take(&mut extensions, 2)?.try_into().ok()?);
        let mut body = long(&mut extensions)?;
        match kind {
            0 => found.server_name = server_name(body)?,
            10 => found.groups = numbers(long(&mut body)?),
            16 => {
                let mut names = long(&mut body)?;
                while !names.is_empty() {
                    found.alpn.push(short(&mut names)?.into());
                }
            }
            43 => {
                let versions = short(&mut body)?;
                let versions = numbers(versions).into_iter();
                // Others are there to find out who chokes on what he does not know (GREASE).
                found.version = versions.filter(|it| (0x0301..=0x0304).contains(it)).max().unwrap_or(found.version);
            }
            _ => {}
        }
    }
    Some(found)
}

/// The host name of a list of names (RFC 6066, section 3).
fn server_name(mut body: &[u8]) -> Option<Option<Box<str>>> {
    let mut names = long(&mut body)?;
    while !names.is_empty() {
        let kind = take(&mut names, 1)?[0];
        let name = long(&mut names)?;
        if kind == 0 {
            let name = std::str::from_utf8(name).ok()?;
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() || name.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
                return None;
            }
            return Some(Some(name.to_ascii_lowercase().into()));
        }
    }
    Some(None)
}

/// Numbers of two bytes each.
fn numbers(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    bytes.split_off(..length)
}

/// Bytes with their length in one byte before them.
fn short<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(take(bytes, 1)?[0]);
    take(bytes, length)
}

/// Bytes with their length in two bytes before them.
fn long<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(u16::from_be_bytes(take(bytes, 2)?.try_into().ok()?));
    take(bytes, length)
}
