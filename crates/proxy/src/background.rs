//! Threads beside those that serve.

use std::io;
use std::thread::{Builder, JoinHandle};

/// How much less urgent they are: a scrape of thousands of servers computes for a tenth of a second, and on the same core a
/// request must not wait for it.
const NICE: i32 = 10;

/// Starts a thread that is less urgent than those that serve requests, which do not wait for it.
///
/// # Errors
/// The thread cannot be started.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let less_urgent = move || {
        // Linux counts it for the thread.
        let _ = rustix::process::nice(NICE);
        run();
    };
    Builder::new().name(name.into()).spawn(less_urgent)
}
