//! What a connection knows of its peer: whether it reads, and how much of what it sends is of use.

use std::cell::Cell;

use balanza_net::buffer::CAPACITY;
use balanza_net::clock::{self, Nanos};

/// Bytes that are read at once. What is more would keep a worker from its other connections.
const TURN: usize = 4 * CAPACITY;

/// What a connection knows of its peer.
#[derive(Default)]
pub(crate) struct Meter {
    /// Since when the peer has taken nothing although there was something; 0 while it reads.
    stalled_since: Cell<Nanos>,
    /// Bytes that it has sent.
    received: Cell<u64>,
    /// Bytes that may be read before others have their turn.
    budget: Cell<usize>,
    /// Bytes among them that were of use: heads and bodies.
    useful: Cell<u64>,
}

impl Meter {
    /// When the peer will have taken nothing for so long, if it has stopped reading.
    pub(crate) fn stalls_until(&self, patience: Nanos) -> Option<Nanos> {
        let since = self.stalled_since.get();
        (since != 0).then(|| since.saturating_add(patience))
    }

    /// The peer has taken something.
    pub(crate) fn takes(&self) {
        self.stalled_since.set(0);
    }

    /// There is something that the peer does not take.
    pub(crate) fn takes_nothing(&self) {
        if self.stalled_since.get() == 0 {
            self.stalled_since.set(clock::now());
        }
    }

    /// Begins a turn, in which so much may be read.
    pub(crate) fn begin_turn(&self) {
        self.budget.set(TURN);
    }

    /// Whether more may be read in this turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.budget.get() > 0
    }

    /// Notes bytes that have been read.
    pub(crate) fn receive(&self, count: usize) {
        self.received.set(self.received.get() + count as u64);
        self.budget.set(self.budget.get().saturating_sub(count));
    }

    /// Notes bytes of use.
    pub(crate) fn use_bytes(&self, count: usize) {
        self.useful.set(self.useful.get() + count as u64);
    }

    /// Bytes that the peer has sent.
    pub(crate) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Whether the peer sends little but frames without content: NGINX's measure.
    pub(crate) fn is_flooded(&self) -> bool {
        self.received.get() / 8 > self.useful.get() + (1 << 20)
    }
}
