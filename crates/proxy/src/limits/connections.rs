//! A zone of `limit_conn`. Its states end with their connections, so none is ever forgotten for another.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use balanza_config::model::{self, Level, Limits};
use balanza_config::template::Template;

use super::counts::Counts;
use super::memory::{Memory, cost, parts};

/// Keys are at most so long.
pub const LONGEST_CONNECTION_KEY: usize = 255;
/// Bytes of a state in NGINX, without its key.
const STATE: usize = 36;

type Part = HashMap<Box<[u8]>, u32, RandomState>;

/// A zone in one configuration.
pub struct ConnectionZone {
    /// Its name.
    pub name: String,
    /// What connections are counted by.
    pub key: Template,
    states: Arc<States>,
}

/// What is kept over reloads, and by connections.
struct States {
    size: u64,
    key: String,
    parts: Box<[Mutex<Part>]>,
    hasher: RandomState,
    memory: Memory,
    counts: Counts,
}

/// A connection that counts, until this is dropped.
pub struct Place {
    states: Arc<States>,
    key: Box<[u8]>,
}

/// Why a connection has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// Its key has as many as it may have.
    Limited,
    /// There is no memory for the key.
    Full,
}

impl NoPlace {
    /// What the log says of a connection without a place in this zone, and at which level.
    pub fn describe(self, limits: &Limits, zone: &str) -> (Level, String) {
        match self {
            NoPlace::Limited => {
                let dry = if limits.connection_dry_run { ", dry run," } else { "" };
                (limits.connection_level, format!("limiting connections{dry} by zone \"{zone}\""))
            }
            NoPlace::Full => (Level::Crit, format!("ngx_slab_alloc() failed: no memory in limit_conn_zone \"{zone}\"")),
        }
    }
}

impl ConnectionZone {
    /// A zone with the states that it had in the configuration before.
    ///
    /// # Errors
    /// It had another key.
    pub fn new(conf: &model::ConnectionZone, before: Option<&ConnectionZone>) -> anyhow::Result<ConnectionZone> {
        let kept = before.map(|before| &before.states).filter(|states| states.size == conf.size);
        if let Some(states) = kept
            && states.key != conf.key_text
        {
            let (name, key, was) = (&conf.name, &conf.key_text, &states.key);
            let message = format!("limit_conn_zone \"{name}\" uses the \"{key}\" key");
            anyhow::bail!("{message} while previously it used the \"{was}\" key");
        }
        let states = kept.cloned().unwrap_or_else(|| Arc::new(States::new(conf)));
        Ok(ConnectionZone { name: conf.name.clone(), key: conf.key.clone(), states })
    }

    /// Counts a connection, if its key has fewer than `most`.
    ///
    /// # Errors
    /// It has not, or there is no memory for the key.
    pub fn enter(&self, key: &[u8], most: u32) -> Result<Place, NoPlace> {
        let states = &self.states;
        let mut part = states.part(key);
        match part.get_mut(key) {
            Some(count) if *count >= most => return Err(NoPlace::Limited),
            Some(count) => *count += 1,
            None => {
                if !states.memory.reserve(cost(STATE + key.len())) {
                    return Err(NoPlace::Full);
                }
                part.insert(key.into(), 1);
            }
        }
        Ok(Place { states: Arc::clone(states), key: key.into() })
    }

    /// The key as it is written.
    pub fn key_text(&self) -> &str {
        &self.states.key
    }

    /// What was decided.
    pub fn counts(&self) -> &Counts {
        &self.states.counts
    }
}

impl States {
    fn new(conf: &model::ConnectionZone) -> States {
        let memory = Memory::new(conf.size);
        let hasher = RandomState::new();
        let part = |_| Mutex::new(HashMap::with_hasher(hasher.clone()));
        let parts = (0..parts(memory.capacity())).map(part).collect();
        States { size: conf.size, key: conf.key_text.clone(), parts, hasher, memory, counts: Counts::default() }
    }

    fn part(&self, key: &[u8]) -> MutexGuard<'_, Part> {
        let index = (self.hasher.hash_one(key) >> 32) as usize & (self.parts.len() - 1);
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut part = self.states.part(&self.key);
        if let Some(count) = part.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                part.remove(&self.key);
                self.states.memory.release(cost(STATE + self.key.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(size: u64, key: &str) -> model::ConnectionZone {
        model::ConnectionZone { name: "one".into(), size, key: Template::default(), key_text: key.into() }
    }

    #[test]
    fn a_key_has_its_places_and_gives_them_back() {
        let one = ConnectionZone::new(&zone(1 << 20, "$a"), None).unwrap();
        let first = one.enter(b"k", 2).unwrap();
        let second = one.enter(b"k", 2).unwrap();
        assert_eq!(one.enter(b"k", 2).err(), Some(NoPlace::Limited));
        assert!(one.enter(b"other", 2).is_ok());
        drop(first);
        // A reload keeps them.
        let next = ConnectionZone::new(&zone(1 << 20, "$a"), Some(&one)).unwrap();
        let third = next.enter(b"k", 2).unwrap();
        assert_eq!(one.enter(b"k", 2).err(), Some(NoPlace::Limited));
        drop((second, third));
        assert_eq!(one.states.memory.used(), 0);
        assert!(ConnectionZone::new(&zone(1 << 20, "$b"), Some(&one)).is_err());
    }

    #[test]
    fn a_full_zone_rejects_new_keys() {
        let one = ConnectionZone::new(&zone(32 * 1024, "$a"), None).unwrap();
        let places: Vec<_> = (0..1000_u32).map_while(|key| one.enter(&key.to_be_bytes(), 1).ok()).collect();
        assert_eq!(places.len(), one.states.memory.capacity() / 64);
        assert_eq!(one.enter(b"k", 1).err(), Some(NoPlace::Full));
        drop(places);
        assert!(one.enter(b"k", 1).is_ok());
    }
}
