//! When the requests of an open loop are meant to be sent.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Exp1};

use super::schedule::Schedule;
use crate::plan;

/// Intended times, one after the other, in nanoseconds since the load began. They depend on the seed or the log alone:
/// what the target does to earlier requests moves none of them.
#[derive(Debug)]
pub(super) struct Arrivals {
    source: Source,
    /// The next one; `None` when there will be none.
    next: Option<f64>,
    count: u64,
    /// No request is meant for later than this.
    end: f64,
    /// From when requests are counted, and how many are to be.
    counted_from: u64,
    left: Option<u64>,
}

/// Where the times come from.
#[derive(Debug)]
enum Source {
    /// Nanoseconds between two requests.
    Even(f64),
    /// Their mean.
    Poisson(f64, Box<SmallRng>),
    Log(Arc<Schedule>),
}

impl Arrivals {
    /// `rate` requests a second up to `end`, or until `requests` of them were meant for `counted_from` or later.
    pub fn new(
        rate: f64,
        kind: plan::Arrivals,
        seed: u64,
        counted_from: u64,
        end: Option<u64>,
        requests: Option<u64>,
    ) -> Self {
        let gap = 1e9 / rate;
        match kind {
            plan::Arrivals::Constant => Self::from(Source::Even(gap), Some(0.0), counted_from, end, requests),
            plan::Arrivals::Poisson => {
                let mut random = Box::new(SmallRng::seed_from_u64(seed));
                // A Poisson process has no request at the beginning.
                let first: f64 = Exp1.sample(&mut random);
                Self::from(Source::Poisson(gap, random), Some(first * gap), counted_from, end, requests)
            }
        }
    }

    /// Those of a log, with the same ends.
    pub fn of_log(schedule: &Arc<Schedule>, counted_from: u64, end: Option<u64>, requests: Option<u64>) -> Self {
        let first = schedule.arrival(0).map(|first| first.at as f64);
        Self::from(Source::Log(Arc::clone(schedule)), first, counted_from, end, requests)
    }

    fn from(source: Source, first: Option<f64>, counted_from: u64, end: Option<u64>, left: Option<u64>) -> Self {
        let end = end.map_or(f64::INFINITY, |end| end as f64);
        Self { source, next: first.filter(|&first| first < end), count: 0, end, counted_from, left }
    }

    /// When the next one is meant to be sent.
    pub fn next(&self) -> Option<u64> {
        self.next.map(|time| time as u64)
    }

    /// Takes the next one if it is due: its time, and its number from 0.
    pub fn pop(&mut self, now: u64) -> Option<(u64, u64)> {
        let intended = self.next().filter(|&next| next <= now)?;
        let number = self.count;
        if intended >= self.counted_from
            && let Some(left) = &mut self.left
        {
            *left -= 1;
            if *left == 0 {
                self.next = None;
                return Some((intended, number));
            }
        }
        self.advance();
        Some((intended, number))
    }

    fn advance(&mut self) {
        self.count += 1;
        let next = match &mut self.source {
            // Not a sum: a million additions would drift.
            Source::Even(gap) => Some(self.count as f64 * *gap),
            Source::Poisson(mean, random) => {
                let gap: f64 = Exp1.sample(random);
                Some(self.next.unwrap_or(0.0) + gap * *mean)
            }
            Source::Log(schedule) => schedule.arrival(self.count).map(|arrival| arrival.at as f64),
        };
        self.next = next.filter(|&next| next < self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn all(mut arrivals: Arrivals) -> Vec<u64> {
        std::iter::from_fn(|| arrivals.pop(u64::MAX)).map(|(time, _)| time).collect()
    }

    #[test]
    fn constant_arrivals_are_evenly_apart() {
        let times = all(Arrivals::new(4.0, plan::Arrivals::Constant, 1, 0, Some(SECOND), None));
        assert_eq!(times, [0, SECOND / 4, SECOND / 2, SECOND * 3 / 4]);
    }

    #[test]
    fn a_number_of_requests_is_counted_after_the_warm_up() {
        let times = all(Arrivals::new(10.0, plan::Arrivals::Constant, 1, SECOND, None, Some(3)));
        assert_eq!(times.len(), 13);
        assert_eq!(times.iter().filter(|&&time| time >= SECOND).count(), 3);
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let mut arrivals = Arrivals::new(10.0, plan::Arrivals::Constant, 1, 0, Some(SECOND), None);
        assert_eq!((arrivals.pop(0), arrivals.pop(0), arrivals.next()), (Some((0, 0)), None, Some(SECOND / 10)));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let times = all(Arrivals::new(1000.0, plan::Arrivals::Poisson, 7, 0, Some(100 * SECOND), None));
        let count = times.len() as f64;
        // 100,000 with a deviation of 316.
        assert!((count - 1e5).abs() < 1600.0, "{count}");
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let sd = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((sd / mean - 1.0).abs() < 0.03, "{sd} {mean}");
        let again = all(Arrivals::new(1000.0, plan::Arrivals::Poisson, 7, 0, Some(100 * SECOND), None));
        assert_eq!(times, again);
        let other = all(Arrivals::new(1000.0, plan::Arrivals::Poisson, 8, 0, Some(100 * SECOND), None));
        assert_ne!(times, other);
    }
}
