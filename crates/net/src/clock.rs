//! The data plane's only clock: monotonic nanoseconds.

#[cfg(feature = "simulation")]
pub(crate) mod virtual_time;

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the system's monotonic clock, which began when the machine did.
pub type Nanos = u64;

/// Now.
pub fn now() -> Nanos {
    let now = monotonic();
    RECENT.set(now);
    now
}

pub(crate) fn monotonic() -> Nanos {
    #[cfg(feature = "simulation")]
    if let Some(virtual_time) = virtual_time::now() {
        return virtual_time;
    }
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec as Nanos * 1_000_000_000 + tv_nsec as Nanos
}

/// What [`now`] last said on this thread. The event loop asks each time before it runs tasks, so this is at most one
/// batch of tasks old, and costs no look at the clock.
pub fn recent() -> Nanos {
    RECENT.get()
}

/// The moment `duration` after [`recent`].
pub fn after(duration: Duration) -> Nanos {
    recent().saturating_add(nanos(duration))
}

/// A duration in nanoseconds; those of centuries are all the same.
pub fn nanos(duration: Duration) -> Nanos {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

/// Time since the Unix epoch.
pub fn wall() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(virtual_time) = virtual_time::wall() {
        return virtual_time;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

thread_local! {
    static RECENT: Cell<Nanos> = const { Cell::new(0) };
}
