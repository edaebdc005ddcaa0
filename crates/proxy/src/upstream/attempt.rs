//! One attempt: connect, send the request, wait for the response's head.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use balanza_config::model::{Location, ProxySettings, UpstreamTls};
use balanza_http1::{Body, Parsed};
use balanza_message::Method;
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock;

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

/// Sends the request to a server and reads its response's head into `x.upstream.response`. A kept-alive connection that turns
/// out to be closed is replaced by a fresh one.
pub(super) async fn reach(
    x: &mut Exchange,
    location: &Arc<Location>,
    choice: &mut Choice,
    tag: usize,
    tls: Option<&UpstreamTls>,
    payload: Payload,
) -> Result<Reached, Failure> {
    let lease = choice.lease.as_ref();
    let reused = lease.and_then(|lease| lease.upstream.idle.borrow_mut().take(lease.server(), tag, clock::recent()));
    reach_by(x, location, choice, reused, tls, payload).await
}

/// The same, first on a connection that was used before.
pub(super) async fn reach_by(
    x: &mut Exchange,
    location: &Arc<Location>,
    choice: &mut Choice,
    mut reused: Option<Box<ServerConnection>>,
    tls: Option<&UpstreamTls>,
    payload: Payload,
) -> Result<Reached, Failure> {
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
        let answered = talk(x, location, &connection, &mut sending, !is_reused, &mut buffer).await;
        x.upstream.attempt().bytes_sent = sending.total;
        x.upstream.sent_whole = sending.done;
        match answered {
            Ok((body, keeps_alive)) => {
                tell_of_head(x, choice);
                let first = buffer.unwrap_or_else(Buffer::take);
                return Ok(Reached { line: Line::Http1(connection), first, body, keeps_alive });
            }
            Err((cause, doing)) => {
                let sent = sending.total > 0;
                let stale = is_reused
                    && !choice.is_cut_off()
                    && buffer.as_ref().is_none_or(Buffer::is_empty)
                    && matches!(cause, Cause::Send(_) | Cause::Receive(_) | Cause::Closed(false))
                    && may_repeat(x, &proxy.next_upstream, sent);
                if !stale {
                    return Err(Failure { cause, doing, sent });
                }
            }
        }
    }
}

