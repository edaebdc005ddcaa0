//! ApacheBench.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::{Run, failed, number, whole_seconds};
use crate::load::Recorder;
use crate::record::{ErrorKind, Latency, Measured, Second};

/// What ab could do at most, to give it a number of requests that it does not reach before its time.
const REQUESTS_PER_SECOND: u64 = 100_000;

/// Its files: percents of the requests, and every request.
const PERCENTS: &str = "ab.csv";
const REQUESTS: &str = "ab.tsv";

pub(super) fn command(run: &Run) -> anyhow::Result<Command> {
    for file in [PERCENTS, REQUESTS] {
        // Of an earlier run, if there is one.
        let _ = std::fs::remove_file(run.file(file));
    }
    let (spec, load) = (run.spec, &run.spec.load);
    let mut command = run.command(None);
    command.args(["-q", "-r", "-e", PERCENTS, "-g", REQUESTS]);
    command.arg("-c").arg(load.users.context("ab needs users")?.to_string());
    command.arg("-s").arg(whole_seconds(load.timeout.0).to_string());
    // -t sets the number of requests to 50000: -n has to follow it.
    if let Some(duration) = load.duration {
        let seconds = whole_seconds(duration.0).max(1);
        command.args(["-t", &seconds.to_string(), "-n", &(seconds * REQUESTS_PER_SECOND).to_string()]);
    } else {
        command.arg("-n").arg(load.requests.context("ab needs a duration or a number of requests")?.to_string());
    }
    if load.keep_alive {
        command.arg("-k");
    }
    if let [source] = spec.sources[..] {
        command.arg("-B").arg(source.to_string());
    }
    if let Some(host) = run.host() {
        command.arg("-H").arg(format!("Host: {host}"));
    }
    command.arg(run.url(&run.page()));
    Ok(command)
}

pub(super) fn measured(run: &Run, output: &str) -> anyhow::Result<Measured> {
    // ab writes them only if there was an answer.
    let read = |name| std::fs::read_to_string(run.file(name)).unwrap_or_default();
    parse(output, &read(PERCENTS), &read(REQUESTS))
}

/// From what it printed and its two files.
pub(super) fn parse(output: &str, percents: &str, requests: &str) -> anyhow::Result<Measured> {
    let field = |label: &str| number(output, label).with_context(|| format!("ab does not say \"{label}\""));
    let complete = field("Complete requests:")? as u64;
    let non_2xx = number(output, "Non-2xx responses:").unwrap_or(0.0) as u64;
    let failures = |kind: &str| reason(output, kind);
    // Each request that breaks off is complete and counted as Receive, maybe as an exception of the connection as well.
    let receive = failures("Receive").min(complete);
    let mut measured = Measured {
        seconds: field("Time taken for tests:")?,
        answered: complete - receive - non_2xx.min(complete - receive),
        bytes: number(output, "Total transferred:").map(|bytes| bytes as u64),
        ..Measured::default()
    };
    failed(&mut measured, ErrorKind::Other, receive + failures("Connect") + non_2xx.min(complete - receive));
    for (name, value) in [
        // Answers of another length than the first: right where lengths vary.
        ("length_failures", Some(failures("Length") as f64)),
        ("exceptions", Some(failures("Exceptions") as f64)),
        ("non_2xx", Some(non_2xx as f64)),
        ("keep_alive_requests", number(output, "Keep-Alive requests:")),
        ("transfer_rate", number(output, "Transfer rate:").map(|kilobytes| kilobytes * 1024.0)),
        ("requests_per_second", number(output, "Requests per second:")),
    ] {
        if let Some(value) = value.filter(|value| *value > 0.0) {
            measured.more.insert(name.into(), value);
        }
    }
    let rows: Vec<Row> = requests.lines().skip(1).filter_map(row).collect();
    if measured.answered > 0 && !rows.is_empty() {
        measured.latency = latency(&rows, &quantiles(percents));
        measured.connect = Some(milliseconds(rows.iter().map(|row| row.connect)));
        measured.waiting = Some(milliseconds(rows.iter().map(|row| row.waiting)));
        measured.timeline = timeline(&rows);
    }
    Ok(measured)
}

