//! One attempt by HTTP/2: a place on a connection, the request, the head of the response.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use balanza_config::model::{Location, ProxySettings, UpstreamTls};
use balanza_http1::Body;
use balanza_http2::client::{self, Head, Settings, StreamError};
use balanza_message::{Header, Length, Method, Response};
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock::{self, Nanos};
use balanza_net::transport::Transport;

use super::attempt::Order;
use super::client_watch::{ClientWatch, Over};
use super::forward::may_repeat;
use super::hints;
use super::line::{Line, Reached, connect, shake, tell_of_head};
use super::talk::Talk;
use super::unanswered::{MAX_INTERIM, sent_method};
use crate::body::BodyError;
use crate::exchange::Exchange;
use crate::servers::failure::{Cause, Doing, Failure};
use crate::servers::multiplexed::{self, Found, MOST_STREAMS, Seat, SharedPool};
use crate::servers::search::Choice;

/// What a connection allows its server. All streams together may fill the windows of all of them, so that a slow client does
/// not hold the others.
const SETTINGS: Settings =
    Settings { streams: MOST_STREAMS, window: 2 * buffer::CAPACITY as u32, head: 2 * buffer::CAPACITY as u32 };

/// How often a request that a server has not looked at is sent to it again on another connection.
const AGAIN: u32 = 2;

/// Sends the request to a server and reads its response's head into `x.upstream.response`. A shared connection that turns out
/// to be over is replaced by another.
pub(super) async fn reach(x: &mut Exchange, order: Order<'_>, choice: &mut Choice) -> Result<Reached, Failure> {
    let Order { location, payload, tag, tls } = order;
    let proxy: &ProxySettings = &location.settings.proxy;
    let mut again = 0;
    loop {
        let seat = find_seat(x, proxy, choice, tag, tls).await?;
        let line = Rc::clone(&seat.0);
        let is_reused = line.is_reused();
        let ends = Talk::is_empty(x, payload);
        let head = match head(x) {
            Ok(head) => head,
            Err(reason) => {
                return Err(Failure { cause: Cause::Unsendable(reason), doing: Doing::Sending, sent: false });
            }
        };
        let opened = match &*line.opener().borrow() {
            Some(opener) => opener.open(head, ends),
            None => Err(StreamError::Unprocessed),
        };
        let failure = match opened {
            Err(error) => Failure { cause: cause(error), doing: Doing::Sending, sent: false },
            Ok(stream) => {
                let mut talk = Box::new(Talk::new(stream, seat, payload, ends, &location.settings));
                let heard = talk.stream.received();
                let answered = answered(x, location, &mut talk).await;
                x.upstream.attempt().bytes_sent = x.upstream.fields.lines().len() as u64 + talk.total;
                x.upstream.sent_whole = talk.sent && !talk.refused;
                match answered {
                    Ok((first, body)) => {
                        tell_of_head(x, choice);
                        return Ok(Reached { line: Line::Http2(talk), first, body, keeps_alive: true });
                    }
                    Err((cause, doing)) => {
                        if matches!(cause, Cause::TimedOut) && talk.stream.received() == heard {
                            // The whole connection is silent: the next request would wait in vain too.
                            line.retire();
                        }
                        let sent = !matches!(cause, Cause::Unprocessed);
                        Failure { cause, doing, sent }
                    }
                }
            }
        };
        let is_over = matches!(failure.cause, Cause::Unprocessed | Cause::Receive(_) | Cause::Closed(_));
        if is_over {
            line.retire();
        }
        if !is_over
            || !is_reused
            || again == AGAIN
            || choice.is_cut_off()
            || !may_repeat(x, &proxy.next_upstream, failure.sent)
        {
            return Err(failure);
        }
        again += 1;
    }
}

/// The head of the request.
fn head(x: &Exchange) -> Result<Head, &'static str> {
    let line = client::Line {
        method: &x.upstream.method,
        secure: x.upstream.target.tls,
        host: x.upstream.fields.find(Header::Host),
        path: &x.upstream.uri,
    };
    Head::new(&line, &x.upstream.fields, x.upstream.length)
}

