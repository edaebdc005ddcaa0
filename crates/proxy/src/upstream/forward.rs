//! `proxy_pass`: tries servers until one answers, or no other may be tried.

use std::fmt::Arguments;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use balanza_balancing::Outcome;
use balanza_config::model::{Level, Location, NextUpstream, ProxyPass, ProxySettings, UpstreamTls};
use balanza_net::clock::{self, Nanos};

use super::answer::answer;
use super::attempt::{Heard, Order, reach, take_idle};
use super::line::Reached;
use super::request::{self, Payload};
use super::sticky;
use super::target::{
    find_target, look_up, settle_for_server, write_bind, write_certificate, write_key, write_tls_name,
};
use super::{hedge, http2, ntlm};
use crate::exchange::{Exchange, Upstream, is_too_large};
use crate::reading;
use crate::running_config::plan::Plan;
use crate::servers::failure::{Cause, Failure};
use crate::servers::lease::Lease;
use crate::servers::search::{Books, Choice, DISABLED, Limits, Seeker, Target, Unreached, close, search};
use crate::step::Step;
use crate::undecided::Undecided;

/// Answers with a server's response.
pub async fn serve(x: &mut Exchange, location: &Arc<Location>, pass: &ProxyPass) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    if x.body.consumed && proxy.pass_request_body && proxy.set_body.is_none() && !x.route.method_is_get {
        // A part of the body was sent to a server that failed; the rest alone would be a different request.
        x.sent.end_connection();
        x.route.forbid_error_page();
        return Step::Error(502);
    }
    let running = Rc::clone(x.running());
    let plan = running.plan(pass.id, location);
    x.upstream.speak(proxy.http_version, pass.grpc);
    let found = match find_target(x, pass) {
        Ok(Some(target)) => Ok(target),
        Ok(None) => Box::pin(look_up(x)).await,
        Err(step) => Err(step),
    };
    let target = match found {
        Ok(target) => target,
        Err(step) => return step,
    };
    // As in NGINX, a body that is not passed is read all the same: variables have it.
    if !x.body.is_finished() && !x.route.method_is_get {
        let passes = proxy.pass_request_body && proxy.set_body.is_none();
        let streams = passes && !proxy.request_buffering && (x.upstream.takes_streams() || !x.body.is_unbounded());
        let ready = match streams {
            // As in NGINX, it is not left to be read.
            true if x.body.keep_arrived() => Ok(()),
            true => reading::invite_body(x).await,
            false => reading::buffer_body(x).await,
        };
        if let Err(error) = ready {
            return reading::body_failed(x, error);
        }
    }
    if is_too_large(x.request.text.len()) {
        // The head that servers are sent would take as much again.
        x.client().thread.clients.alert_of_memory(x.running());
        x.report(Level::Error, format_args!("no memory for the request's head"));
        return Step::Error(503);
    }
    let payload = match request::compose(x, location, pass, &plan) {
        Ok(payload) => payload,
        Err(undecided) => return undecided.into(),
    };
    x.upstream.tried.clear();
    x.upstream.asking = true;
    let step = attempts(x, location, pass, &plan, &target, payload).await;
    x.upstream.asking = false;
    step
}

/// Looks for a server that answers, and passes its answer on.
async fn attempts(
    x: &mut Exchange,
    location: &Arc<Location>,
    pass: &ProxyPass,
    plan: &Plan,
    target: &Target,
    payload: Payload,
) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    if let Err(undecided) = evaluate(x, proxy, target).and_then(|()| write_certificate(x, pass.tls.as_ref())) {
        return undecided.into();
    }
    let place = match target {
        Target::Group(upstream) if upstream.conf.keepalive.local => pass.id + 1,
        _ => 0,
    };
    let tls = pass.tls.as_deref().filter(|_| x.upstream.target.tls);
    let tag = tls.map_or(place, |tls| pool_tag(place, tls, x));
    let limits = Limits { tries: proxy.next_upstream_tries, timeout: clock::nanos(proxy.next_upstream_timeout) };
    let first = x.upstream.attempts.len();
    let order = Order { location, payload, tag, tls };
    x.upstream.bound = ntlm::bound_server(x, target);
    let mut request = Request { x, order, pass, plan, place, first, is_denied: false };
    let searched = search(&mut request, target, &limits).await;
    let Request { x, order, .. } = request;
    x.upstream.bound = None;
    x.upstream.trailers_follow &= searched.is_ok();
    match searched {
        Ok((mut choice, reached)) => {
            begin_session(x, &mut choice);
            answer(x, location, plan, choice, order.tag, reached).await
        }
        Err(unreached) => fail(x, first, unreached),
    }
}

