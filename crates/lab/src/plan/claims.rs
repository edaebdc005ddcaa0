//! Whether the names in a claim are the plan's.

use balanza_config::nearest;

use super::Plan;
use crate::expression::{Error, Expression, Name};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::parse;

    const PLAN: &str = r#"
        name = "two"
        title = "Two"
        farms = [{ name = "even", servers = [{ name = "s1" }, { name = "t", count = 2 }] }]
        systems = ["balanza", "nginx"]
        algorithms = [{ name = "RR", balance = "round_robin" }, { name = "LC", balance = "least_conn" }]
        loads = [{ name = "100", users = 100, duration = "5s" }, { name = "250", users = 250, duration = "5s" }]
    "#;

    fn shown(text: &str, error: &Error) -> String {
        format!("{text}\n{}^ {error}\n", " ".repeat(text[..error.place].chars().count()))
    }

    #[test]
    fn names_that_the_plan_does_not_have() {
        let plan: Plan = toml::from_str(PLAN).unwrap();
        let wrong = [
            r#"rps("RR", load="100") < rps("LX", load="25")"#,
            r#"rps("RR") < rps("WRR 3:1", load="100")"#,
            r#"rps("RR", load="100", farm="uneven", system="haproxy") < 1"#,
            r#"share("RR", load="100", server="t") < share("RR", load="100", server="t-2")"#,
        ];
        let mut messages = String::new();
        for text in wrong {
            for error in validate(&parse(text).unwrap(), &plan) {
                messages += &shown(text, &error);
            }
        }
        insta::assert_snapshot!(messages);
        let right = r#"rps("RR", load="100", system="nginx") < 1 and share("RR", load="100", server="s1") < 1"#;
        assert_eq!(validate(&parse(right).unwrap(), &plan), []);
    }
}
