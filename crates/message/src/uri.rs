//! Request paths as NGINX sees them: decoded and without dot segments for choosing a location, escaped again for
//! servers and redirects.

use std::fmt;

use crate::bytes::{PATH_STOP, hex_digit, is};

/// A path without a normal form, to be answered with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UriError {
    /// `%` without two hexadecimal digits.
    Escape,
    /// `%00`.
    Nul,
    /// `..` above the root.
    AboveRoot,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UriError::Escape => "invalid escape in the path",
            UriError::Nul => "NUL byte in the path",
            UriError::AboveRoot => "path above the root",
        })
    }
}

impl std::error::Error for UriError {}

/// Whether a path is its own normal form: it has no escapes, no empty segments and none that begin with a dot.
/// `RequestHead::plain_path` tells it for a request's path.
pub fn is_plain(path: &[u8]) -> bool {
    path.iter().enumerate().all(|(i, &b)| match b {
        b'/' => !matches!(path.get(i + 1), Some(b'/' | b'.')),
        _ => !is(b, PATH_STOP),
    })
}

/// The normal form of a path that begins with a slash: escapes decoded, `.` and `..` resolved after decoding, and runs of
/// slashes merged if `merge_slashes`. `out` is scratch space, untouched if the path is plain.
///
/// Decoded `%`, `#` and `?` are ordinary bytes; a decoded slash or dot is as good as a written one. A query or fragment
/// must have been cut off before.
pub fn normalise<'a>(path: &'a [u8], merge_slashes: bool, out: &'a mut Vec<u8>) -> Result<&'a [u8], UriError> {
    if is_plain(path) {
        return Ok(path);
    }
    out.clear();
    out.reserve(path.len());
    let mut segment = Segment::Begun;
    let mut rest = path;
    while let [b, after @ ..] = rest {
        rest = after;
        let mut b = *b;
        if b == b'%' {
            let [high, low, after @ ..] = after else { return Err(UriError::Escape) };
            rest = after;
            b = hex_digit(*high).ok_or(UriError::Escape)? << 4 | hex_digit(*low).ok_or(UriError::Escape)?;
            if b == 0 {
                return Err(UriError::Nul);
            }
        }
        match (segment, b) {
            (Segment::Empty, b'/') if merge_slashes => continue,
            (Segment::Dot, b'/') => {
                out.pop();
            }
            (Segment::DotDot, b'/') => to_parent(out)?,
            _ => out.push(b),
        }
        segment = match (segment, b) {
            (_, b'/') => Segment::Empty,
            (Segment::Empty, b'.') => Segment::Dot,
            (Segment::Dot, b'.') => Segment::DotDot,
            _ => Segment::Begun,
        };
    }
    match segment {
        Segment::Dot => {
            out.pop();
        }
        Segment::DotDot => to_parent(out)?,
        Segment::Empty | Segment::Begun => {}
    }
    Ok(out)
}

/// What a segment has so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segment {
    Empty,
    Dot,
    DotDot,
    Begun,
}

/// Takes back a final "/.." and the segment before it.
fn to_parent(out: &mut Vec<u8>) -> Result<(), UriError> {
    out.truncate(out.len() - 3);
    let parent = out.iter().rposition(|&b| b == b'/').ok_or(UriError::AboveRoot)?;
    out.truncate(parent + 1);
    Ok(())
}

/// What is escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// For a path: what no URI may hold, and `#`, `%`, `?`. NGINX uses it when `proxy_pass` with a URI part replaces the
    /// start of a path that had escapes or was redirected internally, and for the redirects that add a slash.
    Uri,
    /// For the value of an argument: also `&`, `+` and `;`.
    Args,
    /// For a text of a page that becomes a part of a URI: what no URI may hold, and `#`, `%`, `'`.
    Text,
    /// For any part: everything but letters, digits and `-._~`.
    Component,
}

