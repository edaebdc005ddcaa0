//! The demo's own load: an open loop of GET requests from several client addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Clients with an address each, so that ip_hash has something to hash.
const CLIENTS: u8 = 64;

/// Addresses asked for, so that hash $request_uri has something to hash.
const PAGES: u32 = 200;

/// A request that is not answered by then has failed.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Requests on their way at once; past this the load waits, so that a stuck balancer does not fill the memory.
const IN_FLIGHT_MAX: u64 = 500;

/// What the clients have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Answers with a status below 500.
    pub(super) answered: u64,
    /// No answer in time, no connection, or a status of 500 or above.
    pub(super) failed: u64,
}

#[derive(Default)]
struct Counters {
    sent: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
}

/// A running load. Dropping it ends it.
pub(super) struct Load {
    counters: Arc<Counters>,
    task: Option<JoinHandle<()>>,
}

impl Load {
    /// Sends `rate` requests a second to `address` at Poisson times; 0 sends none. Must be called inside a runtime.
    pub(super) fn start(address: SocketAddr, rate: u32) -> Self {
        let counters = Arc::<Counters>::default();
        let task = (rate > 0).then(|| tokio::spawn(send(address, f64::from(rate), Arc::clone(&counters))));
        Self { counters, task }
    }

    /// What the clients have seen so far; none for a load that sends nothing.
    pub(super) fn counts(&self) -> Option<Counts> {
        let counters = &self.counters;
        let counts = Counts { answered: counters.answered.load(Relaxed), failed: counters.failed.load(Relaxed) };
        self.task.as_ref().map(|_| counts)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// A client whose connections come from an address of its own, where the system has a whole loopback network.
fn client(index: u8) -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    if cfg!(target_os = "linux") {
        connector.set_local_address(Some(IpAddr::V4(Ipv4Addr::new(127, 0, 1 + index, 1))));
    }
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn send(address: SocketAddr, rate: f64, counters: Arc<Counters>) {
    let clients: Vec<HttpClient> = (0..CLIENTS).map(client).collect();
    let mut rng = SmallRng::seed_from_u64(rand::random());
    let mut requests = tokio::task::JoinSet::new();
    let mut next = Instant::now();
    loop {
        let gap: f64 = Exp1.sample(&mut rng);
        next += Duration::from_secs_f64(gap / rate);
        tokio::time::sleep_until(next).await;
        while requests.try_join_next().is_some() {}
        let ended = counters.answered.load(Relaxed) + counters.failed.load(Relaxed);
        if counters.sent.load(Relaxed) - ended >= IN_FLIGHT_MAX {
            continue;
        }
        let client = clients[rng.random_range(0..clients.len())].clone();
        let Ok(uri) = format!("http://{address}/page/{}", rng.random_range(0..PAGES)).parse() else { return };
        counters.sent.fetch_add(1, Relaxed);
        let counters = Arc::clone(&counters);
        requests.spawn(async move {
            let good = matches!(tokio::time::timeout(ANSWER_MAX, get(client, uri)).await, Ok(true));
            let counter = if good { &counters.answered } else { &counters.failed };
            counter.fetch_add(1, Relaxed);
        });
    }
}

/// Whether a whole answer came and does not blame a server.
async fn get(client: HttpClient, uri: hyper::Uri) -> bool {
    match client.get(uri).await {
        Ok(response) if !response.status().is_server_error() => response.into_body().collect().await.is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[tokio::test]
    async fn it_sends_at_its_rate_from_many_addresses_and_ends() {
        let handle = Target { listen: ([127, 0, 0, 1], 0).into(), ..Target::default() }.spawn().unwrap();
        let load = Load::start(handle.address(), 400);
        let begin = Instant::now();
        let counts = loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let counts = load.counts().unwrap();
            if counts.answered >= 800 {
                break counts;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{counts:?}");
        };
        drop(load);
        // Two seconds expected, with a standard deviation of 0.07; a busy machine may need longer.
        assert!(begin.elapsed() > Duration::from_millis(1600), "{counts:?} after {:?}", begin.elapsed());
        assert_eq!(counts.failed, 0);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let after = handle.stop();
        assert!(after.requests + after.aborted <= counts.answered + counts.failed + 50, "{after:?}");
        assert!(after.connections >= 40, "{after:?}");
    }

    #[tokio::test]
    async fn failures_are_counted_and_no_load_has_no_counts() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let load = Load::start(closed, 200);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let counts = load.counts().unwrap();
        assert!(counts.failed > 20 && counts.answered == 0, "{counts:?}");
        assert_eq!(Load::start(closed, 0).counts(), None);
    }
}
