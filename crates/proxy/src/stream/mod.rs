//! Sessions of `stream`: a client's connection, one to a server, and the bytes between them; `datagrams` has those of UDP.
//!
//! A session goes through NGINX's phases: access, preread (only where something asks for what the client sends first),
//! content, log. `connect` finds a server and `relay` moves the bytes.

mod connect;
pub mod datagrams;
mod limits;
mod passing;
pub mod rdp;
mod relay;
mod returning;
mod selection;
mod variables;

use std::fmt::Arguments;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

use balanza_balancing::Tried;
use balanza_config::log_text::Escaped;
use balanza_config::model::{AddressGroup, Level, Listen, ListenAddress, StreamServer, StreamTarget};
use balanza_config::template::Template;
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock;
use balanza_net::listening::Peer;
use balanza_net::timer::Timer;
use balanza_net::transport::Transport;
use balanza_tls::hello::{self, ClientHello};
use balanza_tls::server::{Verified, Verify};

use crate::access;
use crate::access_log::compose;
use crate::certificates::{self, Names};
use crate::client::{Arrived, Client};
use crate::downstream::Rate;
use crate::limits::{self as zones, Place};
use crate::lookup::set_user;
use crate::ports::{Handed, Ports};
use crate::preamble::{self, Refused};
use crate::real_ip;
use crate::running_config::RunningConfig;
use crate::secure::{self, Begun};
use crate::servers::attempt::Attempt;
use crate::thread::Thread;
use crate::undecided::Undecided;

use self::datagrams::{Flow, Held};
use self::variables::Values;

/// A listening socket of a worker.
pub struct StreamListener {
    /// The configuration it belongs to.
    pub running: Rc<RunningConfig>,
    /// Index into `Config.stream.listens`.
    pub index: usize,
    /// The listening sockets of its worker, for `pass`.
    pub ports: Weak<Ports>,
}

impl StreamListener {
    /// Its part of the configuration.
    pub fn conf(&self) -> &Listen<StreamServer> {
        &self.running.config.stream.listens[self.index]
    }
}

/// NGINX's statuses of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Ok = 200,
    BadRequest = 400,
    Forbidden = 403,
    InternalError = 500,
    BadGateway = 502,
    ServiceUnavailable = 503,
}

/// A session. It keeps the configuration that it began with.
pub struct Session {
    client: Client,
    /// The client's address: that of its connection, or what its header of the PROXY protocol tells.
    peer: Peer,
    listener: Rc<StreamListener>,
    server: Arc<StreamServer>,
    /// The way to the client.
    socket: ClientSide,
    /// Its only timer.
    timer: Timer,
    /// What the client sent first and is still to be passed on.
    preread: Option<Buffer>,
    /// What had come from the client when a server was chosen: it goes there without a wait. It counts once it is there.
    early: Option<Buffer>,
    /// The client's connection has failed.
    is_broken: bool,
    /// The first message of TLS that it began with, for `ssl_preread`.
    hello: Option<ClientHello>,
    /// The connection request of RDP that it began with.
    request: Option<Box<[u8]>>,
    status: Status,
    /// Bytes from the client.
    received: u64,
    /// Bytes to the client.
    sent: u64,
    attempts: Vec<Attempt>,
    tried: Tried,
    key: Vec<u8>,
    /// Those of shadows.
    shadow_keys: Vec<Vec<u8>>,
    /// Its places in zones of `limit_conn`.
    places: Vec<Place>,
    /// `$limit_conn_status`.
    limited: Option<zones::Status>,
    /// The name that certificates of servers are for.
    tls_name: Vec<u8>,
    /// The certificate that servers are shown, if the session names it.
    certificate: Option<Box<Names>>,
    /// The address that connections to servers come from.
    bind: Vec<u8>,
    /// `proxy_upload_rate`.
    upload: Rate,
    /// `proxy_download_rate`.
    download: Rate,
    /// Its variables.
    values: Values,
}

