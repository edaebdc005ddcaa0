//! Measures a connection's peer: whether it reads, and how much of what it sends is content.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use balanza_net::buffer::CAPACITY;
use balanza_net::clock::{self, Nanos};
use balanza_net::transport::Transport;

/// Bytes that are read in one turn. The limit keeps other connections of the worker from waiting.
const TURN: usize = 4 * CAPACITY;

/// Measurements of a connection's peer.
#[derive(Default)]
pub(crate) struct Meter {
    /// Since when the peer has read nothing although data was waiting; 0 while it reads.
    stalled_since: Cell<Nanos>,
    /// Bytes that the peer has sent.
    received: Cell<u64>,
    /// Bytes that may still be read in this turn.
    budget: Cell<usize>,
    /// Bytes of content: heads and bodies.
    useful: Cell<u64>,
}

impl Meter {
    /// When the peer will have read nothing for `patience`, if it has stopped reading.
    pub(crate) fn stalls_until(&self, patience: Nanos) -> Option<Nanos> {
        let since = self.stalled_since.get();
        (since != 0).then(|| since.saturating_add(patience))
    }

    /// Sends bytes to the peer, and notes whether it reads.
    pub(crate) fn poll_send(
        &self,
        transport: &Transport,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = transport.poll_send(cx, &[IoSlice::new(bytes)], false);
        if sent.is_ready() {
            self.stalled_since.set(0);
        } else if self.stalled_since.get() == 0 {
            self.stalled_since.set(clock::now());
        }
        sent
    }

    /// Begins a turn, in which `TURN` bytes may be read.
    pub(crate) fn begin_turn(&self) {
        self.budget.set(TURN);
    }

    /// Whether more may be read in this turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.budget.get() > 0
    }

    /// Counts bytes that have been read.
    pub(crate) fn receive(&self, count: usize) {
        self.received.set(self.received.get() + count as u64);
        self.budget.set(self.budget.get().saturating_sub(count));
    }

    /// Counts bytes of content.
    pub(crate) fn use_bytes(&self, count: usize) {
        self.useful.set(self.useful.get() + count as u64);
    }

    /// Bytes that the peer has sent.
    pub(crate) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Whether most of what the peer sends is frames without content, by NGINX's rule.
    pub(crate) fn is_flooded(&self) -> bool {
        self.received.get() / 8 > self.useful.get() + (1 << 20)
    }
}
