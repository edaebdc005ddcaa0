//! Averages over time, kept in each server's cell. Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::Nanos;

/// Bytes within a sliding window of two halves. 24 bytes.
#[derive(Default, Debug)]
pub(crate) struct Traffic {
    /// The [`number`] of the window that `current` counts; 0 if nothing was counted ever.
    window: AtomicU64,
    current: AtomicU64,
    previous: AtomicU64,
}

impl Traffic {
    /// Counts bytes. Two threads that enter a new window at the same instant may lose what one of them counts.
    pub fn add(&self, now: Nanos, window: Nanos, bytes: u64) {
        self.enter(number(now, window));
        self.current.fetch_add(bytes, Relaxed);
    }

    /// Moves to a window; returns whether nothing was counted in the window before it, to one thread only.
    fn enter(&self, number: u64) -> bool {
        let known = self.window.load(Acquire);
        // Only forward: a thread behind in time counts in the window that the others have entered.
        if known >= number || self.window.compare_exchange(known, number, AcqRel, Relaxed).is_err() {
            return false;
        }
        let last = self.current.swap(0, Relaxed);
        let follows = known.wrapping_add(1) == number;
        self.previous.store(if follows { last } else { 0 }, Relaxed);
        !follows
    }

    /// If nothing has been counted for at least a window, begins with `bytes` as if they had come within the last one.
    pub fn begin(&self, now: Nanos, window: Nanos, bytes: impl FnOnce() -> f64) {
        let number = number(now, window);
        if self.window.load(Acquire) + 1 < number && self.enter(number) {
            let bytes = bytes();
            let part = (now % window) as f64 / window as f64;
            // Divided over the two halves as an even stream would be.
            self.previous.fetch_add(bytes as u64, Relaxed);
            self.current.fetch_add((bytes * part) as u64, Relaxed);
        }
    }

    /// Copies another's counts.
    pub fn remember(&self, before: &Traffic) {
        self.window.store(before.window.load(Acquire), Relaxed);
        self.current.store(before.current.load(Relaxed), Relaxed);
        self.previous.store(before.previous.load(Relaxed), Relaxed);
    }

    /// Bytes in the window that ends now: those of the current half, and the remaining part of the half before.
    pub fn bytes(&self, now: Nanos, window: Nanos) -> f64 {
        let (number, within) = (number(now, window), now % window);
        let (current, previous) = match number.saturating_sub(self.window.load(Acquire)) {
            0 => (self.current.load(Relaxed), self.previous.load(Relaxed)),
            1 => (0, self.current.load(Relaxed)),
            _ => return 0.0,
        };
        current as f64 + previous as f64 * (1.0 - within as f64 / window as f64)
    }
}

/// Windows are counted from 2 at the clock's zero, so that 0 is more than a window before any.
fn number(now: Nanos, window: Nanos) -> u64 {
    now / window + 2
}

/// `e^(-time / tau)`.
#[inline]
pub(crate) fn fading(time: Nanos, tau: Nanos) -> f64 {
    let x = time as i64 as f64 / tau as i64 as f64;
    // Between two requests there is little time, and four terms have ten digits.
    if x < 0.01 { 1.0 - x * (1.0 - x * (0.5 - x * (1.0 / 6.0))) } else { (-x).exp() }
}

/// An average of times that rises at once and falls slowly, in nanoseconds. 16 bytes.
#[derive(Default, Debug)]
pub(crate) struct PeakEwma {
    /// The bits of an `f64`; 0 before the first sample.
    cost: AtomicU64,
    at: AtomicU64,
}

impl PeakEwma {
    /// Adds a sample: a greater one replaces the average, a smaller one lowers it by `1 - e^(-t/tau)`, where `t` is the
    /// time since the last sample.
    pub fn add(&self, now: Nanos, tau: Nanos, sample: Nanos) {
        let sample = sample.max(1) as f64;
        let old = f64::from_bits(self.cost.load(Relaxed));
        let cost = if sample >= old {
            sample
        } else {
            let keep = fading(now.saturating_sub(self.at.load(Relaxed)), tau);
            old * keep + sample * (1.0 - keep)
        };
        self.cost.store(cost.to_bits(), Relaxed);
        self.at.store(now, Relaxed);
    }

    /// Copies another's average.
    pub fn remember(&self, before: &PeakEwma) {
        self.cost.store(before.cost.load(Relaxed), Relaxed);
        self.at.store(before.at.load(Relaxed), Relaxed);
    }

    /// Notes a cost as it is now.
    pub fn set(&self, now: Nanos, cost: f64) {
        self.cost.store(cost.max(1.0).to_bits(), Relaxed);
        self.at.store(now, Relaxed);
    }

    /// The average as it was at the last sample, and when that was. `None` before the first sample.
    pub fn get(&self) -> Option<(f64, Nanos)> {
        let cost = f64::from_bits(self.cost.load(Relaxed));
        (cost != 0.0).then(|| (cost, self.at.load(Relaxed)))
    }
}

/// Exponential moving average with NGINX's factor of 1/20; the first sample starts it.
#[inline]
pub(crate) fn average(cell: &AtomicU64, sample: Nanos) {
    let sample = sample.max(1);
    let old = cell.load(Relaxed);
    let new = if old == 0 { sample } else { old - old / 20 + sample / 20 };
    cell.store(new.max(1), Relaxed);
}

/// Requests in flight, averaged over time, for algorithms that tell it of each request.
#[derive(Default, Debug)]
pub(crate) struct Presence {
    /// The number of requests in flight in the low [`COUNT_BITS`]. In the others their sum over time since the last look,
    /// less the number times the time now, in [`TICK`]s and wrapping: the times at which requests ended, less those at which
    /// they began. Both change in one operation, so that what is read is of one moment.
    word: AtomicU64,
}

