//! The least of many values that several threads change: a tree with eight children to a node, each node one cache line.
//!
//! It is an f-array (Jayanti, "f-arrays: implementation and applications", PODC 2002): a thread that changes a leaf
//! recomputes the nodes above it, twice at each node if another thread comes between. A node's word carries a version,
//! so that a recomputation from old children never replaces a newer one. A node that keeps its value stops the climb:
//! the thread that gave the node that value continues. While no thread changes a leaf, every node is exactly the least
//! of its children.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const WAYS: usize = 8;
const VERSION_BITS: u32 = 16;
/// Values have 48 bits.
pub(crate) const VALUE_BITS: u32 = 64 - VERSION_BITS;
/// The greatest value, which never wins.
pub(crate) const CLOSED: u64 = (1 << VALUE_BITS) - 1;

#[repr(align(64))]
struct Line([AtomicU64; WAYS]);

/// A tournament of `n` values; initially all are [`CLOSED`].
pub(crate) struct Tournament {
    /// Leaves first, the line below the root last.
    tiers: Box<[Box<[Line]>]>,
}

impl Tournament {
    pub fn new(n: usize) -> Tournament {
        let mut tiers = Vec::new();
        let mut nodes = n.max(1);
        loop {
            let lines = nodes.div_ceil(WAYS);
            let line = |_| Line([const { AtomicU64::new(CLOSED << VERSION_BITS) }; WAYS]);
            tiers.push((0..lines).map(line).collect());
            if lines == 1 {
                return Tournament { tiers: tiers.into() };
            }
            nodes = lines;
        }
    }

    fn word(&self, tier: usize, index: usize) -> &AtomicU64 {
        &self.tiers[tier][index / WAYS].0[index % WAYS]
    }

    /// The value of a leaf.
    pub fn leaf(&self, index: usize) -> u64 {
        self.word(0, index).load(SeqCst) >> VERSION_BITS
    }

    /// Brings a leaf up to date with what `value` computes from shared state, and the tree with it. O(log8 n).
    #[inline]
    pub fn refresh(&self, index: usize, value: impl Fn() -> u64) {
        let (mut tier, mut at) = (0, index);
        if !settle(self.word(0, at), value) {
            return;
        }
        while tier + 1 < self.tiers.len() {
            let children = &self.tiers[tier][at / WAYS].0;
            (tier, at) = (tier + 1, at / WAYS);
            let least = || children.iter().map(|c| c.load(SeqCst) >> VERSION_BITS).min().unwrap_or(CLOSED);
            if !settle(self.word(tier, at), least) {
                return;
            }
        }
    }

    /// A leaf with the least value among those that `open` accepts, the first of equals if it accepts all; `None` if there is none within
    /// `looks` leaves looked at. O(log8 n) a look.
    #[inline]
    pub fn least(&self, looks: usize, mut open: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut search = Search { looks, best: None, bound: CLOSED };
        self.search(self.tiers.len() - 1, 0, &mut search, &mut open);
        search.best
    }

    fn search(&self, tier: usize, line: usize, search: &mut Search, open: &mut impl FnMut(usize) -> bool) {
        let values: [u64; WAYS] = std::array::from_fn(|k| self.tiers[tier][line].0[k].load(SeqCst) >> VERSION_BITS);
        let mut seen = 0u8;
        loop {
            // The least child not seen yet, if it can beat what was found.
            let mut child = WAYS;
            let mut bound = search.bound;
            for (k, value) in values.iter().enumerate() {
                if *value < bound && seen >> k & 1 == 0 {
                    (child, bound) = (k, *value);
                }
            }
            if child == WAYS || search.looks == 0 {
                return;
            }
            seen |= 1 << child;
            let index = line * WAYS + child;
            if tier > 0 {
                self.search(tier - 1, index, search, open);
            } else {
                search.looks -= 1;
                if open(index) {
                    (search.best, search.bound) = (Some(index), bound);
                }
            }
        }
    }
}

struct Search {
    looks: usize,
    best: Option<usize>,
    bound: u64,
}

/// Stores what `value` computes; false if the word had that value already.
#[inline]
fn settle(word: &AtomicU64, value: impl Fn() -> u64) -> bool {
    for _ in 0..2 {
        let old = word.load(SeqCst);
        let new = value();
        let version = old.wrapping_add(1) & ((1 << VERSION_BITS) - 1);
        if word.compare_exchange(old, new << VERSION_BITS | version, SeqCst, SeqCst).is_ok() {
            return old >> VERSION_BITS != new;
        }
    }
    // Two others came between; the second of them saw our change.
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use proptest::prelude::*;

    use super::*;
    use crate::rng::Rng;

    /// Whether every node is the least of its children.
    fn exact(tree: &Tournament) -> bool {
        (1..tree.tiers.len()).all(|tier| {
            tree.tiers[tier - 1].iter().enumerate().all(|(i, line)| {
                let least = line.0.iter().map(|c| c.load(SeqCst) >> VERSION_BITS).min().unwrap();
                tree.word(tier, i).load(SeqCst) >> VERSION_BITS == least
            })
        })
    }

    proptest! {
        #[test]
        fn agrees_with_a_scan(n in 1usize..700, seed: u64) {
            let (tree, mut rng) = (Tournament::new(n), Rng::new(seed));
            let mut values = vec![CLOSED; n];
            for _ in 0..300 {
                let (i, v) = (rng.below(n as u64) as usize, rng.below(50));
                values[i] = if v == 0 { CLOSED } else { v };
                tree.refresh(i, || values[i]);
                let barred = rng.below(3) as usize;
                let open = |i: usize| i % 3 != barred;
                let expected = (0..n).filter(|i| open(*i)).map(|i| values[i]).min().filter(|v| *v != CLOSED);
                let found = tree.least(usize::MAX, open);
                prop_assert!(found.is_none_or(open));
                prop_assert_eq!(found.map(|i| values[i]), expected);
                let first = (0..n).filter(|i| values[*i] != CLOSED).min_by_key(|i| values[*i]);
                prop_assert_eq!(tree.least(1, |_| true), first);
            }
            prop_assert!(exact(&tree));
        }
    }

    #[test]
    fn threads_leave_it_exact() {
        // Few leaves, so that the threads meet at every node, and many short rounds: a stale node does not live long.
        const N: u64 = 12;
        let (tree, barrier) = (Tournament::new(N as usize), Barrier::new(3));
        let shared: [AtomicU64; N as usize] = [const { AtomicU64::new(5) }; N as usize];
        let refresh = |i: usize| tree.refresh(i, || shared[i].load(SeqCst));
        (0..N as usize).for_each(refresh);
        let wrong = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (tree, shared, barrier, wrong, refresh) = (&tree, &shared, &barrier, &wrong, &refresh);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..15_000 {
                        barrier.wait();
                        for _ in 0..1 + rng.below(60) {
                            let i = rng.below(N) as usize;
                            shared[i].store(rng.below(4), SeqCst);
                            refresh(i);
                        }
                        if barrier.wait().is_leader() {
                            let leaves = (0..N as usize).all(|i| tree.leaf(i) == shared[i].load(SeqCst));
                            wrong.fetch_add(u64::from(!leaves || !exact(tree)), SeqCst);
                        }
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!(wrong.into_inner(), 0, "of 15,000 rounds");
    }
}
