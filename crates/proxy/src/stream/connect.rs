//! `proxy_pass` of a session: tries servers until one accepts the connection, or no other may be tried.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use balanza_balancing::{Outcome, registry};
use balanza_config::log_text::Escaped;
use balanza_config::model::{FirstSign, Level, ServerAddress, StreamTarget};
use balanza_net::clock::{self, Nanos};
use balanza_net::shortage::describe;
use balanza_net::shortage::{self, ConnectError, Shortage};
use balanza_net::transport::{self, ConnectOptions, Destination, Transport};

use super::relay::relay;
use super::{Session, Status, variables};
use crate::exchange::Attempt;
use crate::upstream::group::{Members, Upstream, address_text};
use crate::upstream::lease::Lease;
use crate::upstream::target::choose_freely;
use crate::upstream::target::parse_local;
use crate::values::binary_address;

/// Where a session goes.
enum Target {
    /// A group of servers, and those that it has while the session looks for one.
    Group(Rc<Upstream>, Rc<Members>),
    /// An address that a variable gave.
    Address(ServerAddress),
}

/// A server to try.
struct Choice {
    /// Its slot; none for an address that a variable gave.
    lease: Option<Lease>,
    address: ServerAddress,
}

/// Finds a server and relays until the session's end.
pub async fn pass(session: &mut Session) -> Status {
    let mut target = match find_target(session) {
        Ok(target) => target,
        Err(status) => return status,
    };
    let conf = Arc::clone(&session.server);
    let begun = clock::recent();
    let mut tries = match &target {
        Target::Group(upstream, members) => {
            write_key(session, upstream);
            members.shared.tries
        }
        Target::Address(_) => 1,
    };
    if conf.next_upstream_tries != 0 {
        tries = tries.min(conf.next_upstream_tries);
    }
    loop {
        let Some(mut choice) = choose(session, &mut target).await else { return Status::BadGateway };
        tries = tries.saturating_sub(1);
        match connect(session, &choice.address).await {
            Ok(server) => {
                serve(session, &target, &server, &mut choice.lease).await;
                return Status::Ok;
            }
            Err(ConnectError::Own(shortage)) => {
                session.report(Level::Alert, format_args!("{shortage} while connecting to upstream"));
                finish(session, choice.lease.take(), Outcome::Neutral);
                return Status::InternalError;
            }
            Err(ConnectError::Server(error)) => {
                let outcome = if shortage::is_own(&error) { Outcome::Neutral } else { Outcome::Failure };
                let timed_out = error.kind() == io::ErrorKind::TimedOut;
                let what = if timed_out { "upstream timed out" } else { "connect() failed" };
                let error = describe(&error);
                session.report(Level::Error, format_args!("{what} {error} while connecting to upstream"));
                finish(session, choice.lease.take(), outcome);
                let limit = clock::nanos(conf.next_upstream_timeout);
                let late = limit != 0 && clock::recent() - begun >= limit;
                if tries == 0 || !conf.next_upstream || late {
                    return Status::BadGateway;
                }
            }
        }
    }
}

/// The part of a session that has a server.
async fn serve(session: &mut Session, target: &Target, server: &Transport, lease: &mut Option<Lease>) {
    let now = clock::recent();
    let attempt = session.attempt();
    attempt.connect_time = Some(now - attempt.started);
    if session.wants(Level::Info) {
        let local = server.local_address().map_or_else(|| "unix:".to_owned(), |address| address.to_string());
        let to = session.attempt().address.clone().unwrap_or_default();
        session.note(Level::Info, format_args!("*{} proxy {local} connected to {to}", session.serial));
    }
    let first_sign = match target {
        Target::Group(upstream, _) => upstream.conf.balance.first_sign,
        Target::Address(_) => FirstSign::default(),
    };
    if let Some(lease) = lease {
        lease.alive(now);
        if first_sign == FirstSign::Connect {
            lease.header(now);
        }
    }
    relay(session, server, lease.as_mut(), first_sign).await;
    finish(session, lease.take(), Outcome::Success);
}

/// Closes the books of an attempt.
fn finish(session: &mut Session, lease: Option<Lease>, outcome: Outcome) {
    let now = clock::recent();
    let attempt = session.attempt();
    attempt.response_time = Some(now - attempt.started);
    let received = attempt.bytes_received;
    if lease.is_some_and(|mut lease| lease.complete(outcome, received)) {
        let text = "upstream server temporarily disabled while connecting to upstream";
        session.report(Level::Warn, format_args!("{text}"));
    }
}

