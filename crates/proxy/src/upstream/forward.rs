//! `proxy_pass`: choose a server, send it the request, read its response's head; if that fails, another server.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use balanza_balancing::{Outcome, registry};
use balanza_config::model::{
    HttpVersion, Level, Location, NextUpstream, ProxyPass, ProxySettings, ProxyTarget, ServerAddress,
};
use balanza_http1::{Body, Header, Method, Parsed, uri};

use super::plan::Plan;
use super::relay::{self, Relay, RelayError};
use super::request::{self, Payload, Sending, SendingError};
use super::{Lease, ServerConnection, response, tunnel};
use crate::body::BodyError;
use crate::buffer::{self, Buffer};
use crate::clock::{self, Nanos};
use crate::connection::{Client, Peer, SendError};
use crate::exchange::{Attempt, Exchange, Rate};
use crate::net::socket::{self, ConnectOptions, Destination};
use crate::phases::{self, Step, report};
use crate::site::Upstream;
use crate::static_files::describe;
use crate::{respond, variables};

/// After this long without an answer it is watched whether the client goes away; a server that answers sooner saves
/// the work.
const WATCH_CLIENT_AFTER: Duration = Duration::from_millis(100);

/// How many interim responses (1xx) a server may send before the real one.
const MAX_INTERIM: u32 = 16;

/// Where a request goes.
enum Target {
    /// A group of servers.
    Group(Rc<Upstream>),
    /// An address that a variable gave.
    Address(ServerAddress, Rc<str>),
}

/// Why an attempt failed before there was a response.
enum Failure {
    Connect(io::Error),
    Send(io::Error),
    Receive(io::Error),
    /// The server closed the connection; true if a part of a head had come.
    Closed(bool),
    TimedOut,
    Invalid(&'static str),
    ClientGone,
    Body(BodyError),
}

/// What is being done, for messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Connecting,
    Sending,
    Reading,
}

impl Doing {
    fn text(self) -> &'static str {
        match self {
            Doing::Connecting => "connecting to upstream",
            Doing::Sending => "sending request to upstream",
            Doing::Reading => "reading response header from upstream",
        }
    }
}

/// Answers with what a server says.
pub async fn serve(client: &mut Client, x: &mut Exchange, location: &Arc<Location>, pass: &ProxyPass) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    if x.body.consumed && proxy.pass_request_body && proxy.set_body.is_none() && !x.method_is_get {
        // A part of the body went to a server that failed; the rest alone would be another request.
        x.keep_alive = false;
        x.error_page_used = true;
        return Step::Error(502);
    }
    let site = Rc::clone(x.site());
    let plan = site.plan(pass.id, location);
    x.upstream_is_http11 = proxy.http_version == HttpVersion::Http11;
    let target = match find_target(client, x, pass) {
        Ok(target) => target,
        Err(step) => return step,
    };
    if !x.body.is_finished() && proxy.pass_request_body && proxy.set_body.is_none() && !x.method_is_get {
        let streams = !proxy.request_buffering && (x.upstream_is_http11 || !x.body.is_chunked());
        let ready = match streams {
            true => phases::invite_body(client, x).await,
            false => phases::buffer_body(client, x).await,
        };
        if let Err(error) = ready {
            return phases::body_failed(client, x, error);
        }
    }
    let payload = request::compose(x, client, location, pass, &plan);
    x.tried.clear();
    x.proxying = true;
    let step = attempts(client, x, location, pass, &plan, &target, payload).await;
    x.proxying = false;
    step
}

fn find_target(client: &Client, x: &mut Exchange, pass: &ProxyPass) -> Result<Target, Step> {
    let site = Rc::clone(x.site());
    match &pass.target {
        ProxyTarget::Fixed { upstream, host, port, .. } => {
            x.proxy_host.clear();
            x.proxy_host.extend_from_slice(host);
            x.proxy_port = *port;
            Ok(Target::Group(Rc::clone(&site.upstreams[*upstream])))
        }
        ProxyTarget::Dynamic(template) => {
            let mut url = Vec::new();
            variables::render(template, x, client, &mut url);
            if !url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"http://")) {
                let url = String::from_utf8_lossy(&url);
                report(x, client, Level::Error, format_args!("invalid URL prefix in \"{url}\""));
                return Err(Step::Error(500));
            }
            if url.len() == 7 {
                report(x, client, Level::Error, format_args!("no host in upstream \"http://\""));
                return Err(Step::Error(500));
            }
            parse_url(x, &url[7..]).ok_or_else(|| {
                let host = String::from_utf8_lossy(&x.proxy_host).into_owned();
                report(x, client, Level::Error, format_args!("no resolver defined to resolve {host}"));
                Step::Error(502)
            })
        }
    }
}

