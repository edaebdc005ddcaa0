//! What was measured in one run, as it is kept in a file. Times are in seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::{Cell, Tool};

/// One run: one cell, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was run.
    #[serde(flatten)]
    pub cell: Cell,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Which run of all, from 1: they are interleaved in random order.
    pub order: u32,
    /// When it began: RFC 3339, UTC.
    pub started: String,
    /// What the client saw.
    pub measured: Measured,
    /// What each server counted while the load lasted, the warm-up included, and after.
    pub servers: Vec<ServerRecord>,
    /// What each process used while the load lasted: balancer, servers, the client.
    pub processes: Vec<ProcessRecord>,
    /// What was done to servers by plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Happened>,
    /// Why it must not be believed: the client was the bottleneck, a process died. Empty for a valid run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid: Vec<String>,
}

/// Something that the plan has done to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Happened {
    /// To whom.
    pub server: String,
    /// What.
    pub what: Deed,
    /// When it was planned, in seconds of the measured time; none for one that waits for the one before it.
    pub planned: Option<f64>,
    /// When it was done; none if the load ended before that.
    pub at: Option<f64>,
}

/// What can be done to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Told to finish the requests that it has and to end.
    Stop,
    /// Killed.
    Kill,
    /// Started again; done when it listens.
    Start,
    /// Frozen.
    Freeze,
    /// Thawed.
    Thaw,
    /// Slower.
    Slow,
    /// As fast as before.
    Fast,
    /// Answers with errors.
    Fail,
    /// Works again.
    Work,
}

/// What a load generator saw. What a tool does not say is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Who measured.
    pub tool: Tool,
    /// Whether users waited for answers: a stall of the balancer then hides requests that would have come.
    pub closed_loop: bool,
    /// Length of the measured time.
    pub seconds: f64,
    /// Requests that ended in it, with an answer or without.
    pub ended: u64,
    /// Of these, answered with a status below 400.
    pub answered: u64,
    /// The rest by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Status to number of answers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes received, heads included.
    pub bytes: Option<u64>,
    /// From the request's (intended) start to the end of its answer, of those answered.
    pub latency: Latency,
    /// From the start of a connection to its establishment.
    pub connect: Option<Latency>,
    /// From the request sent to the first byte of its answer.
    pub waiting: Option<Latency>,
    /// Answers by the server that they name in `X-Server`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_server: BTreeMap<String, u64>,
    /// Second by second from the beginning, warm-up included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Second>,
    /// The most connections at once.
    pub connections_max: Option<u64>,
    /// How late requests were sent, by the generator's own fault.
    pub lag: Option<Latency>,
    /// Requests of an open loop that were sent more than 10 ms late; their latency counts from when they were due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_late: Option<u64>,
    /// What the log of a load gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
    /// Processor time of the generator over the time that passed: 1 is one processor.
    pub cpu: Option<f64>,
    /// What only this tool reports, by its own name (siege's `availability`, ab's `length_failures`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
    /// What the tool printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// What a log gave, lines that no cut has left out included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Requests that can be sent.
    pub requests: u64,
    /// Lines without one.
    pub unsendable: u64,
    /// Lines of another format.
    pub strange: u64,
    /// Whether times are exact to the millisecond; otherwise the requests of a second are spread over it.
    pub exact: bool,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Answered.
    pub answered: u64,
    /// Failed.
    pub failed: u64,
    /// Median latency of those answered, if there are any.
    pub median: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: Option<f64>,
    /// Standard deviation between requests.
    pub sd: Option<f64>,
    /// The least.
    pub min: Option<f64>,
    /// The greatest.
    pub max: Option<f64>,
    /// Percentile (50, 90, 95, 99, 99.9) and time, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<(f64, f64)>,
    /// Upper bound of a bucket and how many are in it, ascending; three significant digits. Empty where a tool has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
}

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Answered with a status of 500 or more.
    ServerError,
    /// Answered with a status from 400 to 499.
    ClientError,
    /// The connection was refused.
    Refused,
    /// The connection was not established in time.
    ConnectTimeout,
    /// The answer was not there in time.
    Timeout,
    /// The connection was reset.
    Reset,
    /// The connection was closed before the answer was complete.
    Closed,
    /// The answer was not HTTP.
    Malformed,
    /// The client had no descriptor left.
    Descriptors,
    /// The client had no port left.
    Ports,
    /// The client failed for another reason of its own.
    Client,
    /// A tool says that it failed, not why.
    Other,
}

impl ErrorKind {
    /// Whether it is the client's own failure, which says nothing about the balancer.
    pub fn is_of_the_client(self) -> bool {
        matches!(self, ErrorKind::Descriptors | ErrorKind::Ports | ErrorKind::Client)
    }
}

/// What one server counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Its name.
    pub name: String,
    /// Requests answered.
    pub requests: u64,
    /// Requests whose client went away.
    pub aborted: u64,
    /// The most at work at once.
    pub in_flight_max: u64,
    /// The most that waited inside at once.
    pub queued_max: u64,
}

/// What one process used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The system's or the server's name, or `client`.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Processor time in user mode and in the kernel, children included.
    pub user: f64,
    /// See `user`.
    pub system: f64,
    /// The most memory that was seen resident at once, in bytes.
    pub memory_max: u64,
    /// Processor time over elapsed time in each sample: pairs of (seconds from the start, share of one processor).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<(f64, f64)>,
}

/// What a process is in an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The system under test.
    Balancer,
    /// One that serves.
    #[default]
    Server,
    /// One that sends.
    Client,
}
