//! Siege.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::{Run, failed, number, whole_seconds};
use crate::load::Recorder;
use crate::record::{ErrorKind, Measured};

const SETTINGS: &str = "siegerc";
const PAGES: &str = "urls.txt";
const REQUESTS: &str = "siege.txt";

/// What siege prints for an answer without a head: the connection was closed before, or it was not HTTP.
const NO_HEAD: u16 = 418;

pub(super) fn command(run: &Run) -> anyhow::Result<Command> {
    let load = &run.spec.load;
    let users = load.users.context("siege needs users")?;
    let write = |name, text: &str| {
        let file = run.file(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write(SETTINGS, &settings(users, whole_seconds(load.timeout.0), load.keep_alive))?;
    let mut command = run.command(Some(&run.file(REQUESTS)));
    command.arg("-R").arg(run.file(SETTINGS)).arg("-c").arg(users.to_string());
    command.args(["--no-parser", "--no-follow"]);
    if load.think.is_zero() {
        command.arg("-b");
    } else {
        // Siege thinks for a random time up to this: twice the mean.
        command.arg("-d").arg((load.think.0 * 2).as_secs_f64().to_string());
    }
    match (load.duration, load.requests) {
        (Some(duration), _) => command.arg("-t").arg(format!("{}S", whole_seconds(duration.0).max(1))),
        (None, Some(requests)) => command.arg("-r").arg(requests.div_ceil(u64::from(users.max(1))).to_string()),
        (None, None) => anyhow::bail!("siege needs a duration or a number of requests"),
    };
    if let Some(host) = run.host() {
        command.arg("-H").arg(format!("Host: {host}"));
    }
    if load.pages > 1 {
        let mut pages = String::new();
        for page in 0..load.pages {
            writeln!(pages, "{}", run.url(&load.path.replace("{}", &page.to_string())))?;
        }
        write(PAGES, &pages)?;
        command.args(["-i", "-f", PAGES]);
    } else {
        command.arg(run.url(&run.page()));
    }
    Ok(command)
}

/// Its settings file. `verbose` prints every request, `limit` is how many users it may have, and it goes on however
/// many requests fail.
fn settings(users: u32, timeout: u64, keep_alive: bool) -> String {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let limit = users.max(255);
    format!(
        "verbose = true\nquiet = false\ncolor = off\njson_output = false\nlogging = false\nshow-logfile = false\n\
         protocol = HTTP/1.1\ngmethod = GET\nchunked = true\ncache = false\nparser = false\nfollow-location = false\n\
         accept-encoding = identity\nconnection = {connection}\nlimit = {limit}\ntimeout = {timeout}\n\
         failures = 1000000000\n"
    )
}

pub(super) fn measured(run: &Run, output: &str) -> anyhow::Result<Measured> {
    let file = run.file(REQUESTS);
    let requests = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(output, &requests)
}

/// From its summary and the lines that it printed for the requests.
pub(super) fn parse(output: &str, requests: &str) -> anyhow::Result<Measured> {
    let field = |label: &str| number(output, label).with_context(|| format!("siege does not say \"{label}\""));
    let mut measured = Measured { seconds: field("Elapsed time:")?, ..Measured::default() };
    let mut recorder = Recorder::default();
    for (status, time) in requests.lines().filter_map(request) {
        if status == NO_HEAD {
            failed(&mut measured, ErrorKind::Closed, 1);
            continue;
        }
        *measured.statuses.entry(status).or_default() += 1;
        match status {
            400..500 => failed(&mut measured, ErrorKind::ClientError, 1),
            500.. => failed(&mut measured, ErrorKind::ServerError, 1),
            _ => recorder.record(time),
        }
    }
    measured.latency = recorder.latency();
    measured.answered = measured.latency.count;
    // The other failures are told on lines of their own: one each, in words of the system.
    let told = field("Failed transactions:")? as u64;
    let without_answer = told.saturating_sub(measured.errors.values().sum());
    let mut left = without_answer;
    for kind in output.lines().filter_map(complaint) {
        let counted = left.min(1);
        failed(&mut measured, kind, counted);
        left -= counted;
    }
    failed(&mut measured, ErrorKind::Other, left);
    for (name, label) in [
        ("transactions", "Transactions:"),
        ("availability", "Availability:"),
        ("elapsed_time", "Elapsed time:"),
        ("response_time", "Response time:"),
        ("transaction_rate", "Transaction rate:"),
        ("throughput", "Throughput:"),
        ("concurrency", "Concurrency:"),
        ("failed_transactions", "Failed transactions:"),
        ("longest_transaction", "Longest transaction:"),
        ("shortest_transaction", "Shortest transaction:"),
    ] {
        if let Some(value) = number(output, label) {
            measured.more.insert(name.into(), value);
        }
    }
    Ok(measured)
}

/// `HTTP/1.1 200     0.01 secs:      16 bytes ==> GET  /`
fn request(line: &str) -> Option<(u16, Duration)> {
    let mut words = line.strip_prefix("HTTP/")?.split_ascii_whitespace().skip(1);
    let (status, seconds) = (words.next()?.parse().ok()?, words.next()?.parse::<f64>().ok()?);
    (words.next()? == "secs:" && seconds >= 0.0).then(|| (status, Duration::from_secs_f64(seconds)))
}

/// `[error] socket: unable to connect sock.c:282: Connection refused`
fn complaint(line: &str) -> Option<ErrorKind> {
    const WORDS: [(&str, ErrorKind); 8] = [
        ("refused", ErrorKind::Refused),
        ("reset", ErrorKind::Reset),
        ("broken pipe", ErrorKind::Reset),
        ("too many open files", ErrorKind::Descriptors),
        ("cannot assign requested address", ErrorKind::Ports),
        ("address is unavailable", ErrorKind::Ports),
        ("timed out", ErrorKind::Timeout),
        ("timeout", ErrorKind::Timeout),
    ];
    let line = line.to_ascii_lowercase();
    if !line.contains("error") {
        return None;
    }
    WORDS.iter().find(|(words, _)| line.contains(words)).map(|(_, kind)| *kind)
}
