//! The sessions of datagrams by their client, on one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// A session's client, and the address that it sends to. Clients choose the former, so the hash is a keyed one.
pub type Key = (SocketAddr, SocketAddr);

/// The table keeps its memory up to this number of places.
const KEPT: usize = 1024;

/// The sessions that take datagrams.
pub struct Table<S>(RefCell<HashMap<Key, Rc<S>>>);

impl<S> Default for Table<S> {
    fn default() -> Table<S> {
        Table(RefCell::default())
    }
}

impl<S> Table<S> {
    /// The session of a client.
    pub fn find(&self, key: &Key) -> Option<Rc<S>> {
        self.0.borrow().get(key).cloned()
    }

    /// A session that has begun.
    pub fn insert(&self, key: Key, session: &Rc<S>) {
        self.0.borrow_mut().insert(key, Rc::clone(session));
    }

    /// A session takes no more datagrams. Its client may have another one meanwhile, which stays.
    pub fn remove(&self, key: &Key, session: &S) {
        let mut sessions = self.0.borrow_mut();
        if sessions.get(key).is_some_and(|current| std::ptr::eq(&raw const **current, session)) {
            sessions.remove(key);
            // After a peak.
            if sessions.capacity() > KEPT && sessions.len() < sessions.capacity() / 8 {
                let enough = sessions.len() * 2;
                sessions.shrink_to(enough);
            }
        }
    }
}
