//! Byte ranges (RFC 9110, 14): what a Range field asks for, and the pieces of the answer.

use std::ops::Range;

/// Separates the parts of a multipart answer.
pub const BOUNDARY: &[u8] = b"balanza-2f6c1d0e-byteranges";

/// What a Range field comes to.
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Ranges {
    /// No range, or one to be ignored: the whole file.
    Whole,
    /// One piece.
    One(Range<u64>),
    /// Several pieces, in the order asked for.
    Several(Vec<Range<u64>>),
    /// None of them lies in the file.
    Unsatisfiable,
}

/// Reads a Range field for a file of this size. A malformed one is unsatisfiable, as in NGINX; one in a unit other than
/// bytes is ignored; so are more ranges than `most`, and ranges that together ask for more than the whole file.
pub fn parse(field: &[u8], size: u64, most: usize) -> Ranges {
    let Some((unit, list)) = field.split_at_checked(6) else { return Ranges::Whole };
    if most == 0 || list.is_empty() || !unit.eq_ignore_ascii_case(b"bytes=") {
        return Ranges::Whole;
    }
    let mut ranges = Vec::new();
    let mut total: u64 = 0;
    for spec in list.split(|byte| *byte == b',') {
        let Some(range) = parse_one(spec.trim_ascii(), size) else { return Ranges::Unsatisfiable };
        if range.start < range.end {
            total = total.saturating_add(range.end - range.start);
            if ranges.len() == most {
                return Ranges::Whole;
            }
            ranges.push(range);
        } else if range.start == 0 {
            // The beginning of nothing is the whole.
            return Ranges::Whole;
        }
    }
    match ranges.len() {
        0 => Ranges::Unsatisfiable,
        _ if total > size => Ranges::Whole,
        1 => Ranges::One(ranges.remove(0)),
        _ => Ranges::Several(ranges),
    }
}

/// `first-last`, `first-` or `-length`; a range that ends before it begins when it lies beyond the file; `None` when it is
/// malformed.
fn parse_one(spec: &[u8], size: u64) -> Option<Range<u64>> {
    let dash = spec.iter().position(|byte| *byte == b'-')?;
    let number = |text: &[u8]| balanza_message::decimal(text.trim_ascii());
    match (&spec[..dash], &spec[dash + 1..]) {
        (b"", length) => Some(size.saturating_sub(number(length)?)..size),
        (first, b"") => Some(number(first)?..size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            Some(first..last.saturating_add(1).min(size))
        }
    }
}

/// A piece of the answer's body.
pub enum Part {
    /// Delimiter and fields of a part.
    Text(Vec<u8>),
    /// A piece of the file.
    File(Range<u64>),
}

impl Part {
    /// Its bytes.
    pub fn len(&self) -> u64 {
        match self {
            Part::Text(text) => text.len() as u64,
            Part::File(range) => range.end - range.start,
        }
    }
}

/// The body for these ranges of a file of this size and media type.
pub fn parts(ranges: &Ranges, size: u64, media_type: &[u8]) -> Vec<Part> {
    match ranges {
        Ranges::Whole => vec![Part::File(0..size)],
        Ranges::One(range) => vec![Part::File(range.clone())],
        Ranges::Unsatisfiable => Vec::new(),
        Ranges::Several(ranges) => {
            let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
            for range in ranges {
                let mut head = [b"\r\n--", BOUNDARY, b"\r\nContent-Type: ", media_type].concat();
                let position = format!("\r\nContent-Range: bytes {}-{}/{size}\r\n\r\n", range.start, range.end - 1);
                head.extend_from_slice(position.as_bytes());
                parts.push(Part::Text(head));
                parts.push(Part::File(range.clone()));
            }
            parts.push(Part::Text([b"\r\n--", BOUNDARY, b"--\r\n"].concat()));
            parts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_written() {
        for (field, expected) in [
            ("bytes=0-9", Ranges::One(0..10)),
            ("BYTES=0-9", Ranges::One(0..10)),
            ("bytes=90-", Ranges::One(90..100)),
            ("bytes=-10", Ranges::One(90..100)),
            ("bytes=-1000", Ranges::One(0..100)),
            ("bytes=90-1000", Ranges::One(90..100)),
            ("bytes=0-0, 99-99", Ranges::Several(vec![0..1, 99..100])),
            ("bytes=0-0,200-300", Ranges::One(0..1)),
            ("bytes=100-", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=9-0", Ranges::Unsatisfiable),
            ("bytes=x-9", Ranges::Unsatisfiable),
            ("bytes=", Ranges::Whole),
            ("bytes=0-98,0-98", Ranges::Whole),
            ("items=0-9", Ranges::Whole),
        ] {
            assert_eq!(parse(field.as_bytes(), 100, usize::MAX), expected, "{field}");
        }
    }

    #[test]
    fn there_are_only_so_many_ranges() {
        assert_eq!(parse(b"bytes=0-0,2-2", 100, 1), Ranges::Whole);
        assert_eq!(parse(b"bytes=0-0,200-", 100, 1), Ranges::One(0..1));
        assert_eq!(parse(b"bytes=0-0", 100, 0), Ranges::Whole);
    }

    #[test]
    fn of_nothing_there_is_only_the_whole() {
        assert_eq!(parse(b"bytes=0-", 0, usize::MAX), Ranges::Whole);
        assert_eq!(parse(b"bytes=-5", 0, usize::MAX), Ranges::Whole);
        assert_eq!(parse(b"bytes=5-", 0, usize::MAX), Ranges::Unsatisfiable);
    }

    #[test]
    fn a_multipart_body_is_as_long_as_its_parts() {
        let parts = parts(&Ranges::Several(vec![0..5, 10..20]), 100, b"text/plain");
        assert_eq!(parts.len(), 5);
        assert_eq!(parts.iter().map(|part| if let Part::File(_) = part { part.len() } else { 0 }).sum::<u64>(), 15);
    }
}
