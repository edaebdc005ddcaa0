//! `proxy_pass` of a session: tries servers until one accepts the connection, or no other may be tried.

use std::fmt::Arguments;
use std::future::poll_fn;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use balanza_balancing::{Outcome, registry};
use balanza_config::log_text::Escaped;
use balanza_config::model::{Balance, FirstSign, Level, ServerAddress, StreamTarget};
use balanza_config::template::Template;
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock::{self, Nanos};
use balanza_net::listening::Peer;
use balanza_net::memory::{self, Pressure};
use balanza_net::shortage::{ConnectError, Shortage};
use balanza_net::transport::{self, ConnectOptions, Transport};
use balanza_tls::client;

use super::relay::relay;
use super::{Session, Status, variables};
use crate::certificates;
use crate::downstream::Rate;
use crate::proxy_protocol;
use crate::secure;
use crate::servers::address::{address_text, destination, parse_local, strip_port};
use crate::servers::failure::{Cause, Doing, Failure};
use crate::servers::group::Upstream;
use crate::servers::lease::Lease;
use crate::servers::search::{Books, Choice, Limits, Seeker, Target, Unreached, finish, search};
use crate::undecided::Undecided;
use crate::values::binary_address;
use crate::variables::parse_size;

/// Where a session goes; what attempts need is worked out.
///
/// # Errors
/// The status of a session that goes nowhere.
pub async fn target(session: &mut Session) -> Result<Target, Status> {
    let found = match find_target(session) {
        Ok(Found::Target(target)) => Ok(target),
        Ok(Found::Name(host, port)) => look_up(session, &host, port).await,
        Err(problem) => Err((problem, Status::InternalError)),
    };
    let target = match found {
        Ok(target) => target,
        Err((problem, status)) => {
            session.report(Level::Error, format_args!("{problem}"));
            return Err(status);
        }
    };
    prepare(session, &target).map_err(|Undecided| Status::InternalError)?;
    Ok(target)
}

/// Finds a server and relays until the session's end.
pub async fn pass(session: &mut Session) -> Status {
    let target = match target(session).await {
        Ok(target) => target,
        Err(status) => return status,
    };
    let conf = &session.server;
    let limits = Limits { tries: conf.next_upstream_tries, timeout: clock::nanos(conf.next_upstream_timeout) };
    match search(session, &target, &limits).await {
        Ok((mut choice, server)) => {
            serve(session, &target, &server, &mut choice.lease).await;
            Status::Ok
        }
        Err(Unreached::Undecided) => Status::InternalError,
        Err(Unreached::Failed(failure)) if failure.cause.is_own() => Status::InternalError,
        Err(_) => Status::BadGateway,
    }
}

impl Seeker for Session {
    type Reached = Transport;

    fn books(&mut self) -> Books<'_> {
        Session::books(self)
    }

    fn report(&self, level: Level, message: Arguments<'_>) {
        Session::report(self, level, message);
    }

    fn chosen(&mut self, _: &Choice) -> Result<(), Undecided> {
        settle_for_server(self)
    }

    async fn attempt(&mut self, choice: &mut Choice) -> Result<Transport, Failure> {
        let server = connect(self, choice).await.map_err(Failure::connecting)?;
        if self.server.proxy_protocol {
            Box::pin(introduce(self, &server)).await?;
        }
        if let Some(tls) = self.server.proxy_tls.clone() {
            let caches = &self.listener.running.certificates;
            let config = certificates::client_config(&tls, self.certificate.as_deref(), caches, &choice.address);
            let config = config.map_err(Failure::unprepared)?;
            let deadline = clock::after(self.server.connect_timeout);
            secure::connect(&server, &mut self.timer, deadline, config, client::server_name(&self.tls_name)).await?;
        }
        Ok(server)
    }

    fn failed(&mut self, failure: &Failure) -> bool {
        !failure.cause.is_own() && self.server.next_upstream
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
        session.note(Level::Info, format_args!("*{} proxy {local} connected to {to}", session.client.serial));
    }
    let first_sign = match target {
        Target::Group(upstream) => upstream.members().shared.balancing.balance.first_sign,
        Target::Addresses(..) => FirstSign::default(),
    };
    if let Some(lease) = lease {
        lease.alive(now);
        if first_sign == FirstSign::Connect {
            lease.header(now);
        }
    }
    relay(session, server, lease.as_mut(), first_sign).await;
    finish(session, lease, Outcome::Success, "connecting to upstream");
}

/// Where a session goes, as far as it is known without a name server.
enum Found {
    Target(Target),
    /// A host name and a port.
    Name(String, u16),
}

