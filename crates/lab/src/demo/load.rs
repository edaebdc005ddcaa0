//! The demo's own load: an open loop of GET requests from several client addresses.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::header::HeaderMap;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::config::REASON_FIELD;
use super::connector::{Connector, Tls};

/// Clients with an address each, so that ip_hash has something to hash.
const CLIENTS: u8 = 64;

/// Addresses asked for, so that hash $request_uri has something to hash.
const PAGES: u32 = 200;

/// With TLS, one request in so many is sent on a new connection, so that there are handshakes to see.
const NEW_CONNECTION: u32 = 8;

/// A request that is not answered by then has failed.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Requests in flight at once. Further requests are not sent, so that a stuck balancer does not fill the memory.
const IN_FLIGHT_MAX: u64 = 500;

/// Rates and latencies are over this long.
pub(super) const WINDOW: Duration = Duration::from_secs(5);

/// A load that is later than this, because the machine is busy, skips what it missed.
const LATE_MAX: Duration = Duration::from_secs(1);

/// What the clients have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Answers with a status below 500.
    pub(super) answered: u64,
    /// No answer in time, no connection, or a status of 500 or above.
    pub(super) failed: u64,
    /// Requests that were due and not sent, since too many were in flight.
    pub(super) held: u64,
}

/// One answer within the [`WINDOW`].
#[derive(Clone, Copy, Debug)]
struct Answer {
    at: Instant,
    /// Index of the server that gave it.
    server: usize,
    latency: Duration,
}

/// The answers of the last seconds.
#[derive(Default)]
struct Recent {
    answers: VecDeque<Answer>,
    /// Why the balancer chose each server, as it said last.
    reasons: Vec<String>,
}

#[derive(Default)]
struct Shared {
    rate: AtomicU32,
    rate_changed: Notify,
    sent: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    held: AtomicU64,
    recent: Mutex<Recent>,
}

impl Shared {
    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running load. Dropping it ends it.
pub(super) struct Load {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    started: Instant,
    tls: Option<Tls>,
}

impl Load {
    /// Sends `rate` requests a second to `address` at Poisson times; 0 sends none. Must be called inside a runtime.
    pub(super) fn start(address: SocketAddr, rate: u32, tls: Option<Tls>) -> Self {
        let shared = Arc::<Shared>::default();
        shared.rate.store(rate, Relaxed);
        let task = tokio::spawn(send(address, Arc::clone(&shared), tls.clone()));
        Self { shared, task, started: Instant::now(), tls }
    }

    /// Requests a second that it sends.
    pub(super) fn rate(&self) -> u32 {
        self.shared.rate.load(Relaxed)
    }

    /// Sends so many requests a second from now on.
    pub(super) fn set_rate(&self, rate: u32) {
        self.shared.rate.store(rate, Relaxed);
        self.shared.rate_changed.notify_one();
    }

    /// What the clients have seen so far.
    pub(super) fn counts(&self) -> Counts {
        let Shared { answered, failed, held, .. } = &*self.shared;
        Counts { answered: answered.load(Relaxed), failed: failed.load(Relaxed), held: held.load(Relaxed) }
    }

    /// The answers of each of `servers` servers within the [`WINDOW`], and of all together as the last one.
    pub(super) fn latencies(&self, servers: usize) -> Vec<Latencies> {
        let now = Instant::now();
        let mut recent = self.shared.recent();
        while recent.answers.front().is_some_and(|answer| now - answer.at > WINDOW) {
            recent.answers.pop_front();
        }
        let seconds = (now - self.started).min(WINDOW).as_secs_f64().max(0.1);
        let mut sorted = vec![Vec::new(); servers + 1];
        for answer in &recent.answers {
            sorted[answer.server.min(servers)].push(answer.latency);
        }
        let everything = sorted.concat();
        sorted[servers] = everything;
        sorted.into_iter().map(|latencies| Latencies::new(latencies, seconds)).collect()
    }

    /// What TLS has negotiated, and its handshakes; none without TLS, or before the first of them.
    pub(super) fn handshakes(&self) -> Option<String> {
        self.tls.as_ref()?.summary(self.started.elapsed())
    }

