//! Balls into bins: requests that are never done. How evenly an algorithm places them, by their number.

use std::sync::Arc;

use balanza_balancing::registry::{Key, Spec};
use balanza_balancing::{Driver, Fleet, ServerSpec, ServerState, Start, Tried};
use rand_distr::{Distribution, Poisson};
use rayon::prelude::*;

use crate::engine::{checkpoint, deviation};
use crate::error::Error;
use crate::helper::Helper;
use crate::model::keys::address;
use crate::progress::Progress;
use crate::random::{Purpose, Random};
use crate::result::{Bins, LoadSd};
use crate::statistics::intervals::mean_and_ci95;

/// What a request adds to its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ball {
    /// 1.
    #[default]
    Unit,
    /// 1 + 0.1 times a Poisson number of mean 0.99: the requests of a web application whose time was measured. Of the
    /// server it takes one slot for each tenth, so that what is in flight there is its load.
    Poisson,
}

/// What is placed where.
#[derive(Clone, Debug)]
pub struct Question {
    /// `name param=value …`.
    pub algorithms: Vec<String>,
    /// How many servers.
    pub servers: u32,
    /// How many requests; a server has 2^24 slots.
    pub requests: u64,
    /// Weights of the servers, in turn; none: all 1.
    pub weights: Vec<u32>,
    /// What a request adds.
    pub ball: Ball,
    /// How many keys there are, for algorithms that go by one.
    pub keys: u32,
    /// Where everything random comes from.
    pub seed: u64,
    /// How often it is repeated.
    pub replications: u32,
}

struct Placed {
    max: f64,
    sd: f64,
    mean: f64,
    series: Vec<LoadSd>,
}

/// Places requests. With weights, a server's load is divided by its weight.
pub fn bins(question: &Question, progress: &Progress) -> Result<Vec<Bins>, Error> {
    if question.servers == 0 || question.requests == 0 || question.replications == 0 {
        return Err(Error::value("servers, requests and replications have to be at least 1"));
    }
    if question.weights.contains(&0) {
        return Err(Error::value("weights have to be at least 1"));
    }
    let specs = question.algorithms.iter().map(|text| crate::algorithm(text)).collect::<Result<Vec<_>, _>>()?;
    progress.expect(specs.len() as f64 * f64::from(question.replications));
    let one = |spec: &Spec| -> Result<Vec<Placed>, Error> {
        (0..question.replications).into_par_iter().map(|r| place(question, spec, r, progress)).collect()
    };
    let results = specs.iter().zip(&question.algorithms).map(|(spec, algorithm)| {
        let placed = one(spec)?;
        let (max_load, max_load_ci95) = mean_and_ci95(&placed.iter().map(|p| p.max).collect::<Vec<_>>());
        let (sd, sd_ci95) = mean_and_ci95(&placed.iter().map(|p| p.sd).collect::<Vec<_>>());
        let mean_sd = |i: usize| placed.iter().map(|p| p.series[i].sd).sum::<f64>() / placed.len() as f64;
        let points = placed[0].series.iter().enumerate();
        Ok(Bins {
            algorithm: algorithm.clone(),
            servers: question.servers as usize,
            requests: question.requests,
            max_load,
            max_load_ci95,
            max_load_max: placed.iter().fold(0.0, |most, p| most.max(p.max)),
            mean_load: placed.iter().map(|p| p.mean).sum::<f64>() / placed.len() as f64,
            sd,
            sd_ci95,
            series: points.map(|(i, point)| LoadSd { requests: point.requests, sd: mean_sd(i) }).collect(),
            seed: question.seed,
            replications: question.replications,
        })
    });
    let results = results.collect::<Result<Vec<_>, Error>>()?;
    if progress.is_cancelled() { Err(Error::Cancelled) } else { Ok(results) }
}

