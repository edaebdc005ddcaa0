//! A listing as text, in the forms of NGINX: programs read them.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use balanza_config::model::Autoindex;
use balanza_message::uri::{self, Escape};

use crate::html;

/// So many characters of a name are shown in HTML.
const WIDTH: usize = 50;

/// What is listed of a file.
pub struct Entry {
    pub name: Vec<u8>,
    pub kind: Kind,
    pub size: u64,
    /// Seconds since the epoch.
    pub changed: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
    Other,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Directory => "directory",
            Kind::File => "file",
            Kind::Other => "other",
        }
    }
}

/// A listing.
pub struct Page<'a> {
    pub uri: &'a [u8],
    pub entries: &'a [Entry],
    pub settings: Autoindex,
    /// Names are counted in characters instead of bytes.
    pub utf8: bool,
    /// Seconds to add to times in HTML.
    pub offset: i64,
}

/// Writes to a vector, which does not fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{
        let _ = write!($out, $($text)*);
    }};
}

impl Page<'_> {
    /// As HTML.
    pub fn html(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
        html::escape(self.uri, out);
        out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
        html::escape(self.uri, out);
        out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
        for entry in self.entries {
            self.line(entry, out);
        }
        out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n");
    }

    fn line(&self, entry: &Entry, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<a href=\"");
        uri::escape(&entry.name, Escape::Component, out);
        let directory = entry.kind == Kind::Directory;
        out.extend_from_slice(if directory { b"/\">" } else { b"\">" });
        let text = std::str::from_utf8(&entry.name).ok().filter(|_| self.utf8);
        let mut length = text.map_or(entry.name.len(), |text| text.chars().count());
        if length > WIDTH {
            let kept = WIDTH - 3;
            let end = text.and_then(|text| text.char_indices().nth(kept)).map_or(kept, |(at, _)| at);
            html::escape(&entry.name[..end], out);
            out.extend_from_slice(b"..&gt;</a>");
        } else {
            html::escape(&entry.name, out);
            if directory && length < WIDTH {
                out.push(b'/');
                length += 1;
            }
            out.extend_from_slice(b"</a>");
            out.resize(out.len() + WIDTH - length, b' ');
        }
        let time = time(entry.changed.saturating_add(self.offset));
        put!(out, " {} ", time.strftime("%d-%b-%-Y %H:%M"));
        match (directory, self.settings.exact_size) {
            (true, true) => put!(out, "{:>19}", "-"),
            (true, false) => put!(out, "{:>7}", "-"),
            (false, true) => put!(out, "{:>19}", entry.size),
            (false, false) => match rounded(entry.size) {
                (size, None) => put!(out, " {size:>6}"),
                (size, Some(unit)) => put!(out, "{size:>6}{unit}"),
            },
        }
        out.extend_from_slice(b"\r\n");
    }

    /// As JSON, as the argument of a function if there is one.
    pub fn json(&self, callback: &[u8], out: &mut Vec<u8>) {
        if !callback.is_empty() {
            out.extend_from_slice(b"/* callback */\r\n");
            out.extend_from_slice(callback);
            out.push(b'(');
        }
        out.push(b'[');
        for (index, entry) in self.entries.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"\r\n{ \"name\":\"" } else { b",\r\n{ \"name\":\"" });
            escape_json(&entry.name, out);
            let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(entry.changed).unwrap_or(0));
            let changed = httpdate::fmt_http_date(changed);
            put!(out, "\", \"type\":\"{}\", \"mtime\":\"{changed}\"", entry.kind.name());
            if entry.kind == Kind::File {
                put!(out, ", \"size\":{}", entry.size);
            }
            out.extend_from_slice(b" }");
        }
        out.extend_from_slice(b"\r\n]");
        if !callback.is_empty() {
            out.extend_from_slice(b");");
        }
    }

    /// As XML.
    pub fn xml(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n");
        for entry in self.entries {
            let kind = entry.kind.name();
            put!(out, "<{kind} mtime=\"{}\"", time(entry.changed).strftime("%Y-%m-%dT%H:%M:%SZ"));
            if entry.kind == Kind::File {
                put!(out, " size=\"{}\"", entry.size);
            }
            out.push(b'>');
            html::escape(&entry.name, out);
            put!(out, "</{kind}>\r\n");
        }
        out.extend_from_slice(b"</list>\r\n");
    }
}

fn time(second: i64) -> jiff::Zoned {
    let time = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.to_zoned(jiff::tz::TimeZone::UTC)
}

/// A size in the greatest unit that leaves a number of it, and the unit.
fn rounded(size: u64) -> (u64, Option<char>) {
    let in_units = |unit: u64| size / unit + u64::from(size % unit > unit / 2 - 1);
    match size {
        0..10_000 => (size, None),
        10_000..0x10_0000 => (in_units(1 << 10), Some('K')),
        0x10_0000..0x4000_0000 => (in_units(1 << 20), Some('M')),
        _ => (in_units(1 << 30), Some('G')),
    }
}

fn escape_json(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0..0x20 => put!(out, "\\u{byte:04X}"),
            byte => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page<'a>(entries: &'a [Entry], utf8: bool, exact_size: bool) -> Page<'a> {
        let settings = Autoindex { enabled: true, exact_size, ..Autoindex::default() };
        Page { uri: b"/d/", entries, settings, utf8, offset: 0 }
    }

    fn file(name: &str, size: u64) -> Entry {
        Entry { name: name.into(), kind: Kind::File, size, changed: 1_700_000_000 }
    }

    #[test]
    fn long_names_are_cut_at_characters_or_bytes() {
        let name = "ü".repeat(55);
        let shown = |utf8| {
            let mut out = Vec::new();
            page(&[file(&name, 1)], utf8, true).html(&mut out);
            let begin = out.windows(2).position(|it| it == b"\">").unwrap();
            let at = out[begin + 2..].windows(2).position(|it| it == b"\">").unwrap() + begin + 4;
            out[at..].to_vec()
        };
        assert!(shown(true).starts_with("ü".repeat(47).as_bytes()) && shown(true)[94..].starts_with(b"..&gt;</a> 14-"));
        assert!(
            shown(false).starts_with("ü".repeat(23).as_bytes()) && shown(false)[47..].starts_with(b"..&gt;</a> 14-")
        );
    }

    #[test]
    fn sizes_are_rounded() {
        for (size, expected) in [
            (9_999, (9_999, None)),
            (10_000, (10, Some('K'))),
            (20_000, (20, Some('K'))),
            (10_751, (10, Some('K'))),
            (10_752, (11, Some('K'))),
            (1_048_575, (1024, Some('K'))),
            (1_048_576, (1, Some('M'))),
            (3_000_000, (3, Some('M'))),
            (1_073_741_824, (1, Some('G'))),
            (1_610_612_735, (1, Some('G'))),
            (1_610_612_736, (2, Some('G'))),
        ] {
            assert_eq!(rounded(size), expected, "{size}");
        }
    }

    #[test]
    fn texts_are_escaped() {
        let mut out = Vec::new();
        escape_json(b"a\"b\\c\n\x01\x1f\x08", &mut out);
        assert_eq!(out, b"a\\\"b\\\\c\\n\\u0001\\u001F\\b");
        out.clear();
        html::escape(b"<a href=\"x&y\">'", &mut out);
        assert_eq!(out, b"&lt;a href=&quot;x&amp;y&quot;&gt;'");
    }

    #[test]
    fn an_empty_directory() {
        let mut out = Vec::new();
        page(&[], false, true).json(b"", &mut out);
        assert_eq!(out, b"[\r\n]");
    }
}
