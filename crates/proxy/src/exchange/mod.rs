//! One request and its response: everything that phases, handlers, variables and logs share. Reused between requests.

mod background;
mod checks;
mod identity;
mod pool;
mod reply;
mod report;
mod route;
mod subrequest;
mod upstream;
mod zone;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use balanza_config::model::{Location, Server};
use balanza_message::{Header, Method, Request, Span};
use balanza_net::clock::{self, Nanos};
use balanza_net::hang_up::TcpInfo;
use balanza_net::listening::Peer;
use balanza_net::memory::{self, Held, Pressure};

pub use self::background::Background;
use self::checks::Checks;
pub use self::identity::{Id, UserIdentity};
pub use self::pool::Exchanges;
use self::reply::{Reply, Sent};
pub use self::route::Stub;
use self::route::{Route, Values};
pub use self::upstream::{Hedged, Upstream};
use self::zone::InZone;
use crate::body::RequestBody;
use crate::client::Client;
use crate::downstream::Downstream;
use crate::running_config::{Listener, RunningConfig};

/// A head of at least so many bytes is refused when memory is short.
pub const LARGE_HEAD: usize = 8 * 1024;

/// Whether memory is too short for a head of so many bytes. A request that is served has it twice: as it came, and as it
/// goes on.
pub fn is_too_large(head: usize) -> bool {
    head >= LARGE_HEAD && memory::pressure() >= Pressure::Heads
}

/// A request and its response.
#[derive(Default)]
pub struct Exchange {
    /// What is known of the client's connection.
    client: Option<Rc<Client>>,
    /// The listening socket that the connection came by, in the configuration that serves the request. It stays when
    /// the request ends, so that the next one need not count it.
    listener: Option<Rc<Listener>>,
    /// The way to the client.
    pub downstream: Downstream,
    /// Which of its connection's requests it is, counted from 1.
    pub ordinal: u64,
    /// When the first byte arrived.
    pub started: Nanos,
    /// The request's head.
    pub request: Request,
    /// Whether `request` is complete and valid, or as complete as one that was refused can be.
    pub head_complete: bool,
    /// The client wants to go on using the connection.
    pub client_keeps_alive: bool,
    /// Bytes of the request's head.
    pub head_length: u64,
    /// The request's body.
    pub body: RequestBody,
    /// Its way through the configuration.
    pub route: Route,
    /// Its variables.
    pub values: Values,
    /// What limits and access rules have found.
    pub checks: Checks,
    /// What servers are asked for it.
    pub upstream: Upstream,
    /// The status of the response.
    pub status: u16,
    /// The response's head.
    pub reply: Reply,
    /// What of the response has gone out.
    pub sent: Sent,
    /// Room for short texts.
    pub scratch: Vec<u8>,
    /// A line of the access log.
    pub line: Vec<u8>,
    /// Answers a subrequest whose response is put into this one.
    pub begin_subrequest: Option<fn(Box<Exchange>)>,
    /// Requests that go on beside it.
    pub background: Option<Rc<Background>>,
    /// Counts it as in flight.
    zone: InZone,
    /// Its part of the memory that is counted.
    held: Held,
}

impl Exchange {
    /// An empty one.
    pub fn boxed() -> Box<Exchange> {
        let mut exchange = Box::<Exchange>::default();
        exchange.weigh();
        exchange
    }

    /// Room in the texts that grow with a request and its response.
    pub fn texts(&self) -> usize {
        let texts = [&self.route.uri, &self.route.args, &self.sent.text, &self.scratch, &self.line];
        let messages = self.request.capacity() + self.reply.fields.capacity() + self.upstream.capacity();
        texts.into_iter().map(Vec::capacity).sum::<usize>() + messages
    }

    /// Counts the memory that it holds now.
    pub fn weigh(&mut self) {
        self.held.set(size_of::<Exchange>() + self.texts());
    }

