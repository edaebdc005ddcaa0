//! How far the model is off: fitted to the first part of a log, compared with the rest.

use serde::Serialize;

use crate::farm::{Draws, Farm};
use crate::fit::fit;
use crate::log::{Attempt, Log};
use crate::queue::serve;

/// The part that the model is fitted to.
const SEEN: f64 = 0.7;
/// Attempts that are compared at most, and repetitions of the draws.
const COMPARED: usize = 300_000;
const REPETITIONS: u64 = 4;

/// A figure as the model predicts it and as it was, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// By the model.
    pub predicted: f64,
    /// In the log.
    pub observed: f64,
}

impl Pair {
    /// How far the prediction is off, as a part of what was observed.
    pub fn off(&self) -> f64 {
        // Less than the log's resolution is not an error.
        let difference = (self.predicted - self.observed).abs() - 0.0005;
        difference.max(0.0) / self.observed.max(0.001)
    }
}

/// The model on the part of the log that it was not fitted to. The requests go to the servers that had them.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Attempts that were compared.
    pub attempts: usize,
    /// Mean response time.
    pub mean: Pair,
    /// Quantiles.
    pub p50: Pair,
    /// Quantiles.
    pub p90: Pair,
    /// Quantiles.
    pub p99: Pair,
    /// (quantile, predicted, observed), for pictures.
    #[serde(skip)]
    pub curve: Vec<(f64, f64, f64)>,
}

/// Fits the first part of the log and compares.
pub fn check(log: &Log, seed: u64) -> Check {
    let cut = (log.attempts.len() as f64 * SEEN) as usize;
    let farm = fit(log, &log.attempts[..cut]);
    let rest = &log.attempts[cut..];
    compare(&farm, &rest[..rest.len().min(COMPARED)], seed)
}

fn compare(farm: &Farm, attempts: &[Attempt], seed: u64) -> Check {
    let begin = attempts.first().map_or(0, |attempt| attempt.begin);
    let mut of_server: Vec<Vec<&Attempt>> = vec![Vec::new(); farm.servers.len()];
    for attempt in attempts.iter().filter(|attempt| !attempt.failed()) {
        of_server[usize::from(attempt.server)].push(attempt);
    }
    let (mut predicted, mut observed) = (Vec::new(), Vec::new());
    for (server, attempts) in farm.servers.iter().zip(&of_server) {
        let arrivals: Vec<f64> = attempts.iter().map(|attempt| (attempt.begin - begin) as f64 + farm.delay).collect();
        // Each server begins empty, and so did not in the log.
        let skip = attempts.len() / 20;
        observed.extend(attempts.iter().skip(skip).map(|attempt| f64::from(attempt.time) / 1e6));
        for repetition in 0..REPETITIONS {
            let mut draws = Draws(seed ^ repetition << 32);
            let work =
                attempts.iter().map(|attempt| draws.from(farm.pool(attempt.class(), attempt.begin)) / server.speed);
            let work: Vec<f64> = work.collect();
            let ends = serve(farm.order, server.concurrency(), &arrivals, &work);
            let times = ends.iter().zip(&arrivals).map(|(end, at)| (end - at + 2.0 * farm.delay) / 1e6);
            predicted.extend(times.skip(skip));
        }
    }
    predicted.sort_unstable_by(f64::total_cmp);
    observed.sort_unstable_by(f64::total_cmp);
    let pair = |p: f64| Pair { predicted: quantile(&predicted, p), observed: quantile(&observed, p) };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let curve = (1..200).map(|i| 1.0 - 10f64.powf(-f64::from(i) / 66.0));
    Check {
        attempts: observed.len(),
        mean: Pair { predicted: mean(&predicted), observed: mean(&observed) },
        p50: pair(0.5),
        p90: pair(0.9),
        p99: pair(0.99),
        curve: curve.map(|p| (p, quantile(&predicted, p), quantile(&observed, p))).collect(),
    }
}

/// Of sorted values.
pub(crate) fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = (p * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
