//! A request on a connection of HTTP/1 to a server, until the head of the response has come.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use balanza_config::model::{Location, NextUpstream, ProxySettings, Settings};
use balanza_http1::{Body, Parsed};
use balanza_message::{Method, Response};
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock::{self, Nanos};

use super::client_watch::{ClientWatch, Over};
use super::forward::may_repeat;
use super::hints;
use super::line::{Line, Reached, tell_of_head};
use super::request::{Payload, Sending, SendingError};
use crate::body::BodyError;
use crate::exchange::Exchange;
use crate::servers::failure::{Cause, Doing, Failure};
use crate::servers::pool::ServerConnection;
use crate::servers::search::Choice;

/// How many interim responses (1xx) a server may send before the real one.
pub(super) const MAX_INTERIM: u32 = 16;

/// The status of interim responses that clients may get.
pub(super) const HINTS: u16 = 103;

/// A request that a server has not answered yet.
pub(super) struct Unanswered {
    pub connection: Box<ServerConnection>,
    pub sending: Sending,
    /// What has come of the response. Taken when there is something to read: a request that waits holds none.
    pub buffer: Option<Buffer>,
    /// The connection was made for this request.
    fresh: bool,
    pub doing: Doing,
    /// When the server has taken too long.
    pub deadline: Nanos,
    /// How much had been sent when that was set.
    progress: u64,
    /// The server may have answered before it closed.
    send_error: Option<io::Error>,
    /// Interim responses that have come.
    interim: u32,
}

/// What there is of a response.
pub(super) enum Head {
    /// A part of its head is missing.
    Incomplete,
    /// An interim response that the client may get.
    Hint(Box<Response>),
    /// Its head is in `x.upstream.response`.
    Final(Framing),
}

/// What follows a response's head.
pub(super) struct Framing {
    /// How the body is delimited.
    pub body: Body,
    /// Whether the connection may be used again.
    pub keeps_alive: bool,
}

impl Unanswered {
    /// A request of which nothing has been sent, on a connection that may be `fresh`.
    pub fn new(
        mut connection: Box<ServerConnection>,
        fresh: bool,
        payload: Payload,
        x: &Exchange,
        settings: &Settings,
    ) -> Unanswered {
        connection.requests += 1;
        let doing = if fresh { Doing::Connecting } else { Doing::Sending };
        Unanswered {
            connection,
            sending: Sending::new(payload, x),
            buffer: None,
            fresh,
            doing,
            deadline: clock::after(patience(doing, false, settings)),
            progress: 0,
            send_error: None,
            interim: 0,
        }
    }

    /// Sends the request and waits for the response's head; none if it has not come at `late`.
    ///
    /// # Errors
    /// The server or the client has failed.
    pub async fn answered(
        &mut self,
        x: &mut Exchange,
        location: &Location,
        late: Nanos,
    ) -> Result<Option<Framing>, (Cause, Doing)> {
        let settings = &location.settings;
        let mut client = ClientWatch::new();
        loop {
            let has_come = poll_fn(|cx| {
                if let Poll::Ready(heard) = self.poll(cx, x, settings, 0) {
                    return Poll::Ready(heard.map(|()| true));
                }
                let awaits_client = self.sending.awaits_client;
                let matters = !awaits_client && !settings.proxy.reads_without_client();
                Poll::Ready(match ready!(client.poll(cx, &mut x.downstream, self.deadline.min(late), matters)) {
                    Over::ClientGone => Err((Cause::ClientGone, self.doing)),
                    Over::Late if clock::recent() < self.deadline => Ok(false),
                    Over::Late if awaits_client => Err((Cause::Body(BodyError::TimedOut), self.doing)),
                    Over::Late => Err((Cause::TimedOut, self.doing)),
                })
            });
            if !has_come.await? {
                return Ok(None);
            }
            // Several interim heads may come in one piece.
            loop {
                match self.read_head(x, location)? {
                    Head::Final(framing) => return Ok(Some(framing)),
                    Head::Hint(hint) => Box::pin(hints::pass(x, location, &hint)).await?,
                    Head::Incomplete => break,
                }
            }
        }
    }

