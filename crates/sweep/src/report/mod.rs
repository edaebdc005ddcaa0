//! The files of a finished sweep. They depend on the plan and the records alone: not on time, place or order.

mod csv;
mod figures;
mod page;

use std::collections::HashMap;

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::cells::Sweep;
use crate::journal::Journal;
use crate::record::Record;
use crate::summary::points;

/// Writes results.jsonl, results.csv, report.html and picture.svg beside the journal.
///
/// Errors: a file cannot be written, or a run is missing.
pub fn write(sweep: &Sweep, plan: &str, journal: &Journal) -> anyhow::Result<()> {
    let points = points(sweep, journal.records());
    journal.write("results.jsonl", &lines(sweep, journal.records())?)?;
    journal.write("results.csv", &csv::table(sweep, journal.records()))?;
    journal.write("picture.svg", &figures::picture(sweep, &points))?;
    journal.write("report.html", &page::report(sweep, plan, &points))
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(serialize_with = "pairs")]
    settings: Vec<(String, Json)>,
    result: &'a Record,
}

/// Pairs as an object, in their order.
fn pairs<S: Serializer>(pairs: &[(String, Json)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// The runs in their order, as lines of JSON: the settings and the record of each.
///
/// Errors: a run is missing.
pub fn lines(sweep: &Sweep, records: &HashMap<String, Record>) -> anyhow::Result<String> {
    let line = |run: usize| {
        let record = records.get(&sweep.id(run)).context("a run is missing")?;
        Ok(format!("{}\n", serde_json::to_string(&Line { settings: sweep.settings(run), result: record })?))
    };
    (0..sweep.len()).map(line).collect()
}

/// A value as people read it.
pub fn shown(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}
