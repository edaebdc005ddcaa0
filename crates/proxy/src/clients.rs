//! The clients that are connected to a worker, and how many of them it can have.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use balanza_config::model::Level;
use balanza_net::clock::{self, Nanos};
use balanza_net::memory::{self, Pressure};
use balanza_net::transport;

use crate::metrics::{ConnectionMetrics, Counter};
use crate::running_config::RunningConfig;

/// The number of clients that the search for an idle one checks.
const EVICTION_LOOKS: usize = 64;

/// The clients of a worker.
#[derive(Default)]
pub struct Clients {
    /// What is counted of them.
    pub metrics: Arc<ConnectionMetrics>,
    entries: RefCell<Vec<Option<Rc<ClientEntry>>>>,
    /// Indices of `entries` that are not in use.
    free: RefCell<Vec<u32>>,
    /// Since `drain`: how long a client may be idle before its last request.
    draining: Cell<Option<Duration>>,
    drained: RefCell<Option<Waker>>,
    limit_logged: Cell<u64>,
    /// Where the next look for a client to evict begins.
    eviction: Cell<usize>,
}

/// The worker's entry for a client connection.
pub struct ClientEntry {
    index: u32,
    awaits: Cell<Awaits>,
    /// Since when.
    since: Cell<Nanos>,
    /// Closes as soon as it is idle, because there are too many connections.
    pub evicted: Cell<bool>,
    /// It serves several requests at once, so that it can be told something at any time.
    pub multiplexed: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// What a client is to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// Nothing, or what belongs to a request that is served.
    Nothing,
    /// A request.
    Request,
    /// The rest of a request's head.
    Head,
}

impl ClientEntry {
    /// Remembers the task to wake; a task's waker never changes, so the first is kept.
    pub fn watch(&self, waker: &Waker) {
        let known = self.waker.take();
        self.waker.set(Some(known.unwrap_or_else(|| waker.clone())));
    }

    /// The connection goes on in another task.
    pub fn forget_waker(&self) {
        self.waker.set(None);
    }

    fn evict(&self) {
        self.evicted.set(true);
        self.wake();
    }

    fn wake(&self) {
        if (self.multiplexed.get() || self.awaits.get() != Awaits::Nothing)
            && let Some(waker) = self.waker.take()
        {
            waker.wake_by_ref();
            self.waker.set(Some(waker));
        }
    }
}

impl Clients {
    /// None yet; they are counted here.
    pub fn new(metrics: Arc<ConnectionMetrics>) -> Clients {
        Clients { metrics, ..Clients::default() }
    }

    /// Answers one last request of each idle client if it comes within this time, and finishes the requests in flight.
    pub fn drain(&self, patience: Duration) {
        self.draining.set(Some(patience));
        for client in self.entries.borrow().iter().flatten() {
            client.wake();
        }
        if let Some(waker) = self.drained.take() {
            waker.wake();
        }
    }

    /// Whether no connection is to be kept alive any more.
    pub fn is_draining(&self) -> bool {
        self.draining.get().is_some()
    }

    /// While the worker drains: the next response to a client is the last, and it may be idle for this time before its request.
    pub fn last_wait(&self) -> Option<Duration> {
        self.draining.get()
    }

    /// Waits until the clients drain and the last one has disconnected.
    pub async fn all_gone(&self) {
        std::future::poll_fn(|cx| {
            if self.is_draining() && self.are_none() {
                return Poll::Ready(());
            }
            *self.drained.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn are_none(&self) -> bool {
        self.free.borrow().len() == self.entries.borrow().len()
    }

    /// Enforces `worker_connections`: at the limit an idle connection is closed, or the new one is refused.
    pub fn make_room(&self, running: &RunningConfig) -> bool {
        let limit = running.config.core.worker_connections;
        if transport::open_connections() < limit {
            return true;
        }
        let second = clock::wall().as_secs();
        if self.limit_logged.replace(second) != second {
            running.errors().write(Level::Alert, format_args!("{limit} worker_connections are not enough"));
        }
        running.close_idle_connection() || self.evict_idle()
    }

    /// Closes the client idle for longest among some; false when none is idle.
    pub fn evict_idle(&self) -> bool {
        self.evict(Awaits::Request)
    }

    /// Closes the client among some from which this has been missing for longest; false when there is none.
    fn evict(&self, awaits: Awaits) -> bool {
        // Checking some of them is enough; the next search continues behind them.
        let entries = self.entries.borrow();
        let begin = self.eviction.get() % entries.len().max(1);
        self.eviction.set(begin + EVICTION_LOOKS);
        let idlest = entries[begin..]
            .iter()
            .chain(&entries[..begin])
            .take(EVICTION_LOOKS)
            .flatten()
            .filter(|client| client.awaits.get() == awaits && !client.evicted.get())
            .min_by_key(|client| client.since.get());
        if let Some(client) = idlest {
            client.evict();
        }
        idlest.is_some()
    }

    /// Enforces `worker_memory`: at the limit a waiting client is closed for each new one, first the one that has been
    /// sending a request's head for longest, because it holds the most memory. False when there is no memory for
    /// another request.
    pub fn make_memory(&self, running: &RunningConfig) -> bool {
        let pressure = memory::pressure();
        if pressure == Pressure::None {
            return true;
        }
        self.alert_of_memory(running);
        let made = self.evict(Awaits::Head) || self.evict_idle();
        // Without clients nothing can be closed: the memory belongs to the configuration or will be freed soon.
        let alone = self.are_none();
        (made || alone) && pressure < Pressure::Requests
    }

    /// Logs that memory is short, once a second.
    pub fn alert_of_memory(&self, running: &RunningConfig) {
        if memory::alert_is_due(clock::wall().as_secs()) {
            let state = memory::State;
            running
                .errors()
                .write(Level::Alert, format_args!("worker_memory is not enough: {state}, refusing requests"));
        }
    }

    /// From now on this is missing from a client, if it was not before.
    pub fn awaits(&self, entry: &ClientEntry, what: Awaits) {
        let before = entry.awaits.replace(what);
        if before == what {
            return;
        }
        entry.since.set(clock::recent());
        if let Some(gauge) = self.gauge(before) {
            gauge.subtract(1);
        }
        if let Some(gauge) = self.gauge(what) {
            gauge.add(1);
        }
    }

    /// What counts the clients from which this is missing.
    fn gauge(&self, what: Awaits) -> Option<&Counter> {
        match what {
            Awaits::Nothing => None,
            Awaits::Request => Some(&self.metrics.idle),
            Awaits::Head => Some(&self.metrics.reading),
        }
    }

    /// Registers a client that has just connected.
    pub fn register(&self) -> Rc<ClientEntry> {
        let mut entries = self.entries.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            entries.push(None);
            (entries.len() - 1) as u32
        });
        let entry = Rc::new(ClientEntry {
            index,
            awaits: Cell::new(Awaits::Nothing),
            since: Cell::new(0),
            evicted: Cell::new(false),
            multiplexed: Cell::new(false),
            waker: Cell::default(),
        });
        entries[index as usize] = Some(Rc::clone(&entry));
        self.metrics.accepted.add(1);
        self.metrics.active.add(1);
        entry
    }

    /// Removes a client that has disconnected.
    pub fn unregister(&self, entry: &ClientEntry) {
        self.awaits(entry, Awaits::Nothing);
        self.metrics.active.subtract(1);
        self.entries.borrow_mut()[entry.index as usize] = None;
        self.free.borrow_mut().push(entry.index);
        if self.is_draining()
            && let Some(waker) = self.drained.take()
        {
            waker.wake();
        }
    }
}