/// The way to a session's client.
enum ClientSide {
    /// Its connection.
    Stream(Transport),
    /// Its datagrams.
    Datagrams(Held),
    /// Another listening socket serves the connection.
    Passed,
}

impl ClientSide {
    /// The connection, if there is one.
    fn stream(&self) -> Option<&Transport> {
        match self {
            ClientSide::Stream(socket) => Some(socket),
            ClientSide::Datagrams(_) | ClientSide::Passed => None,
        }
    }
}

impl Drop for Session {
    /// Also when the worker ends before the session does.
    fn drop(&mut self) {
        let time = clock::now() - self.client.accepted;
        let zone = &self.listener.running.stream_zones[self.server.status_zone];
        zone.processing.subtract(1);
        zone.record(self.status as u16, self.received, self.sent, time);
        // As in NGINX, what comes of a connection that is passed on is not this session's.
        if !matches!(self.socket, ClientSide::Passed) {
            self.write_log();
        }
    }
}

/// Serves a session until its end.
#[expect(
    clippy::manual_async_fn,
    reason = "a block that captures holds the session once, the parameters of an `async fn` twice"
)]
pub fn serve(mut session: Session) -> impl Future<Output = ()> {
    async move {
        clock::now();
        session.run().await;
    }
}

impl Session {
    /// A session with a client that was just accepted.
    pub fn new(thread: Rc<Thread>, arrived: Arrived, listener: Rc<StreamListener>) -> Session {
        let (client, socket) = Client::new(thread, arrived);
        Session::of(Handed { client, socket, received: None }, listener)
    }

    /// A session with this client.
    pub fn of(handed: Handed, listener: Rc<StreamListener>) -> Session {
        let Handed { client, socket, received } = handed;
        let server = server_for(&listener, || client.local_address(|| socket.local_address()));
        let mut session = Session::begin(client, listener, server, ClientSide::Stream(socket));
        session.received = received.as_ref().map_or(0, |buffer| buffer.unread().len() as u64);
        session.preread = received;
        session
    }

    fn begin(client: Client, listener: Rc<StreamListener>, server: Arc<StreamServer>, socket: ClientSide) -> Session {
        listener.running.stream_zones[server.status_zone].processing.add(1);
        Session {
            peer: client.peer,
            client,
            listener,
            server,
            socket,
            timer: Timer::default(),
            preread: None,
            early: None,
            is_broken: false,
            hello: None,
            request: None,
            status: Status::Ok,
            received: 0,
            sent: 0,
            attempts: Vec::new(),
            tried: Tried::default(),
            key: Vec::new(),
            shadow_keys: Vec::new(),
            places: Vec::new(),
            limited: None,
            tls_name: Vec::new(),
            certificate: None,
            bind: Vec::new(),
            upload: Rate::default(),
            download: Rate::default(),
            values: Values::default(),
        }
    }

    async fn run(&mut self) {
        self.status = match self.phases().await {
            Ok(()) => match self.server.target {
                StreamTarget::Return(_) => Box::pin(returning::answer(self)).await,
                StreamTarget::Pass(_) => passing::pass(self),
                StreamTarget::Fixed(_) | StreamTarget::Dynamic(_) => connect::pass(self).await,
            },
            Err(status) => status,
        };
    }

    /// The servers of the address that the client connected to.
    fn group(&self) -> &AddressGroup<StreamServer> {
        self.listener.conf().group(|| self.local())
    }

    /// What it shares with the receiver of its datagrams.
    fn flow(&self) -> Option<Rc<Flow>> {
        match &self.socket {
            ClientSide::Datagrams(held) => Some(Rc::clone(&held.0)),
            ClientSide::Stream(_) | ClientSide::Passed => None,
        }
    }

