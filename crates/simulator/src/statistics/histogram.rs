//! Times in logarithmic bins.

use balanza_balancing::Nanos;

use crate::result::Bin;

/// Bins for each doubling, as a power of two: quantiles are right to 1 %.
const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;

/// Counts of times in bins of which each is 1/32 of its octave wide.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: Nanos,
}

fn index(time: Nanos) -> usize {
    if time < FINE {
        return time as usize;
    }
    let octave = time.ilog2() - FINE_BITS;
    ((u64::from(octave) << FINE_BITS) + (time >> octave)) as usize
}

/// Lower bound of a bin.
fn bound(index: usize) -> f64 {
    let index = index as u64;
    if index < 2 * FINE {
        return index as f64;
    }
    let octave = (index >> FINE_BITS) - 1;
    ((index & (FINE - 1)) + FINE) as f64 * (octave as f64).exp2()
}

impl Histogram {
    #[inline]
    pub fn add(&mut self, time: Nanos) {
        let at = index(time);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.max = self.max.max(time);
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The time below which a part `p` of all lies, in seconds; 0 when there are none.
    pub fn quantile(&self, p: f64) -> f64 {
        let wanted = p * self.total as f64;
        let mut before = 0.0;
        for (i, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if before + count >= wanted {
                let (from, to) = (bound(i), bound(i + 1));
                let inside = from + (to - from) * ((wanted - before) / count).clamp(0.0, 1.0);
                return inside.min(self.max as f64) / 1e9;
            }
            before += count;
        }
        self.max as f64 / 1e9
    }

    /// The greatest time, in seconds.
    pub fn max(&self) -> f64 {
        self.max as f64 / 1e9
    }

    /// The bins that are not empty, in seconds.
    pub fn bins(&self) -> Vec<Bin> {
        let bin = |(i, count): (usize, &u64)| Bin { from: bound(i) / 1e9, to: bound(i + 1) / 1e9, count: *count };
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(bin).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_is_in_its_bin(time in prop_oneof![0u64..1_000, any::<u64>().prop_map(|x| x >> 2), any::<u32>().prop_map(u64::from)]) {
            let at = index(time);
            prop_assert!(bound(at) <= time as f64 && (time as f64) < bound(at + 1) * (1.0 + 1e-15) + f64::from(time > 1 << 52));
            prop_assert!(bound(at + 1) - bound(at) <= (bound(at) / 32.0).max(1.0));
        }

        #[test]
        fn quantiles_are_near_the_sorted_ones(times in prop::collection::vec(1u64..10_000_000_000, 1..300), p in 0.0f64..1.0) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|t| histogram.add(*t));
            let mut sorted = times;
            sorted.sort_unstable();
            let rank = ((p * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1] as f64 / 1e9;
            let found = histogram.quantile(p);
            prop_assert!((found - exact).abs() <= exact / 31.0 + 1e-9, "{} {}", found, exact);
            prop_assert_eq!(histogram.bins().iter().map(|b| b.count).sum::<u64>(), sorted.len() as u64);
        }
    }
}
