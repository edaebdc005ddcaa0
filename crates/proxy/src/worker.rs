//! A worker thread: its event loop, its listening sockets and its connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use anyhow::Context as _;
use balanza_balancing::Start;
use balanza_config::model::membership::Protocol;
use balanza_config::model::{Level, ListenAddress};
use balanza_http1::{RequestHead, ResponseHead};
use balanza_net::buffer;
use balanza_net::clock;
use balanza_net::event_loop::{self, TaskHandle};
use balanza_net::listening::{Listening, Peer};
use balanza_net::memory::{self, Pressure};
use balanza_net::shortage::describe;
use balanza_net::transport::{self, Transport};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::connection::{self, Connection};
use crate::essential;
use crate::exchange::Exchange;
use crate::fault;
use crate::site::{Generation, Listener, Site};
use crate::stream::{self, Session};
use crate::watchdog::Pulse;

/// How often idle connections to servers are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The pause in accepting when no descriptors are left, as in NGINX.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// How long connections are still accepted on an address that is not in the configuration any more.
const ACCEPT_LAST: Duration = Duration::from_millis(200);

/// The last `$connection` of the process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// The number of clients that the search for an idle one checks.
const EVICTION_LOOKS: usize = 64;

/// A request's state with at least so many bytes is not reused.
const LARGE_EXCHANGE: usize = 32 * 1024;

/// The engine's commands to a worker.
pub enum Command {
    /// Run this configuration on these sockets.
    Configure(Arc<Generation>, Vec<(ListenAddress, Vec<OwnedFd>)>),
    /// The servers of this upstream have changed.
    Adopt(Arc<Generation>, Protocol, String),
    /// Write buffered log lines: the files are about to be replaced.
    FlushLogs,
    /// Stop accepting, answer one last request of each idle client if it comes in time, finish the requests in flight,
    /// end.
    Drain,
    /// End now.
    Stop,
}

/// Which worker this is.
#[derive(Clone, Copy)]
pub struct Place {
    /// 0-based.
    pub worker: usize,
    /// How many there are.
    pub workers: usize,
    /// Seed of its random numbers.
    pub seed: u64,
}

/// A worker's state. Single-threaded.
pub struct Worker {
    place: Place,
    site: RefCell<Option<Rc<Site>>>,
    /// The number of `site`'s generation.
    generation: Cell<u64>,
    listeners: RefCell<HashMap<ListenAddress, Rc<Listener>>>,
    acceptors: RefCell<Vec<(ListenAddress, TaskHandle)>>,
    clients: RefCell<Vec<Option<Rc<ClientEntry>>>>,
    free_clients: RefCell<Vec<usize>>,
    /// Parses the heads of requests.
    pub request_head: RefCell<RequestHead>,
    /// Parses the heads of responses.
    pub response_head: RefCell<ResponseHead>,
    #[expect(clippy::vec_box, reason = "moved from request to request, and large")]
    exchanges: RefCell<Vec<Box<Exchange>>>,
    /// Since `Drain`: how long a client may be idle before its last request.
    draining: Cell<Option<Duration>>,
    drained: RefCell<Option<Waker>>,
    limit_logged: Cell<u64>,
    /// Where the next look for a client to evict begins.
    eviction: Cell<usize>,
}

/// A connection that was just accepted.
pub struct Arrived {
    /// The socket.
    pub socket: Transport,
    /// The client.
    pub peer: Peer,
    /// The worker's entry for it, until it is unregistered.
    pub entry: Rc<ClientEntry>,
    /// `$connection`.
    pub serial: u64,
}

