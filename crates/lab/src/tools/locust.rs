//! Locust, with a locustfile of ours that says what it measured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use serde::Deserialize;
use serde_json::json;

use super::Run;
use crate::load::PERCENTILES;
use crate::process;
use crate::record::{ErrorKind, Latency, Measured, Second};

const FILE: &str = include_str!("locustfile.py");
const FILE_NAME: &str = "locustfile.py";
const OUT: &str = "locust.json";

/// Where scripts/install-lab-tools.sh puts it, or wherever PATH has it.
pub(super) fn program() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let ours = cache.and_then(|cache| process::find(cache.join("balanza/locust/bin/locust").as_os_str()));
    ours.or_else(|| process::find("locust".as_ref()))
}

pub(super) fn command(run: &Run) -> anyhow::Result<Command> {
    let (spec, load) = (run.spec, &run.spec.load);
    let (file, out) = (run.file(FILE_NAME), run.file(OUT));
    std::fs::write(&file, FILE).with_context(|| format!("cannot write {}", file.display()))?;
    // Of an earlier run, if there is one.
    let _ = std::fs::remove_file(&out);
    let users = load.users.context("locust needs users")?;
    let ramp = load.ramp.0.as_secs_f64();
    let a_second = if ramp > 0.0 { f64::from(users) / ramp } else { f64::from(users) };
    let settings = json!({
        "duration": load.duration.context("locust needs a duration")?.0.as_secs_f64(),
        "host": spec.host,
        "keep_alive": load.keep_alive,
        "out": out,
        "pages": load.pages.max(1),
        "path": load.path,
        "rtt": load.rtt.0.as_secs_f64(),
        "seed": spec.seed,
        "sources": spec.sources,
        "think": load.think.0.as_secs_f64(),
        "timeout": load.timeout.0.as_secs_f64(),
    });
    let mut command = run.command(None);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LOCUST_")) {
        command.env_remove(name);
    }
    command.env("BALANZA_LOAD", settings.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["-f", FILE_NAME, "--headless", "--only-summary", "--exit-code-on-error", "0", "--stop-timeout", "0"]);
    command.args(["--csv", "locust", "--csv-full-history"]);
    command.arg("-u").arg(users.to_string()).arg("-r").arg(a_second.to_string()).arg("--host").arg(run.url(""));
    Ok(command)
}

/// What the locustfile writes. Times are in seconds.
#[derive(Deserialize)]
struct Written {
    seconds: f64,
    cpu: f64,
    bytes: u64,
    times: Times,
    errors: BTreeMap<ErrorKind, u64>,
    statuses: BTreeMap<u16, u64>,
    timeline: Vec<Second>,
    /// Locust's own statistics, which count failed requests as well.
    locust: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Times {
    count: u64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
    /// Upper bound in microseconds, number.
    buckets: Vec<(f64, u64)>,
}

pub(super) fn measured(run: &Run) -> anyhow::Result<Measured> {
    let file = run.file(OUT);
    let text = std::fs::read_to_string(&file).context("Locust ended without what its locustfile writes")?;
    parse(&text)
}

pub(super) fn parse(text: &str) -> anyhow::Result<Measured> {
    let written: Written = serde_json::from_str(text).context("Locust's locustfile wrote something else")?;
    Ok(Measured {
        seconds: written.seconds,
        answered: written.times.count,
        errors: written.errors,
        statuses: written.statuses,
        bytes: Some(written.bytes),
        latency: written.times.latency(),
        timeline: written.timeline,
        cpu: Some(written.cpu / written.seconds.max(1e-3)),
        more: written.locust.into_iter().map(|(name, value)| (format!("locust_{name}"), value)).collect(),
        ..Measured::default()
    })
}

impl Times {
    fn latency(&self) -> Latency {
        if self.count == 0 {
            return Latency::default();
        }
        let count = self.count as f64;
        let mean = self.sum / count;
        let mut latency = Latency {
            count: self.count,
            mean: Some(mean),
            sd: Some((self.squares / count - mean * mean).max(0.0).sqrt()),
            min: Some(self.min),
            max: Some(self.max),
            percentiles: Vec::new(),
            histogram: self.buckets.iter().map(|&(microseconds, number)| (microseconds / 1e6, number)).collect(),
        };
        let time = |percentile: f64| Some((percentile, latency.quantile(percentile / 100.0)?));
        latency.percentiles = PERCENTILES.into_iter().filter_map(time).collect();
        latency
    }
}
