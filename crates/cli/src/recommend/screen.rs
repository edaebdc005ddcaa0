//! What is seen while logs are read.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use balanza_recommend::log::Log;
use balanza_recommend::read::{self, Input};
use indicatif::{ProgressBar, ProgressStyle};

/// Logs that are read so soon have no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// Reads the logs, with a progress bar if that takes long and standard error is a terminal.
pub fn reading(input: &Input) -> anyhow::Result<Log> {
    if !io::stderr().is_terminal() {
        return super::quietly(input);
    }
    let (done, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let screen = scope.spawn(move || {
            std::thread::park_timeout(PATIENCE);
            if over.load(Relaxed) {
                return;
            }
            let bar = ProgressBar::new(read::size(&input.files));
            if let Ok(style) = ProgressStyle::with_template("reading {wide_bar} {bytes} of {total_bytes}, {eta} left") {
                bar.set_style(style);
            }
            while !over.load(Relaxed) {
                bar.set_position(done.load(Relaxed));
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let result = read::read(input, done);
        over.store(true, Relaxed);
        screen.thread().unpark();
        Ok(result?)
    })
}
