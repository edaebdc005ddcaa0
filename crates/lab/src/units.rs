//! Durations and sizes as one writes them on a command line.

use std::time::Duration;

/// The longest duration accepted: a day. A longer delay is a slip of the keyboard.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a duration: a number with a unit, `10ms`, `0.5s`, `250us`, `2m`. Zero needs no unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds_per_unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "" if digits == "0" => 1.0,
        "" => return Err("a unit is missing: us, ms, s or m, as in 10ms".into()),
        unit => return Err(format!("unknown unit \"{unit}\": use us, ms, s or m, as in 10ms")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("\"{digits}\" is not a number"))?;
    let seconds = number * seconds_per_unit;
    if !(0.0..=DURATION_MAX.as_secs_f64()).contains(&seconds) {
        return Err("must be between 0 and a day".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A number of things in words: "1 request", "20 requests".
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Reads a size in bytes as nginx.conf writes it: `200`, `16k`, `1m` (1k = 1,024).
pub fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        unit => return Err(format!("unknown unit \"{unit}\": use k or m, or none for bytes")),
    };
    let number: usize = digits.parse().map_err(|_| format!("\"{digits}\" is not a whole number"))?;
    match number.checked_mul(unit) {
        Some(size) if size <= 1 << 30 => Ok(size),
        _ => Err("must be at most 1024m".into()),
    }
}

/// Writes a duration in the largest unit that keeps it a small number: `1.5s`, `10ms`, `250us`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds}s")
    } else if seconds >= 1e-3 {
        format!("{}ms", duration.as_micros() as f64 / 1e3)
    } else {
        format!("{}us", duration.as_micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let reads =
            [("10ms", 10_000), ("0.5s", 500_000), ("250us", 250), ("2m", 120_000_000), ("0", 0), ("1.5ms", 1500)];
        for (text, microseconds) in reads {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(microseconds)), "{text}");
        }
        for text in ["", "10", "ms", "-1s", "1h", "10 ms", "NaNs", "infs", "100000m"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("200", 200), ("16k", 16384), ("1M", 1 << 20)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "-1", "1.5k", "1g", "99999999999999999999", "2000m"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown_durations_read_back() {
        for (microseconds, text) in [(1_500_000, "1.5s"), (10_000, "10ms"), (250, "250us"), (2_500, "2.5ms")] {
            let duration = Duration::from_micros(microseconds);
            assert_eq!(show_duration(duration), text);
            assert_eq!(parse_duration(text), Ok(duration));
        }
    }
}
