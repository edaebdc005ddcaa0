//! A worker thread: its event loop, its listening sockets and its connections.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context as _;
use balanza_balancing::Start;
use balanza_config::model::membership::Protocol;
use balanza_config::model::{Level, ListenAddress};
use balanza_net::buffer;
use balanza_net::event_loop::{self, TaskHandle};
use balanza_net::listening::{Listening, Peer};
use balanza_net::memory;
use balanza_net::shortage::describe;
use balanza_net::transport::Transport;
use balanza_net::udp::port::Port;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::client::{Admitted, Arrived};
use crate::clients::{ClientEntry, Clients};
use crate::connection::{self, Connection};
use crate::essential;
use crate::exchange::Exchanges;
use crate::fault;
use crate::metrics::ConnectionMetrics;
use crate::ports::{Handed, Ports, Serve};
use crate::processors;
use crate::running_config::{Generation, Listener, RunningConfig};
use crate::servers::membership::ServerId;
use crate::stream::datagrams::{Flow, Receiver, Table};
use crate::stream::{self, Session};
use crate::thread::Thread;
use crate::watchdog::Pulse;

/// How often idle connections to servers are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The pause in accepting when no descriptors are left, as in NGINX.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// How long connections are still accepted on an address that is not in the configuration any more.
const ACCEPT_LAST: Duration = Duration::from_millis(200);

/// The last `$connection` of the process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// The engine's commands to a worker.
pub enum Command {
    /// Run this configuration on these sockets.
    Configure(Arc<Generation>, Vec<(ListenAddress, Vec<OwnedFd>)>),
    /// The servers of this upstream have changed.
    Adopt(Arc<Generation>, Protocol, String),
    /// Close the connections to this server of an upstream.
    HangUp(Protocol, String, ServerId),
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
    /// Its number among all workers that there have been.
    pub serial: u64,
    /// Seed of its random numbers.
    pub seed: u64,
}

/// A worker's state. Single-threaded.
pub struct Worker {
    place: Place,
    running: RefCell<Option<Rc<RunningConfig>>>,
    acceptors: RefCell<Vec<(ListenAddress, TaskHandle)>>,
    /// Sessions of UDP by the address that their clients send to; they outlive configurations.
    flows: RefCell<HashMap<ListenAddress, Rc<Table<Flow>>>>,
    thread: Rc<Thread>,
    exchanges: Rc<Exchanges>,
    /// Its listening sockets, for connections that `pass` hands to them.
    ports: Rc<Ports>,
}

/// Runs a worker until it is told to end and, when draining, has nothing left to do.
///
/// # Errors
/// No event loop could be made, or it failed.
pub fn run(
    place: Place,
    commands: UnboundedReceiver<Command>,
    pulse: Arc<Pulse>,
    connections: Arc<ConnectionMetrics>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .context("cannot create an event loop")?;
    let main = essential::task("a worker thread", Worker::new(place, connections).obey(commands, pulse));
    let ran = runtime.block_on(event_loop::run(main)).context("the event loop failed");
    drop(runtime);
    buffer::release();
    memory::settle();
    ran
}

impl Worker {
    /// A worker without a configuration.
    pub fn new(place: Place, connections: Arc<ConnectionMetrics>) -> Rc<Worker> {
        let clients = Clients::new(connections);
        Rc::new(Worker {
            place,
            running: RefCell::default(),
            acceptors: RefCell::default(),
            flows: RefCell::default(),
            thread: Rc::new(Thread { clients, ..Thread::default() }),
            exchanges: Rc::default(),
            ports: Rc::default(),
        })
    }

