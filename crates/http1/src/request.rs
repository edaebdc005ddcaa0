//! Request heads.

use crate::framing::Framing;
use crate::lines::{self, FieldLine, Lines};
use crate::scan::{self, RequestLine};
use crate::{Body, Field, Header, Limits, Method, Parsed, RequestError, Span, Version, version};
use balanza_message::admission::{ONCE, keeps_name};
use balanza_message::bytes::{METHOD, PLAIN_NAME, TARGET, all, is};
use balanza_message::{Request, host, target};

/// Fields that say something about the message or the connection, and not only to servers.
const MEANT_FOR_US: u64 = Header::Host.bit()
    | Header::Connection.bit()
    | Header::ContentLength.bit()
    | Header::TransferEncoding.bit()
    | Header::Upgrade.bit()
    | Header::Expect.bit();

/// A request head, valid and unambiguous once [`RequestHead::parse`] has returned [`Parsed::Complete`].
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method as sent.
    pub method_name: Span,
    /// The request line as sent, without its end: `$request`.
    pub line: Span,
    /// The target as sent.
    pub target: Span,
    /// The target without scheme and authority: what NGINX has in `$request_uri`. Where `empty_path` is set, a "/" belongs
    /// in front.
    pub origin: Span,
    /// Whether the target is absolute and has no path, as in `http://example.com?query`.
    pub empty_path: bool,
    /// The path as sent, up to the query or fragment; never empty; "*" in the asterisk form, "/" in the authority form.
    pub path: Span,
    /// Whether the path is its own normal form: no escapes, empty segments, or segments that begin with a dot.
    pub plain_path: bool,
    /// Whether the path has escapes (`%XX`).
    pub escaped_path: bool,
    /// What follows the "?", up to a fragment.
    pub query: Option<Span>,
    /// The authority of a target in absolute or authority form; it overrides Host.
    pub authority: Option<Span>,
    /// The version.
    pub version: Version,
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// The name in the authority or in Host, without port and final dot.
    pub host: Option<Span>,
    /// The port in the authority or in Host.
    pub port: Option<u16>,
    /// Whether `host` may have capitals.
    pub host_capitals: bool,
    /// How the body is delimited; never `UntilClose`.
    pub body: Body,
    /// Whether the client wants the connection to stay open.
    pub keep_alive: bool,
    /// Whether the client waits for 100 before it sends the body.
    pub expect_continue: bool,
    /// The value of Upgrade, if it is meant: in HTTP/1.1, and nominated by Connection.
    pub upgrade: Option<Span>,
    /// The set of [`Header::bit`] of the fields.
    pub has: u64,
    /// The field names that Connection nominates, to be removed when forwarding; `close` and `keep-alive` left out.
    pub connection_names: Vec<Span>,
    framing: Framing,
    expects: bool,
    upgrade_value: Option<Span>,
    host_value: Option<Span>,
}

impl RequestHead {
    /// Parses the head at the start of `buf`. A few empty lines before it are skipped; they count in the length.
    ///
    /// Each call starts from the beginning: the result does not depend on earlier ones. After an error the fields tell
    /// what was read up to the fault, so that it can be logged.
    pub fn parse(&mut self, buf: &[u8], limits: &Limits) -> Result<Parsed, RequestError> {
        self.clear();
        let Some(start) = lines::skip_empty(buf).map_err(RequestError::bad)? else { return Ok(Parsed::Incomplete) };
        if let Some(end) = self.parse_fast(buf, start, limits) {
            self.finish(buf, end - start, limits)?;
            return Ok(Parsed::Complete(end));
        }
        self.clear();
        let parsed = self.parse_lines(buf, start, limits);
        if parsed == Ok(Parsed::Incomplete) {
            // Half a head is none.
            self.clear();
        }
        parsed
    }

    /// The first field of this name.
    #[inline]
    pub fn find(&self, header: Header) -> Option<&Field> {
        if !header.is_in(self.has) {
            return None;
        }
        self.fields.iter().find(|field| field.header == header)
    }