    /// The phases before the content; the status of a session that does not reach it.
    async fn phases(&mut self) -> Result<(), Status> {
        if self.wants(Level::Info) {
            let (client, to) = (self.client_text(), self.local_text());
            let kind = if self.flow().is_some() { "udp client" } else { "client" };
            self.note(Level::Info, format_args!("*{} {kind} {client} connected to {to}", self.client.serial));
        }
        if self.listener.conf().groups.iter().any(|group| group.proxy_protocol) && self.group().proxy_protocol {
            // Boxed: it is not a part of the task of an ordinary session.
            Box::pin(self.proxy_protocol()).await?;
        }
        if !self.server.limits.connections.is_empty() {
            self.limit()?;
        }
        if !access::is_allowed(&self.server.access, self.peer) {
            self.report(Level::Error, format_args!("access forbidden by rule"));
            return Err(Status::Forbidden);
        }
        if self.listener.conf().groups.iter().any(|group| group.ssl) && self.group().ssl {
            self.secure().await?;
        }
        if self.server.prereads || self.server.ssl_preread {
            match self.flow() {
                None => self.preread().await?,
                Some(flow) => {
                    if self.look_at(&flow.first().unwrap_or_default())? {
                        self.report(Level::Error, format_args!("preread buffer full"));
                        return Err(Status::BadRequest);
                    }
                }
            }
        }
        let server = Arc::clone(&self.server);
        for (slot, template) in &server.sets {
            let mut value = Vec::new();
            variables::render(template, self, &mut value).map_err(|Undecided| Status::InternalError)?;
            set_user(&mut self.values.users, *slot, Some(value));
        }
        Ok(())
    }

    /// Reads the header of the PROXY protocol, and takes the client's address from it if its sender is trusted.
    async fn proxy_protocol(&mut self) -> Result<(), Status> {
        let deadline = clock::after(self.server.proxy_protocol_timeout);
        let Some(socket) = self.socket.stream() else { return Ok(()) };
        let (header, received) = match preamble::accept(socket, &mut self.timer, deadline, self.preread.take()).await {
            Ok(begun) => begun,
            Err(Refused::Gone) => return Err(Status::BadRequest),
            Err(Refused::TimedOut) => {
                let message = "client timed out (110: Connection timed out) while reading PROXY protocol";
                self.report(Level::Info, format_args!("{message}"));
                return Err(Status::Ok);
            }
            Err(Refused::Broken(reason)) => {
                self.report(Level::Error, format_args!("{reason} while reading PROXY protocol"));
                return Err(Status::BadRequest);
            }
        };
        clock::now();
        self.received = match self.group().ssl {
            true => 0,
            false => received.as_ref().map_or(0, |buffer| buffer.unread().len() as u64),
        };
        self.preread = received;
        if let Some(header) = header {
            let believed = real_ip::believed(self.client.peer, &header, &self.server.real_ip_from);
            self.peer = believed.unwrap_or(self.peer);
            let _ = self.client.proxy_protocol.set(Box::new(header));
        }
        Ok(())
    }

