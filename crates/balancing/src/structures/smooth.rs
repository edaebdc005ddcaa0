//! NGINX's smooth weighted round robin, by scanning: the reference for small fleets.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use crate::Nanos;
use crate::driver::Start;
use crate::fleet::Level;
use crate::policy::Context;
use crate::rng::Rng;

/// Turns that may be given up before the one whose turn it is has to take it.
const LOOKS: usize = 64;
/// Rounds that a server can owe.
const DEBT_MAX: i64 = 16;

/// Each turn every candidate gains its effective weight, and the one ahead pays what all gained. The effective weight
/// falls with failures and climbs back by one a turn.
pub(crate) struct Smooth {
    current: Box<[i64]>,
    effective: Box<[i64]>,
}

impl Smooth {
    pub fn new(level: &Level, start: Start, rng: &mut Rng) -> Smooth {
        let n = level.len();
        let effective = level.weights().map(i64::from).collect();
        let mut smooth = Smooth { current: vec![0; n].into(), effective };
        // Several workers begin each at a random place in its part of a round (or of the first turns of a long one).
        let (worker, workers) = (start.worker as u64, start.workers.max(1) as u64);
        if workers > 1 {
            let round = level.total_weight.min(4096);
            let skipped = round * worker / workers + rng.below(round.div_ceil(workers));
            for _ in 0..skipped {
                smooth.turn(level, 0..n);
            }
        }
        smooth
    }

    /// One turn among the candidates, in order; the first of those equally far ahead wins. O(candidates).
    pub fn turn(&mut self, level: &Level, candidates: impl Iterator<Item = usize>) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for i in candidates {
            total += self.gain(level, i);
            if best.is_none_or(|b| self.current[i] > self.current[b]) {
                best = Some(i);
            }
        }
        self.current[best?] -= total;
        best
    }

    /// One turn among all open servers; one that is not to have all its turns gives up some.
    pub fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let mut found = None;
        for _ in 0..LOOKS {
            found = self.turn(cx.level, (0..cx.level.len()).filter(|i| cx.open(*i)));
            if cx.spares(found?) {
                break;
            }
        }
        found
    }

    /// A request that was bound for server `i` counts as its turn. O(n). A server that has more of them than its share
    /// for long does not pay for it forever.
    pub fn charge(&mut self, level: &Level, now: Nanos, i: usize) {
        if self.current[i] < -(DEBT_MAX * level.total_weight as i64) {
            return;
        }
        let mut total = 0;
        for j in (0..level.len()).filter(|j| *j == i || level.accepts(*j, now)) {
            total += self.gain(level, j);
        }
        self.current[i] -= total;
    }

    fn gain(&mut self, level: &Level, i: usize) -> i64 {
        let gained = self.effective[i];
        self.current[i] += gained;
        if gained < i64::from(level.slots[i].weight) {
            self.effective[i] += 1;
        }
        gained
    }

    /// A failure costs the server a part of its weight.
    pub fn on_failure(&mut self, level: &Level, i: usize) {
        let slot = &level.slots[i];
        if let Some(loss) = slot.weight.checked_div(slot.max_fails) {
            self.effective[i] = (self.effective[i] - i64::from(loss)).max(0);
        }
    }
}

/// The choice of algorithms that look for the least score, as NGINX makes it: the least wins, and those that share the
/// least take turns. `compare` orders two servers by their scores.
pub(crate) fn least(
    cx: &mut Context<'_>,
    smooth: &mut Smooth,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Option<usize> {
    // Only small fleets are scanned, so a word holds who is open.
    let mut open = 0u64;
    let lead = lead((0..cx.level.len()).filter(|i| cx.open(*i)).inspect(|i| open |= 1 << i), &compare)?;
    let winner = turn_of(cx.level, smooth, open, lead, &compare)?;
    if cx.spares(winner) { Some(winner) } else { give_way(cx, smooth, open, winner, &compare) }
}

/// The first of the least, and whether others share its place.
#[inline]
fn lead(candidates: impl Iterator<Item = usize>, compare: impl Fn(usize, usize) -> Ordering) -> Option<(usize, bool)> {
    let mut best: Option<(usize, bool)> = None;
    for i in candidates {
        match best.map_or(Less, |(b, _)| compare(i, b)) {
            Less => best = Some((i, false)),
            Equal => best = best.map(|(b, _)| (b, true)),
            Greater => {}
        }
    }
    best
}

#[inline]
fn turn_of(
    level: &Level,
    smooth: &mut Smooth,
    open: u64,
    (first, shared): (usize, bool),
    compare: impl Fn(usize, usize) -> Ordering,
) -> Option<usize> {
    if !shared {
        return Some(first);
    }
    // Other threads change the scores meanwhile, even that of the first between two looks at it.
    let equal = |i: &usize| *i == first || compare(*i, first) == Equal;
    smooth.turn(level, (first..level.len()).filter(|i| open >> i & 1 == 1 && equal(i)))
}

/// The best that takes the request where the winner, which is not to have all that it would win, does not; the winner if
/// nobody does.
#[cold]
fn give_way(
    cx: &mut Context<'_>,
    smooth: &mut Smooth,
    open: u64,
    winner: usize,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Option<usize> {
    let mut left = open & !(1 << winner);
    while left != 0 {
        let lead = lead((0..cx.level.len()).filter(|i| left >> i & 1 == 1), &compare)?;
        let next = turn_of(cx.level, smooth, left, lead, &compare)?;
        if cx.spares(next) {
            return Some(next);
        }
        left &= !(1 << next);
    }
    Some(winner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Counter;
    use std::sync::Arc;

    use super::*;
    use crate::registry::{Spec, find};
    use crate::{Cell, Fleet, ServerSpec, Tried};

    #[test]
    fn scores_that_change_meanwhile_leave_a_choice() {
        let spec = Spec::new(find("least_conn").unwrap(), &[]).unwrap();
        let servers = (0..5).map(|i| (ServerSpec::new(&format!("s{i}:80")), Arc::new(Cell::new()))).collect();
        let fleet = Fleet::new(&spec, servers).unwrap();
        let level = &*fleet.levels()[0];
        let (mut rng, mut tried) = (Rng::new(1), Tried::default());
        let mut smooth = Smooth::new(level, Start::default(), &mut rng);
        // All are equal while the least is sought, and none is when they take turns.
        let looks = Counter::new(0);
        let compare = |_, _| {
            looks.set(looks.get() + 1);
            if looks.get() < 5 { Equal } else { Greater }
        };
        let mut cx = Context { now: 0, level, key: b"", keyed: false, tried: &mut tried, rng: &mut rng };
        assert_eq!(least(&mut cx, &mut smooth, compare), Some(0));
        assert!(looks.get() > 5);
    }
}