const COUNT_BITS: u32 = 20;
/// 44 bits of these wrap after 36 years.
const TICK: Nanos = 1 << 16;

impl Presence {
    /// What a request that begins adds, and one that ends takes away.
    fn one(now: Nanos) -> u64 {
        1u64.wrapping_sub((now / TICK) << COUNT_BITS)
    }

    /// A request has been sent.
    #[inline]
    pub fn on_dispatch(&self, now: Nanos) {
        self.word.fetch_add(Presence::one(now), Relaxed);
    }

    /// A request is over, one that [`Presence::on_dispatch`] was told of.
    #[inline]
    pub fn on_complete(&self, now: Nanos) {
        self.word.fetch_sub(Presence::one(now), Relaxed);
    }

    /// The requests in flight on average since the last look, which was at `since`.
    pub fn mean(&self, since: Nanos, now: Nanos) -> f64 {
        let word = self.word.load(Relaxed);
        let count = word & ((1 << COUNT_BITS) - 1);
        let sum = ((word >> COUNT_BITS).wrapping_add((now / TICK).wrapping_mul(count))) << COUNT_BITS;
        self.word.fetch_sub(sum, Relaxed);
        let ticks = (now / TICK).saturating_sub(since / TICK);
        if ticks == 0 {
            return count as f64;
        }
        // Below 0 if the clocks of two workers differ.
        (sum as i64 >> COUNT_BITS).max(0) as f64 / ticks as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_slides() {
        let traffic = Traffic::default();
        traffic.add(0, 10, 100);
        assert_eq!(traffic.bytes(9, 10), 100.0);
        assert_eq!(traffic.bytes(15, 10), 50.0);
        traffic.add(15, 10, 30);
        assert_eq!(traffic.bytes(15, 10), 80.0);
        assert_eq!(traffic.bytes(25, 10), 15.0);
        assert_eq!(traffic.bytes(30, 10), 0.0);
        traffic.add(47, 10, 1);
        assert_eq!(traffic.bytes(47, 10), 1.0);
    }

    #[test]
    fn traffic_begins_with_what_it_is_given() {
        let traffic = Traffic::default();
        traffic.begin(25, 10, || 100.0);
        assert_eq!([25, 30, 35, 40].map(|now| traffic.bytes(now, 10)), [100.0, 50.0, 25.0, 0.0]);
        traffic.add(39, 10, 7);
        traffic.begin(45, 10, || 100.0);
        assert_eq!(traffic.bytes(45, 10), 3.5, "it was there a window ago");
        traffic.begin(69, 10, || 40.0);
        traffic.begin(69, 10, || 40.0);
        assert_eq!(traffic.bytes(69, 10), 40.0, "once");
    }

    #[test]
    fn traffic_is_not_lost_to_a_thread_behind_in_time() {
        let traffic = Traffic::default();
        traffic.add(19, 10, 100);
        traffic.add(20, 10, 7);
        assert_eq!(traffic.bytes(19, 10), 7.0 + 100.0 * (1.0 - 9.0 / 10.0), "it sees what the others do");
        traffic.add(19, 10, 3);
        assert_eq!(traffic.bytes(20, 10), 110.0);
    }

    #[test]
    fn requests_in_flight_are_averaged_over_time() {
        const SECOND: Nanos = 1_000_000_000;
        for begin in [0, 1 << 60, u64::MAX / 2] {
            let presence = Presence::default();
            let at = |seconds: u64| begin + seconds * SECOND;
            let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-3, "{found}, not {expected}");
            (0..4).for_each(|_| presence.on_dispatch(at(0)));
            close(presence.mean(at(0), at(0)), 4.0);
            (0..3).for_each(|_| presence.on_complete(at(2)));
            close(presence.mean(at(0), at(8)), (4.0 * 2.0 + 6.0) / 8.0);
            presence.on_dispatch(at(9));
            close(presence.mean(at(8), at(12)), (1.0 + 2.0 * 3.0) / 4.0);
            assert_eq!(presence.mean(at(12), at(12) + 1), 2.0, "of almost no time it is the number");
            (0..2).for_each(|_| presence.on_complete(at(13)));
            close(presence.mean(at(12), at(14)), 1.0);
            close(presence.mean(at(14), at(15)), 0.0);
        }
    }

    #[test]
    fn few_terms_are_enough() {
        for time in [0, 1, 10_000, 9_999_999, 10_000_000, 700_000_000] {
            let exact = (-(time as f64) / 1e9).exp();
            assert!((fading(time, 1_000_000_000) - exact).abs() < 1e-9);
        }
    }

    #[test]
    fn peaks_rise_at_once_and_fall_slowly() {
        let (peak, tau) = (PeakEwma::default(), 1_000);
        assert_eq!(peak.get(), None);
        peak.add(0, tau, 200);
        peak.add(0, tau, 100);
        assert_eq!(peak.get(), Some((200.0, 0)), "no time has passed");
        peak.add(1_000, tau, 100);
        let (cost, at) = peak.get().unwrap();
        assert!((cost - 100.0 - 100.0 / std::f64::consts::E).abs() < 1e-9);
        assert_eq!(at, 1_000);
        peak.add(1_001, tau, 5_000);
        assert_eq!(peak.get(), Some((5_000.0, 1_001)));
        peak.set(2_000, 70.0);
        assert_eq!(peak.get(), Some((70.0, 2_000)));
    }
}
