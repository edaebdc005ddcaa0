//! `tunnel_pass`: a CONNECT gets a connection to a server, and what is sent on it is passed on.

use std::fmt::Arguments;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use balanza_balancing::Outcome;
use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, Location, ProxySettings, ServerAddress, TunnelTarget};
use balanza_message::{Method, Span};
use balanza_net::buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::shortage::ConnectError;

use super::client_watch::{ClientWatch, Over};
use super::forward::{begin_session, books, chosen, evaluate, fail, finish_attempt};
use super::line::connect;
use super::target::{look_up, settle_for_server};
use super::tunnel::{self, relay_within};
use crate::exchange::Exchange;
use crate::paths::as_path;
use crate::response::{head, send};
use crate::servers::failure::{Cause, Failure};
use crate::servers::pool::ServerConnection;
use crate::servers::search::{Books, Choice, Limits, Seeker, Target, search};
use crate::step::{self, Step};
use crate::undecided::Undecided;
use crate::variables;

/// What clients are told when the connection to the server stands.
const ESTABLISHED: &[u8] = b"Connection Established";

/// Opens the tunnel that a CONNECT asks for, and serves it until its end.
pub async fn serve(x: &mut Exchange, location: &Arc<Location>, target: &TunnelTarget) -> Step {
    if x.method() != Method::Connect {
        return Step::Error(405);
    }
    let proxy: &ProxySettings = &location.settings.proxy;
    let target = match find_target(x, target).await {
        Ok(target) => target,
        Err(step) => return step,
    };
    x.upstream.tried.clear();
    if let Err(undecided) = evaluate(x, proxy, &target) {
        return undecided.into();
    }
    x.upstream.asking = true;
    let limits = Limits { tries: proxy.next_upstream_tries, timeout: clock::nanos(proxy.next_upstream_timeout) };
    let first = x.upstream.attempts.len();
    let mut request = Request { x, location, first, is_denied: false };
    let step = match search(&mut request, &target, &limits).await {
        Ok((choice, connection)) => pass(x, proxy, choice, connection).await,
        Err(unreached) => fail(x, first, unreached),
    };
    x.upstream.asking = false;
    step
}

/// Where the tunnel leads.
///
/// # Errors
/// The response instead.
async fn find_target(x: &mut Exchange, target: &TunnelTarget) -> Result<Target, Step> {
    let running = Rc::clone(x.running());
    let template = match target {
        TunnelTarget::Fixed(upstream) => return Ok(Target::Group(Rc::clone(&running.upstreams[*upstream]))),
        TunnelTarget::Dynamic(template) => template,
    };
    let mut text = Vec::new();
    variables::render(template, x, &mut text)?;
    if let Some(path) = text.strip_prefix(b"unix:").filter(|path| !path.is_empty()) {
        let path = as_path(path).to_path_buf();
        let shown = format!("unix:{}", path.display()).into();
        return Ok(Target::address(ServerAddress::Unix(path), shown));
    }
    let problem = match std::str::from_utf8(&text) {
        Ok("") => "no host",
        Ok(text) => {
            let named = running.upstreams.iter().find(|upstream| upstream.conf.name.eq_ignore_ascii_case(text));
            if let Some(group) = named {
                return Ok(Target::Group(Rc::clone(group)));
            }
            match text.parse::<SocketAddr>() {
                Ok(address) if address.port() != 0 => {
                    return Ok(Target::address(ServerAddress::Inet(address), address.to_string().into()));
                }
                Ok(_) => "invalid port",
                Err(_) if text.parse::<IpAddr>().is_ok() || !text.contains(':') || text.ends_with(']') => "no port",
                Err(_) if text.contains(['/', '?', '[', ' ']) => "invalid host",
                Err(_) => "",
            }
        }
        Err(_) => "invalid host",
    };
    if !problem.is_empty() {
        x.report(Level::Error, format_args!("{problem} in upstream \"{}\"", Escaped(&text)));
        return Err(Step::Error(500));
    }
    x.upstream.target.host = text;
    Box::pin(look_up(x)).await
}

