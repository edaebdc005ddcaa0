//! Claims about what was measured, as text: `rps("LC", load="250") ~ 186.9 within 5%`.
//!
//! ```text
//! claim   = claim or claim | claim and claim | not claim | ( claim )
//!         | number < number          (also <= > >=)
//!         | number ~ number within number
//!         | tie(number, number)      no difference can be shown
//! number  = 0.9 | 5% | 10ms | 1.5s | 250us
//!         | number + number          (also - * /), - number, ( number )
//!         | least(number, number) | greatest(number, number)
//!         | METRIC("ALGORITHM", farm="…", load="…", system="…", server="…")
//! ```
//!
//! `or` binds weakest, then `and`, `not`, comparisons, `+ -`, `* /`, the sign. Without `farm` and `load` the plan's only
//! ones are meant, without `system` the one that the claim is asked of. Times are in seconds.

mod lexer;
mod parser;
mod show;
#[cfg(test)]
mod tests;

use std::fmt;

pub use parser::parse;

/// A claim that can be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// What it says.
    pub claim: Claim,
}

/// Something that is so or is not.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// `left < right` and its kin.
    Compare {
        /// The left side.
        left: Number,
        /// Which comparison.
        order: Order,
        /// The right side.
        right: Number,
    },
    /// `left ~ right within part`: their ratio is at most `part` from 1.
    Near {
        /// The left side.
        left: Number,
        /// What it should be near to.
        right: Number,
        /// By which part it may differ.
        within: Number,
    },
    /// No difference between the two can be shown.
    Tie(Number, Number),
    /// The opposite.
    Not(Box<Claim>),
    /// Both.
    And(Box<Claim>, Box<Claim>),
    /// At least one.
    Or(Box<Claim>, Box<Claim>),
}

/// Which of two numbers is to be greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// Something with a value in each repetition.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// A number as it is written; times are in seconds, 5% is 0.05.
    Constant(f64, Unit),
    /// A metric of a cell.
    Measured(Measurement),
    /// The opposite number.
    Negative(Box<Number>),
    /// Two numbers and what is done with them.
    Arithmetic(Operator, Box<Number>, Box<Number>),
}

/// What is done with two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `least(a, b)`
    Least,
    /// `greatest(a, b)`
    Greatest,
}

/// How a constant is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// As it is.
    None,
    /// Hundredths: `5%`.
    Percent,
    /// `250us`
    Microseconds,
    /// `10ms`
    Milliseconds,
    /// `1.5s`
    Seconds,
}

/// A metric of a cell, by names.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// One of [`crate::metrics::METRICS`].
    pub metric: Name,
    /// The plan's name of the algorithm.
    pub algorithm: Name,
    /// The farm; the plan's only one if absent.
    pub farm: Option<Name>,
    /// The load; the plan's only one if absent.
    pub load: Option<Name>,
    /// The system; the one that the claim is asked of if absent.
    pub system: Option<Name>,
    /// One of the farm's servers, for what is measured of each.
    pub server: Option<Name>,
}

/// A name and where it stands. Equal is what has the same text.
#[derive(Clone, Debug)]
pub struct Name {
    /// The name.
    pub text: String,
    /// The byte of the expression at which it begins.
    pub place: usize,
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.text == other.text
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A metric.
    Metric,
    /// An algorithm of the plan.
    Algorithm,
    /// A farm.
    Farm,
    /// A load.
    Load,
    /// A system.
    System,
    /// A server of a farm.
    Server,
}

/// Why a text is no claim about a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The byte of the expression at which it is wrong.
    pub place: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Error {
    pub(crate) fn new(place: usize, message: impl Into<String>) -> Error {
        Error { place, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl Expression {
    /// All that is measured in it, from left to right.
    pub fn measurements(&self) -> Vec<&Measurement> {
        let mut found = Vec::new();
        self.claim.numbers(&mut |number| number.measurements(&mut found));
        found
    }

    /// All names in it, from left to right, with what they stand for.
    pub fn names(&self) -> Vec<(What, &Name)> {
        let mut found = Vec::new();
        for Measurement { metric, algorithm, farm, load, system, server } in self.measurements() {
            found.extend([(What::Metric, metric), (What::Algorithm, algorithm)]);
            for (what, name) in [(What::Farm, farm), (What::Load, load), (What::System, system), (What::Server, server)]
            {
                found.extend(name.iter().map(|name| (what, name)));
            }
        }
        found.sort_by_key(|(_, name)| name.place);
        found
    }
}

impl Claim {
    fn numbers<'a>(&'a self, each: &mut impl FnMut(&'a Number)) {
        match self {
            Claim::Compare { left, right, .. } | Claim::Tie(left, right) => [left, right].into_iter().for_each(each),
            Claim::Near { left, right, within } => [left, right, within].into_iter().for_each(each),
            Claim::Not(claim) => claim.numbers(each),
            Claim::And(left, right) | Claim::Or(left, right) => {
                left.numbers(each);
                right.numbers(each);
            }
        }
    }
}

impl Number {
    fn measurements<'a>(&'a self, found: &mut Vec<&'a Measurement>) {
        match self {
            Number::Constant(..) => {}
            Number::Measured(measurement) => found.push(measurement),
            Number::Negative(number) => number.measurements(found),
            Number::Arithmetic(_, left, right) => {
                left.measurements(found);
                right.measurements(found);
            }
        }
    }

    /// Its value if nothing in it is measured.
    pub fn constant(&self) -> Option<f64> {
        match self {
            Number::Constant(value, _) => Some(*value),
            Number::Measured(_) => None,
            Number::Negative(number) => number.constant().map(|value| -value),
            Number::Arithmetic(operator, left, right) => Some(operator.apply(left.constant()?, right.constant()?)),
        }
    }
}

impl Operator {
    /// What comes out.
    pub fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide => left / right,
            Operator::Least => left.min(right),
            Operator::Greatest => left.max(right),
        }
    }
}

impl Unit {
    /// What one of it is.
    pub fn size(self) -> f64 {
        match self {
            Unit::None | Unit::Seconds => 1.0,
            Unit::Percent => 1e-2,
            Unit::Microseconds => 1e-6,
            Unit::Milliseconds => 1e-3,
        }
    }

    /// What is written behind the number.
    pub fn sign(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Percent => "%",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        }
    }
}
