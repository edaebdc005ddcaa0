//! httperf: connections at a rate, whether or not answers come.

use std::process::Command;

use anyhow::Context;

use super::{Run, after, failed, number};
use crate::plan::Arrivals;
use crate::record::{ErrorKind, Latency, Measured};

pub(super) fn command(run: &Run) -> anyhow::Result<Command> {
    let (spec, load) = (run.spec, &run.spec.load);
    let rate = load.rate.context("httperf needs a rate")?;
    let connections = match (load.requests, load.duration) {
        (Some(requests), _) => requests,
        (None, Some(duration)) => (rate * duration.0.as_secs_f64()).round().max(1.0) as u64,
        (None, None) => anyhow::bail!("httperf needs a duration or a number of requests"),
    };
    let mut command = run.command(None);
    // --hog: any free port, not only the first 5000.
    command.args(["--hog", "--num-calls", "1"]);
    command.arg("--server").arg(spec.target.ip().to_string()).arg("--port").arg(spec.target.port().to_string());
    command.arg("--uri").arg(run.page()).arg("--num-conns").arg(connections.to_string());
    command.arg("--timeout").arg(load.timeout.0.as_secs_f64().to_string());
    match load.arrivals {
        Arrivals::Constant => command.arg("--rate").arg(rate.to_string()),
        Arrivals::Poisson => command.arg("--period").arg(format!("e{}", 1.0 / rate)),
    };
    if let Some(host) = run.host() {
        command.arg("--server-name").arg(host);
    }
    Ok(command)
}

/// httperf's name of an error, and ours.
const ERRORS: [(&str, ErrorKind); 8] = [
    ("client-timo", ErrorKind::Timeout),
    ("socket-timo", ErrorKind::Timeout),
    ("connrefused", ErrorKind::Refused),
    ("connreset", ErrorKind::Reset),
    ("fd-unavail", ErrorKind::Descriptors),
    ("addrunavail", ErrorKind::Ports),
    ("ftab-full", ErrorKind::Descriptors),
    ("other", ErrorKind::Other),
];

pub(super) fn measured(output: &str) -> anyhow::Result<Measured> {
    let line = |label: &str| after(output, label).unwrap_or_default();
    let (total, statuses) = (line("Total:"), line("Reply status:"));
    let replies = value(total, "replies").context("httperf does not say how many replies it got")? as u64;
    let class = |name: &str| value(statuses, name).unwrap_or(0.0) as u64;
    let (client_errors, server_errors) = (class("4xx"), class("5xx"));
    let mut measured = Measured {
        seconds: value(total, "test-duration").context("httperf does not say how long the test took")?,
        answered: replies.saturating_sub(client_errors + server_errors),
        connections_max: value(&line("Connection rate:").replace("<=", "at-most "), "at-most").map(|most| most as u64),
        ..Measured::default()
    };
    failed(&mut measured, ErrorKind::ClientError, client_errors);
    failed(&mut measured, ErrorKind::ServerError, server_errors);
    let errors: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("Errors:")).collect();
    for (name, kind) in ERRORS {
        let count = value(&errors.concat(), name).unwrap_or(0.0);
        failed(&mut measured, kind, count as u64);
        if count > 0.0 {
            measured.more.insert(name.replace('-', "_"), count);
        }
    }
    for (name, label) in [
        ("connection_rate", "Connection rate:"),
        ("request_rate", "Request rate:"),
        ("burst_max", "Maximum connect burst length:"),
    ] {
        if let Some(value) = number(output, label) {
            measured.more.insert(name.into(), value);
        }
    }
    if replies > 0 {
        measured.latency = latency(replies, line("Connection time [ms]: min"));
        let mean = |label: &str| number(output, label).map(|time| time / 1e3);
        let only = |mean: f64| Latency { count: replies, mean: Some(mean), ..Latency::default() };
        measured.connect = mean("Connection time [ms]: connect").map(only);
        measured.waiting = mean("Reply time [ms]: response").map(only);
    }
    Ok(measured)
}

/// From the rest of the line after `min`: lives of connections, in milliseconds.
fn latency(count: u64, times: &str) -> Latency {
    let times = format!("min {times}");
    let seconds = |name| value(&times, name).map(|milliseconds| milliseconds / 1e3);
    Latency {
        count,
        min: seconds("min"),
        mean: seconds("avg"),
        max: seconds("max"),
        sd: seconds("stddev"),
        percentiles: seconds("median").map(|median| (50.0, median)).into_iter().collect(),
        histogram: Vec::new(),
    }
}

/// The number after a name, in a line where names and numbers take turns.
fn value(line: &str, name: &str) -> Option<f64> {
    let mut words = line.split([' ', '=', '\t']).filter(|word| !word.is_empty());
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}
