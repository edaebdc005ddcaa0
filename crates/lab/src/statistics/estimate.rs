//! Means over repetitions, and how sure they are.

use super::student;
use crate::summary::Estimate;

/// One minus the confidence of every interval that is reported: 95 %.
pub const ALPHA: f64 = 0.05;

/// Resamples beyond the quantile that is looked for, and the most resamples.
const TAIL: f64 = 100.0;
const RESAMPLES_MAX: f64 = 20_000.0;

/// The mean of repetitions with its 95 % interval; nothing of nothing.
pub fn estimate(values: Vec<f64>) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let (mean, sd) = moments(&values);
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    let interval = interval(&values, ALPHA);
    Some(Estimate { mean, sd: (values.len() > 1).then_some(sd), median, interval, values })
}

/// An interval that covers the mean with probability 1 - `alpha`: a studentised bootstrap, which allows for skewness and
/// is always the same for the same values, where there are values enough for it (six for 95 %, eight for 99.9 %);
/// Student's t below. None for fewer than two values.
pub fn interval(values: &[f64], alpha: f64) -> Option<(f64, f64)> {
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    if values.iter().all(|value| *value == values[0]) {
        return Some((values[0], values[0]));
    }
    let (mean, sd) = moments(values);
    let error = sd / (values.len() as f64).sqrt();
    if is_enough(values.len(), alpha)
        && let Some((low, high)) = studentised(values, mean, alpha)
    {
        return Some((mean - high * error, mean - low * error));
    }
    let t = student::two_sided(alpha, values.len() as f64 - 1.0);
    Some((mean - t * error, mean + t * error))
}

/// Whether a bootstrap of `n` values can tell its tails. A resample that has only two different values may have any
/// deviation, however small, and so any ratio to it: such ones must be rarer than what the tails hold.
fn is_enough(n: usize, alpha: f64) -> bool {
    let n = n as f64;
    let of_two_values = n * (n - 1.0) / 2.0 * (2f64.powf(n) - 2.0) / n.powf(n);
    n > 2.0 && of_two_values < alpha
}

/// Mean and standard deviation (n - 1; 0 for one value).
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

