//! The head of a request, and trailers: validates them and converts them from the form of HTTP/2.

use balanza_message::admission::{ONCE, keeps_name};
use balanza_message::bytes::{METHOD, PLAIN_NAME, TARGET, TOKEN, VALUE, all, classes};
use balanza_message::{
    Field, Fields, Header, Length, Limits, Method, Request, RequestError, Span, Version, host, is_token, target,
};

use crate::fields::{NOT_IN_TRAILERS, OF_A_CONNECTION};

/// The overhead of a field in HTTP/2's calculation of a head's size.
const OVERHEAD: usize = 32;

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// RFC 9113 calls it malformed (8.1.1).
    Malformed,
    /// It is larger than allowed.
    TooLarge,
}

/// A head or trailers as they were received.
pub struct Head {
    /// Names and values, one after the other.
    pub text: Vec<u8>,
    pub known: Known,
}

/// The positions of the parts of a head in its text.
#[derive(Default)]
pub struct Known {
    fields: Vec<Field>,
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
    content_length: Option<u64>,
    /// These are trailers, which have no pseudo-fields.
    trailers: bool,
    /// How many more bytes are allowed, counted as in HTTP/2.
    room: usize,
    fault: Option<Fault>,
}

impl Head {
    /// An empty head that may become `most` bytes large.
    pub fn new(most: usize, trailers: bool) -> Head {
        let fields = Vec::with_capacity(16);
        Head { text: Vec::with_capacity(512), known: Known { fields, trailers, room: most, ..Known::default() } }
    }

    /// The length of the text.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Checks what can be checked only after the last field. `ends` means that no body follows.
    ///
    /// # Errors
    /// The head is malformed or too large.
    pub fn finish(&mut self, ends: bool) -> Result<(), Fault> {
        match self.known.fault {
            Some(fault) => Err(fault),
            None if self.known.trailers || self.is_whole(ends) => Ok(()),
            None => Err(Fault::Malformed),
        }
    }

    /// Whether all required pseudo-fields are there (RFC 9113, 8.3.1 and 8.5; RFC 8441, 4).
    fn is_whole(&self, ends: bool) -> bool {
        let known = &self.known;
        let Some(method) = known.method.map(|method| method.of(&self.text)) else { return false };
        let (scheme, path) = (known.scheme.is_some(), known.path.is_some());
        let lines_up = match (method == b"CONNECT", known.protocol.is_some()) {
            (true, false) => !scheme && !path && known.authority.is_some(),
            (true, true) => scheme && path && known.authority.is_some(),
            (false, true) => false,
            (false, false) => scheme && path,
        };
        let lacks_body = ends && known.content_length.is_some_and(|length| length > 0);
        lines_up && !lacks_body
    }

    /// Whether the request opens a WebSocket: an extended CONNECT (RFC 8441).
    pub fn opens_websocket(&self) -> bool {
        self.protocol() == Some(b"websocket")
    }

    fn protocol(&self) -> Option<&[u8]> {
        self.known.protocol.map(|protocol| protocol.of(&self.text))
    }

    /// The length of the body, if the request has a Content-Length.
    pub fn content_length(&self) -> Option<u64> {
        self.known.content_length.filter(|_| self.known.protocol.is_none())
    }

    /// The trailers that may be passed on.
    pub fn trailers(&self) -> Fields {
        let mut trailers = Fields::default();
        for field in self.known.fields.iter().filter(|field| !field.header.is_in(NOT_IN_TRAILERS)) {
            trailers.push(field.name.of(&self.text), field.value.of(&self.text));
        }
        trailers
    }
}

impl Known {
    /// Whether no error has been found so far.
    pub fn is_good(&self) -> bool {
        self.fault.is_none()
    }

    /// Checks the field at the end of `text`: its name begins at `begin`, and its value at `name_end`. Once the head is
    /// faulty, the field is removed from `text`.
    pub fn add(&mut self, text: &mut Vec<u8>, begin: usize, name_end: usize) {
        let size = text.len() - begin + OVERHEAD;
        if self.fault.is_none() {
            match self.room.checked_sub(size) {
                Some(room) => self.room = room,
                None => self.fault = Some(Fault::TooLarge),
            }
        }
        if self.fault.is_none() && !self.admit(text, begin, name_end) {
            self.fault = Some(Fault::Malformed);
        }
        if self.fault.is_some() {
            text.truncate(begin);
        }
    }

