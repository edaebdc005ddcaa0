//! A thread that watches the workers: a worker whose event loop has stopped does not serve its connections, but still
//! looks alive from outside.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use balanza_config::model::{Level, WorkerWatchdog};
use balanza_net::clock::{self, Nanos};

use crate::essential;
use crate::fault;
use crate::log::error::ErrorWriter;

/// How often the workers are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// When a worker's event loop last ran.
pub struct Pulse {
    worker: usize,
    beaten: AtomicU64,
}

impl Pulse {
    /// The loop runs. To be called every second.
    pub fn beat(&self) {
        self.beaten.store(clock::now(), Relaxed);
    }
}

/// The thread that watches; it ends when this is dropped.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ends: Condvar,
}

#[derive(Default)]
struct State {
    ending: bool,
    conf: Option<(WorkerWatchdog, ErrorWriter)>,
    /// Gone when their workers are.
    workers: Vec<(Weak<Pulse>, Health)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Runs,
    /// Reported as stopped.
    Stopped,
}

impl Watchdog {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start() -> anyhow::Result<Watchdog> {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                let _guard = essential::Guard::new("the watchdog");
                watched.run();
            })
            .context("cannot start a thread")?;
        Ok(Watchdog { shared, thread: Some(thread) })
    }

    /// Goes by this from now on.
    pub fn configure(&self, conf: WorkerWatchdog, errors: ErrorWriter) {
        self.shared.state().conf = Some((conf, errors));
    }

    /// The pulse of a new worker.
    pub fn watch(&self, worker: usize) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse { worker, beaten: AtomicU64::new(clock::now()) });
        self.shared.state().workers.push((Arc::downgrade(&pulse), Health::Runs));
        pulse
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.state().ending = true;
        self.shared.ends.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.state();
        let mut looked = clock::now();
        while !state.ending {
            fault::point("watchdog");
            state = self.ends.wait_timeout(state, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            let now = clock::now();
            // When this thread did not run either, the whole process was stopped: the workers get their time again.
            let paused = now.saturating_sub(looked).saturating_sub(clock::nanos(INTERVAL));
            looked = now;
            state.look(now, paused);
        }
    }
}

impl State {
    fn look(&mut self, now: Nanos, paused: Nanos) {
        self.workers.retain(|(pulse, _)| pulse.strong_count() > 0);
        let Some((conf, errors)) = &self.conf else { return };
        for (pulse, health) in &mut self.workers {
            let Some(pulse) = pulse.upgrade() else { continue };
            if paused > 0 {
                pulse.beaten.fetch_add(paused, Relaxed);
            }
            let silence = Duration::from_nanos(now.saturating_sub(pulse.beaten.load(Relaxed)));
            let verdict = if conf.limit.is_some_and(|limit| silence >= limit) { Health::Stopped } else { Health::Runs };
            if std::mem::replace(health, verdict) == verdict {
                continue;
            }
            let worker = pulse.worker;
            match verdict {
                Health::Runs => errors.write(Level::Alert, format_args!("worker thread {worker} runs again")),
                Health::Stopped => {
                    let seconds = silence.as_secs_f64();
                    let what = format!("worker thread {worker} has not run its event loop for {seconds:.1} s");
                    if conf.restart {
                        essential::end_process(format_args!("{what}"));
                    }
                    errors.write(Level::Alert, format_args!("{what}; its connections wait"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(workers: &[&Arc<Pulse>]) -> State {
        let conf = WorkerWatchdog { limit: Some(Duration::from_secs(5)), restart: false };
        let workers = workers.iter().map(|pulse| (Arc::downgrade(pulse), Health::Runs)).collect();
        State { ending: false, conf: Some((conf, ErrorWriter::default())), workers }
    }

    fn pulse(beaten: Nanos) -> Arc<Pulse> {
        Arc::new(Pulse { worker: 0, beaten: AtomicU64::new(beaten) })
    }

    #[test]
    fn a_silent_worker_is_found_and_a_paused_process_is_not_blamed() {
        const SECOND: Nanos = 1_000_000_000;
        let (silent, paused) = (pulse(0), pulse(0));
        let mut watched = state(&[&silent]);
        watched.look(4 * SECOND, 0);
        assert!(watched.workers[0].1 == Health::Runs);
        watched.look(5 * SECOND, 0);
        assert!(watched.workers[0].1 == Health::Stopped);
        silent.beaten.store(6 * SECOND, Relaxed);
        watched.look(7 * SECOND, 0);
        assert!(watched.workers[0].1 == Health::Runs);

        let mut stopped = state(&[&paused]);
        stopped.look(3600 * SECOND, 3599 * SECOND);
        assert!(stopped.workers[0].1 == Health::Runs);
        stopped.look(3606 * SECOND, 0);
        assert!(stopped.workers[0].1 == Health::Stopped);
        drop(paused);
        stopped.look(3607 * SECOND, 0);
        assert!(stopped.workers.is_empty());
    }
}
