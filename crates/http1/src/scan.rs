//! The fast path for heads in the usual form, read in one pass and word by word (see `swar`).
//!
//! It recognises only what is complete, ends its lines in CRLF and has nothing unusual in it. Everything else is `None`,
//! which decides nothing: `lines` then reads the head from its start. So it may be as narrow as speed wants it, but never
//! wider than `lines`.
//!
//! It stands in place of `httparse`, in which more than half of the instructions of a head were spent: that lists all fields,
//! which then had to be walked again to find the line ends that it does not tell, to recognise the names and to check them.
//! Here a field is recognised while its name is in registers. The tests still compare with it.

use crate::lines::FieldLine;
use crate::swar::{before, equal, first, stops, word};
use crate::{Header, Method, Span, Version};
use balanza_message::bytes::{METHOD, PLAIN_NAME, TOKEN, classes, is, trim};

/// The parts of a request line, of which all bytes have been checked.
pub(crate) struct RequestLine {
    /// All of it, without its end.
    pub(crate) line: Span,
    pub(crate) method: Method,
    pub(crate) method_name: Span,
    pub(crate) target: Span,
    pub(crate) version: Version,
}

const CRLF: u32 = u16::from_le_bytes(*b"\r\n") as u32;
const GET: u32 = u32::from_le_bytes(*b"GET ");
const OK: u32 = u32::from_le_bytes(*b" 200");
const HTTP_10: u64 = u64::from_le_bytes(*b"HTTP/1.0");
const HTTP_11: u64 = u64::from_le_bytes(*b"HTTP/1.1");

/// Heads with more fields than this are left to `lines`, so that the fast way needs no limit of its own.
pub(crate) const MOST_FIELDS: usize = 64;

/// What is left of a buffer after a line. Positions follow from its length, so that it is all that a scan carries along.
pub(crate) struct Rest<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether the line was the last but the empty one, with which `bytes` then begins.
    pub(crate) last: bool,
}

impl<'a> Rest<'a> {
    /// What is left at the end of a line, where CRLF must be.
    #[inline(always)]
    fn at_end(bytes: &'a [u8]) -> Option<Rest<'a>> {
        let four = u32::from_le_bytes(*bytes.first_chunk()?);
        (four & 0xffff == CRLF).then(|| Rest { bytes: &bytes[2..], last: four >> 16 == CRLF })
    }
}

/// Reads the request line with which `rest`, the end of `buf`, begins.
#[inline(always)]
pub(crate) fn request_line<'a>(buf: &'a [u8], rest: &'a [u8]) -> Option<(RequestLine, Rest<'a>)> {
    let at = |rest: &[u8]| buf.len() - rest.len();
    let begin = at(rest);
    let (method, after) = match rest.split_first_chunk() {
        Some((four, after)) if u32::from_le_bytes(*four) == GET => (Method::Get, after),
        _ => other_method(rest)?,
    };
    let target = at(after);
    let mut rest = after;
    let len = loop {
        let (word, after) = word(buf, rest);
        if let Some(len) = first(stops(word, b' ' + 1)) {
            break len;
        }
        rest = after;
    };
    let rest = rest.get(len..)?;
    let end = at(rest);
    let (&[b' ', ref version @ ..], rest) = rest.split_first_chunk::<9>()? else { return None };
    if end == target {
        return None;
    }
    let line = RequestLine {
        line: Span::new(begin, at(rest)),
        method,
        method_name: Span::new(begin, target - 1),
        target: Span::new(target, end),
        version: version_of(version)?,
    };
    Some((line, Rest::at_end(rest)?))
}

/// A method and the space after it.
fn other_method(rest: &[u8]) -> Option<(Method, &[u8])> {
    let len = rest.iter().position(|&b| !is(b, METHOD)).filter(|&len| len > 0 && rest[len] == b' ')?;
    Some((Method::recognise(&rest[..len]), &rest[len + 1..]))
}

/// The parts of a status line.
pub(crate) struct StatusLine {
    pub(crate) version: Version,
    pub(crate) status: u16,
    pub(crate) reason: Span,
}

