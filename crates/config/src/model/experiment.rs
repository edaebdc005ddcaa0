//! `experiment`: two or more methods of an upstream in alternation.

use std::time::Duration;

use super::upstream::Balance;
use crate::values;

/// How many arms an experiment may have, the upstream's own method among them.
pub const ARMS_MAX: usize = 8;

/// The experiment of an upstream as it is configured.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// How it runs.
    pub settings: Settings,
    /// `start=on`: it begins with the configuration.
    pub starts: bool,
    /// `experiment_arm`: what is compared with the upstream's own method.
    pub arms: Vec<ExperimentArm>,
}

impl Experiment {
    /// The arm with this method.
    pub fn arm(&self, text: &str) -> Option<&ExperimentArm> {
        self.arms.iter().find(|arm| arm.text == text)
    }
}

/// An arm that is configured. It is known by the text of its method.
#[derive(Debug, Clone)]
pub struct ExperimentArm {
    /// The method.
    pub balance: Balance,
    /// It as it is written.
    pub text: String,
}

/// How an experiment runs: what `experiment` and the API set.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `block=` (60s): how long an arm runs.
    pub block: Duration,
    /// `washout=` (a sixth of the block): the beginning of a block, which does not count.
    pub washout: Option<Duration>,
    /// `rounds=` (30): how many blocks of each arm.
    pub rounds: u64,
    /// `seed=`: of the order of the blocks; drawn if it is not given.
    pub seed: Option<u64>,
    /// `errors=`: the greatest part of the requests that may fail.
    pub errors: Option<f64>,
    /// `p99=`: the longest p99.
    pub p99: Option<Duration>,
    /// `p99_ratio=`: the greatest ratio of an arm's p99 to that of the upstream's own method.
    pub p99_ratio: Option<f64>,
    /// `full=`: the greatest part of the servers' slots that may be in use.
    pub full: Option<f64>,
    /// `requests=` (200): requests of a block before a guard judges it.
    pub requests: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            block: Duration::from_secs(60),
            washout: None,
            rounds: 30,
            seed: None,
            errors: None,
            p99: None,
            p99_ratio: None,
            full: None,
            requests: 200,
        }
    }
}

/// The longest block: a day.
const LONGEST: Duration = Duration::from_secs(86_400);
/// The shortest p99 that a guard may have.
const SHORTEST: Duration = Duration::from_millis(1);
/// The shortest block.
const SHORTEST_BLOCK: Duration = Duration::from_millis(100);

impl Settings {
    /// The names of the parameters.
    pub const NAMES: [&str; 9] =
        ["block", "washout", "rounds", "seed", "errors", "p99", "p99_ratio", "full", "requests"];

    /// Sets a parameter, as it is written in a configuration.
    ///
    /// # Errors
    /// What is expected. There must be a parameter of this name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "block" => {
                let block = time(value).filter(|time| (SHORTEST_BLOCK..=LONGEST).contains(time));
                self.block = block.ok_or("a time from 100ms to 1d")?;
            }
            "washout" => self.washout = Some(time(value).filter(|time| *time <= LONGEST).ok_or("a time up to 1d")?),
            "rounds" => self.rounds = number(value, 1..=1000).ok_or("a number from 1 to 1000")?,
            "seed" => self.seed = Some(number(value, 0..=u64::MAX >> 11).ok_or("a number up to 2^53 - 1")?),
            "errors" => self.errors = Some(part(value).ok_or("a percentage as in 5%, below 100%")?),
            "p99" => {
                let p99 = time(value).filter(|time| (SHORTEST..=LONGEST).contains(time));
                self.p99 = Some(p99.ok_or("a time from 1ms to 1d")?);
            }
            "p99_ratio" => {
                let ratio = decimal(value).filter(|ratio| (1.0..=1000.0).contains(ratio));
                self.p99_ratio = Some(ratio.ok_or("a number from 1 to 1000, as in 1.5")?);
            }
            "full" => self.full = Some(part(value).ok_or("a percentage as in 90%, below 100%")?),
            "requests" => self.requests = number(value, 1..=1_000_000_000).ok_or("a number from 1 to 1000000000")?,
            _ => return Err("no parameter of this name"),
        }
        Ok(())
    }

    /// The beginning of a block that does not count.
    pub fn washout(&self) -> Duration {
        self.washout.unwrap_or(self.block / 6)
    }

    /// What its parameters say together: the washout is at most half of a block.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.washout() > self.block / 2 {
            true => Err("the washout is longer than half of a block"),
            false => Ok(()),
        }
    }
}

fn time(text: &str) -> Option<Duration> {
    values::milliseconds(text.as_bytes())
}

fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    values::number(text.as_bytes()).filter(|number| range.contains(number))
}

/// Digits, and perhaps a point with further ones.
fn decimal(text: &str) -> Option<f64> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let good = match text.split_once('.') {
        Some((whole, rest)) => is_digits(whole) && is_digits(rest),
        None => is_digits(text),
    };
    text.parse().ok().filter(|_| good)
}

/// A percentage, as a part of one.
fn part(text: &str) -> Option<f64> {
    let percent = decimal(text.strip_suffix('%')?)?;
    Some(percent / 100.0).filter(|part| *part < 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        let mut settings = Settings::default();
        let good = [
            ("block", "5m"),
            ("washout", "30s"),
            ("rounds", "7"),
            ("seed", "9007199254740991"),
            ("errors", "0.5%"),
            ("p99", "250ms"),
            ("p99_ratio", "1.5"),
            ("full", "90%"),
            ("requests", "1000"),
        ];
        for (name, value) in good {
            assert_eq!(settings.set(name, value), Ok(()), "{name}={value}");
        }
        let expected = Settings {
            block: Duration::from_secs(300),
            washout: Some(Duration::from_secs(30)),
            rounds: 7,
            seed: Some((1 << 53) - 1),
            errors: Some(0.005),
            p99: Some(Duration::from_millis(250)),
            p99_ratio: Some(1.5),
            full: Some(0.9),
            requests: 1000,
        };
        assert_eq!(settings, expected);
        assert_eq!(good.map(|(name, _)| name), Settings::NAMES);
    }

    #[test]
    fn wrong_values_are_refused() {
        for (name, value) in [
            ("block", "99ms"),
            ("block", "2d"),
            ("block", "soon"),
            ("block", ""),
            ("washout", "-1s"),
            ("rounds", "0"),
            ("rounds", "1.5"),
            ("seed", "9007199254740992"),
            ("errors", "5"),
            ("errors", "100%"),
            ("errors", "-1%"),
            ("errors", "%"),
            ("errors", "1e1%"),
            ("errors", ".5%"),
            ("p99", "0"),
            ("p99_ratio", "0.9"),
            ("p99_ratio", "nan"),
            ("full", "inf%"),
            ("requests", "0"),
            ("no_such", "1"),
        ] {
            assert!(Settings::default().set(name, value).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn the_washout_leaves_half_of_a_block() {
        let of = |block: u64, washout: u64| Settings {
            block: Duration::from_secs(block),
            washout: Some(Duration::from_secs(washout)),
            ..Settings::default()
        };
        assert_eq!((of(60, 30).check().is_ok(), of(60, 31).check().is_ok()), (true, false));
        assert_eq!(Settings::default().washout(), Duration::from_secs(10));
    }
}
