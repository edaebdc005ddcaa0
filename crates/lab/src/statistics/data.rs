//! The runs of a plan, by cell and repetition.

use std::collections::BTreeMap;

use super::values::{Values, of_run};
use crate::plan::{Cell, Plan, System};
use crate::record::Run;

/// All runs of a plan.
pub(super) struct Data<'a> {
    pub plan: &'a Plan,
    cells: BTreeMap<Cell, Runs<'a>>,
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
        Data { plan, cells, left_out: left_out.iter().cloned().collect() }
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
        let algorithm = self.plan.algorithms.iter().find(|algorithm| algorithm.name == cell.algorithm);
        let selected = self.plan.cells.is_empty()
            || self.plan.cells.iter().any(|selection| {
                has(&selection.farms, &cell.farm)
                    && has(&selection.loads, &cell.load)
                    && has(&selection.algorithms, &cell.algorithm)
                    && has(&selection.systems, &cell.system)
            });
        selected
            && !self.left_out.contains_key(cell)
            && algorithm.is_some_and(|a| a.systems.is_empty() || a.systems.contains(&cell.system))
            // Without a balancer there is nothing to choose.
            && algorithm.is_some_and(|a| a.control || cell.system != System::Direct)
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

fn has<T: PartialEq>(list: &Option<Vec<T>>, item: &T) -> bool {
    list.as_ref().is_none_or(|list| list.contains(item))
}