/// `host[:port][/uri]` or `unix:/path[:/uri]`, where the host is an upstream's name or an IP address.
fn parse_url(x: &mut Exchange, rest: &[u8]) -> Option<Target> {
    x.proxy_uri.clear();
    x.proxy_port = 80;
    if let Some(path) = rest.strip_prefix(b"unix:") {
        let (path, uri) = match path.iter().position(|byte| *byte == b':') {
            Some(colon) => (&path[..colon], &path[colon + 1..]),
            None => (path, &b""[..]),
        };
        x.proxy_uri.extend_from_slice(uri);
        x.proxy_host = b"localhost".to_vec();
        let path = crate::static_files::as_path(path).to_path_buf();
        let text = format!("unix:{}", path.display()).into();
        return Some(Target::Address(ServerAddress::Unix(path), text));
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, uri) = rest.split_at(end);
    if uri.starts_with(b"?") {
        x.proxy_uri.push(b'/');
    }
    x.proxy_uri.extend_from_slice(uri);
    x.proxy_host = authority.to_vec();
    let text = std::str::from_utf8(authority).ok()?;
    let site = Rc::clone(x.site());
    if let Some(group) = site.upstreams.iter().find(|upstream| upstream.conf.name.eq_ignore_ascii_case(text)) {
        return Some(Target::Group(Rc::clone(group)));
    }
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => SocketAddr::new(text.trim_matches(['[', ']']).parse().ok()?, 80),
    };
    x.proxy_port = address.port();
    Some(Target::Address(ServerAddress::Inet(address), address.to_string().into()))
}

/// Tries servers until one answers, or none may be tried any more.
async fn attempts(
    client: &mut Client,
    x: &mut Exchange,
    location: &Arc<Location>,
    pass: &ProxyPass,
    plan: &Plan,
    target: &Target,
    payload: Payload,
) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    let begun = clock::recent();
    let mut tries = match target {
        Target::Group(upstream) => upstream.tries,
        Target::Address(..) => 1,
    };
    if proxy.next_upstream_tries != 0 {
        tries = tries.min(proxy.next_upstream_tries);
    }
    let mut after_redirect = !x.attempts.is_empty();
    if let Target::Group(upstream) = target {
        write_key(x, client, upstream);
    }
    loop {
        let now = clock::recent();
        let mut choice = match choose(x, target, now) {
            Some(choice) => choice,
            None => {
                no_server(x, client, target, after_redirect);
                return Step::Error(502);
            }
        };
        x.attempts.push(Attempt {
            address: Some(Rc::clone(&choice.text)),
            after_redirect: std::mem::take(&mut after_redirect),
            started: now,
            ..Attempt::default()
        });
        tries = tries.saturating_sub(1);
        let tag = if let Target::Group(upstream) = target
            && upstream.conf.keepalive.local
        {
            pass.id + 1
        } else {
            0
        };
        let (connection, failure) = match reach(client, x, location, target, &mut choice, tag, payload).await {
            Ok(answered) => match wants_next(x, &proxy.next_upstream, tries, begun, proxy) {
                Some(outcome) => {
                    finish_attempt(x, client, &mut choice.lease, outcome, "reading response header from upstream");
                    drop(answered);
                    continue;
                }
                None => return answer(client, x, location, plan, target, choice, tag, answered).await,
            },
            Err(failed) => failed,
        };
        drop(connection);
        let (failure, doing, sent) = failure;
        match failure {
            Failure::ClientGone => {
                x.status = 499;
                x.keep_alive = false;
                finish_attempt(x, client, &mut choice.lease, Outcome::Neutral, doing.text());
                let text = "client prematurely closed connection, so upstream connection is closed too";
                report(x, client, Level::Info, format_args!("{text} while {}", doing.text()));
                return Step::Drop;
            }
            Failure::Body(error) => {
                finish_attempt(x, client, &mut choice.lease, Outcome::Neutral, doing.text());
                return phases::body_failed(client, x, error);
            }
            failure => {
                let status = log_failure(x, client, &failure, doing);
                x.attempt().status = status;
                finish_attempt(x, client, &mut choice.lease, Outcome::Failure, doing.text());
                if !may_retry(x, proxy, &failure, sent) || tries == 0 || is_late(proxy, begun) {
                    return Step::Error(status);
                }
            }
        }
    }
}

