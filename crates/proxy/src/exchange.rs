//! One request and its response: everything that phases, handlers, variables and logs share. Reused between requests.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::Tried;
use balanza_config::model::{Location, Server};
use balanza_config::regex::Captures;
use balanza_message::{Fields, Header, Method, Request, Response, Span};
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::memory::Held;

use crate::body::RequestBody;
use crate::client::Client;
use crate::downstream::{Downstream, Rate};
use crate::site::{Listener, Site};
use crate::variables::Undecided;

/// What one attempt to reach a server came to; `$upstream_*` list them all.
#[derive(Default, Clone)]
pub struct Attempt {
    /// The server's address as text; the upstream's name when there was no server to try.
    pub address: Option<Rc<str>>,
    /// An internal redirect came before this attempt (": " instead of ", ").
    pub after_redirect: bool,
    /// Status of the response, or the one that stands for the failure; 0 for none.
    pub status: u16,
    /// When the attempt began.
    pub started: Nanos,
    /// Time to the established connection.
    pub connect_time: Option<Nanos>,
    /// Time to the response's head.
    pub header_time: Option<Nanos>,
    /// Time to the response's last byte.
    pub response_time: Option<Nanos>,
    /// Bytes of the response's body.
    pub response_length: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Why this server was chosen, if it is logged.
    pub reason: Option<Box<str>>,
}

/// The head and the trailers of the response to the client, less what its protocol adds.
#[derive(Default)]
pub struct Reply {
    /// The server's reason phrase, in the text of its response; else the usual one of the status.
    pub reason: Option<Span>,
    /// The fields.
    pub fields: Fields,
    /// What the client is told of the body's length; it may be that of a body that does not follow.
    pub length: Option<u64>,
    /// The protocol that the connection changes to, in the text of the server's response.
    pub upgrade: Option<Span>,
    /// The trailers.
    pub trailers: Fields,
}

impl Reply {
    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        self.reason = None;
        self.fields.clear();
        self.length = None;
        self.upgrade = None;
        self.trailers.clear();
    }
}

