//! A pick that is explained is the same pick, and its reason is one.

use balanza_balancing::registry::Spec;
use balanza_balancing::{Basis, Driver, Member, Outcome, Reason, ServerSpec, Tried};

use crate::subject::{FEW, MANY, MS, SECOND, Subject, Verdict, every_form, key, require, servers, success};

type Pick<'a> = dyn FnMut(&mut Driver, u64, &[u8], &mut Tried) -> Option<Member> + 'a;

fn trace(subject: &Subject, spec: &Spec, n: usize, pick: &mut Pick<'_>) -> Vec<Option<Member>> {
    let of = |i: usize, server: &mut ServerSpec| {
        server.weight = 1 + i as u32 % 4;
        server.max_conns = 9;
        server.backup = n > 1 && i == 0;
    };
    let mut driver = subject.driver(&subject.fleet(spec, &servers(n, of)), 42);
    let mut tried = Tried::default();
    let mut send = |i: u64| {
        let now = SECOND + i * 10 * MS;
        if i % 5 != 1 {
            tried.clear();
        }
        let found = pick(&mut driver, now, &key(i % 70), &mut tried);
        if let (Some(member), true) = (found, !i.is_multiple_of(4)) {
            let mut report = success(MS * (1 + i % 50));
            if i.is_multiple_of(31) {
                report.outcome = Outcome::Failure;
            }
            driver.complete(now, member, &report);
        }
        found
    };
    (0..500).map(&mut send).collect()
}

pub fn check(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [1, FEW, MANY] {
        let plain =
            trace(subject, spec, n, &mut |driver, now, key, tried| (subject.pick)(driver, now, key, tried).ok());
        let mut wrong = None;
        let explained = trace(subject, spec, n, &mut |driver, now, key, tried| {
            let mut reason = Reason::default();
            let found = driver.pick_explained(now, key, tried, &mut reason).ok();
            if let Some(member) = found {
                let words = reason.words(driver.fleet()).to_string();
                let next = reason.next.is_none_or(|(next, score)| next != member && score.is_finite());
                let finite = reason.score.is_none_or(f64::is_finite);
                let alone = n > 1 || reason.basis == Basis::Only;
                if !words.starts_with(spec.entry().name) || words.contains("NaN") || !next || !finite || !alone {
                    wrong = Some(format!("{member:?} because of {words}"));
                }
            }
            found
        });
        let same = plain.iter().zip(&explained).take_while(|(a, b)| a == b).count();
        require!(same == plain.len(), "{n} servers: the picks differ from {same} on");
        require!(wrong.is_none(), "{n} servers: {wrong:?}");
    }
    Ok(())
}

#[test]
fn explained_picks_are_the_same() {
    every_form(check);
}
