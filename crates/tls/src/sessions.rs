//! `ssl_session_cache`: sessions that the server keeps, for clients without tickets.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

use rustls::server::StoresServerSessions;

use crate::tickets::Scope;

/// Sessions that fit into a megabyte of a cache, as NGINX's documentation says.
const PER_MEGABYTE: usize = 4000;
/// Parts with a lock each.
const SHARDS: usize = 16;

/// By name and size.
type Caches = HashMap<(String, u64), Weak<SessionCache>>;

/// Sessions of all workers, in memory. When there are too many, the oldest goes.
#[derive(Debug)]
pub struct SessionCache {
    shards: Vec<Mutex<Shard>>,
    most: usize,
}

#[derive(Debug, Default)]
struct Shard {
    sessions: HashMap<Vec<u8>, Session>,
    /// By age.
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

#[derive(Debug)]
struct Session {
    value: Vec<u8>,
    number: u64,
    ends: Instant,
}

impl Drop for Session {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.value);
    }
}

impl Shard {
    fn remove(&mut self, key: &[u8]) -> Option<Session> {
        let session = self.sessions.remove(key)?;
        self.order.remove(&session.number);
        Some(session)
    }
}

impl SessionCache {
    fn new(bytes: u64) -> SessionCache {
        let sessions = usize::try_from(bytes).unwrap_or(usize::MAX) / (1024 * 1024 / PER_MEGABYTE);
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        SessionCache { shards, most: (sessions / SHARDS).max(1) }
    }

    /// The cache of this name. It outlives a reload while its size stays the same.
    pub fn named(name: &str, bytes: u64) -> Arc<SessionCache> {
        static CACHES: LazyLock<Mutex<Caches>> = LazyLock::new(Mutex::default);
        let Ok(mut caches) = CACHES.lock() else { return Arc::new(SessionCache::new(bytes)) };
        caches.retain(|_, cache| cache.strong_count() > 0);
        let key = (name.to_string(), bytes);
        if let Some(cache) = caches.get(&key).and_then(Weak::upgrade) {
            return cache;
        }
        let cache = Arc::new(SessionCache::new(bytes));
        caches.insert(key, Arc::downgrade(&cache));
        cache
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[usize::from(key.last().copied().unwrap_or(0)) % SHARDS]
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>, ends: Instant) -> bool {
        let Ok(mut shard) = self.shard(&key).lock() else { return false };
        shard.remove(&key);
        while shard.sessions.len() >= self.most {
            let Some((_, oldest)) = shard.order.pop_first() else { break };
            shard.sessions.remove(&oldest);
        }
        let number = shard.next;
        shard.next += 1;
        shard.order.insert(number, key.clone());
        shard.sessions.insert(key, Session { value, number, ends });
        true
    }

    fn get(&self, key: &[u8], remove: bool) -> Option<Vec<u8>> {
        let mut shard = self.shard(key).lock().ok()?;
        let session = shard.sessions.get(key)?;
        let value = (Instant::now() < session.ends).then(|| session.value.clone());
        if remove || value.is_none() {
            shard.remove(key);
        }
        value
    }
}

/// The sessions of one context in a cache that several share.
#[derive(Debug)]
pub struct ScopedSessions {
    /// Where they are.
    pub cache: Arc<SessionCache>,
    /// What they belong to.
    pub scope: Scope,
    /// `ssl_session_timeout`.
    pub lifetime: Duration,
}

impl ScopedSessions {
    fn key(&self, id: &[u8]) -> Vec<u8> {
        [self.scope.as_slice(), id].concat()
    }
}

impl StoresServerSessions for ScopedSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.cache.put(self.key(&key), value, Instant::now() + self.lifetime)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(&self.key(key), false)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(&self.key(key), true)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(cache: &Arc<SessionCache>, scope: u8, lifetime: Duration) -> ScopedSessions {
        ScopedSessions { cache: Arc::clone(cache), scope: [scope; 32], lifetime }
    }

    #[test]
    fn sessions_are_kept_for_a_time_and_a_scope() {
        let cache = SessionCache::named("kept", 1 << 20);
        let hour = Duration::from_secs(3600);
        let one = sessions(&cache, 1, hour);
        assert!(one.put(b"id".to_vec(), b"value".to_vec()));
        assert_eq!(one.get(b"id").unwrap(), b"value");
        assert_eq!(sessions(&cache, 2, hour).get(b"id"), None);
        assert_eq!(one.take(b"id").unwrap(), b"value");
        assert_eq!(one.get(b"id"), None);
        let short = sessions(&cache, 1, Duration::ZERO);
        short.put(b"id".to_vec(), b"value".to_vec());
        assert_eq!(short.get(b"id"), None);
        assert!(Arc::ptr_eq(&cache, &SessionCache::named("kept", 1 << 20)), "the same after a reload");
        assert!(!Arc::ptr_eq(&cache, &SessionCache::named("kept", 2 << 20)));
    }

    #[test]
    fn the_oldest_sessions_go() {
        let cache = SessionCache::named("full", 64 * 1024);
        let one = sessions(&cache, 1, Duration::from_secs(3600));
        let most = cache.most * SHARDS;
        let id = |number: usize| [(number / SHARDS).to_le_bytes().as_slice(), &[(number % SHARDS) as u8]].concat();
        for number in 0..2 * most {
            one.put(id(number), vec![1]);
        }
        let kept: Vec<usize> = (0..2 * most).filter(|number| one.get(&id(*number)).is_some()).collect();
        assert_eq!(kept, (most..2 * most).collect::<Vec<_>>());
    }
}
