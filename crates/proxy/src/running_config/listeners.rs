//! The listening sockets of a worker, and the configuration that serves what they accept.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use balanza_config::model::{self, ListenAddress};

use super::RunningConfig;

/// A listening socket of a worker.
pub struct Listener {
    /// The address, which finds its successor in the next configuration.
    pub address: ListenAddress,
    /// The configuration it belongs to.
    pub running: Rc<RunningConfig>,
    /// Index into `Config.http.listens`.
    pub index: usize,
}

impl Listener {
    /// Its part of the configuration.
    pub fn conf(&self) -> &model::Listen {
        &self.running.config.http.listens[self.index]
    }
}

/// The listening sockets of the newest configuration.
#[derive(Default)]
pub struct Listeners {
    /// The configuration's number.
    generation: Cell<u64>,
    by_address: RefCell<HashMap<ListenAddress, Rc<Listener>>>,
}

impl Listeners {
    /// Puts those of another configuration in their place.
    pub fn replace(&self, generation: u64, listeners: HashMap<ListenAddress, Rc<Listener>>) {
        self.generation.set(generation);
        *self.by_address.borrow_mut() = listeners;
    }

    /// The number of the newest configuration.
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// What new requests on a connection that came by `listener` are served by; none if it is the newest already or its
    /// address is not listened on any more.
    pub fn newer(&self, listener: &Listener) -> Option<Rc<Listener>> {
        if self.is_newest(listener) {
            return None;
        }
        self.by_address.borrow().get(&listener.address).cloned()
    }

    /// Whether the address of `listener` is still listened on.
    pub fn has(&self, listener: &Listener) -> bool {
        self.is_newest(listener) || self.by_address.borrow().contains_key(&listener.address)
    }

    /// The listening socket of an address.
    #[cfg(test)]
    pub fn at(&self, address: &ListenAddress) -> Rc<Listener> {
        Rc::clone(&self.by_address.borrow()[address])
    }

    fn is_newest(&self, listener: &Listener) -> bool {
        self.generation.get() == listener.running.number
    }
}
