//! Highest random weight: who of many has the highest score for a hash, at a cost that does not grow with them.
//!
//! For a hash every server draws a uniform `u` of its own, and the least `-log u / w` wins, which server `i` does with
//! probability `w / T`. Up to [`LEAF`] servers all of them are compared. More are the leaves of a tree, placed by the
//! hash of their name, three bits a step; on the way down the same contest is held among the eight branches, each with
//! the weight of its servers. The product of the shares on the way is `w / T` again.
//! When a server goes, all its keys go to others, and nobody else's in one leaf. In the tree the branches above it lose
//! its weight, so that at each step about as many other keys move as it had; and when a branch comes to hold no more than
//! [`LEAF`], or more again, its keys are dealt anew.
//! Logarithms are fixed-point arithmetic, the same on every machine, right to a thousandth.
//! Source: Thaler, Ravishankar, "A name-based mapping scheme for rendezvous" (1996); Schindelhauer, Schomaker, "Weighted
//! distributed hash tables" (SPAA 2005); the tree: Wang et al., "Hash-based virtual hierarchies" (2009).

use std::hint::select_unpredictable;

use crate::fleet::Level;
use crate::key::{mix, seeds};

/// Servers that are compared directly.
pub(crate) const LEAF: usize = 32;
const DIGIT_BITS: u32 = 3;
const WAYS: usize = 1 << DIGIT_BITS;

pub(crate) struct Skeleton {
    /// Servers in the order of their seeds.
    servers: Box<[Server]>,
    /// The top first; empty when the servers are few.
    nodes: Box<[[Branch; WAYS]]>,
    /// Whether all servers have the same weight, so that the greatest `u` has the least logarithm.
    is_uniform: bool,
}

#[derive(Clone, Copy)]
struct Server {
    seed: u64,
    /// 1 / weight.
    inverse: f32,
    index: u32,
}

#[derive(Clone, Copy)]
struct Branch {
    seed: u64,
    /// 1 / weight of its servers.
    inverse: f64,
    /// Of a leaf, its first server; else a node.
    first: u32,
    /// How many servers a leaf has; 0 if it is none.
    len: u32,
}

impl Skeleton {
    pub fn new(level: &Level) -> Skeleton {
        let servers = seeds(&level.names).into_iter().zip(level.weights()).zip(0..);
        let server = |((seed, weight), index)| Server { seed, inverse: 1.0 / weight as f32, index };
        let mut servers: Box<[Server]> = servers.map(server).collect();
        servers.sort_by_key(|s| (s.seed, s.index));
        let mut nodes = Vec::new();
        if servers.len() > LEAF {
            grow(&mut nodes, level, &servers, 0..servers.len(), 0, 0);
        }
        Skeleton { servers, nodes: nodes.into(), is_uniform: level.equal_weight().is_some_and(|w| w > 0) }
    }