    fn admit(&mut self, text: &[u8], begin: usize, name_end: usize) -> bool {
        let (name, value) = (&text[begin..name_end], &text[name_end..]);
        if !all(value, VALUE) {
            return false;
        }
        let span = Span::new(name_end, text.len());
        if name.first() == Some(&b':') {
            return !self.trailers && self.fields.is_empty() && self.admit_pseudo(name, value, span);
        }
        if name.is_empty() || !all(name, TOKEN) || name.iter().any(u8::is_ascii_uppercase) {
            return false;
        }
        let header = Header::recognise(name);
        if header.is_in(OF_A_CONNECTION | Header::Te.bit() | Header::ContentLength.bit()) {
            match header {
                Header::Te if value.eq_ignore_ascii_case(b"trailers") => {}
                Header::ContentLength => {
                    let Some(length) = balanza_message::decimal(value) else { return false };
                    self.content_length.get_or_insert(length);
                }
                _ => return false,
            }
        }
        self.fields.push(Field { name: Span::new(begin, name_end), value: span, header });
        true
    }

    fn admit_pseudo(&mut self, name: &[u8], value: &[u8], span: Span) -> bool {
        let (place, is_valid) = match name {
            b":method" => (&mut self.method, is_token(value)),
            b":scheme" => (&mut self.scheme, is_scheme(value)),
            b":authority" => (&mut self.authority, !value.is_empty() && all(value, TARGET)),
            b":path" => (&mut self.path, value.starts_with(b"/") && all(value, TARGET) || value == b"*"),
            b":protocol" => (&mut self.protocol, is_token(value)),
            _ => return false,
        };
        is_valid && place.replace(span).is_none()
    }
}

fn is_scheme(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphabetic)
        && value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
}

/// Converts a head to a request. `ends` means that no body follows.
///
/// # Errors
/// The head is not valid, or is larger than allowed. `to` contains what was read before the error, so that it can be
/// logged.
pub fn translate(
    head: &Head,
    ends: bool,
    limits: &Limits,
    key: impl FnOnce() -> String,
    to: &mut Request,
) -> Result<(), RequestError> {
    to.clear();
    to.version = Version::Http2;
    take_line(head, limits, to)?;
    take_host(head, to)?;
    take_fields(head, limits, to)?;
    if head.opens_websocket() {
        push(to, Header::Connection, b"Connection", b"Upgrade");
        to.upgrade = Some(push(to, Header::Upgrade, b"Upgrade", b"websocket"));
        push(to, Header::SecWebsocketKey, b"Sec-WebSocket-Key", key().as_bytes());
        // The bytes that follow belong to the WebSocket; they are no body.
        to.body = Length::None;
        return Ok(());
    }
    to.body = match head.content_length() {
        None if ends => Length::None,
        Some(length) => Length::Known(length),
        None => Length::Unknown,
    };
    Ok(())
}

/// Makes the request line that HTTP/1 would have, for `$request`.
fn take_line(head: &Head, limits: &Limits, to: &mut Request) -> Result<(), RequestError> {
    let of = |span: Option<Span>| span.map_or(&[][..], |span| span.of(&head.text));
    let method = if head.opens_websocket() { b"GET" } else { of(head.known.method) };
    let path = of(head.known.path);
    to.text.extend_from_slice(method);
    to.text.push(b' ');
    let begin = to.text.len();
    to.text.extend_from_slice(path);
    let (end, rest) = (to.text.len(), b" HTTP/2.0");
    to.text.extend_from_slice(rest);
    to.method = Method::recognise(method);
    to.method_name = Span::new(0, method.len());
    to.line = Span::new(0, to.text.len());
    to.text.extend_from_slice(b"\r\n");
    match to.method {
        Method::Connect if head.protocol().is_some() => {
            return Err(RequestError::new(501, "extended CONNECT with another protocol than \"websocket\""));
        }
        Method::Connect => return Err(RequestError::new(405, "CONNECT method is not allowed")),
        _ => {}
    }
    if !all(method, METHOD) {
        return Err(RequestError::bad("invalid method"));
    }
    if to.text.len() > limits.line {
        return Err(RequestError::new(414, "too long request line"));
    }
    let parts = target::parse(&to.text, Span::new(begin, end), to.method).map_err(RequestError::bad)?;
    (to.path, to.plain_path, to.query) = (parts.path, parts.plain, parts.query);
    (to.origin, to.empty_path) = (parts.origin, parts.empty_path);
    Ok(())
}

