//! Loads from a program that keeps running and writes lines.
//!
//! A line is `SERVER LOAD`, where SERVER is a server as the configuration writes it or its address, and LOAD a number
//! (1.0 is a busy server) or an agent's words (`app1:80 50% maxconn:20`). It may write at any time, or wait for a line
//! `report` on its standard input, which comes at each interval. If no line at all comes within the timeout after such
//! a question, that is logged once.

use std::rc::Rc;

use balanza_config::model::{Level, LoadReport};
use balanza_net::clock;
use balanza_net::shortage::describe;

use super::agent;
use super::server::Feed;
use crate::helper::{Helper, Pauses};

use crate::log::error::ErrorWriter;

/// Runs the program until the task is ended; starts it again when it ends.
pub async fn follow(argv: Vec<String>, report: LoadReport, feeds: Vec<Feed>, log: Rc<ErrorWriter>) {
    let mut pauses = Pauses::default();
    let name = argv.first().cloned().unwrap_or_default();
    loop {
        pauses.start();
        let ended = match Helper::start(&argv) {
            Ok(mut helper) => {
                listen(&mut helper, &report, &feeds, &log).await;
                format!("ended ({})", helper.end())
            }
            Err(error) => format!("cannot be started {}", describe(&error)),
        };
        let pause = pauses.pause();
        let again = format_args!("load report program \"{name}\" {ended}, restarting in {pause:?}");
        log.write(Level::Error, again);
        let mut rest = pause;
        while !rest.is_zero() {
            let step = rest.min(report.interval);
            tokio::time::sleep(step).await;
            rest -= step;
            check(&feeds);
        }
    }
}

fn check(feeds: &[Feed]) {
    let now = clock::now();
    feeds.iter().for_each(|feed| feed.check(now));
}

/// Takes lines until the program ends.
async fn listen(helper: &mut Helper, report: &LoadReport, feeds: &[Feed], log: &ErrorWriter) {
    let mut interval = tokio::time::interval(report.interval);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The time limit of the last question; none when something has come since.
    let mut limit = None;
    // One complaint about a kind of nonsense is enough, and one about silence until it says something.
    let (mut complained, mut silent) = (false, false);
    loop {
        tokio::select! {
            line = helper.output.next() => {
                let Some(line) = line else { return };
                (limit, silent) = (None, false);
                if !take(line, feeds) && !std::mem::replace(&mut complained, true) {
                    let line = line.escape_ascii();
                    log.write(Level::Warn, format_args!("load report program: \"{line}\" is not \"SERVER LOAD\""));
                }
            }
            _ = interval.tick() => {
                // A program that never reads has its pipe full at some time, and misses nothing.
                let _ = helper.input.try_write(b"report\n");
                limit = Some(tokio::time::Instant::now() + report.timeout);
                check(feeds);
            }
            () = sleep_until(limit) => {
                limit = None;
                if !std::mem::replace(&mut silent, true) {
                    log.write(Level::Warn, format_args!("load report program: no report within {:?}", report.timeout));
                }
            }
        }
    }
}

/// Never wakes without a moment.
async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Passes a line on to the servers that it names; false if it is none.
fn take(line: &[u8], feeds: &[Feed]) -> bool {
    let Some(blank) = line.iter().position(u8::is_ascii_whitespace) else { return false };
    let (name, said) = (&line[..blank], line[blank..].trim_ascii());
    let load = std::str::from_utf8(said).ok().and_then(|said| said.parse::<f64>().ok());
    let statement = agent::parse(said);
    let makes_sense = match load {
        Some(load) => load.is_finite() && load >= 0.0,
        None => !statement.is_empty(),
    };
    if !makes_sense {
        return false;
    }
    let now = clock::now();
    let mut known = false;
    for feed in feeds.iter().filter(|feed| feed.is_named(name)) {
        known = true;
        match load {
            Some(load) => feed.load(now, load),
            None => feed.says(now, &statement),
        }
    }
    known
}
