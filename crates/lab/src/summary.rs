//! What all runs of a plan come to: estimates, who is better, which claims hold. Made by `statistics`, read by reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::{Cell, Plan, System, Tool};
use crate::record::{Deed, ErrorKind, Latency, Replayed, Role};

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What was run.
    pub plan: Plan,
    /// Each cell that has runs, in the plan's order.
    pub cells: Vec<CellSummary>,
    /// Comparisons: of the algorithms in a system, and of the systems with an algorithm.
    pub rankings: Vec<Ranking>,
    /// The plan's claims, each for each system that it is asked of.
    pub checks: Vec<Verified>,
    /// Cells of the plan that have no run, and why where it is known.
    pub missing: Vec<(Cell, String)>,
}

/// One cell over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// Which.
    #[serde(flatten)]
    pub cell: Cell,
    /// Who measured.
    pub tool: Tool,
    /// Whether users waited for answers.
    pub closed_loop: bool,
    /// Runs that count.
    pub runs: u32,
    /// Runs that do not count: repetition and why.
    pub invalid: Vec<(u32, Vec<String>)>,
    /// Name of the metric (`rps`, `mean`, `p99`, `errors_per_second`, …: those of checks) to its estimate.
    pub metrics: BTreeMap<String, Estimate>,
    /// Times of all requests of all runs that count.
    pub latency: Latency,
    /// Errors of all runs that count.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Requests of an open loop that were sent more than 10 ms late, in all runs that count.
    #[serde(default)]
    pub sent_late: u64,
    /// What the log of the load gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
    /// What was done to servers by plan in the runs that count, in the order of its times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Happenings>,
    /// Part of the answers that each server gave, by name, in the farm's order.
    pub shares: Vec<(String, Estimate)>,
    /// Processor time over elapsed time, by process: balancer, servers, client.
    pub cpu: Vec<(String, Role, Estimate)>,
    /// Greatest resident memory in bytes, by process.
    pub memory: Vec<(String, Role, Estimate)>,
}

/// One thing that was done to a server, in several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Happenings {
    /// To whom.
    pub server: String,
    /// What.
    pub what: Deed,
    /// When it was planned, in seconds of the measured time; none for one that waits for the one before it.
    pub planned: Option<f64>,
    /// When it was done, in each run in which it was.
    pub at: Vec<f64>,
    /// In how many runs the load ended before that.
    pub missed: u32,
}

/// A mean over repetitions with its 95 % interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean over the repetitions.
    pub mean: f64,
    /// Standard deviation between the repetitions; none for a single one.
    pub sd: Option<f64>,
    /// Median over the repetitions.
    pub median: f64,
    /// 95 % interval of the mean; none for fewer than 2 repetitions.
    pub interval: Option<(f64, f64)>,
    /// The repetitions, in their order.
    pub values: Vec<f64>,
}

/// Who is best by one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// Name of the farm.
    pub farm: String,
    /// Name of the load.
    pub load: String,
    /// What is compared: algorithms inside a system, or systems with the same algorithm.
    pub among: Among,
    /// The metric: `rps` (more is better), or a time (less is better).
    pub metric: String,
    /// From best to worst; controls and what cannot be ranked at the end.
    pub places: Vec<Place>,
    /// The verdict in words, one sentence or two.
    pub words: String,
}

/// What a ranking compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Among {
    /// The algorithms inside this system.
    Algorithms(System),
    /// The systems with the algorithm of this name.
    Systems(String),
}

/// One line of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the algorithm or system.
    pub name: String,
    /// Its estimate.
    pub estimate: Estimate,
    /// How it stands.
    pub verdict: Verdict,
}

/// How one stands to the best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nobody is better, and it is better than somebody.
    Best,
    /// No difference to the best can be shown.
    Tied,
    /// Worse than the best by this part of the best's mean: simultaneous 95 % interval of the paired difference.
    Worse {
        /// Lower end, more than 0.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// Not ranked: a control, the client's own failures, or too few runs.
    Unranked,
}

/// A claim, checked in one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// The check's name.
    pub check: String,
    /// The system.
    pub system: System,
    /// Whether the claim holds.
    pub holds: Holds,
    /// Whether that is what must come out; none if it cannot be told.
    pub expected: Option<bool>,
    /// The numbers it was decided by: `rps(RR) 80.4 [79.9, 80.9]; 2 x 40.2`.
    pub numbers: String,
}

/// An answer that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// The intervals leave it open, or runs are missing.
    CannotBeTold,
}
