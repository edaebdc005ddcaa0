//! Which combinations of a plan's parts are run, and for how long.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Algorithm, Cell, Farm, Load, Plan, Selection, Server, Setting, System, Time};
use crate::units::parse_duration;

/// What a run takes beside its load: starting and stopping of servers and balancer.
const AROUND_A_RUN: Duration = Duration::from_millis(800);
/// Requests a second of a log that has not been read.
const LOG_RATE: f64 = 100.0;
/// Requests a second of servers and balancers that cost next to nothing.
const RATE_MAX: f64 = 4000.0;

/// The combinations of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// Those that are run, in the plan's order.
    pub run: Vec<Cell>,
    /// Those that the plan asks for and cannot be run, with the reason in words.
    pub left_out: Vec<(Cell, String)>,
}

impl Plan {
    /// The combinations that the plan asks for, without those that `supports` has a reason against.
    ///
    /// `direct` goes with controls alone, and that is no omission: there is nothing to choose without a balancer.
    pub fn cells(&self, supports: &dyn Fn(&System, &Algorithm, &Farm) -> Result<(), String>) -> Cells {
        let mut cells = Cells::default();
        for farm in &self.farms {
            for load in &self.loads {
                for system in &self.systems {
                    for algorithm in &self.algorithms {
                        if !self.wants(farm, load, system, algorithm) {
                            continue;
                        }
                        let cell = Cell {
                            farm: farm.name.clone(),
                            load: load.name.clone(),
                            system: system.clone(),
                            algorithm: algorithm.name.clone(),
                        };
                        let possible = farm.chosen(algorithm).and_then(|_| supports(system, algorithm, farm));
                        match possible {
                            Ok(()) => cells.run.push(cell),
                            Err(reason) => cells.left_out.push((cell, reason)),
                        }
                    }
                }
            }
        }
        cells
    }

    /// The same with what `quick` says: fewer repetitions, shorter loads, fewer combinations, and only the claims that
    /// these can answer.
    pub fn quick(&self) -> Plan {
        let mut plan = self.clone();
        let quick = std::mem::take(&mut plan.quick);
        plan.repetitions = quick.repetitions.unwrap_or(plan.repetitions);
        if !quick.cells.is_empty() {
            plan.cells = quick.cells;
            plan.keep_what_can_be_asked();
        }
        for load in &mut plan.loads {
            load.duration = load.duration.map(|duration| quick.duration.map_or(duration, |most| duration.min(most)));
            load.requests = load.requests.map(|requests| quick.requests.map_or(requests, |most| requests.min(most)));
            if !load.warmup.is_zero() {
                load.warmup = quick.warmup.unwrap_or(load.warmup);
            }
            if let Some(Time(duration)) = load.duration {
                load.warmup = load.warmup.min(Time(duration / 2));
                load.ramp = load.ramp.min(Time(duration / 2));
            }
        }
        plan
    }

    /// How long these combinations take, roughly: where a number of requests ends a load, from what servers and users
    /// can do.
    pub fn estimate(&self, cells: &Cells) -> Duration {
        let time = |cell: &Cell| match (self.farm(&cell.farm), self.load(&cell.load), self.algorithm(&cell.algorithm)) {
            (Some(farm), Some(load), Some(algorithm)) => load.estimate(farm, algorithm) + AROUND_A_RUN,
            _ => Duration::ZERO,
        };
        cells.run.iter().map(time).sum::<Duration>() * self.repetitions
    }
}

impl Selection {
    pub(super) fn has(&self, farm: &Farm, load: &Load, system: &System, algorithm: &Algorithm) -> bool {
        fn among<T: PartialEq>(list: &Option<Vec<T>>, part: &T) -> bool {
            list.as_ref().is_none_or(|list| list.contains(part))
        }
        among(&self.farms, &farm.name)
            && among(&self.loads, &load.name)
            && among(&self.systems, system)
            && among(&self.algorithms, &algorithm.name)
    }

    /// The names that it lists, none for one that lists none.
    pub(super) fn is_empty(&self) -> bool {
        let empty = |list: &Option<Vec<String>>| list.as_ref().is_some_and(Vec::is_empty);
        empty(&self.farms)
            || empty(&self.loads)
            || empty(&self.algorithms)
            || self.systems.as_ref().is_some_and(Vec::is_empty)
    }
}

impl Algorithm {
    pub(super) fn goes_with(&self, system: &System) -> bool {
        (self.systems.is_empty() || self.systems.contains(system)) && (self.control || *system != System::Direct)
    }
}

impl Load {
    fn estimate(&self, farm: &Farm, algorithm: &Algorithm) -> Duration {
        let Some(requests) = self.requests else { return self.duration.unwrap_or_default().0 };
        if self.log.is_some() {
            // Not read yet; an ordinary server has this many.
            return Duration::from_secs_f64(requests as f64 / LOG_RATE);
        }
        let rate = self.rate.unwrap_or_else(|| self.closed_rate(farm, algorithm));
        Duration::from_secs_f64(requests as f64 / rate.clamp(0.1, RATE_MAX))
    }

    /// What users and servers can do, in requests a second.
    fn closed_rate(&self, farm: &Farm, algorithm: &Algorithm) -> f64 {
        let names: BTreeSet<&String> = algorithm.servers.iter().chain(&algorithm.reaches).collect();
        let chosen = farm.each().filter(|(name, _)| names.is_empty() || names.contains(name));
        let services: Vec<(f64, Option<u32>)> = chosen.map(|(_, server)| server.service()).collect();
        let mean = services.iter().map(|(time, _)| time).sum::<f64>() / services.len().max(1) as f64;
        let rate = |(time, workers): &(f64, Option<u32>)| workers.map_or(RATE_MAX, |n| f64::from(n) / time.max(1e-9));
        let cycle = (mean + (self.rtt.0 + self.think.0).as_secs_f64()).max(1e-4);
        (f64::from(self.users.unwrap_or(1)) / cycle).min(services.iter().map(rate).sum())
    }
}

impl Server {
    /// Mean service time in seconds as far as its options say it, and how many requests it serves at once.
    fn service(&self) -> (f64, Option<u32>) {
        let number = |option: &str| match self.target.get(option) {
            Some(Setting::Whole(number)) => Some(*number as f64),
            Some(Setting::Number(number)) => Some(*number),
            _ => None,
        };
        let time = |option: &str| match self.target.get(option) {
            Some(Setting::Text(text)) => parse_duration(text).ok().map(|time| time.as_secs_f64()),
            _ => None,
        };
        let poisson = matches!(self.target.get("workload"), Some(Setting::Text(text)) if text == "poisson");
        let mean = if poisson {
            time("poisson-step").unwrap_or(0.1) * number("poisson-mean").unwrap_or(0.99)
        } else {
            time("time").or_else(|| time("delay")).unwrap_or(0.0)
        };
        let workers = number("concurrency").or_else(|| number("connections"));
        (mean / number("speed").unwrap_or(1.0), workers.map(|workers| workers as u32))
    }
}
