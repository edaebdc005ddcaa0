//! The list of algorithms: names, parameters, sources and costs.
//!
//! Configuration, command line, documentation and tests read this list and nothing else, so an algorithm is added with
//! one file in `algorithms/` and one line in [`entries`].

use std::fmt;

use crate::algorithms;
use crate::policy::Build;

/// What an algorithm wants to be told about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Nothing.
    None,
    /// Bytes that the user composes (`hash KEY`).
    Any,
    /// The client's address: 4 bytes (IPv4) or 16 bytes (IPv6); anything else stands for "no address" (a Unix socket).
    ClientAddress,
}

/// What a parameter's value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `on` or `off`; named without a value it is on.
    Switch,
    /// A whole number within these bounds, both included.
    Number(u64, u64),
}

/// A parameter of an algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// The value when it is not given, in the form a user would write.
    pub default: &'static str,
}

/// One algorithm.
pub struct Entry {
    /// Canonical name.
    pub name: &'static str,
    /// Other names it is found by.
    pub aliases: &'static [&'static str],
    /// One line on what it does.
    pub summary: &'static str,
    /// How nginx.conf spells it, if NGINX has it ("" is the default without a directive).
    pub nginx: Option<&'static str>,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Where it comes from.
    pub source: &'static str,
    /// Cost of a pick and of a completion, in the number `n` of servers.
    pub cost: &'static str,
    /// The key that [`crate::Driver::pick`] expects.
    pub key: Key,
    /// Whether the `backup` parameter of `server` may be used with it (NGINX refuses it for some).
    pub backup: bool,
    /// Builds the plan of one level of servers.
    pub(crate) build: Build,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All algorithms, the default one first.
pub fn entries() -> &'static [Entry] {
    static ENTRIES: &[Entry] = &[
        algorithms::round_robin::ENTRY,
        algorithms::least_conn::ENTRY,
        algorithms::ip_hash::ENTRY,
        algorithms::hash::ENTRY,
        algorithms::maglev::ENTRY,
        algorithms::rendezvous::ENTRY,
        algorithms::random::ENTRY,
        algorithms::two_choices::ENTRY,
        algorithms::least_time::ENTRY,
    ];
    ENTRIES
}

/// The algorithm of this name or alias.
pub fn find(name: &str) -> Option<&'static Entry> {
    entries().iter().find(|e| e.name == name || e.aliases.contains(&name))
}

/// An algorithm with its parameters: all that is needed to build it for any fleet.
#[derive(Clone)]
pub struct Spec {
    entry: &'static Entry,
    /// In the order of `entry.parameters`.
    values: Box<[Value]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Choice(&'static str),
    Switch(bool),
    Number(u64),
}

/// A parameter that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParameterError {
    /// The algorithm has no such parameter.
    #[error("{algorithm} has no parameter \"{name}\"")]
    Unknown {
        /// Name of the algorithm.
        algorithm: &'static str,
        /// The parameter as given.
        name: Box<str>,
    },
    /// Given twice.
    #[error("duplicate parameter \"{0}\"")]
    Duplicate(&'static str),
    /// A value out of what [`Kind`] allows.
    #[error("invalid value \"{value}\" of \"{name}\": {expected} expected")]
    Invalid {
        /// Name of the parameter.
        name: &'static str,
        /// The value as given.
        value: Box<str>,
        /// What would be right.
        expected: Box<str>,
    },
}

impl Spec {
    /// Checks the parameters, given as (name, value); those not given have their defaults.
    pub fn new(entry: &'static Entry, parameters: &[(&str, &str)]) -> Result<Spec, ParameterError> {
        let mut values: Vec<Option<Value>> = vec![None; entry.parameters.len()];
        for &(name, value) in parameters {
            let Some(at) = entry.parameters.iter().position(|p| p.name == name) else {
                return Err(ParameterError::Unknown { algorithm: entry.name, name: name.into() });
            };
            if values[at].is_some() {
                return Err(ParameterError::Duplicate(entry.parameters[at].name));
            }
            values[at] = Some(parse(&entry.parameters[at], value)?);
        }
        let values = entry.parameters.iter().zip(values);
        let values = values.map(|(p, v)| v.map_or_else(|| parse(p, p.default), Ok)).collect::<Result<_, _>>()?;
        Ok(Spec { entry, values })
    }

    /// The algorithm.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// All parameters with their values as a user would write them.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.entry.parameters.iter().zip(&self.values).map(|(p, v)| (p.name, v.to_string()))
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.entry.parameters.iter().position(|p| p.name == name).map(|i| self.values[i])
    }

    /// The word chosen for a [`Kind::Choice`].
    pub(crate) fn choice(&self, name: &str) -> &'static str {
        match self.value(name) {
            Some(Value::Choice(word)) => word,
            _ => "",
        }
    }

    /// The state of a [`Kind::Switch`].
    pub(crate) fn switch(&self, name: &str) -> bool {
        self.value(name) == Some(Value::Switch(true))
    }

    /// The value of a [`Kind::Number`].
    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Number(number)) => number,
            _ => 0,
        }
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        self.parameters().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Choice(word) => f.write_str(word),
            Value::Switch(on) => f.write_str(if on { "on" } else { "off" }),
            Value::Number(number) => write!(f, "{number}"),
        }
    }
}

fn parse(parameter: &Parameter, text: &str) -> Result<Value, ParameterError> {
    let (value, expected) = match parameter.kind {
        Kind::Choice(words) => {
            (words.iter().find(|w| **w == text).map(|w| Value::Choice(w)), words.join(" or ").into_boxed_str())
        }
        Kind::Switch => {
            let value = match text {
                "on" | "" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            };
            (value, "on or off".into())
        }
        Kind::Number(low, high) => {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let number = if digits { text.parse().ok() } else { None };
            let number = number.filter(|n| (low..=high).contains(n));
            (number.map(Value::Number), format!("a number from {low} to {high}").into_boxed_str())
        }
    };
    value.ok_or_else(|| ParameterError::Invalid { name: parameter.name, value: text.into(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_valid() {
        let mut names: Vec<&str> = entries().iter().flat_map(|e| e.aliases.iter().copied().chain([e.name])).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for entry in entries() {
            assert_eq!(find(entry.name).unwrap().name, entry.name);
            let spec = Spec::new(entry, &[]).unwrap();
            for (parameter, (name, value)) in entry.parameters.iter().zip(spec.parameters()) {
                assert_eq!((parameter.name, parameter.default), (name, value.as_str()));
            }
        }
        assert!(find("least-conn").is_none());
    }

    #[test]
    fn parameters_are_checked() {
        let least_time = find("least_time").unwrap();
        let spec = Spec::new(least_time, &[("by", "last_byte"), ("inflight", "")]).unwrap();
        assert_eq!(format!("{spec:?}"), "least_time by=last_byte inflight=on");
        let error = |p: &[(&str, &str)]| Spec::new(least_time, p).unwrap_err().to_string();
        assert_eq!(error(&[("factor", "1")]), "least_time has no parameter \"factor\"");
        assert_eq!(error(&[("by", "x")]), "invalid value \"x\" of \"by\": header or last_byte expected");
        assert_eq!(error(&[("by", "header"), ("by", "header")]), "duplicate parameter \"by\"");
        let two = find("two_choices").unwrap();
        assert!(Spec::new(two, &[("choices", "1")]).is_err());
        assert!(Spec::new(two, &[("choices", "+3")]).is_err());
        assert_eq!(Spec::new(two, &[("choices", "3")]).unwrap().number("choices"), 3);
    }
}
