//! Which arm runs when: a randomized block design in time.
//!
//! Time is divided into blocks of equal length. A round is one block of each arm, in an order that is drawn for each round.
//! So the arms are balanced whenever the experiment stops, but for the round that is cut, and a load that changes over hours
//! meets all of them. Nothing is kept: the arm of a block follows from the seed.
//!
//! A block begins with a washout, in which the servers still have requests, and the algorithm may have knowledge, of the
//! arm before. It does not count for the comparison. The rest has two halves; if they differ, blocks are too short.
//!
//! Sources: Bojinov, Simchi-Levi, Zhao, "Design and Analysis of Switchback Experiments", Management Science 69(7), 2023
//! (blocks, carry-over and its order); Fisher, "The Design of Experiments", 1935 (randomized blocks).

use balanza_balancing::{Nanos, Rng};

/// The most arms of an experiment.
pub const MAX_ARMS: usize = 8;
/// For how many blocks the last requests of a block are waited for.
const WAITED_FOR: u64 = 2;

/// Why there is no such schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// Fewer than two arms, or too many.
    #[error("an experiment has 2 to {MAX_ARMS} arms, not {0}")]
    Arms(usize),
    /// No block is as short.
    #[error("a block lasts 1 ms at least")]
    Block,
    /// The washout leaves less than half of a block.
    #[error("the washout is longer than half of a block: make blocks longer")]
    Washout,
    /// No round, or more than time can count.
    #[error("an experiment has 1 to 1,000,000 rounds")]
    Rounds,
}

/// Which arm runs in which block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    arms: usize,
    seed: u64,
    block: Nanos,
    washout: Nanos,
    rounds: u64,
}

/// A part of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not counted for the comparison.
    Washout,
    /// The first half of what counts.
    First,
    /// The second half.
    Second,
}

/// Where a moment is in an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The block, from 0.
    pub block: u64,
    /// The round, from 0.
    pub round: u64,
    /// The arm that runs; 0 is the control.
    pub arm: usize,
    /// The part of the block.
    pub phase: Phase,
    /// When the next part begins: nanoseconds since the experiment began.
    pub until: Nanos,
}

impl Schedule {
    /// So many rounds of so many arms, in blocks of which each begins with a washout.
    ///
    /// # Errors
    /// If there can be no such experiment.
    pub fn new(arms: usize, seed: u64, block: Nanos, washout: Nanos, rounds: u64) -> Result<Schedule, ScheduleError> {
        if !(2..=MAX_ARMS).contains(&arms) {
            return Err(ScheduleError::Arms(arms));
        }
        if block < 1_000_000 {
            return Err(ScheduleError::Block);
        }
        if washout > block / 2 {
            return Err(ScheduleError::Washout);
        }
        let too_long = (block as u128) * (arms as u128) * u128::from(rounds) > u128::from(Nanos::MAX);
        if !(1..=1_000_000).contains(&rounds) || too_long {
            return Err(ScheduleError::Rounds);
        }
        Ok(Schedule { arms, seed, block, washout, rounds })
    }

    /// How many blocks are planned.
    pub fn blocks(&self) -> u64 {
        self.rounds * self.arms as u64
    }

    /// How long a block is.
    pub fn block(&self) -> Nanos {
        self.block
    }

    /// How long the experiment is.
    pub fn length(&self) -> Nanos {
        self.blocks() * self.block
    }

    /// The round of a block.
    pub fn round(&self, block: u64) -> u64 {
        block / self.arms as u64
    }