fn is_late(proxy: &ProxySettings, begun: Nanos) -> bool {
    !proxy.next_upstream_timeout.is_zero() && clock::now() - begun >= proxy.next_upstream_timeout.as_nanos() as u64
}

/// Whether a failed attempt may be followed by another.
fn may_retry(x: &Exchange, proxy: &ProxySettings, failure: &Failure, sent: bool) -> bool {
    let next = &proxy.next_upstream;
    let allowed = match failure {
        Failure::TimedOut => next.timeout,
        Failure::Invalid(_) => next.invalid_header,
        _ => next.error,
    };
    allowed && !next.off && may_repeat(x, next, sent)
}

/// Whether a request that went out (in part) may go out again.
fn may_repeat(x: &Exchange, next: &NextUpstream, sent: bool) -> bool {
    !x.body.consumed && (!sent || next.non_idempotent || x.head.method.is_idempotent())
}

/// Whether the response's status sends the request to the next server, and how that counts for this one.
fn wants_next(x: &Exchange, next: &NextUpstream, tries: u32, begun: Nanos, proxy: &ProxySettings) -> Option<Outcome> {
    let (listed, outcome) = match x.response.status {
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

/// A server to try.
struct Choice {
    lease: Option<Lease>,
    address: ServerAddress,
    text: Rc<str>,
}

fn choose(x: &mut Exchange, target: &Target, now: Nanos) -> Option<Choice> {
    match target {
        Target::Group(upstream) => {
            let member = upstream.driver.borrow_mut().pick(now, &x.key, &mut x.tried).ok()?;
            let index = member.0 as usize;
            Some(Choice {
                lease: Some(Lease::new(upstream, member, now)),
                address: upstream.conf.servers[index].address.clone(),
                text: Rc::clone(&upstream.addresses[index]),
            })
        }
        Target::Address(address, text) => Some(Choice { lease: None, address: address.clone(), text: Rc::clone(text) }),
    }
}

fn write_key(x: &mut Exchange, client: &Client, upstream: &Upstream) {
    let mut key = std::mem::take(&mut x.key);
    key.clear();
    let balance = &upstream.conf.balance;
    match balance.spec.entry().key {
        registry::Key::None => {}
        registry::Key::Any => {
            if let Some(template) = &balance.key {
                variables::render(template, x, client, &mut key);
            }
        }
        registry::Key::ClientAddress => match client.peer {
            Peer::Inet(address) => match address.ip().to_canonical() {
                std::net::IpAddr::V4(ip) => key.extend_from_slice(&ip.octets()),
                std::net::IpAddr::V6(ip) => key.extend_from_slice(&ip.octets()),
            },
            Peer::Unix => key.extend_from_slice(b"unix:"),
        },
    }
    x.key = key;
}

/// No server is eligible: logged once until one of them answers again.
fn no_server(x: &mut Exchange, client: &Client, target: &Target, after_redirect: bool) {
    if let Target::Group(upstream) = target {
        x.attempts.push(Attempt {
            address: Some(upstream.conf.name.as_str().into()),
            after_redirect,
            status: 502,
            started: clock::recent(),
            response_time: Some(0),
            ..Attempt::default()
        });
        if !upstream.unavailable_logged.replace(true) {
            report(x, client, Level::Error, format_args!("no live upstreams while connecting to upstream"));
        }
    }
}

type Reached = (Box<ServerConnection>, Buffer);
type Unreached = (Option<Box<ServerConnection>>, (Failure, Doing, bool));

/// Sends the request to a server and reads its response's head into `x.response`. A kept-alive connection that turns
/// out to be closed is replaced by a fresh one.
async fn reach(
    client: &mut Client,
    x: &mut Exchange,
    location: &Arc<Location>,
    target: &Target,
    choice: &mut Choice,
    tag: usize,
    payload: Payload,
) -> Result<Reached, Unreached> {
    let proxy: &ProxySettings = &location.settings.proxy;
    let mut reused = match (target, &choice.lease) {
        (Target::Group(upstream), Some(lease)) => upstream.idle.borrow_mut().take(lease.member.0, tag, clock::recent()),
        _ => None,
    };
    loop {
        let is_reused = reused.is_some();
        let mut connection = match reused.take() {
            Some(connection) => {
                x.attempt().connect_time = Some(0);
                connection
            }
            None => match connect(client, x, proxy, &choice.address) {
                Ok(connection) => connection,
                Err(error) => return Err((None, (Failure::Connect(error), Doing::Connecting, false))),
            },
        };
        connection.requests += 1;
        let mut sending = Sending::new(payload, x);
        let mut buffer = Buffer::take();
        let talked = talk(client, x, location, &connection, &mut sending, !is_reused, &mut buffer).await;
        x.attempt().bytes_sent = sending.total;
        x.body_sent_whole = sending.done;
        match talked {
            Ok(()) => {
                if let Some(lease) = &mut choice.lease {
                    lease.header(clock::recent());
                }
                return Ok((connection, buffer));
            }
            Err((failure, doing)) => {
                let stale = is_reused
                    && buffer.is_empty()
                    && matches!(failure, Failure::Send(_) | Failure::Receive(_) | Failure::Closed(false))
                    && may_repeat(x, &proxy.next_upstream, sending.total > 0);
                if !stale {
                    return Err((Some(connection), (failure, doing, sending.total > 0)));
                }
            }
        }
    }
}

fn connect(
    client: &Client,
    x: &mut Exchange,
    proxy: &ProxySettings,
    address: &ServerAddress,
) -> io::Result<Box<ServerConnection>> {
    if !client.worker.make_room(&client.listener) {
        return Err(io::Error::other("worker_connections are not enough"));
    }
    let mut options = ConnectOptions { keepalive: proxy.socket_keepalive, ..ConnectOptions::default() };
    if let Some(bind) = &proxy.bind {
        let mut local = Vec::new();
        variables::render(&bind.address, x, client, &mut local);
        options.bind = parse_local(&local);
        options.transparent = bind.transparent;
        if options.bind.is_none() && !local.is_empty() {
            let local = String::from_utf8_lossy(&local).into_owned();
            report(x, client, Level::Error, format_args!("invalid local address \"{local}\""));
        }
    }
    let destination = match address {
        ServerAddress::Inet(address) => Destination::Inet(*address),
        ServerAddress::Unix(path) => Destination::Unix(path),
    };
    let socket = socket::connect(&destination, &options)?;
    Ok(Box::new(ServerConnection { socket, requests: 0, opened: clock::recent() }))
}

fn parse_local(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.trim_matches(['[', ']']).parse().ok()?, 0)))
}