/// A place on a connection to a server, which is opened if there is none.
async fn find_seat(
    x: &mut Exchange,
    proxy: &ProxySettings,
    choice: &Choice,
    tag: usize,
    tls: Option<&UpstreamTls>,
) -> Result<Seat, Failure> {
    let deadline = clock::after(proxy.connect_timeout);
    let dial = match &choice.lease {
        // An address that a variable gave has no upstream that keeps connections.
        None => None,
        Some(lease) => {
            let (pool, server) = (Rc::clone(&lease.upstream.multiplexed), lease.server());
            let watches = !proxy.ignore_client_abort && x.body.is_finished();
            let found = poll_fn(|cx| match SharedPool::poll_seat(&pool, cx, server, tag, clock::recent()) {
                Poll::Ready(found) => Poll::Ready(Ok(found)),
                Poll::Pending if x.downstream.timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
                Poll::Pending if watches && x.downstream.poll_peer_closed(cx).is_ready() => {
                    Poll::Ready(Err(Cause::ClientGone))
                }
                Poll::Pending => Poll::Pending,
            });
            match found.await.map_err(Failure::connecting)? {
                Found::Seat(seat) => {
                    x.upstream.attempt().connect_time = Some(0);
                    return Ok(seat);
                }
                Found::Dial(dial) => Some(dial),
            }
        }
    };
    let socket = connect(x, proxy, choice).map_err(|error| Failure::connecting(error.into()))?;
    match tls {
        Some(tls) => shake(x, proxy, tls, &choice.address, &socket).await?,
        None => connected(x, proxy, &socket).await?,
    }
    // Frames of several requests go out at different times.
    socket.set_nodelay();
    let begun = client::begin(Rc::new(socket), SETTINGS).await;
    let (connection, opener) = begun.map_err(|error| Failure::connecting(Cause::of("send", error, Cause::Send)))?;
    Ok(multiplexed::share(connection, opener, dial))
}

/// Waits for a connection without TLS.
async fn connected(x: &mut Exchange, proxy: &ProxySettings, socket: &Transport) -> Result<(), Failure> {
    let deadline = clock::after(proxy.connect_timeout);
    let timer = &mut x.downstream.timer;
    let connected = poll_fn(|cx| match socket.poll_connected(cx) {
        Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
        result => result.map_err(|error| Cause::of("connect", error, Cause::Connect)),
    });
    connected.await.map_err(Failure::connecting)?;
    let attempt = x.upstream.attempt();
    attempt.connect_time = Some(clock::recent() - attempt.started);
    Ok(())
}

/// Sends the request, and reads the response's head with what of the body has come with it. Returns that, and how the body is
/// delimited: one that is here whole has a length.
async fn answered(x: &mut Exchange, location: &Location, talk: &mut Talk) -> Result<(Buffer, Body), (Cause, Doing)> {
    let proxy: &ProxySettings = &location.settings.proxy;
    let limit = proxy.buffer_size.unwrap_or(buffer::CAPACITY).min(buffer::CAPACITY);
    let ends = wait(x, location, talk).await?;
    let invalid = |reason| Err((Cause::Invalid(reason), Doing::Reading));
    if x.upstream.response.text.len() > limit {
        return invalid("upstream sent too big header");
    }
    x.upstream.answered = true;
    let now = clock::recent();
    let (status, length) = (x.upstream.response.status, x.upstream.response.text.len() as u64);
    let attempt = x.upstream.attempt();
    attempt.status = status;
    attempt.header_time = Some(now - attempt.started);
    attempt.bytes_received = length;
    let mut first = Buffer::take();
    let mut ended = ends;
    x.upstream.trailers.clear();
    if !ends {
        let trailers = &mut x.upstream.trailers;
        ended = poll_fn(|cx| {
            while !first.space().is_empty() {
                match talk.poll_recv(cx, &mut first, usize::MAX, trailers) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Ok(true)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err((cause(error), Doing::Reading))),
                    Poll::Pending => break,
                }
            }
            Poll::Ready(Ok(false))
        })
        .await?;
    }
    let length = first.unread().len() as u64;
    let body = match x.upstream.response.body {
        Length::None => Body::None,
        Length::Known(said) if ended && said != length => {
            return invalid("upstream sent a body of another length than its \"Content-Length\" header says");
        }
        _ if ended => Body::Length(length),
        _ => Body::UntilClose,
    };
    x.upstream.trailers_follow = proxy.pass_trailers && (!ended || !x.upstream.trailers.is_empty());
    Ok((first, body))
}

