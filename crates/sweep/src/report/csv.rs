//! One line for each run (RFC 4180): times in seconds, empty where there is no value.

use std::collections::HashMap;

use balanza_simulator::report::field;
use serde_json::Value as Json;

use super::shown;
use crate::cells::Sweep;
use crate::record::Record;

/// What stands after the settings of a run: the fields of a record in this order.
const COLUMNS: [&str; 31] = [
    "servers",
    "load",
    "users",
    "rate",
    "duration",
    "warmup",
    "mean_time_in_system",
    "sd_time_in_system",
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p999",
    "p9999",
    "max",
    "utilization",
    "mean_queue",
    "max_queue",
    "jain",
    "throughput",
    "arrivals",
    "carried",
    "ok",
    "errors",
    "timeouts",
    "retries",
    "syn_retries",
    "in_system",
    "events",
    "id",
];

pub(super) fn table(sweep: &Sweep, records: &HashMap<String, Record>) -> String {
    let titles: Vec<String> = sweep.settings(0).into_iter().map(|(title, _)| title).collect();
    let columns: Vec<&str> = COLUMNS.into_iter().filter(|name| !titles.iter().any(|title| title == name)).collect();
    let cell = |value: &Json| if value.is_null() { String::new() } else { field(&shown(value)) };
    let line = |run: usize| -> Option<Vec<String>> {
        let record = serde_json::to_value(records.get(&sweep.id(run))?).ok()?;
        let settings = sweep.settings(run).into_iter().map(|(_, value)| cell(&value));
        Some(settings.chain(columns.iter().map(|name| cell(&record[name]))).collect())
    };
    let head = titles.iter().map(|title| field(title)).chain(columns.iter().map(|name| name.to_string())).collect();
    let lines = std::iter::once(head).chain((0..sweep.len()).filter_map(line));
    lines.map(|line| line.join(",") + "\r\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_record_has_a_column() {
        let record = serde_json::to_value(crate::journal::tests::record("a")).unwrap();
        for name in record.as_object().unwrap().keys().filter(|name| !["algorithm", "seed"].contains(&name.as_str())) {
            assert!(COLUMNS.contains(&name.as_str()), "{name}");
        }
        assert_eq!(record.as_object().unwrap().len(), COLUMNS.len() + 2);
    }
}
