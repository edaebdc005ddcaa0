//! The leaky bucket of `limit_req`, as NGINX computes it: in milliseconds and thousandths of a request.

/// A clock that goes back by more milliseconds than this is taken for one that has wrapped around.
const WRAPPED: u64 = 60_000;

/// A request, in the unit of an excess.
pub const REQUEST: u64 = 1000;

/// The requests of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// How far they were ahead of the rate, in thousandths of a request.
    excess: u64,
    /// When that was worked out, in milliseconds.
    last: u64,
}

impl Bucket {
    /// After the first request of a key.
    pub fn first(now: u64) -> Bucket {
        Bucket { excess: 0, last: now }
    }

    /// The excess of one more request. `rate` is in thousandths of a request in a second.
    pub fn excess(&self, rate: u64, now: u64) -> u64 {
        (self.excess.saturating_add(REQUEST)).saturating_sub(leaked(rate, self.elapsed(now)))
    }

    /// Counts one more request, and returns the excess with it.
    pub fn take(&mut self, rate: u64, now: u64) -> u64 {
        self.excess = self.excess(rate, now);
        // Time that has not passed must not be counted again later.
        if self.elapsed(now) > 0 {
            self.last = now;
        }
        self.excess
    }

    /// Whether it says nothing that a new one would not say: unused for a minute, and empty.
    pub fn is_stale(&self, rate: u64, now: u64) -> bool {
        let unused = now.saturating_sub(self.last);
        unused >= WRAPPED && leaked(rate, unused) >= self.excess
    }

    /// Milliseconds since `last`. Threads see slightly different times.
    fn elapsed(&self, now: u64) -> u64 {
        match now.checked_sub(self.last) {
            Some(elapsed) => elapsed,
            None => u64::from(self.last - now > WRAPPED),
        }
    }
}

fn leaked(rate: u64, milliseconds: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(milliseconds) / 1000).unwrap_or(u64::MAX)
}

/// Milliseconds that a request with this excess waits, if it may be ahead of the rate by `delay`.
pub fn wait(excess: u64, delay: u64, rate: u64) -> u64 {
    let late = u128::from(excess.saturating_sub(delay)) * 1000 / u128::from(rate.max(1));
    u64::try_from(late).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nginx_words_for_it() {
        let mut bucket = Bucket::first(5000);
        assert_eq!(bucket.take(1000, 5000), 1000);
        assert_eq!(bucket.take(1000, 5500), 1500);
        assert_eq!(bucket.take(1000, 9000), 0);
        assert_eq!(wait(1500, 1000, 1000), 500);
        assert_eq!(wait(1500, 1500, 1000), 0);
        // 1r/m is 16 thousandths in a second.
        assert_eq!(wait(1000, 0, 16), 62_500);
    }

    #[test]
    fn a_clock_that_is_behind_leaks_nothing() {
        let mut bucket = Bucket::first(5000);
        assert_eq!(bucket.take(1000, 4990), 1000);
        assert_eq!(bucket.last, 5000);
        assert_eq!(Bucket::first(100_000).excess(2000, 10), 998);
    }

    proptest! {
        /// The definition: a real bucket with rational numbers. The integers may lag behind by less than one thousandth
        /// for each request.
        #[test]
        fn agrees_with_an_exact_bucket(
            rate in 1_u64..5_000_000,
            burst in 0_u64..50,
            gaps in proptest::collection::vec(0_u64..3000, 1..60),
        ) {
            // In millionths of a request, which are exact: a millisecond leaks `rate` of them.
            let (mut exact, mut last) = (0_u128, 0_u64);
            let mut now = 1_000_000;
            let mut bucket = Bucket::first(now);
            last += now;
            let mut requests = 0;
            for gap in gaps {
                now += gap;
                let leaked = u128::from(rate) * u128::from(now - last);
                let next = (exact + 1_000_000).saturating_sub(leaked);
                let ours = bucket.excess(rate, now);
                let lag = u128::from(ours) * 1000;
                prop_assert!(lag >= next && lag <= next + 1000 * (requests + 1));
                if ours <= burst * REQUEST {
                    prop_assert_eq!(bucket.take(rate, now), ours);
                    (exact, last) = (next, now);
                    requests += 1;
                }
            }
        }

        /// In any span, a key gets no more than its burst, its first request and what leaks.
        #[test]
        fn no_more_than_burst_and_rate(
            rate in 1_u64..1_000_000,
            burst in 0_u64..20,
            gaps in proptest::collection::vec(0_u64..500, 1..200),
        ) {
            let mut bucket = Bucket::first(0);
            let (mut now, mut passed) = (0, 1_u64);
            for gap in gaps {
                now += gap;
                if bucket.excess(rate, now) <= burst * REQUEST {
                    bucket.take(rate, now);
                    passed += 1;
                }
                prop_assert!((passed - 1) * REQUEST <= burst * REQUEST + leaked(rate, now));
            }
        }

        #[test]
        fn a_stale_bucket_has_run_dry(rate in 1_u64..1_000_000, excess in 0_u64..100_000, unused in 0_u64..1_000_000) {
            let bucket = Bucket { excess, last: 10 };
            if bucket.is_stale(rate, 10 + unused) {
                let mut bucket = bucket;
                prop_assert!(bucket.take(rate, 10 + unused) <= REQUEST);
                prop_assert!(unused >= 60_000);
            }
        }
    }
}