    /// Whether all servers are compared, so that [`Skeleton::best`] finds one whenever there is one.
    pub fn is_flat(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The server that a hash belongs to; `None` when all weights are 0.
    #[inline]
    pub fn owner(&self, hash: u64) -> Option<usize> {
        let mut leaf = &self.servers[..];
        let mut node = self.nodes.first();
        while let Some(branches) = node {
            let branch = &branches[least(branches.iter().map(|b| score(hash, b.seed, b.inverse)), f64::INFINITY)?];
            let first = branch.first as usize;
            match branch.len as usize {
                0 => node = self.nodes.get(first),
                len => (leaf, node) = (&self.servers[first..first + len], None),
            }
        }
        let found = if self.is_uniform {
            // Not the last bit, as in the score, so that there is always one.
            least(leaf.iter().map(|s| !(mix(hash ^ s.seed) | 1)), u64::MAX)
        } else {
            least(leaf.iter().map(|s| score(hash, s.seed, f64::from(s.inverse))), f64::INFINITY)
        };
        found.map(|i| leaf[i].index as usize)
    }

    /// The highest of a few servers, among those of which `weight` is above 0: the best, then the next best.
    #[inline]
    pub fn best(&self, hash: u64, weight: impl Fn(usize) -> u64) -> Option<usize> {
        let inverse = |s: &Server| match weight(s.index as usize) {
            0 => f64::INFINITY,
            weight => 1.0 / weight as f64,
        };
        let scores = self.servers.iter().map(|s| score(hash, s.seed, inverse(s)));
        least(scores, f64::INFINITY).map(|i| self.servers[i].index as usize)
    }
}

/// Adds the node for the servers of a range, which agree in the first `depth` digits of their seeds, and those below it.
fn grow(
    nodes: &mut Vec<[Branch; WAYS]>,
    level: &Level,
    servers: &[Server],
    range: std::ops::Range<usize>,
    depth: u32,
    path: u64,
) -> u32 {
    let node = nodes.len();
    nodes.push([Branch { seed: 0, inverse: f64::INFINITY, first: 0, len: 0 }; WAYS]);
    let shift = u64::BITS - DIGIT_BITS * (depth + 1);
    let mut from = range.start;
    for digit in 0..WAYS as u64 {
        let of_digit = |s: &Server| s.seed >> shift & (WAYS as u64 - 1) == digit;
        let to = from + servers[from..range.end].iter().take_while(|s| of_digit(s)).count();
        let weight: u64 = servers[from..to].iter().map(|s| u64::from(level.slots[s.index as usize].weight)).sum();
        let seed = mix(path + digit + 1);
        // Seeds that agree in 60 bits stay together.
        let (first, len) = if to - from > LEAF && depth < 19 {
            (grow(nodes, level, servers, from..to, depth + 1, seed), 0)
        } else {
            (from as u32, (to - from) as u32)
        };
        if weight != 0 {
            nodes[node][digit as usize] = Branch { seed, inverse: 1.0 / weight as f64, first, len };
        }
        from = to;
    }
    node as u32
}

/// `-log u / w`.
#[inline]
fn score(hash: u64, seed: u64, inverse: f64) -> f64 {
    minus_log2(mix(hash ^ seed)) as i64 as f64 * inverse
}

/// Which of these is the least, the first of equals; `most` does not count. Without branches, as nobody can predict which.
#[inline]
fn least<T: PartialOrd + Copy>(scores: impl Iterator<Item = T>, most: T) -> Option<usize> {
    let (mut at, mut least) = (usize::MAX, most);
    for (i, score) in scores.enumerate() {
        at = select_unpredictable(score < least, i, at);
        least = if score < least { score } else { least };
    }
    (at != usize::MAX).then_some(at)
}

/// log2(1 + i / 256) in units of 2^-32.
const LOGS: [u64; 257] = logs();

const fn logs() -> [u64; 257] {
    let mut logs = [1 << 32; 257];
    let mut i = 0;
    while i < 256 {
        // Squaring a number from 1 to 2 doubles its logarithm; what exceeds 2 is the next binary digit.
        let (mut x, mut log, mut bit) = ((256 + i as u128) << 55, 0, 0);
        while bit < 33 {
            x = (x * x) >> 63;
            log = log << 1 | (x >> 64) as u64;
            if x >> 64 == 1 {
                x >>= 1;
            }
            bit += 1;
        }
        logs[i] = log.div_ceil(2);
        i += 1;
    }
    logs
}

/// -log2(hash / 2^64) in units of 2^-32; at least 1.
#[inline]
fn minus_log2(hash: u64) -> u64 {
    let hash = hash | 1;
    let zeros = hash.leading_zeros();
    let digits = hash << zeros;
    let (at, rest) = ((digits >> 55 & 0xff) as usize, digits >> 23 & 0xffff_ffff);
    let log = LOGS[at] + (((LOGS[at + 1] - LOGS[at]) * rest) >> 32);
    (u64::from(zeros + 1) << 32) - log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::structures::wheel::tests::{level, level_of};

    #[test]
    fn logarithms() {
        let mut rng = Rng::new(1);
        let some = (0..100_000).map(|i| rng.next() >> (i % 64));
        for hash in some.chain([0, 1, 2, 3, 1 << 63, u64::MAX, u64::MAX - 1, (1 << 63) - 1]) {
            // A float has no digits for what is missing to 1, so near it that is measured.
            let missing = (u64::MAX - (hash | 1)) as f64 / 2f64.powi(64);
            let near = -(-missing).ln_1p() / 2f64.ln();
            let expected = if missing < 0.5 { near } else { 64.0 - ((hash | 1) as f64).log2() };
            let found = minus_log2(hash) as f64 / 2f64.powi(32);
            let error = (found - expected).abs();
            assert!(error <= expected * 1e-3 + 2f64.powi(-31), "{hash:#x}: {found}, not {expected}");
        }
    }

    /// Shares are the weights', by chi-square, for few servers and in the tree.
    #[test]
    fn shares_are_the_weights() {
        let mixed = &[1, 5, 0, 2, 40, 1][..];
        for (n, pattern) in [(3usize, mixed), (32, mixed), (33, mixed), (300, mixed), (3_000, mixed), (300, &[7])] {
            let weights: Vec<u32> = (0..n).map(|i| pattern[i % pattern.len()]).collect();
            let (skeleton, total) = (Skeleton::new(&level(&weights)), weights.iter().sum::<u32>());
            assert_eq!(skeleton.is_flat(), n <= LEAF);
            let draws = 400 * n.max(300) as u64;
            let mut counts = vec![0f64; n];
            (0..draws).for_each(|i| counts[skeleton.owner(mix(i)).unwrap()] += 1.0);
            let parts = counts.iter().zip(&weights).filter(|(_, weight)| **weight != 0);
            let expected = |weight: u32| draws as f64 * f64::from(weight) / f64::from(total);
            let chi: f64 = parts.clone().map(|(c, w)| (c - expected(*w)).powi(2) / expected(*w)).sum();
            let freedom = parts.count() as f64 - 1.0;
            // Four deviations of the distribution, which is about normal, or its tail for the few.
            assert!(chi < freedom + 4.0 * (2.0 * freedom).sqrt() + 8.0, "n = {n}: {chi} for {freedom}");
            assert!(counts.iter().zip(&weights).all(|(c, w)| (*w != 0) || *c == 0.0));
        }
        assert_eq!(Skeleton::new(&level(&[0; 40])).owner(1), None);
        assert_eq!(Skeleton::new(&level(&[0; 4])).owner(1), None);
    }

    #[test]
    fn equal_weights_need_no_logarithms() {
        for n in [5, 32, 1_000] {
            let plain = Skeleton::new(&level(&vec![3; n]));
            assert!(plain.is_uniform);
            let with_logarithms = Skeleton { is_uniform: false, ..Skeleton::new(&level(&vec![3; n])) };
            for i in 0..100_000 {
                assert_eq!(plain.owner(mix(i)), with_logarithms.owner(mix(i)), "{n} servers, key {i}");
            }
        }
    }

    fn owners(servers: impl Iterator<Item = (String, u32)>, keys: u64) -> Vec<Box<str>> {
        let level = level_of(servers);
        let skeleton = Skeleton::new(&level);
        (0..keys).map(|i| level.names[skeleton.owner(mix(i)).unwrap()].clone()).collect()
    }

    /// Of few servers exactly the keys of the one that goes move, wherever it stands, and as many as it should have.
    #[test]
    fn few_move_no_key_needlessly() {
        let all = || (0..20).map(|i| (format!("s{i}:80"), 1 + i % 3));
        let full = owners(all(), 20_000);
        for gone in 0..20 {
            let rest = owners(all().filter(|(name, _)| *name != format!("s{gone}:80")), 20_000);
            for (before, after) in full.iter().zip(&rest) {
                assert!(before == after || **before == *format!("s{gone}:80"));
            }
        }
        // A weight that grows only draws keys.
        let heavier = owners(all().map(|(name, w)| if name == "s7:80" { (name, w + 1) } else { (name, w) }), 20_000);
        let moved: Vec<_> = full.iter().zip(&heavier).filter(|(a, b)| a != b).collect();
        assert!(!moved.is_empty() && moved.iter().all(|(_, to)| &***to == "s7:80"));
    }

    /// In the tree, a few times as many as the server had.
    #[test]
    fn many_move_few_keys_needlessly() {
        let n = 5_000;
        let keys = 100_000;
        let all = || (0..n).map(|i| (format!("s{i}:80"), 1));
        let full = owners(all(), keys);
        let mut moved = Vec::new();
        for gone in (0..n).step_by(500) {
            let rest = owners(all().filter(|(name, _)| *name != format!("s{gone}:80")), keys);
            moved.push(full.iter().zip(&rest).filter(|(a, b)| a != b).count() as f64 * f64::from(n) / keys as f64);
        }
        moved.sort_by(f64::total_cmp);
        // The median, as now and then a branch is dealt anew. Three steps down and the leaf.
        assert!((1.0..5.0).contains(&moved[moved.len() / 2]), "{moved:?}");
        assert!(moved.iter().all(|m| *m < 50.0), "{moved:?}");
    }
}
