//! The arrivals as they were, with newly drawn work for each request.

use balanza_simulator::{Line, Trace};

use crate::farm::{Draws, Farm};
use crate::log::{Attempt, Log};

/// Requests of one replication, at least if there are so many, and at most.
const REQUESTS: std::ops::RangeInclusive<usize> = 20_000..=40_000;

/// How many replications there are, and how they are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Replications.
    pub count: usize,
    /// Of the draws.
    pub seed: u64,
    /// Times the log's rate.
    pub load: f64,
}

/// A trace for each replication: a part of the log each, at equal distances. Works are drawn by the class of the request
/// and the time of the log.
pub fn traces(log: &Log, farm: &Farm, plan: Plan) -> Vec<Trace> {
    let firsts: Vec<&Attempt> = log.attempts.iter().filter(|attempt| attempt.is_first()).collect();
    let total = firsts.len();
    let length = (total / plan.count.max(1)).clamp((*REQUESTS.start()).min(total), *REQUESTS.end());
    let one = |replication: usize| -> Trace {
        let from = if plan.count < 2 { 0 } else { replication * (total - length) / (plan.count - 1) };
        let requests = &firsts[from..from + length];
        let begin = requests.first().map_or(0, |first| first.begin);
        let mut draws = Draws(plan.seed.wrapping_mul(0x1_0001).wrapping_add(replication as u64));
        let line = |attempt: &&Attempt| {
            let work = draws.from(farm.pool(attempt.class(), attempt.begin));
            let at = (attempt.begin - begin) as f64 * 1_000.0 / plan.load;
            Line { at: at as u64, work: Some((work * 1_000.0) as u64), key: Some(attempt.key) }
        };
        requests.iter().map(line).collect()
    };
    (0..plan.count).map(one).collect()
}