/// Sends the request and reads the response's head; what follows it stays in `buffer`.
async fn talk(
    client: &mut Client,
    x: &mut Exchange,
    location: &Location,
    server: &ServerConnection,
    sending: &mut Sending,
    fresh: bool,
    buffer: &mut Buffer,
) -> Result<(), (Failure, Doing)> {
    let proxy: &ProxySettings = &location.settings.proxy;
    let limit = proxy.buffer_size.unwrap_or(buffer::CAPACITY).min(buffer::CAPACITY);
    let mut parsed_all = true;
    let mut interim = 0;
    loop {
        // Several interim heads may come in one piece.
        if std::mem::replace(&mut parsed_all, true) {
            receive(client, x, location, server, sending, fresh, buffer).await?;
        }
        match x.response.parse(
            buffer.unread(),
            if x.method_is_get { Method::Get } else { sent_method(x, proxy) },
            limit,
        ) {
            Ok(Parsed::Incomplete) if buffer.space().is_empty() || buffer.unread().len() >= limit => {
                return Err((Failure::Invalid("upstream sent too big header"), Doing::Reading));
            }
            Ok(Parsed::Incomplete) => {}
            Ok(Parsed::Complete(_)) if x.response.is_interim() && interim == MAX_INTERIM => {
                return Err((Failure::Invalid("upstream sent too many interim responses"), Doing::Reading));
            }
            Ok(Parsed::Complete(length)) if x.response.is_interim() => {
                interim += 1;
                buffer.start += length;
                if buffer.is_empty() {
                    buffer.start = 0;
                    buffer.end = 0;
                } else {
                    buffer.shift(0);
                    parsed_all = false;
                }
            }
            Ok(Parsed::Complete(length)) => {
                let asked = x.upgrade_sent && sending.done && x.response.upgrade.is_some();
                if x.response.status == 101 && !asked {
                    return Err((Failure::Invalid("upstream sent 101 without being asked to"), Doing::Reading));
                }
                x.response_head.clear();
                x.response_head.extend_from_slice(&buffer.unread()[..length]);
                buffer.start += length;
                x.has_response = true;
                let now = clock::recent();
                let status = x.response.status;
                let attempt = x.attempt();
                attempt.status = status;
                attempt.header_time = Some(now - attempt.started);
                attempt.bytes_received = length as u64;
                return Ok(());
            }
            Err(error) => return Err((Failure::Invalid(error.reason), Doing::Reading)),
        }
    }
}