/// The response where no server was reached. There were `first` attempts before an internal redirect.
pub(super) fn fail(x: &mut Exchange, first: usize, unreached: Unreached) -> Step {
    match unreached {
        Unreached::NoServer => {
            mark_redirect(x, first);
            Step::Error(502)
        }
        Unreached::Undecided => Undecided.into(),
        Unreached::Failed(failure) => match failure.cause {
            Cause::ClientGone => {
                x.status = 499;
                x.sent.end_connection();
                let text = "client prematurely closed connection, so upstream connection is closed too";
                x.report(Level::Info, format_args!("{text} while {}", failure.doing.text()));
                Step::Drop
            }
            Cause::Body(error) => reading::body_failed(x, error),
            _ => Step::Error(failure.status()),
        },
    }
}

/// Where encrypted connections may be used: for the same settings, name and certificate, not in the place of plain ones.
pub(super) fn pool_tag(tag: usize, tls: &UpstreamTls, x: &Exchange) -> usize {
    // Clients may choose parts of the name and of the certificate's: with a key that they do not know, none of them finds
    // two that have the same tag.
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = KEY.build_hasher();
    (tag, tls.number, &x.upstream.target.tls_name).hash(&mut hasher);
    if let Some(certificate) = &x.upstream.target.certificate {
        certificate.hash(&mut hasher);
    }
    hasher.finish() as usize | 1 << (usize::BITS - 1)
}

/// The first attempt after an internal redirect is told from those before.
fn mark_redirect(x: &mut Exchange, first: usize) {
    if first > 0 && x.upstream.attempts.len() == first + 1 {
        x.upstream.attempts[first].after_redirect = true;
    }
}

/// A request that looks for a server.
pub(super) struct Request<'a> {
    pub x: &'a mut Exchange,
    pub order: Order<'a>,
    pass: &'a ProxyPass,
    pub plan: &'a Plan,
    /// The part of the tag that is the same for all servers.
    place: usize,
    /// The server that was chosen may not be asked.
    is_denied: bool,
    /// How many attempts there were before an internal redirect.
    pub first: usize,
}

impl Request<'_> {
    /// Works out anew what may depend on the server that was chosen.
    ///
    /// # Errors
    /// A regular expression is undecided.
    fn prepare(&mut self) -> Result<(), Undecided> {
        let location = self.order.location;
        self.is_denied = !settle_for_server(self.x, &location.settings.proxy)?;
        if self.is_denied {
            return Ok(());
        }
        if location.settings.proxy.per_server.request {
            self.order.payload = request::compose(self.x, location, self.pass, self.plan)?;
        }
        if let Some(tls) = self.pass.tls.as_deref().filter(|_| self.x.upstream.target.tls) {
            self.order.tag = pool_tag(self.place, tls, self.x);
        }
        Ok(())
    }
}

