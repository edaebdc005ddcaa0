//! `hedge`: a request that a server does not answer soon is sent to a second server, and the answer that comes first is used.
//!
//! The attempt that was heard of last is the current one: the caller's `choice` has its server, and its record is the last.
//! The other one needs nothing but its connection while it waits.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use balanza_config::model::ProxySettings;
use balanza_message::Method;
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};

use super::attempt::{Heard, Unanswered, WATCH_CLIENT_AFTER, Waiting, next_head, reach_by};
use super::forward::Request;
use super::line::{Line, Reached, connect, shake, tell_of_head};
use super::request::{Payload, Sending};
use crate::exchange::{Exchange, Hedged};
use crate::servers::failure::{Cause, Doing, Failure};
use crate::servers::pool::ServerConnection;
use crate::servers::search::{Choice, Seeker as _, another, finish};

/// The other attempt.
struct Other {
    choice: Choice,
    request: Box<Unanswered>,
}

/// What was heard of.
enum News {
    Current(Result<(), (Cause, Doing)>),
    Other(Result<(), (Cause, Doing)>),
    ClientGone,
}

/// When a request that is sent to this server is sent to another one, too; the greatest number if never.
pub(super) fn due(request: &Request<'_>, choice: &Choice) -> Nanos {
    let Some(lease) = &choice.lease else { return Nanos::MAX };
    let Some(hedge) = &lease.upstream.hedge else { return Nanos::MAX };
    let x = &*request.x;
    let tries = request.location.settings.proxy.next_upstream_tries as usize;
    let may_hedge = x.upstream.hedged == Hedged::No
        && is_idempotent(Method::recognise(&x.upstream.method))
        && lease.members.shared.tries > 1
        && request.payload != Payload::Streamed
        && !x.body.consumed
        && !x.upstream.upgrade_sent
        && (tries == 0 || x.upstream.attempts.len() - request.first < tries);
    let delay = if may_hedge { hedge.delay(clock::recent()) } else { None };
    delay.map_or(Nanos::MAX, |delay| clock::recent().saturating_add(delay))
}

/// By RFC 9110, 9.2.2. A method that is not known may do anything.
fn is_idempotent(method: Method) -> bool {
    use Method::{Delete, Get, Head, Options, Put, Trace};
    matches!(method, Get | Head | Options | Trace | Put | Delete)
}

