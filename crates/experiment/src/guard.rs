//! Limits that end an experiment.
//!
//! Guards are judged again and again while a block runs, on what it has measured so far. So one bad request must not end an
//! experiment: a limit is exceeded when so many requests were over it as chance does not explain (three standard
//! deviations above what the limit allows, and three requests at least), and no sooner than after [`Guards::requests`]
//! requests. A p99 above a limit means that more than one of 100 requests took longer than it: these are what is counted.

use std::fmt;

use balanza_balancing::Nanos;
use balanza_plot::{percent, seconds};

use crate::block::Part;

/// Requests of a block before a guard judges it.
const REQUESTS: u64 = 200;
/// Samples of fullness before a guard judges it.
const SAMPLES: u64 = 10;
/// Standard deviations that chance may explain.
const DEVIATIONS: f64 = 3.0;
/// Requests over a limit that it takes at least.
const FEW: f64 = 3.0;
/// The part of the requests that may take longer than a p99.
const SLOW: f64 = 0.01;

/// The limits of an experiment; those that are not set do not end it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Guards {
    /// The greatest part of the requests that may fail.
    pub errors: Option<f64>,
    /// The longest p99.
    pub p99: Option<Nanos>,
    /// The greatest ratio of an arm's p99 to the control's.
    pub p99_ratio: Option<f64>,
    /// The greatest mean fullness.
    pub fullness: Option<f64>,
    /// Requests of a block before it is judged.
    pub requests: u64,
}

impl Default for Guards {
    fn default() -> Guards {
        Guards { errors: None, p99: None, p99_ratio: None, fullness: None, requests: REQUESTS }
    }
}

/// A limit that was exceeded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Breach {
    /// What was exceeded.
    pub limit: Limit,
    /// What was measured: a part of the requests, seconds, or a part of the slots.
    pub measured: f64,
    /// The limit, in the same unit.
    pub allowed: f64,
    /// Of how many requests.
    pub requests: u64,
}

/// A kind of limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The part of the requests that fail.
    Errors,
    /// The p99.
    P99,
    /// The p99 beside the control's.
    P99Ratio,
    /// The mean fullness.
    Fullness,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Breach { measured, allowed, requests, .. } = *self;
        match self.limit {
            Limit::Errors => {
                write!(f, "{} of {requests} requests failed; {} may", percent(measured), percent(allowed))
            }
            Limit::P99 => {
                write!(f, "p99 of {requests} requests is {}; the limit is {}", seconds(measured), seconds(allowed))
            }
            Limit::P99Ratio => write!(
                f,
                "p99 of {requests} requests is {}; the limit, by the control's p99, is {}",
                seconds(measured),
                seconds(allowed)
            ),
            Limit::Fullness => {
                write!(f, "servers are {} full on average; the limit is {}", percent(measured), percent(allowed))
            }
        }
    }
}

/// Whether so many of all are more than the part `allowed`, beyond chance.
fn exceeds(count: u64, of: u64, allowed: f64) -> bool {
    let expected = of as f64 * allowed;
    let chance = DEVIATIONS * (expected * (1.0 - allowed).max(0.0)).sqrt();
    count as f64 >= (expected + chance).max(FEW) && count as f64 > expected
}

impl Guards {
    /// Whether any limit is set.
    pub fn is_any(&self) -> bool {
        self.errors.is_some() || self.p99.is_some() || self.p99_ratio.is_some() || self.fullness.is_some()
    }

