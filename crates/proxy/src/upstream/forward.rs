//! `proxy_pass`: tries servers until one answers, or no other may be tried.

use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::Outcome;
use balanza_config::model::{HttpVersion, Level, Location, NextUpstream, ProxyPass, ProxySettings};
use balanza_net::clock::{self, Nanos};

use super::answer::answer;
use super::attempt::{Failure, log_failure, reach};
use super::lease::Lease;
use super::plan::Plan;
use super::request::{self, Payload};
use super::target::{Choice, Target, choose, find_target, no_server, write_bind, write_key};
use crate::connection::LARGE_HEAD;
use crate::exchange::{Attempt, Exchange};
use crate::reading;
use crate::step::Step;
use crate::variables::Undecided;

/// Answers with a server's response.
pub async fn serve(x: &mut Exchange, location: &Arc<Location>, pass: &ProxyPass) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    if x.body.consumed && proxy.pass_request_body && proxy.set_body.is_none() && !x.route.method_is_get {
        // A part of the body was sent to a server that failed; the rest alone would be a different request.
        x.sent.keep_alive = false;
        x.route.error_page_used = true;
        return Step::Error(502);
    }
    let site = Rc::clone(x.site());
    let plan = site.plan(pass.id, location);
    x.upstream.is_http11 = proxy.http_version == HttpVersion::Http11;
    let mut target = match find_target(x, pass) {
        Ok(target) => target,
        Err(step) => return step,
    };
    if !x.body.is_finished() && proxy.pass_request_body && proxy.set_body.is_none() && !x.route.method_is_get {
        let streams = !proxy.request_buffering && (x.upstream.is_http11 || !x.body.is_chunked());
        let ready = match streams {
            true => reading::invite_body(x).await,
            false => reading::buffer_body(x).await,
        };
        if let Err(error) = ready {
            return reading::body_failed(x, error);
        }
    }
    let payload = match request::compose(x, location, pass, &plan) {
        Ok(payload) => payload,
        Err(undecided) => return undecided.into(),
    };
    if x.request.text.len() >= LARGE_HEAD {
        x.weigh();
    }
    x.upstream.tried.clear();
    x.upstream.asking = true;
    let step = attempts(x, location, pass, &plan, &mut target, payload).await;
    x.upstream.asking = false;
    step
}

/// Tries servers until one answers, or no other may be tried.
async fn attempts(
    x: &mut Exchange,
    location: &Arc<Location>,
    pass: &ProxyPass,
    plan: &Plan,
    target: &mut Target,
    payload: Payload,
) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    let begun = clock::recent();
    let mut tries = match target {
        Target::Group(_, members) => members.shared.tries,
        Target::Address(..) => 1,
    };
    if proxy.next_upstream_tries != 0 {
        tries = tries.min(proxy.next_upstream_tries);
    }
    let mut after_redirect = !x.upstream.attempts.is_empty();
    if let Err(undecided) = evaluate(x, proxy, target) {
        return undecided.into();
    }
    loop {
        let mut choice = match choose(x, target, clock::recent()).await {
            Ok(Some(choice)) => choice,
            Ok(None) => {
                no_server(x, target, after_redirect);
                return Step::Error(502);
            }
            Err(undecided) => return undecided.into(),
        };
        x.upstream.attempts.push(Attempt {
            address: Some(Rc::clone(&choice.text)),
            after_redirect: std::mem::take(&mut after_redirect),
            started: clock::recent(),
            reason: choice.reason.take(),
            ..Attempt::default()
        });
        tries = tries.saturating_sub(1);
        let tag = if let Target::Group(upstream, _) = target
            && upstream.conf.keepalive.local
        {
            pass.id + 1
        } else {
            0
        };
        let (connection, failure) = match reach(x, location, &mut choice, tag, payload).await {
            Ok(answered) => match wants_next(x, &proxy.next_upstream, tries, begun, proxy) {
                Some(outcome) => {
                    finish_attempt(x, &mut choice.lease, outcome, "reading response header from upstream");
                    drop(answered);
                    continue;
                }
                None => {
                    begin_session(x, &mut choice);
                    return answer(x, location, plan, choice, tag, answered).await;
                }
            },
            Err(failed) => failed,
        };
        drop(connection);
        let (failure, doing, sent) = failure;
        match failure {
            Failure::ClientGone => {
                x.status = 499;
                x.sent.keep_alive = false;
                finish_attempt(x, &mut choice.lease, Outcome::Neutral, doing.text());
                let text = "client prematurely closed connection, so upstream connection is closed too";
                x.report(Level::Info, format_args!("{text} while {}", doing.text()));
                return Step::Drop;
            }
            Failure::Body(error) => {
                finish_attempt(x, &mut choice.lease, Outcome::Neutral, doing.text());
                return reading::body_failed(x, error);
            }
            failure => {
                let status = log_failure(x, &failure, doing);
                x.upstream.attempt().status = status;
                finish_attempt(x, &mut choice.lease, failure.outcome(), doing.text());
                if !may_retry(x, proxy, &failure, sent) || tries == 0 || is_late(proxy, begun) {
                    return Step::Error(status);
                }
            }
        }
    }
}

