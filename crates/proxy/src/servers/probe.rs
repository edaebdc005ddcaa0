//! Probes for algorithms that ask servers for their state (`balance prequal`), independent of the requests.
//!
//! With `probe=/uri` a server gets `GET /uri` on a separate connection, kept for the next probe. It answers with status
//! 200 and a text of words: `in_flight=N`, its requests in flight, and `latency_us=N` (or `latency_ms=N`), its current
//! latency; without a latency the time of the probe counts.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use balanza_balancing::Member;
use balanza_config::model::{self, Level, ServerAddress, UpstreamKeepalive};
use balanza_http1::{Body, Parsed, ResponseHead};
use balanza_message::Method;
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::event_loop;
use balanza_net::shortage::describe;
use balanza_net::transport::{self, ConnectOptions};

use super::address::destination;
use super::group::Members;
use super::membership::{Present, ServerId};
use super::pool::{IdlePool, ServerConnection};
use crate::log::error::ErrorWriter;

/// How long a probe may take: an older answer would not be worth much.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How many probes may be under way in one worker for one upstream.
const UNDER_WAY_MAX: u32 = 1000;

/// Idle connections for probes, of one worker to one upstream.
const KEEPALIVE: UpstreamKeepalive = UpstreamKeepalive {
    connections: 256,
    local: false,
    requests: u64::MAX,
    time: Duration::from_secs(3600),
    timeout: Duration::from_secs(10),
};

/// Asks the servers of one upstream.
pub struct Prober {
    /// What servers are sent.
    request: Vec<u8>,
    idle: Rc<RefCell<IdlePool>>,
    under_way: Cell<u32>,
    /// Servers to be asked now.
    asked: RefCell<Vec<Member>>,
    /// The upstream's name.
    upstream: String,
    /// A failure was logged and no probe has been answered since.
    failure_logged: Cell<bool>,
    log: ErrorWriter,
}

/// What a server says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    in_flight: u32,
    latency: Option<Nanos>,
}

/// A probe that is counted.
struct UnderWay(Rc<Prober>);

