//! Times as one writes them.

use std::fmt;
use std::str::FromStr;

use balanza_balancing::Nanos;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A hundred years: far from where nanoseconds in 64 bits end.
const SECONDS_MAX: f64 = 3.2e9;

/// A time: text with a unit, or a number of seconds. At least 0.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Time(f64);

impl Time {
    /// So many seconds; what is out of range becomes its bound.
    pub fn from_secs(seconds: f64) -> Time {
        Time(if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, SECONDS_MAX) })
    }

    /// In seconds.
    pub fn secs(self) -> f64 {
        self.0
    }

    /// On the simulation's clock.
    pub fn nanos(self) -> Nanos {
        (self.0 * 1e9).round() as Nanos
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            unit => return Err(format!("unknown unit \"{unit}\" of time: use us, ms, s, m or h, as in \"10ms\"")),
        };
        let number: f64 =
            digits.parse().map_err(|_| format!("\"{text}\" is not a time: write it as \"10ms\" or 0.01"))?;
        checked(number * unit)
    }
}

fn checked(seconds: f64) -> Result<Time, String> {
    if (0.0..=SECONDS_MAX).contains(&seconds) {
        Ok(Time(seconds))
    } else {
        Err("a time is at least 0 and at most a hundred years".into())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounding takes away what 0.0001 * 1e6 has too much.
        let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
        let (unit, name) = units.into_iter().find(|(unit, _)| self.0 >= *unit || self.0 == 0.0).unwrap_or((1e-9, "ns"));
        write!(f, "{}{name}", (self.0 / unit * 1e6).round() / 1e6)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time: text with a unit (\"10ms\") or a number of seconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Time, E> {
                checked(seconds).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Time, E> {
                self.visit_f64(seconds as f64)
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Time, E> {
                self.visit_f64(seconds as f64)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds, shown) in [
            ("10ms", 0.01, "10ms"),
            ("1.5s", 1.5, "1.5s"),
            ("250us", 0.00025, "250us"),
            ("2m", 120.0, "120s"),
            ("0", 0.0, "0s"),
        ] {
            let time: Time = text.parse().unwrap();
            assert!((time.secs() - seconds).abs() < 1e-12);
            assert_eq!((time.to_string(), time.nanos()), (shown.into(), (seconds * 1e9).round() as u64));
        }
        for wrong in ["", "x", "10x", "-1s", "nan", "inf", "1e300"] {
            assert!(wrong.parse::<Time>().is_err(), "{wrong}");
        }
    }
}
