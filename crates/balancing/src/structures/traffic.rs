//! Bytes of a server within a sliding window, kept in its state. Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::Nanos;
use crate::server_state::Words;

/// A window that is later by more than this was not written here.
const AHEAD_MAX: u64 = 1 << 20;

/// Bytes within a sliding window of two halves.
pub(crate) struct Traffic<'a> {
    /// The [`number`] of the window that `current` counts; 0 if nothing was counted ever.
    window: &'a AtomicU64,
    current: &'a AtomicU64,
    previous: &'a AtomicU64,
}

impl<'a> Traffic<'a> {
    /// The traffic that is kept in these words.
    #[inline]
    pub fn of([window, current, previous, ..]: &'a Words) -> Traffic<'a> {
        Traffic { window, current, previous }
    }

    /// The number of the window that is counted, when it is `number` now.
    fn known(&self, number: u64) -> u64 {
        Some(self.window.load(Acquire)).filter(|known| known.saturating_sub(number) <= AHEAD_MAX).unwrap_or(0)
    }

    /// Counts bytes. Two threads that enter a new window at the same instant may lose what one of them counts.
    pub fn add(&self, now: Nanos, window: Nanos, bytes: u64) {
        self.enter(number(now, window));
        self.current.fetch_add(bytes, Relaxed);
    }

    /// Moves to a window; returns whether nothing was counted in the window before it, to one thread only.
    fn enter(&self, number: u64) -> bool {
        let (found, known) = (self.window.load(Acquire), self.known(number));
        // Only forward: a thread behind in time counts in the window that the others have entered.
        if known >= number || self.window.compare_exchange(found, number, AcqRel, Relaxed).is_err() {
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
        if self.known(number) + 1 < number && self.enter(number) {
            let bytes = bytes();
            let part = (now % window) as f64 / window as f64;
            // Divided over the two halves as an even stream would be.
            self.previous.fetch_add(bytes as u64, Relaxed);
            self.current.fetch_add((bytes * part) as u64, Relaxed);
        }
    }

    /// Bytes in the window that ends now: those of the current half, and the remaining part of the half before.
    pub fn bytes(&self, now: Nanos, window: Nanos) -> f64 {
        let (number, within) = (number(now, window), now % window);
        let (current, previous) = match number.saturating_sub(self.known(number)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_slides() {
        let words = Words::default();
        let traffic = Traffic::of(&words);
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
        let words = Words::default();
        let traffic = Traffic::of(&words);
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
        let words = Words::default();
        let traffic = Traffic::of(&words);
        traffic.add(19, 10, 100);
        traffic.add(20, 10, 7);
        assert_eq!(traffic.bytes(19, 10), 7.0 + 100.0 * (1.0 - 9.0 / 10.0), "it sees what the others do");
        traffic.add(19, 10, 3);
        assert_eq!(traffic.bytes(20, 10), 110.0);
    }

    /// Whatever another algorithm has left: it counts for two windows at most.
    #[test]
    fn traffic_recovers_from_any_number() {
        for number in [u64::MAX, 1 << 62, 1e300f64.to_bits(), f64::NAN.to_bits(), 1_000_000_000_000] {
            for word in 0..3 {
                let words = Words::default();
                let traffic = Traffic::of(&words);
                traffic.add(1_000_000, 10, 100);
                words[word].store(number, Relaxed);
                let found = traffic.bytes(1_000_030, 10);
                assert_eq!(found, 0.0, "{number} in word {word}");
                traffic.add(1_000_030, 10, 7);
                assert_eq!(traffic.bytes(1_000_031, 10), 7.0, "{number} in word {word}");
            }
        }
    }
}