/// The two quantiles of (mean of a resample - mean) / its own standard error. None where a resample of equal values is
/// likely enough to be one of them: few values differ.
fn studentised(values: &[f64], mean: f64, alpha: f64) -> Option<(f64, f64)> {
    let resamples = (TAIL / (alpha / 2.0)).min(RESAMPLES_MAX) as usize;
    let mut random = Random(0x5EED);
    let mut resample = vec![0.0; values.len()];
    let root = (values.len() as f64).sqrt();
    let mut ratios: Vec<f64> = (0..resamples)
        .map(|_| {
            resample.iter_mut().for_each(|value| *value = values[random.below(values.len())]);
            let (its_mean, sd) = moments(&resample);
            let equal = resample.iter().all(|value| *value == resample[0]);
            if equal { f64::INFINITY.copysign(its_mean - mean) } else { (its_mean - mean) / (sd / root) }
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let rank = ((alpha / 2.0) * resamples as f64) as usize;
    let (low, high) = (ratios[rank], ratios[resamples - 1 - rank]);
    (low.is_finite() && high.is_finite()).then_some((low, high))
}

/// SplitMix64: a report is the same whenever and wherever it is made.
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Random {
        fn uniform(&mut self) -> f64 {
            ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        pub fn normal(&mut self) -> f64 {
            (-2.0 * self.uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * self.uniform()).cos()
        }
    }

    /// The part of samples of `n` whose interval has the true mean 0.
    fn coverage(
        n: usize,
        samples: usize,
        draw: fn(&mut Random) -> f64,
        interval: fn(&[f64]) -> Option<(f64, f64)>,
    ) -> f64 {
        let mut random = Random(1);
        let covered = (0..samples).filter(|_| {
            let values: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
            interval(&values).is_some_and(|(low, high)| low <= 0.0 && 0.0 <= high)
        });
        covered.count() as f64 / samples as f64
    }

    /// The interval that a plain bootstrap gives: quantiles of the means of resamples.
    fn percentile(values: &[f64]) -> Option<(f64, f64)> {
        let mut random = Random(7);
        let n = values.len();
        let mut means: Vec<f64> =
            (0..400).map(|_| (0..n).map(|_| values[random.below(n)]).sum::<f64>() / n as f64).collect();
        means.sort_by(f64::total_cmp);
        Some((means[10], means[389]))
    }

    #[test]
    fn intervals_cover_the_mean_as_often_as_they_say() {
        for n in [2, 3, 5] {
            let found = coverage(n, 4000, Random::normal, |values| interval(values, ALPHA));
            assert!((0.94..0.96).contains(&found), "{n}: {found}");
        }
        for n in [6, 10] {
            let found = coverage(n, 300, Random::normal, |values| interval(values, ALPHA));
            assert!((0.915..=0.99).contains(&found), "{n}: {found}");
        }
    }

    #[test]
    fn how_many_values_a_bootstrap_needs() {
        let least = |alpha| (2..30).find(|n| is_enough(*n, alpha));
        assert_eq!([0.05, 0.01, 0.001, 0.05 / 21.0].map(least), [Some(6), Some(7), Some(8), Some(8)]);
    }

    #[test]
    fn a_plain_bootstrap_of_three_would_not() {
        let found = coverage(3, 1000, Random::normal, percentile);
        assert!((0.68..0.80).contains(&found), "{found}");
    }

    #[test]
    fn skewed_repetitions_are_covered_better_than_by_student() {
        let skewed = |random: &mut Random| random.normal().exp() - 0.5f64.exp();
        let bootstrap = coverage(10, 400, skewed, |values| interval(values, ALPHA));
        let student = coverage(10, 400, skewed, |values| {
            let (mean, sd) = moments(values);
            let half = student::two_sided(ALPHA, 9.0) * sd / 10f64.sqrt();
            Some((mean - half, mean + half))
        });
        assert!(bootstrap > student + 0.02, "{bootstrap} {student}");
    }

    #[test]
    fn by_hand() {
        let found = estimate(vec![1.0, 2.0, 6.0]).unwrap();
        assert_eq!((found.mean, found.median), (3.0, 2.0));
        assert_eq!(found.sd, Some(7f64.sqrt()));
        let half = 4.302_652_729_749_464 * (7.0f64 / 3.0).sqrt();
        let (low, high) = found.interval.unwrap();
        assert!((low - (3.0 - half)).abs() < 1e-9 && (high - (3.0 + half)).abs() < 1e-9, "{low} {high}");
        assert_eq!(estimate(vec![]), None);
        let one = estimate(vec![4.0]).unwrap();
        assert_eq!((one.mean, one.sd, one.median, one.interval), (4.0, None, 4.0, None));
        assert_eq!(estimate(vec![0.1; 3]).unwrap().interval, Some((0.1, 0.1)));
        assert_eq!(interval(&[1.0, f64::NAN], ALPHA), None);
    }

    #[test]
    fn repetitions_that_hardly_differ_have_an_interval() {
        let (low, high) = interval(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.001], ALPHA).unwrap();
        assert!(low < 1.0002 && 1.0001 < high && high < 1.01, "{low} {high}");
    }

    proptest! {
        #[test]
        fn intervals_have_the_mean_inside_and_move_with_the_values(
            values in prop::collection::vec(-1e3f64..1e3, 2..9), shift in -1e3f64..1e3, alpha in 0.01f64..0.2,
        ) {
            let (mean, sd) = moments(&values);
            let (low, high) = interval(&values, alpha).unwrap();
            prop_assert!(low <= mean + 1e-9 && mean <= high + 1e-9);
            let moved: Vec<f64> = values.iter().map(|value| value + shift).collect();
            let (low_moved, high_moved) = interval(&moved, alpha).unwrap();
            let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * (1.0 + sd + a.abs());
            prop_assert!(near(low + shift, low_moved) && near(high + shift, high_moved));
            // The two methods need not agree.
            if is_enough(values.len(), alpha) == is_enough(values.len(), alpha / 3.0) {
                let (wide_low, wide_high) = interval(&values, alpha / 3.0).unwrap();
                prop_assert!(wide_low <= low + 1e-9 && high <= wide_high + 1e-9, "more confidence is wider");
            }
        }
    }
}
