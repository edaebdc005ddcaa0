//! What keeps a failing, overloaded or slow server from harming more than it must, whatever the algorithm: ejection of outliers, a
//! budget for retries, a limit of requests in flight that is found by measuring, second attempts for requests that take long.
//!
//! As elsewhere, times are arguments. The worker threads share these values; what happens for each request is a few atomic
//! operations.

mod concurrency;
mod hedge;
mod outlier;
mod retry_budget;

use std::fmt;

pub use self::concurrency::Concurrency;
pub use self::hedge::Hedge;
pub use self::outlier::{Notice, Outliers, Reasons, Verdict};
pub use self::retry_budget::RetryBudget;
use crate::Nanos;
use crate::spec::{Kind, Parameter, ParameterError, Value, values};

/// A directive of an upstream: its name, parameters and origin.
pub struct Feature {
    /// The name of its directive.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Its origin.
    pub source: &'static str,
}

const fn parameter(name: &'static str, summary: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, summary, kind, default }
}

/// All of them.
pub static FEATURES: [&Feature; 4] =
    [&outlier::FEATURE, &retry_budget::FEATURE, &concurrency::FEATURE, &hedge::FEATURE];

/// The feature of this name.
pub fn find(name: &str) -> Option<&'static Feature> {
    FEATURES.into_iter().find(|feature| feature.name == name)
}

impl fmt::Debug for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A feature with its parameters.
#[derive(Clone, Debug)]
pub struct Settings {
    feature: &'static Feature,
    /// In the order of `feature.parameters`.
    values: Box<[Value]>,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Settings) -> bool {
        self.feature.name == other.feature.name && self.values == other.values
    }
}

impl Settings {
    /// Checks the parameters, given as (name, value); those not given have their defaults.
    ///
    /// # Errors
    /// What is wrong with one.
    pub fn new(feature: &'static Feature, parameters: &[(&str, &str)]) -> Result<Settings, ParameterError> {
        Ok(Settings { feature, values: values(feature.name, feature.parameters, parameters)? })
    }

    /// The feature.
    pub fn feature(&self) -> &'static Feature {
        self.feature
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.feature.parameters.iter().position(|parameter| parameter.name == name).map(|at| &self.values[at])
    }

    /// A number; 0 if there is no such parameter.
    fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// A time; 0 if there is no such parameter.
    fn time(&self, name: &str) -> Nanos {
        match self.value(name) {
            Some(Value::Time(time)) => *time,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_parameters_are_checked() {
        for feature in FEATURES {
            let settings = Settings::new(feature, &[]).unwrap();
            let texts: Vec<String> = settings.values.iter().map(Value::to_string).collect();
            let defaults: Vec<&str> = feature.parameters.iter().map(|parameter| parameter.default).collect();
            assert_eq!(texts, defaults, "{}", feature.name);
            let error = Settings::new(feature, &[("x", "1")]).unwrap_err();
            assert_eq!(error.to_string(), format!("{} has no parameter \"x\"", feature.name));
        }
        let settings = |given: &[(&str, &str)]| Settings::new(find("outlier").unwrap(), given);
        assert_eq!(
            settings(&[("panic", "101")]).unwrap_err().to_string(),
            "invalid value \"101\" of \"panic\": a number from 0 to 100 expected"
        );
        assert!(settings(&[("consecutive", "3"), ("consecutive", "3")]).is_err());
        assert_eq!(settings(&[("consecutive", "3")]).unwrap().number("consecutive"), 3);
        assert!(settings(&[("time", "5s")]).unwrap() == settings(&[("time", "5000ms")]).unwrap());
    }
}
