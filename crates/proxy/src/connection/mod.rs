//! A client's connection: waits for requests, serves them, and closes as the last response announced.

mod head;
mod http2;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use balanza_config::model::{AddressGroup, Level, Lingering, LingeringClose, ListenAddress, NamedCertificates, Server};
use balanza_config::regex::Captures;
use balanza_http2::PREFACE;
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::event_loop;
use balanza_net::memory::{self, Pressure};
use balanza_net::timer::Timer;
use balanza_net::transport::Transport;
use balanza_tls::hello::ClientHello;
use balanza_tls::sign::CertifiedKey;

use self::head::HeadError;
use crate::body::BodyError;
use crate::client::{Arrived, Client};
use crate::clients::Awaits;
use crate::downstream::Downstream;
use crate::exchange::{Exchange, Exchanges};
use crate::preamble::{self, Refused};
use crate::running_config::Listener;
use crate::secure::{self, Begun};
use crate::servers::bound::Bindings;
use crate::thread::Thread;
use crate::variables::render;
use crate::{certificates, fault, phases};

/// How long the rest of an unused body is read, so that the connection can be kept.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// A client's connection of HTTP/1.
pub struct Connection {
    client: Rc<Client>,
    /// State for its requests.
    exchanges: Rc<Exchanges>,
    /// Its socket and timer; they belong to a request while it is served.
    downstream: Downstream,
    /// The connections to servers that are bound to it (`ntlm`), and end with it. A request has them while it is served.
    bindings: Option<Box<Bindings>>,
    /// Its listening socket, in the newest configuration seen.
    listener: Rc<Listener>,
    /// Requests so far.
    requests: u64,
    /// How long the next request may take to come: `client_header_timeout` at first, then `keepalive_timeout`.
    patience: Duration,
}

/// A client that sends nothing for so long after a response is parked: it waits in a task of its own that is a fraction
/// of the size of one that can serve a request.
const PARK_AFTER: Duration = Duration::from_millis(50);

/// The state of a connection after a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// It waits for the next request.
    KeepAlive,
    /// It is closed.
    Close,
    /// It is closed once the client has stopped sending.
    Linger,
}

/// A wait for a request.
struct Waiting {
    /// Until when.
    deadline: Nanos,
    /// Whether the first request was not looked for yet: mostly it is in the socket already.
    is_new: bool,
    /// The deadline is that of the last request before the worker ends.
    drains: bool,
}

/// The result of waiting for a request.
enum Arrival {
    /// Its first bytes.
    Request(Buffer),
    /// Nothing came until the timeout.
    Nothing,
    /// The end of the connection.
    End,
}

/// Serves a connection until its end. `first` is what was read from it already.
#[expect(
    clippy::manual_async_fn,
    reason = "a block that captures holds the connection once, the parameters of an `async fn` twice"
)]
pub fn serve(mut connection: Connection, mut first: Option<Buffer>) -> impl Future<Output = ()> {
    async move {
        clock::now();
        if connection.listener.conf().groups.iter().any(|group| group.proxy_protocol) {
            // Boxed: it is not a part of the task of an ordinary connection.
            match Box::pin(connection.proxy_protocol(first.take())).await {
                Ok(received) => first = received,
                Err(Over) => return,
            }
        }
        if connection.listener.conf().groups.iter().any(|group| group.ssl) {
            // Boxed: it is not a part of the task of a plain connection.
            match Box::pin(connection.secure(first.take())).await {
                Ok(received) => first = received,
                Err(Over) => return,
            }
        }
        let agreed = connection.client.tls.get().and_then(|tls| tls.secured.alpn.as_deref());
        // What a client has agreed on with a server of `stream` is no protocol of the address that it was passed to.
        if agreed == Some(b"h2") && connection.client.passed.is_none() {
            event_loop::spawn(http2::serve(connection, None));
            return;
        }
        let mut buffer = match first {
            Some(buffer) => buffer,
            None => match connection.wait_for_request(connection.patience).await {
                Arrival::Request(buffer) => buffer,
                Arrival::Nothing | Arrival::End => return,
            },
        };
        if connection.may_begin_http2() {
            match connection.first_protocol(&mut buffer).await {
                Some(Protocol::Http1) => {}
                Some(Protocol::Http2) => {
                    event_loop::spawn(http2::serve(connection, Some(buffer)));
                    return;
                }
                None => return,
            }
        }
        if connection.serve_requests(buffer).await == Rest::Park {
            event_loop::spawn(park(connection));
        }
    }
}

