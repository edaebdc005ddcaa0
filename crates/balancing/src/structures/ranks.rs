//! Rendezvous hashing in which a key's ranks are a permutation, so that they can be followed or compared.
//!
//! Servers own slots of a space of 2^18, as many as their weight, at places given by their names. Every key has its own
//! order of all slots, and the owned slot of the least rank wins; the owned slot of the next rank is the next best. The
//! order is a permutation that is quick to compute in both directions, and both find the same slot: if few slots are
//! owned, the ranks of all of them are computed; if many are owned, the order is followed from rank 0 to the first
//! owned slot. So the choice is the same function of key, names and weights for any number of servers. When a server is
//! added or removed, only its own keys move, except where two names give the same slot: the later name takes its second
//! place.
//!
//! Both cost at most some 500 steps of about half a nanosecond, at 512 owned slots; with more or fewer slots it is
//! less. If the sum of the weights exceeds half of the space, a server owns its share of that half. So another server, or
//! another weight, moves at most two and a half times the keys that it must.
//! Source: Thaler, Ravishankar, "A name-based mapping scheme for rendezvous" (1996); following an order of slots: Dong, Wang,
//! "DxHash" (2021).

use crate::key::{mix, seeds};
use crate::tier::Tier;

/// The space has as many bits, or one more than so many servers need.
const BITS: u32 = 18;
/// Up to so many slots the ranks of all are computed.
const COMPARED: usize = 512;
const INDEX_BITS: u32 = COMPARED.ilog2();
/// No slot.
const NONE: u32 = u32::MAX;
/// An odd factor that scatters bits, and its inverse.
const SCATTER: u32 = 0x2c1b_3c6d;
const GATHER: u32 = inverse(SCATTER);
/// Tells the claims of one server apart.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

pub(crate) struct Ranks {
    bits: u32,
    /// Of a small tier the taken slots and the server of each.
    few: Box<[u32]>,
    few_servers: Box<[u32]>,
    /// Of a large one a bit for each slot, and its server.
    taken: Box<[u64]>,
    servers: Box<[u32]>,
}

/// The order of one key: a permutation of the space.
#[derive(Clone, Copy)]
struct Order {
    factor: u32,
    offset: u32,
    mask: u32,
    /// Half of the bits, rounded up, so that a shift by it is undone by another one.
    half: u32,
}

impl Order {
    #[inline]
    fn new(hash: u64, bits: u32) -> Order {
        Order { factor: (hash >> 32) as u32 | 1, offset: hash as u32, mask: (1 << bits) - 1, half: bits.div_ceil(2) }
    }

    /// The rank of a slot.
    #[inline]
    fn rank(self, slot: u32) -> u32 {
        let x = slot.wrapping_sub(self.offset).wrapping_mul(self.factor) & self.mask;
        // Without this, three slots at equal distances would not have equal chances.
        (x ^ x >> self.half).wrapping_mul(SCATTER) & self.mask
    }

    /// The slot of a rank; `back` is the inverse of the factor.
    #[inline]
    fn slot(self, rank: u32, back: u32) -> u32 {
        let x = rank.wrapping_mul(GATHER) & self.mask;
        (x ^ x >> self.half).wrapping_mul(back).wrapping_add(self.offset) & self.mask
    }
}

/// The inverse of an odd number modulo 2^32: each step doubles the bits that are right, of which three are at first.
const fn inverse(x: u32) -> u32 {
    let (mut y, mut step) = (x, 0);
    while step < 4 {
        y = y.wrapping_mul(2u32.wrapping_sub(x.wrapping_mul(y)));
        step += 1;
    }
    y
}

/// How many slots each server owns: its weight, or its share of `most` if the sum of the weights is greater.
fn slots(tier: &Tier, most: u64) -> Vec<u64> {
    let sum: u64 = tier.weights().map(u64::from).sum();
    // A positive weight owns a slot at least, so the shares are taken of what the least ones leave.
    let shared = most.saturating_sub(tier.len() as u64).max(1);
    let share = |weight: u64| (u128::from(weight) * u128::from(shared) / u128::from(sum.max(1))) as u64;
    let count = |weight: u64| if sum <= most { weight } else { share(weight).max(u64::from(weight > 0)) };
    tier.weights().map(|weight| count(weight.into())).collect()
}

impl Ranks {
    pub fn new(tier: &Tier) -> Ranks {
        Ranks::with(tier, COMPARED)
    }

