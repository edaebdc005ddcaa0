//! The workload server: a small HTTP/1.1 server whose cost for each request is known.
//!
//! A target has a runtime of its own, so several targets in one process disturb each other only through the machine's
//! cores. Inside a target, `threads` threads accept, read and answer, and CPU work runs on as many further threads: a
//! long computation never holds up another connection or the accept loop. Requests beyond `concurrency` wait in the
//! order of their arrival; connections beyond `connections` wait in the kernel's listen queue, `backlog` long.
//!
//! ```no_run
//! use balanza_lab::target::Target;
//!
//! let handle = Target { name: "one".into(), ..Target::default() }.spawn()?;
//! println!("curl http://{}/", handle.address());
//! println!("{} requests answered", handle.stop().requests);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod options;
mod server;
mod socket;
mod stats;
mod workload;

use std::io::{self, Write};

use anyhow::Context;

pub use options::{Kind, Options};
pub use server::{Handle, Target};
pub use stats::Stats;
pub use workload::Workload;

/// Path at which every target answers with its [`Stats`] as JSON, without counting the request.
pub const STATS_PATH: &str = "/_target/stats";

/// Runs the targets that `options` describe until INT, TERM, HUP or QUIT, then prints what each of them did.
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
            say(&format!("{} listens on {}: {description}", handle.name(), handle.address()))?;
        }
        signals.recv().await;
        for handle in handles {
            let stats = handle.stop();
            say(&format!(
                "{}: {} requests on {} connections, at most {} in flight and {} waiting",
                stats.name, stats.requests, stats.connections, stats.max_in_flight, stats.max_queued
            ))?;
        }
        Ok(())
    })
}

/// Prints a line; a reader that went away (`balanza target | head -1`) is no reason to stop serving.
fn say(line: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
