//! A second attempt for a request that takes longer than most: when it is due.
//!
//! The times to the head of an answer are counted in buckets, sixteen for each doubling; older ones count less and less. Only
//! first attempts count, and one that lost against its second one counts with the time after which it was given up. Otherwise
//! slow answers would disappear from the statistics, and more and more requests would seem to be slow.
//!
//! Source: Dean and Barroso, "The tail at scale" (hedged requests after the 95th percentile); gRPC proposal A6.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Feature, Settings, parameter};
use crate::Nanos;
use crate::spec::Kind;

/// Buckets for each doubling of the time, as a power of two.
const FINE: u32 = 4;
/// The least time that is told from others, as a power of two: 4 µs.
const LEAST: u32 = 12;
/// Up to 137 s.
const BUCKETS: usize = (38 - LEAST as usize) << FINE;

/// What an answer counts at first.
const ONE: u32 = 16;
/// With fewer answers nothing is known.
const FEW: u64 = 20;
/// How often the percentile is found.
const LOOK: Nanos = 100_000_000;

pub(super) static FEATURE: Feature = Feature {
    name: "hedge",
    summary: "sends a request that takes longer than most to a second server",
    parameters: &[
        parameter("percentile", "after the time in which so many percent are answered", Kind::Number(50, 99), "95"),
        parameter("min", "but not before this time", Kind::Time(0, 3_600_000), "5ms"),
        parameter("window", "after this time answers count half", Kind::Time(1_000, 3_600_000), "30s"),
    ],
    source: "Dean and Barroso, The tail at scale",
};

/// What an upstream knows of its times.
#[derive(Debug)]
pub struct Hedge {
    percentile: u64,
    min: Nanos,
    window: Nanos,
    answers: Box<[AtomicU32]>,
    /// When to find the percentile again.
    look: AtomicU64,
    /// When the answers counted half for the last time; 0 before the first.
    halved: AtomicU64,
    /// The greatest number if it is not known.
    delay: AtomicU64,
    sent: AtomicU64,
    won: AtomicU64,
}

impl Hedge {
    /// Without answers.
    pub fn new(settings: &Settings) -> Hedge {
        Hedge {
            percentile: settings.number("percentile"),
            min: settings.time("min"),
            window: settings.time("window").max(1),
            answers: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            look: AtomicU64::new(0),
            halved: AtomicU64::new(0),
            delay: AtomicU64::new(Nanos::MAX),
            sent: AtomicU64::new(0),
            won: AtomicU64::new(0),
        }
    }

    /// The head of an answer to a first attempt took this time; or the attempt was given up after it.
    #[inline]
    pub fn answered(&self, time: Nanos) {
        self.answers[bucket(time)].fetch_add(ONE, Relaxed);
    }

    /// How long after its beginning a request is sent to a second server; none while too few answers are known.
    #[inline]
    pub fn delay(&self, now: Nanos) -> Option<Nanos> {
        let look = self.look.load(Relaxed);
        if now >= look && self.look.compare_exchange(look, now + LOOK, Relaxed, Relaxed).is_ok() {
            self.find(now);
        }
        Some(self.delay.load(Relaxed)).filter(|delay| *delay != Nanos::MAX)
    }

    #[cold]
    fn find(&self, now: Nanos) {
        let halved = self.halved.load(Relaxed);
        let windows = now.saturating_sub(halved) / self.window;
        if halved == 0 {
            self.halved.store(now.max(1), Relaxed);
        } else if windows > 0 {
            self.halved.store(halved + windows * self.window, Relaxed);
            for count in &self.answers {
                let before = count.load(Relaxed);
                let left = before.checked_shr(windows.min(32) as u32).unwrap_or(0);
                count.fetch_sub(before - left, Relaxed);
            }
        }
        let total: u64 = self.answers.iter().map(|count| u64::from(count.load(Relaxed))).sum();
        let mut left = (total * self.percentile).div_ceil(100);
        let reaches = |count: &AtomicU32| {
            left = left.saturating_sub(u64::from(count.load(Relaxed)));
            left == 0
        };
        // Above the percentile there must be answers.
        let answers = total / u64::from(ONE);
        let delay = match answers >= FEW && answers * (100 - self.percentile) >= 100 {
            true => self.answers.iter().position(reaches).map_or(Nanos::MAX, |at| end(at).max(self.min)),
            false => Nanos::MAX,
        };
        self.delay.store(delay, Relaxed);
    }