/// Appends `text`, with what `kind` names written as `%XX`.
pub fn escape(text: &[u8], kind: Escape, out: &mut Vec<u8>) {
    for &b in text {
        if must_escape(b, kind) {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.extend_from_slice(&[b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
        } else {
            out.push(b);
        }
    }
}

fn must_escape(b: u8, kind: Escape) -> bool {
    // What no URI may hold (RFC 3986, 2).
    if b <= b' ' || b >= 0x7f || b"\"<>\\^`{|}".contains(&b) {
        return true;
    }
    match kind {
        Escape::Uri => b"#%?".contains(&b),
        Escape::Args => b"#%?&+;".contains(&b),
        Escape::Text => b"#%'".contains(&b),
        Escape::Component => !b.is_ascii_alphanumeric() && !b"-._~".contains(&b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(path: &str, merge: bool) -> Result<String, UriError> {
        normalise(path.as_bytes(), merge, &mut Vec::new()).map(|p| p.escape_ascii().to_string())
    }

    #[test]
    fn normal_forms() {
        for (path, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/.", "/"),
            ("/./", "/"),
            ("/a/.", "/a/"),
            ("/a/./b", "/a/b"),
            ("/a/..", "/"),
            ("/a/../", "/"),
            ("/a/b/../c", "/a/c"),
            ("/a/b/../../c", "/c"),
            ("/a/...", "/a/..."),
            ("/.../a", "/.../a"),
            ("/..a", "/..a"),
            ("/.a", "/.a"),
            ("/a.", "/a."),
            ("/a/.b/..c", "/a/.b/..c"),
            ("//", "/"),
            ("//a///b//", "/a/b/"),
            ("/a//../b", "/b"),
            ("/%41%2fb", "/A/b"),
            ("/%2e%2E/%2e", ""),
            ("/a/%2e%2e/b", "/b"),
            ("/a%2f%2e%2e%2fb", "/b"),
            ("/a/.%2e", "/"),
            ("/%25", "/%"),
            ("/%3f%23%3F", "/?#?"),
            ("/%2541", "/%41"),
            ("/%20%0d%0a", "/ \\r\\n"),
            ("/a/%3f./b", "/a/?./b"),
            ("/a+b", "/a+b"),
            ("/%ff%80", "/\\xff\\x80"),
        ] {
            let expected = if expected.is_empty() { Err(UriError::AboveRoot) } else { Ok(expected.to_owned()) };
            assert_eq!(normal(path, true), expected, "{path}");
        }
        for (path, expected) in [
            ("//a///b//", "//a///b//"),
            ("/a//../b", "/a/b"),
            ("/a//./b", "/a//b"),
            ("//..", "/"),
            ("/a/.//b", "/a//b"),
        ] {
            assert_eq!(normal(path, false).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn paths_without_a_normal_form() {
        for (path, error) in [
            ("/..", UriError::AboveRoot),
            ("/../", UriError::AboveRoot),
            ("/a/../..", UriError::AboveRoot),
            ("/./..", UriError::AboveRoot),
            ("//..", UriError::AboveRoot),
            ("/%2e./x", UriError::AboveRoot),
            ("/%", UriError::Escape),
            ("/%4", UriError::Escape),
            ("/%4g", UriError::Escape),
            ("/%zz", UriError::Escape),
            ("/%+1", UriError::Escape),
            ("/a%00b", UriError::Nul),
        ] {
            assert_eq!(normal(path, true), Err(error), "{path}");
        }
    }

    #[test]
    fn what_is_escaped() {
        let all: Vec<u8> = (0..=255).collect();
        for (kind, kept) in [
            (Escape::Uri, &b"!$&'()*+,-./:;=@[]_~"[..]),
            (Escape::Args, b"!$'()*,-./:=@[]_~"),
            (Escape::Component, b"-._~"),
        ] {
            for &b in &all {
                let mut out = Vec::new();
                escape(&[b], kind, &mut out);
                let plain = b.is_ascii_alphanumeric() || kept.contains(&b);
                assert_eq!(out, if plain { vec![b] } else { format!("%{b:02X}").into_bytes() });
            }
        }
    }

    /// The plain definition: decode, split, resolve.
    fn reference(path: &[u8]) -> Option<Vec<u8>> {
        let mut decoded = Vec::new();
        let mut i = 0;
        while i < path.len() {
            if path[i] == b'%' {
                let b = hex_digit(*path.get(i + 1)?)? << 4 | hex_digit(*path.get(i + 2)?)?;
                if b == 0 {
                    return None;
                }
                decoded.push(b);
                i += 3;
            } else {
                decoded.push(path[i]);
                i += 1;
            }
        }
        let mut stack: Vec<&[u8]> = Vec::new();
        let segments: Vec<&[u8]> = decoded[1..].split(|&b| b == b'/').collect();
        let directory = matches!(segments.last(), Some(&(b"" | b"." | b"..")));
        for segment in segments {
            match segment {
                b"" | b"." => {}
                b".." => {
                    stack.pop()?;
                }
                name => stack.push(name),
            }
        }
        let mut out = b"/".to_vec();
        out.extend(stack.join(&b'/'));
        if directory && out.len() > 1 {
            out.push(b'/');
        }
        Some(out)
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(rest in "(/|\\.|%2[ef]|%2E|a|b|%|%3f|0){0,14}") {
            let path = format!("/{rest}").into_bytes();
            let mut out = Vec::new();
            let got = normalise(&path, true, &mut out).ok().map(<[u8]>::to_vec);
            prop_assert_eq!(got, reference(&path));
        }

        #[test]
        fn escaping_is_undone(segment in prop::collection::vec(any::<u8>().prop_filter("", |b| !b"\0/.".contains(b)), 0..30)) {
            let mut path = b"/x".to_vec();
            escape(&segment, Escape::Component, &mut path);
            let whole = [b"/x", segment.as_slice()].concat();
            let mut out = Vec::new();
            prop_assert_eq!(normalise(&path, true, &mut out), Ok(&whole[..]));
        }

        #[test]
        fn a_normal_form_stays_as_it_is(rest in "[/.a%5c]{0,14}") {
            let path = format!("/{rest}").into_bytes();
            let mut out = Vec::new();
            if let Ok(once) = normalise(&path, true, &mut out).map(<[u8]>::to_vec) && !once.contains(&b'%') {
                let mut out = Vec::new();
                prop_assert_eq!(normalise(&once, true, &mut out), Ok(&once[..]));
            }
        }
    }
}
