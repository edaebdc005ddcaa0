//! `hedge`: a request that a server does not answer soon is sent to a second server, and the answer that comes first is used.
//!
//! The attempt that was heard of last is the current one: the caller's `choice` has its server, and its record is the last.
//! The other one needs nothing but its connection while it waits.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use balanza_message::Method;
use balanza_net::clock::{self, Nanos};

use super::attempt::{Heard, open, reach, take_idle};
use super::client_watch::{ClientWatch, Over};
use super::forward::Request;
use super::hints;
use super::line::{Reached, shake};
use super::request::Payload;
use super::unanswered::{Head, Unanswered};
use crate::exchange::{Exchange, Hedged};
use crate::servers::failure::{Cause, Doing, Failure};
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
}

/// When a request that is sent to this server is sent to another one, too; the greatest number if never.
pub(super) fn due(request: &Request<'_>, choice: &Choice) -> Nanos {
    let Some(lease) = &choice.lease else { return Nanos::MAX };
    let Some(hedge) = &lease.upstream.hedge else { return Nanos::MAX };
    let x = &*request.x;
    let tries = request.order.location.settings.proxy.next_upstream_tries as usize;
    let may_hedge = x.upstream.hedged == Hedged::No
        && is_idempotent(Method::recognise(&x.upstream.method))
        && lease.members.shared.tries > 1
        && request.order.payload != Payload::Streamed
        // What was worked out for one server is not for another.
        && !request.plan.per_server
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
    let location = request.order.location;
    let mut other = None;
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
            }
            Err(failure) => {
                count_failure(request, &mut second, &failure);
                swap_records(request.x);
            }
        }
    }
    loop {
        let heard = match current.read_head(request.x, location) {
            Ok(Head::Final(framing)) => {
                current.note(request.x);
                let reached = current.reached(request.x, choice, framing);
                let Some(left) = other.take() else { return Ok(won(request, choice, reached)) };
                let Some(outcome) = request.declines(&reached) else {
                    cancel(request.x, left.choice, left.request.sending.total);
                    return Ok(won(request, choice, reached));
                };
                // As if it had failed: the other answer may be better.
                finish(request, &mut choice.lease, outcome, Doing::Reading.text());
                current = go_on_with(request.x, choice, left).0;
                continue;
            }
            Ok(Head::Hint(hint)) => hints::pass(request.x, location, &hint).await,
            Ok(Head::Incomplete) => {
                match wait(request, &mut current, other.as_mut().map(|other| &mut *other.request)).await {
                    News::Current(heard) => heard,
                    News::Other(heard) => {
                        if let Some(other) = &mut other {
                            std::mem::swap(choice, &mut other.choice);
                            std::mem::swap(&mut current, &mut other.request);
                            swap_records(request.x);
                        }
                        heard
                    }
                }
            }
            Err(error) => Err(error),
        };
        let Err(error) = heard else { continue };
        current.note(request.x);
        let mut failure = current.failure(error);
        if matches!(failure.cause, Cause::ClientGone | Cause::Body(_)) {
            if let Some(left) = other {
                cancel(request.x, left.choice, left.request.sending.total);
            }
            return Err(failure);
        }
        // A connection that was kept for too long says nothing of its server.
        let stale = current.is_stale(request.x, choice, &location.settings.proxy.next_upstream, &failure);
        let Some(mut left) = other.take() else {
            if !stale {
                return Err(failure);
            }
            return match reach(request.x, request.order, choice, None, Nanos::MAX).await? {
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
                    let given_up;
                    (current, given_up) = go_on_with(request.x, choice, left);
                    cancel(request.x, given_up, 0);
                    continue;
                }
                Err(again) => failure = again,
            }
        }
        count_failure(request, choice, &failure);
        current = go_on_with(request.x, choice, left).0;
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
    let (x, order) = (&mut *request.x, request.order);
    let settings = &order.location.settings;
    let (connection, fresh) = open(x, order, choice, take_idle(choice, order.tag))?;
    if let Some(tls) = order.tls.filter(|_| fresh) {
        let mut shaken = pin!(shake(x, &settings.proxy, tls, &choice.address, &connection.socket));
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
    Ok(Some(Box::new(Unanswered::new(connection, fresh, order.payload, x, settings))))
}

/// Waits until there is something to read from one of the servers, or one of them or the client has failed.
async fn wait(request: &mut Request<'_>, current: &mut Unanswered, mut other: Option<&mut Unanswered>) -> News {
    let (x, settings) = (&mut *request.x, &request.order.location.settings);
    let matters = !settings.proxy.reads_without_client();
    let mut client = ClientWatch::new();
    poll_fn(|cx| {
        if let Poll::Ready(heard) = current.poll(cx, x, settings, 0) {
            return Poll::Ready(News::Current(heard));
        }
        let mut deadline = current.deadline;
        if let Some(other) = &mut other {
            if let Poll::Ready(heard) = other.poll(cx, x, settings, 1) {
                return Poll::Ready(News::Other(heard));
            }
            deadline = deadline.min(other.deadline);
        }
        Poll::Ready(match ready!(client.poll(cx, &mut x.downstream, deadline, matters)) {
            Over::ClientGone => News::Current(Err((Cause::ClientGone, current.doing))),
            Over::Late if clock::recent() >= current.deadline => News::Current(Err((Cause::TimedOut, current.doing))),
            Over::Late => {
                News::Other(Err((Cause::TimedOut, other.as_ref().map_or(current.doing, |other| other.doing))))
            }
        })
    })
    .await
}

/// The current attempt is over: the other one takes its place. Returns that one, and the server that is given up.
fn go_on_with(x: &mut Exchange, choice: &mut Choice, left: Other) -> (Box<Unanswered>, Choice) {
    swap_records(x);
    (left.request, std::mem::replace(choice, left.choice))
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
