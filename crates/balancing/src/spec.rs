//! What an algorithm says of itself, and its parameters.

use std::fmt;
use std::sync::Arc;

use crate::Nanos;
use crate::policy::Plan;
use crate::tier::Tier;

/// Builds the plan of one tier of servers.
pub(crate) type Build = fn(&Spec, &Arc<Tier>) -> Arc<dyn Plan>;

/// The key that an algorithm uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Nothing.
    None,
    /// Bytes that the user composes (`key=TEXT`).
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
    /// 0 for no limit, or a whole number within these bounds, both included.
    Limit(u64, u64),
    /// A time within these bounds in milliseconds, both included, written as in nginx.conf (`10s`, `1m30s`, `500ms`), and
    /// with `us` for microseconds. A number alone is seconds.
    Time(u64, u64),
    /// The path of an HTTP request, or nothing.
    Path,
    /// A program with its arguments. [`Host::Program`] cannot do without it.
    Program,
}

/// What an algorithm needs from the program that uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// Picks and completions.
    Any,
    /// Notice of servers that become idle, each to one of several dispatchers. Workers of one process know without a
    /// notice; several processes each go by their own requests.
    Idleness,
    /// Loads that servers report ([`crate::ServerState::report_load`]); each holds for the time [`STALE`]. Without them it uses
    /// its own counts.
    Reports,
    /// Probes ([`crate::Driver::take_probes`]), sent to the path [`PROBE`]. Without them it uses its own counts.
    Probes,
    /// A program that is asked for each choice ([`crate::Driver::claim`]), named by [`PROGRAM`]. Without one it uses its
    /// own counts.
    Program,
}

/// The parameter with a report's age at most, of [`Host::Reports`].
pub const STALE: &str = "stale";
/// The parameter with the path of probes, of [`Host::Probes`].
pub const PROBE: &str = "probe";
/// The parameter with the program, of [`Host::Program`].
pub const PROGRAM: &str = "program";

/// What decides a server's share of the traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Its weight, if all servers serve alike.
    Weights,
    /// Its weight, as the share of the keys that lead to it.
    Key,
    /// Its load or its speed for its weight; so the shares of an idle fleet are not the weights.
    Load,
    /// Its position in the configuration: a server gets what those before it have no room for, so they need limits.
    Order,
    /// The priority of its group, and its weight within the group.
    Groups,
    /// Not its weight, for this reason.
    Ignores(&'static str),
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

/// Whether choices depend on times: how long responses take, or how old a measurement is. Slow start and the closing of
/// servers that fail do not count; they belong to the fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// They do not: any time that does not go backwards will do.
    Never,
    /// They do.
    Always,
    /// They do, unless this parameter has this value.
    Unless(&'static str, &'static str),
}

/// One algorithm.
pub struct Entry {
    /// Canonical name.
    pub name: &'static str,
    /// Other names it is found by.
    pub aliases: &'static [&'static str],
    /// One line on what it does.
    pub summary: &'static str,
    /// What it does, in paragraphs: the rule, its formula, and the effect of weights, slow start and backup servers.
    pub what: &'static str,
    /// When to use it.
    pub when: &'static str,
    /// When not to use it, and what to use instead.
    pub when_not: &'static str,
    /// How nginx.conf spells it, if NGINX has it ("" is the default without a directive).
    pub nginx: Option<&'static str>,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Its origin.
    pub source: &'static str,
    /// Cost of a pick and of a completion, in the number `n` of servers.
    pub cost: &'static str,
    /// Whether the cost of a pick grows in proportion to the servers.
    pub linear: bool,
    /// Whether it goes by times.
    pub times: Times,
    /// What it needs of the program around it.
    pub host: Host,
    /// What decides a server's share of the traffic.
    pub share: Share,
    /// The key that [`crate::Driver::pick`] expects.
    pub key: Key,
    /// Whether the user has to compose the key. It is the client's address otherwise.
    pub needs_key: bool,
    /// The parameter and its value with which a request that belongs to a server is refused rather than sent to another
    /// one.
    pub strict: Option<(&'static str, &'static str)>,
    /// Whether the `backup` parameter of `server` may be used with it (NGINX refuses it for some).
    pub backup: bool,
    /// Builds the plan of one tier of servers.
    pub(crate) build: Build,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An algorithm with its parameters: all that is needed to build it for any fleet.
#[derive(Clone)]
pub struct Spec {
    entry: &'static Entry,
    /// In the order of `entry.parameters`.
    values: Box<[Value]>,
}

