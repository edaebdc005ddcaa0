//! The time of a simulation: the runtime's, which stands still while anything can run.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use super::Nanos;

/// Virtual time at the beginning of a run.
const BEGIN: Nanos = 1_000_000_000_000;
/// Seconds since the Unix epoch at the beginning of a run.
const BEGIN_WALL: u64 = 1_767_225_600;

thread_local! {
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// From now on the time of this thread is virtual.
pub fn begin() {
    BEGUN.set(Some(Instant::now()));
}

/// From now on it is the system's.
pub fn end() {
    BEGUN.set(None);
}

/// Virtual time, while a simulation runs on this thread.
pub fn now() -> Option<Nanos> {
    BEGUN.get().map(|begun| BEGIN + begun.elapsed().as_nanos() as Nanos)
}

/// Virtual time since the Unix epoch, while a simulation runs on this thread.
pub fn wall() -> Option<Duration> {
    BEGUN.get().map(|begun| Duration::from_secs(BEGIN_WALL) + begun.elapsed())
}