    /// The arm that runs in a block. It is defined beyond the planned end too.
    pub fn arm(&self, block: u64) -> usize {
        let mut order: [u8; MAX_ARMS] = std::array::from_fn(|arm| arm as u8);
        // Rounds are independent: each has a generator of its own, whose seed is drawn by the experiment's.
        let mut seeds = Rng::new(self.seed);
        let mut rng = Rng::new(seeds.next() ^ self.round(block).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rng = Rng::new(rng.next());
        for last in (1..self.arms).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        usize::from(order[(block % self.arms as u64) as usize])
    }

    /// What runs so many nanoseconds after the experiment began; none after its end.
    pub fn at(&self, elapsed: Nanos) -> Option<Place> {
        let block = elapsed / self.block;
        if block >= self.blocks() {
            return None;
        }
        let begin = block * self.block;
        let first = begin + self.washout;
        let second = first + (self.block - self.washout) / 2;
        let (phase, until) = match elapsed {
            _ if elapsed < first => (Phase::Washout, first),
            _ if elapsed < second => (Phase::First, second),
            _ => (Phase::Second, begin + self.block),
        };
        Some(Place { block, round: self.round(block), arm: self.arm(block), phase, until })
    }

    /// When a block can be read, if its requests have ended: nanoseconds since the experiment began. Requests belong to the
    /// block that chose their server.
    pub fn read_at(&self, block: u64) -> Nanos {
        (block + 1) * self.block + self.washout
    }

    /// When no request of a block is waited for any longer: those of them that end later than this are left out. A server
    /// that does not answer costs a request a time-out, which is longer than a washout and is the worst that an arm can do.
    pub fn given_up_at(&self, block: u64) -> Nanos {
        self.read_at(block) + WAITED_FOR * self.block
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn schedule(arms: usize, seed: u64) -> Schedule {
        Schedule::new(arms, seed, 60 * SECOND, 10 * SECOND, 1_000).unwrap()
    }

    #[test]
    fn what_cannot_be() {
        let new = |arms, block, washout, rounds| Schedule::new(arms, 1, block, washout, rounds).unwrap_err();
        assert_eq!(new(1, SECOND, 0, 1), ScheduleError::Arms(1));
        assert_eq!(new(9, SECOND, 0, 1), ScheduleError::Arms(9));
        assert_eq!(new(2, 0, 0, 1), ScheduleError::Block);
        assert_eq!(new(2, SECOND, SECOND / 2 + 1, 1), ScheduleError::Washout);
        assert_eq!(new(2, SECOND, 0, 0), ScheduleError::Rounds);
        assert_eq!(new(2, Nanos::MAX / 4, 0, 3), ScheduleError::Rounds);
    }

    #[test]
    fn the_parts_of_a_block() {
        let schedule = schedule(2, 7);
        let at = |second: u64| schedule.at(second * SECOND).unwrap();
        assert_eq!((at(0).phase, at(0).until), (Phase::Washout, 10 * SECOND));
        assert_eq!((at(10).phase, at(10).until), (Phase::First, 35 * SECOND));
        assert_eq!((at(35).phase, at(59).until), (Phase::Second, 60 * SECOND));
        assert_eq!((at(60).block, at(60).round, at(120).round), (1, 0, 1));
        assert_eq!(schedule.at(schedule.length()), None);
        assert_eq!(schedule.at(schedule.length() - 1).unwrap().block, 1_999);
    }

    /// All orders come equally often, and those of neighbouring rounds and seeds do not depend on each other.
    #[test]
    fn orders_are_random() {
        let mut orders = [0u32; 6];
        let mut repeated = 0;
        for seed in 0..10 {
            let schedule = schedule(3, seed);
            let order = |round: u64| {
                let [a, b] = [0, 1].map(|at| schedule.arm(round * 3 + at));
                2 * a + usize::from(b > (a == 0) as usize)
            };
            for round in 0..1_000 {
                orders[order(round)] += 1;
                repeated += u32::from(order(round) == order(round + 1));
            }
        }
        // 10,000 draws of 1 in 6: 1,667, with a standard deviation of 37.
        assert!(orders.iter().all(|count| (1_500..1_850).contains(count)), "{orders:?}");
        assert!((1_500..1_850).contains(&repeated), "{repeated}");
    }

    proptest! {
        #[test]
        fn a_round_has_each_arm_once(arms in 2usize..=MAX_ARMS, seed: u64, round in 0u64..1 << 40) {
            let schedule = schedule(arms, seed);
            let mut seen = [false; MAX_ARMS];
            (0..arms as u64).for_each(|at| seen[schedule.arm(round * arms as u64 + at)] = true);
            prop_assert!(seen[..arms].iter().all(|seen| *seen) && seen[arms..].iter().all(|seen| !seen));
        }

        #[test]
        fn stopped_anywhere_arms_differ_by_one_block(arms in 2usize..=MAX_ARMS, seed: u64, blocks in 0u64..300) {
            let schedule = schedule(arms, seed);
            let mut counts = [0u64; MAX_ARMS];
            (0..blocks).for_each(|block| counts[schedule.arm(block)] += 1);
            let counts = &counts[..arms];
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        }

        #[test]
        fn places_follow_each_other(block in 1_000_000u64..1 << 40, part in 0u64..=50, at in 0u64..1 << 42, seed: u64) {
            let schedule = Schedule::new(2, seed, block, block / 100 * part, 10).unwrap();
            let Some(place) = schedule.at(at) else {
                prop_assert!(at >= schedule.length());
                return Ok(());
            };
            prop_assert!(place.until > at && place.until <= schedule.length());
            prop_assert_eq!(place.arm, schedule.arm(place.block));
            prop_assert_eq!(schedule.at(place.until - 1), Some(place));
            match schedule.at(place.until) {
                None => prop_assert_eq!(place.block + 1, schedule.blocks()),
                Some(next) => {
                    prop_assert_ne!(next.phase, place.phase);
                    let changes = place.phase == Phase::Second;
                    prop_assert_eq!(next.block, place.block + u64::from(changes));
                }
            }
        }
    }
}
