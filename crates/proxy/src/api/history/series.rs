//! How something did, step by step.

use std::collections::VecDeque;

use crate::metrics::Times;

/// Steps that are kept: fifteen minutes.
pub const STEPS: usize = 90;
/// Steps after which the times of before are forgotten: a minute.
const WINDOW: usize = 6;

/// Requests and failures of the last steps, and the times of the last one or two minutes.
#[derive(Default)]
pub struct Series {
    /// The steps that have ended, the oldest first.
    pub steps: VecDeque<(u64, u64)>,
    last: Option<(u64, u64)>,
    /// What was counted at the beginning of the last whole window and of the present one.
    times: Option<Box<[Times; 2]>>,
    age: usize,
}

impl Series {
    /// Ends a step with the requests, failures and times that were counted until now.
    pub fn step(&mut self, counted: (u64, u64), times: &Times) {
        if let Some(last) = self.last.replace(counted) {
            if self.steps.len() == STEPS {
                self.steps.pop_front();
            }
            // After a reset there is less than before.
            let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            self.steps.push_back((since(counted.0, last.0), since(counted.1, last.1)));
        }
        let kept = self.times.get_or_insert_with(|| Box::new([times.clone(), times.clone()]));
        self.age += 1;
        if self.age > WINDOW {
            self.age = 1;
            kept.swap(0, 1);
            kept[1] = times.clone();
        }
    }

    /// The sum of the last steps.
    pub fn sum(&self, steps: usize) -> (u64, u64, usize) {
        let last = self.steps.iter().rev().take(steps);
        last.fold((0, 0, 0), |(requests, failures, count), step| (requests + step.0, failures + step.1, count + 1))
    }

    /// The times since one or two minutes ago, of all that were counted until now.
    pub fn recent(&self, times: &Times) -> Times {
        let mut recent = times.clone();
        if let Some(kept) = &self.times {
            // Less than before means a reset.
            if times.count() >= kept[0].count() {
                recent.subtract(&kept[0]);
            }
        }
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Histogram;

    #[test]
    fn steps_are_differences() {
        let mut series = Series::default();
        for nth in 0..200 {
            series.step((nth * 10, nth), &Times::default());
        }
        assert_eq!(series.steps.len(), STEPS);
        assert_eq!((series.sum(1), series.sum(6), series.sum(1000)), ((10, 1, 1), (60, 6, 6), (900, 90, 90)));
        series.step((4, 0), &Times::default());
        assert_eq!(series.sum(1), (4, 0, 1));
    }

    #[test]
    fn times_are_those_of_one_or_two_minutes() {
        let (mut series, histogram) = (Series::default(), Histogram::default());
        let times = |histogram: &Histogram| {
            let mut times = Times::default();
            times.add(histogram);
            times
        };
        for nth in 0..40 {
            series.step((nth, 0), &times(&histogram));
            histogram.record(1_000_000);
            let recent = series.recent(&times(&histogram)).count() as usize;
            assert!(recent <= 2 * WINDOW && (recent > WINDOW || nth < WINDOW as u64), "{nth}: {recent}");
        }
    }
}