    /// Why the balancer chose this server, as it said last; empty if it has not.
    pub(super) fn reason(&self, server: usize) -> String {
        self.shared.recent().reasons.get(server).cloned().unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Latencies within the [`WINDOW`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latencies {
    /// Answers a second.
    pub(super) rate: f64,
    /// None without answers.
    pub(super) p50: Option<Duration>,
    pub(super) p99: Option<Duration>,
}

impl Latencies {
    fn new(mut latencies: Vec<Duration>, seconds: f64) -> Self {
        latencies.sort_unstable();
        let quantile = |q: f64| {
            let rank = (latencies.len() as f64 * q).ceil() as usize;
            latencies.get(rank.max(1) - 1).copied()
        };
        Self { rate: latencies.len() as f64 / seconds, p50: quantile(0.5), p99: quantile(0.99) }
    }
}

type HttpClient = Client<Connector, Empty<Bytes>>;

async fn send(address: SocketAddr, shared: Arc<Shared>, tls: Option<Tls>) {
    let client =
        |index: u8| -> HttpClient { Client::builder(TokioExecutor::new()).build(Connector::new(index, tls.clone())) };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut clients: Vec<HttpClient> = (0..CLIENTS).map(client).collect();
    let mut rng = SmallRng::seed_from_u64(rand::random());
    let mut requests = JoinSet::new();
    let mut next = Instant::now();
    loop {
        let rate = shared.rate.load(Relaxed);
        if rate == 0 {
            shared.rate_changed.notified().await;
            next = Instant::now();
            continue;
        }
        let gap: f64 = Exp1.sample(&mut rng);
        next += Duration::from_secs_f64(gap / f64::from(rate));
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = shared.rate_changed.notified() => {
                next = Instant::now();
                continue;
            }
        }
        while requests.try_join_next().is_some() {}
        let ended = shared.answered.load(Relaxed) + shared.failed.load(Relaxed);
        if shared.sent.load(Relaxed) - ended >= IN_FLIGHT_MAX {
            shared.held.fetch_add(1, Relaxed);
            continue;
        }
        let late = Instant::now() - next;
        if late > LATE_MAX {
            next += late;
        }
        let index = rng.random_range(0..CLIENTS);
        if tls.is_some() && rng.random_ratio(1, NEW_CONNECTION) {
            clients[usize::from(index)] = client(index);
        }
        let client = clients[usize::from(index)].clone();
        let Ok(uri) = format!("{scheme}://{address}/page/{}", rng.random_range(0..PAGES)).parse() else { return };
        shared.sent.fetch_add(1, Relaxed);
        let shared = Arc::clone(&shared);
        requests.spawn(async move {
            let sent = Instant::now();
            match tokio::time::timeout(ANSWER_MAX, get(client, uri)).await {
                Ok(Some(headers)) => {
                    shared.answered.fetch_add(1, Relaxed);
                    note(&mut shared.recent(), sent, &headers);
                }
                _ => _ = shared.failed.fetch_add(1, Relaxed),
            }
        });
    }
}

/// Keeps an answer and the reason that came with it.
fn note(recent: &mut Recent, sent: Instant, headers: &HeaderMap) {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = field("x-server").and_then(|name| name.strip_prefix('s')?.parse::<usize>().ok());
    let Some(server) = number.and_then(|number| number.checked_sub(1)) else { return };
    let at = Instant::now();
    recent.answers.push_back(Answer { at, server, latency: at - sent });
    if let Some(reason) = field(REASON_FIELD) {
        if recent.reasons.len() <= server {
            recent.reasons.resize(server + 1, String::new());
        }
        reason.clone_into(&mut recent.reasons[server]);
    }
}

/// The fields of a whole answer that does not blame a server.
async fn get(client: HttpClient, uri: hyper::Uri) -> Option<HeaderMap> {
    let response = client.get(uri).await.ok()?;
    if response.status().is_server_error() {
        return None;
    }
    let (head, body) = response.into_parts();
    body.collect().await.ok().map(|_| head.headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[tokio::test]
    async fn it_sends_at_its_rate_from_many_addresses_and_ends() {
        let target = Target { name: "s2".into(), listen: ([127, 0, 0, 1], 0).into(), ..Target::default() };
        let handle = target.spawn().unwrap();
        let begin = Instant::now();
        let load = Load::start(handle.address(), 400, None);
        let counts = loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let counts = load.counts();
            if counts.answered >= 800 {
                break counts;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{counts:?}");
        };
        let latencies = load.latencies(2);
        load.set_rate(0);
        // Two seconds expected, with a standard deviation of 0.07; a busy machine may need longer.
        assert!(begin.elapsed() > Duration::from_millis(1600), "{counts:?} after {:?}", begin.elapsed());
        assert_eq!(counts.failed, 0);
        assert_eq!(latencies[0], Latencies::default(), "no answer came from s1");
        assert!(latencies[1].rate > 0.0 && latencies[1].p50 <= latencies[1].p99, "{latencies:?}");
        assert_eq!(latencies[2], latencies[1], "all are of s2");
        drop(load);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let after = handle.stop();
        assert!(after.requests + after.aborted <= counts.answered + counts.failed + IN_FLIGHT_MAX, "{after:?}");
        assert!(after.connections >= 40, "{after:?}");
    }

    #[tokio::test]
    async fn failures_are_counted_and_a_load_of_0_sends_nothing() {
        // Bound, but not listening: it refuses, and no other program gets the port.
        let bound = tokio::net::TcpSocket::new_v4().unwrap();
        bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let closed = bound.local_addr().unwrap();
        let load = Load::start(closed, 200, None);
        let begin = Instant::now();
        while load.counts().failed < 20 {
            assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", load.counts());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(load.counts().answered, 0);
        let idle = Load::start(closed, 0, None);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(idle.counts(), Counts::default());
        idle.set_rate(200);
        while idle.counts().failed == 0 {
            assert!(begin.elapsed() < Duration::from_secs(30), "the rate was raised");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[test]
    fn quantiles_are_of_the_window() {
        let milliseconds = |n: u64| Duration::from_millis(n);
        let found = Latencies::new((1..=200).rev().map(milliseconds).collect(), 5.0);
        assert_eq!(found, Latencies { rate: 40.0, p50: Some(milliseconds(100)), p99: Some(milliseconds(198)) });
        assert_eq!(Latencies::new(vec![], 5.0), Latencies::default());
    }
}
