//! How long the rest takes.

use std::time::Duration;

use super::jobs::Job;
use crate::plan::{Cells, Plan};

/// What the plan says of each run's length, corrected by the runs that were made.
pub(super) struct Forecast<'a> {
    plan: &'a Plan,
    /// By the plan: of all runs that are left, of those that were made.
    left: f64,
    made: f64,
    /// What those that were made took.
    took: f64,
}

impl<'a> Forecast<'a> {
    pub(super) fn new(plan: &'a Plan, jobs: &[Job]) -> Forecast<'a> {
        let left = jobs.iter().map(|job| estimate(plan, job)).sum();
        Forecast { plan, left, made: 0.0, took: 0.0 }
    }

    /// How long one run's load lasts, by the plan.
    pub(super) fn load(&self, job: &Job) -> Duration {
        let duration = self.plan.load(&job.cell.load).and_then(|load| load.duration).map(|time| time.0);
        duration.unwrap_or_else(|| Duration::from_secs_f64(estimate(self.plan, job)))
    }

    pub(super) fn done(&mut self, job: &Job, took: Duration) {
        let estimate = estimate(self.plan, job);
        self.left = (self.left - estimate).max(0.0);
        self.made += estimate;
        self.took += took.as_secs_f64();
    }

    pub(super) fn rest(&self) -> Duration {
        let factor = if self.made > 0.0 { self.took / self.made } else { 1.0 };
        Duration::try_from_secs_f64(self.left * factor).unwrap_or(Duration::MAX)
    }
}

/// Seconds of one run.
fn estimate(plan: &Plan, job: &Job) -> f64 {
    let one = Cells { run: vec![job.cell.clone()], left_out: Vec::new() };
    plan.estimate(&one).as_secs_f64() / f64::from(plan.repetitions.max(1))
}
