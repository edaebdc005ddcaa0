//! The pairs of `keyval_zone`: the API changes them, and all workers read them.
//!
//! A zone is kept over a reload if its name, its size and the kind of its keys are the same. The pairs of a zone with a
//! `state` are in its file too, so that they outlive the process.

mod index;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use balanza_config::model::{Config, KeyvalZone};
use balanza_net::clock;

use self::index::Index;

/// What a pair costs of its zone beside its texts, about as in NGINX.
const PAIR: u64 = 128;

/// A pair, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The value.
    pub value: Vec<u8>,
    /// When it is removed, in time since 1970.
    pub expires: Option<Duration>,
}

/// Why pairs were not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchanged {
    /// The key is there already.
    Exists,
    /// There is no such key.
    Missing,
    /// The key is none of the zone's kind.
    Format,
    /// The zone has no room for it.
    Full,
}

/// A zone.
pub struct Pairs {
    /// Its configuration.
    pub conf: KeyvalZone,
    table: Arc<RwLock<Table>>,
}

#[derive(Default)]
struct Table {
    pairs: BTreeMap<Vec<u8>, Pair>,
    index: Index,
    used: u64,
}

/// A change of one pair: another value, or the end of it.
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// The value; none removes the pair.
    pub value: Option<Vec<u8>>,
    /// For how long it holds, instead of for the zone's time.
    pub expire: Option<Duration>,
}

impl Pairs {
    fn new(conf: &KeyvalZone) -> Pairs {
        let mut table = Table { index: Index::new(conf.kind), ..Table::default() };
        for (key, pair) in conf.state.as_deref().map(state::read).unwrap_or_default() {
            // What does not fit any more is left out.
            let _ = table.insert(&key, pair, conf.size);
        }
        Pairs { conf: conf.clone(), table: Arc::new(RwLock::new(table)) }
    }

    /// The value for a key that a request has.
    pub fn find(&self, key: &[u8]) -> Option<Vec<u8>> {
        let table = self.read();
        let pair = table.pairs.get(table.index.find(&table.pairs, key)?)?;
        let expired = pair.expires.is_some_and(|expires| expires <= clock::wall());
        (!expired).then(|| pair.value.clone())
    }

    /// All pairs.
    pub fn all(&self) -> Vec<(Vec<u8>, Pair)> {
        let now = clock::wall();
        let table = self.read();
        let pairs = table.pairs.iter().filter(|(_, pair)| pair.expires.is_none_or(|expires| expires > now));
        pairs.map(|(key, pair)| (key.clone(), pair.clone())).collect()
    }

    /// Adds pairs, all or none. Returns whether the file has them too.
    ///
    /// # Errors
    /// One cannot be added.
    pub fn add(&self, changes: Vec<Change>) -> Result<io::Result<()>, Unchanged> {
        self.change(changes, |is_known| if is_known { Err(Unchanged::Exists) } else { Ok(()) })
    }

    /// Changes or removes pairs, all or none. Returns whether the file is changed too.
    ///
    /// # Errors
    /// One is not there, or has no room.
    pub fn set(&self, changes: Vec<Change>) -> Result<io::Result<()>, Unchanged> {
        self.change(changes, |is_known| if is_known { Ok(()) } else { Err(Unchanged::Missing) })
    }

    /// Removes all pairs.
    ///
    /// # Errors
    /// They are still in the file.
    pub fn clear(&self) -> io::Result<()> {
        let mut table = self.write();
        *table = Table { index: Index::new(self.conf.kind), ..Table::default() };
        self.save(&table)
    }

    fn change(
        &self,
        changes: Vec<Change>,
        allows: impl Fn(bool) -> Result<(), Unchanged>,
    ) -> Result<io::Result<()>, Unchanged> {
        let now = clock::wall();
        let mut table = self.write();
        table.expire(now);
        for change in &changes {
            allows(table.pairs.contains_key(&change.key))?;
            if !table.index.accepts(&change.key) {
                return Err(Unchanged::Format);
            }
        }
        let before: Vec<(Vec<u8>, Option<Pair>)> =
            changes.iter().map(|change| (change.key.clone(), table.pairs.get(&change.key).cloned())).collect();
        for Change { key, value, expire } in changes {
            let Some(value) = value else {
                table.remove(&key);
                continue;
            };
            let time = self.conf.timeout.map(|timeout| expire.unwrap_or(timeout));
            let pair = Pair { value, expires: time.map(|time| now + time) };
            if let Err(error) = table.insert(&key, pair, self.conf.size) {
                for (key, pair) in before {
                    table.remove(&key);
                    if let Some(pair) = pair {
                        // It was there, so it has room.
                        let _ = table.insert(&key, pair, u64::MAX);
                    }
                }
                return Err(error);
            }
        }
        Ok(self.save(&table))
    }

    fn save(&self, table: &Table) -> io::Result<()> {
        self.conf.state.as_deref().map_or(Ok(()), |path| state::write(path, &table.pairs))
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, key: &[u8], pair: Pair, size: u64) -> Result<(), Unchanged> {
        if !self.index.accepts(key) {
            return Err(Unchanged::Format);
        }
        let before = self.pairs.get(key).map_or(0, |pair| cost(key, pair));
        let used = self.used - before + cost(key, &pair);
        if used > size {
            return Err(Unchanged::Full);
        }
        self.used = used;
        if self.pairs.insert(key.to_vec(), pair).is_none() {
            self.index.add(key);
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(pair) = self.pairs.remove(key) {
            self.used -= cost(key, &pair);
            self.index.remove(key);
        }
    }

    fn expire(&mut self, now: Duration) {
        let expired = self.pairs.iter().filter(|(_, pair)| pair.expires.is_some_and(|expires| expires <= now));
        let expired: Vec<Vec<u8>> = expired.map(|(key, _)| key.clone()).collect();
        expired.iter().for_each(|key| self.remove(key));
    }
}

fn cost(key: &[u8], pair: &Pair) -> u64 {
    PAIR + key.len() as u64 + pair.value.len() as u64
}

/// The zones of a configuration, by their numbers in it.
#[derive(Default)]
pub struct Keyvals {
    /// Those of `http`.
    pub http: Vec<Arc<Pairs>>,
    /// Those of `stream`.
    pub stream: Vec<Arc<Pairs>>,
}

impl Keyvals {
    /// The zones of a configuration, with the pairs that they had in the one before.
    pub fn new(config: &Config, before: Option<&Keyvals>) -> Keyvals {
        let zones = |zones: &[KeyvalZone], before: &[Arc<Pairs>]| {
            let zone = |conf: &KeyvalZone| {
                let known = before.iter().find(|known| {
                    let known = &known.conf;
                    known.name == conf.name && known.size == conf.size && known.kind == conf.kind
                });
                match known {
                    Some(known) if known.conf == *conf => Arc::clone(known),
                    Some(known) => Arc::new(Pairs { conf: conf.clone(), table: Arc::clone(&known.table) }),
                    None => Arc::new(Pairs::new(conf)),
                }
            };
            zones.iter().map(zone).collect()
        };
        Keyvals {
            http: zones(&config.http.keyval_zones, before.map_or(&[][..], |before| &before.http)),
            stream: zones(&config.stream.keyval_zones, before.map_or(&[][..], |before| &before.stream)),
        }
    }
}

#[cfg(test)]
mod tests;
