//! wrk, with a script of ours that says what it measured.

use std::process::Command;

use anyhow::Context;
use serde::Deserialize;

use super::{Run, failed, whole_seconds};
use crate::load::PERCENTILES;
use crate::record::{ErrorKind, Latency, Measured};

const SCRIPT: &str = include_str!("wrk.lua");
const SCRIPT_FILE: &str = "wrk.lua";

/// What the script's line begins with.
const LINE: &str = "balanza ";

pub(super) fn command(run: &Run) -> anyhow::Result<Command> {
    let (spec, load) = (run.spec, &run.spec.load);
    let script = run.file(SCRIPT_FILE);
    std::fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
    let duration = load.duration.context("wrk needs a duration")?;
    let mut command = run.command(None);
    // One thread: two would share the processors with what is measured.
    command.arg("-t1").arg(format!("-c{}", load.users.context("wrk needs users")?));
    command.arg(format!("-d{}s", whole_seconds(duration.0).max(1)));
    command.arg("--timeout").arg(format!("{}s", whole_seconds(load.timeout.0))).arg("-s").arg(SCRIPT_FILE);
    if !load.keep_alive {
        command.args(["-H", "Connection: close"]);
    }
    if let Some(host) = run.host() {
        command.arg("-H").arg(format!("Host: {host}"));
    }
    command.arg(run.url(&run.page())).arg("--").arg(&load.path).arg(load.pages.to_string());
    command.arg(load.think.0.as_millis().to_string()).arg((spec.seed & 0x7fff_ffff).to_string());
    Ok(command)
}

/// The script's line. Times are in microseconds.
#[derive(Deserialize)]
struct Line {
    duration: f64,
    requests: f64,
    bytes: f64,
    connect: f64,
    read: f64,
    write: f64,
    status: f64,
    timeout: f64,
    min: f64,
    max: f64,
    mean: f64,
    sd: f64,
    /// Percent and time; none if nothing was measured.
    percentiles: Vec<(f64, f64)>,
}

pub(super) fn measured(output: &str) -> anyhow::Result<Measured> {
    let line = output.lines().rev().find_map(|line| line.strip_prefix(LINE));
    let line: Line = serde_json::from_str(line.context("wrk ended without what its script says")?)
        .context("wrk's script says something else than it should")?;
    // A request that was answered after its time-out is complete, too late, and has no time.
    let in_time = (line.requests - line.timeout).max(0.0);
    let mut measured = Measured {
        seconds: line.duration / 1e6,
        answered: (in_time - line.status).max(0.0) as u64,
        bytes: Some(line.bytes as u64),
        latency: latency(&line, in_time as u64),
        ..Measured::default()
    };
    for (kind, count) in [
        // wrk says 400 or more, not which; and not why a connection was not to be had.
        (ErrorKind::Other, line.status + line.connect),
        (ErrorKind::Closed, line.read),
        (ErrorKind::Reset, line.write),
        (ErrorKind::Timeout, line.timeout),
    ] {
        failed(&mut measured, kind, count as u64);
    }
    for (name, value) in [
        ("connect_errors", line.connect),
        ("read_errors", line.read),
        ("status_errors", line.status),
        ("write_errors", line.write),
    ] {
        if value > 0.0 {
            measured.more.insert(name.into(), value);
        }
    }
    Ok(measured)
}

fn latency(line: &Line, count: u64) -> Latency {
    if line.percentiles.is_empty() || count == 0 {
        return Latency::default();
    }
    let seconds = |microseconds: f64| microseconds / 1e6;
    let listed = |wanted: f64| line.percentiles.iter().find(|(percent, _)| (percent - wanted).abs() < 1e-6);
    // As many requests as lie between one percent and the next are put at its time; the rest at the maximum.
    let mut histogram: Vec<(f64, u64)> = Vec::new();
    let mut before = 0;
    for (percent, time) in line.percentiles.iter().copied().chain([(100.0, line.max)]) {
        let below = (percent / 100.0 * count as f64).round() as u64;
        let here = below.saturating_sub(before);
        before += here;
        match histogram.last_mut() {
            _ if here == 0 => {}
            Some((bucket, number)) if *bucket == seconds(time) => *number += here,
            _ => histogram.push((seconds(time), here)),
        }
    }
    Latency {
        count,
        mean: Some(seconds(line.mean)),
        sd: Some(seconds(line.sd)),
        min: Some(seconds(line.min)),
        max: Some(seconds(line.max)),
        percentiles: PERCENTILES
            .iter()
            .filter_map(|&percentile| Some((percentile, seconds(listed(percentile)?.1))))
            .collect(),
        histogram,
    }
}
