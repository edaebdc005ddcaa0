//! NGINX's smooth weighted round robin, by scanning: the reference for small fleets.

use crate::driver::Start;
use crate::fleet::Level;
use crate::policy::Context;
use crate::rng::Rng;

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

    /// One turn among all open servers.
    pub fn pick(&mut self, cx: &Context<'_>) -> Option<usize> {
        self.turn(cx.level, (0..cx.level.len()).filter(|i| cx.open(*i)))
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
    cx: &Context<'_>,
    smooth: &mut Smooth,
    compare: impl Fn(usize, usize) -> std::cmp::Ordering,
) -> Option<usize> {
    use std::cmp::Ordering::{Equal, Less};
    let mut best: Option<usize> = None;
    let mut many = false;
    // Only small fleets are scanned, so a word holds who is open.
    let mut open = 0u64;
    for i in (0..cx.level.len()).filter(|i| cx.open(*i)) {
        open |= 1 << i;
        match best.map_or(Less, |b| compare(i, b)) {
            Less => (best, many) = (Some(i), false),
            Equal => many = true,
            _ => {}
        }
    }
    let first = best?;
    if !many {
        return best;
    }
    smooth.turn(cx.level, (first..cx.level.len()).filter(|i| open >> i & 1 == 1 && compare(*i, first) == Equal))
}
