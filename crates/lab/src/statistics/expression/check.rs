//! Whether the names in a claim are the plan's.

use balanza_config::nearest;

use super::{Error, Expression, Name};
use crate::plan::Plan;

/// All that the plan does not have, and what the claim has to say because the plan has several. Metrics are known by now.
pub fn validate(expression: &Expression, plan: &Plan) -> Vec<Error> {
    let farms: Vec<&str> = plan.farms.iter().map(|farm| farm.name.as_str()).collect();
    let loads: Vec<&str> = plan.loads.iter().map(|load| load.name.as_str()).collect();
    let algorithms: Vec<&str> = plan.algorithms.iter().map(|algorithm| algorithm.name.as_str()).collect();
    let systems: Vec<&str> = plan.systems.iter().map(|system| system.name()).collect();
    let mut errors = Vec::new();
    for measurement in expression.measurements() {
        errors.extend(unknown("algorithm", &measurement.algorithm, &algorithms));
        if let Some(system) = &measurement.system {
            errors.extend(unknown("system", system, &systems));
        }
        let place = measurement.metric.place;
        match &measurement.load {
            Some(load) => errors.extend(unknown("load", load, &loads)),
            None => errors.extend(several("load", place, &loads)),
        }
        match &measurement.farm {
            Some(farm) => errors.extend(unknown("farm", farm, &farms)),
            None => errors.extend(several("farm", place, &farms)),
        }
        let farm = match &measurement.farm {
            Some(name) => plan.farm(&name.text),
            None => plan.farms.first().filter(|_| plan.farms.len() == 1),
        };
        if let (Some(server), Some(farm)) = (&measurement.server, farm) {
            let names = farm.names();
            errors.extend(unknown("server", server, &names.iter().map(String::as_str).collect::<Vec<_>>()));
        }
    }
    errors.dedup();
    errors
}

fn unknown(what: &str, name: &Name, known: &[&str]) -> Option<Error> {
    if known.contains(&name.text.as_str()) {
        return None;
    }
    let error = Error::new(name.place, format!("no {what} \"{}\" in the plan", name.text));
    Some(error.hint(match nearest(&name.text, known.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("there are {}", quoted(known)),
    }))
}

fn several(what: &str, place: usize, known: &[&str]) -> Option<Error> {
    (known.len() > 1).then(|| {
        Error::new(place, format!("the plan has several {what}s, the claim has to say which")).hint(format!(
            "add {what}=\"{}\": there are {}",
            known[0],
            quoted(known)
        ))
    })
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}