/// Waits with an idle connection until its next request or its timeout.
fn park(mut connection: Connection) -> impl Future<Output = ()> {
    connection.change_task();
    let mut waiting = connection.begin_waiting(connection.patience - PARK_AFTER);
    async move {
        let arrival = poll_fn(|cx| connection.poll_request(cx, &mut waiting)).await;
        if let Arrival::Request(buffer) = connection.end_waiting(arrival) {
            event_loop::spawn(resume(connection, buffer));
        }
    }
}

/// Serves a connection that was parked.
fn resume(mut connection: Connection, buffer: Buffer) -> impl Future<Output = ()> {
    connection.change_task();
    async move {
        if connection.serve_requests(buffer).await == Rest::Park {
            event_loop::spawn(park(connection));
        }
    }
}

/// What a client may begin with on an address of both.
enum Protocol {
    Http1,
    Http2,
}

/// A connection that has ended before its first request.
struct Over;

/// What is left to do with a connection.
#[derive(PartialEq, Eq)]
enum Rest {
    /// Nothing: it ends.
    Nothing,
    /// Wait for its next request for a long time.
    Park,
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new(thread: Rc<Thread>, exchanges: Rc<Exchanges>, arrived: Arrived, listener: Rc<Listener>) -> Connection {
        let (client, socket) = Client::new(thread, arrived);
        Connection::of(exchanges, client, socket, listener)
    }

    /// The connection of this client.
    pub fn of(exchanges: Rc<Exchanges>, client: Client, socket: Transport, listener: Rc<Listener>) -> Connection {
        let patience = listener.conf().groups[0].default_server.connection.client_header_timeout;
        let client = Rc::new(client);
        let downstream = Downstream::http1(socket);
        Connection { client, exchanges, downstream, bindings: None, listener, requests: 0, patience }
    }

    /// Reads the header of the PROXY protocol if the client's address is one of `listen … proxy_protocol`. Returns what the
    /// client has sent behind it.
    async fn proxy_protocol(&mut self, received: Option<Buffer>) -> Result<Option<Buffer>, Over> {
        let listener = Rc::clone(&self.listener);
        let local = || self.client.local_address(|| self.downstream.local_address());
        let group = listener.conf().group(local);
        if !group.proxy_protocol {
            return Ok(received);
        }
        let deadline = clock::after(group.default_server.connection.client_header_timeout);
        let (socket, timer) = self.downstream.parts();
        let message = match preamble::accept(socket, timer, deadline, received).await {
            Ok((header, received)) => {
                if let Some(header) = header {
                    let _ = self.client.proxy_protocol.set(Box::new(header));
                }
                return Ok(received);
            }
            Err(Refused::Gone) => return Err(Over),
            Err(Refused::TimedOut) => (Level::Info, "client timed out (110: Connection timed out)".to_owned()),
            Err(Refused::Broken(reason)) => (Level::Error, reason),
        };
        let address = show_address(&listener.address);
        self.report_beginning(group, message.0, &format!("{} while reading PROXY protocol", message.1), Some(&address));
        Err(Over)
    }

    /// Begins TLS if the client's address is one of `listen … ssl`. Returns what a client has sent that does not speak it.
    async fn secure(&mut self, received: Option<Buffer>) -> Result<Option<Buffer>, Over> {
        let listener = Rc::clone(&self.listener);
        let local = || self.client.local_address(|| self.downstream.local_address());
        let group = listener.conf().group(local);
        if !group.ssl {
            return Ok(received);
        }
        if self.client.tls.get().is_some() {
            self.report_beginning(group, Level::Error, secure::TWICE, None);
            return Err(Over);
        }
        let begun = self.shake_hands(group, received).await;
        begun.count(&self.client.thread.clients.metrics);
        match begun {
            Begun::Secured(tls) => {
                let _ = self.client.tls.set(tls);
                Ok(None)
            }
            Begun::Plain(buffer) => {
                self.client.lacks_tls.set(true);
                Ok(Some(buffer))
            }
            Begun::Over(reason) => {
                if let Some(reason) = reason {
                    self.report_handshake(group, &reason);
                }
                Err(Over)
            }
            Begun::Unprepared(reason) => {
                self.report_beginning(group, Level::Error, &reason, None);
                Err(Over)
            }
        }
    }

