//! The servers that one request has already tried.

use crate::server::Member;

const FEW: usize = 6;

/// The servers that one request has already tried, and the state of its algorithm's search.
///
/// The first 64 servers of a fleet and a few others are kept inline; only a request that tries more than that allocates,
/// once. Kept for reuse with [`Tried::clear`], it does not allocate again.
#[derive(Clone, Default, Debug)]
pub struct Tried {
    low: u64,
    few: [u32; FEW],
    few_len: u8,
    /// A bit for each member, used when `few` is full.
    many: Vec<u64>,
    count: u32,
    /// The tier of servers in use: 0 primary, 1 backup. A request that went to the backups stays there.
    pub(crate) tier: u8,
    /// The algorithm's own progress within this request.
    pub(crate) progress: Progress,
}

/// What an algorithm remembers between the attempts of one request.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Progress {
    /// Draws made so far; above a limit round robin chooses.
    pub tries: u32,
    /// Rounds of rehashing.
    pub rounds: u32,
    /// Accumulated hash, or position in a ring.
    pub hash: u32,
    /// The request may go to one server only.
    pub bound: bool,
}

impl Tried {
    /// Whether this request has tried `member`.
    #[inline]
    pub fn contains(&self, member: Member) -> bool {
        if self.count == 0 {
            return false;
        }
        let Member(m) = member;
        if m < 64 {
            return self.low >> m & 1 == 1;
        }
        if self.few[..usize::from(self.few_len)].contains(&m) {
            return true;
        }
        self.many.get(m as usize / 64).is_some_and(|word| word >> (m % 64) & 1 == 1)
    }

    /// Adds a server; no effect if it is there.
    pub fn insert(&mut self, member: Member) {
        if self.contains(member) {
            return;
        }
        let Member(m) = member;
        self.count += 1;
        if m < 64 {
            self.low |= 1 << m;
        } else if usize::from(self.few_len) < FEW {
            self.few[usize::from(self.few_len)] = m;
            self.few_len += 1;
        } else {
            let word = m as usize / 64;
            if self.many.len() <= word {
                self.many.resize(word + 1, 0);
            }
            self.many[word] |= 1 << (m % 64);
        }
    }

    /// Removes a server, so that it can be picked again: for a request whose kept-alive connection turned out closed.
    pub fn forget(&mut self, member: Member) {
        if !self.contains(member) {
            return;
        }
        let Member(m) = member;
        self.count -= 1;
        if m < 64 {
            self.low &= !(1 << m);
        } else if let Some(at) = self.few[..usize::from(self.few_len)].iter().position(|x| *x == m) {
            self.few_len -= 1;
            self.few[at] = self.few[usize::from(self.few_len)];
        } else {
            self.many[m as usize / 64] &= !(1 << (m % 64));
        }
    }

    /// How many servers have been tried.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether nothing has been tried.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Resets it for the next request and keeps the memory.
    pub fn clear(&mut self) {
        self.low = 0;
        self.few_len = 0;
        // Filling an empty vector is not free: a masked store to its dangling address costs 100 ns on some processors.
        if !self.many.is_empty() {
            self.many.fill(0);
        }
        self.count = 0;
        self.tier = 0;
        self.progress = Progress::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((0u32..300, 0u8..8), 0..200)) {
            let (mut tried, mut set) = (Tried::default(), BTreeSet::new());
            for (m, what) in steps {
                match what {
                    0 => { tried.clear(); set.clear(); }
                    1 | 2 => { tried.forget(Member(m)); set.remove(&m); }
                    _ => { tried.insert(Member(m)); set.insert(m); }
                }
                prop_assert_eq!(tried.len(), set.len());
                for m in 0..300 {
                    prop_assert_eq!(tried.contains(Member(m)), set.contains(&m));
                }
            }
        }
    }
}
