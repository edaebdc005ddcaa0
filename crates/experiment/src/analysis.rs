//! What follows from the blocks: differences to the control, with intervals, and the effect of carry-over.
//!
//! The unit is the round: within it every arm has run once, near to the others in time. For each arm and round the
//! difference of the arm's block to the control's is one number, and the interval is Student's of their mean. Requests are
//! not the unit: those of a block depend on each other, so that an interval by requests would be far too short.
//!
//! Whoever looks at many intervals of 95 % finds one that leaves 0 out. So all intervals of an experiment, for all arms and
//! measures and for carry-over, hold together with 99 % (Bonferroni): without a difference, 1 of 100 experiments shows one
//! at most.
//!
//! Carry-over: the two halves of what counts in a block are compared, for each arm by itself. After a change of the arm, what
//! is left of the arm before fades; if the halves differ more than chance explains, it has not faded within the washout.

use std::f64::consts::{FRAC_PI_2, PI};

use serde::Serialize;

use crate::block::{Block, Part};

/// Rounds that an interval needs at least.
const ROUNDS: usize = 4;

/// The probability that any interval of an experiment does not cover what it should.
const ERROR: f64 = 0.01;

/// What is compared of each arm: the mean time, the median, the p99 and the errors.
const MEASURES: usize = 4;

/// A mean difference and the interval that covers it; none of too few rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effect {
    /// The mean of the differences.
    pub mean: f64,
    /// The interval.
    pub interval: Option<(f64, f64)>,
}

impl Effect {
    /// `error`: the probability that the interval does not cover the true mean.
    fn of(differences: &[f64], error: f64) -> Option<Effect> {
        let n = differences.len() as f64;
        if differences.is_empty() {
            return None;
        }
        let mean = differences.iter().sum::<f64>() / n;
        if differences.len() < ROUNDS {
            return Some(Effect { mean, interval: None });
        }
        let variance = differences.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = student(error, differences.len() - 1) * (variance / n).sqrt();
        Some(Effect { mean, interval: Some((mean - half, mean + half)) })
    }

    /// Less than 0 beyond chance (-1), more (1), or neither.
    pub fn sign(&self) -> i8 {
        match self.interval {
            Some((_, high)) if high < 0.0 => -1,
            Some((low, _)) if low > 0.0 => 1,
            _ => 0,
        }
    }
}

/// How many standard errors a mean of `freedom + 1` normal values is off with the probability `error`: Student's quantile.
fn student(error: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match within(middle, freedom) < 1.0 - error {
            true => low = middle,
            false => high = middle,
        }
    }
    low.tan() * (freedom as f64).sqrt()
}

/// The probability of less than tan(angle) * sqrt(freedom) standard errors: Abramowitz and Stegun, "Handbook of Mathematical
/// Functions", 1964, 26.7.3 and 26.7.4.
fn within(angle: f64, freedom: usize) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = (if is_odd { cos } else { 1.0 }, 0.0);
    for power in (if is_odd { 1 } else { 0 }..freedom.saturating_sub(1)).step_by(2) {
        sum += term;
        term *= (power + 1) as f64 / (power + 2) as f64 * cos * cos;
    }
    if is_odd { (angle + sin * sum) * 2.0 / PI } else { sin * sum }
}

/// What is said of an arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Fewer rounds than an interval needs.
    TooFewRounds,
    /// Its halves differ: the washout is too short.
    CarryOver,
    /// Something is better beyond chance and nothing is worse.
    Better,
    /// Something is worse and nothing is better.
    Worse,
    /// Something is better, and something else is worse.
    Mixed,
    /// No difference that chance does not explain.
    NoDifference,
}

/// An arm beside the control. Times are in seconds, errors a part of the requests.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Which arm.
    pub arm: usize,
    /// Rounds in which both have a complete block with requests.
    pub rounds: usize,
    /// The mean time.
    pub mean: Option<Effect>,
    /// The median.
    pub p50: Option<Effect>,
    /// The p99.
    pub p99: Option<Effect>,
    /// The part of the requests that fail.
    pub errors: Option<Effect>,
    /// The mean time of the second halves of its blocks, less that of the first halves.
    pub carry_over: Option<Effect>,
    /// The same of the control's blocks.
    pub control_carry_over: Option<Effect>,
    /// What follows.
    pub verdict: Verdict,
}

impl Comparison {
    fn judge(&self) -> Verdict {
        if self.rounds < ROUNDS {
            return Verdict::TooFewRounds;
        }
        if [self.carry_over, self.control_carry_over].into_iter().flatten().any(|effect| effect.sign() != 0) {
            return Verdict::CarryOver;
        }
        let signs = [self.mean, self.p50, self.p99, self.errors].map(|effect| effect.map_or(0, |effect| effect.sign()));
        match (signs.contains(&-1), signs.contains(&1)) {
            (true, true) => Verdict::Mixed,
            (true, false) => Verdict::Better,
            (false, true) => Verdict::Worse,
            (false, false) => Verdict::NoDifference,
        }
    }
}

/// How the halves of blocks differ.
fn carry_over(blocks: &[(u64, &Block)], error: f64) -> Option<Effect> {
    let halves = blocks.iter().map(|(_, block)| (&block.first, &block.second));
    let halves = halves.filter(|(first, second)| first.requests() > 0 && second.requests() > 0);
    let changes: Vec<f64> = halves.map(|(first, second)| second.times.mean() - first.times.mean()).collect();
    Effect::of(&changes, error)
}

