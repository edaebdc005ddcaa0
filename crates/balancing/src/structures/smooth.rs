//! NGINX's smooth weighted round robin, by scanning: the reference for small fleets.

use crate::Nanos;
use crate::policy::{Context, Start};
use crate::rng::Rng;
use crate::tier::Tier;

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
    pub fn new(tier: &Tier, start: Start, rng: &mut Rng) -> Smooth {
        let n = tier.len();
        let effective = tier.weights().map(i64::from).collect();
        let mut smooth = Smooth { current: vec![0; n].into(), effective };
        // Several workers begin each at a random place in its part of a round (or of the first turns of a long one).
        let (worker, workers) = (start.worker as u64, start.workers.max(1) as u64);
        if workers > 1 {
            let round = tier.total_weight.min(4096);
            let skipped = round * worker / workers + rng.below(round.div_ceil(workers));
            for _ in 0..skipped {
                smooth.turn(tier, 0..n);
            }
        }
        smooth
    }

    /// One turn among the candidates, in order; the first of those equally far ahead wins. O(candidates).
    pub fn turn(&mut self, tier: &Tier, candidates: impl Iterator<Item = usize>) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for i in candidates {
            total += self.gain(tier, i);
            if best.is_none_or(|b| self.current[i] > self.current[b]) {
                best = Some(i);
            }
        }
        self.current[best?] -= total;
        best
    }

    /// One pick among all open servers; a server that takes less than its weight is skipped in that proportion.
    pub fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let mut found = None;
        for _ in 0..LOOKS {
            found = self.turn(cx.tier, (0..cx.tier.len()).filter(|i| cx.open(*i)));
            if cx.spares(found?) {
                break;
            }
        }
        found
    }

    /// A request that went to server `i` for another reason counts as one of its picks. O(n). Its debt has a bound, so
    /// that a server that had more than its share for long still gets picks later.
    pub fn charge(&mut self, tier: &Tier, now: Nanos, i: usize) {
        if self.current[i] < -(DEBT_MAX * tier.total_weight as i64) {
            return;
        }
        let mut total = 0;
        for j in (0..tier.len()).filter(|j| *j == i || tier.accepts(*j, now)) {
            total += self.gain(tier, j);
        }
        self.current[i] -= total;
    }

    fn gain(&mut self, tier: &Tier, i: usize) -> i64 {
        let gained = self.effective[i];
        self.current[i] += gained;
        if gained < i64::from(tier.slots[i].weight) {
            self.effective[i] += 1;
        }
        gained
    }

    /// A failure costs the server a part of its weight.
    pub fn on_failure(&mut self, tier: &Tier, i: usize) {
        let slot = &tier.slots[i];
        if let Some(loss) = slot.weight.checked_div(slot.max_fails) {
            self.effective[i] = (self.effective[i] - i64::from(loss)).max(0);
        }
    }
}
