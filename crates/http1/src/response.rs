//! Response heads.

use crate::framing::Framing;
use crate::lines::{self, FieldLine, Lines};
use crate::scan;
use crate::{Body, Field, Header, Method, Parsed, ResponseError, Span, Version, version};
use balanza_message::Response;
use balanza_message::bytes::TOKEN;

/// Fields that say something about the message or the connection, and not only to clients.
const MEANT_FOR_US: u64 =
    Header::Connection.bit() | Header::ContentLength.bit() | Header::TransferEncoding.bit() | Header::Upgrade.bit();

/// A response head, valid and unambiguous once [`ResponseHead::parse`] has returned [`Parsed::Complete`].
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    /// The status, 100 to 599.
    pub status: u16,
    /// The reason phrase, possibly empty.
    pub reason: Span,
    /// The version.
    pub version: Version,
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// How the body is delimited.
    pub body: Body,
    /// Content-Length as sent, also where it delimits nothing: in answers to HEAD and in 304.
    pub content_length: Option<u64>,
    /// Whether the connection can be used again after the body.
    pub keep_alive: bool,
    /// The value of Upgrade, if it is meant: in HTTP/1.1, and nominated by Connection. A 101 without one is invalid, and
    /// so is a 101 that was not asked for, which only the caller can know.
    pub upgrade: Option<Span>,
    /// The set of [`Header::bit`] of the fields.
    pub has: u64,
    /// The field names that Connection nominates, to be removed when forwarding; `close` and `keep-alive` left out.
    pub connection_names: Vec<Span>,
    framing: Framing,
    upgrade_value: Option<Span>,
}

impl ResponseHead {
    /// Parses the head at the start of `buf`, the answer to a request of this method; `max_head` is in bytes. Each call
    /// starts from the beginning: the result does not depend on earlier ones.
    ///
    /// A head of status 1xx, 101 apart, is followed by another one.
    pub fn parse(&mut self, buf: &[u8], request_method: Method, max_head: usize) -> Result<Parsed, ResponseError> {
        self.clear();
        let parsed = match self.parse_fast(buf) {
            Some(end) => Ok(Parsed::Complete(end)),
            None => self.parse_lines(buf, max_head),
        };
        let Parsed::Complete(end) = parsed.map_err(|reason| ResponseError { reason })? else {
            // Half a head is none.
            self.clear();
            return Ok(Parsed::Incomplete);
        };
        if end > max_head {
            return Err(ResponseError { reason: "too big header" });
        }
        self.finish(request_method).map_err(|reason| ResponseError { reason })?;
        Ok(Parsed::Complete(end))
    }

    /// The first field of this name.
    #[inline]
    pub fn find(&self, header: Header) -> Option<&Field> {
        if !header.is_in(self.has) {
            return None;
        }
        self.fields.iter().find(|field| field.header == header)
    }

    /// Whether it is an interim response, with another head to come.
    #[inline]
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Hands the head over. `buf` is what was parsed; `length` is that of the head in it.
    pub fn hand_over(&mut self, buf: &[u8], length: usize, to: &mut Response) {
        to.text.clear();
        to.text.extend_from_slice(&buf[..length]);
        std::mem::swap(&mut to.fields, &mut self.fields);
        std::mem::swap(&mut to.nominated, &mut self.connection_names);
        to.status = self.status;
        to.reason = self.reason;
        to.has = self.has;
        to.upgrade = self.upgrade;
        to.body = self.body.length();
        to.content_length = self.content_length;
    }

    fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        let mut connection_names = std::mem::take(&mut self.connection_names);
        fields.clear();
        connection_names.clear();
        *self = ResponseHead { fields, connection_names, ..ResponseHead::default() };
    }

    /// The fast way: where the head ends, if there is nothing unusual or wrong with it.
    #[inline(always)]
    pub(crate) fn parse_fast(&mut self, buf: &[u8]) -> Option<usize> {
        let (line, mut rest) = scan::status_line(buf)?;
        self.version = line.version;
        self.status = line.status;
        self.reason = line.reason;
        while !rest.last {
            if self.fields.len() == scan::MOST_FIELDS {
                return None;
            }
            let (field, after) = scan::field(buf, rest.bytes)?;
            self.admit(buf, field).ok()?;
            rest = after;
        }
        Some(buf.len() - rest.bytes.len() + 2)
    }

    /// The decisive way, line by line.
    #[cold]
    pub(crate) fn parse_lines(&mut self, buf: &[u8], max_head: usize) -> Result<Parsed, &'static str> {
        self.clear();
        let mut lines = Lines::new(buf, 0);
        let mut first = true;
        loop {
            let Some(line) = lines.next()? else {
                return if buf.len() > max_head { Err("too big header") } else { Ok(Parsed::Incomplete) };
            };
            if lines.are_mixed() {
                return Err("lines end in both CRLF and LF");
            }
            if first {
                self.status_line(buf, line)?;
                first = false;
                continue;
            }
            if line.is_empty() {
                return Ok(Parsed::Complete(lines.at()));
            }
            let field = lines::field(buf, line)?;
            if field.classes & TOKEN == 0 {
                return Err("invalid field name");
            }
            self.admit(buf, field)?;
        }
    }

    fn status_line(&mut self, buf: &[u8], line: Span) -> Result<(), &'static str> {
        let text = line.of(buf);
        let Some((version, rest)) = text.split_at_checked(8) else { return Err("invalid status line") };
        let [b' ', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = rest else {
            return Err("invalid status line");
        };
        if !matches!(rest.first(), None | Some(b' ')) {
            return Err("invalid status line");
        }
        let Some(Ok(version)) = version::parse(version) else { return Err("unsupported version") };
        self.version = version;
        self.status = [a, b, c].into_iter().fold(0, |n, digit| n * 10 + u16::from(digit - b'0'));
        self.reason = Span { start: line.end.min(line.start + 13), end: line.end };
        Ok(())
    }

    /// Takes in a field.
    #[inline(always)]
    fn admit(&mut self, buf: &[u8], field: FieldLine) -> Result<(), &'static str> {
        let FieldLine { name, value, header, .. } = field;
        self.has |= header.bit();
        self.fields.push(Field { name, value, header });
        if header.is_in(MEANT_FOR_US) { self.understand(buf, header, value) } else { Ok(()) }
    }

    #[inline(always)]
    fn understand(&mut self, buf: &[u8], header: Header, value: Span) -> Result<(), &'static str> {
        match header {
            Header::Connection => self.framing.connection(buf, value, &mut self.connection_names),
            Header::ContentLength => self.framing.content_length(value.of(buf))?,
            Header::TransferEncoding => self.framing.transfer_encoding(value.of(buf))?,
            Header::Upgrade if self.upgrade_value.is_some() => return Err("repeated Upgrade"),
            Header::Upgrade => self.upgrade_value = Some(value),
            _ => {}
        }
        Ok(())
    }

    /// Draws the conclusions, when all fields are in (RFC 9112, 6.3).
    pub(crate) fn finish(&mut self, request_method: Method) -> Result<(), &'static str> {
        if !(100..=599).contains(&self.status) {
            return Err("invalid status");
        }
        self.framing.check(self.version)?;
        self.content_length = self.framing.content_length;
        let bodiless = request_method == Method::Head || self.status < 200 || matches!(self.status, 204 | 304);
        self.body = match self.framing {
            _ if bodiless => Body::None,
            Framing { chunked: true, .. } => Body::Chunked,
            Framing { content_length: Some(length), .. } => Body::Length(length),
            _ => Body::UntilClose,
        };
        self.keep_alive = self.framing.keeps_alive(self.version) && self.body != Body::UntilClose;
        self.upgrade = self.upgrade_value.filter(|_| self.framing.upgrades(self.version));
        Ok(())
    }
}