/// The target of this session; without one NGINX's internal error.
fn find_target(session: &mut Session) -> Result<Found, String> {
    let (conf, running) = (Arc::clone(&session.server), Rc::clone(&session.listener.running));
    let template = match &conf.target {
        StreamTarget::Fixed(index) => {
            return Ok(Found::Target(Target::Group(Rc::clone(&running.stream_upstreams[*index]))));
        }
        StreamTarget::Dynamic(template) => template,
        // Its session has ended before.
        StreamTarget::Return(_) | StreamTarget::Pass(_) => return Err("no upstream".to_owned()),
    };
    let mut text = Vec::new();
    let undecided = |Undecided| "no upstream, because a value is undecided".to_owned();
    variables::render(template, session, &mut text).map_err(undecided)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let named = running.stream_upstreams.iter().find(|upstream| upstream.conf.name.eq_ignore_ascii_case(&text));
    match named {
        Some(upstream) => Ok(Found::Target(Target::Group(Rc::clone(upstream)))),
        None => parse_address(&text),
    }
}

/// `IP:PORT`, `NAME:PORT` or `unix:/path`.
fn parse_address(text: &str) -> Result<Found, String> {
    let target = |address: ServerAddress| {
        let text = address_text(&address);
        Found::Target(Target::address(address, text))
    };
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(target(ServerAddress::Unix(path.into())));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(target(ServerAddress::Inet(address)));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let shown = Escaped(text.as_bytes());
    Err(match (text, port.parse::<u16>()) {
        ("", _) => "no host in upstream \"\"".to_owned(),
        _ if text.parse::<IpAddr>().is_ok() || port.is_empty() => format!("no port in upstream \"{shown}\""),
        (_, Err(_) | Ok(0)) => format!("invalid port in upstream \"{shown}\""),
        (_, Ok(port)) => return Ok(Found::Name(host.to_owned(), port)),
    })
}

/// The addresses of a host name.
async fn look_up(session: &Session, host: &str, port: u16) -> Result<Target, (String, Status)> {
    let resolver = Arc::clone(&session.server.resolver);
    let shown = Escaped(host.as_bytes());
    if resolver.servers.is_empty() {
        return Err((format!("no resolver defined to resolve {shown}"), Status::InternalError));
    }
    let names = Arc::clone(&session.listener.running.names);
    match names.find(&resolver, host, port).await {
        Ok(addresses) => Ok(Target::addresses(addresses)),
        Err(failure) => {
            let problem = format!("{shown} could not be resolved ({}: {failure})", failure.code());
            Err((problem, Status::InternalError))
        }
    }
}

/// Works out what is the same for all servers: the key, the certificate that they are shown, the rates.
///
/// # Errors
/// A regular expression is undecided.
fn prepare(session: &mut Session, target: &Target) -> Result<(), Undecided> {
    if let Target::Group(upstream) = target {
        write_key(session, upstream)?;
    }
    let conf = Arc::clone(&session.server);
    let mut certificate = None;
    if let Some(named) = conf.proxy_tls.as_ref().and_then(|tls| tls.named.as_ref()) {
        certificate = certificates::shown(named, |template, out| variables::render(template, session, out))?;
    }
    session.certificate = certificate;
    session.upload = rate(&conf.upload_rate, session)?;
    session.download = rate(&conf.download_rate, session)?;
    Ok(())
}

/// Works out what may depend on the server that was chosen: the name in its certificate, the local address.
///
/// # Errors
/// A regular expression is undecided.
pub fn settle_for_server(session: &mut Session) -> Result<(), Undecided> {
    let conf = Arc::clone(&session.server);
    let (mut name, mut local) = (Vec::new(), Vec::new());
    if let Some(template) = conf.ssl_name.as_ref().filter(|_| conf.proxy_tls.is_some()) {
        variables::render(template, session, &mut name)?;
        strip_port(&mut name);
    }
    if let Some(bind) = &conf.bind {
        variables::render(&bind.address, session, &mut local)?;
    }
    (session.tls_name, session.bind) = (name, local);
    Ok(())
}

/// The rate that a template comes to; what is no size is no limit.
///
/// # Errors
/// A regular expression is undecided.
fn rate(template: &Template, session: &mut Session) -> Result<Rate, Undecided> {
    let mut text = Vec::new();
    variables::render(template, session, &mut text)?;
    Ok(Rate { limit: parse_size(&text).unwrap_or(0), after: 0 })
}

