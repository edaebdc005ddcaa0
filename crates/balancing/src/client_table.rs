//! The last value of each client: a bounded table that threads share without a lock.
//!
//! Entries live in buckets of [`WAYS`]. A word holds a tag (32 bits of the key's hash) and the value, so that a reader
//! never sees the value of another key; a second word holds when the entry was last used. A new key takes an empty or
//! expired place of its bucket, or that of the entry unused for longest. Threads that write the same bucket at once may
//! each evict another entry, but never leave two entries of one key.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

use crate::Nanos;

/// Entries of a bucket: two cache lines.
const WAYS: usize = 8;
const EMPTY: u64 = 0;

#[derive(Default)]
pub(crate) struct Entry {
    /// The tag, never 0, above the value; or [`EMPTY`].
    word: AtomicU64,
    used: AtomicU64,
}

impl Entry {
    /// It is used now: only forward, so that a thread behind in time does not age it.
    #[inline]
    pub fn touch(&self, now: Nanos) {
        if self.used.load(Relaxed) < now {
            self.used.store(now, Relaxed);
        }
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Bucket([Entry; WAYS]);

/// A bounded table from keys, known by their 64-bit hash (see [`crate::key_hash`]), to values, in which entries not
/// used for the timeout count as absent and those unused for longest make room.
///
/// Threads share it; nothing locks, waits or allocates. Its memory is 16 bytes an entry, taken when it is built. The hash
/// is all that is known of a key: of two keys alike in 32 bits and the bucket, one is taken for the other.
pub struct ClientTable {
    buckets: Box<[Bucket]>,
    timeout: Nanos,
}

impl ClientTable {
    /// A table for `entries` keys or a few more; `timeout` since the last use ends an entry.
    pub fn new(entries: usize, timeout: Nanos) -> ClientTable {
        let buckets = entries.div_ceil(WAYS).clamp(1, 1 << 28);
        ClientTable { buckets: (0..buckets).map(|_| Bucket::default()).collect(), timeout }
    }

    /// How many entries there is room for.
    pub fn capacity(&self) -> usize {
        self.buckets.len() * WAYS
    }

    /// How many entries are in use, those that have expired not counted. Looks at all of them: for reports.
    pub fn len(&self, now: Nanos) -> usize {
        self.entries().filter(|e| e.word.load(Relaxed) != EMPTY && self.alive(e, now)).count()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.buckets.iter().flat_map(|b| &b.0)
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self, now: Nanos) -> bool {
        self.len(now) == 0
    }

    /// Takes over what another table of the same size knows, with the values that `translate` makes of its own. To be
    /// called before this table is used; from a table of another size nothing is taken.
    pub(crate) fn copy(&self, other: &ClientTable, translate: impl Fn(u32) -> Option<u32>) {
        if self.buckets.len() != other.buckets.len() {
            return;
        }
        for (mine, theirs) in self.entries().zip(other.entries()) {
            let word = theirs.word.load(SeqCst);
            if let (true, Some(value)) = (word != EMPTY, translate(word as u32)) {
                mine.used.store(theirs.used.load(Relaxed), Release);
                mine.word.store(word & !u64::from(u32::MAX) | u64::from(value), SeqCst);
            }
        }
    }

    /// The bucket by the low half of the hash, the tag by the high half.
    #[inline]
    fn place(&self, hash: u64) -> (&[Entry; WAYS], u64) {
        let at = (u64::from(hash as u32) * self.buckets.len() as u64) >> 32;
        (&self.buckets[at as usize].0, (hash >> 32).max(1) << 32)
    }

    #[inline]
    fn alive(&self, entry: &Entry, now: Nanos) -> bool {
        now.saturating_sub(entry.used.load(Relaxed)) <= self.timeout
    }

    /// The value of a key; the entry counts as used now.
    #[inline]
    pub fn get(&self, now: Nanos, hash: u64) -> Option<u32> {
        let (value, entry) = self.peek(now, hash)?;
        entry.touch(now);
        Some(value)
    }

    /// The value of a key; the entry does not count as used.
    #[inline]
    pub fn look(&self, now: Nanos, hash: u64) -> Option<u32> {
        self.peek(now, hash).map(|(value, _)| value)
    }

    /// The value of a key, and its entry, which does not count as used.
    #[inline]
    pub(crate) fn peek(&self, now: Nanos, hash: u64) -> Option<(u32, &Entry)> {
        let (bucket, tag) = self.place(hash);
        // Compares all entries, because the branch for the right one cannot be predicted.
        let bit = |k: usize| u32::from(matches(bucket[k].word.load(SeqCst), tag)) << k;
        let mut found = (0..WAYS).fold(0, |found, k| found | bit(k));
        while found != 0 {
            let entry = &bucket[found.trailing_zeros() as usize % WAYS];
            let word = entry.word.load(SeqCst);
            // The same word again: the time read was that of this key.
            if matches(word, tag) && self.alive(entry, now) && entry.word.load(SeqCst) == word {
                return Some((word as u32, entry));
            }
            found &= found - 1;
        }
        None
    }

    /// Gives a key a value, used now.
    pub fn put(&self, now: Nanos, hash: u64, value: u32) {
        let (bucket, tag) = self.place(hash);
        let new = tag | u64::from(value);
        // A thread that comes between has stored an entry, so this ends; a bound keeps it short.
        for _ in 0..WAYS {
            let (entry, word) = self.place_of(bucket, tag, now);
            let known = matches(word, tag);
            if known && word == new || replace(entry, word, new) {
                if known {
                    return entry.touch(now);
                }
                entry.used.store(now, Release);
                // Of two threads that stored the same new key in different places, the later sees both and leaves one.
                bucket.iter().filter(|e| matches(e.word.load(SeqCst), tag)).skip(1).for_each(|e| clear(e, tag));
                return;
            }
        }
    }

    /// The entry of a key with its word or, if it has none, the entry that makes room: one that is empty or expired, else
    /// the one unused for longest.
    #[inline]
    fn place_of<'a>(&self, bucket: &'a [Entry; WAYS], tag: u64, now: Nanos) -> (&'a Entry, u64) {
        let (mut oldest, mut found) = (Nanos::MAX, (&bucket[0], bucket[0].word.load(SeqCst)));
        for entry in bucket {
            let word = entry.word.load(SeqCst);
            if matches(word, tag) {
                return (entry, word);
            }
            let used = if word == EMPTY || !self.alive(entry, now) { 0 } else { entry.used.load(Relaxed).max(1) };
            if used < oldest {
                (oldest, found) = (used, (entry, word));
            }
        }
        found
    }

    /// Forgets a key.
    pub fn remove(&self, hash: u64) {
        let (bucket, tag) = self.place(hash);
        bucket.iter().for_each(|e| clear(e, tag));
    }
}

#[inline]
fn matches(word: u64, tag: u64) -> bool {
    word & !u64::from(u32::MAX) == tag
}

fn replace(entry: &Entry, old: u64, new: u64) -> bool {
    entry.word.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
}

/// Empties an entry if it is that of the tag, whatever value others give it meanwhile.
fn clear(entry: &Entry, tag: u64) {
    loop {
        let word = entry.word.load(SeqCst);
        if !matches(word, tag) || replace(entry, word, EMPTY) {
            return;
        }
    }
}

impl fmt::Debug for ClientTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTable")
            .field("capacity", &self.capacity())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;

