//! Weighted round robin whose cost does not grow with the servers.
//!
//! Servers of one weight form a class with plain round robin. The classes are scheduled by earliest deadline first,
//! each with the sum of its servers' weights. A round is as even as with smooth weighted round robin.

use std::sync::Arc;

use crate::policy::{Context, Start};
use crate::rng::Rng;
use crate::tier::Tier;

/// Looks before the walk gives up its order and takes the first open server.
const LOOKS: usize = 64;
/// Turns that a server can owe.
const DEBT_MAX: i64 = 64;
/// Virtual time between two turns of a class of weight 1.
const STRIDE: u64 = 1 << 48;

/// The read-only part: the classes and their servers.
pub(crate) struct RotationPlan {
    /// Servers ordered by class.
    order: Box<[u32]>,
    classes: Box<[Class]>,
}

struct Class {
    first: usize,
    len: usize,
    stride: u64,
}

impl RotationPlan {
    pub fn new(tier: &Tier) -> RotationPlan {
        RotationPlan::of(tier, 0..tier.len() as u32)
    }

    /// The same for some of a tier's servers.
    pub fn of(tier: &Tier, servers: impl Iterator<Item = u32>) -> RotationPlan {
        let weight = |i: &u32| tier.slots[*i as usize].weight;
        let mut order: Vec<u32> = servers.filter(|i| weight(i) != 0).collect();
        order.sort_by_key(|i| std::cmp::Reverse(weight(i)));
        let mut classes = Vec::new();
        for members in order.chunk_by(|a, b| weight(a) == weight(b)) {
            let total = u64::from(weight(&members[0])) * members.len() as u64;
            let first = classes.last().map_or(0, |c: &Class| c.first + c.len);
            classes.push(Class { first, len: members.len(), stride: STRIDE / total });
        }
        RotationPlan { order: order.into(), classes: classes.into() }
    }
}

/// One worker's part: whose turn it is.
pub(crate) struct Rotation {
    plan: Arc<RotationPlan>,
    /// Next in each class.
    cursors: Box<[usize]>,
    /// (deadline, class), a binary heap with the earliest first. Deadlines wrap; they are never far apart.
    heap: Box<[(u64, u32)]>,
    /// Requests that each server got out of turn and has not given up a turn for, and their sum.
    owed: Box<[u32]>,
    owed_total: u64,
}

impl Rotation {
    pub fn new(plan: Arc<RotationPlan>, tier: &Tier, start: Start, rng: &mut Rng) -> Rotation {
        Rotation { owed: vec![0; tier.len()].into(), ..Rotation::without_debts(plan, start, rng) }
    }

    /// The same for picks that are not charged to a server.
    pub fn without_debts(plan: Arc<RotationPlan>, start: Start, rng: &mut Rng) -> Rotation {
        let workers = start.workers.max(1);
        let offset = |len: usize, rng: &mut Rng| {
            if workers == 1 {
                return 0;
            }
            let spread = rng.below(len.div_ceil(workers) as u64) as usize;
            (len * start.worker / workers + spread) % len
        };
        let cursors = plan.classes.iter().map(|c| offset(c.len, rng)).collect();
        let mut heap: Box<[(u64, u32)]> = plan.classes.iter().zip(0..).map(|(c, k)| (c.stride, k)).collect();
        heap.sort_unstable();
        Rotation { plan, cursors, heap, owed: Box::default(), owed_total: 0 }
    }

    /// Takes the next server. O(log classes).
    #[inline]
    fn next(&mut self) -> Option<usize> {
        let &(deadline, k) = self.heap.first()?;
        let class = &self.plan.classes[k as usize];
        let cursor = &mut self.cursors[k as usize];
        let index = self.plan.order[class.first + *cursor];
        *cursor = if *cursor + 1 == class.len { 0 } else { *cursor + 1 };
        if self.heap.len() > 1 {
            self.heap[0].0 = deadline.wrapping_add(class.stride);
            self.sift();
        }
        Some(index as usize)
    }

    fn sift(&mut self) {
        let before = |a: (u64, u32), b: (u64, u32)| match a.0.wrapping_sub(b.0) as i64 {
            0 => a.1 < b.1,
            ahead => ahead < 0,
        };
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && before(self.heap[right], self.heap[left]) { right } else { left };
            if !before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }

    /// The next open server. Closed ones lose their turn; after 64 of them any open one will do.
    pub fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        self.turn(cx).or_else(|| cx.any())
    }

    /// The next open server within 64 turns.
    pub fn turn(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        for _ in 0..LOOKS {
            let index = self.next()?;
            if self.owed_total != 0 && self.pays(cx.tier, index) {
                continue;
            }
            if cx.admits(index) {
                return Some(index);
            }
        }
        None
    }

    /// A request that was bound for server `i` counts as its turn. A server that has more of them than its share for long
    /// does not pay for it forever.
    pub fn charge(&mut self, tier: &Tier, i: usize) {
        if self.excess(tier, i) < DEBT_MAX {
            self.owed[i] += 1;
            self.owed_total += 1;
        }
    }

    /// What server `i` owes beyond its share of what all owe, in turns.
    fn excess(&self, tier: &Tier, i: usize) -> i64 {
        let share =
            u128::from(self.owed_total) * u128::from(tier.slots[i].weight) / u128::from(tier.total_weight.max(1));
        i64::from(self.owed[i]) - share as i64
    }

    /// Whether server `i` gives up a turn for what it owes.
    fn pays(&mut self, tier: &Tier, i: usize) -> bool {
        let pays = self.excess(tier, i) > 0;
        if pays {
            self.owed[i] -= 1;
            self.owed_total -= 1;
        }
        pays
    }
}
