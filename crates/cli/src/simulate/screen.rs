//! What is seen while a simulation runs.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use balanza_simulator::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A simulation that is over so soon has no bar.
const PATIENCE: Duration = Duration::from_millis(500);
const STEPS: u64 = 10_000;

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
