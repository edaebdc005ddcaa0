//! The least of many servers, at a cost that does not grow with them: a tournament shared by the workers.
//!
//! A leaf's value is the server's score and, below it, a deadline: ties are broken by round robin, in proportion to the
//! weights. Closed servers have the greatest value. A thread that changes a server's counts refreshes its leaf. Changes
//! by time alone (a fail timeout that ends, an average that fades) are found because each dispatch refreshes one more
//! leaf, in rotation; the end of a fail timeout also by the worker that saw its start.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::Nanos;
use crate::policy::Context;
use crate::structures::tournament::{CLOSED, Tournament};
use crate::tier::Tier;

const DEADLINE_BITS: u32 = 18;
/// Units of virtual time in which every server gets as many turns as its weight.
const ROUND: u64 = 1 << 11;
/// Deadlines are stored relative to a base that moves on by this much.
const EPOCH: u64 = 1 << (DEADLINE_BITS - 1);
/// Leaves that a pick may look at before any open server will do.
const LOOKS: usize = 64;

/// The part shared by the workers.
pub(crate) struct Contest {
    tree: Tournament,
    /// Virtual time between two turns of a server.
    strides: Box<[u32]>,
    deadlines: Box<[AtomicU64]>,
    /// Virtual time of one dispatch.
    pace: f64,
    dispatches: AtomicU64,
    cursor: AtomicUsize,
}

impl Contest {
    /// `score` is a server's score now.
    pub fn new(tier: &Tier, score: impl Fn(usize) -> f64) -> Contest {
        let divisor = tier.weights().fold(0, gcd).max(1);
        let unit = |w: u32| (w / divisor).max(1);
        let contest = Contest {
            tree: Tournament::new(tier.len()),
            strides: tier.weights().map(unit).map(|w| (ROUND as u32 / w).max(1)).collect(),
            deadlines: tier.weights().map(|_| AtomicU64::new(0)).collect(),
            pace: ROUND as f64 / (tier.total_weight / u64::from(divisor)).max(1) as f64,
            dispatches: AtomicU64::new(0),
            cursor: AtomicUsize::new(0),
        };
        for i in 0..tier.len() {
            contest.refresh(tier, 0, i, || score(i));
        }
        contest
    }

    fn virtual_time(&self) -> u64 {
        EPOCH + (self.dispatches.load(Relaxed) as f64 * self.pace) as u64
    }

    fn value(&self, tier: &Tier, now: Nanos, i: usize, score: f64) -> u64 {
        if !tier.accepts(i, now) {
            return CLOSED;
        }
        let base = self.virtual_time() / EPOCH * EPOCH - EPOCH / 2;
        let deadline = self.deadlines[i].load(Relaxed).saturating_sub(base).min((1 << DEADLINE_BITS) - 1);
        // Of a positive number the bits are in the order of the numbers. Without the sign and the last bit there are 30,
        // of which infinity has not the greatest.
        let score = u64::from((score.max(0.0) as f32).to_bits() >> 1);
        score << DEADLINE_BITS | deadline
    }

    /// Brings a server's leaf up to date.
    #[inline]
    pub fn refresh(&self, tier: &Tier, now: Nanos, i: usize, score: impl Fn() -> f64) {
        self.tree.refresh(i, || self.value(tier, now, i, score()));
    }

    /// The open server of the least score. `score` is a server's score now.
    pub fn pick(&self, cx: &mut Context<'_>, watch: &mut Watch, score: impl Fn(usize) -> f64) -> Option<usize> {
        let (tier, now) = (cx.tier, cx.now);
        watch.expired(now, |i| self.refresh(tier, now, i, || score(i)));
        let found = self.tree.least(LOOKS, |i| {
            let accepts = tier.accepts(i, now);
            if !accepts {
                self.refresh(tier, now, i, || score(i));
                watch.add(tier, i);
            }
            let open = accepts && !cx.tried.contains(tier.slots[i].member);
            let admits = open && cx.spares(i);
            if open && !admits {
                // It gives up its turn.
                self.postpone(tier, now, i, || score(i));
            }
            admits
        });
        found.or_else(|| cx.any())
    }

    /// A request went to server `i`: its deadline moves on.
    pub fn dispatched(&self, tier: &Tier, now: Nanos, i: usize, score: impl Fn(usize) -> f64) {
        self.dispatches.fetch_add(1, Relaxed);
        self.postpone(tier, now, i, || score(i));
        let other = self.cursor.fetch_add(1, Relaxed) % tier.len();
        if self.tree.leaf(other) != self.value(tier, now, other, score(other)) {
            self.refresh(tier, now, other, || score(other));
        }
    }

    /// Server `i` has had its turn.
    fn postpone(&self, tier: &Tier, now: Nanos, i: usize, score: impl Fn() -> f64) {
        let time = self.virtual_time();
        // A server that was idle does not make up for it, one that was busy does not pay for it.
        let deadline = self.deadlines[i].load(Relaxed).clamp(time, time + ROUND) + u64::from(self.strides[i]);
        self.deadlines[i].store(deadline, Relaxed);
        self.refresh(tier, now, i, score);
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const WATCHED: usize = 64;

/// One worker's list of servers whose fail timeout it saw begin. Bounded: what does not fit is found by the rotation.
pub(crate) struct Watch {
    servers: [(Nanos, u32); WATCHED],
    len: usize,
    next: Nanos,
}

impl Watch {
    /// A list with those that failures have closed by now.
    pub fn new(tier: &Tier) -> Watch {
        let mut watch = Watch { servers: [(0, 0); WATCHED], len: 0, next: Nanos::MAX };
        (0..tier.len()).for_each(|i| watch.add(tier, i));
        watch
    }

    /// Notes when server `i` opens again, if failures closed it.
    pub fn add(&mut self, tier: &Tier, i: usize) {
        let Some(at) = tier.opens_at(i) else { return };
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
