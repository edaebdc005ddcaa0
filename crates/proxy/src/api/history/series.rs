//! How something did, step by step.

use std::collections::VecDeque;

use crate::metrics::{KeptTimes, Times};

/// Steps that are kept: fifteen minutes.
pub const STEPS: usize = 90;
/// Steps after which the times of before are forgotten: a minute.
const WINDOW: usize = 6;

/// Requests and failures of the last steps, and the times of the last one or two minutes. There may be thousands, most of them
/// without a request: those take no memory beside the fields.
#[derive(Default)]
pub struct Series {
    /// Steps without a request, before all others.
    quiet: usize,
    /// The requests of the steps after them that have ended, the oldest first.
    requests: VecDeque<u32>,
    /// Their failures; nothing until there is one.
    failures: VecDeque<u32>,
    last: Option<(u64, u64)>,
    /// What was counted at the beginning of the last whole window and of the present one; none while nothing was.
    times: Option<Box<[KeptTimes; 2]>>,
    age: usize,
}

impl Series {
    /// Ends a step with the requests, failures and times that were counted until now.
    pub fn step(&mut self, counted: (u64, u64), times: &Times) {
        let last = self.last.replace(counted);
        if let Some(last) = last {
            // After a reset there is less than before.
            let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            self.push(since(counted.0, last.0), since(counted.1, last.1));
        }
        self.age += 1;
        if self.times.is_none() && times.count() > 0 {
            // What came in the first step was counted before it was looked at; later, none had come until this step.
            let before = if last.is_none() { KeptTimes::of(times) } else { KeptTimes::default() };
            self.times = Some(Box::new([before.clone(), before]));
        }
        if self.age > WINDOW {
            self.age = 1;
            if let Some(kept) = &mut self.times {
                kept.swap(0, 1);
                kept[1] = KeptTimes::of(times);
            }
        }
    }

    fn push(&mut self, requests: u64, failures: u64) {
        if self.requests.is_empty() && (requests, failures) == (0, 0) {
            self.quiet = (self.quiet + 1).min(STEPS);
            return;
        }
        if self.requests.is_empty() {
            self.requests.reserve_exact(STEPS);
        }
        if self.failures.is_empty() && failures > 0 {
            self.failures.reserve_exact(STEPS);
            self.failures.resize(self.requests.len(), 0);
        }
        if self.requests.len() == STEPS {
            self.requests.pop_front();
            self.failures.pop_front();
        }
        self.quiet = self.quiet.min(STEPS - 1 - self.requests.len());
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        if failures > 0 || !self.failures.is_empty() {
            self.failures.push_back(short(failures));
        }
        self.requests.push_back(short(requests));
    }

    /// Requests and failures of the steps that have ended, the oldest first.
    pub fn steps(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let failures = |nth| self.failures.get(nth).copied().unwrap_or(0).into();
        let steps = self.requests.iter().enumerate().map(move |(nth, requests)| (u64::from(*requests), failures(nth)));
        std::iter::repeat_n((0, 0), self.quiet).chain(steps)
    }

    /// The sum of the last steps.
    pub fn sum(&self, steps: usize) -> (u64, u64, usize) {
        let last = self.steps().rev().take(steps);
        last.fold((0, 0, 0), |(requests, failures, count), step| (requests + step.0, failures + step.1, count + 1))
    }

    /// The times since one or two minutes ago, of all that were counted until now.
    pub fn recent(&self, times: &Times) -> Times {
        let mut recent = times.clone();
        if let Some(kept) = &self.times {
            // Less than before means a reset.
            if times.count() >= kept[0].count() {
                recent.subtract_kept(&kept[0]);
            }
        }
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Histogram;

    fn times(histogram: &Histogram) -> Times {
        let mut times = Times::default();
        times.add(histogram);
        times
    }

    #[test]
    fn steps_are_differences() {
        let mut series = Series::default();
        for nth in 0..200 {
            series.step((nth * 10, nth), &Times::default());
        }
        assert_eq!(series.steps().count(), STEPS);
        assert_eq!((series.sum(1), series.sum(6), series.sum(1000)), ((10, 1, 1), (60, 6, 6), (900, 90, 90)));
        series.step((4, 0), &Times::default());
        assert_eq!(series.sum(1), (4, 0, 1));
    }

    #[test]
    fn quiet_steps_come_first_and_take_no_memory() {
        let mut series = Series::default();
        for _ in 0..=200 {
            series.step((7, 0), &Times::default());
        }
        assert_eq!((series.sum(1000), series.requests.capacity()), ((0, 0, STEPS), 0));
        for nth in 1..=STEPS as u64 {
            series.step((7 + nth, 0), &Times::default());
            assert_eq!(series.sum(1000), (nth, 0, STEPS));
            assert_eq!(series.steps().next_back(), Some((1, 0)));
        }
        assert!(series.requests.capacity() < STEPS + 8, "{}", series.requests.capacity());
        assert_eq!(series.failures.capacity(), 0);
        series.step((7 + STEPS as u64, 0), &Times::default());
        assert_eq!((series.sum(1), series.sum(1000)), ((0, 0, 1), (STEPS as u64 - 1, 0, STEPS)));
    }

    #[test]
    fn failures_belong_to_their_steps() {
        let (mut series, mut counted) = (Series::default(), (0, 0));
        series.step(counted, &Times::default());
        // As many without a failure as there is room for, and then more than that with one now and then.
        let failures = |nth: usize| u64::from(nth >= STEPS && nth.is_multiple_of(7));
        for nth in 0..3 * STEPS {
            counted = (counted.0 + nth as u64 + 1, counted.1 + failures(nth));
            series.step(counted, &Times::default());
            let first = (nth + 1).saturating_sub(STEPS);
            assert!(series.steps().eq((first..=nth).map(|nth| (nth as u64 + 1, failures(nth)))), "{nth}");
        }
    }

    #[test]
    fn times_from_before_the_first_step_are_not_recent() {
        let (mut series, histogram) = (Series::default(), Histogram::default());
        histogram.record(1_000_000);
        series.step((1, 0), &times(&histogram));
        assert_eq!(series.recent(&times(&histogram)).count(), 0);
        histogram.record(1_000_000);
        series.step((2, 0), &times(&histogram));
        assert_eq!(series.recent(&times(&histogram)).count(), 1);
    }

    #[test]
    fn times_are_those_of_one_or_two_minutes() {
        let (mut series, histogram) = (Series::default(), Histogram::default());
        for nth in 0..40 {
            series.step((nth, 0), &times(&histogram));
            histogram.record(1_000_000);
            let recent = series.recent(&times(&histogram)).count() as usize;
            assert!(recent <= 2 * WINDOW && (recent > WINDOW || nth < WINDOW as u64), "{nth}: {recent}");
        }
    }
}
