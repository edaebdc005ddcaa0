//! Sends a server's response to the client, or another response in its place.

use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::Outcome;
use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, Location, ProxySettings};
use balanza_http1::Body;
use balanza_message::{Header, Length, Method, uri};
use balanza_net::buffer::Buffer;
use balanza_net::clock;
use balanza_net::shortage::describe;

use super::forward::finish_attempt;
use super::line::{Line, Reached};
use super::relay::{self, Relay, RelayError};
use super::{ntlm, reply, tunnel};
use crate::body::BodyError;
use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::paths;
use crate::response::{head, send};
use crate::running_config::plan::Plan;
use crate::servers::lease::Lease;
use crate::servers::pool::{IdlePool, ServerConnection};
use crate::servers::search::Choice;
use crate::step::{self, Step};

/// Passes a server's response on to the client.
#[allow(clippy::too_many_arguments)]
pub(super) async fn answer(
    x: &mut Exchange,
    location: &Arc<Location>,
    plan: &Plan,
    mut choice: Choice,
    tag: usize,
    Reached { line, first, body, keeps_alive }: Reached,
) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    let reading = "reading upstream";
    if let Some(rate) = x.upstream.response_field(Header::XAccelLimitRate).and_then(balanza_message::decimal)
        && !proxy.ignored.limit_rate
    {
        x.sent.set_rate(rate);
    }
    let trailers_follow = std::mem::take(&mut x.upstream.trailers_follow);
    if let Some(step) = instead_of_answer(x, location) {
        x.upstream.trailers.clear();
        let outcome = Outcome::of_status(x.upstream.response.status);
        finish_attempt(x, &mut choice.lease, outcome, reading);
        return step;
    }
    let line = match line {
        Line::Http1(connection) if x.upstream.response.status == 101 => {
            return Box::pin(switch_protocols(x, location, plan, choice, connection, first)).await;
        }
        line => line,
    };
    let buffering = match x.upstream.response_field(Header::XAccelBuffering).filter(|_| !proxy.ignored.buffering) {
        Some(value) if value.eq_ignore_ascii_case(b"no") => false,
        Some(value) if value.eq_ignore_ascii_case(b"yes") => true,
        _ => proxy.buffering,
    };
    x.upstream.trailers_follow = trailers_follow;
    let composed = reply::compose(x, location, plan);
    x.upstream.trailers_follow = false;
    if let Err(undecided) = composed {
        let outcome = Outcome::of_status(x.upstream.response.status);
        finish_attempt(x, &mut choice.lease, outcome, reading);
        return undecided.into();
    }
    if x.reply.unsatisfiable {
        let outcome = Outcome::of_status(x.upstream.response.status);
        finish_attempt(x, &mut choice.lease, outcome, reading);
        return Step::Error(416);
    }
    // A response that is kept as a file is read to its end, whoever takes it.
    let kept = proxy.store.is_some() && x.downstream.is_nowhere();
    if head::is_bodiless(x) && x.upstream.response.body != Length::None && !kept {
        // The server's body has no reader: closing its connection is cheaper than reading what has not come yet.
        let has_all = x.upstream.response.body == Length::Known(first.unread().len() as u64);
        if has_all {
            x.upstream.attempt().bytes_received += first.unread().len() as u64;
        }
        release(x, &mut choice.lease, tag, Some(line).filter(|_| keeps_alive && has_all));
        let sent = send::send_head(x, b"").await;
        x.sent.finish(sent.is_ok());
        step::note_send_error(x, sent);
        return Step::Sent;
    }
    if let Length::Known(length) = x.upstream.response.body
        && length == first.unread().len() as u64
        && !x.sent.chunked
        && !x.sent.trailers
        && !matches!(body, Body::UntilClose)
        && x.sent.rate.limit == 0
        && proxy.limit_rate.is_none()
        && proxy.store.is_none()
        && x.sent.filters.is_none()
    {
        // All of the response is here: no relay is needed, and one system call sends it.
        let attempt = x.upstream.attempt();
        attempt.bytes_received += length;
        attempt.response_length = length;
        release(x, &mut choice.lease, tag, Some(line).filter(|_| keeps_alive));
        x.downstream.ends = !x.sent.keeps_connection() && x.body.heard_all();
        let sent = relay::send_joined(x, &first).await;
        x.sent.finish(sent.is_ok());
        step::note_send_error(x, sent);
        return Step::Sent;
    }
    let mut relay = match Relay::new(x, location, body, buffering) {
        Ok(relay) => relay,
        Err(undecided) => {
            let outcome = Outcome::of_status(x.upstream.response.status);
            finish_attempt(x, &mut choice.lease, outcome, reading);
            return undecided.into();
        }
    };
    let mut server = Some(line);
    let begun = match relay.begin(x, first).await {
        Err(RelayError::Client(error)) if proxy.reads_without_client() => {
            step::note_send_error(x, Err(error));
            relay.discard();
            Ok(())
        }
        begun => begun,
    };
    let result = match begun {
        Ok(()) => {
            let lease = &mut choice.lease;
            relay
                .run(x, &mut server, |x, line, relay| {
                    received(x, lease, tag, line.filter(|_| keeps_alive), relay);
                })
                .await
        }
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => {
            x.sent.finish(!relay.discards());
            if relay.discards() {
                x.sent.end_connection();
            }
            if let Some(store) = relay.take_store() {
                store.finish(x, location);
            }
        }
        Err(RelayError::Malformed(reason)) if !x.sent.head => {
            let text = "upstream sent invalid chunked response";
            x.report(Level::Error, format_args!("{text}: {reason} while {reading}"));
            x.upstream.attempt().status = 502;
            finish_attempt(x, &mut choice.lease, Outcome::Failure, reading);
            return Step::Error(502);
        }
        Err(error) => {
            cut_off(x, error);
            let attempt = x.upstream.attempt();
            attempt.bytes_received += relay.received();
            attempt.response_length = relay.received();
            finish_attempt(x, &mut choice.lease, Outcome::Neutral, reading);
        }
    }
    Step::Sent
}

