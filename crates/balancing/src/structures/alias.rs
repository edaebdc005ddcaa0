//! Weighted draws in constant time: Walker's alias method, with Vose's construction in whole numbers.

use crate::rng::Rng;
use crate::tier::Tier;

/// Draws a server with probability w/T, exact to 2^-32.
pub(crate) struct Alias {
    n: u64,
    /// For each column the threshold of 2^32 below which it stands for itself, and the server for the rest. Empty when
    /// all weights are equal.
    columns: Box<[(u32, u32)]>,
}

impl Alias {
    pub fn new(tier: &Tier) -> Alias {
        let n = tier.len() as u64;
        if tier.equal_weight().is_some() || tier.total_weight == 0 {
            return Alias { n, columns: Box::default() };
        }
        let total = tier.total_weight;
        // A column holds `total` units; a server brings n * w of them.
        let mut units: Vec<u64> = tier.weights().map(|w| u64::from(w) * n).collect();
        let mut columns: Vec<(u32, u32)> = (0..n as u32).map(|i| (0, i)).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|i| units[*i as usize] < total);
        while let (Some(s), Some(l)) = (small.pop(), large.last().copied()) {
            let own = units[s as usize];
            columns[s as usize] = (((u128::from(own) << 32) / u128::from(total)) as u32, l);
            let rest = &mut units[l as usize];
            *rest -= total - own;
            if *rest < total {
                large.pop();
                small.push(l);
            }
        }
        Alias { n, columns: columns.into() }
    }

    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let product = u128::from(rng.next()) * u128::from(self.n);
        let (column, fraction) = ((product >> 64) as usize, (product >> 32) as u32);
        match self.columns.get(column) {
            Some(&(threshold, other)) if fraction >= threshold => other as usize,
            _ => column,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structures::wheel::tests::tier;

    #[test]
    fn draws_in_proportion() {
        for weights in [&[1, 1, 1][..], &[5, 1, 1], &[0, 3, 1], &[1000, 1, 7, 500, 2], &[4]] {
            let tier = tier(weights);
            let (alias, mut rng) = (Alias::new(&tier), Rng::new(7));
            let (draws, total) = (400_000, tier.total_weight as f64);
            let mut counts = vec![0f64; weights.len()];
            (0..draws).for_each(|_| counts[alias.draw(&mut rng)] += 1.0);
            for (count, weight) in counts.iter().zip(weights) {
                let p = f64::from(*weight) / total;
                let deviation = (f64::from(draws) * p * (1.0 - p)).sqrt();
                assert!((count - f64::from(draws) * p).abs() <= 5.0 * deviation, "{weights:?} {counts:?}");
            }
        }
    }
}
