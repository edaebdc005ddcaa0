//! A tool as a process that ends by itself, by its limit, or because somebody asked for it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::process::{Process, how, usage};
use crate::record::Role;

/// How often the wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A tool that has done its work.
pub(super) struct Done {
    /// What it printed.
    pub output: String,
    /// Processor time that it used, in seconds.
    pub processor: f64,
    /// How long it ran.
    pub seconds: f64,
}

/// Runs a tool to its end.
///
/// Errors: it cannot be started; it ends with an error; it is not done within the limit; `stop` was set.
pub(super) fn run(
    name: &str,
    command: Command,
    log: &Path,
    limit: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<Done> {
    let begin = Instant::now();
    let mut process = Process::spawn(name, Role::Client, command, log)?;
    let status = loop {
        if let Some(status) = process.wait(LOOK) {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            kill(&process);
            bail!("{name} was stopped");
        }
        if begin.elapsed() > limit {
            kill(&process);
            bail!("{name} did not end within {} s and was killed\n{}", limit.as_secs(), process.last_output());
        }
    };
    let seconds = begin.elapsed().as_secs_f64();
    // It is a zombie until it is dropped, and its account is kept so long.
    let processor = usage(process.pid()).map_or(0.0, |usage| usage.time());
    if !status.success() {
        bail!("{name} failed, {}\n{}", how(status), process.last_output());
    }
    Ok(Done { output: process.output(), processor, seconds })
}

/// At once: what a tool does at its end (siege counts, Locust writes) is of no use any more.
fn kill(process: &Process) {
    // It may have ended.
    let _ = killpg(Pid::from_raw(process.pid()), Signal::SIGKILL);
}
