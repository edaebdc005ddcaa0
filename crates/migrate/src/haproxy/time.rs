//! Times: HAProxy's are in milliseconds without a unit, NGINX's in seconds.

/// A time in milliseconds; none if it is not one.
pub fn milliseconds(text: &str) -> Option<u64> {
    let at = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..at].parse().ok()?;
    let factor = match &text[at..] {
        "us" => return Some(number.div_ceil(1000)),
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// A time as NGINX reads it.
pub fn written(milliseconds: u64) -> String {
    match milliseconds {
        0 => "0s".into(),
        time if time % 3_600_000 == 0 => format!("{}h", time / 3_600_000),
        time if time % 60_000 == 0 => format!("{}m", time / 60_000),
        time if time % 1000 == 0 => format!("{}s", time / 1000),
        time => format!("{time}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let of = |text: &str| milliseconds(text).map(written);
        for (text, expected) in [
            ("5000", Some("5s")),
            ("1500", Some("1500ms")),
            ("50s", Some("50s")),
            ("1m", Some("1m")),
            ("2h", Some("2h")),
            ("1d", Some("24h")),
            ("900us", Some("1ms")),
            ("0", Some("0s")),
            ("5x", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(of(text).as_deref(), expected, "{text}");
        }
    }
}
