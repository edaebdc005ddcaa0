//! What defines an algorithm: brute force, closed forms, evenness. What holds for all of them is in `conformance`.

use std::sync::Arc;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Driver, Fleet, Member, Nanos, Outcome, Report, ServerSpec, ServerState, Start, Tried};
use proptest::prelude::*;

#[path = "conformance/chi_square.rs"]
mod chi_square;

use chi_square::{LIMIT, deviation};

fn fleet(spec: &Spec, servers: Vec<ServerSpec>) -> Arc<Fleet> {
    Arc::new(Fleet::new(spec, servers.into_iter().map(|s| (s, Arc::new(ServerState::new()))).collect()).unwrap())
}

fn weighted(weights: &[u32]) -> Vec<ServerSpec> {
    let server = |(i, w): (usize, &u32)| ServerSpec { weight: *w, ..ServerSpec::new(&format!("10.0.0.{i}:80")) };
    weights.iter().enumerate().map(server).collect()
}

fn plain(name: &str) -> Spec {
    Spec::new(find(name).unwrap(), &[]).unwrap()
}

fn choices(count: usize) -> Spec {
    Spec::new(find("two_choices").unwrap(), &[("choices", &count.to_string())]).unwrap()
}

fn done(outcome: Outcome, time: Nanos) -> Report {
    Report { outcome, header_time: Some(time), last_byte_time: Some(time), bytes: 1 }
}

type Score = fn(f64, f64) -> f64;

/// The scores that a search of all servers would go by: requests in flight and weight.
const SCORES: [(&str, Score); 3] = [
    ("least_conn", |a, w| a / w),
    ("shortest_expected_delay", |a, w| (a + 1.0) / w),
    // The fastest of the idle servers comes before all that are busy.
    ("never_queue", |a, w| if a == 0.0 { 1.0 / w - 1e6 } else { (a + 1.0) / w }),
];

/// Requests come and go; each that comes goes to a server of the least score by brute force.
fn check_least(spec: &Spec, score: Score, weights: &[u32], seed: u64) -> Result<(), String> {
    let n = weights.len();
    let fleet = fleet(spec, weighted(weights));
    let mut driver = Driver::new(fleet.clone(), seed, Start::default());
    let (mut flying, mut state) = (Vec::new(), seed);
    for i in 0..1_500u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if flying.is_empty() || (state >> 33) % 5 < 3 {
            let mut tried = Tried::default();
            let barred = Member((state >> 40) as u32 % n as u32);
            tried.insert(barred);
            let of = |m: Member| score(f64::from(fleet.state(m).in_flight()), f64::from(fleet.server(m).weight));
            let before: Vec<f64> = fleet.members().map(of).collect();
            let others = fleet.members().filter(|m| *m != barred);
            let least = others.map(|m| before[m.0 as usize]).fold(f64::INFINITY, f64::min);
            let member = driver.pick(i, b"", &mut tried).map_err(|e| e.to_string())?;
            let found = before[member.0 as usize];
            if member == barred || found != least {
                return Err(format!("request {i} went to {member:?} with {found}; the least is {least}"));
            }
            flying.push(member);
        } else {
            let member = flying.swap_remove((state >> 35) as usize % flying.len());
            driver.complete(i, member, &done(Outcome::Success, 1));
        }
    }
    Ok(())
}

