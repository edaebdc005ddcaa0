//! A check of `stream`: a connection to one server, what is sent, and what must come back.

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::Poll;

use balanza_balancing::Outcome;
use balanza_config::model::{Expected, Probe, StreamMatch, StreamServer};
use balanza_config::template::{Part, Template, Variable};
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::shortage::{ConnectError, Shortage};
use balanza_net::timer::Timer;
use balanza_net::transport::{self, ConnectOptions, Transport};
use balanza_tls::client;

use super::judge::matches;
use super::{Subject, Trouble};
use crate::proxy_protocol;
use crate::secure;
use crate::servers::address::{address_text, destination, parse_local, strip_port};
use crate::servers::failure::{Cause, Doing, Failure};

/// How much of an answer is looked at.
const MOST: usize = 256 * 1024;

/// Checks a server once.
///
/// # Errors
/// It has not passed.
pub async fn check(subject: &Subject, server: &StreamServer) -> Result<(), Trouble> {
    let Probe::Stream { expected } = &subject.plan.check.probe else { return Ok(()) };
    let mut timer = Timer::default();
    let socket = connect(subject, server, &mut timer).await.map_err(trouble)?;
    let deadline = clock::after(server.health_check_timeout);
    if server.proxy_protocol {
        let mut header = Vec::new();
        proxy_protocol::write(None, None, &mut header);
        send(&socket, &header, &mut timer, deadline).await.map_err(trouble)?;
    }
    if let Some(tls) = &server.proxy_tls {
        let config = tls.context.for_server(&address_text(&subject.address));
        let name = server.ssl_name.as_ref().map(|template| name_of(subject, template)).unwrap_or_default();
        let name = client::server_name(&name);
        secure::connect(&socket, &mut timer, deadline, config, name).await.map_err(trouble)?;
    }
    let Some(expected) = expected else { return Ok(()) };
    talk(&socket, expected, &mut timer, deadline).await
}

/// A text without variables: there is no session that they could be those of.
fn literal(template: Option<&Template>) -> &[u8] {
    template.and_then(Template::as_literal).unwrap_or_default()
}

/// Sends what is to be sent, and waits for what must come.
async fn talk(
    socket: &Transport,
    expected: &Arc<StreamMatch>,
    timer: &mut Timer,
    deadline: Nanos,
) -> Result<(), Trouble> {
    send(socket, &expected.send, timer, deadline).await.map_err(trouble)?;
    let Some(wanted) = &expected.expect else { return Ok(()) };
    socket.watch().map_err(|error| trouble(Failure::connecting(Cause::of("epoll_ctl", error, Cause::Receive))))?;
    let mut answer = Vec::new();
    loop {
        let wrong = |why: &str| Err(Trouble::Server(format!("{why} {} bytes", answer.len())));
        match wanted {
            Expected::Bytes(bytes) if answer.starts_with(bytes) => return Ok(()),
            Expected::Bytes(bytes) if !bytes.starts_with(&answer) => return wrong("another answer than expected in"),
            Expected::Regex(regex) if matches(regex, &answer).map_err(Trouble::Server)? => return Ok(()),
            _ if answer.len() >= MOST => return wrong("no expected answer in"),
            _ => {}
        }
        let mut piece = Buffer::take();
        let received = poll_fn(|cx| match socket.poll_recv(cx, &mut piece, usize::MAX) {
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
            received => received.map_err(|error| Cause::of("recv", error, Cause::Receive)),
        });
        let failed = |cause| trouble(Failure { cause, doing: Doing::Reading, sent: true });
        if received.await.map_err(failed)? == 0 {
            return wrong("the connection was closed after");
        }
        answer.extend_from_slice(piece.unread());
    }
}

/// The name that the server's certificate is for; empty where it depends on a session.
fn name_of(subject: &Subject, template: &Template) -> Vec<u8> {
    let mut name = Vec::new();
    for part in template.parts() {
        match part {
            Part::Literal(text) => name.extend_from_slice(text),
            Part::Variable(Variable::UpstreamLastServerName) => {
                name.extend_from_slice(subject.configured_name.as_bytes())
            }
            Part::Variable(_) => return Vec::new(),
        }
    }
    strip_port(&mut name);
    name
}

/// Sends bytes.
async fn send(socket: &Transport, bytes: &[u8], timer: &mut Timer, deadline: Nanos) -> Result<(), Failure> {
    let mut sent = 0;
    while sent < bytes.len() {
        let wrote = poll_fn(|cx| match socket.poll_send(cx, &[IoSlice::new(&bytes[sent..])], false) {
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
            wrote => wrote.map_err(|error| Cause::of("send", error, Cause::Send)),
        });
        sent += wrote.await.map_err(|cause| Failure { cause, doing: Doing::Sending, sent: true })?;
    }
    Ok(())
}

/// Connects, for `proxy_connect_timeout` at most.
async fn connect(subject: &Subject, server: &StreamServer, timer: &mut Timer) -> Result<Transport, Failure> {
    if !subject.plan.thread.clients.make_room(&subject.plan.running) {
        return Err(Failure::connecting(Cause::Own(Shortage::Connections)));
    }
    let mut options = ConnectOptions { keepalive: server.socket_keepalive, ..ConnectOptions::default() };
    if let Some(bind) = &server.bind {
        options.bind = parse_local(literal(Some(&bind.address)));
        options.transparent = bind.transparent && options.bind.is_some();
    }
    let socket = transport::connect(&destination(&subject.address), &options)
        .map_err(|error| Failure::connecting(error.into()))?;
    let deadline = clock::after(server.connect_timeout);
    let connected = poll_fn(|cx| match socket.poll_connected(cx) {
        Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
        result => result.map_err(|error| ConnectError::from(error).into()),
    });
    connected.await.map_err(Failure::connecting)?;
    clock::now();
    Ok(socket)
}

/// Why a check has not passed: a shortage of this machine says nothing about the server.
fn trouble(failure: Failure) -> Trouble {
    let why = failure.message().map_or_else(String::new, |(_, message)| message);
    if failure.outcome() == Outcome::Failure { Trouble::Server(why) } else { Trouble::Own(why) }
}
