//! One target: its settings, its threads and its answers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::stats::{Counters, Stats, Visit};
use super::workload::{Job, Workload};
use super::{LOAD_PATH, STATS_PATH, socket};
use crate::units::count;

/// The settings of one workload server.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What the answers carry in `X-Server` and in their body, visible ASCII; empty = the address.
    pub name: String,
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// What a request costs.
    pub workload: Workload,
    /// Divides delays and CPU work: 0.5 = half as fast. Above 0.
    pub speed: f64,
    /// Requests worked on at once; others wait in the order of their arrival.
    pub concurrency: Option<usize>,
    /// Connections accepted at once; others wait in the listen queue.
    pub connections: Option<usize>,
    /// Length of the listen queue.
    pub backlog: u16,
    /// Threads that read and answer, and as many for CPU work; above 0.
    pub threads: usize,
    /// Bytes of an answer's body; none = the name and a newline.
    pub body_size: Option<usize>,
    /// Status of the answers, 200 to 599.
    pub status: u16,
    /// Whether a connection takes more than one request.
    pub keep_alive: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            name: String::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 9001)),
            workload: Workload::Fixed,
            speed: 1.0,
            concurrency: None,
            connections: None,
            backlog: 511,
            threads: 1,
            body_size: None,
            status: 200,
            keep_alive: true,
            seed: 0,
        }
    }
}

impl Target {
    /// Starts the target on threads of its own; it listens when this returns.
    ///
    /// Errors: the address cannot be bound (in use, not of this machine, not allowed); a setting out of its range.
    pub fn spawn(self) -> anyhow::Result<Handle> {
        self.check()?;
        let listener = socket::listen(self.listen, self.backlog).map_err(|error| explain(self.listen, error))?;
        let address = listener.local_addr()?;
        let threads = self.threads;
        let server = Arc::new(Server::new(self, address)?);

        let mut builder = match threads {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        if threads > 1 {
            builder.worker_threads(threads);
        }
        let runtime =
            builder.max_blocking_threads(threads).thread_name("target").enable_all().build().context("no runtime")?;

        let (stop, stopped) = oneshot::channel::<Infallible>();
        let serving = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("target".into()).spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(listener, serving) => {}
                    _ = stopped => {}
                }
            });
            // Computations that were begun end by themselves; they are short.
            runtime.shutdown_timeout(Duration::from_secs(2));
        })?;
        Ok(Handle { address, server, running: Some((stop, thread)) })
    }

    /// Refuses what would fail or hang later, at a request.
    fn check(&self) -> anyhow::Result<()> {
        let positive = |number: f64| number.is_finite() && number > 0.0;
        ensure!(positive(self.speed), "the speed must be above 0, not {}", self.speed);
        ensure!(self.threads > 0 && self.concurrency != Some(0) && self.connections != Some(0), "a limit of 0");
        ensure!((200..=599).contains(&self.status), "the status must be from 200 to 599, not {}", self.status);
        match self.workload {
            Workload::Poisson { mean, .. } => ensure!(positive(mean), "the mean must be above 0, not {mean}"),
            Workload::Matrix { size } => ensure!(size > 0, "a matrix needs at least one row"),
            Workload::Fixed | Workload::Delay(_) | Workload::Loop { .. } => {}
        }
        Ok(())
    }

    /// The settings in one line, for people.
    pub(super) fn describe(&self) -> String {
        let mut text = self.workload.to_string();
        if self.speed != 1.0 {
            text += &format!(" at speed {}", self.speed);
        }
        match self.concurrency {
            Some(places) => text += &format!(", {} at once", count(places as u64, "request")),
            None => text += ", any number at once",
        }
        if let Some(connections) = self.connections {
            text += &format!(", accepts {}", count(connections as u64, "connection"));
        }
        text + &format!(", backlog {}", self.backlog)
    }
}

/// A bind error in words that say what to do.
fn explain(address: SocketAddr, error: io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use: stop what listens there, or choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address",
        io::ErrorKind::PermissionDenied => "not allowed: ports below 1024 need root",
        _ => return anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    };
    anyhow::anyhow!("cannot listen on {address}: {hint}")
}

/// A running target. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    server: Arc<Server>,
    running: Option<(oneshot::Sender<Infallible>, JoinHandle<()>)>,
}

impl Handle {
    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Its counters now.
    pub fn stats(&self) -> Stats {
        self.server.counters.snapshot(&self.server.name)
    }

    /// Closes its socket and its connections, waits for its threads to end, and returns the last counters.
    pub fn stop(mut self) -> Stats {
        self.end();
        self.stats()
    }

