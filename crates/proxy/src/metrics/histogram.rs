//! Times in buckets whose width grows with the time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use balanza_net::clock::Nanos;

use super::Counter;

/// Times below 2^SHORTEST nanoseconds (33 us) are one bucket.
const SHORTEST: u32 = 15;
/// Buckets for each doubling of the time.
const STEPS: usize = 4;
/// Doublings. Times of 2^(SHORTEST + DOUBLINGS) nanoseconds (69 s) and more are one bucket.
const DOUBLINGS: usize = 21;
/// The number of buckets.
pub const BUCKETS: usize = DOUBLINGS * STEPS + 2;

/// How often times of each bucket were seen: one thread writes, any thread reads.
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: Counter::default() }
    }
}

impl Histogram {
    /// Counts a time.
    pub fn record(&self, time: Nanos) {
        let bucket = &self.buckets[bucket_of(time)];
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
        self.sum.add(time);
    }
}

fn bucket_of(time: Nanos) -> usize {
    if time >> SHORTEST == 0 {
        return 0;
    }
    let doubling = 63 - time.leading_zeros() - SHORTEST;
    let step = (time >> (SHORTEST + doubling - 2)) as usize & (STEPS - 1);
    (1 + doubling as usize * STEPS + step).min(BUCKETS - 1)
}

/// The times that several histograms have counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// How many were in each bucket.
    pub buckets: [u64; BUCKETS],
    /// Their sum, in nanoseconds.
    pub sum: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Times {
    /// Adds what a histogram has counted.
    pub fn add(&mut self, histogram: &Histogram) {
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total += bucket.load(Relaxed);
        }
        self.sum += histogram.sum.get();
    }

    /// Takes away what was counted before.
    pub fn subtract(&mut self, before: &Times) {
        for (total, before) in self.buckets.iter_mut().zip(&before.buckets) {
            *total = total.saturating_sub(*before);
        }
        self.sum = self.sum.saturating_sub(before.sum);
    }

    /// The same with times that were kept.
    pub fn subtract_kept(&mut self, before: &KeptTimes) {
        for (bucket, before) in before.buckets() {
            let total = &mut self.buckets[bucket];
            *total = total.saturating_sub(before);
        }
        self.sum = self.sum.saturating_sub(before.sum);
    }

    /// Adds other times.
    pub fn merge(&mut self, other: &Times) {
        for (total, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *total += more;
        }
        self.sum += other.sum;
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The time that a share of all times does not exceed, at most a quarter above it; none without any.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(upper_bound(bucket))
    }
}

/// Times that are kept for later: only the buckets that have any, which are few.
#[derive(Clone, Default)]
pub struct KeptTimes {
    /// The number of a bucket above [`SHIFT`] bits, its count in them.
    buckets: Box<[u64]>,
    sum: u64,
}

/// A bucket's number fits above it, and more than a thousand years of requests below.
const SHIFT: u32 = 56;

impl KeptTimes {
    /// What was counted until now.
    pub fn of(times: &Times) -> KeptTimes {
        let counted = times.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        KeptTimes { buckets: counted.map(|(bucket, count)| (bucket as u64) << SHIFT | count).collect(), sum: times.sum }
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets().map(|(_, count)| count).sum()
    }

    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        self.buckets.iter().map(|bucket| ((bucket >> SHIFT) as usize, bucket & ((1 << SHIFT) - 1)))
    }
}

/// The time at which a bucket ends.
pub fn upper_bound(bucket: usize) -> Nanos {
    if bucket == BUCKETS - 1 {
        return Nanos::MAX;
    }
    let (doubling, step) = (bucket / STEPS, bucket % STEPS);
    // Bucket 1 is the first quarter behind the shortest times.
    (1 << SHORTEST) * ((STEPS + step) as u64) / STEPS as u64 * (1 << doubling)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_and_the_last_bucket_have_no_end() {
        assert_eq!((bucket_of(0), bucket_of((1 << 15) - 1), bucket_of(1 << 15)), (0, 0, 1));
        assert_eq!((bucket_of((1 << 36) - 1), bucket_of(1 << 36), bucket_of(u64::MAX)), (BUCKETS - 2, 85, 85));
    }

    proptest! {
        #[test]
        fn a_bucket_is_at_most_a_quarter_wide(time in 1u64 << 15..1 << 36) {
            let bucket = bucket_of(time);
            let (begin, end) = (upper_bound(bucket - 1), upper_bound(bucket));
            prop_assert!((begin..end).contains(&time), "{begin} {time} {end}");
            prop_assert!(end - begin <= begin / 4);
        }

        #[test]
        fn quantiles_are_a_quarter_too_high_at_most(mut times in prop::collection::vec(1u64 << 15..1 << 35, 1..200)) {
            let histogram = Histogram::default();
            times.iter().for_each(|time| histogram.record(*time));
            let mut total = Times::default();
            total.add(&histogram);
            times.sort_unstable();
            prop_assert_eq!((total.count(), total.sum), (times.len() as u64, times.iter().sum()));
            for share in [0.01, 0.5, 0.99, 1.0] {
                let exact = times[((times.len() as f64 * share).ceil() as usize).max(1) - 1];
                let found = total.quantile(share).unwrap();
                prop_assert!(found > exact && found <= exact + exact / 4 + 1, "{} {} {}", share, exact, found);
            }
        }
    }
}