fn place(question: &Question, spec: &Spec, replication: u32, progress: &Progress) -> Result<Placed, Error> {
    let weight = |i: u32| question.weights.get(i as usize % question.weights.len().max(1)).copied().unwrap_or(1);
    let server =
        |i| (ServerSpec { weight: weight(i), ..ServerSpec::new(&format!("s{i}")) }, Arc::new(ServerState::new()));
    let fleet = Arc::new(Fleet::new(spec, (0..question.servers).map(server).collect())?);
    let stream = |purpose| Random::new(question.seed, replication, purpose);
    let (mut keys, mut work) = (stream(Purpose::Keys), stream(Purpose::Service));
    let mut seeds = stream(Purpose::Policy);
    let mut driver = Driver::new(fleet.clone(), seeds.next(), Start::default());
    // Another worker takes what slots a request needs beyond the first, so that nobody's turn is charged for them.
    let mut scribe = Driver::new(fleet, seeds.next(), Start::default());
    let keyed = spec.entry().key != Key::None;
    let mut helper = Helper::of(spec)?;
    let mut loads = vec![0f64; question.servers as usize];
    let parts: Vec<f64> = (0..question.servers).map(|i| 1.0 / f64::from(weight(i))).collect();
    let number = Poisson::new(0.99).map_err(|wrong| Error::value(wrong.to_string()))?;
    let mut series: Vec<LoadSd> = Vec::new();
    let mut next = checkpoint(0);
    let mut tried = Tried::default();
    for count in 1..=question.requests {
        let address = address(if keyed { keys.below(u64::from(question.keys.max(1))) as u32 } else { 0 });
        tried.clear();
        // A nanosecond apart: as good as at once.
        let member = match &mut helper {
            None => driver.pick(count, &address, &mut tried).ok(),
            Some(helper) => helper
                .pick(&mut driver, count, &address, &mut tried)
                .map_err(|error| Error::Program { program: spec.text("program").into(), error })?,
        };
        let Some(member) = member else { continue };
        let i = member.0 as usize;
        let ball = match question.ball {
            Ball::Unit => 1.0,
            Ball::Poisson => {
                let tenths = 10 + number.sample(&mut work) as u32;
                for _ in 1..tenths {
                    tried.clear();
                    // Nothing closes the server, and it has no limit.
                    let _ = scribe.claim(count, member, &mut tried, true);
                }
                f64::from(tenths) / 10.0
            }
        };
        loads[i] += ball * parts[i];
        if count == next || count == question.requests {
            series.push(LoadSd { requests: count, sd: deviation(loads.iter().copied()) });
            next = checkpoint(series.len());
        }
        if count % 65_536 == 0 {
            progress.add(65_536.0 / question.requests as f64);
            if progress.is_cancelled() {
                break;
            }
        }
    }
    let n = loads.len() as f64;
    Ok(Placed {
        max: loads.iter().fold(0.0, |most: f64, load| most.max(*load)),
        sd: deviation(loads.iter().copied()),
        mean: loads.iter().sum::<f64>() / n,
        series,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(algorithms: &[&str], servers: u32, requests: u64, ball: Ball) -> Vec<Bins> {
        let algorithms = algorithms.iter().map(|a| a.to_string()).collect();
        let question =
            Question { algorithms, servers, requests, weights: vec![], ball, keys: 10_000, seed: 1, replications: 20 };
        bins(&question, &Progress::new()).unwrap()
    }

    /// Random: a binomial variance. Turns: the balls' own. Two choices: a constant, about 0.9 for 8 servers.
    #[test]
    fn deviations() {
        let (n, m) = (8.0, 10_000f64);
        let found = question(&["random", "round_robin", "two_choices"], 8, m as u64, Ball::Poisson);
        let (mean, variance) = (1.099, 0.0099);
        let random = (m / n * (variance + mean * mean * (1.0 - 1.0 / n))).sqrt();
        let turns = (m / n * variance).sqrt();
        // The deviation of few servers varies, and its mean is a little below.
        for (bins, expected, tolerance) in [(&found[0], random, 0.2), (&found[1], turns, 0.2)] {
            assert!((bins.sd - expected).abs() < tolerance * expected, "{}: {}", bins.algorithm, bins.sd);
        }
        for ball in [Ball::Unit, Ball::Poisson] {
            let short = question(&["two_choices"], 8, 1_000, ball);
            let long = question(&["two_choices"], 8, 100_000, ball);
            assert!((0.5..1.2).contains(&short[0].sd) && (long[0].sd - short[0].sd).abs() < 0.25, "{short:?} {long:?}");
        }
        let series = &found[2].series;
        assert_eq!(series.last().unwrap().requests, 10_000);
        assert!(series.windows(2).all(|pair| pair[0].requests < pair[1].requests));
    }

    /// Azar, Broder, Karlin, Upfal: n balls in n bins, the greatest load is about ln n / ln ln n, or ln ln n / ln 2.
    #[test]
    fn the_greatest_load() {
        let found = question(&["random", "two_choices", "round_robin"], 10_000, 10_000, Ball::Unit);
        assert!((6.0..8.5).contains(&found[0].max_load), "{}", found[0].max_load);
        assert!((2.9..=4.0).contains(&found[1].max_load), "{}", found[1].max_load);
        assert_eq!((found[2].max_load, found[2].sd, found[2].max_load_ci95), (1.0, 0.0, Some(0.0)));
    }

    #[test]
    fn weights_divide() {
        let mut question = Question {
            algorithms: vec!["round_robin".into()],
            servers: 4,
            requests: 600,
            weights: vec![2, 1],
            ball: Ball::Unit,
            keys: 1,
            seed: 1,
            replications: 1,
        };
        assert_eq!(bins(&question, &Progress::new()).unwrap()[0].sd, 0.0);
        question.weights = vec![0];
        assert!(bins(&question, &Progress::new()).is_err());
    }
}