    async fn obey(self: Rc<Self>, mut commands: UnboundedReceiver<Command>, pulse: Arc<Pulse>) {
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Configure(generation, sockets)) => {
                        processors::choose(self.place.worker, &generation);
                        self.configure(&generation, sockets);
                    }
                    Some(Command::Adopt(generation, protocol, upstream)) => {
                        self.adopt(&generation, protocol, &upstream);
                    }
                    Some(Command::HangUp(protocol, upstream, server)) => {
                        self.with_running(|running| running.hang_up(protocol, &upstream, server));
                    }
                    Some(Command::FlushLogs) => self.with_running(RunningConfig::flush_access_logs),
                    Some(Command::Drain) => self.drain(),
                    Some(Command::Stop) | None => break,
                },
                _ = sweep.tick() => {
                    fault::point("sweep");
                    pulse.beat();
                    self.tidy();
                }
                () = self.thread.clients.all_gone() => break,
            }
        }
        self.with_running(RunningConfig::flush_access_logs);
        self.with_running(RunningConfig::flush_spans);
    }

    /// The work of each second: closes connections that were idle for too long, and frees memory after a peak.
    pub fn tidy(&self) {
        self.with_running(RunningConfig::sweep_idle_connections);
        buffer::trim();
        self.exchanges.trim();
        if self.place.worker == 0 {
            memory::tick();
        }
    }

    fn with_running(&self, act: impl FnOnce(&RunningConfig)) {
        if let Some(running) = &*self.running.borrow() {
            act(running);
        }
    }

    /// Runs this configuration on these sockets from now on.
    pub fn configure(self: &Rc<Self>, generation: &Arc<Generation>, sockets: Vec<(ListenAddress, Vec<OwnedFd>)>) {
        fault::point("command");
        let start = Start { worker: self.place.worker, workers: self.place.workers };
        let running = Rc::new(RunningConfig::new(
            generation,
            self.running.borrow().as_deref(),
            start,
            self.place.seed,
            self.place.serial,
        ));
        let mut listeners = HashMap::new();
        let mut ports: Vec<(usize, ListenAddress, Serve)> = Vec::new();
        for (address, acceptor) in self.acceptors.take() {
            if sockets.iter().any(|(stays, _)| *stays == address) {
                // The socket or its queue stays the same, so no connection is lost when the acceptor ends.
                acceptor.abort();
            } else {
                event_loop::spawn(end_later(acceptor));
            }
        }
        for (address, fds) in sockets {
            if let Some(index) = running.config.http.listens.iter().position(|listen| listen.address == address) {
                let listener = Rc::new(Listener { address: address.clone(), running: Rc::clone(&running), index });
                listeners.insert(address.clone(), Rc::clone(&listener));
                let nodelay = listener.conf().groups.iter().all(|group| group.default_server.root.settings.tcp_nodelay);
                let exchanges = Rc::clone(&self.exchanges);
                ports.push((index, address.clone(), self.port_of_http(&listener)));
                self.listen(&running, &address, fds, nodelay, move |thread, arrived| {
                    connection::serve(
                        Connection::new(thread, Rc::clone(&exchanges), arrived, Rc::clone(&listener)),
                        None,
                    )
                });
            } else if let Some(index) =
                running.config.stream.listens.iter().position(|listen| listen.address == address)
            {
                let (running, ports_of) = (Rc::clone(&running), Rc::downgrade(&self.ports));
                let listener = Rc::new(stream::StreamListener { running: Rc::clone(&running), index, ports: ports_of });
                if matches!(address, ListenAddress::Udp(_)) {
                    self.receive(&address, fds, &listener);
                    continue;
                }
                let nodelay = listener.conf().groups.iter().all(|group| group.default_server.tcp_nodelay);
                let after_http = running.config.http.listens.len() + index;
                ports.push((after_http, address.clone(), port_of_stream(&listener)));
                self.listen(&running, &address, fds, nodelay, move |thread, arrived| {
                    stream::serve(Session::new(thread, arrived, Rc::clone(&listener)))
                });
            }
        }
        self.flows.borrow_mut().retain(|address, _| self.acceptors.borrow().iter().any(|(used, _)| used == address));
        // In the order of the configuration, which decides where several fit.
        ports.sort_by_key(|(order, ..)| *order);
        self.ports.replace(ports.into_iter().map(|(_, address, serve)| (address, serve)).collect());
        // Objects kept for reuse would keep the old configuration.
        self.exchanges.clear();
        if let Some(old) = &*self.running.borrow() {
            old.leave_to(&running);
        }
        self.thread.listeners.replace(running.number, listeners);
        *self.running.borrow_mut() = Some(running);
    }

    /// The servers of this upstream have changed.
    pub fn adopt(&self, generation: &Generation, protocol: Protocol, upstream: &str) {
        if let Some(shared) = generation.upstream(protocol, upstream) {
            self.with_running(|running| running.adopt(shared));
        }
    }

    fn drain(&self) {
        let running = self.running.borrow().clone();
        let patience = running.map_or(Duration::ZERO, |running| running.config.core.worker_drain_timeout);
        for (_, acceptor) in self.acceptors.take() {
            acceptor.abort();
        }
        self.thread.clients.drain(patience);
    }

    /// Serves connections of `pass` as those that this listening socket accepts.
    fn port_of_http(&self, listener: &Rc<Listener>) -> Serve {
        let (exchanges, listener) = (Rc::clone(&self.exchanges), Rc::clone(listener));
        Rc::new(move |Handed { client, socket, received }| {
            let connection = Connection::of(Rc::clone(&exchanges), client, socket, Rc::clone(&listener));
            event_loop::spawn(connection::serve(connection, received));
        })
    }

    /// Receives datagrams on these sockets.
    fn receive(self: &Rc<Self>, address: &ListenAddress, sockets: Vec<OwnedFd>, listener: &Rc<stream::StreamListener>) {
        let flows = Rc::clone(self.flows.borrow_mut().entry(address.clone()).or_default());
        for socket in sockets {
            let running = Rc::clone(&listener.running);
            let port = match Port::new(socket) {
                Ok(port) => port,
                Err(error) => {
                    running.errors().write(Level::Alert, format_args!("cannot watch a socket of UDP: {error}"));
                    continue;
                }
            };
            let receiver = Receiver { port, flows: Rc::clone(&flows), listener: Rc::clone(listener) };
            let worker = Rc::clone(self);
            let receive = receiver.run(move |peer| {
                let (entry, serial) = worker.admit(&running)?;
                Some(Admitted { thread: Rc::clone(&worker.thread), peer, entry, serial })
            });
            let receiver = event_loop::spawn(essential::task("a receiver", receive));
            self.acceptors.borrow_mut().push((address.clone(), receiver));
        }
    }

    /// Accepts on these sockets; `serve` makes a task of what arrives.
    fn listen<S: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        running: &Rc<RunningConfig>,
        address: &ListenAddress,
        sockets: Vec<OwnedFd>,
        nodelay: bool,
        serve: impl Fn(Rc<Thread>, Arrived) -> S + Clone + 'static,
    ) {
        let is_unix = matches!(address, ListenAddress::Unix(_));
        for socket in sockets {
            let socket = match Listening::new(socket, nodelay && !is_unix) {
                Ok(socket) => socket,
                Err(error) => {
                    running.errors().write(Level::Alert, format_args!("cannot watch a listening socket: {error}"));
                    continue;
                }
            };
            let accept = Rc::clone(self).accept(socket, Rc::clone(running), nodelay || is_unix, serve.clone());
            let acceptor = event_loop::spawn(essential::task("an acceptor", accept));
            self.acceptors.borrow_mut().push((address.clone(), acceptor));
        }
    }

    async fn accept<S: Future<Output = ()> + 'static>(
        self: Rc<Self>,
        socket: Listening,
        running: Rc<RunningConfig>,
        nodelay: bool,
        serve: impl Fn(Rc<Thread>, Arrived) -> S,
    ) {
        loop {
            match socket.accept().await {
                Ok((fd, peer)) => {
                    fault::point("acceptor");
                    if let Some(arrived) = self.welcome(|| Transport::new(fd, nodelay), peer, &running) {
                        event_loop::spawn(serve(Rc::clone(&self.thread), arrived));
                    }
                }
                Err(error) => {
                    let error = describe(&error);
                    running.errors().write(Level::Crit, format_args!("accept4() failed {error}"));
                    // Closing an idle connection frees a descriptor for the one that waits to be accepted.
                    let _ = running.close_idle_connection() || self.thread.clients.evict_idle();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a client that has connected to this address, without a listening socket.
    #[cfg(test)]
    pub fn serve_client(self: &Rc<Self>, address: &ListenAddress, peer: Peer, connect: impl FnOnce() -> Transport) {
        let listener = self.thread.listeners.at(address);
        if let Some(arrived) = self.welcome(connect, peer, &listener.running) {
            let (thread, exchanges) = (Rc::clone(&self.thread), Rc::clone(&self.exchanges));
            event_loop::spawn(connection::serve(Connection::new(thread, exchanges, arrived, listener), None));
        }
    }

    fn welcome(&self, socket: impl FnOnce() -> Transport, peer: Peer, running: &RunningConfig) -> Option<Arrived> {
        if !self.has_room(running) {
            return None;
        }
        let socket = socket();
        let (entry, serial) = self.register();
        Some(Arrived { socket, peer, entry, serial })
    }

    fn admit(&self, running: &RunningConfig) -> Option<(Rc<ClientEntry>, u64)> {
        self.has_room(running).then(|| self.register())
    }

    fn has_room(&self, running: &RunningConfig) -> bool {
        let room = self.thread.clients.make_room(running) && self.thread.clients.make_memory(running);
        if !room {
            self.thread.clients.metrics.dropped.add(1);
        }
        room
    }

    fn register(&self) -> (Rc<ClientEntry>, u64) {
        (self.thread.clients.register(), SERIAL.fetch_add(1, Relaxed) + 1)
    }
}

/// Serves connections of `pass` as those that this listening socket accepts.
fn port_of_stream(listener: &Rc<stream::StreamListener>) -> Serve {
    let listener = Rc::clone(listener);
    Rc::new(move |handed| {
        event_loop::spawn(stream::serve(Session::of(handed, Rc::clone(&listener))));
    })
}

/// Ends the acceptor of an address that is not listened on any more, after connections under way have been accepted.
async fn end_later(acceptor: TaskHandle) {
    tokio::time::sleep(ACCEPT_LAST).await;
    acceptor.abort();
}
