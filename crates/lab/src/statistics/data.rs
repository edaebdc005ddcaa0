//! The runs of a plan, by cell and repetition.

use std::collections::{BTreeMap, BTreeSet};

use super::values::{Values, of_run};
use crate::plan::{Cell, Plan, System};
use crate::record::Run;

/// All runs of a plan.
pub(super) struct Data<'a> {
    pub plan: &'a Plan,
    cells: BTreeMap<Cell, Runs<'a>>,
    /// What the plan asks for and systems may have.
    planned: BTreeSet<Cell>,
    /// What the plan asks for and is not run, and why.
    left_out: BTreeMap<Cell, String>,
}

/// The runs of a cell.
#[derive(Default)]
pub(super) struct Runs<'a> {
    /// Those that count, by repetition.
    pub valid: BTreeMap<u32, (&'a Run, Values)>,
    /// Those that do not.
    pub invalid: BTreeMap<u32, &'a Run>,
}

impl<'a> Data<'a> {
    pub fn new(plan: &'a Plan, runs: &'a [Run], left_out: &[(Cell, String)]) -> Data<'a> {
        let mut cells: BTreeMap<Cell, Runs<'a>> = BTreeMap::new();
        for run in runs {
            let of_cell = cells.entry(run.cell.clone()).or_default();
            match run.invalid.is_empty() {
                true => drop(of_cell.valid.insert(run.repetition, (run, of_run(plan, run)))),
                false => drop(of_cell.invalid.insert(run.repetition, run)),
            }
        }
        let wanted = plan.cells(&|_, _, _| Ok(()));
        let left_out: BTreeMap<Cell, String> = wanted.left_out.into_iter().chain(left_out.iter().cloned()).collect();
        let planned = wanted.run.into_iter().filter(|cell| !left_out.contains_key(cell)).collect();
        Data { plan, cells, planned, left_out }
    }

    pub fn runs(&self, cell: &Cell) -> Option<&Runs<'a>> {
        self.cells.get(cell)
    }

    /// Every combination of the plan's parts, in its order.
    pub fn combinations(&self) -> impl Iterator<Item = Cell> {
        let plan = self.plan;
        plan.farms.iter().flat_map(move |farm| {
            plan.loads.iter().flat_map(move |load| {
                plan.systems.iter().flat_map(move |system| {
                    plan.algorithms.iter().map(move |algorithm| Cell {
                        farm: farm.name.clone(),
                        load: load.name.clone(),
                        system: system.clone(),
                        algorithm: algorithm.name.clone(),
                    })
                })
            })
        })
    }

    /// Whether the plan has the cell run, so far as systems can.
    pub fn is_planned(&self, cell: &Cell) -> bool {
        self.planned.contains(cell)
    }

    /// Why a cell has no run that counts.
    pub fn reason(&self, cell: &Cell) -> String {
        let invalid = self.runs(cell).and_then(|runs| runs.invalid.values().next());
        match (self.left_out.get(cell), invalid.and_then(|run| run.invalid.first())) {
            (_, Some(why)) => format!("no run that counts: {why}"),
            (Some(why), None) => why.clone(),
            (None, None) if self.is_planned(cell) => "no run yet".into(),
            (None, None) => "not among the combinations of this plan".into(),
        }
    }

    /// Cells that are left out or were not run.
    pub fn missing(&self) -> Vec<(Cell, String)> {
        let absent = self.combinations().filter(|cell| !self.cells.contains_key(cell));
        let wanted = absent.filter(|cell| self.left_out.contains_key(cell) || self.is_planned(cell));
        wanted.map(|cell| (cell.clone(), self.reason(&cell))).collect()
    }

    /// A metric in each repetition that counts and has it.
    pub fn repetitions(&self, cell: &Cell, metric: &str, server: Option<&str>) -> BTreeMap<u32, f64> {
        let runs = self.runs(cell).into_iter().flat_map(|runs| &runs.valid);
        runs.filter_map(|(repetition, (_, values))| Some((*repetition, values.value(metric, server)?))).collect()
    }

    /// The system of this name.
    pub fn system(&self, name: &str) -> Option<&'a System> {
        self.plan.systems.iter().find(|system| system.name() == name)
    }
}
