//! Which claims can be asked when only a part of a plan is run.

use super::{Check, Farm, Load, Plan, System};
use crate::expression::{self, Measurement, Name};

impl Plan {
    /// Leaves out the claims, or the systems of a claim, that need combinations which the plan does not run.
    pub(super) fn keep_what_can_be_asked(&mut self) {
        let checks = std::mem::take(&mut self.checks);
        for mut check in checks {
            let asked = self.asked(&check);
            let kept: Vec<System> = asked.iter().filter(|system| self.can_ask(&check, system)).cloned().collect();
            if kept.is_empty() {
                continue;
            }
            if kept != asked {
                check.systems = kept;
            }
            self.checks.push(check);
        }
    }

    /// The systems of which a claim is asked.
    pub(super) fn asked(&self, check: &Check) -> Vec<System> {
        if check.systems.is_empty() {
            return self.systems.iter().filter(|system| **system != System::Direct).cloned().collect();
        }
        check.systems.clone()
    }

    /// Whether the plan runs all that a claim measures when it is asked of this system.
    pub(super) fn can_ask(&self, check: &Check, system: &System) -> bool {
        let Ok(expression) = expression::parse(&check.expression) else { return false };
        expression.measurements().into_iter().all(|measurement| self.measures(measurement, system))
    }

    fn measures(&self, measurement: &Measurement, asked: &System) -> bool {
        let Measurement { algorithm, farm, load, system, .. } = measurement;
        let named = |system: &Name| self.systems.iter().find(|known| known.name() == system.text);
        let system = match system {
            Some(system) => named(system),
            None => Some(asked),
        };
        let farm = match farm {
            Some(farm) => self.farm(&farm.text),
            None => self.farms.first(),
        };
        let load = match load {
            Some(load) => self.load(&load.text),
            None => self.loads.first(),
        };
        let (Some(farm), Some(load), Some(system), Some(algorithm)) =
            (farm, load, system, self.algorithm(&algorithm.text))
        else {
            return false;
        };
        self.wants(farm, load, system, algorithm)
    }

    /// Whether the plan asks for this combination.
    pub(super) fn wants(&self, farm: &Farm, load: &Load, system: &System, algorithm: &super::Algorithm) -> bool {
        let selected = self.cells.is_empty() || self.cells.iter().any(|cells| cells.has(farm, load, system, algorithm));
        selected && algorithm.goes_with(system)
    }
}