/// The method that the server was asked with: only HEAD matters, whose response has no body.
fn sent_method(x: &Exchange, proxy: &ProxySettings) -> Method {
    match &proxy.method {
        None => x.method(),
        Some(_) => Method::recognise(x.upstream_head.split(|byte| *byte == b' ').next().unwrap_or_default()),
    }
}

/// Goes on sending and waits for some bytes of the response.
async fn receive(
    client: &mut Client,
    x: &mut Exchange,
    location: &Location,
    server: &ServerConnection,
    sending: &mut Sending,
    fresh: bool,
    buffer: &mut Buffer,
) -> Result<(), (Failure, Doing)> {
    let settings = &location.settings;
    let proxy: &ProxySettings = &settings.proxy;
    let begun = clock::recent();
    let mut doing = match (sending.done, fresh) {
        (true, _) => Doing::Reading,
        (false, true) if sending.total == 0 => Doing::Connecting,
        (false, _) => Doing::Sending,
    };
    let mut progress = sending.total;
    let patience = |doing: Doing, awaits_client: bool| match doing {
        Doing::Connecting => proxy.connect_timeout,
        Doing::Sending if awaits_client => settings.client_body_timeout,
        Doing::Sending => proxy.send_timeout,
        Doing::Reading => proxy.read_timeout,
    };
    let mut deadline = begun.saturating_add(clock::nanos(patience(doing, false)));
    let watch = begun + clock::nanos(WATCH_CLIENT_AFTER);
    let mut watching = false;
    let mut send_error = None;
    poll_fn(|cx| {
        if !sending.done && send_error.is_none() {
            let result = sending.poll(cx, x, client, server);
            if sending.total > 0 && doing == Doing::Connecting {
                doing = Doing::Sending;
                let attempt = x.attempt();
                attempt.connect_time = Some(clock::recent() - attempt.started);
            }
            match result {
                Poll::Ready(Ok(())) => {
                    doing = Doing::Reading;
                    deadline = clock::after(proxy.read_timeout);
                    // Only now the socket has to be watched.
                    if let Err(error) = server.socket.register() {
                        return Poll::Ready(Err((Failure::Receive(error), doing)));
                    }
                }
                Poll::Ready(Err(SendingError::Server(error))) if doing == Doing::Connecting => {
                    return Poll::Ready(Err((Failure::Connect(error), doing)));
                }
                // The server may have answered before it closed.
                Poll::Ready(Err(SendingError::Server(error))) => send_error = Some(error),
                Poll::Ready(Err(SendingError::Client(error))) => {
                    return Poll::Ready(Err((Failure::Body(error), doing)));
                }
                Poll::Pending if sending.total != progress => {
                    progress = sending.total;
                    deadline = clock::after(patience(doing, sending.awaits_client));
                }
                Poll::Pending => {}
            }
        }
        if doing != Doing::Connecting {
            match server.socket.poll_recv(cx, buffer.space()) {
                Poll::Ready(Ok(0)) => {
                    let failure = match send_error.take() {
                        Some(error) => Failure::Send(error),
                        None => Failure::Closed(!buffer.is_empty()),
                    };
                    return Poll::Ready(Err((failure, doing)));
                }
                Poll::Ready(Ok(read)) => {
                    clock::now();
                    buffer.end += read;
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(error)) => {
                    let failure = match send_error.take() {
                        Some(error) => Failure::Send(error),
                        None => Failure::Receive(error),
                    };
                    return Poll::Ready(Err((failure, doing)));
                }
                Poll::Pending => {}
            }
        }
        let unwatched = !watching && !sending.awaits_client && !proxy.ignore_client_abort;
        if client.timer.poll_expired(cx, if unwatched { deadline.min(watch) } else { deadline }) {
            let now = clock::now();
            if now >= deadline {
                let failure = match sending.awaits_client {
                    true => Failure::Body(BodyError::TimedOut),
                    false => Failure::TimedOut,
                };
                return Poll::Ready(Err((failure, doing)));
            }
            watching = true;
            if client.socket.register().is_err() {
                return Poll::Ready(Err((Failure::ClientGone, doing)));
            }
            // Once more, for the timer of the deadline.
            cx.waker().wake_by_ref();
        }
        if watching && !sending.awaits_client && client.socket.poll_peer_closed(cx) {
            return Poll::Ready(Err((Failure::ClientGone, doing)));
        }
        Poll::Pending
    })
    .await
}

