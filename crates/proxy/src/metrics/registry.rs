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

    /// Takes away from a sum what was counted before; what is a number of things at present stays.
    fn subtract(sum: &mut Self::Sum, before: &Self::Sum);
}

/// The counters of all workers, by what they are about. Workers look theirs up when they are configured.
pub struct Registry<K, C: Summed> {
    entries: Mutex<HashMap<K, Entry<C>>>,
}

/// There may be thousands, so that what most of them do not have is behind a pointer.
struct Entry<C: Summed> {
    /// Of workers that have ended.
    past: Option<Box<C::Sum>>,
    /// What was counted before the last reset, which is not shown.
    before: Option<Box<C::Sum>>,
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
            entries.insert(key.clone(), Entry { past: None, before: None, workers: Vec::new() });
        }
        let Some(entry) = entries.get_mut(key) else { return Arc::default() };
        if let Some((_, counters)) = entry.workers.iter().find(|(serial, _)| *serial == worker) {
            return Arc::clone(counters);
        }
        let counters = Arc::new(C::default());
        entry.workers.push((worker, Arc::clone(&counters)));
        counters
    }

    /// The sum over the workers, those included that have ended, since the last reset.
    pub fn sum(&self, key: &K) -> C::Sum {
        self.entries().get(key).map(Entry::since_reset).unwrap_or_default()
    }

    /// The sums of several. The lock is never held for long: a worker that is configured waits for it.
    pub fn sums<'k>(&self, keys: impl Iterator<Item = &'k K>) -> Vec<C::Sum>
    where
        K: 'k,
    {
        let keys: Vec<&K> = keys.collect();
        let mut sums = Vec::with_capacity(keys.len());
        for part in keys.chunks(100) {
            let entries = self.entries();
            sums.extend(part.iter().map(|key| entries.get(*key).map(Entry::since_reset).unwrap_or_default()));
        }
        sums
    }

    /// What each worker has counted, by its serial number.
    pub fn of_workers(&self, key: &K) -> Vec<(u64, C::Sum)> {
        let entries = self.entries();
        let of = |(serial, counters): &(u64, Arc<C>)| {
            let mut sum = C::Sum::default();
            counters.add_to(&mut sum);
            (*serial, sum)
        };
        entries.get(key).map(|entry| entry.workers.iter().map(of).collect()).unwrap_or_default()
    }

    /// Counts from 0 again what `which` copies from the present sum, its second argument, to what is not shown, its first.
    pub fn reset(&self, key: &K, which: impl FnOnce(&mut C::Sum, C::Sum)) {
        if let Some(entry) = self.entries().get_mut(key) {
            let sum = entry.sum();
            which(entry.before.get_or_insert_default(), sum);
        }
    }

    /// Forgets what is not to be kept and is not counted any more, and adds up what workers that have ended left.
    pub fn tidy(&self, is_kept: impl Fn(&K) -> bool) {
        self.entries().retain(|key, entry| {
            let (ended, at_work): (Vec<_>, Vec<_>) = std::mem::take(&mut entry.workers)
                .into_iter()
                .partition(|(_, counters)| Arc::strong_count(counters) == 1);
            ended.iter().for_each(|(_, counters)| counters.add_to(entry.past.get_or_insert_default()));
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
        let mut sum = self.past.as_deref().cloned().unwrap_or_default();
        self.workers.iter().for_each(|(_, counters)| counters.add_to(&mut sum));
        sum
    }

    fn since_reset(&self) -> C::Sum {
        let mut sum = self.sum();
        if let Some(before) = &self.before {
            C::subtract(&mut sum, before);
        }
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
