//! What a target does for one request before it answers.

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Poisson};

use crate::units::show_duration;

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Nothing: the answer leaves at once.
    Fixed,
    /// The same delay for every request; the thread is free meanwhile.
    Delay(Duration),
    /// A delay of `step` times a Poisson number of this mean, a new one for each request.
    Poisson {
        /// Mean of the Poisson number; above 0.
        mean: f64,
        /// Delay for each unit of it.
        step: Duration,
    },
    /// The product of two random square matrices, filled and multiplied for each request: CPU work.
    Matrix {
        /// Rows and columns; above 0.
        size: usize,
    },
    /// An empty loop of so many turns that the compiler cannot remove: CPU work.
    Loop {
        /// Turns for each request.
        turns: u64,
    },
}

impl Workload {
    /// Draws the work for one request at a server of this `speed` (1 = as stated, 0.5 = half as fast).
    pub(super) fn draw(&self, speed: f64, rng: &mut SmallRng) -> Job {
        match *self {
            Self::Fixed => Job::Nothing,
            Self::Delay(delay) => Job::sleep(delay.div_f64(speed)),
            Self::Poisson { mean, step } => {
                let steps = Poisson::new(mean).map_or(0.0, |poisson| poisson.sample(rng));
                Job::sleep(step.mul_f64(steps).div_f64(speed))
            }
            Self::Matrix { size } => {
                let terms = (size as f64 / speed).round().max(1.0) as u64;
                Job::Compute(Computation::Matrix { size, terms, seed: rng.random() })
            }
            Self::Loop { turns } => Job::Compute(Computation::Loop { turns: (turns as f64 / speed).round() as u64 }),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed => write!(f, "answers at once"),
            Self::Delay(delay) => write!(f, "waits {}", show_duration(delay)),
            Self::Poisson { mean, step } => write!(f, "waits {} x Poisson({mean})", show_duration(step)),
            Self::Matrix { size } => write!(f, "multiplies two {size}x{size} matrices"),
            Self::Loop { turns } => write!(f, "loops {turns} turns"),
        }
    }
}

/// The work of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Job {
    Nothing,
    Sleep(Duration),
    Compute(Computation),
}

impl Job {
    fn sleep(delay: Duration) -> Self {
        if delay.is_zero() { Self::Nothing } else { Self::Sleep(delay) }
    }
}

/// CPU work, proportional to `terms` or `turns`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Computation {
    /// A product is the sum of `size` outer products, each from one fresh random column and row, so that a server that
    /// is 1.5 times slower does exactly 1.5 times the work, the random numbers included.
    Matrix {
        size: usize,
        terms: u64,
        seed: u64,
    },
    Loop {
        turns: u64,
    },
}

impl Computation {
    /// Does the work; the result is returned so that nobody can call it unused.
    pub(super) fn run(self) -> f64 {
        match self {
            Self::Matrix { size, terms, seed } => multiply(size, terms, seed),
            Self::Loop { turns } => {
                let mut sum = 0_u64;
                for turn in 0..turns {
                    sum = black_box(sum.wrapping_add(turn));
                }
                sum as f64
            }
        }
    }
}

