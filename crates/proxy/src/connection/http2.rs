//! A client's connection of HTTP/2: each request is a task of its own, and this one moves their bytes.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use balanza_config::model::{ConnectionSettings, Level};
use balanza_http2::server::{self, Asked, Settings, Stream};
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::event_loop;
use balanza_net::timer::Timer;
use balanza_net::transport::Transport;
use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::{Connection, head};
use crate::client::Client;
use crate::clients::Awaits;
use crate::downstream::Downstream;
use crate::exchange::{Exchange, Exchanges};
use crate::running_config::Listener;
use crate::{fault, phases};

/// A head may be so much larger than the limits before HTTP/2 itself refuses it: what is refused by the limits gets an
/// answer and a line in the log.
const HEAD_MARGIN: usize = 16 * 1024;

/// The most that is read of a client whose connection has ended.
const LINGER_BYTES: usize = 1 << 20;
/// How long that may take.
const LINGER: Duration = Duration::from_secs(5);

/// Requests that their client gives up may outnumber those that are answered by so many times the requests that it may
/// have at once.
const RESETS: u32 = 2;

/// What a connection and its requests tell each other.
struct Shared {
    client: Rc<Client>,
    exchanges: Rc<Exchanges>,
    /// Requests being served.
    active: Cell<u32>,
    /// Requests that the client gave up, less those that were answered.
    given_up: Cell<u32>,
    /// How long the connection may be idle: `keepalive_timeout`, of the last request.
    patience: Cell<Duration>,
    /// The connection has served as much as it may.
    spent: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A request that is being served.
struct Active(Rc<Shared>);

impl Active {
    fn new(shared: &Rc<Shared>) -> Active {
        if shared.active.replace(shared.active.get() + 1) == 0 {
            shared.client.thread.clients.awaits(&shared.client.entry, Awaits::Nothing);
        }
        Active(Rc::clone(shared))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let shared = &self.0;
        shared.active.set(shared.active.get() - 1);
        if shared.active.get() == 0 {
            shared.client.thread.clients.awaits(&shared.client.entry, Awaits::Request);
        }
        if let Some(waker) = &*shared.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// How far the end of a connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It goes on.
    No,
    /// The client has been told to send no more requests.
    Told,
    /// It is over; only the client has to learn it.
    Over,
}

struct Served {
    shared: Rc<Shared>,
    connection: server::Connection,
    listener: Rc<Listener>,
    requests: u64,
    timer: Timer,
    /// When it was last found without requests; 0 while there are some.
    idle_since: Nanos,
    ending: Ending,
}

/// Serves a connection that speaks HTTP/2 until its end. `received` was read from it.
pub async fn serve(connection: Connection, received: Option<Buffer>) {
    let Connection { client, exchanges, downstream, listener, patience, .. } = connection;
    client.entry.forget_waker();
    let (socket, _) = downstream.into_parts();
    client.local_address(|| socket.local_address());
    let _ = client.shared_socket.set(socket.hang_up());
    // Frames of several requests go out at different times.
    socket.set_nodelay();
    let socket = Rc::new(socket);
    let mut timer = Timer::default();
    let settings = settings(&listener);
    let deadline = clock::after(patience);
    let begun = {
        let mut begin = pin!(server::Connection::begin(Rc::clone(&socket), received, settings));
        poll_fn(|cx| match begin.as_mut().poll(cx) {
            Poll::Ready(begun) => Poll::Ready(begun.ok()),
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    };
    let Some(connection) = begun else { return };
    client.thread.clients.awaits(&client.entry, Awaits::Request);
    client.entry.multiplexed.set(true);
    let shared = Rc::new(Shared {
        client,
        exchanges,
        active: Cell::new(0),
        given_up: Cell::new(0),
        patience: Cell::new(patience),
        spent: Cell::new(false),
        waker: RefCell::new(None),
    });
    let idle_since = clock::now();
    let ending = Ending::No;
    let mut served = Served { shared, connection, listener, requests: 0, timer, idle_since, ending };
    poll_fn(|cx| served.poll(cx)).await;
    let Served { shared, connection, timer, .. } = served;
    drop(connection);
    linger(&socket, timer, &shared.client).await;
}

/// What the default server of the address allows.
fn settings(listener: &Listener) -> Settings {
    let server: &ConnectionSettings = &listener.conf().groups[0].default_server.connection;
    Settings {
        streams: server.http2.max_concurrent_streams,
        // Without a window nothing of a body would ever come.
        window: match server.http2.body_preread_size {
            0 => 16 * 1024,
            size => size,
        },
        head: u32::try_from(head::limits(server).head + HEAD_MARGIN).unwrap_or(u32::MAX),
    }
}

impl Served {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = Rc::clone(&self.shared);
        shared.client.entry.watch(cx.waker());
        shared.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        self.connection.begin_turn();
        loop {
            match self.connection.poll_request(cx) {
                Poll::Ready(Some(Ok((asked, stream)))) => {
                    self.begin_request(asked, stream);
                    continue;
                }
                Poll::Ready(Some(Err(error))) => {
                    let peer = shared.client.peer;
                    let message = format_args!("*{} {error}, client: {peer}", shared.client.serial);
                    self.listener.running.errors().write(Level::Info, message);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            let ending = self.next_ending();
            if ending == self.ending {
                break;
            }
            self.ending = ending;
        }
        self.poll_deadlines(cx)
    }

    /// Tells the client of an end that is due, and returns how far it has come.
    fn next_ending(&mut self) -> Ending {
        let shared = &self.shared;
        let streams = settings(&self.listener).streams;
        if self.ending == Ending::Over {
            return Ending::Over;
        }
        let floods = shared.active.get() > streams.saturating_mul(RESETS)
            || shared.given_up.get() > streams.saturating_mul(RESETS)
            || self.connection.is_flooded();
        if floods {
            let message = format_args!("*{} http2 flood detected", shared.client.serial);
            self.listener.running.errors().write(Level::Info, message);
            self.connection.end_abruptly(true);
            return Ending::Over;
        }
        let entry = &shared.client.entry;
        if entry.evicted.get() && shared.active.get() == 0 {
            self.connection.end_abruptly(false);
            return Ending::Over;
        }
        let due = shared.spent.get() || shared.client.must_end(&self.listener);
        if due && self.ending == Ending::No {
            self.connection.end_gracefully();
            return Ending::Told;
        }
        self.ending
    }

    /// Ends an idle connection after its time, and one whose client does not read.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &self.shared;
        if shared.active.get() > 0 {
            self.idle_since = 0;
        } else if self.idle_since == 0 {
            self.idle_since = clock::now();
        }
        let patience = match self.ending {
            Ending::No => shared.patience.get(),
            Ending::Told => shared.client.thread.clients.last_wait().map_or(LINGER, |patience| patience.min(LINGER)),
            Ending::Over => LINGER,
        };
        let idle = match self.idle_since {
            0 if self.ending != Ending::Over => Nanos::MAX,
            0 => clock::now().saturating_add(clock::nanos(patience)),
            since => since.saturating_add(clock::nanos(patience)),
        };
        let root = &self.listener.conf().groups[0].default_server.root.settings;
        let stalled = self.connection.stalls_until(clock::nanos(root.send_timeout)).unwrap_or(Nanos::MAX);
        if !self.timer.poll_expired(cx, idle.min(stalled)) {
            return Poll::Pending;
        }
        if self.ending != Ending::No || clock::now() >= stalled {
            return Poll::Ready(());
        }
        self.connection.end_abruptly(false);
        self.ending = Ending::Over;
        self.idle_since = clock::now();
        // Once more, to send it.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn begin_request(&mut self, asked: Asked, stream: Stream) {
        if let Some(newer) = self.shared.client.thread.listeners.newer(&self.listener) {
            self.listener = newer;
        }
        self.requests += 1;
        let active = Active::new(&self.shared);
        event_loop::spawn(serve_request(active, Rc::clone(&self.listener), self.requests, asked, stream));
    }
}

/// Serves one request.
#[expect(
    clippy::manual_async_fn,
    reason = "a block that captures holds its values once, the parameters of an `async fn` twice"
)]
fn serve_request(
    active: Active,
    listener: Rc<Listener>,
    ordinal: u64,
    asked: Asked,
    stream: Stream,
) -> impl Future<Output = ()> {
    async move {
        let shared = &active.0;
        let mut x = shared.exchanges.take();
        x.begin(&shared.client, &listener, ordinal);
        x.downstream = Downstream::http2(stream, asked.opens_websocket());
        phases::enter_default_server(&mut x);
        let limits = head::limits(&x.server().connection);
        match asked.translate(&limits, websocket_key, &mut x.request) {
            Ok(()) => {
                drop(asked);
                x.head_complete = true;
                x.client_keeps_alive = true;
                x.head_length = x.request.text.len() as u64;
                let length = x.request.body;
                x.body.begin_stream(length);
                fault::point("request");
                phases::run(&mut x).await;
            }
            Err(error) => {
                x.head_length = x.request.text.len() as u64;
                x.report(Level::Info, format_args!("client sent invalid request: {}", error.reason));
                Box::pin(phases::refuse(&mut x, error.status)).await;
            }
        }
        phases::log(&mut x);
        finish(shared, &mut x);
        shared.exchanges.put_back(x, shared.client.thread.listeners.generation());
    }
}

/// The key of a WebSocket that is asked for by HTTP/1.1. It is no secret, and only has to differ.
fn websocket_key() -> String {
    let mut nonce = [0; 16];
    let _ = aws_lc_rs::rand::fill(&mut nonce);
    BASE64_STANDARD.encode(nonce)
}

/// Ends a stream, and keeps account of it for its connection.
fn finish(shared: &Shared, x: &mut Exchange) {
    let given_up = shared.given_up.get();
    if x.sent.is_complete() {
        shared.given_up.set(given_up.saturating_sub(1));
    } else {
        shared.given_up.set(given_up + 1);
        x.downstream.abort();
    }
    x.downstream = Downstream::default();
    let settings = &x.location().settings;
    shared.patience.set(settings.keepalive_timeout);
    let age = clock::now() - shared.client.accepted;
    if x.ordinal >= settings.keepalive_requests
        || settings.keepalive_timeout.is_zero()
        || age >= clock::nanos(settings.keepalive_time)
    {
        shared.spent.set(true);
    }
}

/// Reads what the client still sends, if it is not much, so that a reset does not destroy the last frames on their way.
async fn linger(socket: &Transport, mut timer: Timer, client: &Client) {
    socket.shutdown_write();
    let patience = client.thread.clients.last_wait().map_or(LINGER, |patience| patience.min(LINGER));
    let deadline = clock::after(patience);
    let mut total = 0;
    while total < LINGER_BYTES {
        let read = poll_fn(|cx| match socket.poll_recv_buffer(cx, &mut None) {
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Ok(0)),
            read => read,
        });
        match read.await {
            Ok(read) if read > 0 && clock::now() < deadline => total += read,
            _ => return,
        }
    }
}
