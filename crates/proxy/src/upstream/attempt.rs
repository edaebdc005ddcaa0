//! One attempt: connect, send the request, wait for the response's head.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use balanza_config::model::{Location, NextUpstream, ProxySettings, Settings, UpstreamTls};
use balanza_http1::{Body, Parsed};
use balanza_message::Method;
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock::{self, Nanos};

use super::forward::may_repeat;
use super::hints;
use super::line::{Line, Reached, connect, shake, tell_of_head};
use super::request::{Payload, Sending, SendingError};
use crate::body::BodyError;
use crate::exchange::Exchange;
use crate::servers::failure::{Cause, Doing, Failure};
use crate::servers::pool::ServerConnection;
use crate::servers::search::Choice;

/// After this time without a response, it is watched whether the client closes the connection; a faster response saves
/// this work.
pub(super) const WATCH_CLIENT_AFTER: Duration = Duration::from_millis(100);

/// How many interim responses (1xx) a server may send before the real one.
pub(super) const MAX_INTERIM: u32 = 16;

/// The status of interim responses that clients may get.
pub(super) const HINTS: u16 = 103;

/// What an attempt has come to so far.
pub(super) enum Heard {
    /// The head of a response.
    Head(Reached),
    /// Nothing yet, and it is time to ask another server too.
    Nothing(Box<Unanswered>),
}

/// A request that a server has not answered yet.
pub(super) struct Unanswered {
    pub connection: Box<ServerConnection>,
    pub sending: Sending,
    /// What has come of the response.
    pub buffer: Option<Buffer>,
    /// The connection was made for this request.
    pub fresh: bool,
    pub waiting: Waiting,
    /// Interim responses that have come.
    pub interim: u32,
}

impl Unanswered {
    /// Continues to send, and reads some bytes of the response. The record of the attempt has so many others behind it.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        settings: &Settings,
        behind: usize,
    ) -> Poll<Result<(), (Cause, Doing)>> {
        let Unanswered { connection, sending, buffer, waiting, .. } = self;
        let heard = ready!(waiting.poll(cx, x, settings, connection, sending, buffer, behind));
        waiting.deadline = clock::after(patience(waiting.doing, false, settings));
        Poll::Ready(heard)
    }

    /// Notes what was sent, of the last attempt.
    pub fn note(&self, x: &mut Exchange) {
        x.upstream.attempt().bytes_sent = self.sending.total;
        x.upstream.sent_whole = self.sending.done;
    }

    /// Whether it failed because its kept-alive connection was closed, so that a fresh one may be used.
    pub fn is_stale(&self, x: &Exchange, choice: &Choice, next: &NextUpstream, cause: &Cause) -> bool {
        !self.fresh && is_stale(x, choice, next, cause, self.buffer.as_ref(), self.sending.total > 0)
    }
}

/// The same of a connection that was used before.
fn is_stale(
    x: &Exchange,
    choice: &Choice,
    next: &NextUpstream,
    cause: &Cause,
    buffer: Option<&Buffer>,
    sent: bool,
) -> bool {
    !choice.is_cut_off()
        && buffer.is_none_or(Buffer::is_empty)
        && matches!(cause, Cause::Send(_) | Cause::Receive(_) | Cause::Closed(false))
        && may_repeat(x, next, sent)
}

/// Sends the request to a server and reads its response's head into `x.upstream.response`. A kept-alive connection that turns
/// out to be closed is replaced by a fresh one. If no head has come at `late`, the attempt is handed over.
#[allow(clippy::too_many_arguments)]
pub(super) async fn reach(
    x: &mut Exchange,
    location: &Arc<Location>,
    choice: &mut Choice,
    tag: usize,
    tls: Option<&UpstreamTls>,
    payload: Payload,
    late: Nanos,
) -> Result<Heard, Failure> {
    let lease = choice.lease.as_ref();
    let reused = lease.and_then(|lease| lease.upstream.idle.borrow_mut().take(lease.server(), tag, clock::recent()));
    reach_by(x, location, choice, reused, tls, payload, late).await
}

