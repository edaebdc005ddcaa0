//! The cross product of a plan.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::Context;
use balanza_config::{Diagnostic, nearest};
use balanza_simulator::scenario::Time;
use balanza_simulator::{Extent, Scenario, extent, gallery};
use balanza_toml::{Error, Places, words};
use serde::Deserialize;
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::plan::{Plan, Written, put};
use crate::unit::{Inputs, Unit};

/// So many can be listed and reported.
const RUNS_MAX: u64 = 1_000_000;
/// Part of a run that is its warm-up where the scenario states none: a run stands for itself, and all algorithms of a point
/// are measured over the same time.
const WARMUP: f64 = 0.2;
/// Keys of a scenario that a sweep sets by itself, and what a plan has instead of an axis.
const OWN: [(&str, &str); 5] = [
    ("algorithms", "write algorithms = [...] at the top of the plan"),
    ("loads", "write loads = [...] at the top of the plan"),
    ("seed", "write seed = ... and replications = ... at the top of the plan"),
    ("replications", "write replications = ... at the top of the plan"),
    ("arrivals.users", "write \"arrivals.users\" = [...] under [set]"),
];

/// All runs of a plan, in their order: axis by axis as they are written, then loads, algorithms, seeds.
pub struct Sweep {
    /// What was written.
    pub plan: Plan,
    /// What is varied beside algorithms and seeds: the titles of the axes, and the load if there are several.
    pub titles: Vec<String>,
    /// In the order of the plan.
    pub algorithms: Vec<String>,
    /// Every combination of values, a load and an algorithm.
    pub cells: Vec<Cell>,
    /// Seeds of each cell.
    pub replications: u32,
    seed: u64,
    directory: PathBuf,
}

/// The runs that differ in their seeds alone.
pub struct Cell {
    /// One for each of [`Sweep::titles`].
    pub values: Vec<Json>,
    /// As written.
    pub algorithm: String,
    /// Arrivals of one run, on average.
    pub requests: f64,
    states: usize,
    scenario: Scenario,
    inputs: Inputs,
}

/// A load of the scenario.
#[derive(Clone, Copy)]
enum Load {
    Offered(f64),
    Users(i64),
    /// A rate or a trace: the scenario has it.
    Given,
}

/// What the cells are made of.
struct Base {
    table: Table,
    loads: Vec<Load>,
    algorithms: Vec<String>,
    directory: PathBuf,
    plan: Plan,
}

impl Sweep {
    /// Reads the plan in this file.
    ///
    /// Errors: all that is wrong with it, each with its place.
    pub fn read(file: &Path, text: &str) -> Result<Sweep, Error> {
        let (plan, places) = balanza_toml::read::<Plan>(file, text)?;
        let near = file.parent().unwrap_or(Path::new(""));
        let base = Base::new(plan, near, &places)?;
        let cells = base.cells(&places)?;
        let number = |key: &str, default| base.table.get(key).and_then(Value::as_integer).unwrap_or(default);
        let several = |loads: &[Load]| match loads {
            [_] => None,
            [Load::Users(_), ..] => Some("users".to_string()),
            _ => Some("load".to_string()),
        };
        let titles = base.plan.axes.iter().map(|axis| axis.title()).chain(several(&base.loads));
        Ok(Sweep {
            titles: titles.collect(),
            cells,
            // Both are positive: the simulator has checked them.
            replications: base.plan.replications.unwrap_or(number("replications", 10) as u32),
            seed: base.plan.seed.unwrap_or(number("seed", 1) as u64),
            algorithms: base.algorithms,
            directory: base.directory,
            plan: base.plan,
        })
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.cells.len() * self.replications as usize
    }

    /// Whether there is none, which no plan allows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cell of a run, and its seed.
    pub fn at(&self, run: usize) -> (&Cell, u64) {
        let each = self.replications as usize;
        (&self.cells[run / each], self.seed + (run % each) as u64)
    }

    /// The id of a run.
    pub fn id(&self, run: usize) -> String {
        let (cell, seed) = self.at(run);
        cell.inputs.id(seed)
    }

    /// A run as data.
    pub fn unit(&self, run: usize) -> Unit {
        let (cell, seed) = self.at(run);
        let scenario = Scenario { seed, ..cell.scenario.clone() };
        Unit { id: cell.inputs.id(seed), directory: self.directory.clone(), scenario }
    }

    /// What makes a run different from the others: values by title, its algorithm and its seed.
    pub fn settings(&self, run: usize) -> Vec<(String, Json)> {
        let (cell, seed) = self.at(run);
        let varied = self.titles.iter().cloned().zip(cell.values.iter().cloned());
        let rest = [("algorithm".to_string(), cell.algorithm.as_str().into()), ("seed".to_string(), seed.into())];
        varied.chain(rest).collect()
    }

    /// States of servers of the largest run.
    pub fn states(&self) -> usize {
        self.cells.iter().map(|cell| cell.states).max().unwrap_or(1)
    }
}

