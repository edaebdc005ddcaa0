//! Algorithms that promise a share of the keys send equal keys to one server, and a server that takes less gives up some
//! of its keys and none of the others'.

use balanza_balancing::registry::{Share, Spec};
use balanza_balancing::{Member, Tried};

use crate::subject::{
    FEW, MANY, MS, SECOND, Subject, Verdict, every_form, keeps_its_clients, key, require, servers, success,
};

pub fn check(subject: &Subject, spec: &Spec) -> Verdict {
    if spec.entry().share != Share::Key {
        return Ok(());
    }
    for n in [FEW, MANY] {
        let all = servers(n, |_, _| {});
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        let mut owners = |share: u32| -> Vec<Option<Member>> {
            all[2].1.set_share(share);
            let owner = |i: u64| {
                let member = (subject.pick)(&mut driver, SECOND, &key(i), &mut Tried::default()).ok()?;
                driver.complete(SECOND, member, &success(MS));
                Some(member)
            };
            (0..1_000 * n as u64).map(owner).collect()
        };
        let (whole, half, quarter, again) = (owners(100), owners(50), owners(25), owners(100));
        let moved = whole.iter().zip(&again).filter(|(a, b)| a != b).count();
        require!(moved == 0, "{n} servers: {moved} keys of {} have moved", whole.len());
        let mine = |owner: &Option<Member>| *owner == Some(Member(2));
        let part = |owners: &[Option<Member>]| owners.iter().filter(|o| mine(o)).count() as f64 / 1_000.0;
        if keeps_its_clients(spec) {
            require!(half == whole && quarter == whole, "{n} servers: keys have left a server that takes less");
            continue;
        }
        // A server that skips a key may be drawn again for it, so half the share is half the keys or a little more.
        require!(
            (0.35..0.65).contains(&(part(&half) / part(&whole))),
            "{n} servers: {} at half the share",
            part(&half)
        );
        require!(
            (0.15..0.4).contains(&(part(&quarter) / part(&whole))),
            "{n} servers: {} at a quarter",
            part(&quarter)
        );
        for ((a, b), c) in whole.iter().zip(&half).zip(&quarter) {
            require!(mine(a) || a == b && a == c, "{n} servers: a key of {a:?} went to {b:?} and {c:?}");
            require!(mine(b) || !mine(c), "{n} servers: a key came back at a lesser share");
        }
    }
    Ok(())
}

#[test]
fn keys_keep_their_servers() {
    every_form(check);
}
