//! How likely a choice at random was.
//!
//! A search draws servers with replacement. A draw of a server that is closed, or was drawn before, is lost; when `lost` draws
//! are lost the search ends with what it has. What the first m draws can have found is the coefficient of x^m/m! in a product
//! with a factor for each server: e^px - 1 if it is among those found, 1 if it is not, and once e^rx, where p is the
//! probability that a draw finds the server and r that it finds none. Servers of the same p are one power of their factor.
//! Source: Flajolet, Gardy, Thimonier, "Birthday paradox, coupon collectors, caching algorithms and self-organizing
//! search", Discrete Applied Mathematics 39, 1992.
//! Cost: that of the servers once, and of each different p some thousand multiplications.

use crate::policy::Context;
use crate::tier::Tier;

/// The probability that the server is taken when it is drawn: 0 if it is closed, less than 1 in slow start.
pub(crate) fn admission(cx: &Context<'_>, index: usize) -> f64 {
    let whole = cx.tier.whole_weight(index);
    match cx.open(index) {
        true if whole > 0 => (cx.tier.weight(index, cx.now) as f64 / whole as f64).min(1.0),
        open => f64::from(u8::from(open)),
    }
}

/// The probability that a draw is of this server.
pub(crate) fn share(tier: &Tier, index: usize) -> f64 {
    match tier.total_weight {
        0 => 1.0 / tier.len() as f64,
        total => f64::from(tier.slots[index].weight) / total as f64,
    }
}

/// The probability that the first draw which finds a server finds one of probability `part`, if the search ends after `lost` draws
/// that are lost with the probability `missing`.
pub(crate) fn first(part: f64, missing: f64, lost: u32) -> f64 {
    (0..lost).map(|nth| part * missing.powi(nth as i32)).sum()
}

/// A server beside the one that was chosen, if both were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rival {
    /// It would have been chosen.
    Better,
    /// A coin would have decided.
    Equal,
    /// It would not have been chosen.
    Worse,
}

/// The probability that a server of probability `own` is chosen, if each server is found by itself.
pub(crate) fn best_of_all(own: f64, rivals: impl Iterator<Item = (f64, Rival)>) -> f64 {
    let (mut equals, mut no_better) = (vec![1.0], 1.0);
    for (part, rival) in rivals {
        match rival {
            Rival::Better => no_better *= 1.0 - part,
            Rival::Worse => (),
            Rival::Equal => {
                equals.push(0.0);
                for at in (0..equals.len()).rev() {
                    equals[at] = equals[at] * (1.0 - part) + at.checked_sub(1).map_or(0.0, |less| equals[less] * part);
                }
            }
        }
    }
    own * no_better * equals.iter().zip(1u32..).map(|(part, count)| part / f64::from(count)).sum::<f64>()
}

/// A search by draws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    /// How many servers are wanted.
    pub choices: usize,
    /// How many suffice when the search ends early.
    pub least: usize,
    /// How many lost draws end it.
    pub lost: u32,
}

impl Draws {
    /// The probability that the server that draws find with the probability `own` is the best of those found; `rivals` are all
    /// other servers.
    pub fn best(self, own: f64, rivals: impl Iterator<Item = (f64, Rival)>) -> f64 {
        let (mut equal, mut worse, mut found) = (Vec::new(), Vec::new(), own);
        for (part, rival) in rivals {
            found += part;
            match rival {
                Rival::Better => (),
                Rival::Equal => equal.push(part),
                Rival::Worse => worse.push(part),
            }
        }
        let missing = (1.0 - found).max(0.0);
        let mut sets = Sets::new(self, missing);
        sets.may_have(equal);
        sets.flip_coins();
        sets.add(own, 1, 1);
        sets.may_have(worse);
        sets.complete(self) + sets.ended_early(self, missing, self.least..self.choices)
    }

    /// The probability that too few servers are found.
    pub fn too_few(self, parts: impl Iterator<Item = f64>) -> f64 {
        let parts: Vec<f64> = parts.collect();
        let missing = (1.0 - parts.iter().sum::<f64>()).max(0.0);
        let mut sets = Sets::new(self, missing);
        sets.may_have(parts);
        if self.lost == 0 { 1.0 } else { sets.ended_early(self, missing, 0..self.least) }
    }
}

/// Coefficients of x^m.
type Series = Vec<f64>;

/// Sums over all sets of so many servers, for each number of them.
struct Sets {
    /// Of the products.
    plain: Vec<Series>,
    /// Of the products, times the sum of the set's probabilities: the next draw is of one of them.
    again: Vec<Series>,
    /// Of the products without one server, times its probability: the next draw finds it and completes the set.
    next: Vec<Series>,
}

/// The coefficients of e^px.
fn exponential(part: f64, length: usize) -> Series {
    std::iter::successors(Some((0u32, 1.0)), |(m, value)| Some((m + 1, value * part / f64::from(m + 1))))
        .take(length)
        .map(|(_, value)| value)
        .collect()
}

/// `sum` += `factor` * `one` * `other`.
fn add_product(sum: &mut [f64], factor: f64, one: &[f64], other: &[f64]) {
    for (at, a) in one.iter().enumerate().filter(|(_, a)| **a != 0.0) {
        sum[at..].iter_mut().zip(other).for_each(|(sum, b)| *sum += factor * a * b);
    }
}

impl Sets {
    fn new(draws: Draws, missing: f64) -> Sets {
        let length = draws.choices + draws.lost as usize;
        let none = || vec![vec![0.0; length]; draws.choices + 1];
        let mut sets = Sets { plain: none(), again: none(), next: none() };
        sets.plain[0] = exponential(missing, length);
        sets
    }

