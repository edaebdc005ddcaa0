//! An algorithm that declares that it does not use times makes the same choices for any clock and any response times.

use balanza_balancing::registry::Spec;
use balanza_balancing::{Fleet, Outcome, Report, Tried};

use crate::subject::{FEW, MANY, MS, SECOND, Subject, Verdict, every_form, key, require, servers};

/// 600 picks with `step` between them and so long responses.
fn trace(subject: &Subject, fleet: &std::sync::Arc<Fleet>, step: u64, times: impl Fn(u64) -> u64) -> Vec<u32> {
    let mut driver = subject.driver(fleet, 42);
    let mut tried = Tried::default();
    let mut probes = Vec::new();
    (0..600u64)
        .map(|i| {
            let now = SECOND + i * step;
            tried.clear();
            let member = (subject.pick)(&mut driver, now, &key(i % 70), &mut tried).expect("all are open");
            if i % 3 > 0 {
                let time = Some(times(u64::from(member.0)));
                let report = Report { outcome: Outcome::Success, header_time: time, last_byte_time: time, bytes: 200 };
                driver.complete(now, member, &report);
            }
            driver.take_probes(now, &mut probes);
            for probe in &probes {
                driver.probed(now, *probe, member.0, times(u64::from(probe.0)));
            }
            member.0
        })
        .collect()
}

pub fn check(subject: &Subject, spec: &Spec) -> Verdict {
    let mut differ = false;
    for n in [FEW, MANY] {
        let fleet = || subject.fleet(spec, &servers(n, |i, server| server.weight = 1 + i as u32 % 4));
        let still = trace(subject, &fleet(), 0, |_| MS);
        let moving = trace(subject, &fleet(), SECOND, |server| MS * (1 + server * 7 % 50));
        differ |= still != moving;
    }
    require!(!differ || spec.goes_by_time(), "choices change with times");
    Ok(())
}

#[test]
fn times_mean_something_only_to_those_who_say_so() {
    every_form(check);
}
