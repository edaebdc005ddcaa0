//! The least loaded of many servers, at a cost that does not grow with them: a tournament shared by the workers.
//!
//! A leaf's value is the load over the weight and, below it, a deadline: servers of equal load take turns in proportion
//! to their weights. Closed servers have the greatest value. Whoever changes a server's counts refreshes its leaf. What
//! changes by time alone (a fail timeout that ends, an average that fades) is found by a refresh of one more leaf at each
//! dispatch, in turn; the end of a fail timeout also by the worker that saw its start.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::Nanos;
use crate::fleet::Level;
use crate::policy::Context;
use crate::structures::tournament::{CLOSED, Tournament, VALUE_BITS};

const DEADLINE_BITS: u32 = 18;
const LOAD_MAX: u64 = (1 << (VALUE_BITS - DEADLINE_BITS)) - 2;
/// Units of virtual time in which every server gets as many turns as its weight.
const ROUND: u64 = 1 << 11;
/// Deadlines are stored relative to a base that moves on by this much.
const EPOCH: u64 = 1 << (DEADLINE_BITS - 1);
/// Leaves that a pick may look at before any open server will do.
const LOOKS: usize = 64;

/// The part shared by the workers.
pub(crate) struct Contest {
    tree: Tournament,
    /// Load times this is load over weight: exact when the least common multiple of the weights is up to 4096, else
    /// rounded to a sixteenth or better.
    factors: Box<[u32]>,
    /// Virtual time between two turns of a server.
    strides: Box<[u32]>,
    deadlines: Box<[AtomicU64]>,
    /// Virtual time of one dispatch.
    pace: f64,
    dispatches: AtomicU64,
    cursor: AtomicUsize,
}

impl Contest {
    pub fn new(level: &Level) -> Contest {
        let divisor = level.weights().fold(0, gcd).max(1);
        let unit = |w: u32| (w / divisor).max(1);
        let multiple = level.weights().map(unit).try_fold(1, |m: u32, w| {
            let m = u64::from(m / gcd(m, w)) * u64::from(w);
            (m <= 4096).then_some(m as u32)
        });
        let heaviest = level.weights().map(unit).max().unwrap_or(1);
        let scale = multiple.unwrap_or_else(|| heaviest.saturating_mul(8).min(1 << 20));
        let contest = Contest {
            tree: Tournament::new(level.len()),
            factors: level.weights().map(unit).map(|w| ((scale + w / 2) / w).max(1)).collect(),
            strides: level.weights().map(unit).map(|w| (ROUND as u32 / w).max(1)).collect(),
            deadlines: level.weights().map(|_| AtomicU64::new(0)).collect(),
            pace: ROUND as f64 / (level.total_weight / u64::from(divisor)).max(1) as f64,
            dispatches: AtomicU64::new(0),
            cursor: AtomicUsize::new(0),
        };
        for i in 0..level.len() {
            contest.refresh(level, 0, i, || level.burden(i, Nanos::MAX).div_ceil(256));
        }
        contest
    }

    fn virtual_time(&self) -> u64 {
        EPOCH + (self.dispatches.load(Relaxed) as f64 * self.pace) as u64
    }

    fn value(&self, level: &Level, now: Nanos, i: usize, load: u64) -> u64 {
        if !level.accepts(i, now) {
            return CLOSED;
        }
        let base = self.virtual_time() / EPOCH * EPOCH - EPOCH / 2;
        let deadline = self.deadlines[i].load(Relaxed).saturating_sub(base).min((1 << DEADLINE_BITS) - 1);
        let load = load.saturating_mul(u64::from(self.factors[i])).min(LOAD_MAX);
        load << DEADLINE_BITS | deadline
    }

    /// Brings a server's leaf up to date.
    #[inline]
    pub fn refresh(&self, level: &Level, now: Nanos, i: usize, load: impl Fn() -> u64) {
        self.tree.refresh(i, || self.value(level, now, i, load()));
    }

    /// The open server of the least load. `load` is a server's load now.
    pub fn pick(&self, cx: &mut Context<'_>, watch: &mut Watch, load: impl Fn(usize) -> u64) -> Option<usize> {
        let (level, now) = (cx.level, cx.now);
        watch.expired(now, |i| self.refresh(level, now, i, || load(i)));
        let found = self.tree.least(LOOKS, |i| {
            let accepts = level.accepts(i, now);
            if !accepts {
                self.refresh(level, now, i, || load(i));
                watch.add(level, i);
            }
            let open = accepts && !cx.tried.contains(level.slots[i].member);
            let admits = open && cx.spares(i);
            if open && !admits {
                // It gives up its turn.
                self.postpone(level, now, i, || load(i));
            }
            admits
        });
        found.or_else(|| cx.any())
    }

    /// A request went to server `i`: its turn is over.
    pub fn dispatched(&self, level: &Level, now: Nanos, i: usize, load: impl Fn(usize) -> u64) {
        self.dispatches.fetch_add(1, Relaxed);
        self.postpone(level, now, i, || load(i));
        let other = self.cursor.fetch_add(1, Relaxed) % level.len();
        if self.tree.leaf(other) != self.value(level, now, other, load(other)) {
            self.refresh(level, now, other, || load(other));
        }
    }

    /// Server `i` has had its turn.
    fn postpone(&self, level: &Level, now: Nanos, i: usize, load: impl Fn() -> u64) {
        let time = self.virtual_time();
        // A server that was idle does not make up for it, one that was busy does not pay for it.
        let deadline = self.deadlines[i].load(Relaxed).clamp(time, time + ROUND) + u64::from(self.strides[i]);
        self.deadlines[i].store(deadline, Relaxed);
        self.refresh(level, now, i, load);
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const WATCHED: usize = 64;

/// One worker's list of servers whose fail timeout it saw begin. Bounded: what does not fit is found in turn.
pub(crate) struct Watch {
    servers: [(Nanos, u32); WATCHED],
    len: usize,
    next: Nanos,
}

impl Watch {
    /// A list with those that failures have closed by now.
    pub fn new(level: &Level) -> Watch {
        let mut watch = Watch { servers: [(0, 0); WATCHED], len: 0, next: Nanos::MAX };
        (0..level.len()).for_each(|i| watch.add(level, i));
        watch
    }

    /// Notes when server `i` opens again, if failures closed it.
    pub fn add(&mut self, level: &Level, i: usize) {
        let Some(at) = level.opens_at(i) else { return };
        let known = self.servers[..self.len].iter().position(|(_, k)| *k as usize == i);
        let place = known.unwrap_or(self.len);
        if place < WATCHED {
            self.servers[place] = (at, i as u32);
            self.len = self.len.max(place + 1);
            self.next = self.next.min(at);
        }
    }

    fn expired(&mut self, now: Nanos, mut open: impl FnMut(usize)) {
        if now < self.next {
            return;
        }
        let mut kept = 0;
        self.next = Nanos::MAX;
        for k in 0..self.len {
            let (at, i) = self.servers[k];
            if at <= now {
                open(i as usize);
            } else {
                self.servers[kept] = (at, i);
                kept += 1;
                self.next = self.next.min(at);
            }
        }
        self.len = kept;
    }
}