/// Adds `terms` outer products of random columns and rows; every `size` of them start a new product. Returns its trace.
fn multiply(size: usize, terms: u64, seed: u64) -> f64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut product = vec![0.0_f64; size * size];
    let mut row = vec![0.0_f64; size];
    for term in 0..terms {
        if term % size as u64 == 0 {
            product.fill(0.0);
        }
        row.fill_with(|| rng.random());
        for sums in product.chunks_exact_mut(size) {
            let factor: f64 = rng.random();
            for (sum, value) in sums.iter_mut().zip(&row) {
                *sum += factor * value;
            }
        }
        black_box(&mut product);
    }
    product.iter().step_by(size + 1).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    fn rng(seed: u64) -> SmallRng {
        SmallRng::seed_from_u64(seed)
    }

    fn delays(workload: Workload, speed: f64, seed: u64, count: usize) -> Vec<f64> {
        let mut rng = rng(seed);
        let seconds = |job| match job {
            Job::Nothing => 0.0,
            Job::Sleep(delay) => delay.as_secs_f64(),
            Job::Compute(_) => panic!("a delay computes nothing"),
        };
        (0..count).map(|_| seconds(workload.draw(speed, &mut rng))).collect()
    }

    #[test]
    fn poisson_has_the_mean_and_the_variance_of_poisson() {
        let workload = Workload::Poisson { mean: 0.99, step: Duration::from_millis(100) };
        let count = 100_000;
        let steps: Vec<f64> = delays(workload, 1.0, 7, count).iter().map(|delay| delay / 0.1).collect();
        let mean = steps.iter().sum::<f64>() / count as f64;
        let variance = steps.iter().map(|step| (step - mean).powi(2)).sum::<f64>() / count as f64;
        // Five standard errors of each.
        assert!((mean - 0.99).abs() < 0.016, "{mean}");
        assert!((variance - 0.99).abs() < 0.03, "{variance}");
        let none = steps.iter().filter(|step| **step == 0.0).count() as f64 / count as f64;
        assert!((none - (-0.99_f64).exp()).abs() < 0.008, "{none}");
        assert!(steps.iter().all(|step| (step - step.round()).abs() < 1e-6), "whole steps only");
    }

    #[test]
    fn a_seed_repeats_the_delays() {
        let workload = Workload::Poisson { mean: 3.0, step: Duration::from_millis(1) };
        assert_eq!(delays(workload, 1.0, 1, 100), delays(workload, 1.0, 1, 100));
        assert_ne!(delays(workload, 1.0, 1, 100), delays(workload, 1.0, 2, 100));
    }

    proptest! {
        #[test]
        fn speed_divides_every_cost(speed in 0.1_f64..10.0, milliseconds in 1_u64..1000, seed: u64) {
            let delay = Workload::Delay(Duration::from_millis(milliseconds));
            prop_assert!((delays(delay, speed, seed, 1)[0] * speed * 1e3 - milliseconds as f64).abs() < 1e-3);
            let poisson = Workload::Poisson { mean: 2.0, step: Duration::from_millis(milliseconds) };
            let (stated, scaled) = (delays(poisson, 1.0, seed, 20), delays(poisson, speed, seed, 20));
            prop_assert!(stated.iter().zip(&scaled).all(|(a, b)| (a - b * speed).abs() < 1e-6));
            let turns = Workload::Loop { turns: 50_000 };
            let expected = Job::Compute(Computation::Loop { turns: (50_000.0 / speed).round() as u64 });
            prop_assert_eq!(turns.draw(speed, &mut rng(seed)), expected);
        }

        #[test]
        fn a_product_of_random_matrices_has_the_trace_that_it_should(seed: u64) {
            // Each of the 20 x 20 products in the trace has mean 1/4 and variance 7/144.
            let trace = multiply(20, 20, seed);
            prop_assert!((trace - 100.0).abs() < 6.0 * (400.0_f64 * 7.0 / 144.0).sqrt(), "{}", trace);
        }
    }

    /// How many times as long the second takes as the first, by the least of many timings taken in turn.
    fn ratio(computations: [Computation; 2]) -> f64 {
        let mut least = [f64::INFINITY; 2];
        for _ in 0..100 {
            for (least, computation) in least.iter_mut().zip(computations) {
                let start = Instant::now();
                black_box(black_box(computation).run());
                *least = least.min(start.elapsed().as_secs_f64());
            }
        }
        assert!(least[0] > 2e-6, "the work was optimised away");
        least[1] / least[0]
    }

    #[test]
    fn computations_cost_time_in_proportion() {
        let turns = ratio([50_000, 500_000].map(|turns| Computation::Loop { turns }));
        assert!((7.0..14.0).contains(&turns), "10 times the turns take {turns} times as long");
        let terms = ratio([200, 2_000].map(|terms| Computation::Matrix { size: 20, terms, seed: 1 }));
        assert!((7.0..14.0).contains(&terms), "10 times the products take {terms} times as long");
    }
}
