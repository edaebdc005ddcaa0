//! What a zone's limits have decided so far. Threads count in different cache lines.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Status;

const STRIPES: usize = 16;

/// Decisions of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decisions {
    /// Not limited.
    pub passed: u64,
    /// Delayed.
    pub delayed: u64,
    /// Rejected.
    pub rejected: u64,
    /// Would have been delayed.
    pub delayed_dry_run: u64,
    /// Would have been rejected.
    pub rejected_dry_run: u64,
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe([AtomicU64; 5]);

/// Counts decisions.
#[derive(Default)]
pub struct Counts([Stripe; STRIPES]);

fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    MINE.with(|mine| *mine)
}

impl Counts {
    /// Counts one.
    pub fn add(&self, status: Status) {
        self.0[stripe()].0[status as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All so far.
    pub fn sum(&self) -> Decisions {
        let of = |status: Status| self.0.iter().map(|stripe| stripe.0[status as usize].load(Ordering::Relaxed)).sum();
        Decisions {
            passed: of(Status::Passed),
            delayed: of(Status::Delayed),
            rejected: of(Status::Rejected),
            delayed_dry_run: of(Status::DelayedDryRun),
            rejected_dry_run: of(Status::RejectedDryRun),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_together() {
        let counts = Counts::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| counts.add(Status::Rejected)));
            }
        });
        counts.add(Status::DelayedDryRun);
        let expected = Decisions { rejected: 2000, delayed_dry_run: 1, ..Decisions::default() };
        assert_eq!(counts.sum(), expected);
    }
}