impl Base {
    fn new(plan: Plan, near: &Path, places: &Places) -> Result<Base, Error> {
        let one = |problem| Error::new(vec![problem]);
        let (mut table, directory) =
            scenario(&plan, near).map_err(|(what, hint)| one(places.problem("scenario", what, hint)))?;
        let mut problems = problems(&plan, places);
        for (path, value) in &plan.set {
            if let Err(wrong) = put(&mut table, path, value) {
                problems.push(places.problem(&format!("set.{path}"), wrong, ""));
            }
        }
        let written = |key: &str| table.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let of_scenario = || written("algorithms").iter().filter_map(Value::as_str).map(String::from).collect();
        let algorithms: Vec<String> = plan.algorithms.clone().unwrap_or_else(of_scenario);
        let users = table.get("arrivals").and_then(|arrivals| arrivals.get("users")).and_then(Value::as_array);
        let loads: Vec<Load> = match (&plan.loads, users) {
            (Some(loads), _) => loads.iter().map(|load| Load::Offered(*load)).collect(),
            (None, Some(users)) => users.iter().filter_map(Value::as_integer).map(Load::Users).collect(),
            (None, None) => {
                let number = |load: &Value| load.as_float().or(load.as_integer().map(|load| load as f64));
                written("loads").iter().filter_map(number).map(Load::Offered).collect()
            }
        };
        let loads = if loads.is_empty() { vec![Load::Given] } else { loads };
        if algorithms.is_empty() {
            problems.push(places.problem("algorithms", "there is no algorithm", "as in algorithms = [\"least_conn\"]"));
        }
        let seeds = plan.replications.map_or(1, u64::from);
        let lengths = plan.axes.iter().map(|axis| axis.values.len() as u64);
        let lengths = lengths.chain([loads.len() as u64, algorithms.len() as u64, seeds]);
        if lengths.fold(1, u64::saturating_mul) > RUNS_MAX {
            let what = format!("the plan has more than {RUNS_MAX} runs");
            problems.push(places.problem("axes", what, "fewer values or replications"));
        }
        if !problems.is_empty() {
            return Err(Error::new(problems));
        }
        Ok(Base { table, loads, algorithms, directory, plan })
    }

    /// Numbers of values: of the axes, the loads and the algorithms.
    fn lengths(&self) -> Vec<usize> {
        let axes = self.plan.axes.iter().map(|axis| axis.values.len());
        axes.chain([self.loads.len(), self.algorithms.len()]).collect()
    }

    /// Where the value of a coordinate stands in the plan.
    fn path(&self, dimension: usize, index: usize) -> String {
        match dimension.checked_sub(self.plan.axes.len()) {
            None => format!("axes.{dimension}.values.{index}"),
            Some(0) if self.plan.loads.is_some() => format!("loads.{index}"),
            Some(1) if self.plan.algorithms.is_some() => format!("algorithms.{index}"),
            _ => "scenario".into(),
        }
    }

    /// All cells, or what is wrong with them: each value once.
    fn cells(&self, places: &Places) -> Result<Vec<Cell>, Error> {
        let lengths = self.lengths();
        let (mut cells, mut problems) = (Vec::new(), Vec::new());
        let mut blamed: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut seen: HashMap<String, Vec<usize>> = HashMap::new();
        for number in 0..lengths.iter().product() {
            let place = coordinates(number, &lengths);
            if place.iter().copied().enumerate().any(|coordinate| blamed.contains(&coordinate)) {
                continue;
            }
            match self.cell(&place) {
                Ok(cell) => {
                    if let Some(same) = seen.insert(cell.inputs.id(0), place.clone()) {
                        let differing = (0..place.len()).rfind(|at| same[*at] != place[*at]).unwrap_or(0);
                        blamed.insert((differing, place[differing]));
                        let path = self.path(differing, place[differing]);
                        problems.push(places.problem(&path, "the same runs are in the plan twice", "leave one out"));
                    }
                    cells.push(cell);
                }
                Err(wrong) => {
                    let (problem, coordinate) = self.blame(&place, &lengths, &wrong, places);
                    problems.push(problem);
                    match coordinate {
                        Some(coordinate) => blamed.insert(coordinate),
                        None => break,
                    };
                }
            }
        }
        if problems.is_empty() { Ok(cells) } else { Err(Error::new(problems)) }
    }

    /// The value without which the cell would be right; if there is none, the scenario is wrong in every cell.
    fn blame(
        &self,
        place: &[usize],
        lengths: &[usize],
        wrong: &str,
        places: &Places,
    ) -> (Diagnostic, Option<(usize, usize)>) {
        let (message, hint) = words(wrong);
        let others = |dimension: usize| {
            // One more for an axis: an index that it does not have leaves the scenario as it is.
            let count = lengths[dimension] + usize::from(dimension < self.plan.axes.len());
            (0..count).filter(move |index| *index != place[dimension]).map(move |index| {
                let mut other = place.to_vec();
                other[dimension] = index;
                other
            })
        };
        let guilty = (0..place.len()).find(|at| others(*at).any(|other| self.cell(&other).is_ok()));
        let coordinate = guilty.map(|dimension| (dimension, place[dimension]));
        let path = coordinate.map_or("scenario".into(), |(dimension, index)| self.path(dimension, index));
        (places.problem(&path, message, hint.unwrap_or_default()), coordinate)
    }