    fn with(tier: &Tier, compared: usize) -> Ranks {
        let bits = BITS.max(tier.len().next_power_of_two().ilog2() + 1);
        let counts = slots(tier, 1 << (bits - 1));
        // The first server in this order takes the slot, whatever other servers there are.
        let mut claims: Vec<(u64, u32)> = Vec::with_capacity(counts.iter().sum::<u64>() as usize);
        for ((seed, count), server) in seeds(&tier.names).into_iter().zip(counts).zip(0u32..) {
            claims.extend((0..count).map(|k| (mix(seed.wrapping_add(k.wrapping_mul(SPREAD))), server)));
        }
        claims.sort_unstable();
        let mask = (1u32 << bits) - 1;
        let mut servers = vec![NONE; 1 << bits];
        let (mut few, mut few_servers) = (Vec::new(), Vec::new());
        let compares = claims.len() <= compared;
        for (claim, server) in claims {
            let (mut slot, step) = (claim as u32 & mask, (claim >> 32) as u32 | 1);
            while servers[slot as usize] != NONE {
                slot = slot.wrapping_add(step) & mask;
            }
            servers[slot as usize] = server;
            if compares {
                few.push(slot);
                few_servers.push(server);
            }
        }
        let mut taken = Vec::new();
        if compares {
            servers = Vec::new();
        } else {
            let word = |slots: &[u32]| slots.iter().rev().fold(0, |word, slot| word << 1 | u64::from(*slot != NONE));
            taken.extend(servers.chunks(64).map(word));
        }
        Ranks { bits, few: few.into(), few_servers: few_servers.into(), taken: taken.into(), servers: servers.into() }
    }

    /// The taken slot of the least rank that is not below `from`: its rank and its server.
    #[inline]
    pub fn next(&self, hash: u64, from: u32) -> Option<(u32, usize)> {
        if self.taken.is_empty() { self.compare(hash, from) } else { self.follow(hash, from) }
    }

    fn compare(&self, hash: u64, from: u32) -> Option<(u32, usize)> {
        let order = Order::new(hash, BITS);
        let from = from.min(1 << BITS) << INDEX_BITS;
        let mut least = NONE;
        for (i, slot) in (0..).zip(&self.few) {
            let place = order.rank(*slot) << INDEX_BITS | i;
            least = least.min(if place < from { NONE } else { place });
        }
        let server = self.few_servers.get((least & (COMPARED as u32 - 1)) as usize);
        server.filter(|_| least != NONE).map(|server| (least >> INDEX_BITS, *server as usize))
    }