/// Goes on with a request that was not answered in time: sends it to a second server, too, if there is one and the budget
/// allows it, and waits for the first answer.
pub(super) async fn race(
    request: &mut Request<'_>,
    choice: &mut Choice,
    mut current: Box<Unanswered>,
) -> Result<Reached, Failure> {
    let (mut other, mut is_heard) = (None, false);
    if let Some(mut second) = choose_second(request, choice).await {
        match start(request, &second, &mut current).await {
            Ok(Some(started)) => {
                std::mem::swap(choice, &mut second);
                other = Some(Other { choice: second, request: std::mem::replace(&mut current, started) });
            }
            // The first server has answered meanwhile.
            Ok(None) => {
                swap_records(request.x);
                cancel(request.x, second, 0);
                is_heard = true;
            }
            Err(failure) => {
                count_failure(request, &mut second, &failure);
                swap_records(request.x);
            }
        }
    }
    loop {
        let news = match std::mem::take(&mut is_heard) {
            true => News::Current(Ok(())),
            false => wait(request, &mut current, other.as_mut().map(|other| &mut *other.request)).await,
        };
        let heard = match news {
            News::Current(heard) => heard,
            News::Other(heard) => {
                if let Some(other) = &mut other {
                    std::mem::swap(choice, &mut other.choice);
                    std::mem::swap(&mut current, &mut other.request);
                    swap_records(request.x);
                }
                heard
            }
            News::ClientGone => Err((Cause::ClientGone, current.waiting.doing)),
        };
        let head = match heard {
            Ok(()) => {
                let Unanswered { sending, buffer, interim, .. } = &mut *current;
                next_head(request.x, request.location, sending.done, buffer, interim).await
            }
            Err(error) => Err(error),
        };
        let (cause, doing) = match head {
            Ok(None) => continue,
            Ok(Some((body, keeps_alive))) => {
                current.note(request.x);
                tell_of_head(request.x, choice);
                let Unanswered { connection, buffer, .. } = *current;
                let first = buffer.unwrap_or_else(Buffer::take);
                let reached = Reached { line: Line::Http1(connection), first, body, keeps_alive };
                let Some(left) = other.take() else { return Ok(won(request, choice, reached)) };
                let Some(outcome) = request.declines(&reached) else {
                    cancel(request.x, left.choice, left.request.sending.total);
                    return Ok(won(request, choice, reached));
                };
                // As if it had failed: the other answer may be better.
                finish(request, &mut choice.lease, outcome, Doing::Reading.text());
                (*choice, current) = (left.choice, left.request);
                swap_records(request.x);
                continue;
            }
            Err(error) => error,
        };
        current.note(request.x);
        let mut failure = Failure { cause, doing, sent: current.sending.total > 0 };
        if matches!(failure.cause, Cause::ClientGone | Cause::Body(_)) {
            if let Some(left) = other {
                cancel(request.x, left.choice, left.request.sending.total);
            }
            return Err(failure);
        }
        // A connection that was kept for too long says nothing of its server.
        let next = &request.location.settings.proxy.next_upstream;
        let stale = current.is_stale(request.x, choice, next, &failure.cause);
        let Some(mut left) = other.take() else {
            if !stale {
                return Err(failure);
            }
            let (tls, payload) = (request.tls.as_deref(), request.payload);
            return match reach_by(request.x, request.location, choice, None, tls, payload, Nanos::MAX).await? {
                Heard::Head(reached) => Ok(won(request, choice, reached)),
                Heard::Nothing(_) => Err(failure),
            };
        };
        if stale {
            match start(request, choice, &mut left.request).await {
                Ok(Some(started)) => {
                    current = started;
                    other = Some(left);
                    continue;
                }
                Ok(None) => {
                    let given_up = std::mem::replace(choice, left.choice);
                    current = left.request;
                    swap_records(request.x);
                    cancel(request.x, given_up, 0);
                    is_heard = true;
                    continue;
                }
                Err(again) => failure = again,
            }
        }
        count_failure(request, choice, &failure);
        (*choice, current) = (left.choice, left.request);
        swap_records(request.x);
    }
}

/// A second server, whose attempt begins; none if there is no other, or no budget.
async fn choose_second(request: &mut Request<'_>, choice: &Choice) -> Option<Choice> {
    let lease = choice.lease.as_ref()?;
    let (upstream, members) = (Rc::clone(&lease.upstream), Rc::clone(&lease.members));
    let hedge = upstream.hedge.as_ref()?;
    request.x.upstream.hedged = Hedged::Refused;
    if upstream.retry_budget.as_ref().is_some_and(|budget| !budget.retry(clock::recent())) {
        return None;
    }
    let second = another(request, &upstream, &members).await?;
    hedge.send();
    request.x.upstream.hedged = Hedged::Lost;
    Some(second)
}