    /// Agrees with the client on TLS, with the certificate of the server that it names.
    async fn shake_hands(&mut self, group: &AddressGroup, received: Option<Buffer>) -> Begun {
        let deadline = clock::after(group.default_server.connection.client_header_timeout);
        let (socket, timer) = self.downstream.parts();
        let mut greeting = match secure::greeting(socket, timer, deadline, received).await {
            Ok(greeting) => greeting,
            Err(begun) => return begun,
        };
        let name = greeting.hello.server_name.as_deref();
        let found = name.and_then(|name| group.names.find(name.as_bytes(), &mut Captures::default()).ok().flatten());
        let found = found.map(|(server, _)| server).filter(|server| server.tls.is_some());
        let server = found.unwrap_or(&group.default_server);
        let mut context = server.tls.as_ref().map(|tls| Arc::clone(&tls.context));
        if let Some(named) = server.tls.as_ref().and_then(|tls| tls.named.as_ref()) {
            if let Err(begun) = greeting.wait_for_turn(timer, deadline).await {
                return begun;
            }
            match self.load_certificates(server, named, &greeting.hello) {
                Ok(certificates) => context = context.map(|context| Arc::new(context.with(certificates))),
                Err(why) => return greeting.refuse(self.downstream.parts().0, why).await,
            }
        }
        let (socket, timer) = self.downstream.parts();
        greeting.answer(socket, timer, deadline, context).await
    }

    /// The certificates that this server shows to the client.
    fn load_certificates(
        &self,
        server: &Arc<Server>,
        named: &NamedCertificates,
        hello: &ClientHello,
    ) -> Result<Vec<Arc<CertifiedKey>>, String> {
        // The state of a request without its connection: what it would ask of it is asked before.
        self.client.local_address(|| self.downstream.local_address());
        self.client.set_hello(Some(hello.clone()));
        let mut x = self.exchanges.take();
        x.attach(&self.client, &self.listener, 0);
        x.route.enter_server(server);
        let caches = &self.listener.running.certificates;
        let loaded = certificates::load(named, hello, caches, |template, out| render(template, &mut x, out));
        self.exchanges.put_back(x, self.client.thread.listeners.generation());
        self.client.set_hello(None);
        loaded
    }

    /// Whether clients of this address may speak HTTP/2 without having agreed on it.
    fn may_begin_http2(&self) -> bool {
        let groups = &self.listener.conf().groups;
        let has_agreed = self.client.tls.get().is_some() && self.client.passed.is_none();
        groups.iter().any(|group| group.http2) && !has_agreed && {
            let group = self.listener.conf().group(|| self.client.local_address(|| self.downstream.local_address()));
            group.http2 && !group.ssl
        }
    }