impl Seeker for Request<'_> {
    type Reached = Reached;

    fn books(&mut self) -> Books<'_> {
        books(self.x)
    }

    fn report(&self, level: Level, message: Arguments<'_>) {
        self.x.report(level, message);
    }

    fn chosen(&mut self, choice: &Choice) -> Result<(), Undecided> {
        chosen(self.x, self.first, choice)?;
        if self.plan.per_server { self.prepare() } else { Ok(()) }
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>, deadline: Nanos) -> Poll<bool> {
        if self.x.downstream.timer.poll_expired(cx, deadline) {
            return Poll::Ready(true);
        }
        if self.order.location.settings.proxy.reads_without_client() {
            return Poll::Pending;
        }
        self.x.downstream.poll_peer_closed(cx).map(|()| false)
    }

    async fn attempt(&mut self, choice: &mut Choice) -> Result<Reached, Failure> {
        if self.is_denied {
            return Err(Failure::connecting(Cause::Denied));
        }
        if self.x.upstream.is_http2() {
            return Box::pin(http2::reach(self.x, self.order, choice)).await;
        }
        self.x.upstream.authenticates = ntlm::authenticates(self.x, choice);
        let bound = ntlm::take(self.x, self.order.tls, choice);
        let is_private = self.x.upstream.authenticates || bound.is_some();
        let late = if is_private { Nanos::MAX } else { hedge::due(self, choice) };
        let kept = match bound {
            // A connection that cannot become the client's alone ends with the request.
            None if is_private && !ntlm::may_bind(self.x) => None,
            None => take_idle(choice, self.order.tag),
            bound => bound,
        };
        match reach(self.x, self.order, choice, kept, late).await? {
            Heard::Head(reached) => Ok(reached),
            Heard::Nothing(unanswered) => Box::pin(hedge::race(self, choice, unanswered)).await,
        }
    }

    /// Whether the response's status is retried at the next server.
    fn declines(&self, _reached: &Reached) -> Option<Outcome> {
        let next = &self.order.location.settings.proxy.next_upstream;
        let (listed, outcome) = match self.x.upstream.response.status {
            500 => (next.http_500, Outcome::Failure),
            502 => (next.http_502, Outcome::Failure),
            503 => (next.http_503, Outcome::Failure),
            504 => (next.http_504, Outcome::Failure),
            429 => (next.http_429, Outcome::Failure),
            403 => (next.http_403, Outcome::Neutral),
            404 => (next.http_404, Outcome::Neutral),
            _ => return None,
        };
        (listed && may_repeat(self.x, next, true)).then_some(outcome)
    }

    fn failed(&mut self, failure: &Failure) -> bool {
        let next = &self.order.location.settings.proxy.next_upstream;
        let allowed = match &failure.cause {
            Cause::ClientGone | Cause::Body(_) => return false,
            cause if cause.is_own() => false,
            Cause::TimedOut => next.timeout,
            Cause::Denied => next.denied,
            Cause::Invalid(_) | Cause::Rejected(_) => next.invalid_header,
            _ => next.error,
        };
        self.x.upstream.attempt().status = failure.status();
        allowed && !next.off && may_repeat(self.x, next, failure.sent)
    }
}

/// The books of a request.
pub(super) fn books(x: &mut Exchange) -> Books<'_> {
    let Upstream { key, shadow_keys, session, bound, tried, attempts, .. } = &mut x.upstream;
    Books { key, shadow_keys, session: session.name(), bound: *bound, tried, attempts }
}

/// The client is told of the server that was chosen.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn chosen(x: &mut Exchange, first: usize, choice: &Choice) -> Result<(), Undecided> {
    mark_redirect(x, first);
    match &choice.lease {
        Some(lease) => lease.members.shared.affinity.as_ref().map_or(Ok(()), |it| sticky::tell(it, x, lease.member)),
        None => Ok(()),
    }
}

/// Computes what is the same for all attempts: the local address, the key, the session.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn evaluate(x: &mut Exchange, proxy: &ProxySettings, target: &Target) -> Result<(), Undecided> {
    write_bind(x, proxy)?;
    write_tls_name(x, proxy)?;
    if let Target::Group(upstream) = target {
        write_key(x, upstream)?;
        if let Some(affinity) = &upstream.members().shared.affinity {
            sticky::look_up(affinity, x)?;
        }
    }
    Ok(())
}

/// Whether a request that was sent (in part) may be sent again.
pub(super) fn may_repeat(x: &Exchange, next: &NextUpstream, sent: bool) -> bool {
    !x.body.consumed && (!sent || next.non_idempotent || x.request.method.is_idempotent())
}

/// The response is the one for the client: `sticky learn` takes note of it, now or at its end.
pub(super) fn begin_session(x: &mut Exchange, choice: &mut Choice) {
    if let Some(lease) = &mut choice.lease
        && let Some(affinity) = &lease.members.shared.affinity
        && affinity.learns()
    {
        match affinity.learns_early() {
            true => sticky::learn(affinity, x, lease.member),
            false => lease.answers = true,
        }
    }
}

/// Counts the end of an attempt whose response has been used.
pub(super) fn finish_attempt(x: &mut Exchange, lease: &mut Option<Lease>, outcome: Outcome, doing: &str) {
    if let Some(lease) = lease
        && lease.answers
        && let Some(affinity) = &lease.members.shared.affinity
    {
        sticky::learn(affinity, x, lease.member);
    }
    if close(&mut x.upstream.attempts, lease, outcome) {
        x.report(Level::Warn, format_args!("{DISABLED} while {doing}"));
    }
}
