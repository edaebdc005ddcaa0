//! Models and answers for servers whose truth is known, in virtual time.
#![allow(missing_docs, reason = "tests")]

use balanza_recommend::check::check;
use balanza_recommend::fit::fit;
use balanza_recommend::queue::Order;
use balanza_recommend::study::{Question, study};
use balanza_recommend::trial::{Coming, Truth, Work};
use balanza_recommend::verdict::Answer;
use balanza_simulator::Progress;

/// Few runs: virtual time is exact, and these builds are slow.
fn short() -> Question {
    Question { replications: 3, ..Question::default() }
}

fn truth(speeds: &[f64], units: u32, order: Order, work: Work, load: f64) -> Truth {
    Truth {
        speeds: speeds.to_vec(),
        units: vec![units; speeds.len()],
        order,
        work,
        mean: 50_000.0,
        coming: Coming::Poisson,
        load,
        clients: 100,
        seed: 5,
    }
}

/// The units that are found, and the speeds relative to the first server's.
fn found(truth: &Truth, requests: usize) -> (Order, Vec<(Option<u32>, f64)>) {
    let log = truth.log(requests).unwrap();
    let farm = fit(&log, &log.attempts);
    // In the order of the addresses.
    let mut servers = farm.servers.clone();
    servers.sort_by_key(|server| server.name.clone());
    let first = servers[0].speed;
    (farm.order, servers.iter().map(|server| (server.parallel, server.speed / first)).collect())
}

/// M/M/1: one unit, and its capacity is one over the mean service time.
#[test]
fn one_unit_in_order() {
    let truth = truth(&[1.0], 1, Order::Fifo, Work::Exponential, 0.7);
    let log = truth.log(6_000).unwrap();
    let farm = fit(&log, &log.attempts);
    assert_eq!((farm.order, farm.servers[0].parallel), (Order::Fifo, Some(1)));
    let capacity = farm.servers[0].capacity.unwrap();
    assert!((capacity / 20.0 - 1.0).abs() < 0.05, "{capacity}");
    // The rest of the log is predicted, and the observed mean is that of M/M/1: 1 / (20 - 14).
    let check = check(&log, 1);
    assert!((check.mean.observed * 6.0 - 1.0).abs() < 0.35, "{:?}", check.mean);
    assert!(check.mean.off() < 0.35 && check.p50.off() < 0.3, "{check:?}");
}

#[test]
fn four_cores_shared_and_in_order() {
    for order in [Order::Shared, Order::Fifo] {
        let (is, servers) = found(&truth(&[1.0], 4, order, Work::Lognormal(0.7), 0.75), 8_000);
        assert_eq!((is, servers[0].0), (order, Some(4)));
    }
}

#[test]
fn two_speeds() {
    let (_, servers) = found(&truth(&[1.0, 0.5], 2, Order::Fifo, Work::Exponential, 0.45), 8_000);
    assert_eq!((servers[0].0, servers[1].0), (Some(2), Some(2)), "{servers:?}");
    assert!((servers[1].1 - 0.5).abs() < 0.04, "{servers:?}");
}

/// Nothing is known of what was never busy, and it is said.
#[test]
fn idle_servers_have_no_known_capacity() {
    let truth = truth(&[1.0, 1.0], 16, Order::Fifo, Work::Exponential, 0.1);
    let log = truth.log(4_000).unwrap();
    let study = study(&log, &short(), &Progress::new()).unwrap();
    assert!(study.servers.iter().all(|server| server.parallel.is_none() && server.capacity.is_none()));
    assert_eq!(study.verdict.answer, Answer::Stay);
    assert!(study.notes[0].contains("nothing can be told above"), "{:?}", study.notes);
    assert!(study.what_ifs.iter().all(|what_if| what_if.unknown.is_some()));
}

/// Under load, servers of two speeds need something better than turns; the prediction holds on the true farm.
#[test]
fn unequal_servers_change() {
    let truth = truth(&[1.0, 1.0, 0.5], 2, Order::Shared, Work::Exponential, 0.55);
    let question = Question { replications: 8, ..Question::default() };
    let trial = truth.trial(&question, 6_000, 3, 6_000).unwrap();
    assert!(matches!(trial.study.verdict.answer, Answer::Change(_)), "{:?}", trial.study.verdict);
    assert!(trial.chosen().p99 < 0.8 * trial.truth[0].p99);
    assert!(trial.off() < 0.2 && trial.loss() < 0.15, "{} {}", trial.off(), trial.loss());
    let same = truth.trial(&question, 6_000, 3, 6_000).unwrap();
    assert_eq!(trial.study.verdict.answer, same.study.verdict.answer, "the same log gives the same answer");
}

/// The verification of scripts/verify-recommend.sh, small.
#[test]
fn drawn_farms() {
    let trials: Vec<_> =
        (1_001..1_004).map(|seed| Truth::draw(seed).trial(&short(), 5_000, 3, 5_000).unwrap()).collect();
    let near = trials.iter().filter(|trial| trial.off() <= 0.25).count();
    let good = trials.iter().filter(|trial| trial.loss() <= 0.15).count();
    assert!(near >= 2 && good >= 2, "{near} {good}");
    let equal = Truth::draw_equal(1_005).trial(&short(), 5_000, 3, 5_000).unwrap();
    assert_eq!(equal.study.verdict.answer, Answer::Stay);
}