    /// The protocol that the first bytes are of. Reads more while they can be of both; none if they are of neither, so
    /// that there is no language to answer in, or if no more come.
    async fn first_protocol(&mut self, buffer: &mut Buffer) -> Option<Protocol> {
        let deadline = clock::after(self.patience);
        loop {
            let begun = buffer.unread();
            if !PREFACE.starts_with(&begun[..begun.len().min(PREFACE.len())]) {
                let line = begun.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
                let whole = line.len() < begun.trim_ascii_start().len();
                let versioned = line.windows(6).any(|window| window == b" HTTP/");
                return (!whole || versioned).then_some(Protocol::Http1);
            }
            // No method of HTTP/1 begins so.
            if begun.starts_with(b"PRI ") {
                return Some(Protocol::Http2);
            }
            let (socket, timer) = self.downstream.parts();
            let read = poll_fn(|cx| match socket.poll_recv(cx, buffer, usize::MAX) {
                Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Ok(0)),
                read => read,
            });
            if !read.await.is_ok_and(|read| read > 0) {
                return None;
            }
        }
    }

    /// Writes why a handshake has failed to the error log of the address's default server.
    fn report_handshake(&self, group: &AddressGroup, reason: &str) {
        self.report_beginning(group, Level::Info, reason, None);
    }

    fn report_beginning(&self, group: &AddressGroup, level: Level, message: &str, server: Option<&str>) {
        let logs = &group.default_server.root.settings.error_log;
        if !logs.iter().any(|log| level <= log.level) {
            return;
        }
        let peer = self.client.peer;
        let (serial, writer) = (self.client.serial, self.listener.running.errors_of(logs));
        let (before, server) = server.map_or(("", ""), |server| (", server: ", server));
        writer.write(level, format_args!("*{serial} {message}, client: {peer}{before}{server}"));
    }

    /// Goes on in another task: timer and registry still have the waker of the task before.
    fn change_task(&mut self) {
        self.downstream.timer = Timer::default();
        self.client.entry.forget_waker();
    }

    /// Serves requests, the first of which begins in `buffer`, for as long as they follow one another.
    async fn serve_requests(&mut self, mut buffer: Buffer) -> Rest {
        let mut follows = false;
        loop {
            let mut x = self.exchanges.take();
            self.requests += 1;
            x.values.pipelined = follows;
            let (after, lingering) = self.serve_request(&mut x, buffer).await;
            let pipelined = x.body.input.take().filter(|buffer| !buffer.is_empty());
            follows = pipelined.is_some();
            self.exchanges.put_back(x, self.client.thread.listeners.generation());
            buffer = match (after, pipelined) {
                (After::KeepAlive, Some(mut buffer)) => {
                    buffer.shift(0);
                    buffer
                }
                (After::KeepAlive, None) => match self.wait_for_request(PARK_AFTER.min(self.patience)).await {
                    Arrival::Request(buffer) => buffer,
                    Arrival::Nothing if self.patience > PARK_AFTER => return Rest::Park,
                    Arrival::Nothing | Arrival::End => return Rest::Nothing,
                },
                (After::Close, _) => return Rest::Nothing,
                (After::Linger, unread) => {
                    drop(unread);
                    self.linger(lingering).await;
                    return Rest::Nothing;
                }
            };
        }
    }

    /// Serves the request that begins in `buffer`. Returns also how the connection lingers, by the settings of this request.
    async fn serve_request(&mut self, x: &mut Exchange, buffer: Buffer) -> (After, Lingering) {
        if let Some(newer) = self.client.thread.listeners.newer(&self.listener) {
            self.listener = newer;
        }
        x.begin(&self.client, &self.listener, self.requests);
        std::mem::swap(&mut x.downstream, &mut self.downstream);
        std::mem::swap(&mut x.upstream.bindings, &mut self.bindings);
        x.body.input = Some(buffer);
        phases::enter_default_server(x);
        let head = head::read(x).await;
        self.client.thread.clients.awaits(&self.client.entry, Awaits::Nothing);
        let after = match head {
            Ok(()) => {
                fault::point("request");
                phases::run(x).await;
                None
            }
            Err(HeadError::Gone(status)) => {
                x.status = status;
                Some(After::Close)
            }
            Err(HeadError::NoMemory) => {
                self.client.thread.clients.alert_of_memory(x.running());
                x.report(Level::Error, format_args!("no memory for the request's head"));
                Box::pin(phases::refuse(x, 503)).await;
                // The head is large, and its rest is not needed.
                x.body.input = None;
                Some(After::Linger)
            }
            Err(HeadError::Refused(error)) => {
                x.report(Level::Info, format_args!("client sent invalid request: {}", error.reason));
                // Rare paths are boxed, because every connection's task is as large as its largest path.
                Box::pin(phases::refuse(x, error.status)).await;
                Some(After::Linger)
            }
        };
        phases::log(x);
        let after = match after {
            Some(after) => after,
            None => settle(x).await,
        };
        let settings = &x.location().settings;
        self.patience = settings.keepalive_timeout;
        let lingering = settings.lingering;
        let after = match (lingering.close, after) {
            (LingeringClose::Off, After::Linger) => After::Close,
            (LingeringClose::Always, After::Close) if x.sent.is_complete() && !x.sent.drops_connection() => {
                After::Linger
            }
            (_, after) => after,
        };
        std::mem::swap(&mut x.downstream, &mut self.downstream);
        std::mem::swap(&mut x.upstream.bindings, &mut self.bindings);
        (after, lingering)
    }

    /// Waits for the first bytes of a request.
    async fn wait_for_request(&mut self, patience: Duration) -> Arrival {
        let mut waiting = self.begin_waiting(patience);
        let arrival = poll_fn(|cx| self.poll_request(cx, &mut waiting)).await;
        self.end_waiting(arrival)
    }

    fn begin_waiting(&mut self, patience: Duration) -> Waiting {
        let is_new = self.requests == 0;
        self.client.thread.clients.awaits(&self.client.entry, Awaits::Request);
        if !is_new {
            // An error is met again by the first read.
            let _ = self.downstream.socket().watch();
        }
        Waiting { deadline: clock::after(patience), is_new, drains: false }
    }

    fn poll_request(&mut self, cx: &mut Context<'_>, waiting: &mut Waiting) -> Poll<Arrival> {
        // A new connection mostly has its request in the socket already; an idle one must not hold a buffer.
        let mut buffer = std::mem::take(&mut waiting.is_new).then(Buffer::take);
        let received = match &mut buffer {
            Some(buffer) => self.downstream.socket().poll_recv(cx, buffer, usize::MAX),
            none => self.downstream.socket().poll_recv_buffer(cx, none),
        };
        match received {
            Poll::Ready(Ok(read)) if read > 0 => return Poll::Ready(buffer.map_or(Arrival::End, Arrival::Request)),
            Poll::Ready(_) => return Poll::Ready(Arrival::End),
            // From here on the event loop reports when there is something to read.
            Poll::Pending => drop(buffer),
        }
        self.client.entry.watch(cx.waker());
        if !waiting.drains
            && let Some(patience) = self.client.thread.clients.last_wait()
        {
            waiting.drains = true;
            clock::now();
            waiting.deadline = waiting.deadline.min(clock::after(patience));
        }
        if self.client.entry.evicted.get() {
            // A request that has just arrived is served; the event loop may not have reported it yet.
            return Poll::Ready(self.downstream.socket().try_recv_buffer().map_or(Arrival::End, Arrival::Request));
        }
        if !self.downstream.timer.poll_expired(cx, waiting.deadline) {
            return Poll::Pending;
        }
        let late = if waiting.drains { self.downstream.socket().try_recv_buffer() } else { None };
        Poll::Ready(late.map_or(Arrival::Nothing, Arrival::Request))
    }

    fn end_waiting(&self, arrival: Arrival) -> Arrival {
        self.client.thread.clients.awaits(&self.client.entry, Awaits::Nothing);
        // A request that has arrived nevertheless is served.
        self.client.entry.evicted.set(false);
        match arrival {
            Arrival::Request(_) if memory::pressure() == Pressure::Requests => {
                self.client.thread.clients.make_memory(&self.listener.running);
                Arrival::End
            }
            arrival => arrival,
        }
    }

    /// Ends a connection whose client may still be sending: a close now would reset it and could destroy the
    /// response on its way.
    async fn linger(&mut self, lingering: Lingering) {
        self.bindings = None;
        self.downstream.socket().shutdown_write();
        let Lingering { time, timeout, .. } = lingering;
        let last_wait = self.client.thread.clients.last_wait();
        let end = clock::after(last_wait.map_or(time, |patience| patience.min(time)));
        loop {
            let deadline = clock::after(timeout).min(end);
            if clock::now() >= end {
                return;
            }
            // Only what has come is in a buffer, and that for a moment.
            let read = poll_fn(|cx| match self.downstream.socket().poll_recv_buffer(cx, &mut None) {
                Poll::Pending if self.downstream.timer.poll_expired(cx, deadline) => Poll::Ready(Ok(0)),
                read => read,
            });
            if !read.await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    }
}

