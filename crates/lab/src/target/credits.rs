//! CPU credits, as small virtual machines have them: full speed while there are some, a fraction of it when they are spent.

use std::time::Duration;

/// The settings of a bucket of credits. It starts full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credits {
    /// Work at full speed that a full bucket pays for.
    pub size: Duration,
    /// Credits earned in each second of wall time, in seconds of work: 0 to 1.
    pub rate: f64,
    /// Speed when the bucket is empty, as a part of the full one: `rate` to 1, and above 0.
    pub throttle: f64,
}

/// A bucket. A busy worker spends a second of credit in a second; what is earned while the bucket is empty and somebody
/// works pays for the throttled work, so the bucket fills again only while all rest, or while less is spent than earned.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    size: f64,
    rate: f64,
    throttle: f64,
    /// Seconds of credit.
    level: f64,
    /// Until when work was charged for by [`Bucket::charge`].
    charged: f64,
}

impl Bucket {
    pub(super) fn new(credits: Credits) -> Self {
        let size = credits.size.as_secs_f64();
        Self { size, rate: credits.rate, throttle: credits.throttle, level: size, charged: 0.0 }
    }

    /// The speed now, as a part of the full one.
    pub(super) fn speed(&self) -> f64 {
        if self.level > 0.0 { 1.0 } else { self.throttle }
    }

    /// In how many seconds the bucket will be empty with `busy` workers, if it will.
    pub(super) fn empty_in(&self, busy: f64) -> Option<f64> {
        (self.level > 0.0 && busy > self.rate).then(|| self.level / (busy - self.rate))
    }

    /// `seconds` pass with `busy` workers, no more of them than until the bucket is empty.
    pub(super) fn pass(&mut self, seconds: f64, busy: f64) {
        if busy == 0.0 || self.level > 0.0 {
            self.level = (self.level + seconds * (self.rate - busy)).clamp(0.0, self.size);
        }
    }

    /// The bucket is empty, whatever rounding says.
    pub(super) fn empty(&mut self) {
        self.level = 0.0;
    }

    /// For work that was done at full speed, `work` seconds of it from `start` on: how many seconds longer it should have
    /// taken.
    pub(super) fn charge(&mut self, start: f64, work: f64) -> f64 {
        self.pass((start - self.charged).max(0.0), 0.0);
        let paid = self.empty_in(1.0).unwrap_or(if self.level > 0.0 { f64::INFINITY } else { 0.0 }).min(work);
        self.pass(paid, 1.0);
        let mut longer = 0.0;
        if paid < work {
            self.empty();
            longer = (work - paid) * (1.0 / self.throttle - 1.0);
        }
        self.charged = self.charged.max(start + work + longer);
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(size: u64, rate: f64, throttle: f64) -> Bucket {
        Bucket::new(Credits { size: Duration::from_secs(size), rate, throttle })
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn work_is_charged_for_by_arithmetic() {
        let mut bucket = bucket(9, 0.1, 0.25);
        // 9 s of credit and 0.1 s more in each second: full speed for 10 s.
        assert!(close(bucket.charge(0.0, 6.0), 0.0));
        assert!(close(bucket.level, 3.6));
        // 4 s of these 6 are paid for, 2 s take 8.
        assert!(close(bucket.charge(6.0, 6.0), 6.0));
        assert!(close(bucket.charge(18.0, 1.0), 3.0), "no credits at once after");
        // Idle from 22 to 31 earns 0.9, which last for 1 s.
        assert!(close(bucket.charge(31.0, 2.0), 3.0));
    }

    #[test]
    fn a_bucket_is_never_fuller_than_full_and_one_of_no_size_never_helps() {
        let mut full = bucket(1, 0.5, 0.5);
        assert!(close(full.charge(1e6, 2.0), 0.0));
        assert!(close(full.charge(1e6 + 2.0, 1.0), 1.0));
        let mut none = bucket(0, 0.1, 0.25);
        assert!(close(none.charge(1e6, 1.0), 3.0));
    }

    #[test]
    fn who_earns_all_that_is_spent_is_never_throttled() {
        let mut bucket = bucket(1, 1.0, 1.0);
        assert!(close(bucket.charge(0.0, 100.0), 0.0));
        assert!(close(bucket.level, 1.0));
    }
}