/// The same, first on a connection that was used before.
#[allow(clippy::too_many_arguments)]
pub(super) async fn reach_by(
    x: &mut Exchange,
    location: &Arc<Location>,
    choice: &mut Choice,
    mut reused: Option<Box<ServerConnection>>,
    tls: Option<&UpstreamTls>,
    payload: Payload,
    late: Nanos,
) -> Result<Heard, Failure> {
    let proxy: &ProxySettings = &location.settings.proxy;
    loop {
        let is_reused = reused.is_some();
        let mut connection = match reused.take() {
            Some(connection) => {
                x.upstream.attempt().connect_time = Some(0);
                connection
            }
            None => match connect(x, proxy, choice) {
                Ok(socket) => Box::new(ServerConnection { socket, requests: 0, opened: clock::recent() }),
                Err(error) => return Err(Failure::connecting(error.into())),
            },
        };
        if let Some(tls) = tls.filter(|_| !is_reused) {
            shake(x, proxy, tls, &choice.address, &connection.socket).await?;
        }
        connection.requests += 1;
        let mut sending = Sending::new(payload, x);
        // Taken when there is something to read: a request that waits holds none.
        let mut buffer = None;
        let answered = talk(x, location, &connection, &mut sending, !is_reused, &mut buffer, late).await;
        x.upstream.attempt().bytes_sent = sending.total;
        x.upstream.sent_whole = sending.done;
        match answered {
            Ok(Talked::Head(body, keeps_alive)) => {
                tell_of_head(x, choice);
                let first = buffer.unwrap_or_else(Buffer::take);
                return Ok(Heard::Head(Reached { line: Line::Http1(connection), first, body, keeps_alive }));
            }
            Ok(Talked::Late(waiting, interim)) => {
                let fresh = !is_reused;
                return Ok(Heard::Nothing(Box::new(Unanswered {
                    connection,
                    sending,
                    buffer,
                    fresh,
                    waiting,
                    interim,
                })));
            }
            Err((cause, doing)) => {
                let sent = sending.total > 0;
                if !is_reused || !is_stale(x, choice, &proxy.next_upstream, &cause, buffer.as_ref(), sent) {
                    return Err(Failure { cause, doing, sent });
                }
            }
        }
    }
}

/// What a server was heard of.
enum Talked {
    /// A head: how the body is delimited, and whether the connection may be used again.
    Head(Body, bool),
    /// It is late; and how many interim responses have come.
    Late(Waiting, u32),
}

/// Sends the request and reads the response's head; what follows it stays in `received`.
async fn talk(
    x: &mut Exchange,
    location: &Location,
    server: &ServerConnection,
    sending: &mut Sending,
    fresh: bool,
    received: &mut Option<Buffer>,
    late: Nanos,
) -> Result<Talked, (Cause, Doing)> {
    let mut interim = 0;
    loop {
        if let Some(waiting) = receive(x, location, server, sending, fresh, received, late).await? {
            return Ok(Talked::Late(waiting, interim));
        }
        if let Some((body, keeps_alive)) = next_head(x, location, sending.done, received, &mut interim).await? {
            return Ok(Talked::Head(body, keeps_alive));
        }
    }
}