/// Writes what went wrong and returns the status that stands for it.
fn log_failure(x: &Exchange, client: &Client, failure: &Failure, doing: Doing) -> u16 {
    let doing = doing.text();
    match failure {
        Failure::Connect(error) => {
            report(x, client, Level::Error, format_args!("connect() failed {} while {doing}", describe(error)));
        }
        Failure::Send(error) => {
            report(x, client, Level::Error, format_args!("send() failed {} while {doing}", describe(error)));
        }
        Failure::Receive(error) => {
            report(x, client, Level::Error, format_args!("recv() failed {} while {doing}", describe(error)));
        }
        Failure::Closed(_) => {
            report(x, client, Level::Error, format_args!("upstream prematurely closed connection while {doing}"));
        }
        Failure::TimedOut => {
            let text = "upstream timed out (110: Connection timed out)";
            report(x, client, Level::Error, format_args!("{text} while {doing}"));
            return 504;
        }
        Failure::Invalid(reason) if reason.starts_with("upstream") => {
            report(x, client, Level::Error, format_args!("{reason} while {doing}"));
        }
        Failure::Invalid(reason) => {
            report(x, client, Level::Error, format_args!("upstream sent invalid header: {reason} while {doing}"));
        }
        Failure::ClientGone | Failure::Body(_) => {}
    }
    502
}

/// Closes the books of an attempt.
fn finish_attempt(x: &mut Exchange, client: &Client, lease: &mut Option<Lease>, outcome: Outcome, doing: &str) {
    let now = clock::recent();
    let attempt = x.attempt();
    attempt.response_time = Some(now - attempt.started);
    let received = attempt.bytes_received;
    if let Some(mut lease) = lease.take() {
        lease.finish(outcome, received, x, client, doing);
    }
}