    /// A request is sent to a second server.
    pub fn send(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// The second server has answered first.
    pub fn win(&self) {
        self.won.fetch_add(1, Relaxed);
    }

    /// Requests that were sent to a second server, and how many of them it answered first.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent.load(Relaxed), self.won.load(Relaxed))
    }
}

fn bucket(time: Nanos) -> usize {
    let time = time.max(1 << LEAST);
    let doublings = time.ilog2();
    let part = (time >> (doublings - FINE)) as usize & ((1 << FINE) - 1);
    (((doublings - LEAST) as usize) << FINE | part).min(BUCKETS - 1)
}

/// The first time that belongs to the next bucket.
fn end(bucket: usize) -> Nanos {
    let (doublings, part) = (bucket as u32 >> FINE, (bucket & ((1 << FINE) - 1)) as u64);
    ((1 << FINE) + part + 1) << (doublings + LEAST - FINE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;
    const SECOND: Nanos = 1_000 * MS;

    fn hedge(given: &[(&str, &str)]) -> Hedge {
        Hedge::new(&Settings::new(&FEATURE, given).unwrap())
    }

    fn is_about(delay: Option<Nanos>, expected: Nanos) -> bool {
        delay.is_some_and(|delay| (expected..=expected + expected / 16 + 1).contains(&delay))
    }

    #[test]
    fn the_time_in_which_most_are_answered() {
        let hedge = hedge(&[]);
        assert_eq!(hedge.delay(0), None);
        (0..19).for_each(|_| hedge.answered(10 * MS));
        assert_eq!(hedge.delay(SECOND), None, "of 19 none is above the percentile");
        hedge.answered(900 * MS);
        assert!(is_about(hedge.delay(2 * SECOND), 10 * MS), "{hedge:?}");
        hedge.answered(900 * MS);
        assert!(is_about(hedge.delay(2 * SECOND), 10 * MS), "it is not found so soon");
        assert!(is_about(hedge.delay(3 * SECOND), 900 * MS));
    }

    #[test]
    fn not_before_the_least_time() {
        let hedge = hedge(&[("min", "20ms"), ("percentile", "50")]);
        (0..100).for_each(|_| hedge.answered(MS));
        assert_eq!(hedge.delay(0), Some(20 * MS));
    }

    #[test]
    fn older_answers_count_less() {
        let hedge = hedge(&[]);
        assert_eq!(hedge.delay(1), None);
        (0..1_000).for_each(|_| hedge.answered(800 * MS));
        assert!(is_about(hedge.delay(29 * SECOND), 800 * MS));
        assert!(is_about(hedge.delay(60 * SECOND), 800 * MS), "500 are left");
        (0..4_000).for_each(|_| hedge.answered(10 * MS));
        assert!(is_about(hedge.delay(61 * SECOND), 800 * MS));
        assert!(is_about(hedge.delay(90 * SECOND), 800 * MS), "250 of 2,250");
        (0..3_000).for_each(|_| hedge.answered(10 * MS));
        assert!(is_about(hedge.delay(91 * SECOND), 10 * MS));
        assert_eq!(hedge.delay(4_000 * SECOND), None, "nothing is left");
    }

    /// The slowest answers are given up as soon as the second one has come: the delay stays where it is.
    #[test]
    fn attempts_that_were_given_up_do_not_lower_it() {
        let hedge = hedge(&[]);
        let mut delay = None;
        for n in 0..20_000 {
            let now = n * 10 * MS;
            let time = if n % 10 == 0 { SECOND } else { (n % 10) * MS };
            delay = hedge.delay(now);
            hedge.answered(delay.map_or(time, |delay| time.min(delay + MS)));
        }
        // A tenth is slow, so that the 95th percentile is among the slow ones.
        assert!(delay.is_some_and(|delay| delay > 9 * MS), "{delay:?}");
    }

    proptest! {
        #[test]
        fn a_time_is_before_the_end_of_its_bucket(time in 0u64..100_000_000_000) {
            let (bucket, least) = (bucket(time), time.max(1 << LEAST));
            prop_assert!(least < end(bucket));
            prop_assert!(bucket == 0 || end(bucket - 1) <= least);
            prop_assert!(end(bucket) - least <= least / 16 + 1);
        }
    }
}
