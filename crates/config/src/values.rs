//! Numbers, sizes, times and flags as NGINX reads them.

use std::time::Duration;

/// The greatest value of NGINX's numbers: a signed 64-bit integer.
const MAX: u64 = i64::MAX as u64;

/// A decimal number without sign.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for byte in text {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    (value <= MAX).then_some(value)
}

/// A size in bytes, with `k` or `m`; and with `g` where NGINX reads an offset in a file (`giga`).
pub(crate) fn size(text: &[u8], giga: bool) -> Option<u64> {
    let (digits, scale) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 1024),
        [digits @ .., b'm' | b'M'] => (digits, 1024 * 1024),
        [digits @ .., b'g' | b'G'] if giga => (digits, 1024 * 1024 * 1024),
        _ => (text, 1),
    };
    let value = number(digits)?.checked_mul(scale)?;
    (value <= MAX).then_some(value)
}

/// The steps of a time, the greatest unit first; a unit may only follow a greater one.
const UNITS: [(u8, u64, u64); 7] = [
    (b'y', 1, 365 * 86_400),
    (b'M', 2, 30 * 86_400),
    (b'w', 3, 7 * 86_400),
    (b'd', 4, 86_400),
    (b'h', 5, 3_600),
    (b'm', 6, 60),
    (b's', 7, 1),
];
const STEP_MILLISECONDS: u64 = 8;
const STEP_LAST: u64 = 9;

/// A time with the resolution of a millisecond: units `w` to `ms`, seconds without a unit.
pub(crate) fn milliseconds(text: &[u8]) -> Option<Duration> {
    time(text, false).map(Duration::from_millis)
}

/// A time with the resolution of a second: units `y` to `s`, seconds without a unit.
pub(crate) fn seconds(text: &[u8]) -> Option<Duration> {
    time(text, true).map(Duration::from_secs)
}

fn time(text: &[u8], in_seconds: bool) -> Option<u64> {
    let per_second = if in_seconds { 1 } else { 1000 };
    // A time in milliseconds starts below months: NGINX accepts neither `y` nor `M` there.
    let mut step = if in_seconds { 0 } else { 2 };
    let (mut value, mut total, mut valid) = (0u64, 0u64, false);
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte.is_ascii_digit() {
            value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
            valid = true;
            continue;
        }
        let (next, scale) = match (byte, tail.first()) {
            (b'm', Some(b's')) if !in_seconds => {
                rest = &tail[1..];
                (STEP_MILLISECONDS, 1)
            }
            (b'm', Some(b's')) => return None,
            // A space ends a number of seconds that has no unit; nothing may follow it.
            (b' ', _) if step < 7 => (STEP_LAST, per_second),
            _ => {
                let (_, next, seconds) = UNITS.iter().find(|unit| unit.0 == byte)?;
                (*next, seconds * per_second)
            }
        };
        if step >= next {
            return None;
        }
        step = next;
        total = total.checked_add(value.checked_mul(scale)?)?;
        value = 0;
        while let [b' ', tail @ ..] = rest {
            rest = tail;
        }
    }
    let total = total.checked_add(value.checked_mul(per_second)?)?;
    (valid && total <= MAX).then_some(total)
}

/// `on` or `off`, in any case.
pub(crate) fn flag(text: &[u8]) -> Option<bool> {
    if text.eq_ignore_ascii_case(b"on") {
        Some(true)
    } else if text.eq_ignore_ascii_case(b"off") {
        Some(false)
    } else {
        None
    }
}
