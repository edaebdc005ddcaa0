//! Load by the tools that the documents used: ab, siege, httperf, wrk, Locust. Their output is read into the same record
//! as what the lab's own generator measures.
//!
//! | tool | loop | what it tells of times | of its own |
//! |---|---|---|---|
//! | ab | closed | each request in ms, percents of them in µs | HTTP/1.0; an answer that never comes ends the whole run |
//! | siege | closed | each request in steps of 10 ms | its time-out does not end a request that waits for its answer |
//! | httperf | open | mean, deviation, extremes, median in steps of 1 ms | waits busily: a processor is always in use, which is no sign of a bottleneck; its clock stands still while it handles events |
//! | wrk | closed | percents of the requests in µs | adds the times of requests that a long one may have hidden |
//! | Locust | closed | each request in µs | Python: a few hundred requests a second fill a processor |
//!
//! A time-out and a duration are whole seconds for ab, siege and wrk; a duration is rounded up. None of them says which
//! server has answered: the servers' own counters do. Where requests fail, ab, httperf and wrk have the times of answers
//! with an error status among the others, and ab those of broken connections as well.

mod ab;
mod child;
mod httperf;
mod locust;
mod siege;
mod version;
mod wrk;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, anyhow};

use crate::load::{Spec, Watch};
use crate::plan::{Load, Tool};
use crate::process;
use crate::record::{ErrorKind, Measured};

pub use version::version;

/// Above this part of a processor a tool of one thread is taken for the bottleneck.
const CPU_MAX: f64 = 0.95;

/// How long a load may last that ends by a number of requests.
const REQUESTS_MAX: Duration = Duration::from_secs(3600);

/// For the start of a tool and its own evaluation at the end.
const SLACK: Duration = Duration::from_secs(30);

/// So much of a tool's output is kept: its end.
const OUTPUT_MAX: usize = 64 * 1024;

/// Runs the tool of `spec.load` until its load has ended, with its files in `directory`.
///
/// Errors: the tool is not installed, cannot send such a load, fails, says something that cannot be read, or does not
/// end; [`Watch::stop`] was set, which kills it.
pub fn run(spec: &Spec, directory: &Path, watch: &Watch) -> anyhow::Result<Measured> {
    let tool = spec.load.tool;
    spec.load.check_tool().map_err(|reason| anyhow!("the load \"{}\": {reason}", spec.load.name))?;
    tool.check_sources(spec.sources.len()).map_err(|reason| anyhow!(reason))?;
    let program = program(tool).with_context(|| {
        format!(
            "{} is not installed; scripts/install-lab-tools.sh installs it, `balanza lab doctor` tells more",
            tool.name()
        )
    })?;
    let directory = &directory.canonicalize().with_context(|| format!("no directory {}", directory.display()))?;
    let run = Run { spec, program: &program, directory };
    let command = match tool {
        Tool::Balanza => return Err(anyhow!("the lab's own generator is no tool")),
        Tool::Ab => ab::command(&run)?,
        Tool::Siege => siege::command(&run)?,
        Tool::Httperf => httperf::command(&run)?,
        Tool::Wrk => wrk::command(&run)?,
        Tool::Locust => locust::command(&run)?,
    };
    let done = child::run(tool.name(), command, &run.log(), limit(&spec.load), &watch.stop)?;
    let mut measured = match tool {
        Tool::Balanza => Measured::default(),
        Tool::Ab => ab::measured(&run, &done.output)?,
        Tool::Siege => siege::measured(&run, &done.output)?,
        Tool::Httperf => httperf::measured(&done.output)?,
        Tool::Wrk => wrk::measured(&done.output)?,
        Tool::Locust => locust::measured(&run)?,
    };
    measured.tool = tool;
    measured.closed_loop = spec.load.users.is_some();
    measured.ended = measured.answered + measured.errors.values().sum::<u64>();
    if measured.seconds <= 0.0 {
        // Over before the tool's clock moved on.
        measured.seconds = done.seconds;
    }
    measured.cpu = measured.cpu.or(Some(done.processor / done.seconds.max(1e-3)));
    measured.output = tail(done.output);
    watch.answered.store(measured.answered, Ordering::Relaxed);
    watch.failed.store(measured.ended - measured.answered, Ordering::Relaxed);
    Ok(measured)
}