/// Reads the response's head in what has been received, unless a part is missing. Returns how the body is delimited, and
/// whether the connection may be used again.
pub(super) async fn next_head(
    x: &mut Exchange,
    location: &Location,
    sent_all: bool,
    received: &mut Option<Buffer>,
    interim: &mut u32,
) -> Result<Option<(Body, bool)>, (Cause, Doing)> {
    let proxy: &ProxySettings = &location.settings.proxy;
    let limit = proxy.buffer_size.unwrap_or(buffer::CAPACITY).min(buffer::CAPACITY);
    // Several interim heads may come in one piece.
    loop {
        let Some(buffer) = received.as_mut() else { return Ok(None) };
        let passes_hints = hints::may_pass(x, &location.settings);
        let mut interim_head = None;
        let method = if x.route.method_is_get { Method::Get } else { sent_method(x, proxy) };
        let thread = Rc::clone(&x.client().thread);
        let is_empty;
        {
            let mut head = thread.response_head.borrow_mut();
            match head.parse(buffer.unread(), method, limit) {
                Ok(Parsed::Incomplete) if buffer.space().is_empty() || buffer.unread().len() >= limit => {
                    return Err((Cause::Invalid("upstream sent too big header"), Doing::Reading));
                }
                Ok(Parsed::Incomplete) => return Ok(None),
                Ok(Parsed::Complete(_)) if head.is_interim() && *interim == MAX_INTERIM => {
                    return Err((Cause::Invalid("upstream sent too many interim responses"), Doing::Reading));
                }
                Ok(Parsed::Complete(length)) if head.is_interim() => {
                    *interim += 1;
                    if passes_hints && head.status == HINTS {
                        head.hand_over(buffer.unread(), length, interim_head.get_or_insert_default());
                    }
                    buffer.start += length;
                    is_empty = buffer.is_empty();
                    if is_empty {
                        buffer.start = 0;
                        buffer.end = 0;
                    } else {
                        buffer.shift(0);
                    }
                }
                Ok(Parsed::Complete(length)) => {
                    let asked = x.upstream.upgrade_sent && sent_all && head.upgrade.is_some();
                    let asked = asked && x.downstream.can_switch();
                    if head.status == 101 && !asked {
                        return Err((Cause::Invalid("upstream sent 101 without being asked to"), Doing::Reading));
                    }
                    head.hand_over(buffer.unread(), length, &mut x.upstream.response);
                    let framing = (head.body, head.keep_alive);
                    buffer.start += length;
                    x.upstream.answered = true;
                    let now = clock::recent();
                    let status = x.upstream.response.status;
                    let attempt = x.upstream.attempt();
                    attempt.status = status;
                    attempt.header_time = Some(now - attempt.started);
                    attempt.bytes_received = length as u64;
                    return Ok(Some(framing));
                }
                Err(error) => return Err((Cause::Invalid(error.reason), Doing::Reading)),
            }
        }
        if let Some(interim) = interim_head {
            Box::pin(hints::pass(x, location, &interim)).await?;
        }
        if is_empty {
            return Ok(None);
        }
    }
}

/// The method that the server was asked with: only HEAD matters, whose response has no body.
pub(super) fn sent_method(x: &Exchange, proxy: &ProxySettings) -> Method {
    match &proxy.method {
        None => x.method(),
        Some(_) => Method::recognise(&x.upstream.method),
    }
}

/// How far an exchange with a server is, until it has answered.
pub(super) struct Waiting {
    pub doing: Doing,
    /// When the server has taken too long.
    pub deadline: Nanos,
    /// How much had been sent when that was set.
    progress: u64,
    /// The server may have answered before it closed.
    send_error: Option<io::Error>,
}

impl Waiting {
    /// Begins now.
    pub fn new(sending: &Sending, fresh: bool, settings: &Settings) -> Waiting {
        let doing = match (sending.done, fresh) {
            (true, _) => Doing::Reading,
            (false, true) if sending.total == 0 => Doing::Connecting,
            (false, _) => Doing::Sending,
        };
        let deadline = clock::recent().saturating_add(clock::nanos(patience(doing, false, settings)));
        Waiting { doing, deadline, progress: sending.total, send_error: None }
    }

