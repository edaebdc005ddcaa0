//! The same seed and calls give the same picks; other seeds and workers begin elsewhere.

use std::collections::BTreeSet;

use balanza_balancing::registry::{Key, Share, Spec};
use balanza_balancing::{Driver, Member, Outcome, Start, Tried};

use crate::subject::{FEW, MANY, MS, SECOND, Subject, Verdict, every_form, key, require, servers, success};

pub fn check(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [FEW, MANY] {
        let trace = || {
            let fleet = subject.fleet(
                spec,
                &servers(n, |i, server| {
                    server.weight = 1 + i as u32 % 4;
                    server.max_conns = 6;
                    server.slow_start = SECOND;
                }),
            );
            fleet.state(Member(1)).warm_up(SECOND);
            let mut driver = subject.driver(&fleet, 42);
            let (mut tried, mut probes) = (Tried::default(), Vec::new());
            let picks: Vec<_> = (0..600u64)
                .map(|i| {
                    let now = SECOND + i * 10 * MS;
                    if i % 5 != 1 {
                        tried.clear();
                    }
                    let found = (subject.pick)(&mut driver, now, &key(i % 70), &mut tried);
                    if let (Ok(member), true) = (found, i % 3 > 0) {
                        let mut report = success(MS * (1 + i % 50));
                        if i % 31 == 0 {
                            report.outcome = Outcome::Failure;
                        }
                        driver.complete(now, member, &report);
                    }
                    driver.take_probes(now, &mut probes);
                    for probe in &probes {
                        driver.probed(now, *probe, u32::from(i % 7 == 0), MS);
                    }
                    found
                })
                .collect();
            picks
        };
        let (one, two) = (trace(), trace());
        let same = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
        require!(same == one.len(), "{n} servers: runs differ from pick {same} on");
    }
    Ok(())
}

#[test]
fn seeds_repeat() {
    every_form(check);
}

/// The first requests of eight workers do not all go to one server, unless a key or the order says so.
pub fn check_beginning(subject: &Subject, spec: &Spec) -> Verdict {
    if spec.entry().key != Key::None || spec.entry().share == Share::Order {
        return Ok(());
    }
    for n in [8, 64] {
        // Twice on the same states, as after a reload.
        let all = servers(n, |_, _| {});
        for generation in 0..2 {
            let fleet = subject.fleet(spec, &all);
            let first = |worker: u64| {
                let start = Start { worker: worker as usize, workers: 8 };
                let mut driver = Driver::new(fleet.clone(), (subject.seed)(5 + worker + generation), start);
                let member = (subject.pick)(&mut driver, SECOND, b"", &mut Tried::default()).unwrap();
                driver.complete(SECOND, member, &success(MS));
                member
            };
            let firsts: BTreeSet<_> = (0..8).map(first).collect();
            require!(firsts.len() >= 4, "{n} servers: eight workers begin at {firsts:?}");
        }
    }
    Ok(())
}

#[test]
fn workers_begin_apart() {
    every_form(check_beginning);
}