/// Compares each arm with the control, arm 0, by the complete blocks.
pub fn compare(arms: usize, blocks: &[Block]) -> Vec<Comparison> {
    let counts = |block: &&Block| block.complete && block.counted().requests() > 0;
    let of = |arm: usize| -> Vec<(u64, &Block)> {
        let blocks = blocks.iter().filter(|block| block.arm == arm).filter(counts);
        blocks.map(|block| (block.number / arms.max(1) as u64, block)).collect()
    };
    let control = of(0);
    let error = ERROR / (MEASURES * arms.saturating_sub(1) + arms).max(1) as f64;
    let one = |arm: usize| {
        let mine = of(arm);
        let pair = |(round, block): &(u64, &Block)| {
            control.iter().find(|(other, _)| other == round).map(|(_, control)| (block.counted(), control.counted()))
        };
        let pairs: Vec<(Part, Part)> = mine.iter().filter_map(pair).collect();
        let effect = |value: fn(&Part) -> f64| {
            let differences: Vec<f64> = pairs.iter().map(|(mine, control)| value(mine) - value(control)).collect();
            Effect::of(&differences, error)
        };
        let mut comparison = Comparison {
            arm,
            rounds: pairs.len(),
            mean: effect(|part| part.times.mean()),
            p50: effect(|part| part.times.quantile(0.5)),
            p99: effect(|part| part.times.quantile(0.99)),
            errors: effect(|part| part.failed().unwrap_or_default()),
            carry_over: carry_over(&mine, error),
            control_carry_over: carry_over(&control, error),
            verdict: Verdict::TooFewRounds,
        };
        comparison.verdict = comparison.judge();
        comparison
    };
    (1..arms).map(one).collect()
}

#[cfg(test)]
mod tests {
    use balanza_balancing::Rng;

    use super::*;
    use crate::schedule::{Phase, Schedule};

    /// Blocks whose requests take `time(arm, phase)` milliseconds, more or less.
    fn blocks(
        seed: u64,
        rounds: u64,
        time: impl Fn(usize, Phase) -> u64,
        failing: impl Fn(usize) -> bool,
    ) -> Vec<Block> {
        let schedule = Schedule::new(2, seed, 1_000_000_000, 0, rounds).unwrap();
        let mut rng = Rng::new(seed);
        let block = |number| {
            let mut block = Block { complete: true, ..Block::new(number, schedule.arm(number)) };
            // A disturbance that a block has as a whole.
            let whole = rng.below(2_000_000);
            for phase in [Phase::First, Phase::Second] {
                for nth in 0..50 {
                    let nanos = time(block.arm, phase) * 1_000_000 + whole + u64::from(rng.below(1_000_000) as u32);
                    let arm = block.arm;
                    block.part_mut(phase).add(nanos, nth < 10 && failing(arm));
                }
            }
            block
        };
        (0..schedule.blocks()).map(block).collect()
    }

    fn verdict(time: impl Fn(usize, Phase) -> u64, failing: impl Fn(usize) -> bool) -> Verdict {
        compare(2, &blocks(7, 20, time, failing))[0].verdict
    }

    #[test]
    fn verdicts() {
        let fast = |arm, _| if arm == 1 { 10 } else { 20 };
        assert_eq!(verdict(fast, |_| false), Verdict::Better);
        assert_eq!(verdict(|arm, _| 30 - fast(arm, Phase::First), |_| false), Verdict::Worse);
        assert_eq!(verdict(fast, |arm| arm == 1), Verdict::Mixed);
        assert_eq!(verdict(|_, phase| if phase == Phase::First { 15 } else { 10 }, |_| false), Verdict::CarryOver);
        // Each arm begins as the other one ends: in all blocks together that would cancel out.
        let fading = |arm, phase| if (arm == 0) == (phase == Phase::First) { 15 } else { 10 };
        assert_eq!(verdict(fading, |_| false), Verdict::CarryOver);
        let few = compare(2, &blocks(7, 3, fast, |_| false)).remove(0);
        assert_eq!((few.verdict, few.rounds, few.mean.unwrap().interval), (Verdict::TooFewRounds, 3, None));
    }

    #[test]
    fn what_is_not_complete_does_not_count() {
        let mut all = blocks(3, 10, |_, _| 10, |_| false);
        all[0].complete = false;
        all[5] = Block { complete: true, ..Block::new(5, all[5].arm) };
        let one = &compare(2, &all)[0];
        assert_eq!(one.rounds, 8);
        assert!(compare(2, &[])[0].mean.is_none());
    }

    #[test]
    fn intervals_cover() {
        let mut rng = Rng::new(5);
        let mut left_out = |error| {
            // Differences of two sums of three uniform numbers.
            let mut one =
                || (0..6).map(|nth| (rng.below(1_000) as f64) * if nth < 3 { 1.0 } else { -1.0 }).sum::<f64>();
            let experiment = |_| (0..8).map(|_| one()).collect::<Vec<f64>>();
            let all = (0..2_000).map(experiment).collect::<Vec<_>>();
            all.iter().filter(|differences| Effect::of(differences, error).unwrap().sign() != 0).count()
        };
        let (often, seldom) = (left_out(0.05), left_out(0.005));
        assert!((70..130).contains(&often) && (1..25).contains(&seldom), "{often} and {seldom} of 2,000");
    }

    #[test]
    fn student_has_the_values_of_tables() {
        let table =
            [(1, 12.706, 636.62), (2, 4.3027, 31.599), (3, 3.1824, 12.924), (10, 2.2281, 4.5869), (29, 2.0452, 3.6594)];
        for (freedom, twentieth, thousandth) in table {
            assert!((student(0.05, freedom) / twentieth - 1.0).abs() < 1e-4, "{freedom}");
            assert!((student(0.001, freedom) / thousandth - 1.0).abs() < 1e-4, "{freedom}");
        }
        assert!((student(0.05, 999) - 1.9623).abs() < 1e-4);
    }
}
