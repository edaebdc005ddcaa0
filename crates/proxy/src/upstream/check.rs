//! A request of a health check: sent with the settings of a location to one server, and answered to the check.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use balanza_config::model::{Location, ProxyPass, ProxySettings, ProxyTarget, ServerAddress};
use balanza_http1::Body;
use balanza_message::Header;
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};

use super::attempt::{Heard, Order, reach};
use super::http2;
use super::line::{Line, Reached};
use super::relay::Source;
use super::request::{self, Payload};
use super::target::{write_bind, write_certificate, write_tls_name};
use crate::exchange::Exchange;
use crate::servers::address::address_text;
use crate::servers::attempt::{Attempt, Explained};
use crate::servers::failure::{Cause, Doing, Failure};
use crate::servers::pool::ServerConnection;
use crate::servers::search::Choice;
use crate::undecided::Undecided;

/// How much of an answer's body is looked at.
const MOST: usize = 256 * 1024;

/// Where gRPC servers are asked for their health.
const HEALTH: &[u8] = b"/grpc.health.v1.Health/Check";

/// What is asked.
pub enum Question<'a> {
    /// The URI of the request at hand.
    Uri,
    /// The health of a service of gRPC.
    Grpc(&'a [u8]),
}

/// Who is asked.
pub struct Asked<'a> {
    /// The server's name, as the configuration writes it.
    pub name: &'a str,
    /// Its address.
    pub address: &'a ServerAddress,
}

/// Why there is no answer.
pub enum NoAnswer {
    /// The server, or this machine.
    Failed(Failure),
    /// A regular expression that the request depends on is undecided.
    Undecided,
}

impl From<Undecided> for NoAnswer {
    fn from(_: Undecided) -> NoAnswer {
        NoAnswer::Undecided
    }
}

/// Asks a server. The head of its answer is in `x.upstream.response`, and its trailers in `x.upstream.trailers`; the body is
/// returned. `kept` is a connection from an earlier check; with `keeps` it is one for the next check afterwards.
///
/// # Errors
/// There is no answer.
pub async fn ask(
    x: &mut Exchange,
    location: &Arc<Location>,
    pass: &ProxyPass,
    server: Asked<'_>,
    question: Question<'_>,
    kept: &mut Option<Box<ServerConnection>>,
    keeps: bool,
) -> Result<Vec<u8>, NoAnswer> {
    let proxy: &ProxySettings = &location.settings.proxy;
    let ProxyTarget::Fixed { host, port, tls, .. } = &pass.target else { return Err(NoAnswer::Undecided) };
    x.upstream.target.host.extend_from_slice(host);
    (x.upstream.target.port, x.upstream.target.tls) = (*port, *tls);
    x.upstream.speak(proxy.http_version, pass.grpc);
    // The URI of `proxy_pass` is not for checks.
    x.route.detach();
    let explained = Explained { name: Some(server.name.into()), ..Explained::default() };
    x.upstream.attempts.push(Attempt {
        address: Some(address_text(server.address)),
        started: clock::recent(),
        explained: Some(Box::new(explained)),
        ..Attempt::default()
    });
    write_bind(x, proxy)?;
    write_tls_name(x, proxy)?;
    write_certificate(x, pass.tls.as_ref())?;
    let payload = compose(x, location, pass, &question, keeps)?;
    let mut choice = Choice { lease: None, address: server.address.clone() };
    let order = Order { location, payload, tag: 0, tls: pass.tls.as_deref().filter(|_| *tls) };
    let reached = match x.upstream.is_http2() {
        true => http2::reach(x, order, &mut choice).await,
        false => reach(x, order, &mut choice, kept.take(), Nanos::MAX).await.and_then(|heard| match heard {
            Heard::Head(reached) => Ok(reached),
            Heard::Nothing(request) => Err(request.failure((Cause::TimedOut, request.doing))),
        }),
    };
    let Reached { mut line, first, body, keeps_alive } = reached.map_err(NoAnswer::Failed)?;
    let (body, clean) = read(x, proxy, &mut line, first, body).await.map_err(NoAnswer::Failed)?;
    if let Line::Http1(connection) = line
        && keeps
        && keeps_alive
        && clean
        && x.upstream.sent_whole
    {
        *kept = Some(connection);
    }
    Ok(body)
}

/// Composes the request.
fn compose(
    x: &mut Exchange,
    location: &Location,
    pass: &ProxyPass,
    question: &Question<'_>,
    keeps: bool,
) -> Result<Payload, Undecided> {
    let running = std::rc::Rc::clone(x.running());
    let plan = running.plan(pass.id, location);
    let payload = request::compose(x, location, pass, &plan)?;
    match question {
        Question::Grpc(service) => {
            x.upstream.method = b"POST".to_vec();
            x.upstream.uri = HEALTH.to_vec();
            x.upstream.fields.push(b"content-type", b"application/grpc");
            if !plan.sets_te {
                x.upstream.fields.push(b"te", b"trailers");
            }
            x.upstream.body = grpc_question(service);
            x.upstream.length = None;
            return Ok(Payload::Text);
        }
        Question::Uri if !x.upstream.is_http2() && !keeps && x.upstream.fields.find(Header::Connection).is_none() => {
            // In front of the empty line.
            let end = x.upstream.head.len() - 2;
            x.upstream.head.truncate(end);
            x.upstream.head.extend_from_slice(b"Connection: close\r\n\r\n");
        }
        Question::Uri => {}
    }
    Ok(payload)
}

/// A `HealthCheckRequest` with its frame: the service's name is field 1.
fn grpc_question(service: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service);
    }
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

/// Reads the body, or as much of it as is looked at, in `proxy_read_timeout`; true if nothing follows it.
async fn read(
    x: &mut Exchange,
    proxy: &ProxySettings,
    line: &mut Line,
    first: Buffer,
    body: Body,
) -> Result<(Vec<u8>, bool), Failure> {
    let failed = |cause| Failure { cause, doing: Doing::Reading, sent: true };
    let deadline = clock::after(proxy.read_timeout);
    let mut source = Source::new(body);
    let mut payload = Vec::new();
    let mut input = Some(first);
    loop {
        if let Some(mut piece) = input.take() {
            source.decode(&mut piece, &mut x.upstream.trailers).map_err(|reason| failed(Cause::Invalid(reason)))?;
            payload.extend_from_slice(piece.unread());
        }
        if source.is_finished() || payload.len() >= MOST {
            payload.truncate(MOST);
            return Ok((payload, source.clean));
        }
        let Exchange { downstream, upstream, .. } = x;
        let received = poll_fn(|cx| {
            let received = match line {
                Line::Http1(connection) => connection
                    .socket
                    .poll_recv_buffer(cx, &mut input)
                    .map_err(|error| Cause::of("recv", error, Cause::Receive)),
                Line::Http2(talk) => {
                    let into = input.get_or_insert_with(Buffer::take);
                    talk.poll_recv(cx, into, usize::MAX, &mut upstream.trailers).map_err(http2::cause)
                }
            };
            match received {
                Poll::Pending if downstream.timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
                received => received,
            }
        });
        let received = received.await.map_err(failed)?;
        clock::now();
        if received == 0 {
            input = None;
            if !source.end() {
                return Err(failed(Cause::Closed(true)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_of_grpc() {
        assert_eq!(grpc_question(b""), [0, 0, 0, 0, 0]);
        assert_eq!(grpc_question(b"abc"), [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'b', b'c']);
        let long = grpc_question(&[b'x'; 300]);
        assert_eq!((&long[..8], long.len()), (&[0, 0, 0, 1, 47, 0x0a, 0xac, 2][..], 308));
    }
}