    /// Makes it ready for another request, keeping its allocations.
    pub fn clear(&mut self) {
        let Exchange {
            client,
            listener: _,
            downstream: _,
            ordinal: _,
            started: _,
            request,
            head_complete,
            client_keeps_alive,
            head_length,
            body,
            route,
            values,
            checks,
            upstream,
            status,
            reply,
            sent,
            scratch,
            line: _,
            begin_subrequest: _,
            background,
            zone,
            held: _,
        } = self;
        *zone = InZone::default();
        (*client, *background) = (None, None);
        (*head_complete, *client_keeps_alive, *head_length, *status) = (false, false, 0, 0);
        request.clear();
        body.clear();
        route.clear();
        values.clear();
        checks.clear();
        upstream.clear();
        reply.clear();
        sent.clear();
        scratch.clear();
    }

    /// Begins a request that comes from this client by this listening socket.
    pub fn begin(&mut self, client: &Rc<Client>, listener: &Rc<Listener>, ordinal: u64) {
        client.thread.clients.metrics.requests.add(1);
        self.attach(client, listener, ordinal);
    }

    /// The same without a request: for variables that are needed before the first one.
    pub fn attach(&mut self, client: &Rc<Client>, listener: &Rc<Listener>, ordinal: u64) {
        self.started = clock::now();
        self.ordinal = ordinal;
        self.client = Some(Rc::clone(client));
        if !self.listener.as_ref().is_some_and(|mine| Rc::ptr_eq(mine, listener)) {
            self.listener = Some(Rc::clone(listener));
        }
    }

    /// What is known of the client's connection.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn client(&self) -> &Rc<Client> {
        self.client.as_ref().expect("a request has a client")
    }

    /// The client's address: that of its connection, or what `set_real_ip_from` has found in its place.
    pub fn peer(&self) -> Peer {
        self.values.peer.unwrap_or_else(|| self.client().peer)
    }

    /// The listening socket that the connection came by.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn listener(&self) -> &Rc<Listener> {
        self.listener.as_ref().expect("a request begins with a listening socket")
    }

    /// The configuration it is served by.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn running(&self) -> &Rc<RunningConfig> {
        &self.listener().running
    }

    /// Whether it can be used for another request under this configuration.
    pub fn belongs_to(&self, generation: u64) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.running.number == generation)
    }

    /// The address that the client connected to; none for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.client().local_address(|| self.downstream.local_address())
    }

    /// What the system knows of the client's connection; nothing if it is a Unix socket.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self.downstream.own_socket() {
            Some(socket) => socket.hang_up().tcp_info(),
            None => self.client().shared_socket.get()?.tcp_info(),
        }
    }

    /// Whether the connection should end with the response at hand.
    pub fn must_end(&self) -> bool {
        self.client().must_end(self.listener())
    }

    /// The virtual server.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn server(&self) -> &Arc<Server> {
        self.route.server()
    }

    /// The location.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn location(&self) -> &Arc<Location> {
        self.route.location()
    }

    /// The method that handlers act on.
    pub fn method(&self) -> Method {
        if self.route.method_is_get { Method::Get } else { self.request.method }
    }

    /// The seconds that the client is told an idle connection may live.
    pub fn keepalive_header(&self) -> Option<u64> {
        self.location().settings.keepalive_header.map(|timeout| timeout.as_secs())
    }

    /// Whether the client said that it reads trailers.
    pub fn client_takes_trailers(&self) -> bool {
        let value = self.request_field(Header::Te).unwrap_or(b"");
        balanza_message::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
    }

    /// A piece of the request's head.
    pub fn text(&self, span: Span) -> &[u8] {
        if self.head_complete { self.request.of(span) } else { b"" }
    }

    /// The value of a known request field.
    pub fn request_field(&self, header: Header) -> Option<&[u8]> {
        if self.head_complete { self.request.find(header) } else { None }
    }
}