/// Computes what is the same for all attempts: the local address, the key, the session.
fn evaluate(x: &mut Exchange, proxy: &ProxySettings, target: &Target) -> Result<(), Undecided> {
    write_bind(x, proxy)?;
    if let Target::Group(upstream, members) = target {
        write_key(x, upstream)?;
        if let Some(affinity) = &members.shared.affinity {
            affinity.look_up(x)?;
        }
    }
    Ok(())
}

fn is_late(proxy: &ProxySettings, begun: Nanos) -> bool {
    !proxy.next_upstream_timeout.is_zero() && clock::now() - begun >= proxy.next_upstream_timeout.as_nanos() as u64
}

/// Whether a failed attempt may be followed by another.
fn may_retry(x: &Exchange, proxy: &ProxySettings, failure: &Failure, sent: bool) -> bool {
    let next = &proxy.next_upstream;
    let allowed = match failure {
        // The next server would meet the same problem.
        Failure::Own(_) => return false,
        Failure::TimedOut => next.timeout,
        Failure::Invalid(_) => next.invalid_header,
        _ => next.error,
    };
    allowed && !next.off && may_repeat(x, next, sent)
}

/// Whether a request that was sent (in part) may be sent again.
pub(super) fn may_repeat(x: &Exchange, next: &NextUpstream, sent: bool) -> bool {
    !x.body.consumed && (!sent || next.non_idempotent || x.request.method.is_idempotent())
}

/// Whether the response's status is retried at the next server, and how it counts for this server.
fn wants_next(x: &Exchange, next: &NextUpstream, tries: u32, begun: Nanos, proxy: &ProxySettings) -> Option<Outcome> {
    let (listed, outcome) = match x.upstream.response.status {
        500 => (next.http_500, Outcome::Failure),
        502 => (next.http_502, Outcome::Failure),
        503 => (next.http_503, Outcome::Failure),
        504 => (next.http_504, Outcome::Failure),
        429 => (next.http_429, Outcome::Failure),
        403 => (next.http_403, Outcome::Neutral),
        404 => (next.http_404, Outcome::Neutral),
        _ => return None,
    };
    (listed && tries > 0 && !is_late(proxy, begun) && may_repeat(x, next, true)).then_some(outcome)
}

/// The response is the one for the client: `sticky learn` takes note of it, now or at its end.
fn begin_session(x: &mut Exchange, choice: &mut Choice) {
    if let Some(lease) = &mut choice.lease
        && let Some(affinity) = &lease.members.shared.affinity
        && affinity.learns()
    {
        match affinity.learns_early() {
            true => affinity.learn(x, lease.member),
            false => lease.answers = true,
        }
    }
}

/// Counts the end of an attempt.
pub(super) fn finish_attempt(x: &mut Exchange, lease: &mut Option<Lease>, outcome: Outcome, doing: &str) {
    let now = clock::recent();
    let attempt = x.upstream.attempt();
    attempt.response_time = Some(now - attempt.started);
    let received = attempt.bytes_received;
    if let Some(mut lease) = lease.take() {
        if lease.answers
            && let Some(affinity) = &lease.members.shared.affinity
        {
            affinity.learn(x, lease.member);
        }
        lease.finish(outcome, received, x, doing);
    }
}
