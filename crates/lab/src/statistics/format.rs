//! Numbers of metrics as people read them.

use crate::metrics::Kind;

/// A mean and its interval, in the metric's unit, with the digits that the interval leaves: `80.4/s [79.9, 80.9]`.
pub fn with_interval(kind: Kind, mean: f64, interval: Option<(f64, f64)>) -> String {
    let half = interval.map_or(0.0, |(low, high)| (high - low) / 2.0);
    let (size, unit) = unit(kind, mean.abs().max(half));
    let whole = kind == Kind::Count && half == 0.0 && mean.fract() == 0.0;
    let places = if whole { 0 } else { places(mean / size, half / size) };
    let show = |value: f64| number(value / size, places);
    match interval {
        None => format!("{}{unit}", show(mean)),
        Some((low, high)) => format!("{}{unit} [{}, {}]", show(mean), show(low), show(high)),
    }
}

/// A value in the metric's unit: `80.4/s`.
pub fn value(kind: Kind, value: f64) -> String {
    with_interval(kind, value, None)
}

/// What one unit is, and how it is written.
fn unit(kind: Kind, value: f64) -> (f64, &'static str) {
    match kind {
        Kind::PerSecond => (1.0, "/s"),
        Kind::Part => (0.01, "%"),
        Kind::Count => (1.0, ""),
        Kind::Processors => (0.01, "%"),
        Kind::Time => match value {
            v if v >= 1.0 || v == 0.0 => (1.0, " s"),
            v if v >= 1e-3 => (1e-3, " ms"),
            _ => (1e-6, " µs"),
        },
        Kind::Bytes | Kind::BytesPerSecond => {
            let (size, plain, rate) = match value {
                v if v >= 1e6 => (1e6, " MB", " MB/s"),
                v if v >= 1e3 => (1e3, " kB", " kB/s"),
                _ => (1.0, " B", " B/s"),
            };
            (size, if kind == Kind::Bytes { plain } else { rate })
        }
    }
}

/// One digit of half an interval, at least three and at most five of the value.
fn places(value: f64, half: f64) -> usize {
    let largest = value.abs().max(half);
    if largest == 0.0 {
        return 0;
    }
    let before = |number: f64| number.log10().floor() as i32 + 1;
    let (least, most) = ((3 - before(largest)).max(0), (5 - before(largest)).max(0));
    let wanted = if half > 0.0 { 1 - before(half) } else { least };
    wanted.clamp(least, most).min(6) as usize
}

fn number(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    // No sign before zero.
    if text.trim_start_matches(['-', '0', '.']).is_empty() { text.trim_start_matches('-').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_the_interval_leaves() {
        let shown = [
            (Kind::PerSecond, 80.444, Some((79.9, 80.9)), "80.4/s [79.9, 80.9]"),
            (Kind::PerSecond, 187.0, Some((170.0, 204.0)), "187/s [170, 204]"),
            (Kind::PerSecond, 9421.7, Some((9300.0, 9543.0)), "9422/s [9300, 9543]"),
            (Kind::PerSecond, -0.0001, Some((-0.4, 0.4)), "0.000/s [-0.400, 0.400]"),
            (Kind::Time, 0.0213, Some((0.02, 0.0226)), "21.3 ms [20.0, 22.6]"),
            (Kind::Time, 1e-7, Some((-2.0, 2.0)), "0.00 s [-2.00, 2.00]"),
            (Kind::Time, 54.31, Some((50.0, 58.6)), "54.3 s [50.0, 58.6]"),
            (Kind::Time, 0.000_045, None, "45.0 µs"),
            (Kind::Part, 1.0 / 3.0, Some((0.333, 0.3337)), "33.33% [33.30, 33.37]"),
            (Kind::Count, 128.0, Some((128.0, 128.0)), "128 [128, 128]"),
            (Kind::PerSecond, 0.0, Some((0.0, 0.0)), "0/s [0, 0]"),
            (Kind::Bytes, 12_345_678.0, None, "12.3 MB"),
            (Kind::BytesPerSecond, 2_500.0, None, "2.50 kB/s"),
        ];
        for (kind, mean, interval, text) in shown {
            assert_eq!(with_interval(kind, mean, interval), text);
        }
    }
}
