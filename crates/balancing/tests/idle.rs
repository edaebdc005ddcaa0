//! The algorithms that look for idle servers and for servers with room, with several dispatchers.

use std::collections::BTreeSet;

use balanza_balancing::{Basis, Driver, Fleet, Member, Nanos, Reason, Report, ServerSpec, Start, Tried};
use proptest::prelude::*;

mod common;
use common::{driver, fleet, weighted};

const NOW: Nanos = 1_000_000_000_000;

/// Requests begin and end at random; `check` gets the servers that were idle before each pick.
fn random_walk(driver: &mut Driver, seed: u64, most: usize, mut check: impl FnMut(&Fleet, &[u32], Member)) {
    let fleet = driver.fleet().clone();
    let (mut flying, mut state) = (Vec::new(), seed);
    for now in 0..2_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if flying.is_empty() || flying.len() < most && state >> 62 > 0 {
            let before: Vec<u32> = fleet.members().map(|m| fleet.state(m).in_flight()).collect();
            let Ok(member) = driver.pick(now, b"", &mut Tried::default()) else { continue };
            check(&fleet, &before, member);
            flying.push(member);
        } else {
            let member = flying.swap_remove((state >> 35) as usize % flying.len());
            driver.complete(now, member, &Report::default());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// The first with room, by a search of all.
    #[test]
    fn first_is_the_first(n in prop_oneof![2usize..33, 33usize..200], seed: u64, limit in 1u32..4) {
        let servers = (0..n).map(|i| ServerSpec { max_conns: limit, ..ServerSpec::new(&format!("s{i}:80")) });
        let mut driver = driver("first", &[], servers.collect());
        random_walk(&mut driver, seed, n * limit as usize, |_, before, member| {
            assert_eq!(before.iter().position(|a| *a < limit), Some(member.0 as usize));
        });
    }

    /// With one dispatcher a request goes to an idle server whenever there is one.
    #[test]
    fn one_dispatcher_finds_whoever_is_idle(n in 1usize..100, seed: u64, two: bool, spread in 1usize..4) {
        let by = if two { "two_choices" } else { "random" };
        let mut driver = driver("join_idle_queue", &[("by", by)], weighted(&vec![1; n]));
        random_walk(&mut driver, seed, (n * spread).div_ceil(2), |_, before, member| {
            let idle = before.contains(&0);
            // A queue may hold servers that have got work otherwise; a request looks past 15 of them.
            let stale = before.iter().filter(|a| **a > 0).count();
            assert!(!idle || before[member.0 as usize] == 0 || stale > 15, "{before:?} {member:?}");
        });
    }
}

/// If no server gets requests in another way, the server that has been idle longest is next.
#[test]
fn the_longest_idle_is_next() {
    let mut driver = driver("join_idle_queue", &[], weighted(&[1; 8]));
    let next = |driver: &mut Driver| {
        let mut reason = Reason::default();
        let member = driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
        assert_eq!(reason.basis, Basis::Idle);
        member.0
    };
    let first: [u32; 5] = std::array::from_fn(|_| next(&mut driver));
    assert_eq!(first, [0, 1, 2, 3, 4]);
    for member in [3, 0, 4].map(Member) {
        driver.complete(NOW, member, &Report::default());
    }
    assert_eq!(std::array::from_fn(|_| next(&mut driver)), [5, 6, 7, 3, 0, 4]);
    // No server is idle: a draw.
    let mut reason = Reason::default();
    driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
    assert_eq!(reason.basis, Basis::Draw);
}

/// Every idle server is with one dispatcher: two of them never take the same one, and together they find all.
#[test]
fn dispatchers_share_the_idle_without_meeting() {
    for by in ["random", "two_choices"] {
        let fleet = fleet("join_idle_queue", &[("by", by)], weighted(&[1; 40]));
        let dispatcher = |worker| Driver::new(fleet.clone(), 5 + worker as u64, Start { worker, workers: 2 });
        let mut dispatchers = [dispatcher(0), dispatcher(1)];
        let mut taken = BTreeSet::new();
        let mut reason = Reason::default();
        for driver in &mut dispatchers {
            for _ in 0..20 {
                let member = driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
                assert_eq!(reason.basis, Basis::Idle);
                assert!(taken.insert(member), "{member:?} taken twice");
            }
        }
        // All become idle, through whichever dispatcher, and enlist with any of the two.
        for member in taken {
            dispatchers[member.0 as usize % 2].complete(NOW, member, &Report::default());
        }
        let idle = |driver: &mut Driver| {
            let mut found = 0;
            loop {
                let mut reason = Reason::default();
                driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
                if reason.basis != Basis::Idle {
                    return found;
                }
                found += 1;
            }
        };
        let found = [idle(&mut dispatchers[0]), 0];
        let spread = if by == "random" { 8..=32 } else { 18..=22 };
        assert!(spread.contains(&found[0]), "{by}: {found:?} of 40 enlisted with the first");
    }
}

/// When a worker ends, the servers in its queue are found by the others.
#[test]
fn the_idle_of_a_worker_that_ended_are_not_lost() {
    let fleet = fleet("join_idle_queue", &[], weighted(&[1; 40]));
    let dispatcher = |worker| Driver::new(fleet.clone(), 5 + worker as u64, Start { worker, workers: 3 });
    let mut first = dispatcher(0);
    drop((dispatcher(1), dispatcher(2)));
    for _ in 0..3 {
        let mut reason = Reason::default();
        for _ in 0..40 {
            first.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
            assert_eq!(reason.basis, Basis::Idle);
        }
        (0..40).for_each(|i| {
            first.complete(NOW, Member(i), &Report::default());
        });
    }
    // Where another takes its place, they are that one's.
    let _again = [dispatcher(1), dispatcher(2)];
    let mut reason = Reason::default();
    let idle = |_: &i32| {
        first.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
        reason.basis == Basis::Idle
    };
    assert!((1..30).contains(&(0..40).filter(idle).count()));
}