    use proptest::prelude::*;

    use super::*;
    use crate::key::{key_hash, mix};
    use crate::rng::Rng;

    const TIMEOUT: Nanos = 500;

    impl ClientTable {
        /// How often each tag of a bucket is there.
        fn tags(&self) -> Vec<BTreeMap<u64, usize>> {
            let count = |bucket: &Bucket| {
                let mut tags = BTreeMap::new();
                let words = bucket.0.iter().map(|e| e.word.load(SeqCst)).filter(|w| *w != EMPTY);
                words.for_each(|w| *tags.entry(w >> 32).or_insert(0) += 1);
                tags
            };
            self.buckets.iter().map(count).collect()
        }
    }

    proptest! {
        /// One bucket is the eight keys used last, each until the timeout.
        #[test]
        fn is_a_bounded_map(steps in prop::collection::vec((0u8..8, 0u64..14, any::<u32>(), 1u64..120), 1..300)) {
            let table = ClientTable::new(WAYS, TIMEOUT);
            // (key, value, last use), the longest unused first.
            let mut model: Vec<(u64, u32, Nanos)> = Vec::new();
            let mut now = 1;
            for (what, key, value, time) in steps {
                now += time;
                model.retain(|(_, _, used)| now - used <= TIMEOUT);
                let at = model.iter().position(|(k, ..)| *k == key);
                match what {
                    0 => {
                        table.remove(mix(key));
                        at.map(|at| model.remove(at));
                    }
                    1..=3 => {
                        let value = at.map(|at| model[at].1);
                        prop_assert_eq!(table.peek(now, mix(key)).map(|(value, _)| value), value);
                        if what == 1 {
                            continue;
                        }
                        let known = at.map(|at| model.remove(at));
                        prop_assert_eq!(table.get(now, mix(key)), known.map(|(_, value, _)| value));
                        model.extend(known.map(|(key, value, _)| (key, value, now)));
                    }
                    _ => {
                        table.put(now, mix(key), value);
                        at.map(|at| model.remove(at));
                        model.push((key, value, now));
                        if model.len() > WAYS {
                            model.remove(0);
                        }
                    }
                }
                prop_assert_eq!(table.len(now), model.len());
            }
        }
    }

