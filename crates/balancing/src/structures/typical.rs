//! A value for servers without measurements, and a penalty for failures, for algorithms that use averages.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::averages::fading;
use crate::report::{Outcome, Report};
use crate::tier::{SCAN, Tier};

/// Servers that a median is taken of.
const SAMPLE: usize = 31;
/// What a server without a response yet is taken for, beside a typical one, where times fade while no request waits: those
/// that respond fade below the typical between two responses, and it would never be asked.
pub(crate) const UNKNOWN: f64 = 0.9;
/// Time in which the penalty of failures fades.
pub(crate) const FORGIVING: Nanos = 10_000_000_000;
/// Failures in a row that count.
const FAILING_MAX: u32 = 12;

/// The median of what is known of a tier's servers; 0 as long as nothing is. A server that nothing is known of is taken
/// to be like that, so that it is neither flooded nor left out.
#[derive(Default)]
pub(crate) struct Typical {
    median: AtomicU64,
    /// Where the next sample of a large tier begins.
    cursor: AtomicU32,
}

impl Typical {
    /// The median.
    #[inline]
    pub fn get(&self) -> u64 {
        self.median.load(Relaxed)
    }

    /// Forgets it.
    pub fn clear(&self) {
        self.median.store(0, Relaxed);
    }

    /// Takes the median of what is known, of up to 31 servers.
    /// False if nothing is known of them.
    pub fn sample(&self, tier: &Tier, known: impl Fn(usize) -> Option<u64>) -> bool {
        let n = tier.len();
        let first = if n > SAMPLE { self.cursor.fetch_add(SAMPLE as u32, Relaxed) as usize } else { 0 };
        let mut values = [0; SAMPLE];
        let mut count = 0;
        for value in (0..n.min(SAMPLE)).filter_map(|k| known((first + k) % n)) {
            values[count] = value;
            count += 1;
        }
        if count > 0 {
            values[..count].sort_unstable();
            self.median.store(values[count / 2], Relaxed);
        }
        count > 0
    }

    /// Keeps the median up to date: every so many completions, of which this is the `nth`, and at first as long as nothing
    /// is known.
    #[inline]
    pub fn learn(&self, tier: &Tier, nth: u32, known: impl Fn(usize) -> Option<u64>) {
        let period = if tier.len() > SCAN { 64 } else { 16 };
        if nth.is_multiple_of(period) || nth < 1024 && self.get() == 0 {
            self.sample(tier, known);
        }
    }
}

/// Failures and error responses of each server since its last success. Algorithms that go by times double a server's
/// time for each, those that go by load add a busy server's load, so that one that fails fast does not look fast or idle.
/// The penalty fades with the time since the last of them.
pub(crate) struct Failing {
    servers: Box<[Failures]>,
    /// How many servers failed with their last request; while none did, no server is looked at.
    count: AtomicU32,
}

#[derive(Default)]
struct Failures {
    in_a_row: AtomicU32,
    /// When the last of them was.
    last: AtomicU64,
}

impl Failing {
    pub fn new(tier: &Tier) -> Failing {
        Failing { servers: tier.slots.iter().map(|_| Failures::default()).collect(), count: AtomicU32::new(0) }
    }

    /// Failures in a row, up to 12.
    #[inline]
    pub fn of(&self, i: usize) -> u32 {
        if self.count.load(Relaxed) == 0 { 0 } else { self.servers[i].in_a_row.load(Relaxed).min(FAILING_MAX) }
    }

    /// Learns from a completion.
    #[inline]
    pub fn learn(&self, now: Nanos, i: usize, report: &Report) {
        let server = &self.servers[i];
        if report.speaks_against() {
            server.last.store(now, Relaxed);
            if server.in_a_row.fetch_add(1, Relaxed) == 0 {
                self.count.fetch_add(1, Relaxed);
            }
        } else if report.outcome == Outcome::Success && self.of(i) != 0 && server.in_a_row.swap(0, Relaxed) != 0 {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    /// What is left of a penalty.
    fn left(&self, now: Nanos, i: usize, tau: Nanos) -> f64 {
        fading(now.saturating_sub(self.servers[i].last.load(Relaxed)), tau)
    }

    /// What the failures of a server add to its load, where 1 is fully busy: it doubles with each, and fades.
    #[inline]
    pub fn load(&self, now: Nanos, i: usize) -> f64 {
        match self.of(i) {
            0 => 0.0,
            failing => f64::from((1u32 << failing) - 1) * self.left(now, i, FORGIVING),
        }
    }

    /// A time in nanoseconds with the penalty, which fades down to the time itself.
    #[inline]
    pub fn penalty(&self, now: Nanos, i: usize, time: f64, typical: Nanos, tau: Nanos) -> f64 {
        match self.of(i) {
            0 => time,
            failing => {
                let least = time.max(typical as f64).max(1.0);
                (least * f64::from(1u32 << failing) * self.left(now, i, tau)).max(time)
            }
        }
    }
}