/// The server has sent everything: its slot and its connection are free, whatever the client still has to read.
fn received(x: &mut Exchange, lease: &mut Option<Lease>, tag: usize, line: Option<Line>, relay: &Relay) {
    let attempt = x.upstream.attempt();
    attempt.bytes_received += relay.received();
    attempt.response_length = relay.received();
    release(x, lease, tag, line.filter(|_| relay.is_clean()));
}

/// Gives back the slot, and a connection that can be used again unless part of the request is still to be sent. A stream has a
/// connection that lives on without it.
fn release(x: &mut Exchange, lease: &mut Option<Lease>, tag: usize, line: Option<Line>) {
    let place = lease.as_ref().map(|lease| (Rc::clone(&lease.upstream), lease.server(), lease.member));
    let outcome = Outcome::of_status(x.upstream.response.status);
    finish_attempt(x, lease, outcome, "reading upstream");
    if x.upstream.sent_whole
        && let (Some(Line::Http1(connection)), Some((upstream, server, member))) = (line, place)
    {
        match connection.private {
            None => IdlePool::put(&upstream.idle, server, tag, connection, clock::recent()),
            Some(_) => ntlm::put_back(x, &upstream, (server, member), connection),
        }
    }
}

/// An error page or an internal redirect that takes the response's place.
fn instead_of_answer(x: &mut Exchange, location: &Location) -> Option<Step> {
    let status = x.upstream.response.status;
    let target = x.upstream.response_field(Header::XAccelRedirect).filter(|target| !target.is_empty());
    let target = target.filter(|_| !location.settings.proxy.ignored.redirect);
    if let Some(target) = target.map(<[u8]>::to_vec) {
        x.upstream.content_type = x.upstream.response_field(Header::ContentType).map(<[u8]>::to_vec);
        pass_fields(x, |header, name| {
            let kept =
                matches!(header, Header::SetCookie | Header::CacheControl | Header::Expires | Header::AcceptRanges);
            kept || name.eq_ignore_ascii_case(b"content-disposition")
        });
        if let Some(name) = target.strip_prefix(b"@") {
            return Some(Step::Named(name.to_vec()));
        }
        let (path, args) = match target.iter().position(|byte| *byte == b'?') {
            Some(mark) => (&target[..mark], target[mark + 1..].to_vec()),
            None => (&target[..], Vec::new()),
        };
        let mut normal = Vec::new();
        let merge_slashes = x.server().connection.merge_slashes;
        let normal = match uri::normalise(path, merge_slashes, &mut normal) {
            Ok(normal) if !climbs_once_decoded(path) => Some(normal.to_vec()),
            _ => None,
        };
        let Some(normal) = normal else {
            let text = "upstream sent invalid X-Accel-Redirect";
            x.report(Level::Error, format_args!("{text} \"{}\"", Escaped(path)));
            return Some(Step::Error(404));
        };
        x.route.method_is_get = x.request.method != Method::Head;
        return Some(Step::Internal(normal, args));
    }
    let covered = || location.settings.error_pages.iter().any(|page| page.status == status);
    if status >= 300 && location.settings.proxy.intercept_errors && !x.route.error_page_used() && covered() {
        if status == 401 {
            pass_fields(x, |header, _| header == Header::WwwAuthenticate);
        }
        return Some(Step::Error(status));
    }
    None
}

