//! The workload server: a small HTTP/1.1 server whose cost for each request is known.
//!
//! A target has a runtime of its own, so several targets in one process disturb each other only through the machine's
//! cores. Inside a target, `threads` threads accept, read and answer, and CPU work runs on as many further threads: a
//! long computation never holds up another connection or the accept loop. Requests beyond `concurrency` wait in the
//! order of their arrival; connections beyond `connections` wait in the kernel's listen queue, `backlog` long.
//!
//! Work is done ([`Service::Burn`]) or only its time passes ([`Service::Virtual`]). Virtual times are computed: `station`
//! is the queue as pure data, `queue` brings it together with the clock, `timer` and the requests, and `accept` keeps the
//! time between two connections from being lost.
//!
//! ```no_run
//! use balanza_lab::target::Target;
//!
//! let handle = Target { name: "one".into(), ..Target::default() }.spawn()?;
//! println!("curl http://{}/", handle.address());
//! println!("{} requests answered", handle.stop().requests);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod accept;
mod answer;
mod control;
mod cost;
mod credits;
mod meaning;
mod options;
mod queue;
mod server;
mod settings;
mod socket;
mod station;
mod stats;
mod timer;
mod workload;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::SignalKind;

use crate::units::count;

pub use control::CHANGE_PATH;
pub use cost::{Distribution, Service};
pub use credits::Credits;
pub use options::{Kind, Options};
pub use server::Handle;
pub use settings::Target;
pub use station::Discipline;
pub use stats::Stats;
pub use workload::Workload;

/// Path at which every target answers with its [`Stats`] as JSON, without counting the request.
pub const STATS_PATH: &str = "/_target/stats";

/// Where a target answers probes of `balance prequal` (`probe=/balanza-load`).
pub const LOAD_PATH: &str = "/balanza-load";

/// Field of the answers of a target that reports its load, for `load_report header`.
pub const LOAD_FIELD: &str = "x-load";

/// How long a target that was told to finish its requests may take.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Runs the targets that `options` describe until INT, TERM or HUP, or until QUIT and the end of their requests; then prints
/// what each of them did.
///
/// Errors: options that contradict each other; an address that cannot be bound, for example because it is in use.
pub fn run(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = crate::signals::EndSignals::install().context("cannot handle signals")?;
        let targets = options.targets()?;
        let descriptions: Vec<String> = targets.iter().map(Target::describe).collect();
        let handles = targets.into_iter().map(Target::spawn).collect::<anyhow::Result<Vec<Handle>>>()?;
        for (handle, description) in handles.iter().zip(descriptions) {
            say(&format!("{}: {description}", introduction(handle.name(), handle.address(), handle.control())))?;
        }
        if signals.recv().await == SignalKind::quit() {
            handles.iter().for_each(Handle::drain);
            // Another signal ends it in any case.
            let _ = tokio::time::timeout(DRAIN_MAX, async {
                tokio::select! {
                    () = drained(&handles) => {}
                    _ = signals.recv() => {}
                }
            })
            .await;
        }
        for handle in handles {
            say(&summary(&handle.stop()))?;
        }
        Ok(())
    })
}

async fn drained(handles: &[Handle]) {
    while !handles.iter().all(Handle::has_ended) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A server that has no name of its own is called by its address.
fn introduction(name: &str, address: SocketAddr, control: Option<SocketAddr>) -> String {
    let mut text = format!("listening on {address}");
    if name != address.to_string() {
        text = format!("{name}, {text}");
    }
    if let Some(control) = control {
        text += &format!(", counters on {control}");
    }
    text
}

fn summary(stats: &Stats) -> String {
    let (requests, connections) = (count(stats.requests, "request"), count(stats.connections, "connection"));
    let mut text = format!("{}: {requests} on {connections}, at most {} at once", stats.name, stats.max_in_flight);
    if stats.max_queued > 0 {
        text += &format!(" and {} waiting", stats.max_queued);
    }
    text
}

/// Prints a line; a reader that went away (`balanza target | head -1`) is no reason to stop serving.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_said_well() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(introduction("127.0.0.1:8001", address(8001), None), "listening on 127.0.0.1:8001");
        assert_eq!(introduction("web-1", address(8001), None), "web-1, listening on 127.0.0.1:8001");
        let both = introduction("web-1", address(8001), Some(address(8101)));
        assert_eq!(both, "web-1, listening on 127.0.0.1:8001, counters on 127.0.0.1:8101");
        let stats = Stats { name: "web-1".into(), requests: 1, connections: 1, max_in_flight: 1, ..Stats::default() };
        assert_eq!(summary(&stats), "web-1: 1 request on 1 connection, at most 1 at once");
        let stats = Stats { requests: 20, connections: 2, max_queued: 3, ..stats };
        assert_eq!(summary(&stats), "web-1: 20 requests on 2 connections, at most 1 at once and 3 waiting");
    }
}