/// The target of this session; without one NGINX's internal error.
fn find_target(session: &mut Session) -> Result<Target, Status> {
    let (conf, site) = (Arc::clone(&session.server), Rc::clone(&session.door.site));
    let template = match &conf.target {
        StreamTarget::Fixed(index) => return Ok(group(&site.stream_upstreams[*index])),
        StreamTarget::Dynamic(template) => template,
    };
    let mut text = Vec::new();
    variables::render(template, session, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let named = site.stream_upstreams.iter().find(|upstream| upstream.conf.name.eq_ignore_ascii_case(&text));
    if let Some(upstream) = named {
        return Ok(group(upstream));
    }
    parse_address(&text).map(Target::Address).map_err(|problem| {
        session.report(Level::Error, format_args!("{problem}"));
        Status::InternalError
    })
}

fn group(upstream: &Rc<Upstream>) -> Target {
    Target::Group(Rc::clone(upstream), upstream.members())
}

/// An address without names: `IP:PORT` or `unix:/path`.
fn parse_address(text: &str) -> Result<ServerAddress, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(ServerAddress::Unix(path.into()));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(ServerAddress::Inet(address));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let (shown, host) = (Escaped(text.as_bytes()), Escaped(host.as_bytes()));
    Err(match text {
        "" => "no host in upstream \"\"".to_owned(),
        _ if text.parse::<IpAddr>().is_ok() || port.is_empty() => format!("no port in upstream \"{shown}\""),
        _ if port.parse::<u16>().is_err() => format!("invalid port in upstream \"{shown}\""),
        _ => format!("no resolver defined to resolve {host}"),
    })
}

/// Works out the key of algorithms that hash one.
fn write_key(session: &mut Session, upstream: &Upstream) {
    let mut key = std::mem::take(&mut session.key);
    let balance = &upstream.conf.balance;
    match (balance.spec.entry().key, &balance.key) {
        (registry::Key::Any, Some(template)) => variables::render(template, session, &mut key),
        (registry::Key::ClientAddress, _) => binary_address(session.peer, &mut key),
        _ => {}
    }
    session.key = key;
}

/// Takes a server of the target and begins its attempt; none when no one is eligible.
async fn choose(session: &mut Session, target: &mut Target) -> Option<Choice> {
    let now = clock::recent();
    let begin =
        |address: Rc<str>, reason| Attempt { address: Some(address), started: now, reason, ..Attempt::default() };
    let (upstream, members) = match target {
        Target::Group(upstream, members) => (upstream, members),
        Target::Address(address) => {
            session.attempts.push(begin(address_text(address), None));
            return Some(Choice { lease: None, address: address.clone() });
        }
    };
    let mut chosen = choose_freely(upstream, members, &session.key, &mut session.tried, now).await;
    if chosen.is_none() && !upstream.has(members) {
        *members = upstream.members();
        session.tried.clear();
        chosen = choose_freely(upstream, members, &session.key, &mut session.tried, now).await;
    }
    let Some((member, reason)) = chosen else {
        session.attempts.push(begin(upstream.conf.name.as_str().into(), None));
        session.attempt().response_time = Some(0);
        if !upstream.unavailable_logged.replace(true) {
            session.report(Level::Error, format_args!("no live upstreams while connecting to upstream"));
        }
        return None;
    };
    // A program may have taken its time, which is not the server's.
    let lease = Lease::new(upstream, members, member, clock::recent());
    if let Some(prober) = &upstream.prober {
        prober.send(members, now);
    }
    let index = member.0 as usize;
    session.attempts.push(begin(Rc::clone(&members.addresses[index]), reason));
    Some(Choice { lease: Some(lease), address: members.shared.servers[index].address.clone() })
}

/// Connects, for `proxy_connect_timeout` at most.
async fn connect(session: &mut Session, address: &ServerAddress) -> Result<Transport, ConnectError> {
    if !session.worker.make_room(&session.door.site) {
        return Err(ConnectError::Own(Shortage::Connections));
    }
    let conf = Arc::clone(&session.server);
    let mut options = ConnectOptions { keepalive: conf.socket_keepalive, ..ConnectOptions::default() };
    if let Some(bind) = &conf.bind {
        let mut local = Vec::new();
        variables::render(&bind.address, session, &mut local);
        options.bind = parse_local(&local);
        options.transparent = bind.transparent;
        if options.bind.is_none() && !local.is_empty() {
            let local = Escaped(&local);
            session.report(Level::Error, format_args!("invalid local address \"{local}\""));
        }
    }
    let destination = match address {
        ServerAddress::Inet(address) => Destination::Inet(*address),
        ServerAddress::Unix(path) => Destination::Unix(path),
    };
    let server = transport::connect(&destination, &options)?;
    let deadline: Nanos = clock::after(conf.connect_timeout);
    let connected = poll_fn(|cx| match server.poll_connected(cx) {
        Poll::Pending if session.timer.poll_expired(cx, deadline) => {
            Poll::Ready(Err(rustix::io::Errno::TIMEDOUT.into()))
        }
        result => result,
    })
    .await;
    clock::now();
    connected.map(|()| server).map_err(ConnectError::from)
}
