//! The responses of a target, and the work that it does for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Version};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::accept::Admission;
use super::cost::{Burning, Cost, Job};
use super::credits::Bucket;
use super::queue::Queue;
use super::station::Station;
use super::stats::{Counters, Stats, Visit};
use super::{LOAD_FIELD, LOAD_PATH, STATS_PATH, Service, Target};

/// What the connections of a target share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    name_header: HeaderValue,
    body: Bytes,
    status: StatusCode,
    keep_alive: bool,
    /// Places for requests at work, if answers say what part of them is taken.
    places: Option<usize>,
    cost: Cost,
    /// The speed that it was started with.
    pub(super) own_speed: f64,
    /// The bits of an `f64`.
    speed: AtomicU64,
    /// Whether every request is answered with 503 at once.
    failing: AtomicBool,
    /// Whether it finishes what it has and takes nothing new.
    draining: watch::Sender<bool>,
    /// Whether requests wait, unanswered, until this is false.
    silent: watch::Sender<bool>,
    work: Work,
    rng: Mutex<SmallRng>,
    counters: Arc<Counters>,
}

/// Where requests are worked on.
#[derive(Debug)]
enum Work {
    Virtual(Arc<Queue>),
    Burn { places: Option<Arc<Semaphore>>, credits: Option<Arc<Meter>> },
}

/// Charges computations for their credits.
#[derive(Debug)]
struct Meter {
    epoch: Instant,
    bucket: Mutex<Bucket>,
}

impl Meter {
    /// Does the work, then sleeps for as long as a throttled processor would have taken longer.
    fn work(&self, burning: Burning) {
        let start = self.epoch.elapsed().as_secs_f64();
        let used = burning.run().as_secs_f64();
        let longer = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).charge(start, used);
        std::thread::sleep(std::time::Duration::from_secs_f64(longer));
    }
}

impl Server {
    pub(super) fn new(target: &Target, name: String) -> anyhow::Result<Self> {
        let bucket = target.credits.map(Bucket::new);
        let work = match target.service() {
            Service::Virtual => {
                let station = Station::new(target.discipline, target.concurrency.unwrap_or(usize::MAX), bucket);
                Work::Virtual(Arc::new(Queue::new(station).context("no timer")?))
            }
            Service::Burn => {
                let semaphore = |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
                let meter = |bucket| Arc::new(Meter { epoch: Instant::now(), bucket: Mutex::new(bucket) });
                Work::Burn { places: target.concurrency.map(semaphore), credits: bucket.map(meter) }
            }
        };
        Ok(Self {
            name_header: HeaderValue::from_str(&name).context("the name cannot stand in a header")?,
            body: body(&name, target.body_size),
            name,
            status: StatusCode::from_u16(target.status)?,
            keep_alive: target.keep_alive,
            places: target.concurrency.filter(|_| target.report_load),
            cost: Cost::of(target),
            own_speed: target.speed,
            speed: AtomicU64::new(target.speed.to_bits()),
            failing: AtomicBool::new(false),
            draining: watch::Sender::new(false),
            silent: watch::Sender::new(false),
            work,
            rng: Mutex::new(SmallRng::seed_from_u64(target.seed)),
            counters: Arc::default(),
        })
    }

    /// The queue, if there is one. The caller has to [run](Queue::run) it.
    pub(super) fn queue(&self) -> Option<Arc<Queue>> {
        match &self.work {
            Work::Virtual(queue) => Some(Arc::clone(queue)),
            Work::Burn { .. } => None,
        }
    }

    /// Whether a connection takes more than one request.
    pub(super) fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// A connection was accepted.
    pub(super) fn connected(&self) {
        self.counters.connection();
    }

    /// The counters now.
    pub(super) fn stats(&self) -> Stats {
        self.counters.snapshot(&self.name)
    }

    /// Works so fast from the next request on.
    pub(super) fn set_speed(&self, speed: f64) {
        self.speed.store(speed.to_bits(), Relaxed);
    }

