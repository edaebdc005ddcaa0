//! Latency by requests in flight: a server's answer to a probe.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::Nanos;

/// Ranges of requests in flight: 0 to 7 one by one, then 8 to 11, 12 to 15, 16 to 23, 24 to 31 and so on.
const RANGES: usize = 20;
/// The most that a sample moves a median by, of the median, once there have been some.
const STEP: f32 = 0.125;
/// Samples that are averaged before that: steps that are parts of the median never leave a first sample of almost 0.
const FIRST: u32 = 8;
/// If the last sample of a median is older, the next sample starts a new median.
const OLD: Nanos = 10_000_000_000;
const MILLISECOND: Nanos = 1_000_000;

/// Recent latencies of one server, by the requests in flight that a request found there.
///
/// For each of a few ranges of requests in flight it keeps a running estimate of the median: each latency moves the estimate
/// towards itself, by an eighth of the estimate at most. It begins with the mean of the first ones, so that one odd sample is soon forgotten. Source: Wydrowski et al., "Load is not what you should balance:
/// introducing Prequal" (NSDI 2024), where a server answers a probe with the median latency of recent requests that arrived
/// at or near its present number of requests in flight.
#[derive(Default, Debug)]
pub struct Latencies {
    ranges: [Range; RANGES],
}

#[derive(Default, Debug)]
struct Range {
    /// The bits of an `f32` in nanoseconds; 0 before the first sample.
    median: AtomicU32,
    /// When the last sample came, in milliseconds.
    at: AtomicU32,
    /// Samples since it was begun.
    samples: AtomicU32,
}

impl Range {
    /// The median and its age.
    #[inline]
    fn get(&self, now: Nanos) -> Option<(f32, Nanos)> {
        let median = f32::from_bits(self.median.load(Relaxed));
        // Another thread's clock may be ahead of this one's.
        let age = (milliseconds(now).wrapping_sub(self.at.load(Relaxed)) as i32).max(0);
        (median > 0.0).then(|| (median, age as Nanos * MILLISECOND))
    }
}

/// Milliseconds of a clock that begins again after 49 days; ages are right for half of that.
fn milliseconds(now: Nanos) -> u32 {
    (now / MILLISECOND) as u32
}

/// The range of a number of requests in flight.
#[inline]
fn range(in_flight: u32) -> usize {
    if in_flight < 8 {
        return in_flight as usize;
    }
    let octave = in_flight.ilog2() as usize;
    let upper_half = (in_flight >> (octave - 1) & 1) as usize;
    (2 + 2 * octave + upper_half).min(RANGES - 1)
}

impl Latencies {
    /// Takes a latency of a request that found so many others in flight.
    #[inline]
    pub fn add(&self, now: Nanos, in_flight: u32, latency: Nanos) {
        let (range, sample) = (&self.ranges[range(in_flight)], latency.max(1) as f32);
        let (median, samples) = match range.get(now) {
            Some((median, age)) if age < OLD => {
                let samples = range.samples.load(Relaxed);
                let move_by = if samples < FIRST {
                    (sample - median) / (samples + 1) as f32
                } else {
                    (sample - median).clamp(-STEP * median, STEP * median)
                };
                (median + move_by, samples.saturating_add(1))
            }
            _ => (sample, 1),
        };
        range.samples.store(samples, Relaxed);
        range.median.store(median.to_bits(), Relaxed);
        range.at.store(milliseconds(now), Relaxed);
    }

