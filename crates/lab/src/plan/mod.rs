//! What an experiment is, as data: a plan in TOML.
//!
//! Farms of servers, systems that balance them, algorithms, loads, and what must come out. Times are text with a unit
//! (`"10ms"`, `"1.5s"`, `"2m"`); names are the plan's own and appear in the report as they are written. Every part has a
//! default; unknown names are errors.

mod ask;
mod built_in;
mod cells;
mod check;
mod claims;
mod events;
mod loads;
mod names;
mod only;
mod peers;
mod read;
mod replay;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::units::{parse_duration, show_duration};

pub use built_in::BuiltIn;
pub use cells::Cells;
pub use claims::validate;
pub use events::{Action, Event};
pub use replay::{Escape, Replay};

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What `balanza lab run` calls it: lower case, digits, hyphens.
    pub name: String,
    /// A heading.
    pub title: String,
    /// What it shows and how, in paragraphs separated by an empty line.
    #[serde(default)]
    pub about: String,
    /// The document that it repeats.
    pub document: Option<Document>,
    /// How often each cell is measured; intervals need at least 3.
    #[serde(default = "five")]
    pub repetitions: u32,
    /// Order of the runs, arrivals, delays of the servers: everything random comes from it.
    #[serde(default = "one")]
    pub seed: u64,
    /// Who serves: one set of servers, or several to compare.
    pub farms: Vec<Farm>,
    /// Who balances.
    pub systems: Vec<System>,
    /// By which rule.
    pub algorithms: Vec<Algorithm>,
    /// What arrives.
    pub loads: Vec<Load>,
    /// Which combinations are run: the union of these; all that are possible if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<Selection>,
    /// What must come out, and what must not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// What the document measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reported: Vec<Reported>,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
}

/// A document whose experiment is repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Who, where, when.
    pub citation: String,
    /// What was measured on: machines, tools.
    pub setup: String,
    /// What this plan does otherwise, and why.
    #[serde(default)]
    pub differences: String,
}

/// A set of servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Farm {
    /// What the report calls it.
    pub name: String,
    /// The servers, in the order in which the balancers have them.
    pub servers: Vec<Server>,
    /// What happens to servers in each run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// A server: a workload server that the lab starts, or one of the user's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// What the report calls it, and what its answers say in `X-Server`. Of several equal ones, what the numbers are added to.
    pub name: String,
    /// So many equal ones: `name-1`, `name-2`, …
    #[serde(default = "one_u16")]
    pub count: u16,
    /// Where the user's own server is; everything below is of the lab's workload server then, and not allowed.
    pub address: Option<String>,
    /// Arguments of `balanza target`, without dashes: `{ workload = "matrix", service = "virtual", backlog = 128 }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub target: BTreeMap<String, Setting>,
}

/// A value of an option of `balanza target`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A flag: given or not.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

/// Who balances.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// This program.
    Balanza,
    /// NGINX as it is installed.
    Nginx,
    /// The same with the module of `make nginx-module`.
    NginxBalanza,
    /// HAProxy as it is installed.
    Haproxy,
    /// Caddy as it is installed.
    Caddy,
    /// Nobody: the load goes to the first server of the algorithm's.
    Direct,
    /// A balancer that runs already, in front of the farm or of servers of its own.
    Url {
        /// What the report calls it.
        name: String,
        /// `http://host:port`.
        url: String,
    },
}

/// A rule by which a server is chosen, and the settings that go with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Algorithm {
    /// What the report calls it: `WRR 3:1`.
    pub name: String,
    /// `NAME [param=value …]`, as after `balance` in nginx.conf.
    pub balance: String,
    /// A weight for each server that it has, counted servers one by one; 1 if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<u32>,
    /// Only these of the farm's servers; all if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// All load comes from one address, one that this server gets (for algorithms that go by address).
    pub reaches: Option<String>,
    /// Something to measure the others by, not ranked with them: one server alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub control: bool,
    /// Only in these systems; in all that have it if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub systems: Vec<System>,
}

/// What arrives: users (closed loop), a rate or a log (open loop), by which tool, for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// What the report calls it: `250`.
    pub name: String,
    /// Who sends it.
    #[serde(default)]
    pub tool: Tool,
    /// Closed loop: so many that send, wait for the answer, think, send again.
    pub users: Option<u32>,
    /// Open loop: requests a second, whether or not answers come.
    pub rate: Option<f64>,
    /// Open loop: the requests of an access log, at its times.
    pub log: Option<Replay>,
    /// Distances between the requests of a rate.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// How long users think.
    #[serde(default, skip_serializing_if = "Time::is_zero")]
    pub think: Time,
    /// Users start evenly over this time.
    #[serde(default, skip_serializing_if = "Time::is_zero")]
    pub ramp: Time,
    /// How long it lasts, with the warm-up. This or `requests`.
    pub duration: Option<Time>,
    /// How many requests. This or `duration`.
    pub requests: Option<u64>,
    /// So much of the beginning is not measured (the lab's own generator only).
    #[serde(default, skip_serializing_if = "Time::is_zero")]
    pub warmup: Time,
    /// When a request is given up.
    #[serde(default = "minute")]
    pub timeout: Time,
    /// Whether connections are used again.
    #[serde(default = "yes")]
    pub keep_alive: bool,
    /// Delay that the client adds to each request, as a network would.
    #[serde(default, skip_serializing_if = "Time::is_zero")]
    pub rtt: Time,
    /// From so many addresses 127.1.x.1, each in a network of its own.
    #[serde(default = "one_u16")]
    pub sources: u16,
    /// What is asked for: `/`, or `/page/{}` for `pages` different ones.
    #[serde(default = "root")]
    pub path: String,
    /// How many different pages `{}` stands for.
    #[serde(default = "one_u32")]
    pub pages: u32,
    /// Connections that the client has at most: its descriptors.
    pub connections_max: Option<u32>,
}