/// Passes a server's response on to the client.
#[allow(clippy::too_many_arguments)]
async fn answer(
    client: &mut Client,
    x: &mut Exchange,
    location: &Arc<Location>,
    plan: &Plan,
    target: &Target,
    mut choice: Choice,
    tag: usize,
    (connection, first): Reached,
) -> Step {
    let proxy: &ProxySettings = &location.settings.proxy;
    let reading = "reading upstream";
    if let Some(step) = instead_of_answer(x, client, location) {
        finish_attempt(x, client, &mut choice.lease, Outcome::Success, reading);
        return step;
    }
    if x.response.status == 101 {
        return Box::pin(switch_protocols(client, x, location, plan, choice, connection, first)).await;
    }
    let buffering = match x.response_field(Header::XAccelBuffering) {
        Some(value) if value.eq_ignore_ascii_case(b"no") => false,
        Some(value) if value.eq_ignore_ascii_case(b"yes") => true,
        _ => proxy.buffering,
    };
    if let Some(rate) = x.response_field(Header::XAccelLimitRate).and_then(balanza_http1::decimal) {
        x.rate = Rate { limit: rate, after: 0 };
        x.rate_known = true;
    }
    response::compose(x, client, location, plan);
    if respond::is_bodiless(x) && x.response.body != Body::None {
        // The server's body has no reader: closing its connection is cheaper than reading it.
        drop(connection);
        finish_attempt(x, client, &mut choice.lease, Outcome::Success, reading);
        let sent = respond::send_head(client, x, b"").await;
        x.completed = sent.is_ok();
        phases::note_send_error(x, sent);
        return Step::Sent;
    }
    if let Body::Length(length) = x.response.body
        && length == first.unread().len() as u64
        && length <= relay::JOINED as u64
        && !x.chunked
        && x.rate.limit == 0
    {
        // All of a small response is here: no relay is needed, and one system call sends it.
        let attempt = x.attempt();
        attempt.bytes_received += length;
        attempt.response_length = length;
        release(x, client, &mut choice.lease, target, tag, Some(connection), true);
        x.out.extend_from_slice(first.unread());
        drop(first);
        let sent = respond::send_head(client, x, b"").await;
        x.body_bytes_sent += length;
        x.out.truncate(x.out_head);
        x.completed = sent.is_ok();
        phases::note_send_error(x, sent);
        return Step::Sent;
    }
    let mut relay = Relay::new(x, client, location, buffering);
    let mut server = Some(connection);
    let result = match relay.begin(client, x, first).await {
        Ok(()) => {
            let lease = &mut choice.lease;
            relay
                .run(client, x, &mut server, |x, client, connection, relay| {
                    received(x, client, lease, target, tag, connection, relay);
                })
                .await
        }
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => {
            x.completed = !relay.is_deaf();
            x.keep_alive &= x.completed;
        }
        Err(RelayError::Malformed(reason)) if !x.head_sent => {
            let text = "upstream sent invalid chunked response";
            report(x, client, Level::Error, format_args!("{text}: {reason} while {reading}"));
            x.attempt().status = 502;
            finish_attempt(x, client, &mut choice.lease, Outcome::Failure, reading);
            return Step::Error(502);
        }
        Err(error) => {
            cut_off(x, client, error);
            let attempt = x.attempt();
            attempt.bytes_received += relay.wire;
            attempt.response_length = relay.wire;
            finish_attempt(x, client, &mut choice.lease, Outcome::Neutral, reading);
        }
    }
    Step::Sent
}

/// The server has sent everything: its slot and its connection are free, whatever the client still has to read.
fn received(
    x: &mut Exchange,
    client: &Client,
    lease: &mut Option<Lease>,
    target: &Target,
    tag: usize,
    connection: Option<Box<ServerConnection>>,
    relay: &Relay,
) {
    let attempt = x.attempt();
    attempt.bytes_received += relay.wire;
    attempt.response_length = relay.wire;
    release(x, client, lease, target, tag, connection, relay.clean);
}

/// Gives back the slot, and the connection if it is at the border of a response (`clean`) and both sides want it.
fn release(
    x: &mut Exchange,
    client: &Client,
    lease: &mut Option<Lease>,
    target: &Target,
    tag: usize,
    connection: Option<Box<ServerConnection>>,
    clean: bool,
) {
    let member = lease.as_ref().map(|lease| lease.member.0);
    finish_attempt(x, client, lease, Outcome::Success, "reading upstream");
    if clean
        && x.response.keep_alive
        && x.body_sent_whole
        && let (Some(connection), Target::Group(upstream), Some(member)) = (connection, target, member)
    {
        upstream.idle.borrow_mut().put(member, tag, connection, clock::recent());
    }
}