/// What the parts of a run need.
struct Run<'a> {
    spec: &'a Spec,
    program: &'a Path,
    directory: &'a Path,
}

impl Run<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn log(&self) -> PathBuf {
        self.file(&format!("{}.log", self.spec.load.tool.name()))
    }

    /// What is asked for: the first page if there are several.
    fn page(&self) -> String {
        self.spec.load.path.replace("{}", "0")
    }

    /// The same with the target's address.
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.spec.target)
    }

    /// The `Host` field if it is not what the tool sends by itself.
    fn host(&self) -> Option<&str> {
        Some(self.spec.host.as_str()).filter(|host| !host.is_empty() && *host != self.spec.target.to_string())
    }

    /// The tool's command line, in a shell where something has to be arranged before it: the number of descriptors, or a
    /// file for what it prints.
    fn command(&self, print_to: Option<&Path>) -> Command {
        let descriptors = self.spec.load.connections_max;
        let mut command;
        if descriptors.is_none() && print_to.is_none() {
            command = Command::new(self.program);
        } else {
            let mut script = String::new();
            if let Some(number) = descriptors {
                script += &format!("ulimit -n {number} && ");
            }
            script += if print_to.is_some() { "out=$1 && shift && exec \"$@\" >\"$out\"" } else { "exec \"$@\"" };
            command = Command::new("sh");
            command.args(["-c", &script, "sh"]).args(print_to).arg(self.program);
        }
        // A user's settings for the tool are not the plan's.
        command.current_dir(self.directory).env("HOME", self.directory).env("LC_ALL", "C");
        command
    }
}

/// The program of a tool, if it is installed. The lab's own generator is this program.
pub fn program(tool: Tool) -> Option<PathBuf> {
    match tool {
        Tool::Balanza => std::env::current_exe().ok(),
        Tool::Locust => locust::program(),
        other => process::find(other.name().as_ref()),
    }
}

/// Why a run must not be believed: the tool was the bottleneck. Empty for httperf, which uses a processor while it waits.
pub fn invalid(measured: &Measured) -> Vec<String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let limit = match measured.tool {
        Tool::Balanza | Tool::Httperf => return Vec::new(),
        Tool::Siege => CPU_MAX * processors,
        Tool::Ab | Tool::Wrk | Tool::Locust => CPU_MAX,
    };
    let used = measured.cpu.filter(|&cpu| cpu > limit);
    let why = |cpu: f64| {
        format!(
            "{} used {:.0} % of a processor: it was the bottleneck, fewer users show more",
            measured.tool.name(),
            cpu * 100.0
        )
    };
    used.map(why).into_iter().collect()
}

/// The longest time that a load can take if all goes badly.
fn limit(load: &Load) -> Duration {
    let lasts = match (load.duration, load.requests, load.rate) {
        (Some(duration), _, _) => duration.0,
        (None, Some(requests), Some(rate)) => Duration::from_secs_f64((requests as f64 / rate).min(86_400.0)),
        _ => REQUESTS_MAX,
    };
    lasts + load.timeout.0.min(REQUESTS_MAX) + SLACK
}

/// A time in whole seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Adds failures; none leave no trace.
fn failed(measured: &mut Measured, kind: ErrorKind, count: u64) {
    if count > 0 {
        *measured.errors.entry(kind).or_default() += count;
    }
}

/// The text that follows `label` at the beginning of a line.
fn after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.trim_start().strip_prefix(label)?.trim()))
}

/// The number that follows `label`.
fn number(text: &str, label: &str) -> Option<f64> {
    after(text, label)?.split_ascii_whitespace().next()?.trim_end_matches(['%', ',']).parse().ok()
}

fn tail(mut text: String) -> String {
    let mut from = text.len().saturating_sub(OUTPUT_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.split_off(from)
}

#[cfg(test)]
mod tests;