/// The client gets some fields of the server's response, though another response takes its place.
fn pass_fields(x: &mut Exchange, is_passed: impl Fn(Header, &[u8]) -> bool) {
    let response = std::mem::take(&mut x.upstream.response);
    x.upstream.pass_fields_of(&response, is_passed);
    x.upstream.response = response;
}

/// Whether a path has a segment "..", written out or escaped.
fn climbs_once_decoded(path: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        rest = after;
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => balanza_message::hex_digit(*high).zip(balanza_message::hex_digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                rest = &after[2..];
            }
            None => decoded.push(*byte),
        }
    }
    paths::climbs(&decoded)
}

/// Remembers why the client got less than the whole response.
fn cut_off(x: &mut Exchange, error: RelayError) {
    x.sent.abort();
    let reading = "while reading upstream";
    match error {
        RelayError::Client(SendError::Closed) => {
            x.report(Level::Info, format_args!("client closed connection {reading}"));
        }
        RelayError::Client(SendError::TimedOut) => {
            x.sent.time_out();
            x.report(Level::Info, format_args!("client timed out (110: Connection timed out) {reading}"));
        }
        RelayError::Server(None) => {
            x.report(Level::Error, format_args!("upstream prematurely closed connection {reading}"));
        }
        RelayError::Server(Some(error)) => {
            x.report(Level::Error, format_args!("recv() failed {} {reading}", describe(&error)));
        }
        RelayError::ServerTimedOut => {
            let text = "upstream timed out (110: Connection timed out)";
            x.report(Level::Error, format_args!("{text} {reading}"));
        }
        RelayError::Stream(error) => {
            x.report(Level::Error, format_args!("{error} {reading}"));
        }
        RelayError::Request(BodyError::TimedOut) => {
            x.sent.time_out();
            x.report(Level::Info, format_args!("client timed out (110: Connection timed out) {reading}"));
        }
        RelayError::Request(BodyError::TooLarge) => {
            let text = "client intended to send too large chunked body";
            x.report(Level::Error, format_args!("{text} {reading}"));
        }
        RelayError::Request(_) => {
            x.report(Level::Info, format_args!("client prematurely closed connection {reading}"));
        }
        RelayError::Malformed(reason) => {
            x.report(Level::Error, format_args!("upstream sent invalid chunked response: {reason} {reading}"));
        }
        RelayError::Broken(reason) => {
            x.report(Level::Error, format_args!("{reason} {reading}"));
        }
        RelayError::File(error) => {
            x.report(Level::Crit, format_args!("temporary file failed {} {reading}", describe(&error)));
        }
    }
}

/// After a 101 the connection belongs to another protocol.
async fn switch_protocols(
    x: &mut Exchange,
    location: &Arc<Location>,
    plan: &Plan,
    mut choice: Choice,
    connection: Box<ServerConnection>,
    first: Buffer,
) -> Step {
    x.sent.end_connection();
    if let Err(undecided) = reply::compose(x, location, plan) {
        finish_attempt(x, &mut choice.lease, Outcome::Success, "reading response header from upstream");
        return undecided.into();
    }
    if send::send_head(x, b"").await.is_ok() {
        let from_client = x.body.input.take().unwrap_or_else(Buffer::take);
        let (down, up) = match x.downstream.is_http2() {
            false => tunnel::relay(x, &connection, from_client, first).await,
            true => tunnel::relay_stream(x, &connection, first).await,
        };
        x.sent.bytes += down;
        x.sent.body_bytes += down;
        x.sent.finish(true);
        let attempt = x.upstream.attempt();
        attempt.bytes_received += down;
        attempt.response_length = down;
        attempt.bytes_sent += up;
    }
    finish_attempt(x, &mut choice.lease, Outcome::Success, "proxying upgraded connection");
    Step::Sent
}