/// Sends the request and waits for the response's head; true when nothing follows it.
async fn wait(x: &mut Exchange, location: &Location, talk: &mut Talk) -> Result<bool, (Cause, Doing)> {
    let proxy: &ProxySettings = &location.settings.proxy;
    let mut state = Waiting {
        to_head: !x.route.method_is_get && sent_method(x, proxy) == Method::Head,
        read_deadline: clock::after(proxy.read_timeout),
        client: ClientWatch::new(),
        sending: !talk.sent,
    };
    let mut count = 0;
    let mut interim = hints::may_pass(x, &location.settings).then(Response::default);
    loop {
        match poll_fn(|cx| state.poll(cx, x, proxy, talk, interim.as_mut())).await? {
            Heard::Head(ends) => return Ok(ends),
            Heard::Interim if count == MAX_INTERIM => {
                return Err((Cause::Invalid("upstream sent too many interim responses"), Doing::Reading));
            }
            Heard::Interim => {
                count += 1;
                if let Some(interim) = &interim {
                    Box::pin(hints::pass(x, location, interim)).await?;
                }
            }
        }
    }
}

/// What a server has sent.
enum Heard {
    /// The response's head; true when nothing follows it.
    Head(bool),
    /// That of an interim response.
    Interim,
}

/// The wait for a response's head.
struct Waiting {
    /// The request is a HEAD.
    to_head: bool,
    read_deadline: Nanos,
    client: ClientWatch,
    sending: bool,
}

impl Waiting {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        proxy: &ProxySettings,
        talk: &mut Talk,
        interim: Option<&mut Response>,
    ) -> Poll<Result<Heard, (Cause, Doing)>> {
        if self.sending {
            match talk.poll_request(cx, x) {
                Poll::Ready(Ok(())) => {
                    self.sending = false;
                    self.read_deadline = clock::after(proxy.read_timeout);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err((Cause::Body(error), Doing::Sending))),
                Poll::Pending => {}
            }
        }
        let doing = if self.sending { Doing::Sending } else { Doing::Reading };
        if let Some(interim) = interim
            && talk.stream.poll_interim(cx, interim).is_ready()
        {
            return Poll::Ready(Ok(Heard::Interim));
        }
        match talk.stream.poll_head(cx, self.to_head, &mut x.upstream.response) {
            Poll::Ready(Ok(ends)) => {
                clock::now();
                return Poll::Ready(Ok(Heard::Head(ends)));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err((cause(error), doing))),
            Poll::Pending => {}
        }
        let deadline = if self.sending { talk.deadline } else { self.read_deadline };
        let matters = !talk.awaits_client && !proxy.ignore_client_abort;
        let cause = match ready!(self.client.poll(cx, &mut x.downstream, deadline, matters)) {
            Over::ClientGone => Cause::ClientGone,
            Over::Late if self.sending && talk.awaits_client => Cause::Body(BodyError::TimedOut),
            Over::Late => Cause::TimedOut,
        };
        Poll::Ready(Err((cause, doing)))
    }
}

/// Why an attempt failed, by what its stream came to.
pub(super) fn cause(error: StreamError) -> Cause {
    match error {
        StreamError::Unprocessed => Cause::Unprocessed,
        StreamError::Reset(code) => Cause::Rejected(code),
        StreamError::Malformed(reason) => Cause::Invalid(reason),
        StreamError::Connection(error) => match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Cause::Closed(false),
            _ => Cause::of("recv", error, Cause::Receive),
        },
    }
}
