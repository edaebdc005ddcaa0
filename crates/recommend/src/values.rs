//! Values of a log as numbers: times, and lists of attempts.

use crate::format::Variable;
use crate::line::Values;

/// When the request of a line ended, in microseconds since 1970, and whether that is exact to the millisecond.
pub fn ended(values: &Values<'_>) -> Option<(u64, bool)> {
    Some(match (values.get(Variable::Msec), values.get(Variable::TimeIso8601)) {
        (Some(text), _) => (micros(text)?, true),
        (None, Some(text)) => (iso8601(text)? * 1_000_000, false),
        (None, None) => (local(values.get(Variable::TimeLocal)?)? * 1_000_000, false),
    })
}

/// Microseconds of a time in seconds like `0.123` or `1700000000.123`; `None` for anything else, `-` for example.
pub fn micros(text: &[u8]) -> Option<u64> {
    let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
    let (whole, fraction) = (&text[..dot], text.get(dot + 1..).unwrap_or_default());
    if whole.is_empty() || whole.len() > 12 || (fraction.is_empty() && dot < text.len()) {
        return None;
    }
    let mut value = digits(whole)?;
    for place in 0..6 {
        let digit = match fraction.get(place) {
            Some(byte) if byte.is_ascii_digit() => u64::from(byte - b'0'),
            Some(_) => return None,
            None => 0,
        };
        value = value * 10 + digit;
    }
    fraction.iter().skip(6).all(u8::is_ascii_digit).then_some(value)
}

fn digits(text: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for byte in text {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(byte - b'0');
    }
    (!text.is_empty()).then_some(value)
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Seconds since 1970 of `24/Nov/2026:21:53:30 +0100`.
pub fn local(text: &[u8]) -> Option<u64> {
    if text.len() != 26 || text[2] != b'/' || text[6] != b'/' || text[11] != b':' || text[20] != b' ' {
        return None;
    }
    let month = MONTHS.iter().position(|month| month[..] == text[3..6])? as u64 + 1;
    let date = (digits(&text[7..11])?, month, digits(&text[..2])?);
    let time = (digits(&text[12..14])?, digits(&text[15..17])?, digits(&text[18..20])?);
    let zone = (text[21], digits(&text[22..24])?, digits(&text[24..26])?);
    seconds(date, time, zone)
}

/// Seconds since 1970 of `2026-11-24T21:53:30+01:00`.
pub fn iso8601(text: &[u8]) -> Option<u64> {
    if text.len() != 25 || text[4] != b'-' || text[7] != b'-' || text[10] != b'T' || text[22] != b':' {
        return None;
    }
    let date = (digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..10])?);
    let time = (digits(&text[11..13])?, digits(&text[14..16])?, digits(&text[17..19])?);
    let zone = (text[19], digits(&text[20..22])?, digits(&text[23..25])?);
    seconds(date, time, zone)
}

fn seconds(date: (u64, u64, u64), time: (u64, u64, u64), zone: (u8, u64, u64)) -> Option<u64> {
    let ((year, month, day), (hours, minutes, seconds)) = (date, time);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    // Days from the civil date, with years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    let total = days.checked_sub(719_468)? * 86_400 + hours * 3_600 + minutes * 60 + seconds;
    let offset = zone.1 * 3_600 + zone.2 * 60;
    match zone.0 {
        b'+' => total.checked_sub(offset),
        b'-' => Some(total + offset),
        _ => None,
    }
}

/// The attempts of `a, b : c`: one for each server that was asked. A colon is between the servers of an internal redirect.
pub fn attempts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let comma = memchr::memmem::find(text, b", ").map(|at| (at, 2));
        let colon = memchr::memmem::find(text, b" : ").map(|at| (at, 3));
        let next = [comma, colon].into_iter().flatten().min();
        rest = next.map(|(at, length)| &text[at + length..]);
        Some(next.map_or(text, |(at, _)| &text[..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(micros(b"0.123"), Some(123_000));
        assert_eq!(micros(b"1700000000.5"), Some(1_700_000_000_500_000));
        assert_eq!(micros(b"7"), Some(7_000_000));
        for wrong in [&b"-"[..], b"", b"1.", b".5", b"1.2x", b"-1.0", b"1e3", b"99999999999999"] {
            assert_eq!(micros(wrong), None, "{}", wrong.escape_ascii());
        }
        assert_eq!(local(b"24/Nov/2026:21:53:30 +0000"), Some(1_795_557_210));
        assert_eq!(local(b"24/Nov/2026:22:53:30 +0100"), Some(1_795_557_210));
        assert_eq!(iso8601(b"2026-11-24T16:23:30-05:30"), Some(1_795_557_210));
        assert_eq!(iso8601(b"2000-02-29T00:00:00+00:00"), Some(951_782_400));
        assert_eq!((local(b"24/Nox/2026:21:53:30 +0000"), iso8601(b"2026-13-24T16:23:30-05:30")), (None, None));
    }

    #[test]
    fn lists_of_attempts() {
        let list = |text: &'static str| {
            attempts(text.as_bytes()).map(|part| std::str::from_utf8(part).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(list("10.0.0.1:80"), ["10.0.0.1:80"]);
        assert_eq!(list("10.0.0.1:80, [::1]:81 : unix:/s"), ["10.0.0.1:80", "[::1]:81", "unix:/s"]);
        assert_eq!(list("0.1, -"), ["0.1", "-"]);
    }
}
