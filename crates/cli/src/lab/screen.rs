//! What is seen while a plan runs: a bar on a terminal, a line for each run elsewhere.

use std::io::{self, IsTerminal};
use std::time::Duration;

use balanza_lab::record::Run;
use balanza_lab::runner::{Event, Watcher};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plans::minutes;
use crate::output::say;

/// Shows the events of a run.
pub struct Screen {
    bar: ProgressBar,
    terminal: bool,
}

impl Screen {
    /// On standard error.
    pub fn new() -> Screen {
        let terminal = io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}\n{wide_msg}") {
            bar.set_style(style);
        }
        Screen { bar, terminal }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        if self.terminal {
            self.bar.println(text);
        } else {
            say(text);
        }
    }
}

impl Watcher for Screen {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Begun { total, finished, expected } => {
                self.bar.set_length(*total as u64);
                self.bar.set_position(*finished as u64);
                self.bar.set_prefix(left(*expected));
                let before =
                    if *finished > 0 { format!(", {finished} of them are already finished") } else { String::new() };
                self.line(&format!("{total} runs{before}; about {}", minutes(*expected)));
            }
            Event::LeftOut { cell, reason } => self.line(&format!("left out: {cell}: {reason}")),
            Event::Started { job, .. } => {
                self.bar.set_message(format!("{}, repetition {}", job.cell, job.repetition));
            }
            Event::Progress { seconds, expected, answered, failed } => {
                let message = self.bar.message();
                let cell = message.split(" | ").next().unwrap_or_default().to_owned();
                let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
                self.bar.set_message(format!("{cell} | {seconds:.0} of {expected:.0} s, {answered} responses{failed}"));
            }
            Event::Failed { job, error } => {
                self.line(&format!("{}, repetition {}: {error:#}; trying again", job.cell, job.repetition));
            }
            Event::Ended { run, number, total, eta } => {
                self.bar.set_position(*number as u64);
                self.bar.set_prefix(left(*eta));
                self.line(&format!("{number:>4}/{total}  {}; {}", finished(run), left(*eta)));
            }
        }
    }
}

fn left(time: Duration) -> String {
    format!("{} left", minutes(time))
}

/// The result of a run in a line.
fn finished(run: &Run) -> String {
    let measured = &run.measured;
    let rate = measured.answered as f64 / measured.seconds.max(1e-9);
    let mean =
        measured.latency.mean.map_or(String::new(), |mean| format!(", mean {}", balanza_simulator::report::time(mean)));
    let failed: u64 = measured.errors.values().sum();
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let invalid = match run.invalid.first() {
        Some(reason) => format!(" (excluded: {reason})"),
        None => String::new(),
    };
    format!("{}, repetition {}: {rate:.1} requests/s{mean}{failed}{invalid}", run.cell, run.repetition)
}
