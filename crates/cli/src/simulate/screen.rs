//! What is seen while simulations run.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use balanza_simulator::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::say;

/// A simulation that is over so soon has no bar.
const PATIENCE: Duration = Duration::from_millis(500);
const STEPS: u64 = 10_000;
/// Without a terminal, a line says at most so often how far it is.
const SILENCE: Duration = Duration::from_secs(10);

/// Runs `work`, with a progress bar if it takes long and standard error is a terminal.
pub fn watched<T: Send>(work: impl FnOnce(&Progress) -> T + Send) -> T {
    let progress = Progress::new();
    if !io::stderr().is_terminal() {
        return work(&progress);
    }
    let (progress, over) = (&progress, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let screen = scope.spawn(move || {
            std::thread::park_timeout(PATIENCE);
            if over.load(Relaxed) {
                return;
            }
            let bar = ProgressBar::new(STEPS);
            if let Ok(style) = ProgressStyle::with_template("simulating {wide_bar} {percent}%, {eta} left") {
                bar.set_style(style);
            }
            while !over.load(Relaxed) {
                bar.set_position((progress.part() * STEPS as f64) as u64);
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let result = work(progress);
        over.store(true, Relaxed);
        screen.thread().unpark();
        result
    })
}

/// How far many runs are: a bar on a terminal, else a line now and then.
pub struct Meter {
    bar: Option<ProgressBar>,
    begin: Instant,
    said: Instant,
    runs: (usize, usize),
    work: (f64, f64),
}

impl Meter {
    /// There are so many runs to do, and so much work in all.
    pub fn new(runs: usize, work: f64) -> Meter {
        let bar = io::stderr().is_terminal().then(|| ProgressBar::new(STEPS));
        if let Some((bar, style)) =
            bar.as_ref().zip(ProgressStyle::with_template("{msg} {wide_bar} {percent}%, {eta} left").ok())
        {
            bar.set_style(style);
            bar.set_message(format!("0 of {runs} runs"));
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        let now = Instant::now();
        Meter { bar, begin: now, said: now, runs: (0, runs), work: (0.0, work.max(1.0)) }
    }

    /// A run is done, and so much work.
    pub fn done(&mut self, work: f64) {
        self.runs.0 += 1;
        self.work.0 += work;
        let part = self.work.0 / self.work.1;
        let text = format!("{} of {} runs", self.runs.0, self.runs.1);
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.set_position((part * STEPS as f64) as u64);
        } else if self.said.elapsed() >= SILENCE {
            self.said = Instant::now();
            let left = self.begin.elapsed().as_secs_f64() * (1.0 - part) / part.max(1e-9);
            say(&format!("balanza: {text} ({:.0}%), about {} left", part * 100.0, balanza_plot::seconds(left)));
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
