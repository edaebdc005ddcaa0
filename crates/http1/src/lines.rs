//! A head read line by line: slower than `scan` and always decisive. It takes over where the fast way gives up, to name
//! the fault or to accept what NGINX accepts.

use crate::{Header, Span};
use balanza_message::bytes::{VALUE, all, classes, trim};

/// Empty lines before a request that are skipped (RFC 9112, 2.2), in bytes.
const EMPTY_LINES: usize = 8;

/// Skips empty lines in front of a request: where it begins, or `None` if nothing else is there yet.
#[inline]
pub(crate) fn skip_empty(buf: &[u8]) -> Result<Option<usize>, &'static str> {
    if buf.first().is_some_and(|&b| b > b'\r') {
        return Ok(Some(0));
    }
    let mut at = 0;
    loop {
        match buf[at..] {
            [] | [b'\r'] => return Ok(None),
            [b'\n', ..] => at += 1,
            [b'\r', b'\n', ..] => at += 2,
            [b'\r', _, ..] => return Err("bare CR"),
            _ => return Ok(Some(at)),
        }
        if at > EMPTY_LINES {
            return Err("too many empty lines before a request");
        }
    }
}

/// The lines of a head, checked as they are read.
pub(crate) struct Lines<'a> {
    buf: &'a [u8],
    at: usize,
    /// How many of the last lines end in CRLF.
    crlf: usize,
    /// Whether lines end in CRLF, and whether in LF.
    ends: (bool, bool),
}

impl<'a> Lines<'a> {
    pub(crate) fn new(buf: &'a [u8], at: usize) -> Lines<'a> {
        Lines { buf, at, crlf: 0, ends: (false, false) }
    }

    /// Where the next line begins.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether some lines end in CRLF and others in LF.
    pub(crate) fn are_mixed(&self) -> bool {
        self.ends == (true, true)
    }

    /// Whether the head ends here for every recipient: all lines end alike, or the last two in CRLF.
    pub(crate) fn end_surely(&self) -> bool {
        !self.are_mixed() || self.crlf >= 2
    }

    /// The next line, without its end; `None` if it is not whole yet. Lines end in CRLF or LF (RFC 9112, 2.2).
    pub(crate) fn next(&mut self) -> Result<Option<Span>, &'static str> {
        let rest = &self.buf[self.at..];
        let Some(len) = rest.iter().position(|&b| b == b'\n') else {
            let begun = rest.strip_suffix(b"\r").unwrap_or(rest);
            return if all(begun, VALUE) { Ok(None) } else { Err(fault(begun)) };
        };
        let line = &rest[..len];
        let (line, crlf) = line.strip_suffix(b"\r").map_or((line, false), |line| (line, true));
        if !all(line, VALUE) {
            return Err(fault(line));
        }
        match crlf {
            true => (self.crlf, self.ends.0) = (self.crlf + 1, true),
            false => (self.crlf, self.ends.1) = (0, true),
        }
        let span = Span::new(self.at, self.at + line.len());
        self.at += len + 1;
        Ok(Some(span))
    }
}

fn fault(line: &[u8]) -> &'static str {
    match line.iter().find(|&&b| !all(&[b], VALUE)) {
        Some(b'\r') => "bare CR",
        Some(0) => "NUL byte",
        _ => "control byte",
    }
}

/// A line that is a field, at least by its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldLine {
    pub(crate) name: Span,
    pub(crate) value: Span,
    /// Which field it is.
    pub(crate) header: Header,
    /// The classes (see `bytes`) that all bytes of the name share: of names, `TOKEN` and `PLAIN_NAME` matter.
    pub(crate) classes: u8,
}

/// Takes apart a field line.
pub(crate) fn field(buf: &[u8], line: Span) -> Result<FieldLine, &'static str> {
    let text = line.of(buf);
    if matches!(text.first(), Some(b' ' | b'\t')) {
        return Err("folded line");
    }
    let Some(colon) = text.iter().position(|&b| b == b':') else { return Err("line without a colon") };
    let (name, value) = (&text[..colon], trim(&text[colon + 1..]));
    if name.is_empty() {
        return Err("empty field name");
    }
    if name.iter().any(|b| matches!(b, b' ' | b'\t')) {
        return Err("white space in a field name");
    }
    Ok(FieldLine {
        name: Span::within(buf, name),
        value: Span::within(buf, value),
        header: Header::recognise(name),
        classes: classes(name),
    })
}
