//! What a block measured.
//!
//! An attempt (a request that is sent to a server, the first time or as a retry) belongs to the block and the part of it in
//! which its server was chosen, and counts when it has ended: with the time from that choice until the answer was complete,
//! or until it was given up. A failure is a status of 500 or more, no answer, or a client that went away before one. Failures
//! count in the times too: without those that time out, an arm that loses its slow requests would seem to be fast.
//!
//! Fullness is the share of the slots (`max_conns`, over all servers that have one and are up) that is in use. It is
//! sampled, a few times a second; guards look at its mean, because the peak of samples grows with their number.

use balanza_balancing::Nanos;

use crate::schedule::Phase;
use crate::times::Times;

/// Shares of slots that were in use.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fullness {
    /// How often it was looked at.
    pub samples: u64,
    /// The sum of the shares.
    pub sum: f64,
}

impl Fullness {
    /// So many requests are in flight, and the servers have so many slots. Without slots nothing is counted.
    pub fn sample(&mut self, in_flight: u64, slots: u64) {
        if slots > 0 {
            self.samples += 1;
            self.sum += in_flight as f64 / slots as f64;
        }
    }

    /// Adds other samples.
    pub fn merge(&mut self, other: &Fullness) {
        self.samples += other.samples;
        self.sum += other.sum;
    }

    /// The mean share; none without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum / self.samples as f64)
    }
}

/// What was measured in a part of a block, or in several.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part {
    /// How long it lasted.
    pub span: Nanos,
    /// How long its requests took.
    pub times: Times,
    /// How many of them failed.
    pub failures: u64,
    /// How full the servers were.
    pub fullness: Fullness,
}

impl Part {
    /// Counts a request.
    #[inline]
    pub fn add(&mut self, time: Nanos, failed: bool) {
        self.times.add(time);
        self.failures += u64::from(failed);
    }

    /// Adds another part.
    pub fn merge(&mut self, other: &Part) {
        self.span += other.span;
        self.times.merge(&other.times);
        self.failures += other.failures;
        self.fullness.merge(&other.fullness);
    }

    /// How many requests.
    pub fn requests(&self) -> u64 {
        self.times.count()
    }

    /// The part of the requests that failed; none without requests.
    pub fn failed(&self) -> Option<f64> {
        (self.requests() > 0).then(|| self.failures as f64 / self.requests() as f64)
    }

    /// Requests a second; none if it lasted no time.
    pub fn rate(&self) -> Option<f64> {
        (self.span > 0).then(|| self.requests() as f64 * 1e9 / self.span as f64)
    }
}

/// A block of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Its number, from 0: its round follows from it.
    pub number: u64,
    /// Which arm ran; 0 is the control.
    pub arm: usize,
    /// Whether it ran to its end, undisturbed: a block that was broken off, or in which the configuration or the servers
    /// changed, does not count.
    pub complete: bool,
    /// Not counted for the comparison.
    pub washout: Part,
    /// The first half of what counts.
    pub first: Part,
    /// The second half.
    pub second: Part,
}

impl Block {
    /// A block that begins.
    pub fn new(number: u64, arm: usize) -> Block {
        let part = Part::default;
        Block { number, arm, complete: false, washout: part(), first: part(), second: part() }
    }

    /// A part.
    pub fn part(&self, phase: Phase) -> &Part {
        match phase {
            Phase::Washout => &self.washout,
            Phase::First => &self.first,
            Phase::Second => &self.second,
        }
    }

    /// The same, to be added to.
    pub fn part_mut(&mut self, phase: Phase) -> &mut Part {
        match phase {
            Phase::Washout => &mut self.washout,
            Phase::First => &mut self.first,
            Phase::Second => &mut self.second,
        }
    }

    /// What counts for the comparison.
    pub fn counted(&self) -> Part {
        let mut part = self.first.clone();
        part.merge(&self.second);
        part
    }

    /// All of it, the washout included: what guards look at.
    pub fn whole(&self) -> Part {
        let mut part = self.counted();
        part.merge(&self.washout);
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts() {
        let mut block = Block::new(3, 1);
        for (phase, time, failed) in [
            (Phase::Washout, 50, true),
            (Phase::First, 10, false),
            (Phase::Second, 20, true),
            (Phase::Second, 30, false),
        ] {
            block.part_mut(phase).add(time * 1_000_000, failed);
            block.part_mut(phase).span += 500_000_000;
        }
        let counted = block.counted();
        assert_eq!((counted.requests(), counted.failures, counted.rate()), (3, 1, Some(2.0)));
        assert!((counted.times.mean() - 0.02).abs() < 1e-12);
        assert_eq!((block.whole().requests(), block.whole().failed()), (4, Some(0.5)));
        assert_eq!(block.part(Phase::Washout).requests(), 1);
    }

    #[test]
    fn nothing_measured_is_no_zero() {
        let part = Part::default();
        assert_eq!((part.failed(), part.rate(), part.fullness.mean()), (None, None, None));
        let mut fullness = Fullness::default();
        fullness.sample(5, 0);
        assert_eq!(fullness.mean(), None);
        fullness.sample(5, 10);
        fullness.sample(9, 10);
        assert!((fullness.mean().unwrap() - 0.7).abs() < 1e-12);
    }
}
