//! The least score wins: shared by the algorithms that are a formula.
//!
//! Up to 32 servers are scanned, and ties are broken by NGINX's round robin; beyond, a tournament shared by the workers
//! finds the least. A server that takes less than its weight (slow start, share) is skipped in that proportion, for the
//! next best.

use std::sync::Arc;

use super::contest::{Contest, Watch};
use super::smooth::Smooth;
use crate::Nanos;
use crate::policy::{Basis, Context, Plan, Policy, Start};
use crate::report::Report;
use crate::rng::Rng;
use crate::tier::{SCAN, Tier};

/// A formula, and what it keeps of a tier's servers, shared by the workers.
pub(crate) trait Score: Send + Sync + 'static {
    /// The score of a server that gets one request more, or of one as it is; less is better, never NaN. Divided by the
    /// weight, and with [`Tier::burden`] for what is in flight.
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64;

    /// A pick looks at the server, as every pick does at every server of a small tier.
    fn observe(&self, _now: Nanos, _i: usize) {}

    /// The score where [`Score::observe`] is not called: in a large tier.
    fn score_unobserved(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        self.score(tier, now, i)
    }

    /// See [`Policy::on_dispatch`].
    fn on_dispatch(&self, _now: Nanos, _tier: &Tier, _i: usize) {}

    /// See [`Policy::on_header`].
    fn on_header(&self, _now: Nanos, _i: usize, _time: Nanos) {}

    /// See [`Policy::on_complete`]; `nth` counts the completions of this worker.
    fn on_complete(&self, _now: Nanos, _tier: &Tier, _i: usize, _report: &Report, _nth: u32) {}

    /// See [`Policy::wants_header`].
    fn wants_header(&self) -> bool {
        false
    }
}

/// The plan of an algorithm that gives each request to the server of the least score.
pub(crate) fn least_score<S: Score>(tier: &Arc<Tier>, score: S) -> Arc<dyn Plan> {
    let contest = (tier.len() > SCAN).then(|| {
        let value = |i| score.score_unobserved(tier, Nanos::MAX, i);
        Arc::new(Contest::new(tier, value))
    });
    Arc::new(LeastPlan { tier: tier.clone(), score: Arc::new(score), contest })
}

struct LeastPlan<S> {
    tier: Arc<Tier>,
    score: Arc<S>,
    /// Of a tier too large to scan.
    contest: Option<Arc<Contest>>,
}

impl<S: Score> Plan for LeastPlan<S> {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let score = self.score.clone();
        match &self.contest {
            Some(contest) => {
                let watch = Watch::new(&self.tier);
                Box::new(Many { score, contest: contest.clone(), watch, completions: 0 })
            }
            None => Box::new(Few { score, smooth: Smooth::new(&self.tier, start, rng), completions: 0 }),
        }
    }
}

struct Few<S> {
    score: Arc<S>,
    smooth: Smooth,
    completions: u32,
}

impl<S: Score> Few<S> {
    /// The best of `candidates`, a bit each; ties are broken by round robin. Candidates that `open` refuses are removed
    /// from the word.
    #[inline]
    fn best(&mut self, cx: &Context<'_>, candidates: &mut u64, open: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut least, mut equals) = (f64::INFINITY, 0u64);
        for i in 0..cx.tier.len() {
            if *candidates >> i & 1 == 0 {
                continue;
            }
            if !open(i) {
                *candidates &= !(1 << i);
                continue;
            }
            let score = self.score.score(cx.tier, cx.now, i);
            if score < least || equals == 0 {
                (least, equals) = (score, 1 << i);
            } else if score == least {
                equals |= 1 << i;
            }
        }
        let first = equals.trailing_zeros() as usize;
        if equals & equals.wrapping_sub(1) == 0 {
            return (equals != 0).then_some(first);
        }
        self.smooth.turn(cx.tier, (first..cx.tier.len()).filter(|i| equals >> i & 1 == 1))
    }

    /// The best server that takes the request when the winner is skipped; the winner if all are skipped.
    #[cold]
    fn give_way(&mut self, cx: &mut Context<'_>, mut left: u64, winner: usize) -> usize {
        left &= !(1 << winner);
        while let Some(next) = self.best(cx, &mut left, |_| true) {
            if cx.spares(next) {
                return next;
            }
            left &= !(1 << next);
        }
        winner
    }
}

impl<S: Score> Policy for Few<S> {
    #[inline]
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        (0..cx.tier.len()).for_each(|i| self.score.observe(cx.now, i));
        let mut open = u64::MAX;
        let winner = self.best(cx, &mut open, |i| cx.open(i))?;
        if cx.spares(winner) { Some(winner) } else { Some(self.give_way(cx, open, winner)) }
    }

    #[inline]
    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, by_policy: bool) {
        if !by_policy {
            self.smooth.charge(tier, now, index);
        }
        self.score.on_dispatch(now, tier, index);
    }

    fn on_header(&mut self, now: Nanos, index: usize, time: Nanos) {
        self.score.on_header(now, index, time);
    }

    #[inline]
    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        self.completions = self.completions.wrapping_add(1);
        self.score.on_complete(now, tier, index, report, self.completions);
        if report.failed() {
            self.smooth.on_failure(tier, index);
        }
    }

    fn wants_header(&self) -> bool {
        self.score.wants_header()
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(self.score.score(cx.tier, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}

struct Many<S> {
    score: Arc<S>,
    contest: Arc<Contest>,
    watch: Watch,
    completions: u32,
}

impl<S: Score> Many<S> {
    /// `chosen` has had its turn, and the request went to `index`.
    #[inline]
    fn on_dispatch_to(&mut self, now: Nanos, tier: &Tier, chosen: usize, index: usize) {
        let score = |i| self.score.score_unobserved(tier, now, i);
        self.score.on_dispatch(now, tier, index);
        self.contest.dispatched(tier, now, chosen, score);
        if chosen != index {
            self.contest.refresh(tier, now, index, || score(index));
        }
    }
}

impl<S: Score> Policy for Many<S> {
    #[inline]
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let (tier, now) = (cx.tier, cx.now);
        self.contest.pick(cx, &mut self.watch, |i| self.score.score_unobserved(tier, now, i))
    }

    #[inline]
    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, _by_policy: bool) {
        self.on_dispatch_to(now, tier, index, index);
    }

    fn on_shadow_dispatch(&mut self, now: Nanos, tier: &Tier, chose: Option<usize>, index: usize) {
        self.on_dispatch_to(now, tier, chose.unwrap_or(index), index);
    }

    fn on_header(&mut self, now: Nanos, index: usize, time: Nanos) {
        self.score.on_header(now, index, time);
    }

    #[inline]
    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        self.completions = self.completions.wrapping_add(1);
        self.score.on_complete(now, tier, index, report, self.completions);
        if report.failed() {
            self.watch.add(tier, index);
        }
        self.contest.refresh(tier, now, index, || self.score.score_unobserved(tier, now, index));
    }

    fn wants_header(&self) -> bool {
        self.score.wants_header()
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(self.score.score_unobserved(cx.tier, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}