    /// Continues to send, and reads some bytes of the response. The record of the attempt has so many others behind it.
    #[allow(clippy::too_many_arguments)]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        settings: &Settings,
        server: &ServerConnection,
        sending: &mut Sending,
        buffer: &mut Option<Buffer>,
        behind: usize,
    ) -> Poll<Result<(), (Cause, Doing)>> {
        if !sending.done && self.send_error.is_none() {
            let result = sending.poll(cx, x, server);
            if sending.total > 0 && self.doing == Doing::Connecting {
                self.doing = Doing::Sending;
                if let Some(attempt) = x.upstream.attempts.iter_mut().rev().nth(behind) {
                    attempt.connect_time = Some(clock::recent() - attempt.started);
                }
            }
            match result {
                Poll::Ready(Ok(())) => {
                    self.doing = Doing::Reading;
                    self.deadline = clock::after(settings.proxy.read_timeout);
                    // Only now the socket has to be watched.
                    if let Err(error) = server.socket.watch() {
                        return Poll::Ready(Err((Cause::of("epoll_ctl", error, Cause::Receive), self.doing)));
                    }
                }
                Poll::Ready(Err(SendingError::Server(error))) if self.doing == Doing::Connecting => {
                    return Poll::Ready(Err((Cause::of("connect", error, Cause::Connect), self.doing)));
                }
                Poll::Ready(Err(SendingError::Server(error))) => self.send_error = Some(error),
                Poll::Ready(Err(SendingError::Client(error))) => {
                    return Poll::Ready(Err((Cause::Body(error), self.doing)));
                }
                Poll::Pending if sending.total != self.progress => {
                    self.progress = sending.total;
                    self.deadline = clock::after(patience(self.doing, sending.awaits_client, settings));
                }
                Poll::Pending => {}
            }
        }
        if self.doing == Doing::Connecting {
            return Poll::Pending;
        }
        let cause = match ready!(server.socket.poll_recv_buffer(cx, buffer)) {
            Ok(0) => match self.send_error.take() {
                Some(error) => Cause::of("send", error, Cause::Send),
                None => Cause::Closed(buffer.as_ref().is_some_and(|buffer| !buffer.is_empty())),
            },
            Ok(_) => {
                clock::now();
                return Poll::Ready(Ok(()));
            }
            Err(error) => match self.send_error.take() {
                Some(error) => Cause::of("send", error, Cause::Send),
                None => Cause::of("recv", error, Cause::Receive),
            },
        };
        Poll::Ready(Err((cause, self.doing)))
    }
}

/// How long the server, or the client, may take for what is being done.
fn patience(doing: Doing, awaits_client: bool, settings: &Settings) -> Duration {
    match doing {
        Doing::Connecting | Doing::Handshaking => settings.proxy.connect_timeout,
        Doing::Sending if awaits_client => settings.client_body_timeout,
        Doing::Sending => settings.proxy.send_timeout,
        Doing::Reading | Doing::Proxying => settings.proxy.read_timeout,
    }
}

/// Continues to send and waits for some bytes of the response; at `late` it does not wait any longer, and tells how far it is.
async fn receive(
    x: &mut Exchange,
    location: &Location,
    server: &ServerConnection,
    sending: &mut Sending,
    fresh: bool,
    buffer: &mut Option<Buffer>,
    late: Nanos,
) -> Result<Option<Waiting>, (Cause, Doing)> {
    let settings = &location.settings;
    let mut waiting = Waiting::new(sending, fresh, settings);
    let watch = clock::recent() + clock::nanos(WATCH_CLIENT_AFTER);
    let mut watching = false;
    let heard = poll_fn(|cx| {
        if let Poll::Ready(heard) = waiting.poll(cx, x, settings, server, sending, buffer, 0) {
            return Poll::Ready(heard.map(|()| false));
        }
        let unwatched = !watching && !sending.awaits_client && !settings.proxy.reads_without_client();
        let deadline = waiting.deadline.min(late);
        if x.downstream.timer.poll_expired(cx, if unwatched { deadline.min(watch) } else { deadline }) {
            let now = clock::now();
            if now >= waiting.deadline {
                let cause = match sending.awaits_client {
                    true => Cause::Body(BodyError::TimedOut),
                    false => Cause::TimedOut,
                };
                return Poll::Ready(Err((cause, waiting.doing)));
            }
            if now >= late {
                return Poll::Ready(Ok(true));
            }
            watching = true;
            // Once more, for the timer of the deadline.
            cx.waker().wake_by_ref();
        }
        if watching && !sending.awaits_client && x.downstream.poll_peer_closed(cx).is_ready() {
            return Poll::Ready(Err((Cause::ClientGone, waiting.doing)));
        }
        Poll::Pending
    });
    let is_late = heard.await?;
    Ok(Some(waiting).filter(|_| is_late))
}
