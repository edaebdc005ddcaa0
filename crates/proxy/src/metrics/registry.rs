//! Where a reader finds what the workers count.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters that are added up over the workers.
pub trait Summed: Default {
    /// Their sum.
    type Sum: Default + Clone;

    /// Adds them to a sum.
    fn add_to(&self, sum: &mut Self::Sum);
}

/// The counters of all workers, by what they are about. Workers look theirs up when they are configured.
pub struct Registry<K, C: Summed> {
    entries: Mutex<HashMap<K, Entry<C>>>,
}

struct Entry<C: Summed> {
    /// Of workers that have ended.
    past: C::Sum,
    /// By the worker's serial number.
    workers: Vec<(u64, Arc<C>)>,
}

impl<K, C: Summed> Default for Registry<K, C> {
    fn default() -> Registry<K, C> {
        Registry { entries: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, C: Summed> Registry<K, C> {
    /// A worker's counters.
    pub fn of(&self, key: &K, worker: u64) -> Arc<C> {
        let mut entries = self.entries();
        if !entries.contains_key(key) {
            entries.insert(key.clone(), Entry { past: C::Sum::default(), workers: Vec::new() });
        }
        let Some(entry) = entries.get_mut(key) else { return Arc::default() };
        if let Some((_, counters)) = entry.workers.iter().find(|(serial, _)| *serial == worker) {
            return Arc::clone(counters);
        }
        let counters = Arc::new(C::default());
        entry.workers.push((worker, Arc::clone(&counters)));
        counters
    }

    /// The sum over the workers, those included that have ended.
    pub fn sum(&self, key: &K) -> C::Sum {
        self.entries().get(key).map(Entry::sum).unwrap_or_default()
    }

    /// Forgets what is not to be kept and is not counted any more, and adds up what workers that have ended left.
    pub fn tidy(&self, is_kept: impl Fn(&K) -> bool) {
        self.entries().retain(|key, entry| {
            let (ended, at_work): (Vec<_>, Vec<_>) = std::mem::take(&mut entry.workers)
                .into_iter()
                .partition(|(_, counters)| Arc::strong_count(counters) == 1);
            ended.iter().for_each(|(_, counters)| counters.add_to(&mut entry.past));
            entry.workers = at_work;
            !entry.workers.is_empty() || is_kept(key)
        });
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Entry<C>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Summed> Entry<C> {
    fn sum(&self) -> C::Sum {
        let mut sum = self.past.clone();
        self.workers.iter().for_each(|(_, counters)| counters.add_to(&mut sum));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConnectionMetrics, Connections};
    use super::*;

    #[test]
    fn counts_outlive_their_worker_for_as_long_as_they_are_kept() {
        let registry: Registry<&str, ConnectionMetrics> = Registry::default();
        let (first, second) = (registry.of(&"a", 1), registry.of(&"a", 2));
        first.accepted.add(2);
        second.accepted.add(3);
        registry.of(&"a", 1).accepted.add(1);
        registry.of(&"b", 1).accepted.add(1);
        drop(first);
        registry.tidy(|key| *key == "a");
        second.accepted.add(1);
        let accepted = |key| registry.sum(key).accepted;
        assert_eq!((accepted(&"a"), accepted(&"b"), accepted(&"c")), (7, 0, 0));
        registry.tidy(|_| false);
        assert_eq!(accepted(&"a"), 7, "a worker still counts");
        drop(second);
        registry.tidy(|_| false);
        assert_eq!(registry.sum(&"a"), Connections::default());
    }
}
