//! Times in logarithmic bins: quantiles are right to 1 %.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use balanza_balancing::Nanos;

/// Bins for each doubling, as a power of two.
const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;

/// The number of bins that all times need.
const BINS: usize = (64 - FINE_BITS as usize + 1) << FINE_BITS;

/// The bin of a time. Below 32 ns each has one of its own; above, each is 1/32 of its octave wide.
#[inline]
fn bin_of(time: Nanos) -> usize {
    if time < FINE {
        return time as usize;
    }
    let octave = time.ilog2() - FINE_BITS;
    ((u64::from(octave) << FINE_BITS) + (time >> octave)) as usize
}

/// The lower bound of a bin, in nanoseconds.
fn bound(bin: usize) -> f64 {
    let bin = bin as u64;
    if bin < 2 * FINE {
        return bin as f64;
    }
    let octave = (bin >> FINE_BITS) - 1;
    ((bin & (FINE - 1)) + FINE) as f64 * (octave as f64).exp2()
}

/// Counts of times in bins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    counts: Vec<u64>,
    total: u64,
    sum: u64,
    max: Nanos,
}

impl Times {
    /// Counts a time.
    #[inline]
    pub fn add(&mut self, time: Nanos) {
        self.add_to_bin(bin_of(time), 1);
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
    }

    #[inline]
    fn add_to_bin(&mut self, bin: usize, count: u64) {
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += count;
        self.total += count;
    }

    /// Adds other times.
    pub fn merge(&mut self, other: &Times) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// How many are certainly longer than a time: those in the bins above its own.
    pub fn longer_than(&self, time: Nanos) -> u64 {
        self.counts.iter().skip(bin_of(time) + 1).sum()
    }

    /// The mean, in seconds; 0 when there are none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.total.max(1) as f64 / 1e9
    }

    /// The time below which a part `p` of all lies, in seconds; 0 when there are none.
    pub fn quantile(&self, p: f64) -> f64 {
        let wanted = p * self.total as f64;
        let mut before = 0.0;
        for (bin, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if before + count >= wanted {
                let (from, to) = (bound(bin), bound(bin + 1));
                let inside = from + (to - from) * ((wanted - before) / count).clamp(0.0, 1.0);
                return inside.min(self.max as f64) / 1e9;
            }
            before += count;
        }
        self.max()
    }

    /// The greatest time, in seconds.
    pub fn max(&self) -> f64 {
        self.max as f64 / 1e9
    }

    /// The bins that are not empty: from, to, in seconds, and how many.
    pub fn bins(&self) -> impl Iterator<Item = (f64, f64, u64)> {
        let bins = self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0);
        bins.map(|(bin, count)| (bound(bin) / 1e9, bound(bin + 1) / 1e9, count))
    }
}

/// Counts what one thread observes while others read: it only grows.
#[derive(Debug)]
pub struct Recorder {
    bins: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
    failures: AtomicU64,
    /// Requests that have begun and not ended.
    open: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            bins: (0..BINS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            open: AtomicU64::new(0),
        }
    }
}

/// For a counter with one writer.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Recorder {
    /// A request begins. All that changes a recorder is to be called by one thread only.
    #[inline]
    pub fn begin(&self) {
        add(&self.open, 1);
    }

    /// A request that had begun does not count.
    pub fn forget(&self) {
        add(&self.open, 1u64.wrapping_neg());
    }

    /// A request that had begun took this time, and may have failed.
    #[inline]
    pub fn record(&self, time: Nanos, failed: bool) {
        self.forget();
        add(&self.bins[bin_of(time)], 1);
        add(&self.sum, time);
        if time > self.max.load(Relaxed) {
            self.max.store(time, Relaxed);
        }
        if failed {
            add(&self.failures, 1);
        }
    }

    /// How many requests have begun and not ended.
    pub fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    /// All times so far, and how many of these requests failed.
    pub fn read(&self) -> (Times, u64) {
        let mut times = Times::default();
        for (bin, count) in self.bins.iter().enumerate() {
            let count = count.load(Relaxed);
            if count > 0 {
                times.add_to_bin(bin, count);
            }
        }
        times.sum = self.sum.load(Relaxed);
        times.max = self.max.load(Relaxed);
        (times, self.failures.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: &[Nanos]) -> Times {
        let mut all = Times::default();
        times.iter().for_each(|time| all.add(*time));
        all
    }

    fn some_times() -> impl Strategy<Value = Vec<Nanos>> {
        prop::collection::vec(1u64..10_000_000_000, 0..200)
    }

    #[test]
    fn the_longest_time_has_the_last_bin() {
        assert_eq!(bin_of(Nanos::MAX), BINS - 1);
    }

    proptest! {
        #[test]
        fn a_time_is_in_its_bin(time in prop_oneof![0u64..1_000, any::<u64>().prop_map(|x| x >> 2), any::<u32>().prop_map(u64::from)]) {
            let bin = bin_of(time);
            prop_assert!(bound(bin) <= time as f64 && (time as f64) < bound(bin + 1) * (1.0 + 1e-15) + f64::from(time > 1 << 52));
            prop_assert!(bound(bin + 1) - bound(bin) <= (bound(bin) / 32.0).max(1.0));
        }

        #[test]
        fn quantiles_are_near_the_sorted_ones(times in prop::collection::vec(1u64..10_000_000_000, 1..300), p in 0.0f64..1.0) {
            let histogram = of(&times);
            let mut sorted = times;
            sorted.sort_unstable();
            let rank = ((p * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1] as f64 / 1e9;
            let found = histogram.quantile(p);
            prop_assert!((found - exact).abs() <= exact / 31.0 + 1e-9, "{} {}", found, exact);
            prop_assert_eq!(histogram.bins().map(|(.., count)| count).sum::<u64>(), sorted.len() as u64);
        }

        #[test]
        fn times_add_up(first in some_times(), second in some_times()) {
            let mut both = of(&first);
            both.merge(&of(&second));
            let all: Vec<Nanos> = first.iter().chain(&second).copied().collect();
            prop_assert_eq!(both, of(&all));
        }

        #[test]
        fn a_recorder_counts_the_same(times in some_times(), failed in 0usize..200) {
            let recorder = Recorder::default();
            times.iter().for_each(|_| recorder.begin());
            recorder.begin();
            times.iter().enumerate().for_each(|(i, time)| recorder.record(*time, i < failed));
            prop_assert_eq!(recorder.read(), (of(&times), failed.min(times.len()) as u64));
            prop_assert_eq!(recorder.open(), 1);
            recorder.forget();
            prop_assert_eq!(recorder.open(), 0);
        }

        #[test]
        fn longer_times(times in some_times(), limit in 1u64..10_000_000_000) {
            let exact = times.iter().filter(|time| **time > limit).count() as u64;
            let near = times.iter().filter(|time| **time > limit && **time <= limit + limit / 32 + 1).count() as u64;
            let found = of(&times).longer_than(limit);
            prop_assert!(found <= exact && found + near >= exact);
        }
    }
}
