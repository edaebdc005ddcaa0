//! The thread that sends the spans of all workers to a collector.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use balanza_config::model::{self, Level};
use balanza_net::event_loop;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::collector::Collector;
use super::failure::{Failure, Kind, Then};
use super::losses::Losses;
use super::{Span, otlp};
use crate::discovery::jitter;
use crate::essential;
use crate::log::error::ErrorWriter;

/// How long one attempt to send a batch may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a batch is sent again that the collector does not want yet, and the longest pause between two attempts.
const LIFE: Duration = Duration::from_secs(60);
/// The first pause unless the collector says a time. Each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the log is told of dropped spans during a pause.
const TICK: Duration = Duration::from_secs(1);

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
    async fn run(self, batches: UnboundedReceiver<Option<Batch>>) {
        let mut intake = Intake { batches, waiting: VecDeque::new(), is_ending: false };
        let mut collector = Collector::new(&self.conf);
        let mut report = Report { losses: Losses::default(), dropped: self.counts.dropped.load(Relaxed) };
        while let Some(batch) = intake.next().await {
            let count = batch.spans.len() as u64;
            let message = otlp::encode(&self.conf.resource, &batch.spans);
            let (rejected, kind, why) = match self.deliver(&message, &mut collector, &mut intake, &mut report).await {
                Ok((rejected, why)) => (rejected.min(count), Kind::Rejected, why),
                Err(failure) => (count, failure.kind, failure.why),
            };
            self.counts.exported.fetch_add(count - rejected, Relaxed);
            self.counts.failed.fetch_add(rejected, Relaxed);
            drop(batch);
            report.losses.add(kind, rejected, &why);
            report.tell(&self);
        }
    }

    /// Sends a message, and again if the collector does not want it yet.
    async fn deliver(
        &self,
        message: &[u8],
        collector: &mut Collector<'_>,
        intake: &mut Intake,
        report: &mut Report,
    ) -> Result<(u64, String), Failure> {
        let (begun, mut pause) = (Instant::now(), PAUSE);
        loop {
            let failure = match timeout(PATIENCE, collector.send(message)).await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    collector.hang_up();
                    Failure::new(Kind::Time, "no answer in time")
                }
            };
            let Then::Later(wait) = failure.then else { return Err(failure) };
            if intake.is_ending || begun.elapsed() >= LIFE {
                return Err(failure);
            }
            let wait = wait.filter(|wait| !wait.is_zero()).unwrap_or_else(|| jitter(pause)).min(LIFE);
            let until = Instant::now() + wait;
            while !intake.is_ending && Instant::now() < until {
                report.tell(self);
                intake.pause(until.saturating_duration_since(Instant::now()).min(TICK)).await;
            }
            pause = (pause * 2).min(LIFE);
        }
    }
}

/// The batches that come.
struct Intake {
    batches: UnboundedReceiver<Option<Batch>>,
    /// Those that came during a pause. They count as pending.
    waiting: VecDeque<Batch>,
    /// No others will come: the process ends, or another exporter is in use.
    is_ending: bool,
}

impl Intake {
    /// The next one; none at the end.
    async fn next(&mut self) -> Option<Batch> {
        match self.waiting.pop_front() {
            Some(batch) => Some(batch),
            None if self.is_ending => None,
            None => self.batches.recv().await.flatten(),
        }
    }

    /// Waits, but not beyond the end.
    async fn pause(&mut self, time: Duration) {
        let mut sleep = pin!(sleep(time));
        while !self.is_ending {
            tokio::select! {
                () = &mut sleep => return,
                batch = self.batches.recv() => match batch.flatten() {
                    Some(batch) => self.waiting.push_back(batch),
                    None => self.is_ending = true,
                },
            }
        }
    }
}

/// What the error log is told.
struct Report {
    losses: Losses,
    /// Spans that had no room and are among the losses.
    dropped: u64,
}

impl Report {
    fn tell(&mut self, work: &Work) {
        let dropped = work.counts.dropped.load(Relaxed);
        self.losses.add(Kind::Crowded, dropped - self.dropped, "too many wait for the collector");
        self.dropped = dropped;
        for (count, why) in self.losses.due(Instant::now()) {
            let at = &work.conf;
            let message = format_args!("OpenTelemetry: spans lost: {count}, sending to {at}: {why}");
            lock(&work.log).write(Level::Error, message);
        }
    }
}