    fn end(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            // A panic of the thread was printed when it happened; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the connections of a target share.
#[derive(Debug)]
struct Server {
    name: String,
    name_header: HeaderValue,
    body: Bytes,
    status: StatusCode,
    keep_alive: bool,
    workload: Workload,
    speed: f64,
    places: Option<Arc<Semaphore>>,
    connections: Option<Arc<Semaphore>>,
    rng: Mutex<SmallRng>,
    counters: Arc<Counters>,
}

impl Server {
    fn new(target: Target, address: SocketAddr) -> anyhow::Result<Self> {
        let name = if target.name.is_empty() { address.to_string() } else { target.name };
        let semaphore = |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Ok(Self {
            name_header: HeaderValue::from_str(&name).context("the name cannot stand in a header")?,
            body: body(&name, target.body_size),
            name,
            status: StatusCode::from_u16(target.status)?,
            keep_alive: target.keep_alive,
            workload: target.workload,
            speed: target.speed,
            places: target.concurrency.map(semaphore),
            connections: target.connections.map(semaphore),
            rng: Mutex::new(SmallRng::seed_from_u64(target.seed)),
            counters: Arc::default(),
        })
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        match request.uri().path() {
            STATS_PATH => return Ok(self.stats()),
            LOAD_PATH => return Ok(self.tell("text/plain", self.counters.load().into())),
            _ => {}
        }
        let mut body = request.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }

        let mut visit = Visit::arrive(&self.counters);
        let place = self.place(&mut visit).await;
        visit.work();
        // Drawn when the work begins, so that a seed gives the same delays in the order of service.
        let job = self.workload.draw(self.speed, &mut self.rng.lock().unwrap_or_else(PoisonError::into_inner));
        match job {
            Job::Nothing => visit.finish(),
            Job::Sleep(delay) => {
                tokio::time::sleep(delay).await;
                visit.finish();
            }
            Job::Compute(computation) => {
                // Place and visit go along: when the client leaves, the work goes on and keeps its place until it ends.
                let work = move || {
                    std::hint::black_box(computation.run());
                    (visit, place)
                };
                if let Ok((visit, _place)) = tokio::task::spawn_blocking(work).await {
                    visit.finish();
                }
            }
        }

        let mut response = Response::new(Full::new(self.body.clone()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        response.headers_mut().insert(HeaderName::from_static("x-server"), self.name_header.clone());
        Ok(response)
    }

    /// Waits for one of the `concurrency` places, first come, first served.
    async fn place(&self, visit: &mut Visit) -> Option<OwnedSemaphorePermit> {
        let places = self.places.as_ref()?;
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Some(place);
        }
        visit.queue();
        Arc::clone(places).acquire_owned().await.ok()
    }

    fn stats(&self) -> Response<Full<Bytes>> {
        let json = serde_json::to_vec(&self.counters.snapshot(&self.name)).unwrap_or_default();
        self.tell("application/json", json.into())
    }

    /// An answer about the target itself, which no workload delays.
    fn tell(&self, media_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        response.headers_mut().insert(HeaderName::from_static("x-server"), self.name_header.clone());
        response
    }
}

/// The name and a newline, or exactly `size` bytes: the name, then dots, then a newline.
fn body(name: &str, size: Option<usize>) -> Bytes {
    let mut body = name.as_bytes().to_vec();
    match size {
        None => body.push(b'\n'),
        Some(size) => {
            body.resize(size, b'.');
            if let Some(last) = body.last_mut() {
                *last = b'\n';
            }
        }
    }
    body.into()
}

/// Accepts for ever, each connection into a task of its own.
async fn accept(listener: TcpListener, server: Arc<Server>) {
    loop {
        let admitted = match &server.connections {
            Some(connections) => Arc::clone(connections).acquire_owned().await.ok(),
            None => None,
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                server.counters.connection();
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    serve(stream, server).await;
                    drop(admitted);
                });
            }
            // Out of descriptors, or a connection that was gone before it was accepted: no reason to spin or to end.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// One connection until it closes; how it ended is the client's affair.
async fn serve(stream: TcpStream, server: Arc<Server>) {
    let _ = stream.set_nodelay(true);
    let keep_alive = server.keep_alive;
    let service = service_fn(move |request| Arc::clone(&server).answer(request));
    let _ = http1::Builder::new()
        .keep_alive(keep_alive)
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_size_asked_for() {
        assert_eq!(&body("s1", None)[..], b"s1\n");
        assert_eq!(&body("s1", Some(0))[..], b"");
        assert_eq!(&body("s1", Some(1))[..], b"\n");
        assert_eq!(&body("s1", Some(6))[..], b"s1...\n");
        assert_eq!(body("s1", Some(1 << 20)).len(), 1 << 20);
    }

    #[test]
    fn settings_out_of_range_are_refused_at_the_start() {
        let free = || Target { listen: ([127, 0, 0, 1], 0).into(), ..Target::default() };
        let poisson = |mean| Workload::Poisson { mean, step: Duration::ZERO };
        for target in [
            Target { speed: 0.0, ..free() },
            Target { speed: f64::NAN, ..free() },
            Target { threads: 0, ..free() },
            Target { concurrency: Some(0), ..free() },
            Target { status: 100, ..free() },
            Target { workload: poisson(-1.0), ..free() },
            Target { workload: Workload::Matrix { size: 0 }, ..free() },
            Target { name: "a\r\nb: c".into(), ..free() },
        ] {
            assert!(target.clone().spawn().is_err(), "{target:?}");
        }
        free().spawn().unwrap();
    }

    #[test]
    fn bind_errors_say_what_to_do() {
        let taken = Target { listen: ([127, 0, 0, 1], 0).into(), ..Target::default() }.spawn().unwrap();
        let error = Target { listen: taken.address(), ..Target::default() }.spawn().unwrap_err().to_string();
        assert!(error.contains(&taken.address().to_string()) && error.contains("in use"), "{error}");
        let error = Target { listen: ([192, 0, 2, 1], 0).into(), ..Target::default() }.spawn().unwrap_err();
        assert!(error.to_string().contains("no such address"), "{error}");
    }
}