/// An error page or an internal redirect that takes the response's place.
fn instead_of_answer(x: &mut Exchange, client: &Client, location: &Location) -> Option<Step> {
    let status = x.response.status;
    if let Some(target) = x.response_field(Header::XAccelRedirect).map(<[u8]>::to_vec) {
        x.content_type = x.response_field(Header::ContentType).map(<[u8]>::to_vec);
        for item in &x.response.fields {
            let (name, value) = (item.name.of(&x.response_head), item.value.of(&x.response_head));
            let kept = matches!(item.header, Header::SetCookie | Header::CacheControl | Header::Expires);
            if kept || name.eq_ignore_ascii_case(b"content-disposition") {
                respond::field(&mut x.kept_fields, name, value);
            }
        }
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
            let path = String::from_utf8_lossy(path);
            report(x, client, Level::Error, format_args!("upstream sent invalid X-Accel-Redirect \"{path}\""));
            return Some(Step::Error(404));
        };
        x.method_is_get = x.head.method != Method::Head;
        return Some(Step::Internal(normal, args));
    }
    let covered = || location.settings.error_pages.iter().any(|page| page.status == status);
    if status >= 300 && location.settings.proxy.intercept_errors && !x.error_page_used && covered() {
        return Some(Step::Error(status));
    }
    None
}

/// Whether a path has a segment "..", written out or escaped.
fn climbs_once_decoded(path: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        rest = after;
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => balanza_http1::hex_digit(*high).zip(balanza_http1::hex_digit(*low)),
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
    phases::climbs(&decoded)
}

/// Remembers why the client got less than the whole response.
fn cut_off(x: &mut Exchange, client: &Client, error: RelayError) {
    x.keep_alive = false;
    x.completed = false;
    let reading = "while reading upstream";
    match error {
        RelayError::Client(SendError::Closed) => {
            report(x, client, Level::Info, format_args!("client closed connection {reading}"));
        }
        RelayError::Client(SendError::TimedOut) => {
            x.timed_out = true;
            report(x, client, Level::Info, format_args!("client timed out (110: Connection timed out) {reading}"));
        }
        RelayError::Server(None) => {
            report(x, client, Level::Error, format_args!("upstream prematurely closed connection {reading}"));
        }
        RelayError::Server(Some(error)) => {
            report(x, client, Level::Error, format_args!("recv() failed {} {reading}", describe(&error)));
        }
        RelayError::ServerTimedOut => {
            let text = "upstream timed out (110: Connection timed out)";
            report(x, client, Level::Error, format_args!("{text} {reading}"));
        }
        RelayError::Malformed(reason) => {
            report(x, client, Level::Error, format_args!("upstream sent invalid chunked response: {reason} {reading}"));
        }
        RelayError::File(error) => {
            report(x, client, Level::Crit, format_args!("temporary file: {error} {reading}"));
        }
    }
}

/// After a 101 the connection belongs to another protocol.
async fn switch_protocols(
    client: &mut Client,
    x: &mut Exchange,
    location: &Arc<Location>,
    plan: &Plan,
    mut choice: Choice,
    connection: Box<ServerConnection>,
    first: Buffer,
) -> Step {
    x.keep_alive = false;
    response::compose(x, client, location, plan);
    if respond::send_head(client, x, b"").await.is_ok() {
        let from_client = x.input.take().unwrap_or_else(Buffer::take);
        let head = from_client.bytes()[..x.head_length].to_vec();
        let (down, up) = tunnel::relay(client, x, &connection, from_client, first).await;
        restore_head(x, &head);
        x.bytes_sent += down;
        x.body_bytes_sent += down;
        x.completed = true;
        let attempt = x.attempt();
        attempt.bytes_received += down;
        attempt.response_length = down;
        attempt.bytes_sent += up;
    }
    finish_attempt(x, client, &mut choice.lease, Outcome::Success, "proxying upgraded connection");
    Step::Sent
}

/// Puts the request's head back where its spans point to, for the log.
fn restore_head(x: &mut Exchange, head: &[u8]) {
    let mut input = Buffer::take();
    input.bytes_mut()[..head.len()].copy_from_slice(head);
    input.start = head.len();
    input.end = head.len();
    x.input = Some(input);
}
