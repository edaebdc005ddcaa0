//! What is closed takes nothing; limits of servers and groups; claims.

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Group, Member, Refused, ServerSpec, Tried};

use crate::subject::{
    FEW, LIBRARY, MANY, MS, SECOND, Subject, Traffic, Verdict, every_form, keeps_its_clients, key, refuses, require,
    servers, success,
};

/// Down, draining, without weight, by configuration or by an operator: nothing new.
pub fn check_closed(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [7, MANY] {
        let closed = |i: usize, server: &mut ServerSpec| match i {
            0 => server.down = true,
            1 => server.draining = true,
            2 => server.weight = 0,
            3 => server.backup = true,
            _ => {}
        };
        let all = servers(n, closed);
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        all[4].1.set_down(true);
        all[5].1.set_draining(true);
        let counts = Traffic::new(2 * n).send(subject, &mut driver, 2_000);
        require!(counts[..6].iter().all(|c| *c == 0), "{n} servers: closed ones got {:?}", &counts[..6]);
        require!(refuses(spec) || counts.iter().sum::<u64>() == 2_000, "{n} servers: somebody is open");
        // The last open ones close: the backup takes all.
        all[6..].iter().for_each(|(_, state)| state.set_down(true));
        let mut tried = Tried::default();
        let found = (subject.pick)(&mut driver, 2_000 * SECOND, &key(1), &mut tried);
        require!(refuses(spec) || found == Ok(Member(3)), "{n} servers: {found:?} instead of the backup");
    }
    Ok(())
}

#[test]
fn closed_servers_get_nothing() {
    every_form(check_closed);
}

/// New clients stop at the soft limit, returning ones at the hard one.
pub fn check_soft(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [FEW, MANY] {
        let all = servers(n, |_, server| (server.soft_max_conns, server.max_conns) = (2, 3));
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        let mut counts = vec![0; n];
        let mut request = 0;
        let mut fill = |counts: &mut Vec<u64>, driver: &mut _| {
            for _ in 0..40 * n {
                request += 1;
                if let Ok(member) = (subject.pick)(driver, SECOND, &key(request), &mut Tried::default()) {
                    counts[member.0 as usize] += 1;
                }
            }
        };
        fill(&mut counts, &mut driver);
        require!(counts.iter().all(|c| *c <= 2), "{n} servers: above the soft limit: {counts:?}");
        require!(refuses(spec) || counts.iter().all(|c| *c == 2), "{n} servers: below it: {counts:?}");
        for member in fleet.members() {
            let mut claim = |returning| driver.claim(SECOND, member, &mut Tried::default(), returning);
            if counts[member.0 as usize] == 2 {
                require!(claim(false) == Err(Refused::Full), "{n} servers: a new client above the soft limit");
                require!(claim(true).is_ok(), "{n} servers: a returning client below the hard limit");
                require!(claim(true) == Err(Refused::Full), "{n} servers: a returning client above the hard limit");
            }
        }
        // A limit from a report takes the place of the configured one.
        all[0].1.set_max_conns(Some(9));
        let found = driver.claim(SECOND, Member(0), &mut Tried::default(), true);
        require!(found.is_ok(), "{n} servers: {found:?} below the reported limit");
    }
    Ok(())
}

#[test]
fn soft_and_hard_limits() {
    every_form(check_soft);
}

/// A group takes as much as its limit, the next one the rest.
pub fn check_groups(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [4, MANY] {
        let all = servers(n, |i, server| server.priority = 10 * (i % 2) as u32);
        let fleet = subject.fleet_with_groups(spec, &all, &[Group { priority: 0, max_conns: 3 }]);
        let mut driver = subject.driver(&fleet, 1);
        let pick = |driver: &mut _, i| {
            (subject.pick)(driver, SECOND, &key(i), &mut Tried::default()).map_err(|_| "nobody".to_string())
        };
        let of = |member: Member| member.0 % 2;
        let mut first = Vec::new();
        for i in 0..3 {
            let member = pick(&mut driver, i)?;
            require!(of(member) == 0, "{n} servers: {member:?} although the first group has room");
            first.push(member);
        }
        for i in 3..8 {
            if keeps_its_clients(spec) {
                let found = pick(&mut driver, i);
                require!(found.is_err(), "{n} servers: {found:?} although its own group is full");
                continue;
            }
            let member = pick(&mut driver, i)?;
            require!(of(member) == 1, "{n} servers: {member:?} although the first group is full");
        }
        let refused = driver.claim(SECOND, Member(0), &mut Tried::default(), false);
        require!(refused == Err(Refused::Full), "{n} servers: a claim in a full group: {refused:?}");
        driver.complete(SECOND, first[0], &success(MS));
        let member = pick(&mut driver, 9)?;
        require!(of(member) == 0, "{n} servers: {member:?} although the first group has room again");
    }
    Ok(())
}

#[test]
fn priority_groups_have_limits() {
    every_form(check_groups);
}

/// Claimed requests count: in the server's state, and in the turns of round robin.
pub fn check_claims(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [FEW, MANY] {
        let all = servers(n, |_, _| {});
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        let state = &all[1].1;
        for i in 1..=20 {
            let claimed = driver.claim(SECOND, Member(1), &mut Tried::default(), true);
            require!(claimed.is_ok(), "{n} servers: {claimed:?}");
            require!((state.in_flight(), state.requests()) == (i, u64::from(i)), "{n} servers: not counted");
        }
        for _ in 0..20 {
            driver.complete(SECOND, Member(1), &success(MS));
        }
        require!(state.in_flight() == 0, "{n} servers: not given back");
        if spec.entry().name == "round_robin" {
            // Every fourth request belongs to server 0; all together are equally many for each.
            let mut counts = vec![0u64; n];
            for i in 0..400 * n as u64 {
                let mut tried = Tried::default();
                let member = if i % (4 * n as u64) == 0 {
                    let claimed = driver.claim(SECOND, Member(0), &mut tried, true);
                    require!(claimed.is_ok(), "{claimed:?}");
                    Member(0)
                } else {
                    (subject.pick)(&mut driver, SECOND, &key(i), &mut tried).map_err(|e| e.to_string())?
                };
                counts[member.0 as usize] += 1;
                driver.complete(SECOND, member, &success(MS));
            }
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let close = most.zip(least).is_some_and(|(most, least)| most - least < 40);
            require!(close, "{n} servers: claims are not charged: {counts:?}");
        }
    }
    Ok(())
}

#[test]
fn claims_are_accounted() {
    every_form(check_claims);
    assert!(check_claims(&LIBRARY, &Spec::new(find("round_robin").unwrap(), &[]).unwrap()).is_ok());
}
