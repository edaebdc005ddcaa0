//! Claims as text that reads back as the same claim.

use std::fmt::{Display, Formatter, Result};

use super::{Claim, Expression, Measurement, Number, Operator, Order, Unit};

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.claim.fmt(f)
    }
}

impl Claim {
    /// How strongly it holds together: `or` 1, `and` 2, the rest 3.
    fn strength(&self) -> u8 {
        match self {
            Claim::Or(..) => 1,
            Claim::And(..) => 2,
            _ => 3,
        }
    }
}

impl Display for Claim {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Claim::Compare { left, order, right } => write!(f, "{left} {order} {right}"),
            Claim::Near { left, right, within } => write!(f, "{left} ~ {right} within {within}"),
            Claim::Tie(left, right) => write!(f, "tie({left}, {right})"),
            Claim::Not(claim) if claim.strength() < 3 => write!(f, "not ({claim})"),
            Claim::Not(claim) => write!(f, "not {claim}"),
            Claim::And(left, right) => sides(f, left, "and", right, |claim| claim.strength(), 2),
            Claim::Or(left, right) => sides(f, left, "or", right, |claim| claim.strength(), 1),
        }
    }
}

impl Number {
    /// How strongly it holds together: sums 1, products 2, signs 3, the rest 4.
    fn strength(&self) -> u8 {
        match self {
            Number::Arithmetic(Operator::Add | Operator::Subtract, ..) => 1,
            Number::Arithmetic(Operator::Multiply | Operator::Divide, ..) => 2,
            Number::Negative(_) => 3,
            _ => 4,
        }
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Number::Constant(value, unit) => constant(f, *value, *unit),
            Number::Measured(measurement) => measurement.fmt(f),
            Number::Negative(number) if number.strength() < 3 => write!(f, "-({number})"),
            Number::Negative(number) => write!(f, "-{number}"),
            Number::Arithmetic(operator, left, right) => match operator {
                Operator::Add => sides(f, left, "+", right, |number| number.strength(), 1),
                Operator::Subtract => sides(f, left, "-", right, |number| number.strength(), 1),
                Operator::Multiply => sides(f, left, "*", right, |number| number.strength(), 2),
                Operator::Divide => sides(f, left, "/", right, |number| number.strength(), 2),
                Operator::Least => write!(f, "least({left}, {right})"),
                Operator::Greatest => write!(f, "greatest({left}, {right})"),
            },
        }
    }
}

/// Operators group from the left: what is as strong needs parentheses on the right only.
fn sides<T: Display>(
    f: &mut Formatter<'_>,
    left: &T,
    sign: &str,
    right: &T,
    strength: impl Fn(&T) -> u8,
    own: u8,
) -> Result {
    match strength(left) < own {
        true => write!(f, "({left}) {sign} ")?,
        false => write!(f, "{left} {sign} ")?,
    }
    match strength(right) <= own {
        true => write!(f, "({right})"),
        false => write!(f, "{right}"),
    }
}

/// The shortest number that is the same again with its unit.
fn constant(f: &mut Formatter<'_>, value: f64, unit: Unit) -> Result {
    // Thirteen digits hide what the multiplication by the unit added.
    let scaled = value / unit.size();
    let short = format!("{scaled:.12e}").parse().unwrap_or(scaled);
    let exact = if short * unit.size() == value { short } else { scaled };
    match exact * unit.size() == value {
        true => write!(f, "{exact}{}", unit.sign()),
        false => write!(f, "{value}{}", if unit == Unit::None || unit == Unit::Percent { "" } else { "s" }),
    }
}

impl Display for Measurement {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let quoted = |text: &str| {
            let mark = if text.contains('"') { '\'' } else { '"' };
            format!("{mark}{text}{mark}")
        };
        write!(f, "{}({}", self.metric.text, quoted(&self.algorithm.text))?;
        let rest = [("farm", &self.farm), ("load", &self.load), ("system", &self.system), ("server", &self.server)];
        for (key, name) in rest {
            if let Some(name) = name {
                write!(f, ", {key}={}", quoted(&name.text))?;
            }
        }
        f.write_str(")")
    }
}

impl Display for Order {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Order::Less => "<",
            Order::AtMost => "<=",
            Order::More => ">",
            Order::AtLeast => ">=",
        })
    }
}
