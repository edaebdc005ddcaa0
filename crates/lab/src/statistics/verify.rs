//! The plan's claims, each in each system that it is asked of.

use std::collections::BTreeMap;

use super::data::Data;
use super::evaluate::evaluate;
use crate::expression::{Expression, Measurement, Name, parse};
use crate::plan::{Cell, Check, System, validate};
use crate::summary::{Holds, Verified};

/// All claims of the plan.
pub(super) fn all(data: &Data) -> Vec<Verified> {
    data.plan.checks.iter().flat_map(|check| verify(data, check)).collect()
}

fn verify(data: &Data, check: &Check) -> Vec<Verified> {
    let read =
        parse(&check.expression).and_then(|expression| match validate(&expression, data.plan).into_iter().next() {
            Some(error) => Err(error),
            None => Ok(expression),
        });
    let systems = match &read {
        Ok(expression) => asked(data, check, expression),
        Err(_) => balancing(data),
    };
    let verified = |system: System| {
        let (holds, numbers) = match &read {
            Ok(expression) => {
                let answer = evaluate(&expression.claim, &|measurement| repetitions(data, measurement, &system));
                (answer.holds, answer.parts.join("; "))
            }
            Err(error) => (Holds::CannotBeTold, format!("the expression cannot be parsed: {error}")),
        };
        let expected = (holds != Holds::CannotBeTold).then_some((holds == Holds::Yes) == check.must);
        Verified { check: check.name.clone(), system, holds, expected, numbers }
    };
    systems.into_iter().map(verified).collect()
}

fn balancing(data: &Data) -> Vec<System> {
    data.plan.systems.iter().filter(|system| **system != System::Direct).cloned().collect()
}

/// The systems that a check names; else those that balance and have what it speaks of. A claim that names the system of
/// all its figures is asked once.
fn asked(data: &Data, check: &Check, expression: &Expression) -> Vec<System> {
    if !check.systems.is_empty() {
        return check.systems.clone();
    }
    let measurements = expression.measurements();
    let open: Vec<&&Measurement> = measurements.iter().filter(|measurement| measurement.system.is_none()).collect();
    let named = measurements.iter().find_map(|measurement| data.system(&measurement.system.as_ref()?.text));
    if let (true, Some(system)) = (open.is_empty(), named) {
        return vec![system.clone()];
    }
    let has_all = |system: &System| {
        open.iter().all(|measurement| {
            let cell = cell(data, measurement, system);
            cell.is_some_and(|cell| data.runs(&cell).is_some() || data.is_planned(&cell))
        })
    };
    let found: Vec<System> = balancing(data).into_iter().filter(has_all).collect();
    // A check without any result is shown as inconclusive.
    if found.is_empty() { balancing(data) } else { found }
}

fn cell(data: &Data, measurement: &Measurement, system: &System) -> Option<Cell> {
    let plan = data.plan;
    let name = |given: &Option<Name>| given.as_ref().map(|name| name.text.clone());
    let system = match &measurement.system {
        Some(name) => data.system(&name.text)?,
        None => system,
    };
    Some(Cell {
        farm: name(&measurement.farm).or_else(|| plan.farms.first().map(|farm| farm.name.clone()))?,
        load: name(&measurement.load).or_else(|| plan.loads.first().map(|load| load.name.clone()))?,
        system: system.clone(),
        algorithm: measurement.algorithm.text.clone(),
    })
}

fn repetitions(data: &Data, measurement: &Measurement, system: &System) -> Result<BTreeMap<u32, f64>, String> {
    let Some(cell) = cell(data, measurement, system) else {
        return Err("not in the plan".into());
    };
    if data.runs(&cell).is_none_or(|runs| runs.valid.is_empty()) {
        return Err(format!("{cell}: {}", data.reason(&cell)));
    }
    let server = measurement.server.as_ref().map(|name| name.text.as_str());
    let values = data.repetitions(&cell, &measurement.metric.text, server);
    match values.is_empty() {
        true => Err(format!("{cell}: {} was not measured", measurement.metric.text)),
        false => Ok(values),
    }
}