/// In any window of a round each server has its turns to within one.
fn check_even(name: &str, weights: &[u32], start: usize) -> Result<(), String> {
    let fleet = fleet(&plain(name), weighted(weights));
    let mut driver = Driver::new(fleet, 1, Start::default());
    let mut pick = || {
        let member = driver.pick(0, b"", &mut Tried::default()).unwrap();
        driver.complete(0, member, &done(Outcome::Success, 1));
        member.0 as usize
    };
    for _ in 0..start {
        pick();
    }
    let mut counts = vec![0u32; weights.len()];
    (0..weights.iter().sum()).for_each(|_| counts[pick()] += 1);
    let off = counts.iter().zip(weights).find(|(count, weight)| count.abs_diff(**weight) > 1);
    off.map_or(Ok(()), |(count, weight)| Err(format!("{count} turns for weight {weight}")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// The least by brute force, for few and for many servers.
    #[test]
    fn scores_are_the_least(
        algorithm in 0usize..3,
        n in prop_oneof![2usize..33, 33usize..300],
        pattern in prop::collection::vec(1u32..9, 1..6),
        seed: u64,
    ) {
        let (name, score) = SCORES[algorithm];
        let weights: Vec<u32> = (0..n).map(|i| pattern[i % pattern.len()]).collect();
        let found = check_least(&plain(name), score, &weights, seed);
        prop_assert!(found.is_ok(), "{} {:?}", name, found);
    }

    /// As many choices as servers are the least of all, also when one of them is closed to the request.
    #[test]
    fn choices_of_all_are_the_least(weights in prop::collection::vec(1u32..9, 2..17), more in 0usize..3, seed: u64) {
        let spec = choices((weights.len() + more).min(16));
        let found = check_least(&spec, |a, w| a / w, &weights, seed);
        prop_assert!(found.is_ok(), "{:?}", found);
    }

    /// Round robin over many servers spreads turns evenly. (Over few it is NGINX's, turn by turn.)
    #[test]
    fn round_robin_is_even(n in 33usize..200, pattern in prop::collection::vec(1u32..9, 1..5), start in 0usize..500) {
        let weights: Vec<u32> = (0..n).map(|i| pattern[i % pattern.len()]).collect();
        let found = check_even("round_robin", &weights, start);
        prop_assert!(found.is_ok(), "{:?}", found);
    }
}

/// Each formula tells its algorithm from the others, and evenness tells turns from draws.
#[test]
fn definitions_tell_algorithms_apart() {
    for n in [6, 60] {
        let weights: Vec<u32> = (0..n).map(|i| 1 + i % 5).collect();
        for (name, score) in SCORES {
            for (other, _) in SCORES {
                let found = check_least(&plain(other), score, &weights, 7);
                assert_eq!(found.is_ok(), name == other, "{other} by the formula of {name}: {found:?}");
            }
        }
        assert!(check_even("random", &weights, 0).is_err());
    }
}

/// The probability of each server when two are drawn and the one with less load for its weight wins, a coin between
/// equals: drawn from those left, or both from all.
fn of_two(weights: &[u32; 3], loads: &[u32; 3], distinct: bool) -> Vec<f64> {
    let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    let mut expected = vec![0.0; 3];
    for i in 0..3 {
        for j in (0..3).filter(|j| !distinct || *j != i) {
            let (wi, wj) = (f64::from(weights[i]), f64::from(weights[j]));
            let both = wi / total * wj / if distinct { total - wi } else { total };
            let (a, b) = (f64::from(loads[i]) / wi, f64::from(loads[j]) / wj);
            let first = if a < b { 1.0 } else { f64::from(u8::from(a == b)) / 2.0 };
            expected[i] += both * first;
            expected[j] += both * (1.0 - first);
        }
    }
    expected
}

/// Two different servers are drawn; with replacement the probabilities would be others.
#[test]
fn two_choices_have_their_probabilities() {
    let spec = plain("two_choices");
    for (weights, loads) in
        [([1u32, 1, 1], [0u32, 1, 2]), ([1, 1, 1], [0, 0, 0]), ([3, 2, 1], [9, 2, 0]), ([3, 2, 1], [0, 0, 0])]
    {
        let fleet = fleet(&spec, weighted(&weights));
        let mut driver = Driver::new(fleet.clone(), 11, Start::default());
        for (m, load) in fleet.members().zip(loads) {
            (0..load).for_each(|_| driver.claim(0, m, &mut Tried::default(), false).unwrap());
        }
        let mut counts = [0u64; 3];
        for _ in 0..200_000 {
            let m = driver.pick(0, b"", &mut Tried::default()).unwrap();
            counts[m.0 as usize] += 1;
            driver.complete(0, m, &done(Outcome::Neutral, 1));
        }
        let (expected, naive) = (of_two(&weights, &loads, true), of_two(&weights, &loads, false));
        let off = deviation(&counts, &expected);
        assert!(off < LIMIT, "{weights:?} {loads:?}: {counts:?}, expected {expected:?}: {off:.1}");
        if expected.iter().zip(&naive).any(|(a, b)| (a - b).abs() > 0.01) {
            let off = deviation(&counts, &naive);
            assert!(off > LIMIT, "{weights:?} {loads:?}: {counts:?} is {naive:?} as well: {off:.1}");
        }
    }
}

/// One draw, and 0, 1 and 2 requests in flight beside the one that is placed, what is remembered is a Markov chain: the server
/// without requests is remembered half of the time, the next one a third.
#[test]
fn choices_with_memory_have_their_probabilities() {
    let spec = Spec::new(find("choices_with_memory").unwrap(), &[("choices", "1")]).unwrap();
    let mut driver = Driver::new(fleet(&spec, weighted(&[1; 3])), 11, Start::default());
    for (member, load) in [(Member(1), 1), (Member(2), 2)] {
        (0..load).for_each(|_| driver.claim(0, member, &mut Tried::default(), false).unwrap());
    }
    let (mut counts, requests) = ([0u32; 3], 200_000);
    for _ in 0..requests {
        let member = driver.pick(0, b"", &mut Tried::default()).unwrap();
        counts[member.0 as usize] += 1;
        driver.complete(0, member, &done(Outcome::Neutral, 1));
    }
    for (count, expected) in counts.iter().zip([12.0 / 18.0, 5.0 / 18.0, 1.0 / 18.0]) {
        assert!((f64::from(*count) / f64::from(requests) - expected).abs() < 0.01, "{counts:?}");
    }
}

/// Two different servers at least are always compared, however many were to be drawn: the one busy server of a fleet gets
/// nothing.
#[test]
fn more_than_two_choices_never_take_the_only_busy_server() {
    for (servers, count) in [(3, 3), (4, 3), (16, 15), (17, 16), (100, 16)] {
        let mut driver = Driver::new(fleet(&choices(count), weighted(&vec![1; servers])), 5, Start::default());
        driver.claim(0, Member(1), &mut Tried::default(), false).unwrap();
        for i in 0..20_000 {
            let member = driver.pick(i, b"", &mut Tried::default()).unwrap();
            assert_ne!(member, Member(1), "{count} of {servers}, request {i}");
            driver.complete(i, member, &done(Outcome::Success, 1));
        }
    }
}