impl UnderWay {
    fn new(prober: &Rc<Prober>) -> UnderWay {
        prober.under_way.set(prober.under_way.get() + 1);
        UnderWay(Rc::clone(prober))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

impl Prober {
    /// That of an upstream whose algorithm wants probes.
    pub fn of(conf: &model::Upstream, members: &Members, log: &ErrorWriter) -> Option<Prober> {
        let uri = members.shared.balancing.balance.spec.text("probe");
        let host = if conf.implicit { "localhost" } else { &conf.name };
        let request = format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: balanza-probe\r\n\r\n");
        members.driver.borrow().wants_probes().then(|| Prober {
            request: request.into_bytes(),
            idle: Rc::new(RefCell::new(IdlePool::new(KEEPALIVE, &members.shared.present))),
            under_way: Cell::new(0),
            asked: RefCell::default(),
            upstream: conf.name.clone(),
            failure_logged: Cell::new(false),
            log: log.clone(),
        })
    }

    /// Sends the probes that the algorithm wants after a pick.
    pub fn send(self: &Rc<Self>, members: &Rc<Members>, now: Nanos) {
        let mut asked = self.asked.borrow_mut();
        members.driver.borrow_mut().take_probes(now, &mut asked);
        for member in asked.iter().copied() {
            if self.under_way.get() < UNDER_WAY_MAX {
                let under_way = UnderWay::new(self);
                let members = Rc::clone(members);
                event_loop::spawn(async move { under_way.0.ask(members, member).await });
            }
        }
    }

    async fn ask(&self, members: Rc<Members>, member: Member) {
        let begun = clock::now();
        let address = &members.shared.servers[member.0 as usize].address;
        let answer = tokio::time::timeout(TIMEOUT, self.exchange(address, members.id(member), begun)).await;
        let now = clock::now();
        match answer.unwrap_or_else(|_| Err("no answer in time".into())) {
            Ok(answer) => {
                self.failure_logged.set(false);
                let latency = answer.latency.unwrap_or(now - begun);
                members.driver.borrow_mut().probed(now, member, answer.in_flight, latency);
            }
            Err(trouble) if !self.failure_logged.replace(true) => {
                let (server, name) = (&members.addresses[member.0 as usize], &self.upstream);
                self.log.write(Level::Warn, format_args!("probe of {server} in upstream \"{name}\": {trouble}"));
            }
            Err(_) => {}
        }
    }

    async fn exchange(&self, address: &ServerAddress, server: ServerId, now: Nanos) -> Result<Answer, String> {
        let kept = self.idle.borrow_mut().take(server, 0, now);
        let is_kept = kept.is_some();
        let connection = match kept {
            Some(connection) => connection,
            None => connect(address, now).map_err(|error| describe(&error))?,
        };
        match self.talk(connection, server).await {
            // The server closed it meanwhile.
            Err(_) if is_kept => self.talk(connect(address, now).map_err(|error| describe(&error))?, server).await,
            answered => answered,
        }
    }

    async fn talk(&self, mut connection: Box<ServerConnection>, server: ServerId) -> Result<Answer, String> {
        let mut sent = 0;
        let socket = &connection.socket;
        while sent < self.request.len() {
            let slices = [IoSlice::new(&self.request[sent..])];
            sent += poll_fn(|cx| socket.poll_send(cx, &slices, false)).await.map_err(|error| describe(&error))?;
        }
        let mut buffer = Buffer::take();
        let mut head = ResponseHead::default();
        loop {
            if buffer.space().is_empty() {
                return Err("the answer is too long".into());
            }
            let read = poll_fn(|cx| socket.poll_recv(cx, &mut buffer, usize::MAX)).await;
            let read = read.map_err(|error| describe(&error))?;
            if read == 0 {
                return Err("the connection was closed".into());
            }
            let bytes = buffer.unread();
            let length = match head.parse(bytes, Method::Get, usize::MAX) {
                Ok(Parsed::Incomplete) => continue,
                Ok(Parsed::Complete(length)) => length,
                Err(error) => return Err(error.reason.into()),
            };
            let body = match head.body {
                _ if head.status != 200 => return Err(format!("status {}", head.status)),
                Body::Length(body) if bytes.len() - length < body as usize => continue,
                Body::Length(body) => &bytes[length..length + body as usize],
                _ => return Err("the answer has no Content-Length".into()),
            };
            let answer = parse(body).ok_or("the answer has no \"in_flight=\"")?;
            if head.keep_alive && length + body.len() == bytes.len() {
                connection.requests += 1;
                IdlePool::put(&self.idle, server, 0, connection, clock::recent());
            }
            return Ok(answer);
        }
    }

    /// Closes connections that were idle for too long or were closed by their server.
    pub fn sweep(&self, now: Nanos) {
        self.idle.borrow_mut().sweep(now);
    }

    /// Closes the connections to all but these servers.
    pub fn keep_only(&self, servers: &Present) {
        self.idle.borrow_mut().keep_only(servers);
    }

    /// Closes all of them, for good.
    pub fn close(&self) {
        self.idle.borrow_mut().close();
    }
}

fn connect(address: &ServerAddress, now: Nanos) -> io::Result<Box<ServerConnection>> {
    let socket = transport::connect(&destination(address), &ConnectOptions::default())?;
    Ok(Box::new(ServerConnection { socket, requests: 0, opened: now, private: None }))
}

/// Reads a server's answer.
fn parse(body: &[u8]) -> Option<Answer> {
    let (mut in_flight, mut latency) = (None, None);
    for word in body.split(u8::is_ascii_whitespace) {
        let value = |name: &str| word.strip_prefix(name.as_bytes()).and_then(balanza_message::decimal);
        if let Some(number) = value("in_flight=") {
            in_flight = Some(u32::try_from(number).unwrap_or(u32::MAX));
        } else if let Some(time) = value("latency_us=") {
            latency = Some(time.saturating_mul(1000));
        } else if let Some(time) = value("latency_ms=") {
            latency = Some(time.saturating_mul(1_000_000));
        }
    }
    Some(Answer { in_flight: in_flight?, latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let answer = |in_flight, latency| Some(Answer { in_flight, latency });
        assert_eq!(parse(b"in_flight=3 latency_us=1200\n"), answer(3, Some(1_200_000)));
        assert_eq!(parse(b"latency_ms=5\r\nin_flight=0\r\n"), answer(0, Some(5_000_000)));
        assert_eq!(parse(b"in_flight=7"), answer(7, None));
        assert_eq!(parse(b"in_flight=7 latency_us=fast version=3"), answer(7, None));
        assert_eq!(parse(b"latency_us=1200"), None);
        assert_eq!(parse(b""), None);
    }
}