    /// Leaves requests unanswered, or goes on with them.
    pub(super) fn set_silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    /// Answers every request with 503 at once, or works again.
    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Relaxed);
    }

    /// Finishes what it has and takes nothing new.
    pub(super) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Waits until it drains.
    pub(super) async fn drains(&self) {
        // Fails when the target ends. Then there is nothing left to drain.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// Waits, as a request that is present, until the target is not silent.
    async fn wait_while_silent(&self) {
        let mut silent = self.silent.subscribe();
        if !*silent.borrow() {
            return;
        }
        let mut visit = Visit::arrive(&self.counters);
        visit.queue();
        // Fails when the target ends, which ends this request too.
        let _ = silent.wait_for(|silent| !silent).await;
    }

    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        admission: Option<Arc<Admission>>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        self.wait_while_silent().await;
        if matches!(request.uri().path(), STATS_PATH | LOAD_PATH) {
            return Ok(self.about_itself(&request));
        }
        let came = admission.as_ref().and_then(|admission| admission.came());
        let closes = !self.keep_alive || closes(&request);
        let mut body = request.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }

        let visit = Visit::arrive(&self.counters);
        if self.failing.load(Relaxed) {
            visit.at_once();
            let mut response = self.tell(self.body.clone(), "text/plain");
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(response);
        }
        let cost = self.cost.at_speed(f64::from_bits(self.speed.load(Relaxed)));
        let job = cost.draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner));
        match (job, &self.work) {
            (Job::Hold(time), Work::Virtual(queue)) => {
                let end = queue.hold(time, came, visit, admission.clone()).await;
                if let Some(admission) = admission.filter(|_| closes) {
                    admission.over(end);
                }
            }
            (Job::Burn(burning), Work::Burn { places, credits }) => {
                burn(burning, places.clone(), credits.clone(), visit, admission).await;
            }
            (_, _) => visit.at_once(),
        }

        let mut response = self.tell(self.body.clone(), "text/plain");
        *response.status_mut() = self.status;
        if let Some(places) = self.places {
            let load = format!("{:.3}", self.counters.present() as f64 / places as f64);
            if let Ok(load) = HeaderValue::try_from(load) {
                response.headers_mut().insert(HeaderName::from_static(LOAD_FIELD), load);
            }
        }
        Ok(response)
    }

    /// Answers a question about the target itself, which no workload delays.
    pub(super) fn about_itself<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            STATS_PATH => self.tell(serde_json::to_vec(&self.stats()).unwrap_or_default().into(), "application/json"),
            LOAD_PATH => self.tell(self.counters.load().into(), "text/plain"),
            _ => {
                let text = format!("There are only {STATS_PATH} and {LOAD_PATH} here.\n");
                let mut response = self.tell(text.into(), "text/plain");
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        }
    }

    pub(super) fn tell(&self, body: Bytes, media_type: &'static str) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        response.headers_mut().insert(HeaderName::from_static("x-server"), self.name_header.clone());
        response
    }
}

/// Computes on a thread for that. When the client leaves, the work goes on and keeps its place until it ends.
async fn burn(
    burning: Burning,
    places: Option<Arc<Semaphore>>,
    credits: Option<Arc<Meter>>,
    mut visit: Visit,
    admission: Option<Arc<Admission>>,
) {
    let place = place(places, &mut visit).await;
    visit.work();
    let work = move || {
        match credits {
            Some(meter) => meter.work(burning),
            None => drop(burning.run()),
        }
        (visit, place, admission)
    };
    if let Ok((visit, _place, _admission)) = tokio::task::spawn_blocking(work).await {
        visit.finish();
    }
}

/// Waits for one of the `concurrency` places, first come, first served.
async fn place(places: Option<Arc<Semaphore>>, visit: &mut Visit) -> Option<OwnedSemaphorePermit> {
    let places = places?;
    if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
        return Some(place);
    }
    visit.queue();
    places.acquire_owned().await.ok()
}

/// Whether the client wants the connection closed after the answer.
fn closes<B>(request: &Request<B>) -> bool {
    let says = |token: &str| {
        let values = request.headers().get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(token))
    };
    says("close") || (request.version() == Version::HTTP_10 && !says("keep-alive"))
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
    fn who_wants_the_connection_closed() {
        for (version, connection, expected) in [
            (Version::HTTP_11, "", false),
            (Version::HTTP_11, "keep-alive", false),
            (Version::HTTP_11, "TE, Close", true),
            (Version::HTTP_10, "", true),
            (Version::HTTP_10, "Keep-Alive", false),
        ] {
            let request = Request::builder().version(version).header(CONNECTION, connection).body(()).unwrap();
            assert_eq!(closes(&request), expected, "{version:?} {connection}");
        }
    }
}