    /// The limit that a block exceeds, by all it has measured so far ([`Block::whole`](crate::Block::whole)). `control` is
    /// what counted in the blocks of the control so far. Without enough of it, and for the control itself, there is no
    /// limit by ratio.
    pub fn judge(&self, block: &Part, control: Option<&Part>) -> Option<Breach> {
        let requests = block.requests();
        let breach = |limit, measured, allowed| Some(Breach { limit, measured, allowed, requests });
        if let (Some(allowed), Some(measured)) = (self.fullness, block.fullness.mean())
            && block.fullness.samples >= SAMPLES
            && measured > allowed
        {
            return breach(Limit::Fullness, measured, allowed);
        }
        if requests < self.requests.max(1) {
            return None;
        }
        if let (Some(allowed), Some(measured)) = (self.errors, block.failed())
            && exceeds(block.failures, requests, allowed)
        {
            return breach(Limit::Errors, measured, allowed);
        }
        let slow = |limit: Nanos| exceeds(block.times.longer_than(limit), requests, SLOW);
        if let Some(limit) = self.p99
            && slow(limit)
        {
            return breach(Limit::P99, block.times.quantile(1.0 - SLOW), limit as f64 / 1e9);
        }
        if let (Some(ratio), Some(control)) = (self.p99_ratio, control)
            && control.requests() >= self.requests.max(1)
        {
            let allowed = ratio * control.times.quantile(1.0 - SLOW);
            // A limit that is not a number, or beyond all times, is never exceeded.
            if slow((allowed * 1e9) as Nanos) && allowed > 0.0 {
                return breach(Limit::P99Ratio, block.times.quantile(1.0 - SLOW), allowed);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use balanza_balancing::Rng;
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;

    fn part(fast: u64, slow: u64, failures: u64) -> Part {
        let mut part = Part::default();
        (0..fast).for_each(|_| part.add(10 * MS, false));
        (0..slow).for_each(|_| part.add(500 * MS, false));
        Part { failures, ..part }
    }

    #[test]
    fn one_bad_request_ends_nothing() {
        let guards = Guards { errors: Some(0.0), p99: Some(100 * MS), p99_ratio: Some(1.5), ..Guards::default() };
        let control = part(1_000, 0, 0);
        for block in [part(0, 1, 1), part(199, 0, 199), part(198, 2, 2), part(1_000, 1, 0)] {
            assert_eq!(guards.judge(&block, Some(&control)), None, "{block:?}");
        }
    }

    #[test]
    fn limits_and_their_words() {
        let errors = Guards { errors: Some(0.01), ..Guards::default() };
        let breach = errors.judge(&part(1_000, 0, 50), None).unwrap();
        assert_eq!(breach.to_string(), "5% of 1000 requests failed; 1% may");
        assert_eq!(errors.judge(&part(1_000, 0, 15), None), None, "15 of 1,000 may be chance");
        let p99 = Guards { p99: Some(100 * MS), ..Guards::default() };
        let breach = p99.judge(&part(950, 50, 0), None).unwrap();
        assert_eq!((breach.limit, breach.requests), (Limit::P99, 1_000));
        assert!(breach.to_string().ends_with("; the limit is 100 ms"), "{breach}");
        let ratio = Guards { p99_ratio: Some(2.0), ..Guards::default() };
        assert_eq!(ratio.judge(&part(950, 50, 0), None), None, "the control has not run");
        assert_eq!(ratio.judge(&part(950, 50, 0), Some(&part(100, 0, 0))), None, "not enough of the control");
        let breach = ratio.judge(&part(950, 50, 0), Some(&part(1_000, 0, 0))).unwrap();
        assert_eq!(breach.limit, Limit::P99Ratio);
        assert!(breach.measured > 2.0 * 0.0099 && (breach.allowed - 0.02).abs() < 0.001, "{breach:?}");
    }

    #[test]
    fn fullness_needs_no_requests() {
        let guards = Guards { fullness: Some(0.9), ..Guards::default() };
        let mut part = Part::default();
        (0..9).for_each(|_| part.fullness.sample(95, 100));
        assert_eq!(guards.judge(&part, None), None, "too few samples");
        part.fullness.sample(95, 100);
        let breach = guards.judge(&part, None).unwrap();
        assert_eq!(breach.to_string(), "servers are 95% full on average; the limit is 90%");
        (0..10).for_each(|_| part.fullness.sample(50, 100));
        assert_eq!(guards.judge(&part, None), None);
    }

    /// What fails half as often as the limit allows does not end experiments, though it is looked at all the time.
    #[test]
    fn chance_ends_no_experiment() {
        let guards = Guards { errors: Some(0.02), ..Guards::default() };
        let mut ended = 0;
        for seed in 0..200 {
            let (mut rng, mut part) = (Rng::new(seed), Part::default());
            ended += u32::from((0..5_000).any(|_| {
                part.add(MS, rng.below(100) == 0);
                guards.judge(&part, None).is_some()
            }));
        }
        assert_eq!(ended, 0);
    }

    proptest! {
        #[test]
        fn what_is_set_is_judged_by_numbers(
            fast in 0u64..500, slow in 0u64..500, failures in 0u64..500, errors in prop::option::of(-1.0f64..2.0),
            ratio in prop::option::of(prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -1.0f64..5.0]),
        ) {
            let guards = Guards { errors, p99_ratio: ratio, requests: 0, ..Guards::default() };
            let block = part(fast, slow, failures.min(fast + slow));
            if let Some(breach) = guards.judge(&block, Some(&part(500, 0, 0))) {
                prop_assert!(guards.is_any() && breach.measured > breach.allowed, "{:?}", breach);
                prop_assert!(breach.measured.is_finite() && breach.allowed.is_finite());
            }
        }
    }
}