    fn follow(&self, hash: u64, from: u32) -> Option<(u32, usize)> {
        let order = Order::new(hash, self.bits);
        let back = inverse(order.factor);
        let is_taken = |slot: u32| self.taken[(slot >> 6) as usize] >> (slot & 63) & 1 == 1;
        let rank = (from..=order.mask).find(|rank| is_taken(order.slot(*rank, back)))?;
        Some((rank, self.servers[order.slot(rank, back) as usize] as usize))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::structures::wheel::tests::{tier, tier_of};

    fn owner(ranks: &Ranks, hash: u64) -> usize {
        ranks.next(hash, 0).unwrap().1
    }

    /// Both ways find what the definition says: the order of the slots written out, in each of which a server stands or none.
    #[test]
    fn both_ways_find_the_first_taken_slot_of_the_order() {
        for weights in [vec![1; 3], vec![5, 1, 0, 2], vec![1; 40], (0..170).map(|i| i % 6).collect()] {
            let tier = tier(&weights);
            let (few, many) = (Ranks::new(&tier), Ranks::with(&tier, 0));
            assert!(few.taken.is_empty() && many.few.is_empty());
            let slots: HashMap<u32, u32> = few.few.iter().copied().zip(few.few_servers.iter().copied()).collect();
            assert_eq!(slots.len(), weights.iter().sum::<u32>() as usize);
            for hash in (0..60).map(mix) {
                let order = Order::new(hash, BITS);
                let mut slot_of = vec![NONE; 1 << BITS];
                (0..1 << BITS).for_each(|slot| slot_of[order.rank(slot) as usize] = slot);
                let mut expected = (0u32..).zip(&slot_of).filter_map(|(r, slot)| Some((r, *slots.get(slot)? as usize)));
                let mut from = 0;
                for _ in 0..3 {
                    let next = expected.next();
                    assert_eq!((few.next(hash, from), many.next(hash, from)), (next, next));
                    from = next.map_or(from, |(rank, _)| rank + 1);
                }
            }
        }
        for weights in [&[0u32; 4][..], &[0; 600]] {
            assert_eq!(Ranks::new(&tier(weights)).next(1, 0), None);
        }
    }

    #[test]
    fn orders_are_permutations_and_have_a_way_back() {
        for (bits, hash) in [(18, 1), (18, 2), (19, 3), (20, 4)] {
            let order = Order::new(mix(hash), bits);
            let back = inverse(order.factor);
            assert!((0..1 << bits).all(|slot| order.slot(order.rank(slot), back) == slot), "{bits} bits");
        }
    }

    /// Shares are the weights', by chi-square.
    #[test]
    fn shares_are_the_weights() {
        let mixed = &[1, 5, 0, 2, 40, 1][..];
        for (n, pattern) in [(3usize, mixed), (32, mixed), (33, mixed), (300, mixed), (3_000, mixed), (300, &[7])] {
            let weights: Vec<u32> = (0..n).map(|i| pattern[i % pattern.len()]).collect();
            let (ranks, total) = (Ranks::new(&tier(&weights)), weights.iter().sum::<u32>());
            let draws = 400 * n.max(300) as u64;
            let mut counts = vec![0f64; n];
            (0..draws).for_each(|i| counts[owner(&ranks, mix(i))] += 1.0);
            let parts = counts.iter().zip(&weights).filter(|(_, weight)| **weight != 0);
            let expected = |weight: u32| draws as f64 * f64::from(weight) / f64::from(total);
            let chi: f64 = parts.clone().map(|(c, w)| (c - expected(*w)).powi(2) / expected(*w)).sum();
            let freedom = parts.count() as f64 - 1.0;
            // Four deviations of the distribution, which is about normal, or its tail for the few.
            assert!(chi < freedom + 4.0 * (2.0 * freedom).sqrt() + 8.0, "n = {n}: {chi} for {freedom}");
            assert!(counts.iter().zip(&weights).all(|(c, w)| (*w != 0) || *c == 0.0));
        }
    }

    fn owners(servers: impl Iterator<Item = (String, u32)>, keys: u64) -> Vec<Box<str>> {
        let tier = tier_of(servers);
        let ranks = Ranks::new(&tier);
        (0..keys).map(|i| tier.names[owner(&ranks, mix(i))].clone()).collect()
    }

    /// The keys of the server that goes move and no others, at every size: in proportion to its own, those of others are none
    /// up to some hundreds of servers, and few beyond.
    #[test]
    fn only_the_keys_of_a_server_that_goes_move() {
        let sizes =
            [(2usize, 0.0), (10, 0.0), (33, 0.0), (100, 0.0), (241, 0.0), (513, 0.0), (1_001, 0.05), (10_000, 0.1)];
        for (n, most) in sizes {
            let all = || (0..n).map(|i| (format!("s{i}:80"), 1));
            let keys = 60_000;
            let full = owners(all(), keys);
            let (mut own, mut others) = (0, 0);
            for gone in (0..n).step_by(n.div_ceil(12)) {
                let name = format!("s{gone}:80");
                let rest = owners(all().filter(|(other, _)| *other != name), keys);
                for (before, _) in full.iter().zip(&rest).filter(|(before, after)| before != after) {
                    if **before == *name { own += 1 } else { others += 1 }
                }
            }
            let part = f64::from(others) / f64::from(own.max(1));
            assert!(own > 0 && part <= most, "{n} servers: {own} keys of its own moved and {others} of others");
        }
    }

    /// With as many servers as half of the space has slots, those of a few others move as well.
    #[test]
    fn few_others_move_among_very_many() {
        let n = 100_000;
        let all = || (0..n).map(|i| (format!("s{i}:80"), 1));
        let gone = |i: i32| i % 100 == 7;
        let (full, keys) = (owners(all(), 200_000), 200_000);
        let rest = owners((0..n).filter(|i| !gone(*i)).map(|i| (format!("s{i}:80"), 1)), keys);
        let moved = full.iter().zip(&rest).filter(|(before, after)| before != after).count() as f64;
        let least = keys as f64 / 100.0;
        assert!((0.9..1.6).contains(&(moved / least)), "{} times the least", moved / least);
    }

    /// A weight that grows only draws keys.
    #[test]
    fn a_heavier_server_takes_keys_and_gives_none() {
        let all = |extra: u32| (0..20).map(move |i| (format!("s{i}:80"), 1 + i % 3 + if i == 7 { extra } else { 0 }));
        let (full, heavier) = (owners(all(0), 20_000), owners(all(1), 20_000));
        let moved: Vec<_> = full.iter().zip(&heavier).filter(|(a, b)| a != b).collect();
        assert!(!moved.is_empty() && moved.iter().all(|(_, to)| &***to == "s7:80"));
    }

    /// Where the sum of the weights exceeds half of the space, and where it does not yet, one more server moves at most two
    /// and a half times the keys that it must.
    #[test]
    fn great_weights_move_few_keys() {
        let keys = 20_000;
        let all = |n: u32| owners((0..n).map(|i| (format!("s{i}:80"), 9_999)), keys);
        for n in 11..16 {
            let moved = all(n).iter().zip(&all(n + 1)).filter(|(before, after)| before != after).count() as f64;
            let least = keys as f64 / f64::from(n + 1);
            assert!((0.8..2.5).contains(&(moved / least)), "{n} servers: {} times the least", moved / least);
        }
    }

    /// Beyond half of the space the weights are scaled, and the shares stay.
    #[test]
    fn great_weights_fit() {
        let tier = tier(&[3_000_000, 1_000_000, 1]);
        let ranks = Ranks::new(&tier);
        let mut counts = [0.0; 3];
        (0..40_000).for_each(|i| counts[owner(&ranks, mix(i))] += 1.0 / 40_000.0);
        assert!((counts[0] - 0.75f64).abs() < 0.01 && counts[2] < 0.001, "{counts:?}");
    }
}