    /// Errors: in words.
    fn cell(&self, place: &[usize]) -> Result<Cell, String> {
        let axes = &self.plan.axes;
        let (load, algorithm) = (self.loads[place[axes.len()]], &self.algorithms[place[axes.len() + 1]]);
        let mut table = self.table.clone();
        axes.iter().zip(place).try_for_each(|(axis, index)| axis.apply(*index, &mut table))?;
        let list = |value: Value| Value::Array(vec![value]);
        match load {
            Load::Offered(load) => table.insert("loads".into(), list(load.into())),
            Load::Users(users) => {
                put(&mut table, "arrivals.users", &list(users.into()))?;
                None
            }
            Load::Given => None,
        };
        table.insert("algorithms".into(), list(algorithm.as_str().into()));
        table.insert("replications".into(), 1.into());
        let mut scenario = Scenario::deserialize(table).map_err(|error| error.message().to_string())?;
        let Extent { duration, requests, states } =
            extent(&scenario, &self.directory).map_err(|error| error.to_string())?;
        scenario.run.warmup.get_or_insert(Time::from_secs(duration * WARMUP));
        let inputs = Inputs::read(&scenario, &self.directory).map_err(|error| format!("{error:#}"))?;
        let labels = axes.iter().zip(place).map(|(axis, index)| axis.label(*index));
        let load = match load {
            _ if self.loads.len() == 1 => None,
            Load::Offered(load) => Some(load.into()),
            Load::Users(users) => Some(users.into()),
            Load::Given => None,
        };
        let values = labels.chain(load).collect();
        Ok(Cell { values, algorithm: algorithm.clone(), requests, states, scenario, inputs })
    }
}

/// The coordinates of the cell of this number; the last ones change fastest.
fn coordinates(mut number: usize, lengths: &[usize]) -> Vec<usize> {
    let mut place = vec![0; lengths.len()];
    for (index, length) in place.iter_mut().zip(lengths).rev() {
        *index = number % length;
        number /= length;
    }
    place
}

/// The scenario's text as a table, and its directory; or what is wrong, with a hint.
fn scenario(plan: &Plan, near: &Path) -> Result<(Table, PathBuf), (String, String)> {
    let name = match &plan.scenario {
        Written::Here(table) => return Ok((table.clone(), near.into())),
        Written::Named(name) => name,
    };
    let file = near.join(name);
    let text = match gallery::find(name).filter(|_| !file.is_file()) {
        Some(ready) => ready.text.to_string(),
        None => std::fs::read_to_string(&file).map_err(|error| {
            let hint = match nearest(name, gallery::ALL.iter().map(|ready| ready.name)) {
                Some(near) => format!("did you mean {near}?"),
                None => "balanza simulate --list shows the scenarios that come with the program".into(),
            };
            (format!("{}: {error}", file.display()), hint)
        })?,
    };
    let table = toml::from_str(&text).with_context(|| file.display().to_string());
    let table = table.map_err(|error| (format!("{error:#}"), String::new()))?;
    Ok((table, file.parent().unwrap_or(near).into()))
}

/// What is wrong with the plan itself.
fn problems(plan: &Plan, places: &Places) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut wrong = |path: &str, message: String, hint: &str| problems.push(places.problem(path, message, hint));
    if plan.replications == Some(0) {
        wrong("replications", "nothing is simulated in 0 replications".into(), "10 or more give good intervals");
    }
    for (list, empty) in [
        ("algorithms", plan.algorithms.as_ref().is_some_and(Vec::is_empty)),
        ("loads", plan.loads.as_ref().is_some_and(Vec::is_empty)),
    ] {
        if empty {
            wrong(list, format!("there are no {list}"), "leave the line out for those of the scenario");
        }
    }
    let mut titles: Vec<String> = ["algorithm", "load", "seed", "users"].map(String::from).into();
    for (at, axis) in plan.axes.iter().enumerate() {
        if let Some((key, hint)) = OWN.iter().find(|(key, _)| axis.key.as_deref() == Some(key)) {
            wrong(&format!("axes.{at}.key"), format!("\"{key}\" is no axis of its own"), hint);
        }
        if axis.values.is_empty() {
            wrong(&format!("axes.{at}.values"), "the axis has no values".into(), "leave the axis out, or give it one");
        }
        let (names, values) = (axis.names.len(), axis.values.len());
        if names != 0 && names != values {
            wrong(&format!("axes.{at}.names"), format!("{names} names for {values} values"), "one for each value");
        }
        let title = axis.title();
        if titles.contains(&title) {
            let hint = "give the axis another one, as in name = \"servers\"";
            wrong(&format!("axes.{at}"), format!("the name \"{title}\" is taken"), hint);
        }
        titles.push(title);
    }
    problems
}
