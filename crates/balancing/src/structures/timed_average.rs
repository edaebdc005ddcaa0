//! An average of a server's response times with the time of its last sample, kept in its state. Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::averages::fading;
use crate::server_state::Words;

/// A day in nanoseconds: more was not written here.
const COST_MAX: f64 = 86_400e9;

/// The average in nanoseconds, and when it was written.
pub(crate) struct TimedAverage<'a> {
    /// The bits of an `f64`; 0 before the first sample.
    cost: &'a AtomicU64,
    at: &'a AtomicU64,
}

impl<'a> TimedAverage<'a> {
    /// The average that is kept in these words.
    #[inline]
    pub fn of([cost, at, ..]: &'a Words) -> TimedAverage<'a> {
        TimedAverage { cost, at }
    }

    /// Adds a sample to an average that rises at once and falls slowly: a greater one replaces the average, a smaller one lowers it by `1 - e^(-t/tau)`, where `t` is the
    /// time since the last sample.
    pub fn add_peak(&self, now: Nanos, tau: Nanos, sample: Nanos) {
        let sample = sample.max(1) as f64;
        let cost = match self.get() {
            Some((old, at)) if sample < old => {
                let keep = fading(now.saturating_sub(at), tau);
                old * keep + sample * (1.0 - keep)
            }
            _ => sample,
        };
        self.set(now, cost);
    }

    /// Notes a cost as it is now.
    pub fn set(&self, now: Nanos, cost: f64) {
        self.cost.store(cost.clamp(1.0, COST_MAX).to_bits(), Relaxed);
        self.at.store(now, Relaxed);
    }

    /// The average as it was at the last sample, and when that was. `None` before the first sample.
    #[inline]
    pub fn get(&self) -> Option<(f64, Nanos)> {
        let cost = f64::from_bits(self.cost.load(Relaxed));
        (1.0..=COST_MAX).contains(&cost).then(|| (cost, self.at.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_rise_at_once_and_fall_slowly() {
        let (words, tau) = (Words::default(), 1_000);
        let peak = TimedAverage::of(&words);
        assert_eq!(peak.get(), None);
        peak.add_peak(0, tau, 200);
        peak.add_peak(0, tau, 100);
        assert_eq!(peak.get(), Some((200.0, 0)), "no time has passed");
        peak.add_peak(1_000, tau, 100);
        let (cost, at) = peak.get().unwrap();
        assert!((cost - 100.0 - 100.0 / std::f64::consts::E).abs() < 1e-9);
        assert_eq!(at, 1_000);
        peak.add_peak(1_001, tau, 5_000);
        assert_eq!(peak.get(), Some((5_000.0, 1_001)));
        peak.set(2_000, 70.0);
        assert_eq!(peak.get(), Some((70.0, 2_000)));
    }

    /// What another algorithm has left is unknown, or a cost of a day at most, which fades.
    #[test]
    fn peaks_recover_from_any_number() {
        for number in [u64::MAX, 1 << 62, 1e300f64.to_bits(), f64::NAN.to_bits(), f64::INFINITY.to_bits(), 1_000] {
            let words = Words::default();
            let peak = TimedAverage::of(&words);
            words[0].store(number, Relaxed);
            assert_eq!(peak.get().map(|(cost, _)| cost).filter(|cost| *cost > COST_MAX), None);
            words[1].store(number, Relaxed);
            peak.add_peak(5_000, 1_000, 70);
            assert_eq!(peak.get().map(|(_, at)| at), Some(5_000), "{number}");
            peak.add_peak(100_000, 1_000, 70);
            assert!((peak.get().unwrap().0 - 70.0).abs() < 1e-6, "{number}");
        }
    }
}