/// The worker's entry for a client connection.
pub struct ClientEntry {
    index: usize,
    /// The time since which it waits for a request; 0 while a request is served.
    pub idle_since: Cell<u64>,
    /// The time since which the rest of a request's head is missing; 0 if none is.
    pub head_since: Cell<u64>,
    /// The worker drains: the next response is the last, and the client may be idle for this time before its request.
    pub drain: Cell<Option<Duration>>,
    /// Closes as soon as it is idle, because there are too many connections.
    pub evicted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl ClientEntry {
    /// Remembers the task to wake; a task's waker never changes, so this stores once.
    pub fn watch(&self, waker: &Waker) {
        let mut slot = self.waker.borrow_mut();
        if slot.is_none() {
            *slot = Some(waker.clone());
        }
    }

    /// The connection goes on in another task.
    pub fn forget_waker(&self) {
        *self.waker.borrow_mut() = None;
    }

    fn drain(&self, patience: Duration) {
        self.drain.set(Some(patience));
        self.wake();
    }

    fn evict(&self) {
        self.evicted.set(true);
        self.wake();
    }

    fn wake(&self) {
        if self.idle_since.get() | self.head_since.get() != 0
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }
}

/// Runs a worker until it is told to end and, when draining, has nothing left to do.
///
/// # Errors
/// No event loop could be made, or it failed.
pub fn run(place: Place, commands: UnboundedReceiver<Command>, pulse: Arc<Pulse>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .context("cannot create an event loop")?;
    let main = essential::task("a worker thread", Worker::new(place).obey(commands, pulse));
    let ran = runtime.block_on(event_loop::run(main)).context("the event loop failed");
    drop(runtime);
    buffer::release();
    memory::settle();
    ran
}

impl Worker {
    /// A worker without a configuration.
    pub fn new(place: Place) -> Rc<Worker> {
        Rc::new(Worker {
            place,
            site: RefCell::default(),
            generation: Cell::new(0),
            listeners: RefCell::default(),
            acceptors: RefCell::default(),
            clients: RefCell::default(),
            free_clients: RefCell::default(),
            request_head: RefCell::default(),
            response_head: RefCell::default(),
            exchanges: RefCell::default(),
            draining: Cell::new(None),
            drained: RefCell::default(),
            limit_logged: Cell::new(0),
            eviction: Cell::new(0),
        })
    }

