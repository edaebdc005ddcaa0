//! The thread that sends the spans of all workers to a collector.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use balanza_config::model::{self, Level};
use balanza_net::event_loop;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::collector::Collector;
use super::{Span, otlp};
use crate::essential;
use crate::log::error::ErrorWriter;

/// How long a batch may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is said at most that spans are lost.
const SILENCE: Duration = Duration::from_secs(60);

/// What has become of spans.
#[derive(Debug, Default)]
pub struct Counts {
    /// The collector has them.
    pub exported: AtomicU64,
    /// They could not be sent, or the collector refused them.
    pub failed: AtomicU64,
    /// Too many waited.
    pub dropped: AtomicU64,
}

/// Spans that are sent together.
pub struct Batch {
    pub spans: Vec<Span>,
    /// Counts it until it is sent.
    pub pending: Arc<AtomicUsize>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pending.fetch_sub(1, Relaxed);
    }
}

/// What gives batches to the thread.
#[derive(Clone)]
pub struct Sender {
    pub conf: Arc<model::Exporter>,
    pub counts: Arc<Counts>,
    batches: UnboundedSender<Option<Batch>>,
}

impl Sender {
    pub fn send(&self, batch: Batch) {
        let count = batch.spans.len() as u64;
        if self.batches.send(Some(batch)).is_err() {
            self.counts.dropped.fetch_add(count, Relaxed);
        }
    }
}

/// The thread of an `otel_exporter`.
pub struct Exporter {
    conf: Arc<model::Exporter>,
    counts: Arc<Counts>,
    /// The error log of the configuration in use.
    log: Arc<Mutex<ErrorWriter>>,
    sender: Mutex<Option<Sender>>,
    /// Closed when the thread has sent all there is.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Exporter {
    /// That of a configuration; an unchanged one goes on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn of(
        conf: Option<&Arc<model::Exporter>>,
        previous: Option<&Arc<Exporter>>,
        log: ErrorWriter,
    ) -> anyhow::Result<Option<Arc<Exporter>>> {
        let Some(conf) = conf else { return Ok(None) };
        if let Some(previous) = previous.filter(|previous| previous.conf == *conf) {
            *lock(&previous.log) = log;
            return Ok(Some(Arc::clone(previous)));
        }
        // A collector that is asked for other things gets the same counters.
        let counts: Arc<Counts> = previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.counts));
        let (batches, receiver) = unbounded_channel();
        let (end, ended) = mpsc::channel();
        let sender = Sender { conf: Arc::clone(conf), counts: Arc::clone(&counts), batches };
        let log = Arc::new(Mutex::new(log));
        let work = Work { conf: Arc::clone(conf), counts: Arc::clone(&counts), log: Arc::clone(&log) };
        let run = move || {
            let _guard = essential::Guard::new("the exporter of spans");
            let main = async move {
                work.run(receiver).await;
                drop(end);
            };
            let ran = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default())
                .and_then(|runtime| runtime.block_on(event_loop::run(main)));
            if let Err(error) = ran {
                essential::end_process(format_args!("cannot export spans: {error}"));
            }
        };
        std::thread::Builder::new().name("spans".into()).spawn(run).context("cannot start a thread")?;
        let (conf, sender) = (Arc::clone(conf), Mutex::new(Some(sender)));
        Ok(Some(Arc::new(Exporter { conf, counts, log, sender, ended: Mutex::new(ended) })))
    }

    /// What gives it batches; none after its end.
    pub fn sender(&self) -> Option<Sender> {
        lock(&self.sender).clone()
    }

    /// What has become of the spans so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Waits until all is sent, at most so long. The workers have ended.
    pub fn finish(&self, most: Duration) {
        if let Some(sender) = lock(&self.sender).take() {
            // Behind the last batch.
            let _ = sender.batches.send(None);
        }
        // Nothing is sent: the channel is closed at the end.
        let _ = lock(&self.ended).recv_timeout(most);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread does.
struct Work {
    conf: Arc<model::Exporter>,
    counts: Arc<Counts>,
    log: Arc<Mutex<ErrorWriter>>,
}

impl Work {
    async fn run(self, mut batches: UnboundedReceiver<Option<Batch>>) {
        let mut collector = Collector::new(&self.conf);
        let mut told = Told { lost: self.lost(), at: None };
        while let Some(Some(batch)) = batches.recv().await {
            let count = batch.spans.len() as u64;
            let message = otlp::encode(&self.conf.resource, &batch.spans);
            let result = match timeout(PATIENCE, collector.send(message)).await {
                Ok(result) => result,
                Err(_) => {
                    collector.hang_up();
                    Err("no answer in time".to_owned())
                }
            };
            let (rejected, why) = match result {
                Ok((rejected, why)) => (rejected.min(count), why),
                Err(why) => (count, why),
            };
            self.counts.exported.fetch_add(count - rejected, Relaxed);
            self.counts.failed.fetch_add(rejected, Relaxed);
            drop(batch);
            told.tell(&self, &why);
        }
    }

    /// Spans that the collector does not have.
    fn lost(&self) -> u64 {
        self.counts.failed.load(Relaxed) + self.counts.dropped.load(Relaxed)
    }
}

/// What the error log has been told.
struct Told {
    lost: u64,
    at: Option<Instant>,
}

impl Told {
    /// Tells of spans that were lost since the last time, once a minute.
    fn tell(&mut self, work: &Work, why: &str) {
        let lost = work.lost();
        if lost == self.lost || self.at.is_some_and(|at| at.elapsed() < SILENCE) {
            return;
        }
        let (count, at) = (lost - self.lost, &work.conf.endpoint);
        let why = if why.is_empty() { "too many wait for the collector" } else { why };
        let message = format_args!("OpenTelemetry: spans lost: {count}, sending to {at}: {why}");
        lock(&work.log).write(Level::Error, message);
        (self.lost, self.at) = (lost, Some(Instant::now()));
    }
}
