//! What is to be run, and in which order.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::plan::{Cell, Plan};
use crate::record::Run;

/// One run to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What is run.
    pub cell: Cell,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Which run of all, from 1.
    pub order: u32,
}

/// The runs of a plan that are not finished. Every repetition has all cells in an order of its own, so that what changes
/// on the machine meanwhile is spread over all of them. Invalid runs are made again.
pub fn jobs(plan: &Plan, cells: &[Cell], finished: &[Run]) -> Vec<Job> {
    let done = |job: &Job| {
        let mut same = finished.iter().filter(|run| run.repetition == job.repetition && run.cell == job.cell);
        same.any(|run| run.invalid.is_empty())
    };
    let mut jobs = Vec::new();
    let mut order = 0;
    for repetition in 1..=plan.repetitions {
        let mut shuffled = cells.to_vec();
        shuffled.shuffle(&mut StdRng::seed_from_u64(seed(plan, repetition, 0)));
        for cell in shuffled {
            order += 1;
            jobs.push(Job { cell, repetition, order });
        }
    }
    jobs.retain(|job| !done(job));
    jobs
}

/// A seed for one purpose in one repetition. All cells of a repetition share it: they meet the same arrivals and the same
/// delays, and are compared in pairs.
pub(super) fn seed(plan: &Plan, repetition: u32, purpose: u64) -> u64 {
    // Each factor is odd, so neither repetitions nor purposes fall together.
    let mixed = plan.seed ^ u64::from(repetition).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The workload server's counters of seeds are added to this, and TOML has signed numbers.
    (mixed.rotate_left(23) ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93)) >> 2
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::System;
    use crate::record::Measured;

    fn plan(repetitions: u32, seed: u64) -> Plan {
        let text = "name = \"p\"\ntitle = \"P\"\nfarms = []\nsystems = []\nalgorithms = []\nloads = []";
        Plan { repetitions, seed, ..toml::from_str(text).unwrap() }
    }

    fn cells(count: usize) -> Vec<Cell> {
        let cell = |n| Cell { farm: "f".into(), load: "l".into(), system: System::Nginx, algorithm: format!("a{n}") };
        (0..count).map(cell).collect()
    }

    fn run(job: &Job, invalid: &[&str]) -> Run {
        Run {
            cell: job.cell.clone(),
            repetition: job.repetition,
            order: job.order,
            started: String::new(),
            measured: Measured::default(),
            servers: Vec::new(),
            processes: Vec::new(),
            events: Vec::new(),
            invalid: invalid.iter().map(|&reason| reason.to_owned()).collect(),
        }
    }

    #[test]
    fn every_repetition_has_every_cell_in_an_order_of_its_own() {
        let all: BTreeSet<Cell> = cells(20).into_iter().collect();
        let jobs = jobs(&plan(3, 1), &cells(20), &[]);
        assert_eq!(jobs.iter().map(|job| job.order).collect::<Vec<_>>(), (1..=60).collect::<Vec<_>>());
        let orders: BTreeSet<Vec<&Cell>> =
            jobs.chunks(20).map(|chunk| chunk.iter().map(|job| &job.cell).collect()).collect();
        assert_eq!(orders.len(), 3, "orders repeat");
        for (number, chunk) in jobs.chunks(20).enumerate() {
            assert!(chunk.iter().all(|job| job.repetition == number as u32 + 1));
            assert_eq!(chunk.iter().map(|job| job.cell.clone()).collect::<BTreeSet<_>>(), all);
        }
    }

    #[test]
    fn the_seed_decides_the_order() {
        assert_eq!(jobs(&plan(2, 7), &cells(9), &[]), jobs(&plan(2, 7), &cells(9), &[]));
        assert_ne!(jobs(&plan(2, 7), &cells(9), &[]), jobs(&plan(2, 8), &cells(9), &[]));
        let seeds: BTreeSet<u64> =
            (1..=5).flat_map(|repetition| (0..3).map(move |p| seed(&plan(5, 1), repetition, p))).collect();
        assert_eq!(seeds.len(), 15);
        assert!(seeds.iter().all(|&seed| i64::try_from(seed + 1000).is_ok()));
    }

    #[test]
    fn finished_runs_are_not_made_again_and_invalid_ones_are() {
        let all = jobs(&plan(3, 1), &cells(4), &[]);
        let mut finished: Vec<Run> = all.iter().skip(2).step_by(2).map(|job| run(job, &[])).collect();
        finished.push(run(&all[0], &["the client was the bottleneck"]));
        let rest = jobs(&plan(3, 1), &cells(4), &finished);
        let expected: Vec<Job> =
            all.iter().enumerate().filter(|(i, _)| *i == 0 || i % 2 == 1).map(|(_, j)| j.clone()).collect();
        assert_eq!(rest, expected, "the others stay in their order");
    }
}