    async fn obey(self: Rc<Self>, mut commands: UnboundedReceiver<Command>, pulse: Arc<Pulse>) {
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Configure(generation, sockets)) => self.configure(&generation, sockets),
                    Some(Command::Adopt(generation, protocol, upstream)) => {
                        self.adopt(&generation, protocol, &upstream);
                    }
                    Some(Command::FlushLogs) => self.with_site(Site::flush_access_logs),
                    Some(Command::Drain) => self.drain(),
                    Some(Command::Stop) | None => break,
                },
                _ = sweep.tick() => {
                    fault::point("sweep");
                    pulse.beat();
                    self.tidy();
                }
                () = self.all_clients_gone() => break,
            }
        }
        self.with_site(Site::flush_access_logs);
    }

    /// The work of each second: closes connections that were idle for too long, and frees memory after a peak.
    pub fn tidy(&self) {
        self.with_site(Site::sweep_idle_connections);
        buffer::trim();
        let mut exchanges = self.exchanges.borrow_mut();
        let half = exchanges.len() / 2;
        exchanges.truncate(half);
        if self.place.worker == 0 {
            memory::tick();
        }
    }

    fn with_site(&self, act: impl FnOnce(&Site)) {
        if let Some(site) = &*self.site.borrow() {
            act(site);
        }
    }

    /// Runs this configuration on these sockets from now on.
    pub fn configure(self: &Rc<Self>, generation: &Arc<Generation>, sockets: Vec<(ListenAddress, Vec<OwnedFd>)>) {
        fault::point("command");
        let start = Start { worker: self.place.worker, workers: self.place.workers };
        let site = Rc::new(Site::new(generation, self.site.borrow().as_deref(), start, self.place.seed));
        let mut listeners = HashMap::new();
        for (address, acceptor) in self.acceptors.take() {
            if sockets.iter().any(|(stays, _)| *stays == address) {
                // The socket or its queue stays the same, so no connection is lost when the acceptor ends.
                acceptor.abort();
            } else {
                event_loop::spawn(end_later(acceptor));
            }
        }
        for (address, fds) in sockets {
            if let Some(index) = site.config.http.listens.iter().position(|listen| listen.address == address) {
                let listener = Rc::new(Listener { address: address.clone(), site: Rc::clone(&site), index });
                listeners.insert(address.clone(), Rc::clone(&listener));
                let nodelay = listener.conf().groups.iter().all(|group| group.default_server.root.settings.tcp_nodelay);
                self.listen(&site, &address, fds, nodelay, move |worker, arrived| {
                    connection::serve(Connection::new(worker, arrived, Rc::clone(&listener)))
                });
            } else if let Some(index) = site.config.stream.listens.iter().position(|listen| listen.address == address) {
                let door = Rc::new(stream::Door { site: Rc::clone(&site), index });
                let nodelay = door.conf().servers.iter().all(|(_, server)| server.tcp_nodelay);
                self.listen(&site, &address, fds, nodelay, move |worker, arrived| {
                    stream::serve(Session::new(worker, arrived, Rc::clone(&door)))
                });
            }
        }
        // Objects kept for reuse would keep the old configuration.
        self.exchanges.borrow_mut().clear();
        if let Some(old) = &*self.site.borrow() {
            old.leave_to(&site);
        }
        *self.listeners.borrow_mut() = listeners;
        self.generation.set(site.number);
        *self.site.borrow_mut() = Some(site);
    }

    /// The servers of this upstream have changed.
    pub fn adopt(&self, generation: &Generation, protocol: Protocol, upstream: &str) {
        if let Some(shared) = generation.upstream(protocol, upstream) {
            self.with_site(|site| site.adopt(shared));
        }
    }

    fn drain(&self) {
        let site = self.site.borrow().clone();
        let patience = site.map_or(Duration::ZERO, |site| site.config.core.worker_drain_timeout);
        self.draining.set(Some(patience));
        for (_, acceptor) in self.acceptors.take() {
            acceptor.abort();
        }
        for client in self.clients.borrow().iter().flatten() {
            client.drain(patience);
        }
        if let Some(waker) = self.drained.take() {
            waker.wake();
        }
    }

    async fn all_clients_gone(&self) {
        std::future::poll_fn(|cx| {
            if self.is_draining() && self.free_clients.borrow().len() == self.clients.borrow().len() {
                return std::task::Poll::Ready(());
            }
            *self.drained.borrow_mut() = Some(cx.waker().clone());
            std::task::Poll::Pending
        })
        .await;
    }

    /// Whether no connection is to be kept alive any more.
    pub fn is_draining(&self) -> bool {
        self.draining.get().is_some()
    }

    /// The configuration that new requests get on a connection that came by `listener`; the connection's own
    /// when the address is not listened on any more.
    pub fn current(&self, listener: &Rc<Listener>) -> Option<Rc<Listener>> {
        if self.is_newest(listener) {
            return None;
        }
        self.listeners.borrow().get(&listener.address).cloned()
    }

    /// Whether `listener`'s address is still listened on.
    pub fn listens_on(&self, listener: &Listener) -> bool {
        self.is_newest(listener) || self.listeners.borrow().contains_key(&listener.address)
    }

    fn is_newest(&self, listener: &Listener) -> bool {
        self.generation.get() == listener.site.number
    }

    /// Accepts on these sockets; `serve` makes a task of what arrives.
    fn listen<S: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        site: &Rc<Site>,
        address: &ListenAddress,
        sockets: Vec<OwnedFd>,
        nodelay: bool,
        serve: impl Fn(Rc<Worker>, Arrived) -> S + Clone + 'static,
    ) {
        let is_unix = matches!(address, ListenAddress::Unix(_));
        for socket in sockets {
            let socket = match Listening::new(socket, nodelay && !is_unix) {
                Ok(socket) => socket,
                Err(error) => {
                    site.errors().write(Level::Alert, format_args!("cannot watch a listening socket: {error}"));
                    continue;
                }
            };
            let accept = Rc::clone(self).accept(socket, Rc::clone(site), nodelay || is_unix, serve.clone());
            let acceptor = event_loop::spawn(essential::task("an acceptor", accept));
            self.acceptors.borrow_mut().push((address.clone(), acceptor));
        }
    }

    async fn accept<S: Future<Output = ()> + 'static>(
        self: Rc<Self>,
        socket: Listening,
        site: Rc<Site>,
        nodelay: bool,
        serve: impl Fn(Rc<Worker>, Arrived) -> S,
    ) {
        loop {
            match socket.accept().await {
                Ok((fd, peer)) => {
                    fault::point("acceptor");
                    if let Some(arrived) = self.welcome(|| Transport::new(fd, nodelay), peer, &site) {
                        event_loop::spawn(serve(Rc::clone(&self), arrived));
                    }
                }
                Err(error) => {
                    let error = describe(&error);
                    site.errors().write(Level::Crit, format_args!("accept4() failed {error}"));
                    // Closing an idle connection frees a descriptor for the one that waits to be accepted.
                    let _ = site.close_idle_connection() || self.evict_idle_client();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a client that has connected to this address, without a listening socket.
    #[cfg(test)]
    pub fn serve_client(self: &Rc<Self>, address: &ListenAddress, peer: Peer, connect: impl FnOnce() -> Transport) {
        let listener = Rc::clone(&self.listeners.borrow()[address]);
        if let Some(arrived) = self.welcome(connect, peer, &listener.site) {
            event_loop::spawn(connection::serve(Connection::new(Rc::clone(self), arrived, listener)));
        }
    }

    fn welcome(&self, socket: impl FnOnce() -> Transport, peer: Peer, site: &Site) -> Option<Arrived> {
        if !self.make_room(site) || !self.make_memory(site) {
            return None;
        }
        let socket = socket();
        let entry = self.register_client();
        let serial = SERIAL.fetch_add(1, Relaxed) + 1;
        Some(Arrived { socket, peer, entry, serial })
    }

    /// Enforces `worker_connections`: at the limit an idle connection is closed, or the new one is refused.
    pub fn make_room(&self, site: &Site) -> bool {
        let limit = site.config.core.worker_connections;
        if transport::open_connections() < limit {
            return true;
        }
        let second = clock::wall().as_secs();
        if self.limit_logged.replace(second) != second {
            site.errors().write(Level::Alert, format_args!("{limit} worker_connections are not enough"));
        }
        site.close_idle_connection() || self.evict_idle_client()
    }

    /// Closes the client idle for longest among some; false when none is idle.
    fn evict_idle_client(&self) -> bool {
        self.evict(|client| client.idle_since.get())
    }

    /// Closes the client that has been waiting for longest among some; false when none waits.
    fn evict(&self, since: impl Fn(&ClientEntry) -> u64) -> bool {
        // Checking some of them is enough; the next search continues behind them.
        let clients = self.clients.borrow();
        let begin = self.eviction.get() % clients.len().max(1);
        self.eviction.set(begin + EVICTION_LOOKS);
        let idlest = clients[begin..]
            .iter()
            .chain(&clients[..begin])
            .take(EVICTION_LOOKS)
            .flatten()
            .filter(|client| since(client) != 0 && !client.evicted.get())
            .min_by_key(|client| since(client));
        if let Some(client) = idlest {
            client.evict();
        }
        idlest.is_some()
    }

    /// Enforces `worker_memory`: at the limit a waiting client is closed for each new one, first the one that has been
    /// sending a request's head for longest, because it holds the most memory. False when there is no memory for
    /// another request.
    pub fn make_memory(&self, site: &Site) -> bool {
        let pressure = memory::pressure();
        if pressure == Pressure::None {
            return true;
        }
        self.alert_of_memory(site);
        let made = self.evict(|client| client.head_since.get()) || self.evict_idle_client();
        // Without clients nothing can be closed: the memory belongs to the configuration or will be freed soon.
        let alone = self.free_clients.borrow().len() == self.clients.borrow().len();
        (made || alone) && pressure < Pressure::Requests
    }

    /// Logs that memory is short, once a second.
    pub fn alert_of_memory(&self, site: &Site) {
        if memory::alert_is_due(clock::wall().as_secs()) {
            let state = memory::State;
            site.errors().write(Level::Alert, format_args!("worker_memory is not enough: {state}, refusing requests"));
        }
    }

    fn register_client(&self) -> Rc<ClientEntry> {
        let mut clients = self.clients.borrow_mut();
        let index = self.free_clients.borrow_mut().pop().unwrap_or_else(|| {
            clients.push(None);
            clients.len() - 1
        });
        let entry = Rc::new(ClientEntry {
            index,
            idle_since: Cell::new(0),
            drain: Cell::new(self.draining.get()),
            head_since: Cell::new(0),
            evicted: Cell::new(false),
            waker: RefCell::default(),
        });
        clients[index] = Some(Rc::clone(&entry));
        entry
    }

    /// Removes a client that has disconnected.
    pub fn unregister_client(&self, entry: &ClientEntry) {
        self.clients.borrow_mut()[entry.index] = None;
        self.free_clients.borrow_mut().push(entry.index);
        if self.is_draining()
            && let Some(waker) = self.drained.take()
        {
            waker.wake();
        }
    }

    /// State for a request, reused from an earlier one.
    pub fn take_exchange(&self) -> Box<Exchange> {
        self.exchanges.borrow_mut().pop().unwrap_or_else(Exchange::boxed)
    }

    /// Returns the state of a finished request for reuse.
    pub fn put_back_exchange(&self, mut exchange: Box<Exchange>) {
        let mut kept = self.exchanges.borrow_mut();
        let current = exchange.belongs_to(self.generation.get());
        if current && kept.len() < 256 && exchange.texts() < LARGE_EXCHANGE {
            exchange.clear();
            kept.push(exchange);
        }
    }
}

/// Ends the acceptor of an address that is not listened on any more, after connections under way have been accepted.
async fn end_later(acceptor: TaskHandle) {
    tokio::time::sleep(ACCEPT_LAST).await;
    acceptor.abort();
}