    /// Hands the head over, as far as it was read. `buf` is what was parsed; `length` is that of the head in it.
    pub fn hand_over(&mut self, buf: &[u8], length: usize, to: &mut Request) {
        to.text.clear();
        to.text.extend_from_slice(&buf[..length]);
        std::mem::swap(&mut to.fields, &mut self.fields);
        std::mem::swap(&mut to.nominated, &mut self.connection_names);
        to.method = self.method;
        to.method_name = self.method_name;
        to.line = self.line;
        to.origin = self.origin;
        to.empty_path = self.empty_path;
        to.path = self.path;
        to.plain_path = self.plain_path;
        to.query = self.query;
        to.version = self.version;
        to.host = self.host;
        to.host_capitals = self.host_capitals;
        to.has = self.has;
        to.upgrade = self.upgrade;
        to.body = self.body.length();
        to.expect_continue = self.expect_continue;
        self.clear();
    }

    fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        let mut connection_names = std::mem::take(&mut self.connection_names);
        fields.clear();
        connection_names.clear();
        *self = RequestHead { fields, connection_names, ..RequestHead::default() };
    }

    /// The fast way: where the head ends, if there is nothing unusual or wrong with it.
    #[inline(always)]
    pub(crate) fn parse_fast(&mut self, buf: &[u8], start: usize, limits: &Limits) -> Option<usize> {
        let (line, mut rest) = scan::request_line(buf, &buf[start..])?;
        self.start(buf, line).ok()?;
        while !rest.last {
            if self.fields.len() == scan::MOST_FIELDS {
                return None;
            }
            let (field, after) = scan::field(buf, rest.bytes)?;
            self.admit(buf, field, limits).ok()?;
            rest = after;
        }
        let end = buf.len() - rest.bytes.len() + 2;
        // No line is too long if all of them together are not.
        let within = end - start <= limits.line.min(limits.field) && self.fields.len() <= limits.fields;
        within.then_some(end)
    }

    /// The decisive way, line by line.
    #[cold]
    pub(crate) fn parse_lines(&mut self, buf: &[u8], start: usize, limits: &Limits) -> Result<Parsed, RequestError> {
        let mut lines = Lines::new(buf, start);
        let Some(line) = lines.next().map_err(RequestError::bad)? else {
            self.check_line(buf.len() - start, limits)?;
            return if is(buf[start], METHOD) {
                Ok(Parsed::Incomplete)
            } else {
                Err(RequestError::bad("invalid method"))
            };
        };
        self.check_line(lines.at() - start, limits)?;
        self.line = line;
        self.start(buf, request_line(buf, line)?)?;
        loop {
            let begins = lines.at();
            let line = lines.next().map_err(RequestError::bad)?;
            let ends = if line.is_some() { lines.at() } else { buf.len() };
            if ends - begins > limits.field {
                return Err(RequestError::too_large("too long header line"));
            }
            let Some(line) = line else {
                return if buf.len() - start > limits.head {
                    Err(RequestError::too_large("too large request header"))
                } else {
                    Ok(Parsed::Incomplete)
                };
            };
            if line.is_empty() {
                // A recipient that knows only CRLF must see the same end, and no body that another one does not.
                let frames = Header::ContentLength.bit() | Header::TransferEncoding.bit();
                if !lines.end_surely() || lines.are_mixed() && self.has & frames != 0 {
                    return Err(RequestError::bad("lines end in both CRLF and LF"));
                }
                self.finish(buf, ends - start, limits)?;
                return Ok(Parsed::Complete(ends));
            }
            self.admit(buf, lines::field(buf, line).map_err(RequestError::bad)?, limits)?;
            if self.fields.len() > limits.fields {
                return Err(RequestError::too_large("too many header lines"));
            }
        }
    }

    fn check_line(&self, len: usize, limits: &Limits) -> Result<(), RequestError> {
        if len > limits.line { Err(RequestError::new(414, "too long request line")) } else { Ok(()) }
    }

    /// Takes in the request line.
    #[inline(always)]
    fn start(&mut self, buf: &[u8], line: RequestLine) -> Result<(), RequestError> {
        self.line = line.line;
        self.method_name = line.method_name;
        self.method = line.method;
        self.target = line.target;
        self.version = line.version;
        let target = match line.method {
            Method::Connect => {
                // The path is "/", and there is one: that of the version.
                let slash = line.target.end as usize + " HTTP".len();
                target::authority_form(buf, line.target, Span::new(slash, slash + 1))
            }
            _ => target::parse(buf, line.target, line.method),
        };
        let target = target.map_err(RequestError::bad)?;
        self.path = target.path;
        self.plain_path = target.plain;
        self.escaped_path = target.escaped;
        self.query = target.query;
        self.origin = target.origin;
        self.empty_path = target.empty_path;
        self.authority = target.authority;
        Ok(())
    }

    /// Takes in a field.
    #[inline(always)]
    fn admit(&mut self, buf: &[u8], field: FieldLine, limits: &Limits) -> Result<(), RequestError> {
        if field.classes & PLAIN_NAME == 0 && !keeps_name(field.name.of(buf), field.classes, limits)? {
            return Ok(());
        }
        let FieldLine { name, value, header, .. } = field;
        let before = self.has;
        self.has |= header.bit();
        self.fields.push(Field { name, value, header });
        if header.is_in(MEANT_FOR_US | ONCE) { self.understand(buf, header, value, before) } else { Ok(()) }
    }

    /// Takes notice of what a field says; `before` is the set of those before it.
    #[inline(always)]
    fn understand(&mut self, buf: &[u8], header: Header, value: Span, before: u64) -> Result<(), RequestError> {
        if header.is_in(ONCE & before) {
            return Err(RequestError::bad("duplicate header line"));
        }
        match header {
            Header::Host => self.host_value = Some(value),
            Header::Connection => self.framing.connection(buf, value, &mut self.connection_names),
            Header::ContentLength => self.framing.content_length(value.of(buf)).map_err(RequestError::bad)?,
            Header::TransferEncoding => self.framing.transfer_encoding(value.of(buf)).map_err(RequestError::bad)?,
            Header::Upgrade => self.upgrade_value = Some(value),
            Header::Expect => self.expects = value.of(buf).eq_ignore_ascii_case(b"100-continue"),
            _ => {}
        }
        Ok(())
    }

    /// Draws the conclusions, when all fields are in.
    #[inline]
    fn finish(&mut self, buf: &[u8], len: usize, limits: &Limits) -> Result<(), RequestError> {
        if len > limits.head {
            return Err(RequestError::too_large("too large request header"));
        }
        match self.host_value {
            Some(value) => self.take_host(buf, value)?,
            None if self.version == Version::Http11 => return Err(RequestError::bad("HTTP/1.1 request without Host")),
            None => {}
        }
        if let Some(authority) = self.authority {
            self.take_host(buf, authority)?;
        }
        self.framing.check(self.version).map_err(RequestError::bad)?;
        if self.method == Method::Connect && (self.framing.chunked || self.framing.content_length.unwrap_or(0) > 0) {
            // What follows the head belongs to the tunnel.
            return Err(RequestError::bad("CONNECT request with a body"));
        }
        self.body = match self.framing {
            Framing { chunked: true, .. } => Body::Chunked,
            Framing { content_length: Some(length), .. } => Body::Length(length),
            _ => Body::None,
        };
        self.keep_alive = self.framing.keeps_alive(self.version);
        self.expect_continue = self.expects && self.version == Version::Http11;
        self.upgrade = self.upgrade_value.filter(|_| self.framing.upgrades(self.version));
        Ok(())
    }

    #[inline(always)]
    fn take_host(&mut self, buf: &[u8], value: Span) -> Result<(), RequestError> {
        let Some(authority) = host::parse_authority(value.of(buf)) else {
            return Err(RequestError::bad("invalid host"));
        };
        self.host = Some(Span { start: value.start, end: value.start + authority.host as u32 });
        self.port = authority.port;
        self.host_capitals = authority.capitals;
        Ok(())
    }
}

/// Splits `METHOD SP target SP version`, with single spaces.
fn request_line(buf: &[u8], line: Span) -> Result<RequestLine, RequestError> {
    let text = line.of(buf);
    let mut parts = text.split(|&b| b == b' ');
    let method = parts.next().unwrap_or_default();
    if method.is_empty() || !all(method, METHOD) {
        return Err(RequestError::bad("invalid method"));
    }
    let (Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(RequestError::bad("invalid request line"));
    };
    let version = match version::parse(version) {
        Some(Ok(version)) => version,
        Some(Err(2..)) => return Err(RequestError::new(505, "unsupported version")),
        _ => return Err(RequestError::bad("invalid version")),
    };
    if target.is_empty() || !all(target, TARGET) {
        return Err(RequestError::bad("invalid target"));
    }
    Ok(RequestLine {
        line,
        method: Method::recognise(method),
        method_name: Span::within(buf, method),
        target: Span::within(buf, target),
        version,
    })
}
