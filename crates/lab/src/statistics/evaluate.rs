//! Claims against measurements: yes, no, or the repetitions leave it open.

use std::collections::BTreeMap;

use super::estimate::{ALPHA, interval};
use super::format;
use crate::expression::{Claim, Measurement, Number, Operator, Order};
use crate::metrics::{Kind, METRICS};
use crate::summary::Holds;

/// A number in each repetition, or one that is not measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Always the same.
    Constant(f64),
    /// By repetition.
    Repeated(BTreeMap<u32, f64>),
}

/// An answer and what it was decided by.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether the claim holds.
    pub holds: Holds,
    /// The numbers of each part, in words.
    pub parts: Vec<String>,
}

/// Where measurements come from: the value in each repetition, or why there is none.
pub type Source<'a> = dyn Fn(&Measurement) -> Result<BTreeMap<u32, f64>, String> + 'a;

/// Asks a claim. Comparisons are decided by the 95 % interval of the paired difference (or ratio) of both sides.
pub fn evaluate(claim: &Claim, source: &Source) -> Answer {
    let compound = matches!(claim, Claim::And(..) | Claim::Or(..));
    ask(claim, source, compound)
}

fn ask(claim: &Claim, source: &Source, compound: bool) -> Answer {
    let (holds, text) = match claim {
        Claim::Not(claim) => {
            let inner = ask(claim, source, compound);
            return Answer { holds: opposite(inner.holds), parts: inner.parts };
        }
        Claim::And(left, right) => {
            return both(ask(left, source, true), ask(right, source, true), |left, right| match (left, right) {
                (Holds::Yes, Holds::Yes) => Holds::Yes,
                (Holds::No, _) | (_, Holds::No) => Holds::No,
                _ => Holds::CannotBeTold,
            });
        }
        Claim::Or(left, right) => {
            return both(ask(left, source, true), ask(right, source, true), |left, right| match (left, right) {
                (Holds::No, Holds::No) => Holds::No,
                (Holds::Yes, _) | (_, Holds::Yes) => Holds::Yes,
                _ => Holds::CannotBeTold,
            });
        }
        Claim::Compare { left, order, right } => sides(left, right, source, |left, right| compare(left, *order, right)),
        Claim::Near { left, right, within } => {
            let part = within.constant().unwrap_or(0.0);
            sides(left, right, source, |left, right| near(left, right, part))
        }
        Claim::Tie(left, right) => sides(left, right, source, tie),
    };
    let answer = match holds {
        _ if !compound => "",
        Holds::Yes => ": true",
        Holds::No => ": false",
        Holds::CannotBeTold => ": inconclusive",
    };
    Answer { holds, parts: vec![format!("{text}{answer}")] }
}

fn both(left: Answer, right: Answer, join: impl Fn(Holds, Holds) -> Holds) -> Answer {
    let mut parts = left.parts;
    parts.extend(right.parts.into_iter().filter(|part| !parts.contains(part)).collect::<Vec<_>>());
    Answer { holds: join(left.holds, right.holds), parts }
}

fn opposite(holds: Holds) -> Holds {
    match holds {
        Holds::Yes => Holds::No,
        Holds::No => Holds::Yes,
        Holds::CannotBeTold => Holds::CannotBeTold,
    }
}

/// What decides: the difference or the ratio of two sides.
struct Decision {
    holds: Holds,
    value: Value,
    is_ratio: bool,
}

fn sides(
    left: &Number,
    right: &Number,
    source: &Source,
    decide: impl Fn(&Value, &Value) -> Decision,
) -> (Holds, String) {
    let (kind, values) = (kind(left).or(kind(right)), [left.value(source), right.value(source)]);
    let [left_value, right_value] = match values {
        [Ok(left), Ok(right)] => [left, right],
        [left, right] => {
            let mut reasons: Vec<String> = [left, right].into_iter().filter_map(Result::err).collect();
            reasons.dedup();
            return (Holds::CannotBeTold, reasons.join(", "));
        }
    };
    let kind = kind.unwrap_or(Kind::Count);
    let Decision { holds, value, is_ratio } = decide(&left_value, &right_value);
    let mut text = format!("{}; {}", side(left, &left_value, kind), side(right, &right_value, kind));
    if let Value::Repeated(values) = &value {
        let (name, kind) = if is_ratio { ("ratio", Kind::Part) } else { ("difference", kind) };
        let is_news = is_ratio || [&left_value, &right_value].iter().all(|side| matches!(side, Value::Repeated(_)));
        match values.len() {
            0 => text += "; no repetition has both values",
            1 => text += "; one repetition is not enough",
            _ if values.values().any(|value| !value.is_finite()) => text += &format!("; the {name} has no value"),
            _ if is_news => text += &format!("; {name} {}", show(kind, values)),
            _ => {}
        }
    }
    (holds, text)
}

