//! A table of states by key that forgets the key that was unused for longest when its memory is used up.
//!
//! It consists of parts with a lock each, and a key belongs to one of them. What is forgotten is the oldest of the part
//! that needs room.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::{Memory, cost, parts};

/// The end of a list.
const NONE: u32 = u32::MAX;

/// States by key.
pub struct Table<V> {
    parts: Box<[Mutex<Part<V>>]>,
    hasher: RandomState,
    memory: Memory,
    /// Bytes of a state, without its key.
    overhead: usize,
}

/// What became of an update.
#[derive(Debug, PartialEq, Eq)]
pub enum Updated<R> {
    /// The key was known.
    Old(R),
    /// It is new.
    New,
    /// It does not fit into the table at all.
    Full,
}

struct Part<V> {
    places: HashMap<Arc<[u8]>, u32, RandomState>,
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

struct Slot<V> {
    key: Arc<[u8]>,
    value: V,
    cost: usize,
    newer: u32,
    older: u32,
}

impl<V: Copy> Table<V> {
    /// An empty one with so many bytes for states, which are counted as if each took `overhead` and its key.
    pub fn new(size: u64, overhead: usize) -> Table<V> {
        let memory = Memory::new(size);
        let hasher = RandomState::new();
        let part = |_| Mutex::new(Part::new(hasher.clone()));
        let parts = (0..parts(memory.capacity())).map(part).collect();
        Table { parts, hasher, memory, overhead }
    }