    /// Continues to send, and reads some bytes of the response. The record of the attempt has so many others behind it.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        settings: &Settings,
        behind: usize,
    ) -> Poll<Result<(), (Cause, Doing)>> {
        if !self.sending.done && self.send_error.is_none() {
            self.poll_send(cx, x, settings, behind)?;
        }
        if self.doing == Doing::Connecting {
            return Poll::Pending;
        }
        let cause = match ready!(self.connection.socket.poll_recv_buffer(cx, &mut self.buffer)) {
            Ok(0) => match self.send_error.take() {
                Some(error) => Cause::of("send", error, Cause::Send),
                None => Cause::Closed(self.buffer.as_ref().is_some_and(|buffer| !buffer.is_empty())),
            },
            Ok(_) => {
                clock::now();
                self.deadline = clock::after(patience(self.doing, false, settings));
                return Poll::Ready(Ok(()));
            }
            Err(error) => match self.send_error.take() {
                Some(error) => Cause::of("send", error, Cause::Send),
                None => Cause::of("recv", error, Cause::Receive),
            },
        };
        Poll::Ready(Err((cause, self.doing)))
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        settings: &Settings,
        behind: usize,
    ) -> Result<(), (Cause, Doing)> {
        let result = self.sending.poll(cx, x, &self.connection);
        if self.sending.total > 0 && self.doing == Doing::Connecting {
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
                let watched = self.connection.socket.watch();
                watched.map_err(|error| (Cause::of("epoll_ctl", error, Cause::Receive), self.doing))?;
            }
            Poll::Ready(Err(SendingError::Server(error))) if self.doing == Doing::Connecting => {
                return Err((Cause::of("connect", error, Cause::Connect), self.doing));
            }
            Poll::Ready(Err(SendingError::Server(error))) => self.send_error = Some(error),
            Poll::Ready(Err(SendingError::Client(error))) => return Err((Cause::Body(error), self.doing)),
            Poll::Pending if self.sending.total != self.progress => {
                self.progress = self.sending.total;
                self.deadline = clock::after(patience(self.doing, self.sending.awaits_client, settings));
            }
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Reads the next head of a response in what has been received.
    ///
    /// # Errors
    /// The server has sent something else.
    pub fn read_head(&mut self, x: &mut Exchange, location: &Location) -> Result<Head, (Cause, Doing)> {
        let proxy: &ProxySettings = &location.settings.proxy;
        let limit = proxy.buffer_size.unwrap_or(buffer::CAPACITY).min(buffer::CAPACITY);
        let invalid = |reason| Err((Cause::Invalid(reason), Doing::Reading));
        let method = if x.route.method_is_get { Method::Get } else { sent_method(x, proxy) };
        let thread = Rc::clone(&x.client().thread);
        let mut head = thread.response_head.borrow_mut();
        while let Some(buffer) = self.buffer.as_mut().filter(|buffer| !buffer.is_empty()) {
            let length = match head.parse(buffer.unread(), method, limit) {
                Ok(Parsed::Complete(length)) => length,
                Ok(Parsed::Incomplete) if buffer.space().is_empty() || buffer.unread().len() >= limit => {
                    return invalid("upstream sent too big header");
                }
                Ok(Parsed::Incomplete) => return Ok(Head::Incomplete),
                Err(error) => return invalid(error.reason),
            };
            if head.is_interim() {
                if self.interim == MAX_INTERIM {
                    return invalid("upstream sent too many interim responses");
                }
                self.interim += 1;
                let mut hint: Option<Box<Response>> = None;
                if head.status == HINTS && hints::may_pass(x, &location.settings) {
                    head.hand_over(buffer.unread(), length, hint.get_or_insert_default());
                }
                buffer.start += length;
                buffer.shift(0);
                match hint {
                    Some(hint) => return Ok(Head::Hint(hint)),
                    None => continue,
                }
            }
            let asked = x.upstream.upgrade_sent && self.sending.done && head.upgrade.is_some();
            if head.status == 101 && !(asked && x.downstream.can_switch()) {
                return invalid("upstream sent 101 without being asked to");
            }
            head.hand_over(buffer.unread(), length, &mut x.upstream.response);
            let framing = Framing { body: head.body, keeps_alive: head.keep_alive };
            buffer.start += length;
            x.upstream.answered = true;
            let now = clock::recent();
            let status = x.upstream.response.status;
            let attempt = x.upstream.attempt();
            attempt.status = status;
            attempt.header_time = Some(now - attempt.started);
            attempt.bytes_received = length as u64;
            return Ok(Head::Final(framing));
        }
        Ok(Head::Incomplete)
    }

    /// The server has answered: tells its algorithm, and hands over what the body is read from.
    pub fn reached(self, x: &Exchange, choice: &mut Choice, framing: Framing) -> Reached {
        tell_of_head(x, choice);
        Reached {
            line: Line::Http1(self.connection),
            first: self.buffer.unwrap_or_else(Buffer::take),
            body: framing.body,
            keeps_alive: framing.keeps_alive,
        }
    }

    /// Notes what was sent, of the last attempt.
    pub fn note(&self, x: &mut Exchange) {
        x.upstream.attempt().bytes_sent = self.sending.total;
        x.upstream.sent_whole = self.sending.done;
    }

    /// The attempt has failed.
    pub fn failure(&self, (cause, doing): (Cause, Doing)) -> Failure {
        Failure { cause, doing, sent: self.sending.total > 0 }
    }

    /// Whether it failed because its kept-alive connection was closed, so that a fresh one may be used.
    pub fn is_stale(&self, x: &Exchange, choice: &Choice, next: &NextUpstream, failure: &Failure) -> bool {
        !self.fresh
            && !choice.is_cut_off()
            && self.buffer.as_ref().is_none_or(Buffer::is_empty)
            && matches!(failure.cause, Cause::Send(_) | Cause::Receive(_) | Cause::Closed(false))
            && may_repeat(x, next, failure.sent)
    }
}

/// The method that the server was asked with: only HEAD matters, whose response has no body.
pub(super) fn sent_method(x: &Exchange, proxy: &ProxySettings) -> Method {
    match &proxy.method {
        None => x.method(),
        Some(_) => Method::recognise(&x.upstream.method),
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