fn side(number: &Number, value: &Value, kind: Kind) -> String {
    let name = number.to_string().replace(['"', '\''], "");
    match value {
        Value::Constant(_) if matches!(number, Number::Constant(..)) => name,
        Value::Constant(value) => format!("{name} = {}", format::value(kind, *value)),
        Value::Repeated(values) => format!("{name} = {}", show(kind, values)),
    }
}

fn show(kind: Kind, values: &BTreeMap<u32, f64>) -> String {
    let values: Vec<f64> = values.values().copied().collect();
    if values.is_empty() {
        return "not measured together".into();
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    format::with_interval(kind, mean, interval(&values, ALPHA))
}

/// In what a number is measured; none for plain ones.
fn kind(number: &Number) -> Option<Kind> {
    match number {
        Number::Constant(..) => None,
        Number::Measured(measurement) => {
            METRICS.iter().find(|metric| metric.name == measurement.metric.text).map(|metric| metric.kind)
        }
        Number::Negative(number) => kind(number),
        Number::Arithmetic(Operator::Divide, left, right) => match (kind(left), kind(right)) {
            (left, None) => left,
            (Some(left), Some(right)) if left == right => Some(Kind::Count),
            _ => Some(Kind::Count),
        },
        Number::Arithmetic(Operator::Multiply, left, right) => match (kind(left), kind(right)) {
            (Some(_), Some(_)) => Some(Kind::Count),
            (left, right) => left.or(right),
        },
        Number::Arithmetic(_, left, right) => kind(left).or(kind(right)),
    }
}

impl Number {
    /// Its value in each repetition that all of its measurements have, or why there is none.
    pub fn value(&self, source: &Source) -> Result<Value, String> {
        match self {
            Number::Constant(value, _) => Ok(Value::Constant(*value)),
            Number::Measured(measurement) => source(measurement).map(Value::Repeated),
            Number::Negative(number) => Ok(combine(Operator::Subtract, &Value::Constant(0.0), &number.value(source)?)),
            Number::Arithmetic(operator, left, right) => {
                Ok(combine(*operator, &left.value(source)?, &right.value(source)?))
            }
        }
    }
}

/// Two values, repetition by repetition: those that both have.
fn combine(operator: Operator, left: &Value, right: &Value) -> Value {
    match (left, right) {
        (Value::Constant(left), Value::Constant(right)) => Value::Constant(operator.apply(*left, *right)),
        (Value::Repeated(left), Value::Constant(right)) => {
            Value::Repeated(left.iter().map(|(i, left)| (*i, operator.apply(*left, *right))).collect())
        }
        (Value::Constant(left), Value::Repeated(right)) => {
            Value::Repeated(right.iter().map(|(i, right)| (*i, operator.apply(*left, *right))).collect())
        }
        (Value::Repeated(left), Value::Repeated(right)) => {
            let common = left.iter().filter_map(|(i, left)| Some((*i, operator.apply(*left, *right.get(i)?))));
            Value::Repeated(common.collect())
        }
    }
}

/// The interval of a value: a point where nothing is measured.
fn bounds(value: &Value) -> Option<(f64, f64)> {
    match value {
        Value::Constant(value) => value.is_finite().then_some((*value, *value)),
        Value::Repeated(values) => interval(&values.values().copied().collect::<Vec<_>>(), ALPHA),
    }
}

fn compare(left: &Value, order: Order, right: &Value) -> Decision {
    let value = combine(Operator::Subtract, left, right);
    let holds = match (bounds(&value), order) {
        (None, _) => Holds::CannotBeTold,
        (Some((low, high)), Order::Less) => between(high < 0.0, low >= 0.0),
        (Some((low, high)), Order::AtMost) => between(high <= 0.0, low > 0.0),
        (Some((low, high)), Order::More) => between(low > 0.0, high <= 0.0),
        (Some((low, high)), Order::AtLeast) => between(low >= 0.0, high < 0.0),
    };
    Decision { holds, value, is_ratio: false }
}

fn near(left: &Value, right: &Value, part: f64) -> Decision {
    let value = combine(Operator::Divide, left, right);
    let holds = match bounds(&value) {
        None => Holds::CannotBeTold,
        Some((low, high)) => between(low >= 1.0 - part && high <= 1.0 + part, high < 1.0 - part || low > 1.0 + part),
    };
    Decision { holds, value, is_ratio: true }
}

fn tie(left: &Value, right: &Value) -> Decision {
    let value = combine(Operator::Subtract, left, right);
    let holds = match bounds(&value) {
        None => Holds::CannotBeTold,
        Some((low, high)) => between(low <= 0.0 && high >= 0.0, low > 0.0 || high < 0.0),
    };
    Decision { holds, value, is_ratio: false }
}

fn between(yes: bool, no: bool) -> Holds {
    match (yes, no) {
        (true, _) => Holds::Yes,
        (_, true) => Holds::No,
        _ => Holds::CannotBeTold,
    }
}
