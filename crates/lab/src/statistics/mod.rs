//! What runs come to: estimates with intervals, who is better, which claims hold. No clock, no files.

pub mod estimate;
pub mod format;
mod happenings;
pub mod student;
pub mod values;

mod cells;
mod data;
mod evaluate;
mod ranking;
#[cfg(test)]
mod tests;
mod verify;
mod words;

use crate::plan::{Cell, Plan};
use crate::record::Run;
use crate::summary::Summary;

use data::Data;

/// All that is to be said about a plan's runs. `left_out`: cells that are not run, and why.
pub fn summarize(plan: &Plan, runs: &[Run], left_out: &[(Cell, String)]) -> Summary {
    let data = Data::new(plan, runs, left_out);
    Summary {
        plan: plan.clone(),
        cells: data.combinations().filter_map(|cell| cells::summarize(&data, &cell)).collect(),
        rankings: ranking::all(&data),
        checks: verify::all(&data),
        missing: data.missing(),
    }
}
