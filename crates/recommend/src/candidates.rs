//! What is compared: the algorithms, with the weights that are there and with fitted ones.

use balanza_balancing::registry::Key;
use balanza_balancing::registry::{self, Entry, Host, Share};
use serde::Serialize;

use crate::farm::Farm;
use crate::setting::Current;

/// Forms that behave differently enough to be candidates, beside those without parameters.
const FORMS: [&str; 3] = ["two_choices choices=3", "two_choices by=last_byte", "least_time inflight=on"];
/// Algorithms that go by what a log does not say: sizes of responses in progress.
const UNSEEN: [&str; 1] = ["least_bandwidth"];
/// Weights that are fitted are whole numbers up to this.
const WEIGHT_MAX: u32 = 20;

/// An algorithm with its parameters and the servers' weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// As after `balance` in nginx.conf.
    pub algorithm: String,
    /// One for each server.
    pub weights: Vec<u32>,
    /// Whether the weights are fitted and not those of the configuration.
    pub fitted: bool,
}

impl Candidate {
    /// What it is called in tables.
    pub fn label(&self) -> String {
        if self.fitted { format!("{}, weights fitted", self.algorithm) } else { self.algorithm.clone() }
    }

    /// As the simulator has it.
    pub(crate) fn text(&self) -> String {
        let weights: Vec<String> = self.weights.iter().map(u32::to_string).collect();
        format!("{} weights={}", self.algorithm, weights.join(","))
    }
}

/// Small whole numbers in nearly the proportions of these values.
pub fn proportions(values: &[f64]) -> Vec<u32> {
    let least = values.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(0.0, f64::max);
    if !least.is_finite() || greatest <= 0.0 {
        return vec![1; values.len()];
    }
    let rounded = |scale: f64| -> Vec<u32> {
        values.iter().map(|value| (value / least * scale).round().clamp(1.0, 1_000.0) as u32).collect()
    };
    let error = |weights: &[u32], scale: f64| {
        let off = |(weight, value): (&u32, &f64)| (f64::from(*weight) / (value / least * scale) - 1.0).abs();
        weights.iter().zip(values).map(off).fold(0.0, f64::max)
    };
    let most = (f64::from(WEIGHT_MAX) / (greatest / least)).floor().max(1.0) as u32;
    let tried = (1..=most).map(|scale| (f64::from(scale), rounded(f64::from(scale))));
    let mut best = (f64::INFINITY, rounded(1.0));
    for (scale, weights) in tried {
        let error = error(&weights, scale);
        // Larger numbers have to be worth it.
        if error < best.0 - 0.02 {
            best = (error, weights);
        }
    }
    best.1
}

/// The weights that the servers' capacities suggest; by speed alone where the number of units is not known.
pub fn fitted_weights(farm: &Farm) -> Vec<u32> {
    let known = farm.servers.iter().all(|server| server.parallel.is_some());
    let value = |server: &crate::farm::Server| server.speed * if known { f64::from(server.concurrency()) } else { 1.0 };
    proportions(&farm.servers.iter().map(value).collect::<Vec<_>>())
}

fn entry(algorithm: &str) -> Option<&'static Entry> {
    registry::find(algorithm.split_whitespace().next()?)
}

/// Whether the algorithm goes by a key.
pub fn is_keyed(algorithm: &str) -> bool {
    entry(algorithm).is_some_and(|entry| entry.key != Key::None)
}

/// All candidates, what is in operation first. An algorithm that goes by a key is compared with others that do: what relies
/// on it, caches and sessions, is not in the log.
pub fn candidates(farm: &Farm, current: &Current) -> Vec<Candidate> {
    let weights: Vec<u32> = farm.servers.iter().map(|server| current.of(&server.name).weight).collect();
    let fitted = fitted_weights(farm);
    let differ = {
        // The same proportions are no change.
        let ratio = |i: usize| f64::from(fitted[i]) / f64::from(weights[i].max(1));
        (0..fitted.len()).any(|i| (ratio(i) / ratio(0) - 1.0).abs() > 0.1)
    };
    let keyed = is_keyed(&current.algorithm);
    let suits = |entry: &&Entry| {
        (entry.key != Key::None) == keyed
            && matches!(entry.host, Host::Any | Host::Idleness)
            && !matches!(entry.share, Share::Order | Share::Groups)
            && !UNSEEN.contains(&entry.name)
    };
    let plain = registry::entries().iter().filter(suits).map(|entry| entry.name.to_string());
    let forms = FORMS.iter().filter(|form| !keyed && entry(form).is_some()).map(|form| (*form).to_string());
    let mut algorithms = vec![current.algorithm.clone()];
    algorithms.extend(plain.chain(forms).filter(|name| *name != current.algorithm));
    let mut all: Vec<Candidate> = Vec::new();
    for algorithm in algorithms {
        let ignores = entry(&algorithm).is_some_and(|entry| matches!(entry.share, Share::Ignores(_)));
        all.push(Candidate { algorithm: algorithm.clone(), weights: weights.clone(), fitted: false });
        if differ && !ignores {
            all.push(Candidate { algorithm, weights: fitted.clone(), fitted: true });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_small() {
        assert_eq!(proportions(&[1.0, 1.01, 0.99]), [1, 1, 1]);
        assert_eq!(proportions(&[4.0, 2.02, 1.0]), [4, 2, 1]);
        assert_eq!(proportions(&[1.5, 1.0]), [3, 2]);
        assert_eq!(proportions(&[0.0, 0.0]), [1, 1]);
    }
}