    /// Sets with any of these servers.
    fn may_have(&mut self, mut parts: Vec<f64>) {
        parts.retain(|part| *part > 0.0);
        parts.sort_by(f64::total_cmp);
        for same in parts.chunk_by(|a, b| a == b) {
            self.add(same[0], same.len(), 0);
        }
    }

    /// Sets with `least` or more of so many servers of one probability.
    fn add(&mut self, part: f64, servers: usize, least: usize) {
        let (most, length) = (self.plain.len() - 1, self.plain[0].len());
        let mut factor = exponential(part, length);
        factor[0] = 0.0;
        let mut powers = vec![exponential(0.0, length)];
        for nth in 1..=servers.min(most) {
            let mut power = vec![0.0; length];
            add_product(&mut power, 1.0, &powers[nth - 1], &factor);
            powers.push(power);
        }
        let none = || vec![vec![0.0; length]; most + 1];
        let mut sums = Sets { plain: none(), again: none(), next: none() };
        for (count, plain) in self.plain.iter().enumerate() {
            let mut ways = 1.0;
            for (more, power) in powers.iter().enumerate().take(most - count + 1) {
                if more > 0 {
                    ways *= (servers + 1 - more) as f64 / more as f64;
                }
                if more < least {
                    continue;
                }
                let (all, sum) = (count + more, ways * more as f64 * part);
                add_product(&mut sums.plain[all], ways, plain, power);
                add_product(&mut sums.again[all], ways, &self.again[count], power);
                add_product(&mut sums.next[all], ways, &self.next[count], power);
                if more > 0 {
                    add_product(&mut sums.again[all], sum, plain, power);
                    add_product(&mut sums.next[all], sum, plain, &powers[more - 1]);
                }
            }
        }
        *self = sums;
    }

    /// A fair coin decides between those of each set and one more.
    fn flip_coins(&mut self) {
        for series in [&mut self.plain, &mut self.again, &mut self.next] {
            for (series, count) in series.iter_mut().zip(1u32..) {
                series.iter_mut().for_each(|value| *value /= f64::from(count));
            }
        }
    }

    /// All that are wanted were found before too many draws were lost.
    fn complete(&self, draws: Draws) -> f64 {
        let from = draws.choices - 1;
        (from..from + draws.lost as usize).map(|m| factorial(m) * self.next[draws.choices][m]).sum()
    }

    /// Too many draws were lost when so many servers had been found.
    fn ended_early(&self, draws: Draws, missing: f64, counts: std::ops::Range<usize>) -> f64 {
        let Some(before) = draws.lost.checked_sub(1) else { return 0.0 };
        let ended = |count: usize| {
            let m = count + before as usize;
            factorial(m) * (missing * self.plain[count][m] + self.again[count][m])
        };
        counts.map(ended).sum()
    }
}

fn factorial(n: usize) -> f64 {
    (1..=n).map(|factor| factor as f64).product()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rival(scores: &[u32], one: usize, other: usize) -> Rival {
        match scores[other].cmp(&scores[one]) {
            std::cmp::Ordering::Less => Rival::Better,
            std::cmp::Ordering::Equal => Rival::Equal,
            std::cmp::Ordering::Greater => Rival::Worse,
        }
    }

    /// Each server with its rivals.
    fn with_rivals<'a>(
        parts: &'a [f64],
        scores: &'a [u32],
    ) -> impl Iterator<Item = (f64, impl Iterator<Item = (f64, Rival)> + 'a)> + 'a {
        (0..parts.len()).map(move |one| {
            let others = (0..parts.len()).filter(move |other| *other != one);
            (parts[one], others.map(move |other| (parts[other], rival(scores, one, other))))
        })
    }

    #[test]
    fn two_of_three() {
        // After 60 lost draws the rest is less than 1e-12.
        let draws = Draws { choices: 2, least: 2, lost: 60 };
        let all = |scores: &[u32]| -> Vec<f64> {
            with_rivals(&[1.0 / 3.0; 3], scores).map(|(own, rivals)| draws.best(own, rivals)).collect()
        };
        let near = |found: Vec<f64>, expected: [f64; 3]| {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        };
        near(all(&[1, 2, 3]), [2.0 / 3.0, 1.0 / 3.0, 0.0]);
        near(all(&[1, 1, 1]), [1.0 / 3.0; 3]);
        near(all(&[1, 1, 2]), [0.5, 0.5, 0.0]);
    }

    proptest! {
        #[test]
        fn probabilities_sum_up(
            servers in prop::collection::vec((0u32..20, 0u32..4, prop_oneof![Just(0.0), Just(1.0), 0.0f64..1.0]), 1..20),
            choices in 2usize..=16,
            lost in 0u32..=21,
        ) {
            let total = f64::from(servers.iter().map(|(weight, ..)| weight).sum::<u32>().max(1));
            let admissions: Vec<f64> = servers.iter().map(|(.., admission)| *admission).collect();
            let parts: Vec<f64> = servers.iter().map(|(weight, _, admission)| f64::from(*weight) / total * admission).collect();
            let scores: Vec<u32> = servers.iter().map(|(_, score, _)| *score).collect();
            let draws = Draws { choices, least: 2, lost };
            let all: f64 = with_rivals(&parts, &scores).map(|(own, rivals)| draws.best(own, rivals)).sum();
            let sum = all + draws.too_few(parts.iter().copied());
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
            let missing = 1.0 - parts.iter().sum::<f64>();
            let sum = parts.iter().map(|part| first(*part, missing, lost)).sum::<f64>() + missing.powi(lost as i32);
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
            let all: f64 = with_rivals(&admissions, &scores).map(|(own, rivals)| best_of_all(own, rivals)).sum();
            let sum = all + admissions.iter().map(|part| 1.0 - part).product::<f64>();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
        }
    }
}
