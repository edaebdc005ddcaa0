//! The forms of a request target (RFC 9112, 3.2; RFC 9113, 8.3.1).

use crate::bytes::{PATH_STOP, is};
use crate::{Method, Span, parse_authority};

/// A target taken apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Target {
    /// The path as sent, up to the query or fragment; never empty; "*" in the asterisk form.
    pub path: Span,
    /// What follows the "?", up to a fragment.
    pub query: Option<Span>,
    /// The target without scheme and authority.
    pub origin: Span,
    /// Whether the target is absolute and has no path.
    pub empty_path: bool,
    /// The authority of a target in absolute form.
    pub authority: Option<Span>,
    /// Whether the path is its own normal form.
    pub plain: bool,
    /// Whether the path has escapes.
    pub escaped: bool,
}

/// Takes apart a target whose bytes have been checked to be neither controls nor spaces.
///
/// # Errors
/// Why it is none.
#[inline(always)]
pub fn parse(buf: &[u8], target: Span, method: Method) -> Result<Target, &'static str> {
    let text = target.of(buf);
    if text.first() == Some(&b'/') {
        return Ok(path_and_query(buf, target.start as usize, target.end as usize));
    }
    if text == b"*" {
        return match method {
            Method::Options => Ok(Target { path: target, origin: target, ..Target::default() }),
            _ => Err("asterisk as the target of another method than OPTIONS"),
        };
    }
    absolute(buf, target)
}

/// Takes apart the authority form, the target of CONNECT: `host:port` and nothing else. The path is "/": `slash` is one in
/// the buffer.
///
/// # Errors
/// Why it is none.
#[cold]
pub fn authority_form(buf: &[u8], target: Span, slash: Span) -> Result<Target, &'static str> {
    let text = target.of(buf);
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let host = text[..text.len() - digits].strip_suffix(b":").unwrap_or_default();
    let is_name = || host.iter().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(b));
    if !host.starts_with(b"[") && !is_name() {
        return Err("invalid host in the target of CONNECT");
    }
    match parse_authority(text).map(|authority| authority.port) {
        Some(Some(1..)) if !host.is_empty() && digits > 0 && slash.of(buf) == b"/" => {
            let origin = Span::new(target.end as usize, target.end as usize);
            let authority = Some(target);
            Ok(Target { path: slash, origin, empty_path: true, authority, plain: true, ..Target::default() })
        }
        _ => Err("the target of CONNECT is not host:port"),
    }
}

#[cold]
fn absolute(buf: &[u8], target: Span) -> Result<Target, &'static str> {
    let text = target.of(buf);
    let Some(scheme) = text.windows(3).position(|w| w == b"://") else { return Err("invalid target") };
    if !text[..scheme].eq_ignore_ascii_case(b"http") && !text[..scheme].eq_ignore_ascii_case(b"https") {
        return Err("unknown scheme in the target");
    }
    let start = target.start as usize + scheme + 3;
    let end = target.end as usize;
    let len = buf[start..end].iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(end - start);
    let authority = Span::new(start, start + len);
    if parse_authority(authority.of(buf)).is_none() {
        return Err("invalid host in the target");
    }
    let rest = start + len;
    let parts = match buf[rest..end].first() {
        Some(b'/') => path_and_query(buf, rest, end),
        Some(b'#') => return Err("fragment without a path in the target"),
        // The path is "/", and there is one: the second of "://".
        first => Target {
            path: Span::new(start - 1, start),
            query: first.map(|_| Span::new(rest + 1, fragment(buf, rest + 1, end))),
            origin: Span::new(rest, end),
            empty_path: true,
            authority: None,
            plain: true,
            escaped: false,
        },
    };
    Ok(Target { authority: Some(authority), ..parts })
}

/// Splits from a slash at `start`.
#[inline(always)]
fn path_and_query(buf: &[u8], start: usize, end: usize) -> Target {
    let bytes = &buf[..end];
    let mut plain = true;
    let mut escaped = false;
    let mut at = start;
    let mut query = None;
    while at < end {
        let b = bytes[at];
        if is(b, PATH_STOP) {
            match b {
                b'/' => plain &= !matches!(bytes.get(at + 1), Some(b'/' | b'.')),
                b'?' => {
                    query = Some(Span::new(at + 1, fragment(buf, at + 1, end)));
                    break;
                }
                b'#' => break,
                _ => escaped = true,
            }
        }
        at += 1;
    }
    Target {
        path: Span::new(start, at),
        query,
        origin: Span::new(start, end),
        empty_path: false,
        authority: None,
        plain: plain && !escaped,
        escaped,
    }
}

/// Where a query ends: at a fragment, which NGINX leaves out of `$args`.
#[inline]
fn fragment(buf: &[u8], start: usize, end: usize) -> usize {
    buf[start..end].iter().position(|&b| b == b'#').map_or(end, |len| start + len)
}