/// `(Connect: 0, Receive: 4, Length: 0, Exceptions: 2)`
fn reason(output: &str, kind: &str) -> u64 {
    let label = format!("{kind}: ");
    let line = output.lines().find(|line| line.trim_start().starts_with("(Connect: "));
    let count = line.and_then(|line| line.split(&label).nth(1)).map(|rest| rest.trim_end_matches(')'));
    count.and_then(|count| count.split(',').next()?.trim().parse().ok()).unwrap_or(0)
}

/// A line of `-g`: when it was begun, in seconds; times in milliseconds.
struct Row {
    begun: i64,
    connect: u64,
    total: u64,
    waiting: u64,
}

fn row(line: &str) -> Option<Row> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [_, begun, connect, _, total, waiting] = fields[..] else { return None };
    let time = |text: &str| text.parse::<i64>().ok().map(|time| time.max(0).cast_unsigned());
    Some(Row { begun: begun.parse().ok()?, connect: time(connect)?, total: time(total)?, waiting: time(waiting)? })
}

/// The times of `-e` in seconds, for 0 % to 100 %.
fn quantiles(percents: &str) -> Vec<f64> {
    let times = percents.lines().skip(1).filter_map(|line| line.split_once(',')?.1.trim().parse::<f64>().ok());
    times.map(|milliseconds| milliseconds / 1e3).collect()
}

/// The rows are in ascending order of their times, which are rounded to milliseconds; the percents are exact, so each
/// row is moved between the two beside it.
fn latency(rows: &[Row], quantiles: &[f64]) -> Latency {
    let mut recorder = Recorder::default();
    for (i, row) in rows.iter().enumerate() {
        let mut time = row.total as f64 / 1e3;
        if quantiles.len() == 101 {
            let percent = i * 100 / rows.len();
            let (least, most) = (quantiles[percent.saturating_sub(1)], quantiles[(percent + 2).min(100)]);
            time = time.max(least).min(most);
        }
        recorder.record(Duration::from_secs_f64(time));
    }
    let mut latency = recorder.latency();
    if quantiles.len() == 101 && !rows.is_empty() {
        (latency.min, latency.max) = (Some(quantiles[0]), Some(quantiles[100]));
        for (percentile, time) in &mut latency.percentiles {
            let exact = if percentile.fract() == 0.0 { quantiles[*percentile as usize] } else { *time };
            *time = exact.min(quantiles[100]);
        }
    }
    latency
}

fn milliseconds(times: impl Iterator<Item = u64>) -> Latency {
    let mut recorder = Recorder::default();
    times.for_each(|time| recorder.record(Duration::from_millis(time)));
    recorder.latency()
}

/// ab says when a request was begun, in whole seconds of the clock: the first of them is short.
fn timeline(rows: &[Row]) -> Vec<Second> {
    let Some(first) = rows.iter().map(|row| row.begun).min() else { return Vec::new() };
    let mut seconds: Vec<Vec<u64>> = Vec::new();
    for row in rows {
        let at = row.begun.abs_diff(first) as usize + (row.total / 1000) as usize;
        if seconds.len() <= at {
            seconds.resize(at + 1, Vec::new());
        }
        seconds[at].push(row.total);
    }
    let second = |mut times: Vec<u64>| {
        times.sort_unstable();
        let time = |i: usize| times.get(i).map(|&time| time as f64 / 1e3);
        Second {
            answered: times.len() as u64,
            failed: 0,
            median: time(times.len().saturating_sub(1) / 2),
            max: time(times.len().saturating_sub(1)),
        }
    };
    seconds.into_iter().map(second).collect()
}
