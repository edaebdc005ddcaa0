//! How far a simulation is, for whoever watches it from another thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Parts of a replication are counted in 2^-20.
const UNIT: f64 = (1u64 << 20) as f64;

/// How far a simulation is.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// The part that is done, as far as it is known what there is to do.
    pub fn part(&self) -> f64 {
        (self.done.load(Relaxed) as f64 / self.total.load(Relaxed).max(1) as f64).min(1.0)
    }

    /// Ends the simulation early; its results do not count.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Whether [`Progress::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// There are so many replications more to do.
    pub(crate) fn expect(&self, replications: f64) {
        self.total.fetch_add((replications * UNIT) as u64, Relaxed);
    }

    /// A part of a replication is done.
    pub(crate) fn add(&self, part: f64) {
        self.done.fetch_add((part * UNIT) as u64, Relaxed);
    }
}