    /// Reads what the client sends first, until it is known what it is. A client that goes or says nothing in time ends
    /// the session, as in NGINX without fault.
    async fn preread(&mut self) -> Result<(), Status> {
        let deadline = clock::after(self.server.preread_timeout);
        let mut limit = self.server.preread_buffer_size.min(buffer::CAPACITY);
        // A session that does not wait holds no buffer.
        let mut held: Option<Buffer> = self.preread.take();
        if let Some(buffer) = &held {
            limit = limit.saturating_sub(buffer.unread().len());
            if !self.look_at(buffer.unread())? {
                self.preread = held;
                return Ok(());
            }
            if limit == 0 {
                self.report(Level::Error, format_args!("preread buffer full"));
                return Err(Status::BadRequest);
            }
        }
        loop {
            let read = poll_fn(|cx| {
                let Some(socket) = self.socket.stream() else { return Poll::Ready(None) };
                let read = match &mut held {
                    Some(buffer) => socket.poll_recv(cx, buffer, limit),
                    None => socket.poll_readable(cx).map_ok(|()| 0),
                };
                match read {
                    Poll::Ready(read) => Poll::Ready(read.ok()),
                    Poll::Pending if self.timer.poll_expired(cx, deadline) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
            clock::now();
            let Some(buffer) = &mut held else {
                read.ok_or(Status::Ok)?;
                held = Some(Buffer::take());
                continue;
            };
            let read = read.filter(|read| *read > 0).ok_or(Status::Ok)?;
            self.received += read as u64;
            limit -= read;
            let more = self.look_at(buffer.unread())?;
            if more && limit == 0 {
                self.report(Level::Error, format_args!("preread buffer full"));
                return Err(Status::BadRequest);
            }
            if more {
                continue;
            }
            self.preread = held;
            return Ok(());
        }
    }

    /// Takes what is asked for from the first bytes; true if more of them are needed.
    fn look_at(&mut self, bytes: &[u8]) -> Result<bool, Status> {
        if self.server.ssl_preread && self.hello.is_none() {
            match hello::read(bytes) {
                hello::First::Hello(hello) => {
                    self.select(hello.server_name.as_deref())?;
                    self.hello = Some(hello);
                }
                hello::First::Incomplete => return Ok(true),
                hello::First::Foreign | hello::First::Malformed => {}
            }
        }
        if self.server.prereads {
            match rdp::read(bytes) {
                rdp::First::Incomplete => return Ok(true),
                rdp::First::Request(request) => self.request = Some(request.bytes().into()),
                rdp::First::Other => {}
            }
        }
        Ok(false)
    }

    /// Begins TLS with the client.
    async fn secure(&mut self) -> Result<(), Status> {
        if self.client.tls.get().is_some() {
            self.report(Level::Error, format_args!("{}", secure::TWICE));
            return Err(Status::InternalError);
        }
        // Boxed: it is not a part of the task of a plain session.
        let begun = Box::pin(self.shake_hands()).await?;
        clock::now();
        begun.count(&self.client.thread.clients.metrics);
        let tls = match begun {
            Begun::Secured(tls) => tls,
            Begun::Plain(_) => {
                self.report(Level::Info, format_args!("SSL_do_handshake() failed (SSL: not a message of TLS)"));
                return Err(Status::InternalError);
            }
            Begun::Over(reason) => {
                if let Some(reason) = reason {
                    self.report(Level::Info, format_args!("{reason}"));
                }
                return Err(Status::InternalError);
            }
            Begun::Unprepared(reason) => {
                self.report(Level::Error, format_args!("{reason}"));
                return Err(Status::InternalError);
            }
        };
        let alpn = &tls.context.config.alpn_protocols;
        if !alpn.is_empty() && !tls.hello.alpn.is_empty() && tls.secured.alpn.is_none() {
            return Err(Status::InternalError);
        }
        let (verify, verified) = (tls.context.clients.verify, tls.verified);
        let _ = self.client.tls.set(tls);
        match verified {
            _ if verify == Verify::Off => Ok(()),
            Verified::Failed(rejection) if verify != Verify::OptionalNoCa || !rejection.is_unknown_issuer() => {
                let (code, reason) = (rejection.code, rejection.reason);
                self.report(Level::Info, format_args!("client SSL certificate verify error: ({code}:{reason})"));
                Err(Status::BadRequest)
            }
            Verified::None if verify == Verify::On => {
                self.report(Level::Info, format_args!("client sent no required SSL certificate"));
                Err(Status::BadRequest)
            }
            _ => Ok(()),
        }
    }

    /// Agrees with the client on TLS, and goes on with the server that it names.
    async fn shake_hands(&mut self) -> Result<Begun, Status> {
        let deadline = clock::after(self.server.handshake_timeout);
        let received = self.preread.take();
        self.received = 0;
        let Some(socket) = self.socket.stream() else { return Ok(Begun::Over(None)) };
        let mut greeting = match secure::greeting(socket, &mut self.timer, deadline, received).await {
            Ok(greeting) => greeting,
            Err(begun) => return Ok(begun),
        };
        let default = self.server.tls.clone();
        self.select(greeting.hello.server_name.as_deref())?;
        let tls = self.server.tls.clone().or(default);
        let mut context = tls.as_ref().map(|tls| Arc::clone(&tls.context));
        if let Some(named) = tls.as_ref().and_then(|tls| tls.named.as_ref()) {
            if let Err(begun) = greeting.wait_for_turn(&mut self.timer, deadline).await {
                return Ok(begun);
            }
            self.local();
            self.client.set_hello(Some(greeting.hello.clone()));
            let running = Rc::clone(&self.listener.running);
            let render = |template: &Template, out: &mut Vec<u8>| variables::render(template, self, out);
            let loaded = certificates::load(named, &greeting.hello, &running.certificates, render);
            self.client.set_hello(None);
            match loaded {
                Ok(certificates) => context = context.map(|context| Arc::new(context.with(certificates))),
                Err(why) => {
                    let Some(socket) = self.socket.stream() else { return Ok(Begun::Over(None)) };
                    return Ok(greeting.refuse(socket, why).await);
                }
            }
        }
        let Some(socket) = self.socket.stream() else { return Ok(Begun::Over(None)) };
        Ok(greeting.answer(socket, &mut self.timer, deadline, context).await)
    }

    fn write_log(&mut self) {
        let (server, running) = (Arc::clone(&self.server), Rc::clone(&self.listener.running));
        let (mut line, mut scratch) = (Vec::new(), Vec::new());
        for log in &server.access_logs {
            if compose(log, &mut line, &mut scratch, |variable, out| variables::value(variable, self, out)) {
                running.write_access_log(log, &line, &scratch);
            }
        }
    }

    /// Whether a message of this level is written anywhere.
    fn wants(&self, level: Level) -> bool {
        self.server.error_log.iter().any(|log| level <= log.level)
    }

    /// Writes a line to the error log.
    fn note(&self, level: Level, message: Arguments<'_>) {
        if self.wants(level) {
            self.listener.running.errors_of(&self.server.error_log).write(level, message);
        }
    }

    /// Writes a message about the session: what happened, the client, where it came in, the server, the bytes.
    fn report(&self, level: Level, message: Arguments<'_>) {
        if !self.wants(level) {
            return;
        }
        let (client, kind) = (self.peer, if self.flow().is_some() { "udp client" } else { "client" });
        let server = show(&self.listener.conf().address);
        let rest = match self.attempts.last() {
            Some(attempt) => format!(
                ", upstream: \"{}\", {}",
                Escaped(attempt.address.as_deref().unwrap_or_default().as_bytes()),
                self.bytes_text(attempt.bytes_received, attempt.bytes_sent)
            ),
            None => String::new(),
        };
        self.note(level, format_args!("*{} {message}, {kind}: {client}, server: {server}{rest}", self.client.serial));
    }

    fn bytes_text(&self, from_server: u64, to_server: u64) -> String {
        let (received, sent) = (self.received, self.sent);
        format!("bytes from/to client:{received}/{sent}, bytes from/to upstream:{from_server}/{to_server}")
    }

    fn client_text(&self) -> String {
        match self.peer {
            Peer::Inet(address) => address.to_string(),
            Peer::Unix => "unix:".to_owned(),
        }
    }

    /// The address that the client connected to.
    fn local(&self) -> Option<SocketAddr> {
        self.client.local_address(|| match &self.socket {
            ClientSide::Stream(socket) => socket.local_address(),
            ClientSide::Datagrams(held) => Some(held.0.local),
            ClientSide::Passed => None,
        })
    }

    fn local_text(&self) -> String {
        match self.local() {
            Some(address) => address.to_string(),
            None => show(&self.listener.conf().address),
        }
    }

    fn attempt(&mut self) -> &mut Attempt {
        Attempt::current(&mut self.attempts)
    }
}

/// The server that a connection to this local address is for.
fn server_for(listener: &StreamListener, local: impl FnOnce() -> Option<SocketAddr>) -> Arc<StreamServer> {
    Arc::clone(&listener.conf().group(local).default_server)
}

fn show(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Inet(address) | ListenAddress::Udp(address) => address.to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}