/// Tells the client that the tunnel is open, and relays.
async fn pass(x: &mut Exchange, proxy: &ProxySettings, mut choice: Choice, connection: ServerConnection) -> Step {
    begin_session(x, &mut choice);
    let response = &mut x.upstream.response;
    response.clear();
    response.text.extend_from_slice(ESTABLISHED);
    (response.status, response.reason) = (200, Span::new(0, ESTABLISHED.len()));
    (x.upstream.answered, x.upstream.is_tunnel) = (true, true);
    let reason = x.upstream.response.reason;
    head::begin_with(x, 200, Some(reason), true, true);
    let doing = "proxying upgraded connection";
    if let Err(undecided) = head::finish(x) {
        x.upstream.is_tunnel = false;
        finish_attempt(x, &mut choice.lease, Outcome::Success, doing);
        return undecided.into();
    }
    let sent = send::send_head(x, b"").await;
    if sent.is_ok() {
        let limits = tunnel::Limits {
            idle: proxy.read_timeout,
            send: proxy.send_timeout,
            piece: proxy.buffer_size.unwrap_or(buffer::CAPACITY).min(buffer::CAPACITY),
        };
        let from_client = x.body.input.take();
        let (down, up) = relay_within(x, &connection, from_client, None, &limits).await;
        x.sent.bytes += down;
        x.sent.body_bytes += down;
        x.sent.finish(true);
        // Nothing else was to come.
        x.client_keeps_alive = false;
        let attempt = x.upstream.attempt();
        (attempt.bytes_received, attempt.response_length, attempt.bytes_sent) = (down, down, up);
    }
    step::note_send_error(x, sent);
    finish_attempt(x, &mut choice.lease, Outcome::Success, doing);
    Step::Sent
}

/// A CONNECT that looks for a server.
struct Request<'a> {
    x: &'a mut Exchange,
    location: &'a Arc<Location>,
    /// How many attempts there were before an internal redirect.
    first: usize,
    /// The server that was chosen may not be asked.
    is_denied: bool,
}

impl Seeker for Request<'_> {
    type Reached = ServerConnection;

    fn books(&mut self) -> Books<'_> {
        books(self.x)
    }

    fn report(&self, level: Level, message: Arguments<'_>) {
        self.x.report(level, message);
    }

    fn chosen(&mut self, choice: &Choice) -> Result<(), Undecided> {
        chosen(self.x, self.first, choice)?;
        let proxy = &self.location.settings.proxy;
        if proxy.per_server.is_any() {
            self.is_denied = !settle_for_server(self.x, proxy)?;
        }
        Ok(())
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>, deadline: Nanos) -> Poll<bool> {
        if self.x.downstream.timer.poll_expired(cx, deadline) {
            return Poll::Ready(true);
        }
        self.x.downstream.poll_peer_closed(cx).map(|()| false)
    }

    async fn attempt(&mut self, choice: &mut Choice) -> Result<ServerConnection, Failure> {
        if self.is_denied {
            return Err(Failure::connecting(Cause::Denied));
        }
        let (x, proxy) = (&mut *self.x, &self.location.settings.proxy);
        let socket = connect(x, proxy, choice).map_err(|error| Failure::connecting(error.into()))?;
        let deadline = clock::after(proxy.connect_timeout);
        let mut client = ClientWatch::new();
        let connected = poll_fn(|cx| {
            if let Poll::Ready(connected) = socket.poll_connected(cx) {
                return Poll::Ready(connected.map_err(|error| ConnectError::from(error).into()));
            }
            Poll::Ready(Err(match ready!(client.poll(cx, &mut x.downstream, deadline, true)) {
                Over::Late => Cause::TimedOut,
                Over::ClientGone => Cause::ClientGone,
            }))
        });
        connected.await.map_err(Failure::connecting)?;
        let now = clock::now();
        let attempt = x.upstream.attempt();
        attempt.status = 200;
        // The connection is the answer.
        (attempt.connect_time, attempt.header_time) = (Some(now - attempt.started), Some(now - attempt.started));
        if let Some(lease) = &mut choice.lease {
            lease.alive(now);
            lease.header(now);
        }
        Ok(ServerConnection { socket, requests: 1, opened: now, private: None })
    }

    fn failed(&mut self, failure: &Failure) -> bool {
        let next = &self.location.settings.proxy.next_upstream;
        let allowed = match &failure.cause {
            Cause::ClientGone => return false,
            cause if cause.is_own() => false,
            Cause::TimedOut => next.timeout,
            Cause::Denied => next.denied,
            _ => next.error,
        };
        self.x.upstream.attempt().status = failure.status();
        allowed && !next.off
    }
}
