//! Answers that are kept for their time to live. The time is an argument, in milliseconds of any clock.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::Hash;

/// Answers by question, at most so many.
pub struct Cache<K, V> {
    entries: HashMap<K, Entry<V>>,
    most: usize,
}

struct Entry<V> {
    value: V,
    /// The answer holds before this time.
    until: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache.
    pub fn new(most: usize) -> Cache<K, V> {
        Cache { entries: HashMap::new(), most: most.max(1) }
    }

    /// An answer that holds now, and until when.
    pub fn get(&self, key: &K, now: u64) -> Option<(V, u64)> {
        let entry = self.entries.get(key).filter(|entry| entry.until > now)?;
        Some((entry.value.clone(), entry.until))
    }

    /// Keeps an answer until this time. If there are too many, those go that hold no longer, and then the one that
    /// would end first.
    pub fn put(&mut self, key: K, value: V, until: u64, now: u64) {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| entry.until > now);
            if self.entries.len() >= self.most
                && let Some(first) =
                    self.entries.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| key.clone())
            {
                self.entries.remove(&first);
            }
        }
        match self.entries.entry(key) {
            Place::Occupied(mut place) => {
                place.insert(Entry { value, until });
            }
            Place::Vacant(place) => {
                place.insert(Entry { value, until });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a list of all that was put in: what is found is the last answer and holds, and nothing is lost while
        /// there is room.
        #[test]
        fn what_holds_is_found(steps in prop::collection::vec((0u8..12, 0u64..40, 0u64..10), 1..200), most in 1usize..14) {
            let mut cache = Cache::new(most);
            let mut all: HashMap<u8, (usize, u64)> = HashMap::new();
            let mut now = 0;
            for (i, (key, time, pause)) in steps.into_iter().enumerate() {
                now += pause;
                cache.put(key, i, now + time, now);
                all.insert(key, (i, now + time));
                prop_assert!(cache.entries.len() <= most);
                for (key, (value, until)) in &all {
                    match cache.get(key, now) {
                        Some(found) => prop_assert!(found == (*value, *until) && *until > now),
                        None => prop_assert!(*until <= now || all.len() > most),
                    }
                }
            }
        }
    }
}
