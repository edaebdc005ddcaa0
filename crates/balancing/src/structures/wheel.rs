//! Finds the server that owns a point on the line of all weights.

use crate::tier::Tier;

/// Servers laid side by side, each as long as its weight.
pub(crate) struct Wheel {
    /// Where each server ends; empty when all have the same weight.
    ends: Box<[u32]>,
    weight: u32,
    total: u32,
}

impl Wheel {
    pub fn new(tier: &Tier) -> Wheel {
        let total = tier.total_weight as u32;
        if let Some(weight) = tier.equal_weight() {
            return Wheel { ends: Box::default(), weight, total };
        }
        let mut end = 0;
        let ends = tier.weights().map(|w| {
            end += w;
            end
        });
        Wheel { ends: ends.collect(), weight: 0, total }
    }

    /// The owner of `hash` modulo the sum of weights; `None` when all weights are 0. O(log n), O(1) for equal weights.
    #[inline]
    pub fn at(&self, hash: u32) -> Option<usize> {
        let point = hash.checked_rem(self.total)?;
        Some(match point.checked_div(self.weight) {
            Some(index) => index as usize,
            None => self.ends.partition_point(|end| *end <= point),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Fleet, ServerSpec, ServerState, registry};

    /// A tier of servers with these weights.
    pub(crate) fn tier(weights: &[u32]) -> Arc<Tier> {
        tier_of(weights.iter().enumerate().map(|(i, w)| (format!("s{i}:80"), *w)))
    }

    /// A tier of servers with these names and weights.
    pub(crate) fn tier_of(servers: impl Iterator<Item = (String, u32)>) -> Arc<Tier> {
        let spec = registry::Spec::new(registry::find("round_robin").unwrap(), &[]).unwrap();
        let server = |(name, weight): (String, u32)| ServerSpec { weight, ..ServerSpec::new(&name) };
        let servers = servers.map(|x| (server(x), Arc::new(ServerState::new()))).collect();
        Fleet::new(&spec, servers).unwrap().tiers()[0].clone()
    }

    #[test]
    fn owners() {
        let owners = |weights: &[u32], n| (0..n).map(|h| Wheel::new(&tier(weights)).at(h).unwrap()).collect::<Vec<_>>();
        assert_eq!(owners(&[2, 2], 6), [0, 0, 1, 1, 0, 0]);
        assert_eq!(owners(&[1, 0, 3], 5), [0, 2, 2, 2, 0]);
        assert_eq!(Wheel::new(&tier(&[0, 0])).at(3), None);
    }
}