/// Reads the status line with which `buf` begins.
#[inline(always)]
pub(crate) fn status_line(buf: &[u8]) -> Option<(StatusLine, Rest<'_>)> {
    let (version, rest) = buf.split_first_chunk()?;
    let version = version_of(version)?;
    let (code, rest) = rest.split_first_chunk()?;
    let status = match u32::from_le_bytes(*code) {
        OK => 200,
        _ => other_status(*code)?,
    };
    let reason = match rest {
        [b' ', reason @ ..] => reason,
        [b'\r', ..] => rest,
        _ => return None,
    };
    let (end, after) = line_end(buf, reason)?;
    let reason = Span::new(buf.len() - reason.len(), buf.len() - end.len());
    Some((StatusLine { version, status, reason }, after))
}

/// A space and three digits.
#[inline]
fn other_status(code: [u8; 4]) -> Option<u16> {
    let [b' ', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = code else { return None };
    Some([a, b, c].iter().fold(0, |n, digit| n * 10 + u16::from(digit - b'0')))
}

/// Reads the field line with which `rest`, the end of `buf`, begins.
#[inline(always)]
pub(crate) fn field<'a>(buf: &'a [u8], rest: &'a [u8]) -> Option<(FieldLine, Rest<'a>)> {
    let at = |rest: &[u8]| buf.len() - rest.len();
    let (len, header) = name(buf, rest);
    let (&[colon, space], _) = rest.get(len..)?.split_first_chunk()?;
    let classes = if header == Header::Other { classes_of_other(&rest[..len])? } else { TOKEN | PLAIN_NAME };
    if colon != b':' {
        return None;
    }
    // The usual form: one space, and none at the end.
    let text = &rest[len + 1 + usize::from(space == b' ')..];
    let (end, after) = line_end(buf, text)?;
    let mut value = Span::new(at(text), at(end));
    if *text.first()? <= b' ' || *buf.get(at(end).wrapping_sub(1))? <= b' ' {
        value = Span::within(buf, trim(value.of(buf)));
    }
    let begin = at(rest);
    Some((FieldLine { name: Span::new(begin, begin + len), value, header, classes }, after))
}

/// The bytes before the next colon: how many, and which field it is. A length of zero is none, for whatever reason.
#[inline(always)]
fn name(buf: &[u8], rest: &[u8]) -> (usize, Header) {
    let (start, after) = word(buf, rest);
    let colons = equal(start, b':');
    if let Some(len) = first(colons) {
        return (len, Header::of_word(before(start, colons), len));
    }
    let (second, after) = word(buf, after);
    let colons = equal(second, b':');
    if let Some(len) = first(colons) {
        return (8 + len, Header::of_two_words([start, before(second, colons)], 8 + len));
    }
    let (third, _) = word(buf, after);
    let colons = equal(third, b':');
    if let Some(len) = first(colons) {
        return (16 + len, Header::of_words([start, second, before(third, colons)], 16 + len));
    }
    long_name(rest)
}

#[cold]
fn long_name(rest: &[u8]) -> (usize, Header) {
    match rest.iter().position(|&b| !is(b, TOKEN)) {
        Some(len) => (len, Header::recognise(&rest[..len])),
        None => (0, Header::Other),
    }
}

/// The classes of a name that is not known; `None` if it is no token.
#[inline]
fn classes_of_other(name: &[u8]) -> Option<u8> {
    let classes = classes(name);
    (classes & TOKEN != 0 && !name.is_empty()).then_some(classes)
}

/// The end of the line that goes on with `rest`, and what comes after it. There may be no control bytes before but tabs.
#[inline(always)]
fn line_end<'a>(buf: &[u8], mut rest: &'a [u8]) -> Option<(&'a [u8], Rest<'a>)> {
    loop {
        let (word, after) = word(buf, rest);
        let Some(len) = first(stops(word, b' ')) else {
            rest = after;
            continue;
        };
        rest = rest.get(len..)?;
        if let Some(after) = Rest::at_end(rest) {
            return Some((rest, after));
        }
        rest = rest.strip_prefix(b"\t")?;
    }
}

#[inline(always)]
fn version_of(text: &[u8; 8]) -> Option<Version> {
    match u64::from_le_bytes(*text) {
        HTTP_11 => Some(Version::Http11),
        HTTP_10 => Some(Version::Http10),
        _ => None,
    }
}
