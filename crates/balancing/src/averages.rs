//! Averages over time. Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Nanos;

/// `e^(-time / tau)`.
#[inline]
pub(crate) fn fading(time: Nanos, tau: Nanos) -> f64 {
    let x = time as i64 as f64 / tau as i64 as f64;
    // Between two requests there is little time, and four terms have ten digits.
    if x < 0.01 { 1.0 - x * (1.0 - x * (0.5 - x * (1.0 / 6.0))) } else { (-x).exp() }
}

/// Exponential moving average with NGINX's factor of 1/20; the first sample starts it.
#[inline]
pub(crate) fn average(state: &AtomicU64, sample: Nanos) {
    let sample = sample.max(1);
    let old = state.load(Relaxed);
    let new = if old == 0 { sample } else { old - old / 20 + sample / 20 };
    state.store(new.max(1), Relaxed);
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
}