/// Who sends a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// The lab's own generator.
    #[default]
    Balanza,
    /// ApacheBench.
    Ab,
    /// Siege.
    Siege,
    /// httperf.
    Httperf,
    /// wrk.
    Wrk,
    /// Locust.
    Locust,
}

/// Distances between requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// All equal.
    #[default]
    Constant,
    /// Exponential: requests do not know of each other.
    Poisson,
}

/// A product of parts of the plan; an absent list is all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Names of farms.
    pub farms: Option<Vec<String>>,
    /// Systems.
    pub systems: Option<Vec<System>>,
    /// Names of algorithms.
    pub algorithms: Option<Vec<String>>,
    /// Names of loads.
    pub loads: Option<Vec<String>>,
}

/// Something that must come out, or must not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its name: lower case, digits, hyphens.
    pub name: String,
    /// What it claims, in a sentence.
    pub says: String,
    /// What the document has to say about it: numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub document: String,
    /// The claim over measurements: see [`crate::expression`].
    pub expression: String,
    /// Whether the claim must hold (the default) or must not.
    #[serde(default = "yes")]
    pub must: bool,
    /// The systems it is asked of, each by itself; all that balance if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub systems: Vec<System>,
}

/// What the document measured in one cell: `rps`, `rps_sd`, `median`, `mean`, `max`, … (times in seconds).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// Name of the algorithm.
    pub algorithm: String,
    /// Name of the load; the plan's only one if absent.
    pub load: Option<String>,
    /// Name of the farm; the plan's only one if absent.
    pub farm: Option<String>,
    /// The system that it was; any that balances if absent.
    pub system: Option<System>,
    /// What the row is called, if not by its algorithm.
    pub row: Option<String>,
    /// Metric to value; the names are those of checks, with `_sd` for the deviation between repetitions.
    #[serde(flatten)]
    pub values: BTreeMap<String, f64>,
}

/// What `--quick` changes, so that the plan takes two minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Instead of the plan's.
    pub repetitions: Option<u32>,
    /// At most so long a load.
    pub duration: Option<Time>,
    /// At most so many requests.
    pub requests: Option<u64>,
    /// Instead of the loads' own.
    pub warmup: Option<Time>,
    /// Only these combinations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<Selection>,
}

/// One combination of the plan's parts, by their names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the farm.
    pub farm: String,
    /// Name of the load.
    pub load: String,
    /// The system.
    pub system: System,
    /// Name of the algorithm.
    pub algorithm: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { farm, load, system, algorithm } = self;
        write!(f, "{system}, {algorithm}, load {load}, farm {farm}")
    }
}

impl System {
    /// The systems that a plan names by one word.
    pub const NAMED: [(&'static str, System); 6] = [
        ("balanza", System::Balanza),
        ("nginx", System::Nginx),
        ("nginx+balanza", System::NginxBalanza),
        ("haproxy", System::Haproxy),
        ("caddy", System::Caddy),
        ("direct", System::Direct),
    ];

    /// What reports and files call it.
    pub fn name(&self) -> &str {
        match self {
            System::Balanza => "balanza",
            System::Nginx => "nginx",
            System::NginxBalanza => "nginx+balanza",
            System::Haproxy => "haproxy",
            System::Caddy => "caddy",
            System::Direct => "direct",
            System::Url { name, .. } => name,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `NAME`, or `NAME=http://host:port` for a balancer that runs already.
impl std::str::FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<System, String> {
        if let Some((_, system)) = System::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(system.clone());
        }
        match text.split_once('=') {
            Some((name, url)) if !name.is_empty() && url.starts_with("http://") => {
                Ok(System::Url { name: name.into(), url: url.into() })
            }
            _ => {
                let names: Vec<&str> = System::NAMED.iter().map(|(name, _)| *name).collect();
                Err(format!(
                    "no system \"{text}\": use {}, or NAME=http://host:port for a balancer that runs already",
                    names.join(", ")
                ))
            }
        }
    }
}

impl Serialize for System {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            System::Url { name, url } => serializer.collect_str(&format_args!("{name}={url}")),
            named => serializer.serialize_str(named.name()),
        }
    }
}

impl<'de> Deserialize<'de> for System {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<System, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A time, written with its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl Time {
    /// Whether it is none.
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        parse_duration(&String::deserialize(deserializer)?).map(Time).map_err(de::Error::custom)
    }
}

fn one() -> u64 {
    1
}
fn one_u16() -> u16 {
    1
}
fn one_u32() -> u32 {
    1
}
fn five() -> u32 {
    5
}
fn yes() -> bool {
    true
}
fn is_false(flag: &bool) -> bool {
    !flag
}
fn minute() -> Time {
    Time(Duration::from_secs(60))
}
fn root() -> String {
    "/".into()
}