/// Sends the request and reads the response's head; what follows it stays in `received`. Returns how the body is delimited,
/// and whether the connection may be used again.
async fn talk(
    x: &mut Exchange,
    location: &Location,
    server: &ServerConnection,
    sending: &mut Sending,
    fresh: bool,
    received: &mut Option<Buffer>,
) -> Result<(Body, bool), (Cause, Doing)> {
    let proxy: &ProxySettings = &location.settings.proxy;
    let limit = proxy.buffer_size.unwrap_or(buffer::CAPACITY).min(buffer::CAPACITY);
    let mut parsed_all = true;
    let mut interim = 0;
    loop {
        // Several interim heads may come in one piece.
        if std::mem::replace(&mut parsed_all, true) {
            receive(x, location, server, sending, fresh, received).await?;
        }
        let Some(buffer) = received.as_mut() else { continue };
        let passes_hints = hints::may_pass(x, &location.settings);
        let mut interim_head = None;
        let method = if x.route.method_is_get { Method::Get } else { sent_method(x, proxy) };
        let thread = Rc::clone(&x.client().thread);
        {
            let mut head = thread.response_head.borrow_mut();
            match head.parse(buffer.unread(), method, limit) {
                Ok(Parsed::Incomplete) if buffer.space().is_empty() || buffer.unread().len() >= limit => {
                    return Err((Cause::Invalid("upstream sent too big header"), Doing::Reading));
                }
                Ok(Parsed::Incomplete) => {}
                Ok(Parsed::Complete(_)) if head.is_interim() && interim == MAX_INTERIM => {
                    return Err((Cause::Invalid("upstream sent too many interim responses"), Doing::Reading));
                }
                Ok(Parsed::Complete(length)) if head.is_interim() => {
                    interim += 1;
                    if passes_hints && head.status == HINTS {
                        head.hand_over(buffer.unread(), length, interim_head.get_or_insert_default());
                    }
                    buffer.start += length;
                    if buffer.is_empty() {
                        buffer.start = 0;
                        buffer.end = 0;
                    } else {
                        buffer.shift(0);
                        parsed_all = false;
                    }
                }
                Ok(Parsed::Complete(length)) => {
                    let asked = x.upstream.upgrade_sent && sending.done && head.upgrade.is_some();
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
                    return Ok(framing);
                }
                Err(error) => return Err((Cause::Invalid(error.reason), Doing::Reading)),
            }
        }
        if let Some(interim) = interim_head {
            Box::pin(hints::pass(x, location, &interim)).await?;
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

/// Continues to send and waits for some bytes of the response.
async fn receive(
    x: &mut Exchange,
    location: &Location,
    server: &ServerConnection,
    sending: &mut Sending,
    fresh: bool,
    buffer: &mut Option<Buffer>,
) -> Result<(), (Cause, Doing)> {
    let settings = &location.settings;
    let proxy: &ProxySettings = &settings.proxy;
    let begun = clock::recent();
    let mut doing = match (sending.done, fresh) {
        (true, _) => Doing::Reading,
        (false, true) if sending.total == 0 => Doing::Connecting,
        (false, _) => Doing::Sending,
    };
    let mut progress = sending.total;
    let patience = |doing: Doing, awaits_client: bool| match doing {
        Doing::Connecting | Doing::Handshaking => proxy.connect_timeout,
        Doing::Sending if awaits_client => settings.client_body_timeout,
        Doing::Sending => proxy.send_timeout,
        Doing::Reading | Doing::Proxying => proxy.read_timeout,
    };
    let mut deadline = begun.saturating_add(clock::nanos(patience(doing, false)));
    let watch = begun + clock::nanos(WATCH_CLIENT_AFTER);
    let mut watching = false;
    let mut send_error = None;
    poll_fn(|cx| {
        if !sending.done && send_error.is_none() {
            let result = sending.poll(cx, x, server);
            if sending.total > 0 && doing == Doing::Connecting {
                doing = Doing::Sending;
                let attempt = x.upstream.attempt();
                attempt.connect_time = Some(clock::recent() - attempt.started);
            }
            match result {
                Poll::Ready(Ok(())) => {
                    doing = Doing::Reading;
                    deadline = clock::after(proxy.read_timeout);
                    // Only now the socket has to be watched.
                    if let Err(error) = server.socket.watch() {
                        return Poll::Ready(Err((Cause::of("epoll_ctl", error, Cause::Receive), doing)));
                    }
                }
                Poll::Ready(Err(SendingError::Server(error))) if doing == Doing::Connecting => {
                    return Poll::Ready(Err((Cause::of("connect", error, Cause::Connect), doing)));
                }
                // The server may have answered before it closed.
                Poll::Ready(Err(SendingError::Server(error))) => send_error = Some(error),
                Poll::Ready(Err(SendingError::Client(error))) => {
                    return Poll::Ready(Err((Cause::Body(error), doing)));
                }
                Poll::Pending if sending.total != progress => {
                    progress = sending.total;
                    deadline = clock::after(patience(doing, sending.awaits_client));
                }
                Poll::Pending => {}
            }
        }
        if doing != Doing::Connecting {
            match server.socket.poll_recv_buffer(cx, buffer) {
                Poll::Ready(Ok(0)) => {
                    let cause = match send_error.take() {
                        Some(error) => Cause::of("send", error, Cause::Send),
                        None => Cause::Closed(buffer.as_ref().is_some_and(|buffer| !buffer.is_empty())),
                    };
                    return Poll::Ready(Err((cause, doing)));
                }
                Poll::Ready(Ok(_)) => {
                    clock::now();
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(error)) => {
                    let cause = match send_error.take() {
                        Some(error) => Cause::of("send", error, Cause::Send),
                        None => Cause::of("recv", error, Cause::Receive),
                    };
                    return Poll::Ready(Err((cause, doing)));
                }
                Poll::Pending => {}
            }
        }
        let unwatched = !watching && !sending.awaits_client && !proxy.reads_without_client();
        if x.downstream.timer.poll_expired(cx, if unwatched { deadline.min(watch) } else { deadline }) {
            let now = clock::now();
            if now >= deadline {
                let cause = match sending.awaits_client {
                    true => Cause::Body(BodyError::TimedOut),
                    false => Cause::TimedOut,
                };
                return Poll::Ready(Err((cause, doing)));
            }
            watching = true;
            // Once more, for the timer of the deadline.
            cx.waker().wake_by_ref();
        }
        if watching && !sending.awaits_client && x.downstream.poll_peer_closed(cx).is_ready() {
            return Poll::Ready(Err((Cause::ClientGone, doing)));
        }
        Poll::Pending
    })
    .await
}
