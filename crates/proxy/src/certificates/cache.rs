//! `ssl_certificate_cache`: certificates and keys, by their files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use balanza_config::model::CertificateCache;
use balanza_net::clock::{self, Nanos};
use balanza_tls::pki_types::CertificateDer;
use balanza_tls::sign::SigningKey;

/// What a file has.
#[derive(Clone)]
pub enum Item {
    /// Certificates, the server's first.
    Chain(Arc<[CertificateDer<'static>]>),
    /// A key.
    Key(Arc<dyn SigningKey>),
}

/// What is read from a file. One file may have both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Certificates.
    Chain,
    /// A key.
    Key,
}

/// By what an item is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Its file.
    pub path: PathBuf,
}

/// What tells a file from one that was put in its place: device, inode, size, and the time of its last change.
pub type Stamp = (u64, u64, u64, i64, i64);

struct Element {
    item: Item,
    stamp: Option<Stamp>,
    /// When the file was looked at.
    checked: Nanos,
    used: Nanos,
    /// Its place in the order of use.
    turn: u64,
}

/// The items of a worker's cache.
pub struct Cache {
    max: usize,
    inactive: Nanos,
    valid: Nanos,
    elements: HashMap<Key, Element>,
    /// The one that was not used for the longest time first.
    order: BTreeMap<u64, Key>,
    turns: u64,
}

impl Cache {
    /// An empty one.
    pub fn new(conf: &CertificateCache) -> Cache {
        Cache {
            max: conf.max,
            inactive: clock::nanos(conf.inactive),
            valid: clock::nanos(conf.valid),
            elements: HashMap::new(),
            order: BTreeMap::new(),
            turns: 0,
        }
    }

    /// The item of a file, loaded if it is not known or the file is another one than before.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn get<E>(
        &mut self,
        key: Key,
        now: Nanos,
        stamp: impl Fn() -> Option<Stamp>,
        load: impl FnOnce() -> Result<Item, E>,
    ) -> Result<Item, E> {
        self.forget_unused(now);
        if let Some(mut element) = self.remove(&key) {
            let is_fresh = now.saturating_sub(element.checked) <= self.valid;
            if is_fresh || element.stamp.is_some() && stamp() == element.stamp {
                if !is_fresh {
                    element.checked = now;
                }
                let item = element.item.clone();
                self.put(key, Element { used: now, ..element });
                return Ok(item);
            }
        }
        // Before the file is read: if it is replaced meanwhile, the next look at it finds another one.
        let stamp = stamp();
        let item = load()?;
        while self.elements.len() >= self.max {
            let Some(oldest) = self.order.first_key_value().map(|(_, key)| key.clone()) else { break };
            self.remove(&oldest);
        }
        self.put(key, Element { item: item.clone(), stamp, checked: now, used: now, turn: 0 });
        Ok(item)
    }

    /// Forgets an item, so that its file is read the next time.
    pub fn forget(&mut self, key: &Key) {
        self.remove(key);
    }

    fn forget_unused(&mut self, now: Nanos) {
        while let Some((_, key)) = self.order.first_key_value() {
            let used = self.elements.get(key).map_or(0, |element| element.used);
            if now.saturating_sub(used) <= self.inactive {
                break;
            }
            let key = key.clone();
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Element> {
        let element = self.elements.remove(key)?;
        self.order.remove(&element.turn);
        Some(element)
    }

    fn put(&mut self, key: Key, element: Element) {
        self.turns += 1;
        self.order.insert(self.turns, key.clone());
        self.elements.insert(key, Element { turn: self.turns, ..element });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// A cache, the state of all files, and how often one was read.
    struct Files {
        cache: Cache,
        stamp: Cell<Option<Stamp>>,
        reads: Cell<u32>,
    }

    impl Files {
        fn new(max: usize) -> Files {
            let (inactive, valid) = (Duration::from_secs(10), Duration::from_secs(60));
            let cache = Cache::new(&CertificateCache { max, inactive, valid });
            Files { cache, stamp: Cell::new(Some((1, 1, 1, 1, 1))), reads: Cell::new(0) }
        }

        /// Whether the file was read.
        fn reads(&mut self, path: &str, kind: Kind, now: Nanos, is_good: bool) -> bool {
            let before = self.reads.get();
            let load = || {
                self.reads.set(before + 1);
                if is_good { Ok(Item::Chain(Arc::new([]))) } else { Err(()) }
            };
            let found = self.cache.get(Key { kind, path: path.into() }, now, || self.stamp.get(), load);
            assert_eq!(found.is_ok(), is_good || self.reads.get() == before);
            self.reads.get() > before
        }
    }

    #[test]
    fn a_file_is_read_again_only_if_it_is_another_one_after_its_time() {
        let mut files = Files::new(10);
        let at = |files: &mut Files, second: u64| files.reads("a", Kind::Chain, second * SECOND, true);
        assert!(at(&mut files, 0));
        files.stamp.set(Some((1, 2, 1, 1, 1)));
        let again: Vec<u64> = (1..=130).filter(|second| at(&mut files, *second)).collect();
        assert_eq!(again, [61]);
        files.stamp.set(None);
        let again: Vec<u64> = (131..=200).filter(|second| at(&mut files, *second)).collect();
        assert_eq!(again, [183], "a file that is gone is read, which fails or finds a new one");
    }

    #[test]
    fn what_cannot_be_loaded_is_not_kept() {
        let mut files = Files::new(10);
        assert!(files.reads("a", Kind::Chain, 0, false) && files.reads("a", Kind::Chain, 0, true));
        assert!(!files.reads("a", Kind::Chain, 0, false));
        assert!(files.reads("a", Kind::Key, 0, true), "another part of the file");
        // A new file that is wrong takes the place of nothing.
        files.stamp.set(Some((2, 2, 2, 2, 2)));
        for second in 1..=61 {
            files.reads("a", Kind::Chain, second * SECOND, false);
        }
        assert!(files.reads("a", Kind::Chain, 62 * SECOND, true));
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes() {
        let mut files = Files::new(2);
        let mut order = |path: &str| files.reads(path, Kind::Chain, 0, true);
        let read = ["a", "b", "a", "c", "a", "b", "c"].map(&mut order);
        assert_eq!(read, [true, true, false, true, false, true, true]);
        assert_eq!(files.cache.elements.len(), 2);
        assert_eq!(files.cache.order.len(), 2);
    }

    #[test]
    fn what_is_not_used_goes() {
        let mut files = Files::new(10);
        for path in ["a", "b", "c"] {
            files.reads(path, Kind::Chain, 0, true);
        }
        assert!(!files.reads("b", Kind::Chain, 10 * SECOND, true));
        assert!(!files.reads("b", Kind::Chain, 11 * SECOND, true));
        assert_eq!(files.cache.elements.len(), 1);
        assert!(files.reads("a", Kind::Chain, 11 * SECOND, true));
    }
}