/// Connects to a server while another one is waited for; none if that is heard of meanwhile.
async fn start(
    request: &mut Request<'_>,
    choice: &Choice,
    waits: &mut Unanswered,
) -> Result<Option<Box<Unanswered>>, Failure> {
    let (x, location, payload) = (&mut *request.x, request.location, request.payload);
    let proxy: &ProxySettings = &location.settings.proxy;
    let lease = choice.lease.as_ref();
    let reused =
        lease.and_then(|lease| lease.upstream.idle.borrow_mut().take(lease.server(), request.tag, clock::recent()));
    let fresh = reused.is_none();
    let mut connection = match reused {
        Some(connection) => {
            x.upstream.attempt().connect_time = Some(0);
            connection
        }
        None => {
            let socket = connect(x, proxy, choice).map_err(|error| Failure::connecting(error.into()))?;
            Box::new(ServerConnection { socket, requests: 0, opened: clock::recent() })
        }
    };
    if let Some(tls) = request.tls.as_deref().filter(|_| fresh) {
        let mut shaken = pin!(shake(x, proxy, tls, &choice.address, &connection.socket));
        let done = poll_fn(|cx| match shaken.as_mut().poll(cx) {
            // Whatever it is, the next read finds what comes after it.
            Poll::Pending if waits.sending.done => {
                waits.connection.socket.poll_recv_buffer(cx, &mut waits.buffer).map(|_| Ok(false))
            }
            shaken => shaken.map(|shaken| shaken.map(|()| true)),
        });
        if !done.await? {
            return Ok(None);
        }
    }
    connection.requests += 1;
    let sending = Sending::new(payload, x);
    let waiting = Waiting::new(&sending, fresh, &location.settings);
    Ok(Some(Box::new(Unanswered { connection, sending, buffer: None, fresh, waiting, interim: 0 })))
}

/// Waits until there is something to read from one of the servers, or one of them has failed.
async fn wait(request: &mut Request<'_>, current: &mut Unanswered, mut other: Option<&mut Unanswered>) -> News {
    let (x, settings) = (&mut *request.x, &request.location.settings);
    let watch = clock::after(WATCH_CLIENT_AFTER);
    let mut watching = false;
    poll_fn(|cx| {
        if let Poll::Ready(heard) = current.poll(cx, x, settings, 0) {
            return Poll::Ready(News::Current(heard));
        }
        let mut deadline = current.waiting.deadline;
        if let Some(other) = &mut other {
            if let Poll::Ready(heard) = other.poll(cx, x, settings, 1) {
                return Poll::Ready(News::Other(heard));
            }
            deadline = deadline.min(other.waiting.deadline);
        }
        let unwatched = !watching && !settings.proxy.reads_without_client();
        if x.downstream.timer.poll_expired(cx, if unwatched { deadline.min(watch) } else { deadline }) {
            let now = clock::now();
            if now >= current.waiting.deadline {
                return Poll::Ready(News::Current(Err((Cause::TimedOut, current.waiting.doing))));
            }
            if let Some(other) = &other
                && now >= other.waiting.deadline
            {
                return Poll::Ready(News::Other(Err((Cause::TimedOut, other.waiting.doing))));
            }
            watching = true;
            // Once more, for the timer of the deadline.
            cx.waker().wake_by_ref();
        }
        if watching && x.downstream.poll_peer_closed(cx).is_ready() {
            return Poll::Ready(News::ClientGone);
        }
        Poll::Pending
    })
    .await
}

/// The other attempt becomes the last record.
fn swap_records(x: &mut Exchange) {
    if let [.., one, other] = &mut x.upstream.attempts[..] {
        std::mem::swap(one, other);
        // This belongs to the place.
        std::mem::swap(&mut one.after_redirect, &mut other.after_redirect);
    }
}

/// An attempt has failed while the other one goes on.
fn count_failure(request: &mut Request<'_>, choice: &mut Choice, failure: &Failure) {
    if let Some((level, message)) = failure.message() {
        request.report(level, format_args!("{message}"));
    }
    request.failed(failure);
    finish(request, &mut choice.lease, failure.outcome(), failure.doing.text());
}

/// Gives up the attempt whose record is the last but one: this says nothing of its server.
fn cancel(x: &mut Exchange, choice: Choice, sent: u64) {
    if let [.., record, _] = &mut x.upstream.attempts[..] {
        record.response_time = Some(clock::recent() - record.started);
        record.bytes_sent = sent;
        if let Some(lease) = choice.lease {
            lease.cancel(record);
        }
    }
}

fn won(request: &mut Request<'_>, choice: &Choice, reached: Reached) -> Reached {
    if let Some(lease) = choice.lease.as_ref().filter(|lease| lease.is_hedge)
        && let Some(hedge) = &lease.upstream.hedge
    {
        hedge.win();
        request.x.upstream.hedged = Hedged::Won;
    }
    reached
}
