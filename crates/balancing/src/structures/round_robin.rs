//! The round robin of few servers and of many, as an algorithm and as what others fall back to.

use std::sync::Arc;

use super::rotation::{Rotation, RotationPlan};
use super::smooth::Smooth;
use crate::Nanos;
use crate::policy::{Basis, Context, Plan, Policy, Start};
use crate::report::Report;
use crate::rng::Rng;
use crate::tier::{SCAN, Tier};

/// The tables of round robin, also for algorithms that fall back to it.
pub(crate) struct RoundRobinPlan {
    tier: Arc<Tier>,
    /// Of a tier too large to scan.
    rotation: Option<Arc<RotationPlan>>,
}

impl RoundRobinPlan {
    pub fn new(tier: &Arc<Tier>) -> RoundRobinPlan {
        let rotation = (tier.len() > SCAN).then(|| Arc::new(RotationPlan::new(tier)));
        RoundRobinPlan { tier: tier.clone(), rotation }
    }

    pub fn instance(&self, start: Start, rng: &mut Rng) -> RoundRobin {
        match &self.rotation {
            Some(plan) => RoundRobin::Rotation(Rotation::new(plan.clone(), &self.tier, start, rng)),
            None => RoundRobin::Smooth(Smooth::new(&self.tier, start, rng)),
        }
    }
}

impl Plan for RoundRobinPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        Box::new(self.instance(start, rng))
    }
}

/// One worker's round robin.
pub(crate) enum RoundRobin {
    /// Of few servers.
    Smooth(Smooth),
    /// Of many.
    Rotation(Rotation),
}

impl Policy for RoundRobin {
    #[inline]
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        match self {
            RoundRobin::Smooth(smooth) => smooth.pick(cx),
            RoundRobin::Rotation(rotation) => rotation.pick(cx),
        }
    }

    #[inline]
    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, by_policy: bool) {
        if !by_policy {
            match self {
                RoundRobin::Smooth(smooth) => smooth.charge(tier, now, index),
                RoundRobin::Rotation(rotation) => rotation.charge(tier, index),
            }
        }
    }

    #[inline]
    fn on_complete(&mut self, _now: Nanos, tier: &Tier, index: usize, report: &Report) {
        if let (RoundRobin::Smooth(smooth), true) = (self, report.failed()) {
            smooth.on_failure(tier, index);
        }
    }
    fn basis(&self) -> Basis {
        Basis::Turn
    }
}
