//! A budget for retries: in any window of time, retries are at most a part of the requests, so that servers that fail do not get
//! several times the load that made them fail. A few are allowed in any case, for upstreams with little traffic.
//!
//! The window is ten buckets that go by. Requests count without a lock; a retry is decided under one, so that the limit is exact
//! over all threads.
//!
//! Source: Finagle's RetryBudget (a part of the requests of a window) and Envoy's retry budget (20 %, at least 3).

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, PoisonError};

use super::{Feature, Settings, parameter};
use crate::Nanos;
use crate::spec::Kind;

const BUCKETS: usize = 10;
const COUNT: u64 = u32::MAX as u64;

pub(super) static FEATURE: Feature = Feature {
    name: "retry_budget",
    summary: "limits retries to a part of the requests",
    parameters: &[
        parameter("ratio", "retries in a window at most, in percent of its requests", Kind::Number(0, 1_000), "20"),
        parameter("min", "so many retries in a window are allowed in any case", Kind::Number(0, 1_000_000), "3"),
        parameter("window", "the window", Kind::Time(100, 3_600_000), "10s"),
    ],
    source: "Finagle's RetryBudget; Envoy's retry budget",
};

/// The budget of an upstream.
#[derive(Debug)]
pub struct RetryBudget {
    ratio: u64,
    min: u64,
    /// The time of a bucket.
    width: Nanos,
    /// Requests by bucket: above the lower 32 bits the number of the bucket since the beginning of time.
    requests: [AtomicU64; BUCKETS],
    /// (number of the bucket, retries).
    retries: Mutex<[(u64, u64); BUCKETS]>,
    refused: AtomicU64,
}

impl RetryBudget {
    /// A budget without requests.
    pub fn new(settings: &Settings) -> RetryBudget {
        RetryBudget {
            ratio: settings.number("ratio"),
            min: settings.number("min"),
            width: (settings.time("window") / BUCKETS as u64).max(1),
            requests: Default::default(),
            retries: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// The number of the bucket of a time, in 32 bits: 0 is none.
    fn bucket(&self, now: Nanos) -> u64 {
        (now / self.width + 1) & COUNT
    }

    fn is_recent(bucket: u64, now: u64) -> bool {
        now.wrapping_sub(bucket) & COUNT < BUCKETS as u64 && bucket != 0
    }

    /// A request begins.
    #[inline]
    pub fn request(&self, now: Nanos) {
        let bucket = self.bucket(now);
        let count = &self.requests[bucket as usize % BUCKETS];
        let add = |before: u64| match before >> 32 == bucket {
            true => (before & COUNT < COUNT).then_some(before + 1),
            // A thread whose time is behind that of the others counts in the bucket that is there.
            false if RetryBudget::is_recent(bucket, before >> 32) => Some(before + 1),
            false => Some(bucket << 32 | 1),
        };
        let _ = count.fetch_update(Release, Relaxed, add);
    }

    /// Whether a request may be retried; if so, it counts.
    pub fn retry(&self, now: Nanos) -> bool {
        let bucket = self.bucket(now);
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = self.requests.iter().map(|count| count.load(Acquire));
        let requests = requests.filter(|count| RetryBudget::is_recent(count >> 32, bucket));
        let requests: u64 = requests.map(|count| count & COUNT).sum();
        let spent = retries.iter().filter(|(of, _)| RetryBudget::is_recent(*of, bucket)).map(|(_, count)| count);
        let spent: u64 = spent.sum();
        if spent >= self.min.max(requests * self.ratio / 100) {
            self.refused.fetch_add(1, Relaxed);
            return false;
        }
        let place = &mut retries[bucket as usize % BUCKETS];
        *place = (bucket, if place.0 == bucket { place.1 + 1 } else { 1 });
        true
    }

    /// Retries that were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn budget(given: &[(&str, &str)]) -> RetryBudget {
        RetryBudget::new(&Settings::new(&FEATURE, given).unwrap())
    }

    #[test]
    fn a_fifth_of_the_requests_and_three_in_any_case() {
        let budget = budget(&[]);
        let allowed = |count| (0..count).filter(|_| budget.retry(SECOND)).count();
        assert_eq!(allowed(10), 3);
        (0..100).for_each(|_| budget.request(SECOND));
        assert_eq!(allowed(100), 17, "20 in all");
        assert_eq!(budget.refused(), 90);
        // All of that is forgotten when the window has passed.
        assert!((0..9).all(|second| !budget.retry((1 + second) * SECOND)));
        assert!(budget.retry(11 * SECOND));
    }

    #[test]
    fn without_ratio_and_minimum_there_are_none() {
        let budget = budget(&[("ratio", "0"), ("min", "0")]);
        budget.request(0);
        assert!(!budget.retry(0));
    }

    proptest! {
        /// By the definition: a list of all requests and retries.
        #[test]
        fn it_is_a_list_of_what_was_in_the_window(
            steps in prop::collection::vec((0u64..4_000, any::<bool>()), 0..400), ratio in 0u64..150, min in 0u64..6,
        ) {
            let budget = budget(&[("ratio", &ratio.to_string()), ("min", &min.to_string())]);
            let (mut now, mut requests, mut retries) = (5 * SECOND, Vec::new(), Vec::new());
            for (more, is_request) in steps {
                now += more * 1_000_000;
                let recent = |list: &[u64]| list.iter().filter(|at| **at + 10 > now / SECOND).count() as u64;
                if is_request {
                    budget.request(now);
                    requests.push(now / SECOND);
                } else {
                    let expected = recent(&retries) < min.max(recent(&requests) * ratio / 100);
                    prop_assert_eq!(budget.retry(now), expected);
                    if expected {
                        retries.push(now / SECOND);
                    }
                }
            }
        }
    }

    #[test]
    fn threads_together_keep_the_limit() {
        let budget = budget(&[("ratio", "25"), ("min", "0")]);
        let retried = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..10_000 {
                        budget.request(SECOND + n);
                        if budget.retry(SECOND + n) {
                            retried.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(retried.load(Relaxed), 10_000, "a quarter of 40,000 requests");
    }
}