    fn index(&self, key: &[u8]) -> usize {
        (self.hasher.hash_one(key) >> 32) as usize & (self.parts.len() - 1)
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Part<V>> {
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a key, which counts as used now.
    pub fn find(&self, key: &[u8]) -> Option<V> {
        let mut part = self.lock(self.index(key));
        let place = part.places.get(key).copied()?;
        part.touch(place);
        Some(part.slots[place as usize].value)
    }

    /// Changes the state of a key, or begins one with `first`. Forgets up to two of the oldest that are `stale`.
    pub fn update<R>(
        &self,
        key: &[u8],
        first: V,
        stale: impl Fn(&V) -> bool,
        change: impl FnOnce(&mut V) -> R,
    ) -> Updated<R> {
        let own = self.index(key);
        let cost = cost(self.overhead + key.len());
        if cost > self.memory.capacity() {
            return Updated::Full;
        }
        loop {
            let mut part = self.lock(own);
            if let Some(place) = part.places.get(key).copied() {
                part.touch(place);
                return Updated::Old(change(&mut part.slots[place as usize].value));
            }
            for _ in 0..2 {
                if part.oldest().is_some_and(&stale) {
                    self.forget_oldest(&mut part);
                }
            }
            loop {
                if self.memory.reserve(cost) {
                    part.insert(key, first, cost);
                    return Updated::New;
                }
                if !self.forget_oldest(&mut part) {
                    break;
                }
            }
            // All memory is in use by other parts.
            drop(part);
            let other = (0..self.parts.len()).find(|other| self.forget_oldest(&mut self.lock(*other)));
            if other.is_none() {
                return Updated::Full;
            }
        }
    }

    fn forget_oldest(&self, part: &mut Part<V>) -> bool {
        let freed = part.remove_oldest();
        if let Some(cost) = freed {
            self.memory.release(cost);
        }
        freed.is_some()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        (0..self.parts.len()).map(|index| self.lock(index).places.len()).sum()
    }
}

impl<V: Copy> Part<V> {
    fn new(hasher: RandomState) -> Part<V> {
        let places = HashMap::with_hasher(hasher);
        Part { places, slots: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }

    fn oldest(&self) -> Option<&V> {
        self.slots.get(self.oldest as usize).map(|slot| &slot.value)
    }

    fn unlink(&mut self, place: u32) {
        let (newer, older) = (self.slots[place as usize].newer, self.slots[place as usize].older);
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: u32) {
        let second = self.newest;
        let slot = &mut self.slots[place as usize];
        (slot.newer, slot.older) = (NONE, second);
        match self.slots.get_mut(second as usize) {
            Some(slot) => slot.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }

    fn touch(&mut self, place: u32) {
        if self.newest != place {
            self.unlink(place);
            self.link_newest(place);
        }
    }

    fn insert(&mut self, key: &[u8], value: V, cost: usize) {
        let key: Arc<[u8]> = key.into();
        let slot = Slot { key: Arc::clone(&key), value, cost, newer: NONE, older: NONE };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.places.insert(key, place);
        self.link_newest(place);
    }

    /// Removes the oldest state and tells what it cost.
    fn remove_oldest(&mut self) -> Option<usize> {
        let place = self.oldest;
        let slot = self.slots.get_mut(place as usize)?;
        let key = std::mem::take(&mut slot.key);
        let cost = slot.cost;
        self.places.remove(&key);
        self.unlink(place);
        self.free.push(place);
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_small_zone_forgets_what_was_unused_for_longest() {
        let table: Table<u32> = Table::new(32 * 1024, 80);
        assert_eq!(table.parts.len(), 1);
        let states = table.memory.capacity() / 128;
        let put = |key: usize| table.update(&key.to_be_bytes(), 0, |_| false, |_| ());
        for key in 0..states {
            assert_eq!(put(key), Updated::New);
        }
        assert_eq!(put(0), Updated::Old(()));
        assert_eq!(put(states), Updated::New);
        assert_eq!(table.find(&1_usize.to_be_bytes()), None);
        assert_eq!(table.find(&0_usize.to_be_bytes()), Some(0));
        assert_eq!(table.len(), states);
    }

    #[test]
    fn a_hundred_thousand_keys_fit_into_a_megabyte() {
        let table: Table<u64> = Table::new(1 << 20, 80);
        for key in 0..100_000_u32 {
            table.update(&key.to_be_bytes(), 0, |_| false, |_| ());
        }
        assert_eq!(table.len(), table.memory.capacity() / 128);
        let slots: usize = (0..table.parts.len()).map(|index| table.lock(index).slots.len()).sum();
        // A part may once have had more than its share.
        assert!(slots < table.len() * 3 / 2);
        assert!(table.memory.used() <= 1 << 20);
    }

    #[test]
    fn a_key_that_never_fits() {
        let table: Table<u32> = Table::new(32 * 1024, 80);
        assert_eq!(table.update(&[0; 60_000], 0, |_| false, |_| ()), Updated::Full);
        assert_eq!(table.update(b"a", 0, |_| false, |_| ()), Updated::New);
    }

    #[test]
    fn stale_states_make_room() {
        let table: Table<u32> = Table::new(32 * 1024, 80);
        for key in 0..10_u32 {
            table.update(&key.to_be_bytes(), key, |_| false, |_| ());
        }
        table.update(b"new", 100, |age| *age < 1, |_| ());
        assert_eq!((table.len(), table.find(&0_u32.to_be_bytes())), (10, None));
    }

    proptest! {
        /// One part is an exact list by last use.
        #[test]
        fn agrees_with_a_list(keys in proptest::collection::vec(0_u16..400, 1..2000)) {
            let table: Table<u32> = Table::new(32 * 1024, 80);
            let states = table.memory.capacity() / 128;
            let mut list: VecDeque<(u16, u32)> = VecDeque::new();
            for key in keys {
                let count = match list.iter().position(|(known, _)| *known == key) {
                    Some(at) => list.remove(at).map_or(0, |(_, count)| count + 1),
                    None => 0,
                };
                if list.len() == states {
                    list.pop_front();
                }
                list.push_back((key, count));
                let updated = table.update(&key.to_be_bytes(), 0, |_| false, |count| { *count += 1; *count });
                prop_assert_eq!(updated, if count == 0 { Updated::New } else { Updated::Old(count) });
            }
            prop_assert_eq!(table.len(), list.len());
        }
    }
}