/// A request and its response.
#[derive(Default)]
pub struct Exchange {
    /// Bytes from the client behind the request's head: its body, or what was pipelined.
    pub input: Option<Buffer>,
    /// The request's head.
    pub request: Request,
    /// The client wants to go on using the connection.
    pub client_keeps_alive: bool,
    /// Whether `request` is complete and valid, or as complete as one that was refused can be.
    pub head_complete: bool,
    /// What is known of the client's connection.
    client: Option<Rc<Client>>,
    /// The way to the client.
    pub downstream: Downstream,
    /// Which of its connection's requests it is, counted from 1.
    pub ordinal: u64,
    /// The listening socket that the connection came by, in the configuration that serves the request.
    listener: Option<Rc<Listener>>,
    /// The virtual server.
    pub server: Option<Arc<Server>>,
    /// The location, if it is `located`; else that of the last request, kept so that the next one need not count it.
    location: Option<Arc<Location>>,
    /// A location was entered; before, the server's own settings hold.
    pub located: bool,
    /// `$uri`: decoded, normalised.
    pub uri: Vec<u8>,
    /// `$args`.
    pub args: Vec<u8>,
    /// The URI is no longer the client's: an internal redirect has replaced it.
    pub uri_changed: bool,
    /// Groups of the last regular expression.
    pub captures: Captures,
    /// User variables; empty when not set.
    pub users: Vec<Option<Vec<u8>>>,
    /// Values of `map`s, evaluated once.
    pub maps: Vec<Option<Result<Vec<u8>, Undecided>>>,
    /// `$request_id`, made when asked for.
    pub request_id: Option<[u8; 32]>,
    /// The status of the response.
    pub status: u16,
    /// The status that whatever answers now must send, because it is an error's page; 0 for its own.
    pub error_status: u16,
    /// An `error_page` has been used: there is no second one.
    pub error_page_used: bool,
    /// An error page is asked for by GET, whatever the request's method was.
    pub method_is_get: bool,
    /// Where the redirect that is being answered leads.
    pub redirect: Option<Vec<u8>>,
    /// The client did not read in time.
    pub timed_out: bool,
    /// The connection is to be closed without an answer.
    pub dropped: bool,
    /// Came here by an internal redirect.
    pub internal: bool,
    /// Internal redirects so far.
    pub redirects: u8,
    /// When the first byte arrived.
    pub started: Nanos,
    /// Wall-clock arrival is `started`; the request's body.
    pub body: RequestBody,
    /// Bytes of the request, head and body.
    pub request_length: u64,
    /// A server is being asked, so that messages name it.
    pub proxying: bool,
    /// The URI that servers are asked for.
    pub upstream_uri: Vec<u8>,
    /// Attempts to reach servers.
    pub attempts: Vec<Attempt>,
    /// Servers already tried.
    pub tried: Tried,
    /// The head of the server's response.
    pub response: Response,
    /// The response comes from a server.
    pub has_response: bool,
    /// Trailers of a server's response.
    pub response_trailers: Fields,
    /// The response to the client.
    pub reply: Reply,
    /// Its head on the way, perhaps with a small body behind it.
    pub out: Vec<u8>,
    /// The response's head has gone out, or begun to.
    pub head_sent: bool,
    /// Bytes sent to the client.
    pub bytes_sent: u64,
    /// Bytes of the body sent to the client, with its framing.
    pub body_bytes_sent: u64,
    /// The response went out completely.
    pub completed: bool,
    /// The connection may serve another request after this one.
    pub keep_alive: bool,
    /// The body goes out in chunks.
    pub chunked: bool,
    /// The rate limit.
    pub rate: Rate,
    /// The rate limit was worked out, or set by the server.
    pub rate_known: bool,
    /// The media type that a server gave with an X-Accel-Redirect.
    pub content_type: Option<Vec<u8>>,
    /// Other fields of that response that the client is to get.
    pub kept_fields: Fields,
    /// `$proxy_host`.
    pub proxy_host: Vec<u8>,
    /// `$proxy_port`.
    pub proxy_port: u16,
    /// The local address of `proxy_bind`.
    pub proxy_bind: Option<SocketAddr>,
    /// The URI part of a `proxy_pass` with variables.
    pub proxy_uri: Vec<u8>,
    /// The text of `proxy_set_body`.
    pub proxy_body: Vec<u8>,
    /// The server was asked to change the protocol.
    pub upgrade_sent: bool,
    /// The request went to the server whole, so that the connection is at its border.
    pub body_sent_whole: bool,
    /// Servers are spoken to in HTTP/1.1.
    pub upstream_is_http11: bool,
    /// Room for short texts.
    pub scratch: Vec<u8>,
    /// A line of the access log.
    pub line: Vec<u8>,
    /// The method that servers are asked with.
    pub upstream_method: Vec<u8>,
    /// The fields that servers are sent.
    pub upstream_fields: Fields,
    /// The request's head on its way to a server.
    pub upstream_head: Vec<u8>,
    /// The key of a hashing algorithm.
    pub key: Vec<u8>,
    /// Where the request says that it belongs (`sticky`).
    pub bond: Vec<u8>,
    /// What the client is told of where it belongs.
    pub bond_fields: Fields,
    /// Its part of the memory that is counted.
    pub held: Held,
    /// How many of `bond_fields` are those of an earlier upstream.
    pub bond_kept_fields: usize,
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
        let texts = [
            &self.uri,
            &self.args,
            &self.upstream_uri,
            &self.out,
            &self.proxy_uri,
            &self.scratch,
            &self.line,
            &self.upstream_head,
            &self.key,
        ];
        let messages = self.request.capacity()
            + self.response.capacity()
            + self.reply.fields.capacity()
            + self.upstream_fields.capacity();
        texts.into_iter().map(Vec::capacity).sum::<usize>() + messages
    }

    /// Counts the memory that it holds now.
    pub fn weigh(&mut self) {
        self.held.set(size_of::<Exchange>() + self.texts());
    }

    /// Makes it ready for another request, keeping its allocations.
    pub fn clear(&mut self) {
        self.input = None;
        self.request.clear();
        self.client = None;
        self.client_keeps_alive = false;
        self.head_complete = false;
        self.uri.clear();
        self.args.clear();
        self.uri_changed = false;
        self.captures.clear();
        self.users.clear();
        self.maps.clear();
        self.request_id = None;
        self.status = 0;
        self.error_status = 0;
        self.error_page_used = false;
        self.method_is_get = false;
        self.redirect = None;
        self.timed_out = false;
        self.dropped = false;
        self.internal = false;
        self.redirects = 0;
        self.body.clear();
        self.request_length = 0;
        self.proxying = false;
        self.upstream_uri.clear();
        self.attempts.clear();
        self.tried.clear();
        self.has_response = false;
        self.response_trailers.clear();
        self.out.clear();
        self.reply.clear();
        self.head_sent = false;
        self.bytes_sent = 0;
        self.body_bytes_sent = 0;
        self.completed = false;
        self.keep_alive = false;
        self.chunked = false;
        self.rate = Rate::default();
        self.rate_known = false;
        self.content_type = None;
        self.kept_fields.clear();
        self.located = false;
        self.proxy_host.clear();
        self.proxy_port = 0;
        self.proxy_uri.clear();
        self.upgrade_sent = false;
        self.body_sent_whole = false;
        self.scratch.clear();
        self.bond.clear();
        self.bond_fields.clear();
        self.bond_kept_fields = 0;
    }

    /// Begins a request that comes from this client by this listening socket.
    pub fn begin(&mut self, client: &Rc<Client>, listener: &Rc<Listener>, ordinal: u64) {
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
    pub fn site(&self) -> &Rc<Site> {
        &self.listener().site
    }

    /// Whether it can be used for another request under this configuration.
    pub fn belongs_to(&self, generation: u64) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.site.number == generation)
    }

    /// The address that the client connected to; none for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.client().local_address(|| self.downstream.local_address())
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
        self.server.as_ref().expect("a request begins with the default server")
    }

    /// The location.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn location(&self) -> &Arc<Location> {
        match &self.location {
            Some(location) if self.located => location,
            _ => &self.server().root,
        }
    }

    /// The method that handlers act on.
    pub fn method(&self) -> Method {
        if self.method_is_get { Method::Get } else { self.request.method }
    }

    /// Whether the client said that it reads trailers.
    pub fn client_takes_trailers(&self) -> bool {
        let value = self.request_field(Header::Te).unwrap_or(b"");
        balanza_message::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
    }

    /// Bytes from the client, in which the pieces of a body are ranges.
    pub fn input_bytes(&self) -> &[u8] {
        self.input.as_ref().map_or(b"", Buffer::bytes)
    }

    /// A piece of the request's head.
    pub fn text(&self, span: Span) -> &[u8] {
        if self.head_complete { self.request.of(span) } else { b"" }
    }

    /// The value of a known request field.
    pub fn request_field(&self, header: Header) -> Option<&[u8]> {
        if !self.head_complete {
            return None;
        }
        self.request.find(header)
    }

    /// The value of a known field of the server's response.
    pub fn response_field(&self, header: Header) -> Option<&[u8]> {
        if !self.has_response {
            return None;
        }
        self.response.find(header)
    }

    /// The current attempt to reach a server.
    pub fn attempt(&mut self) -> &mut Attempt {
        if self.attempts.is_empty() {
            self.attempts.push(Attempt::default());
        }
        let last = self.attempts.len() - 1;
        &mut self.attempts[last]
    }

    /// Enters a location without touching its count when it is the one of the last request.
    pub fn enter(&mut self, location: &Arc<Location>) {
        self.located = true;
        if !self.location.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, location)) {
            self.location = Some(Arc::clone(location));
        }
    }
}