/// The value of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Choice(&'static str),
    Switch(bool),
    Number(u64),
    Time(Nanos),
    Text(Box<str>),
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
    /// The algorithm with its defaults, which a test parses.
    pub(crate) fn of(entry: &'static Entry) -> Spec {
        let values = entry.parameters.iter().filter_map(|p| parse(p, p.default).ok()).collect();
        Spec { entry, values }
    }

    /// Checks the parameters, given as (name, value); those not given have their defaults.
    pub fn new(entry: &'static Entry, parameters: &[(&str, &str)]) -> Result<Spec, ParameterError> {
        Ok(Spec { entry, values: values(entry.name, entry.parameters, parameters)? })
    }

    /// The algorithm.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// All parameters with their values as a user would write them.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.entry.parameters.iter().zip(&self.values).map(|(p, v)| (p.name, v.to_string()))
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.entry.parameters.iter().position(|p| p.name == name).map(|i| &self.values[i])
    }

    /// The word chosen for a [`Kind::Choice`]; "" if there is no such parameter.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.value(name) {
            Some(Value::Choice(word)) => word,
            _ => "",
        }
    }

    /// Whether choices depend on when things happen.
    pub fn goes_by_time(&self) -> bool {
        match self.entry.times {
            Times::Never => false,
            Times::Always => true,
            Times::Unless(name, value) => self.choice(name) != value,
        }
    }

    /// Whether a request that belongs to a server is refused rather than sent to another one.
    pub fn is_strict(&self) -> bool {
        self.entry.strict.is_some_and(|(name, value)| self.choice(name) == value)
    }

    /// Whether it asks a program and does not say which.
    pub(crate) fn lacks_program(&self) -> bool {
        self.entry.host == Host::Program && self.text(PROGRAM).trim().is_empty()
    }

    /// The state of a [`Kind::Switch`]; off if there is no such parameter.
    pub fn switch(&self, name: &str) -> bool {
        self.value(name) == Some(&Value::Switch(true))
    }

    /// The value of a [`Kind::Number`] or [`Kind::Limit`]; 0 if there is no such parameter.
    pub fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// The value of a [`Kind::Time`]; 0 if there is no such parameter.
    pub fn time(&self, name: &str) -> Nanos {
        match self.value(name) {
            Some(Value::Time(time)) => *time,
            _ => 0,
        }
    }

    /// The value of a [`Kind::Path`] or [`Kind::Program`]; "" if there is no such parameter.
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Some(Value::Text(text)) => text,
            _ => "",
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
        match self {
            Value::Choice(word) => f.write_str(word),
            Value::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Value::Number(number) => write!(f, "{number}"),
            Value::Time(0) => f.write_str("0s"),
            Value::Time(time) => {
                let fits = |(_, unit): &&(&str, Nanos)| time.is_multiple_of(*unit);
                let (name, unit) = UNITS[3..].iter().find(fits).unwrap_or(&("us", 1_000));
                write!(f, "{}{name}", time / unit)
            }
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// Units of time, the greatest first.
const UNITS: [(&str, Nanos); 9] = [
    ("y", 365 * 86_400_000_000_000),
    ("M", 30 * 86_400_000_000_000),
    ("w", 7 * 86_400_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// A time: numbers with units, each unit smaller than the one before; a number alone is seconds.
fn time(text: &str) -> Option<Nanos> {
    let (mut rest, mut from, mut total) = (text, 0, None::<Nanos>);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: Nanos = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let name = if letters == 0 { "s" } else { &rest[..letters] };
        rest = &rest[letters..];
        let at = from + UNITS[from..].iter().position(|(unit, _)| *unit == name)?;
        total = Some(total.unwrap_or(0).checked_add(number.checked_mul(UNITS[at].1)?)?);
        from = at + 1;
    }
    total
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The values of all parameters, in their order, of those that are given as (name, value).
pub(crate) fn values(
    owner: &'static str,
    parameters: &'static [Parameter],
    given: &[(&str, &str)],
) -> Result<Box<[Value]>, ParameterError> {
    let mut values: Vec<Option<Value>> = vec![None; parameters.len()];
    for &(name, value) in given {
        let Some(at) = parameters.iter().position(|p| p.name == name) else {
            return Err(ParameterError::Unknown { algorithm: owner, name: name.into() });
        };
        if values[at].is_some() {
            return Err(ParameterError::Duplicate(parameters[at].name));
        }
        values[at] = Some(parse(&parameters[at], value)?);
    }
    let values = parameters.iter().zip(values);
    values.map(|(p, v)| v.map_or_else(|| parse(p, p.default), Ok)).collect()
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
            let number = number(text).filter(|n| (low..=high).contains(n));
            (number.map(Value::Number), format!("a number from {low} to {high}").into_boxed_str())
        }
        Kind::Limit(low, high) => {
            let number = number(text).filter(|n| *n == 0 || (low..=high).contains(n));
            (number.map(Value::Number), format!("0 or a number from {low} to {high}").into_boxed_str())
        }
        Kind::Time(low, high) => {
            let bounds = [low, high].map(|ms| ms.saturating_mul(1_000_000));
            let value = time(text).filter(|t| (bounds[0]..=bounds[1]).contains(t));
            let [low, high] = bounds.map(Value::Time);
            (value.map(Value::Time), format!("a time from {low} to {high}").into_boxed_str())
        }
        Kind::Path => {
            let good = text.is_empty() || text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
            (good.then(|| Value::Text(text.into())), "a path that begins with \"/\" and has no spaces".into())
        }
        Kind::Program => (Some(Value::Text(text.into())), "a program".into()),
    };
    value.ok_or_else(|| ParameterError::Invalid { name: parameter.name, value: text.into(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let cases = [
            ("10s", Some((10_000_000_000, "10s"))),
            ("90", Some((90_000_000_000, "90s"))),
            ("1m30s", Some((90_000_000_000, "90s"))),
            ("2h", Some((7_200_000_000_000, "2h"))),
            ("1M", Some((30 * 86_400_000_000_000, "30d"))),
            ("250us", Some((250_000, "250us"))),
            ("1s500ms", Some((1_500_000_000, "1500ms"))),
            ("0", Some((0, "0s"))),
            ("", None),
            ("s", None),
            ("10x", None),
            ("10s5m", None),
            ("1s1s", None),
            ("-1s", None),
            ("99999999999y", None),
        ];
        for (text, expected) in cases {
            let found = time(text).map(|t| (t, Value::Time(t).to_string()));
            assert_eq!(found.as_ref().map(|(t, s)| (*t, s.as_str())), expected, "{text}");
        }
        let parameter = Parameter { name: "x", summary: "", kind: Kind::Time(1, 60_000), default: "1s" };
        let error = parse(&parameter, "2m").unwrap_err().to_string();
        assert_eq!(error, "invalid value \"2m\" of \"x\": a time from 1ms to 1m expected");
    }
}