    /// The median latency of recent requests that found so many others in flight, in nanoseconds, and its age: that of the
    /// nearest range that is known and not older than ten seconds, else of the nearest that is known.
    #[inline]
    pub fn at(&self, now: Nanos, in_flight: u32) -> Option<(f64, Nanos)> {
        let wanted = range(in_flight);
        let mut old = None;
        for distance in 0..RANGES {
            let below = wanted.checked_sub(distance);
            let above = Some(wanted + distance).filter(|above| distance > 0 && *above < RANGES);
            for place in [below, above].into_iter().flatten() {
                match self.ranges[place].get(now) {
                    Some((median, age)) if age < OLD => return Some((f64::from(median), age)),
                    Some((median, age)) => old = old.or(Some((f64::from(median), age))),
                    None => {}
                }
            }
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other() {
        assert_eq!([0, 7, 8, 11, 12, 15, 16, 23, 24, 32].map(range), [0, 7, 8, 8, 9, 9, 10, 10, 11, 12]);
        assert!((0..5_000).all(|n| range(n + 1) == range(n) || range(n + 1) == range(n) + 1));
        assert_eq!(range(u32::MAX), RANGES - 1);
    }

    /// The median of an exponential distribution is its mean times log 2, that of the sum of three 2.674 times the mean.
    #[test]
    fn medians_are_those_of_the_distributions() {
        let (latencies, mut rng) = (Latencies::default(), crate::rng::Rng::new(1));
        let mut draw = || -((rng.next() >> 11) as f64 / (1u64 << 53) as f64).max(1e-12).ln() * 1e7;
        let (mut sums, count) = ([0.0; 2], 20_000);
        for i in 0..count {
            let now = i * MILLISECOND;
            latencies.add(now, 0, draw() as Nanos);
            latencies.add(now, 2, (draw() + draw() + draw()) as Nanos);
            sums[0] += latencies.at(now, 0).unwrap().0 / count as f64;
            sums[1] += latencies.at(now, 2).unwrap().0 / count as f64;
        }
        for (mean, expected) in sums.into_iter().zip([0.693e7, 2.674e7]) {
            assert!((mean / expected - 1.0).abs() < 0.1, "{mean}, not {expected}");
        }
    }

    #[test]
    fn the_nearest_recent_range_answers() {
        let latencies = Latencies::default();
        assert_eq!(latencies.at(0, 3), None);
        latencies.add(0, 9, 900);
        latencies.add(5 * MILLISECOND, 1, 100);
        assert_eq!(latencies.at(5 * MILLISECOND, 3), Some((100.0, 0)));
        assert_eq!(latencies.at(7 * MILLISECOND, 40), Some((900.0, 7 * MILLISECOND)));
        let later = OLD + MILLISECOND;
        assert_eq!(latencies.at(later, 9), Some((100.0, later - 5 * MILLISECOND)), "the other is old");
        assert_eq!(latencies.at(3 * OLD, 9), Some((900.0, 3 * OLD)), "all are old");
        latencies.add(3 * OLD, 9, 50);
        assert_eq!(latencies.at(3 * OLD, 9), Some((50.0, 0)), "begun anew");
        let behind = 3 * OLD - 2 * MILLISECOND;
        assert_eq!(latencies.at(behind, 9), Some((50.0, 0)), "by a thread whose clock is behind");
        latencies.add(behind, 9, 100);
        assert_eq!(latencies.at(3 * OLD, 9), Some((75.0, 2 * MILLISECOND)), "the mean of two, not begun anew");
        latencies.add(behind, 9, 120);
        assert_eq!(latencies.at(3 * OLD, 9), Some((90.0, 2 * MILLISECOND)), "the mean of three");
    }

    /// A first request that was ten times as long as those after it, since it found a cold cache, or one that took no time.
    #[test]
    fn an_odd_beginning_is_soon_forgotten() {
        let latencies = Latencies::default();
        for (in_flight, first) in [(0, 10_000_000), (1, 1)] {
            latencies.add(0, in_flight, first);
            (1..=8).for_each(|k| latencies.add(k * MILLISECOND, in_flight, 1_000_000));
            let (median, _) = latencies.at(8 * MILLISECOND, in_flight).unwrap();
            assert!((500_000.0..2_000_000.0).contains(&median), "{first}: {median}");
        }
        (9..=100).for_each(|k| latencies.add(k * MILLISECOND, 0, if k % 2 == 0 { 800_000 } else { 1_200_000 }));
        let (median, _) = latencies.at(100 * MILLISECOND, 0).unwrap();
        assert!((800_000.0..=1_200_000.0).contains(&median), "{median}");
    }
}
