//! Weights, and shares set at run time, give the traffic that the registry promises.

use balanza_balancing::Member;
use balanza_balancing::registry::{Share, Spec};

use crate::chi_square::{LIMIT, deviation};
use crate::subject::{FEW, MANY, MS, Subject, Traffic, Verdict, every_form, keeps_its_clients, require, servers};

const PATTERN: [u32; 4] = [5, 1, 2, 2];

/// How far the share of a class of weights may be from the closed form, for algorithms that are not exact.
fn slack(spec: &Spec) -> Option<(f64, &'static str)> {
    let on = |name: &str| spec.parameters().any(|(n, value)| n == name && value == "on");
    match spec.entry().name {
        "hash" if on("consistent") || spec.number("balance_factor") > 0 => {
            Some((0.15, "160 points for a unit of weight are uneven by several percent"))
        }
        "bounded_hash" => Some((0.15, "the ring of hash consistent")),
        "ip_hash" => Some((0.06, "6271 values for three octets")),
        _ => None,
    }
}

/// Of `n` servers, what each weight's class gets of many requests under load and equal service.
fn by_weight(subject: &Subject, spec: &Spec, n: usize, weights: &[u32], requests: u64) -> Vec<u64> {
    let weight = |i: usize| weights[i % weights.len()];
    let fleet = subject.fleet(spec, &servers(n, |i, server| server.weight = weight(i)));
    let mut driver = subject.driver(&fleet, 3);
    // Ten requests in flight for a unit of weight, each served in the order of its coming.
    let units: u32 = (0..n).map(weight).sum();
    let mut traffic = Traffic::new(10 * units as usize);
    traffic.gap = 10 * MS / u64::from(units);
    traffic.send(subject, &mut driver, 20 * u64::from(units));
    traffic.send(subject, &mut driver, requests)
}

pub fn check_weights(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [4, 60] {
        let requests = 40_000;
        let expected: Vec<f64> = (0..n).map(|i| f64::from(PATTERN[i % 4])).collect();
        let equal = vec![1.0; n];
        match spec.entry().share {
            Share::Weights | Share::Groups | Share::Key => {
                let counts = by_weight(subject, spec, n, &PATTERN, requests);
                if let Some((slack, reason)) = slack(spec) {
                    for (weight, parts) in [(5, 5.0), (1, 1.0), (2, 4.0)] {
                        let class: u64 = (0..n).filter(|i| PATTERN[i % 4] == weight).map(|i| counts[i]).sum();
                        let error = class as f64 / requests as f64 / (parts / 10.0) - 1.0;
                        require!(error.abs() < slack, "{n} servers: weight {weight} off by {error:.3} ({reason})");
                    }
                } else {
                    let off = deviation(&counts, &expected);
                    require!(off < LIMIT, "{n} servers: {off:.1} deviations off the weights: {counts:?}");
                }
            }
            Share::Ignores(reason) => {
                require!(!reason.is_empty(), "no reason");
                let counts = by_weight(subject, spec, n, &PATTERN, requests);
                let off = deviation(&counts, &equal);
                require!(off < LIMIT, "{n} servers: {off:.1} deviations off equal shares: {counts:?}");
            }
            Share::Load => {
                let counts = by_weight(subject, spec, n, &[1], requests);
                let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
                let mean = requests / n as u64;
                require!(mean * 7 / 10 <= *least && *most <= mean * 13 / 10, "{n} equal servers: {counts:?}");
                let counts = by_weight(subject, spec, n, &PATTERN, requests);
                let of = |weight: u32| -> f64 {
                    let class = (0..n).filter(|i| PATTERN[i % 4] == weight);
                    class.clone().map(|i| counts[i] as f64).sum::<f64>() / class.count() as f64
                };
                require!(
                    of(5) > 1.5 * of(2) && of(2) > 1.2 * of(1),
                    "{n} servers: more weight, not more work: {counts:?}"
                );
            }
            Share::Order => {
                let send = |in_flight: usize| {
                    let fleet = subject.fleet(spec, &servers(n, |_, server| server.max_conns = 10));
                    Traffic::new(in_flight).send(subject, &mut subject.driver(&fleet, 3), 1_000)
                };
                let counts = send(10);
                require!(counts[0] == 1_000, "room on the first, but {counts:?}");
                let counts = send(25);
                require!(counts[2] > 0 && counts[3..].iter().all(|c| *c == 0), "three are enough, but {counts:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn weights_give_shares() {
    every_form(check_weights);
}

/// Half the share, half the traffic, about; and no share, none.
pub fn check_shares(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [FEW, MANY] {
        let all = servers(n, |_, server| server.weight = 4);
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 5);
        let mut traffic = Traffic::new(12 * n);
        traffic.gap = 10 * MS;
        let requests = 1_500 * n as u64;
        let mut send = |share: u32| {
            all[0].1.set_share(share);
            // Longer than what measurements look back.
            traffic.send(subject, &mut driver, 2_000);
            let counts = traffic.send(subject, &mut driver, requests);
            let others = counts[1..].iter().sum::<u64>() as f64 / (n - 1) as f64;
            (counts[0] as f64, others)
        };
        let (mine, others) = send(100);
        require!(mine > 0.6 * others, "{n} servers, full share: {mine} beside {others}");
        let full = mine;
        let (mine, others) = send(50);
        let about = match spec.entry().share {
            _ if keeps_its_clients(spec) => 0.6 * others..f64::INFINITY,
            Share::Order => 0.4 * full..0.6 * full,
            _ => 0.3 * others..0.75 * others,
        };
        require!(about.contains(&mine), "{n} servers, half the share: {mine} beside {others}");
        let (mine, others) = send(0);
        require!(mine == 0.0 && others > 0.0, "{n} servers, no share: {mine}");
        let (mine, others) = send(100);
        require!(mine > 0.6 * others, "{n} servers, full share again: {mine} beside {others}");
        require!(fleet.state(Member(0)).share() == 100, "share {}", fleet.state(Member(0)).share());
    }
    Ok(())
}

#[test]
fn shares_shift_traffic() {
    every_form(check_shares);
}
