//! What a target does for one request before it answers, and the computations.

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::units::show_duration;

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Nothing: the answer leaves at once.
    Fixed,
    /// Time that passes: the same for every request, or the mean of it.
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
    use proptest::prelude::*;

    use super::super::cost::processor_time;
    use super::*;

    proptest! {
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
                let start = processor_time();
                black_box(black_box(computation).run());
                *least = least.min((processor_time() - start).as_secs_f64());
            }
        }
        assert!(least[0] > 2e-6, "the work was optimised away");
        least[1] / least[0]
    }

    /// The bounds are half way, on a logarithmic scale, to no growth at all and to growth with the square: what a busy machine adds to the
    /// longer of the two stays below them.
    #[test]
    fn computations_cost_time_in_proportion() {
        let turns = ratio([50_000, 500_000].map(|turns| Computation::Loop { turns }));
        assert!((3.2..32.0).contains(&turns), "10 times the turns take {turns} times as long");
        let terms = ratio([200, 2_000].map(|terms| Computation::Matrix { size: 20, terms, seed: 1 }));
        assert!((3.2..32.0).contains(&terms), "10 times the products take {terms} times as long");
    }
}
