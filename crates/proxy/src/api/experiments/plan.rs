//! What is to be run: from the configuration, or from a request.

use std::collections::HashSet;

use balanza_balancing::Member;
use balanza_config::model::{ARMS_MAX, ExperimentSettings, Upstream};
use serde_json::{Map, Value};

use super::super::Failure;
use super::super::plane::Plane;
use super::super::upstreams;
use crate::servers::membership::{Membership, Shared, method};

const _: () = assert!(ARMS_MAX == balanza_experiment::MAX_ARMS);

/// An experiment that may be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How it runs.
    pub settings: ExperimentSettings,
    /// The methods beside the upstream's own.
    pub arms: Vec<String>,
}

impl Plan {
    /// That of the configuration.
    pub fn configured(conf: &Upstream) -> Option<Plan> {
        let experiment = conf.experiment.as_ref()?;
        let arms = experiment.arms.iter().map(|arm| arm.text.clone()).collect();
        Some(Plan { settings: experiment.settings.clone(), arms })
    }

    /// That of a request: what it does not say is as in the configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(object: &Map<String, Value>, conf: &Upstream) -> Result<Plan, Failure> {
        let configured = Plan::configured(conf);
        let mut plan = configured.unwrap_or_else(|| Plan { settings: ExperimentSettings::default(), arms: Vec::new() });
        for (name, value) in object {
            let wrong = || Failure::format(format!("invalid \"{name}\": {value}"));
            let text = match (name.as_str(), value) {
                ("arms", Value::Array(arms)) => {
                    let text =
                        |arm: &Value| arm.as_str().map(|arm| arm.trim().trim_end_matches(';').trim_end().to_owned());
                    plan.arms = arms.iter().map(text).collect::<Option<Vec<String>>>().ok_or_else(wrong)?;
                    continue;
                }
                ("rounds" | "seed" | "requests" | "p99_ratio", Value::Number(number)) => number.to_string(),
                ("block" | "washout" | "errors" | "p99" | "full", Value::String(text)) => text.clone(),
                ("arms", _) => return Err(wrong()),
                (known, _) if ExperimentSettings::NAMES.contains(&known) => return Err(wrong()),
                _ => return Err(Failure::format(format!("unknown parameter \"{name}\""))),
            };
            let expected = |expected| Failure::format(format!("invalid \"{name}\": {value} ({expected})"));
            plan.settings.set(name, &text).map_err(expected)?;
        }
        plan.settings.check().map_err(Failure::format)?;
        Ok(plan)
    }

    /// Whether it can be run in an upstream.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self, plane: &dyn Plane, shared: &Shared) -> Result<(), Failure> {
        let membership = shared.membership();
        let own = plane.own(shared.protocol, &shared.conf.name).unwrap_or(membership.servers.len());
        if self.arms.is_empty() {
            return Err(Failure::format("missing \"arms\": the methods that are compared with that of the upstream"));
        }
        if self.arms.len() + 1 > ARMS_MAX {
            return Err(Failure::format(format!("more than {ARMS_MAX} arms, the method of the upstream among them")));
        }
        let mut seen = HashSet::from([in_use(shared, &membership)]);
        for arm in &self.arms {
            if !seen.insert(arm.clone()) {
                return Err(Failure::format(format!("the method \"{arm}\" is an arm already")));
            }
            let servers = &membership.servers[..own.min(membership.servers.len())];
            let balance = method(arm, shared.protocol, &shared.conf, servers).map_err(Failure::format)?;
            if !balance.spec.entry().backup && servers.iter().any(|server| server.backup) {
                return Err(Failure::format(format!("the method \"{arm}\" has no backup servers")));
            }
        }
        if self.settings.full.is_some() && !membership.servers.is_empty() && slots(&membership).1 == 0 {
            return Err(Failure::format("\"full\" needs servers with \"max_conns\""));
        }
        Ok(())
    }
}

/// The text of the method that an upstream has without an experiment.
pub fn in_use(shared: &Shared, membership: &Membership) -> String {
    membership.balancing.chosen.as_ref().unwrap_or(&shared.conf.method).clone()
}

/// Requests in flight at the servers that have a limit and are up, and how many these may have. Backup servers are
/// among them when no other is up.
pub fn slots(membership: &Membership) -> (u64, u64) {
    let up = || membership.servers.iter().enumerate().filter(|(nth, _)| upstreams::state(membership, *nth) == "up");
    let is_backed_up = up().all(|(_, server)| server.backup);
    let mut sum = (0, 0);
    for (nth, server) in up().filter(|(_, server)| server.backup == is_backed_up) {
        let state = membership.fleet.state(Member(nth as u32));
        let limit = state.ceiling().or(state.max_conns_override()).unwrap_or(server.max_conns);
        if limit > 0 {
            sum = (sum.0 + u64::from(state.in_flight()), sum.1 + u64::from(limit));
        }
    }
    sum
}