/// Uses `:authority` as Host. If the request has both, they must be equal.
fn take_host(head: &Head, to: &mut Request) -> Result<(), RequestError> {
    let mut given = head.known.fields.iter().filter(|field| field.header == Header::Host);
    let field = given.next().map(|field| field.value.of(&head.text));
    if given.next().is_some() {
        return Err(RequestError::bad("duplicate header line"));
    }
    let authority = head.known.authority.map(|authority| authority.of(&head.text));
    let Some(value) = authority.or(field) else {
        return Err(RequestError::bad("client sent neither \":authority\" nor \"Host\" header"));
    };
    if field.is_some_and(|field| !field.eq_ignore_ascii_case(value)) {
        return Err(RequestError::bad("client sent \":authority\" and \"Host\" headers with different values"));
    }
    let value = push(to, Header::Host, b"Host", value);
    let Some(parsed) = host::parse_authority(value.of(&to.text)) else { return Err(RequestError::bad("invalid host")) };
    to.host = Some(Span { start: value.start, end: value.start + parsed.host as u32 });
    to.host_capitals = parsed.capitals;
    Ok(())
}

fn take_fields(head: &Head, limits: &Limits, to: &mut Request) -> Result<(), RequestError> {
    let opens = head.opens_websocket();
    for field in head.known.fields.iter().filter(|field| field.header != Header::Host) {
        let header = field.header;
        // HTTP/2 does not use this field; a server that speaks HTTP/1 gets a generated key.
        if opens && header == Header::SecWebsocketKey {
            continue;
        }
        let (name, value) = (field.name.of(&head.text), field.value.of(&head.text));
        if header == Header::Other {
            let classes = classes(name);
            if classes & PLAIN_NAME == 0 && !keeps_name(name, classes, limits)? {
                continue;
            }
        }
        if header == Header::Cookie {
            if !header.is_in(to.has) {
                admit(to, header, name, &cookie(head, value), limits)?;
            }
            continue;
        }
        if header.is_in(to.has & (ONCE | Header::ContentLength.bit())) {
            return Err(RequestError::bad("duplicate header line"));
        }
        admit(to, header, name, value, limits)?;
    }
    if to.text.len() > limits.head {
        return Err(RequestError::too_large("too large request header"));
    }
    Ok(())
}

/// Joins Cookie fields into one, because a client may split the field (RFC 9113, 8.2.3).
fn cookie<'a>(head: &'a Head, first: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
    let all = || head.known.fields.iter().filter(|field| field.header == Header::Cookie);
    if all().nth(1).is_none() {
        return first.into();
    }
    let crumbs: Vec<&[u8]> = all().map(|field| field.value.of(&head.text)).collect();
    crumbs.join(&b"; "[..]).into()
}

fn admit(to: &mut Request, header: Header, name: &[u8], value: &[u8], limits: &Limits) -> Result<(), RequestError> {
    if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value {
        return Err(RequestError::bad("white space around a field's value"));
    }
    if name.len() + value.len() + 4 > limits.field {
        return Err(RequestError::too_large("too long header line"));
    }
    if to.fields.len() == limits.fields {
        return Err(RequestError::too_large("too many header lines"));
    }
    push(to, header, name, value);
    Ok(())
}

/// Adds a field and returns the position of its value.
fn push(to: &mut Request, header: Header, name: &[u8], value: &[u8]) -> Span {
    let field = Field::write(&mut to.text, header, name, value);
    to.has |= header.bit();
    to.fields.push(field);
    field.value
}

#[cfg(test)]
mod tests;