/// Tells a server of the client, before anything else is sent.
///
/// # Errors
/// The connection breaks, or the server does not take it in time.
async fn introduce(session: &mut Session, server: &Transport) -> Result<(), Failure> {
    let source = match session.peer {
        Peer::Inet(address) => Some(address),
        Peer::Unix => None,
    };
    let mut header = Vec::new();
    proxy_protocol::write(source, session.local(), &mut header);
    let deadline: Nanos = clock::after(session.server.timeout);
    let mut sent = 0;
    while sent < header.len() {
        let wrote = poll_fn(|cx| match server.poll_send(cx, &[IoSlice::new(&header[sent..])], false) {
            Poll::Pending if session.timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
            wrote => wrote.map_err(|error| Cause::of("send", error, Cause::Send)),
        });
        let failed = |cause| Failure { cause, doing: Doing::Sending, sent: true };
        sent += wrote.await.map_err(failed)?;
    }
    session.attempt().bytes_sent = header.len() as u64;
    Ok(())
}

/// Works out the key of algorithms that hash one.
///
/// # Errors
/// A regular expression is undecided.
fn write_key(session: &mut Session, upstream: &Upstream) -> Result<(), Undecided> {
    let members = upstream.members();
    session.key = written_key(session, &members.shared.balancing.balance)?;
    let shadows = upstream.conf.shadows.iter();
    session.shadow_keys = shadows.map(|shadow| written_key(session, &shadow.balance)).collect::<Result<_, _>>()?;
    Ok(())
}

fn written_key(session: &mut Session, balance: &Balance) -> Result<Vec<u8>, Undecided> {
    let mut key = Vec::new();
    match (balance.spec.entry().key, &balance.key) {
        (registry::Key::Any, Some(template)) => variables::render(template, session, &mut key)?,
        (registry::Key::ClientAddress, _) => binary_address(session.peer, &mut key),
        _ => {}
    }
    Ok(key)
}

impl Session {
    /// The books of its search.
    pub(super) fn books(&mut self) -> Books<'_> {
        let Session { key, shadow_keys, tried, attempts, .. } = self;
        Books { key, shadow_keys, session: b"", bound: None, tried, attempts }
    }

    /// What its sockets to servers are like.
    pub(super) fn connect_options(&self) -> ConnectOptions {
        let conf = &self.server;
        let mut options = ConnectOptions {
            keepalive: conf.socket_keepalive,
            receive_buffer: conf.socket_buffers.receive,
            send_buffer: conf.socket_buffers.send,
            ..ConnectOptions::default()
        };
        if let Some(bind) = &conf.bind {
            let local = &self.bind;
            options.bind = parse_local(local);
            options.transparent = bind.transparent;
            if options.bind.is_none() && !local.is_empty() {
                let local = Escaped(local);
                self.report(Level::Error, format_args!("invalid local address \"{local}\""));
            }
        }
        options
    }
}

/// Connects, for `proxy_connect_timeout` at most.
async fn connect(session: &mut Session, choice: &Choice) -> Result<Transport, Cause> {
    if !session.client.thread.clients.make_room(&session.listener.running) {
        return Err(Cause::Own(Shortage::Connections));
    }
    let speaks_first = session.server.proxy_protocol || session.server.proxy_tls.is_some();
    if !speaks_first {
        read_early(session).await;
    }
    let options = session.connect_options();
    let server = transport::connect(&destination(&choice.address), &options)?;
    choice.opens(server.hang_up());
    let deadline: Nanos = clock::after(session.server.connect_timeout);
    let Session { early, timer, .. } = session;
    let connected = poll_fn(|cx| {
        // A write tells as well whether the connection stands.
        let connected = match early {
            Some(buffer) => server.poll_send(cx, &[IoSlice::new(buffer.unread())], false),
            None => server.poll_connected(cx).map_ok(|()| 0),
        };
        match connected {
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
            result => result.map_err(|error| ConnectError::from(error).into()),
        }
    })
    .await;
    clock::now();
    let wrote = connected?;
    if let Some(buffer) = early {
        buffer.start += wrote;
    }
    Ok(server)
}

/// Takes what has come from the client already, if the session has not read anything and is not to read slowly, and there is
/// memory to keep it until a server is there. The end of the stream is left to the relay.
async fn read_early(session: &mut Session) {
    let conf = &session.server;
    let is_plain = session.upload.limit == 0 && session.preread.is_none() && session.early.is_none();
    let is_read = is_plain && memory::pressure() == Pressure::None;
    let Some(socket) = session.socket.stream().filter(|socket| is_read && socket.splices()) else { return };
    let limit = conf.buffer_size.min(buffer::CAPACITY);
    let mut buffer = Buffer::take();
    let read = poll_fn(|cx| Poll::Ready(socket.poll_recv(cx, &mut buffer, limit))).await;
    match read {
        Poll::Ready(Ok(1..)) => session.early = Some(buffer),
        // The kernel tells of it once.
        Poll::Ready(Err(_)) => session.is_broken = true,
        Poll::Ready(Ok(0)) | Poll::Pending => {}
    }
}
