//! One cell over its repetitions.

use std::collections::BTreeMap;

use super::data::{Data, Runs};
use super::estimate::estimate;
use super::happenings::happenings;
use super::values::of_processes;
use crate::metrics::{METRICS, Of};
use crate::plan::Cell;
use crate::record::{ErrorKind, Latency, Role, Run};
use crate::summary::{CellSummary, Estimate};

/// The cell's runs together; none if it has no run at all.
pub(super) fn summarize(data: &Data, cell: &Cell) -> Option<CellSummary> {
    let runs = data.runs(cell)?;
    let of_cell = METRICS.iter().filter(|metric| metric.of == Of::Cell);
    let metrics = of_cell.filter_map(|metric| {
        let values = data.repetitions(cell, metric.name, None).into_values().collect();
        Some((metric.name.to_string(), estimate(values)?))
    });
    let metrics = metrics.collect();
    let any = runs.valid.values().map(|(run, _)| *run).chain(runs.invalid.values().copied()).next()?;
    let latencies: Vec<&Latency> = valid(runs).map(|run| &run.measured.latency).collect();
    let mut errors: BTreeMap<ErrorKind, u64> = BTreeMap::new();
    for (kind, count) in valid(runs).flat_map(|run| &run.measured.errors) {
        *errors.entry(*kind).or_default() += count;
    }
    let mut cpu = Collected::default();
    let mut memory = Collected::default();
    for (name, role, used, resident) in valid(runs).flat_map(|run| of_processes(data.plan, run)) {
        cpu.add((name.clone(), role), used);
        memory.add((name, role), resident);
    }
    let flat = |((name, role), estimate): ((String, Role), Estimate)| (name, role, estimate);
    let mut shares = Collected::default();
    for (name, values) in runs.valid.values().flat_map(|(_, values)| &values.servers) {
        if let Some(share) = values.get("share") {
            shares.add(name.clone(), *share);
        }
    }
    Some(CellSummary {
        cell: cell.clone(),
        tool: any.measured.tool,
        closed_loop: any.measured.closed_loop,
        runs: runs.valid.len() as u32,
        invalid: runs.invalid.iter().map(|(repetition, run)| (*repetition, run.invalid.clone())).collect(),
        metrics,
        latency: Latency::merge(&latencies),
        errors,
        sent_late: valid(runs).filter_map(|run| run.measured.sent_late).sum(),
        replayed: any.measured.replayed,
        events: happenings(valid(runs).map(|run| run.events.as_slice())),
        shares: shares.estimates().collect(),
        cpu: cpu.estimates().map(flat).collect(),
        memory: memory.estimates().map(flat).collect(),
    })
}

fn valid<'a>(runs: &'a Runs) -> impl Iterator<Item = &'a Run> {
    runs.valid.values().map(|(run, _)| *run)
}

/// Values by key, keys in the order in which they came.
struct Collected<K>(Vec<(K, Vec<f64>)>);

impl<K> Default for Collected<K> {
    fn default() -> Self {
        Collected(Vec::new())
    }
}

impl<K: PartialEq> Collected<K> {
    fn add(&mut self, key: K, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.0.push((key, vec![value])),
        }
    }

    fn estimates(self) -> impl Iterator<Item = (K, Estimate)> {
        self.0.into_iter().filter_map(|(key, values)| Some((key, estimate(values)?)))
    }
}