    #[test]
    fn a_look_does_not_prolong_an_entry() {
        let table = ClientTable::new(WAYS, TIMEOUT);
        table.put(1, mix(1), 7);
        for now in (1..=1 + TIMEOUT).step_by(100) {
            assert_eq!(table.look(now, mix(1)), Some(7));
        }
        assert_eq!(table.look(2 + TIMEOUT, mix(1)), None);
    }

    #[test]
    fn its_memory_is_its_capacity() {
        assert_eq!(size_of::<Bucket>(), 16 * WAYS);
        let table = ClientTable::new(1_000, TIMEOUT);
        assert_eq!(table.capacity(), 1_000);
        (0..100_000u64).for_each(|k| table.put(1, key_hash(&k.to_le_bytes()), k as u32));
        // Every bucket has had many times its entries.
        assert_eq!(table.len(1), 1_000);
        assert!(table.is_empty(2 + TIMEOUT));
    }

    #[test]
    fn few_are_lost_before_it_is_full() {
        let table = ClientTable::new(65_536, TIMEOUT);
        (0..32_768u64).for_each(|k| table.put(1, key_hash(&k.to_le_bytes()), k as u32));
        let kept = (0..32_768u64).filter(|k| table.get(1, key_hash(&k.to_le_bytes())) == Some(*k as u32)).count();
        // Poisson of mean 4 exceeds 8 rarely: 0.9 % of the keys find their bucket full.
        assert!((32_300..32_768).contains(&kept), "{kept}");
    }

    #[test]
    fn threads_neither_mix_up_nor_double_keys() {
        // One bucket, so that the threads meet, and many short rounds: a double does not live long.
        let (table, barrier) = (ClientTable::new(WAYS, TIMEOUT), Barrier::new(4));
        let doubles = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (table, barrier, doubles) = (&table, &barrier, &doubles);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for now in 0..10_000 {
                        barrier.wait();
                        for _ in 0..rng.below(60) {
                            let key = rng.below(10);
                            match rng.below(8) {
                                0..=2 => table.remove(mix(key)),
                                3..=6 => table.put(now, mix(key), (key << 20 | rng.below(3)) as u32),
                                _ => {
                                    let found = table.get(now, mix(key));
                                    assert!(found.is_none_or(|v| u64::from(v >> 20) == key), "{key}: {found:?}");
                                }
                            }
                        }
                        if barrier.wait().is_leader() {
                            let double = table.tags().iter().any(|tags| tags.values().any(|n| *n > 1));
                            doubles.fetch_add(u64::from(double), SeqCst);
                        }
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!(doubles.into_inner(), 0, "of 10,000 rounds");
        // And it still works.
        for key in 0..60 {
            table.put(1_000_000, mix(key), 7);
            assert_eq!(table.get(1_000_000, mix(key)), Some(7));
        }
    }
}