fn show_address(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Inet(address) | ListenAddress::Udp(address) => address.to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// Makes the connection ready for the next request, or returns how it ends.
async fn settle(x: &mut Exchange) -> After {
    if x.sent.timed_out() && x.location().settings.reset_timedout_connection {
        x.downstream.socket().reset_on_close();
        return After::Close;
    }
    if !x.sent.is_complete() || !x.sent.keeps_connection() {
        // A client that wanted to go on may have sent its next request already, and would lose the response to a reset.
        let may_follow = x.client_keeps_alive && x.sent.is_complete();
        let heard_all = x.body.heard_all() && !may_follow;
        return if heard_all || x.sent.drops_connection() { After::Close } else { After::Linger };
    }
    if x.body.is_finished() {
        return After::KeepAlive;
    }
    // A client that still waits for "100 Continue" may send the body or not: this cannot be known.
    if !x.body.continued {
        return After::Linger;
    }
    let deadline = clock::after(DISCARD_TIME);
    loop {
        // The client was promised another request, so its length is not limited.
        let piece = poll_fn(|cx| match x.body.poll_piece(cx, &mut x.downstream) {
            Poll::Pending if x.downstream.timer.poll_expired(cx, deadline) => Poll::Ready(Err(BodyError::TimedOut)),
            piece => piece,
        })
        .await;
        match piece {
            Ok(_) if x.body.is_finished() => return After::KeepAlive,
            Ok(_) => {}
            Err(_) => return After::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten thousand clients wait for most of their time: these are most of what each of them costs.
    #[test]
    fn a_parked_connection_is_small() {
        fn size<F>(_: impl Fn(Connection) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(park) <= 168, "{}", size(park));
        assert!(size_of::<Client>() <= 144, "{}", size_of::<Client>());
        assert!(size_of::<crate::clients::ClientEntry>() <= 32);
    }
}
