//! Which order of service and how many units, for all servers of a farm together.

use super::score::Scorer;
use crate::queue::{Order, UNLIMITED};

/// So much better a number of units has to be than no limit, to be known.
const KNOWN: f64 = 12.0;
/// Numbers whose score is within this of the best are not excluded.
const NEAR: f64 = 6.0;
/// Of each server: what servers of their own number have to be better by than all with the same one.
const OWN: f64 = 6.0;

/// What was found of one server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parallel {
    /// Units; `None` if that is not known.
    pub units: Option<u32>,
    /// The least and the greatest that are not excluded.
    pub range: Option<(u32, u32)>,
}

/// The numbers that are tried: all small ones, then a quarter more each.
fn tried(most: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let mut c = 1u32;
    while c <= most {
        all.push(c);
        c = (c + 1).max(c + c / 8);
    }
    all.push(UNLIMITED);
    all
}

/// The scores of one order of service, and what follows.
struct Fit {
    order: Order,
    total: f64,
    servers: Vec<Parallel>,
}

/// The order that fits best, and what each server's units are.
pub fn choose(scorers: &[Scorer<'_>]) -> (Order, Vec<Parallel>) {
    let most = scorers.iter().map(|scorer| scorer.in_flight_max).max().unwrap_or(1);
    let tried = tried(most);
    let fits = [Order::Fifo, Order::Shared].map(|order| fit(order, &tried, scorers));
    let best = fits.into_iter().min_by(|a, b| a.total.total_cmp(&b.total));
    best.map_or((Order::Fifo, Vec::new()), |fit| (fit.order, fit.servers))
}

fn fit(order: Order, tried: &[u32], scorers: &[Scorer<'_>]) -> Fit {
    let unlimited = tried.len() - 1;
    let scores: Vec<Vec<f64>> = scorers
        .iter()
        .map(|scorer| {
            let open = scorer.score(order, UNLIMITED);
            tried.iter().map(|c| if *c > scorer.in_flight_max { open } else { scorer.score(order, *c) }).collect()
        })
        .collect();
    let sums: Vec<f64> = (0..tried.len()).map(|h| scores.iter().map(|of| of[h]).sum()).collect();
    let common = best(&sums);
    let own: f64 = scores.iter().map(|of| of[best(of)]).sum();
    let allowed = OWN * scorers.len() as f64;
    if sums[common] <= own + allowed {
        let one = parallel(tried, &sums, common, unlimited);
        return Fit { order, total: sums[common], servers: vec![one; scorers.len()] };
    }
    let servers = scores.iter().map(|of| parallel(tried, of, best(of), unlimited)).collect();
    Fit { order, total: own + allowed, servers }
}

/// The index of the least.
fn best(scores: &[f64]) -> usize {
    (0..scores.len()).min_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0)
}

fn parallel(tried: &[u32], scores: &[f64], best: usize, unlimited: usize) -> Parallel {
    if best == unlimited || scores[unlimited] - scores[best] < KNOWN {
        return Parallel { units: None, range: None };
    }
    let near = |index: &usize| *index != unlimited && scores[*index] <= scores[best] + NEAR;
    let range: Vec<usize> = (0..tried.len()).filter(near).collect();
    let range = range.first().zip(range.last()).map(|(first, last)| (tried[*first], tried[*last]));
    Parallel { units: Some(tried[best]), range }
}
