//! What is known of a client's connection, whatever protocol it speaks: shared by all requests on it, or part of a session.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::rc::Rc;

use balanza_config::template::Ssl;
use balanza_net::clock::{self, Nanos};
use balanza_net::hang_up::HangUp;
use balanza_net::listening::Peer;
use balanza_net::transport::Transport;
use balanza_tls::hello::ClientHello;

use crate::clients::ClientEntry;
use crate::limits::Place;
use crate::proxy_protocol::Header;
use crate::running_config::Listener;
use crate::secure::{self, ClientTls};
use crate::thread::Thread;

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

/// A client that there is room for.
pub struct Admitted {
    /// What it shares with the other clients of its worker.
    pub thread: Rc<Thread>,
    /// The client.
    pub peer: Peer,
    /// The worker's entry for it, until it is unregistered.
    pub entry: Rc<ClientEntry>,
    /// `$connection`.
    pub serial: u64,
}

/// A client's connection, as its requests see it.
pub struct Client {
    /// What it shares with the other connections of its worker.
    pub thread: Rc<Thread>,
    /// The client's address.
    pub peer: Peer,
    /// `$connection`.
    pub serial: u64,
    /// When it was accepted.
    pub accepted: Nanos,
    /// The worker's entry for it.
    pub entry: Rc<ClientEntry>,
    /// What is known if TLS is spoken.
    pub tls: OnceCell<Box<ClientTls>>,
    /// What it has begun TLS with, while its handshake is prepared.
    hello: Cell<Option<Box<ClientHello>>>,
    /// What its header of the PROXY protocol says.
    pub proxy_protocol: OnceCell<Box<Header>>,
    /// TLS was expected, and the client does not speak it.
    pub lacks_tls: Cell<bool>,
    /// A session of `stream` has passed it on.
    pub passed: Option<Box<Passed>>,
    /// This one has been passed on: its entry is that of another.
    is_gone: bool,
    local: OnceCell<Option<SocketAddr>>,
    /// The socket, if several requests share it.
    pub shared_socket: OnceCell<HangUp>,
}

/// What goes with a client that `pass` hands to another listening socket.
#[derive(Default)]
pub struct Passed {
    /// How often it was passed.
    pub times: u32,
    /// Its places in zones of `limit_conn`, which it keeps until it goes.
    pub places: Vec<Place>,
}

impl Client {
    /// A client that was just accepted, and its socket.
    pub fn new(thread: Rc<Thread>, arrived: Arrived) -> (Client, Transport) {
        let Arrived { socket, peer, entry, serial } = arrived;
        (Client::of(Admitted { thread, peer, entry, serial }), socket)
    }

    /// A client that was just admitted.
    pub fn of(admitted: Admitted) -> Client {
        let Admitted { thread, peer, entry, serial } = admitted;
        Client {
            thread,
            peer,
            serial,
            accepted: clock::now(),
            entry,
            tls: OnceCell::new(),
            hello: Cell::default(),
            proxy_protocol: OnceCell::new(),
            lacks_tls: Cell::new(false),
            passed: None,
            is_gone: false,
            local: OnceCell::new(),
            shared_socket: OnceCell::new(),
        }
    }

    /// In the place of a client, for requests that no client has sent.
    pub fn none(thread: &Rc<Thread>) -> Client {
        Client {
            thread: Rc::clone(thread),
            peer: Peer::Unix,
            serial: 0,
            accepted: clock::now(),
            entry: thread.clients.register(),
            tls: OnceCell::new(),
            hello: Cell::default(),
            proxy_protocol: OnceCell::new(),
            lacks_tls: Cell::new(false),
            passed: None,
            is_gone: false,
            local: OnceCell::from(None),
            shared_socket: OnceCell::new(),
        }
    }

    /// The same client behind another listening socket, as if it had connected to this address. `peer` is who it is
    /// believed to be.
    pub fn pass_on(&mut self, peer: Peer, local: Option<SocketAddr>, places: Vec<Place>) -> Client {
        let mut passed = self.passed.take().unwrap_or_default();
        passed.times += 1;
        passed.places.extend(places);
        self.is_gone = true;
        self.entry.forget_waker();
        Client {
            thread: Rc::clone(&self.thread),
            peer,
            serial: self.serial,
            accepted: self.accepted,
            entry: Rc::clone(&self.entry),
            tls: std::mem::take(&mut self.tls),
            hello: Cell::default(),
            proxy_protocol: std::mem::take(&mut self.proxy_protocol),
            lacks_tls: Cell::new(false),
            passed: Some(passed),
            is_gone: false,
            local: OnceCell::from(local),
            shared_socket: OnceCell::new(),
        }
    }

    /// The address that it connected to; none for a Unix socket. The system is asked once.
    pub fn local_address(&self, ask: impl FnOnce() -> Option<SocketAddr>) -> Option<SocketAddr> {
        *self.local.get_or_init(ask)
    }

    /// What the client has begun TLS with, until its handshake is prepared.
    pub fn set_hello(&self, hello: Option<ClientHello>) {
        self.hello.set(hello.map(Box::new));
    }

    fn with_hello<T>(&self, read: impl FnOnce(&ClientHello) -> T) -> Option<T> {
        let hello = self.hello.take()?;
        let value = read(&hello);
        self.hello.set(Some(hello));
        Some(value)
    }

    /// Whether TLS is spoken, or agreed on at the moment.
    pub fn speaks_tls(&self) -> bool {
        self.tls.get().is_some() || self.with_hello(|_| ()).is_some()
    }

    /// Appends the value of a variable; false when it has none.
    pub fn tls_value(&self, variable: Ssl, out: &mut Vec<u8>) -> bool {
        match self.tls.get() {
            Some(tls) => tls.value(variable, clock::wall().as_secs().cast_signed(), out),
            None => self.with_hello(|hello| secure::of_hello(hello, variable, out)).unwrap_or(false),
        }
    }

    /// Whether a connection that came by this listening socket should end with the response at hand.
    pub fn must_end(&self, listener: &Listener) -> bool {
        self.thread.clients.is_draining() || !self.thread.listeners.has(listener)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.is_gone {
            self.thread.clients.unregister(&self.entry);
        }
    }
}
