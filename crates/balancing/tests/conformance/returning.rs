//! A server that comes back gets traffic again, a little at first where slow start is asked for.

use balanza_balancing::registry::Spec;
use balanza_balancing::{Member, Tried};

use crate::subject::{
    FAILED, FEW, MANY, MS, SECOND, Subject, Traffic, Verdict, every_form, keeps_its_clients, key, require, servers,
};

/// Closes after a failure, opens after the timeout, and has its share soon.
pub fn check_failures(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [FEW, MANY] {
        let all = servers(n, |_, server| server.fail_timeout = 10 * SECOND);
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        let mut traffic = Traffic::new(2 * n);
        traffic.gap = 10 * MS;
        let before = traffic.send(subject, &mut driver, 300 * n as u64)[0];
        require!(before > 0, "{n} servers: no traffic to begin with");
        // Requests that only server 0 is left for.
        let mut tried = Tried::default();
        fleet.members().skip(1).for_each(|m| tried.insert(m));
        let claimed = driver.claim(traffic.now, Member(0), &mut tried, false);
        require!(claimed.is_ok(), "{n} servers: {claimed:?}");
        require!(driver.complete(traffic.now, Member(0), &FAILED).disabled, "{n} servers: not closed by its failure");
        let closed = traffic.send(subject, &mut driver, 900)[0];
        require!(closed == 0, "{n} servers: {closed} requests within the fail timeout");
        traffic.now += 2 * SECOND;
        let after = traffic.send(subject, &mut driver, 300 * n as u64)[0];
        require!(after * 2 > before, "{n} servers: {before} requests before the failure, {after} after the timeout");
    }
    Ok(())
}

#[test]
fn failed_servers_come_back() {
    every_form(check_failures);
}

/// An operator's `down` and `drain` end, and the server has its share soon.
pub fn check_operators(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [FEW, MANY] {
        let all = servers(n, |_, _| {});
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        let mut traffic = Traffic::new(2 * n);
        let mut send = || traffic.send(subject, &mut driver, 300 * n as u64)[0];
        let before = send();
        all[0].1.set_down(true);
        require!(send() == 0, "{n} servers: traffic while down");
        all[0].1.set_down(false);
        let after = send();
        require!(after * 2 > before, "{n} servers: {before} requests before being down, {after} after");
        all[0].1.set_draining(true);
        require!(send() == 0, "{n} servers: traffic while draining");
        all[0].1.set_draining(false);
        let after = send();
        require!(after * 2 > before, "{n} servers: {before} requests before draining, {after} after");
    }
    Ok(())
}

#[test]
fn operators_open_again() {
    every_form(check_operators);
}

/// Within `slow_start` the share grows from little to all.
pub fn check_slow_start(subject: &Subject, spec: &Spec) -> Verdict {
    if keeps_its_clients(spec) {
        return Ok(());
    }
    for n in [FEW, MANY] {
        let all = servers(n, |_, server| (server.weight, server.slow_start) = (4, 20 * SECOND));
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        let mut traffic = Traffic::new(12 * n);
        let quarter = 1_000 * n as u64;
        traffic.gap = 5 * SECOND / quarter;
        let before = traffic.send(subject, &mut driver, quarter)[0];
        if n == FEW {
            all[0].1.warm_up(traffic.now);
        } else {
            // It begins by itself when an operator's order ends.
            all[0].1.set_down(true);
            all[0].1.set_down(false);
        }
        let grown: Vec<u64> = (0..5).map(|_| traffic.send(subject, &mut driver, quarter)[0]).collect();
        require!(grown[0] * 2 < before, "{n} servers: {before} per quarter before, then {grown:?}");
        require!(grown[3] > grown[0] && grown[4] * 10 > before * 7, "{n} servers: {before} before, then {grown:?}");
    }
    Ok(())
}

#[test]
fn slow_start_ramps() {
    every_form(check_slow_start);
}

/// A request without another server goes to a server in slow start.
pub fn check_last_resort(subject: &Subject, spec: &Spec) -> Verdict {
    let all = servers(3, |_, server| server.slow_start = 60 * SECOND);
    let fleet = subject.fleet(spec, &all);
    let mut driver = subject.driver(&fleet, 1);
    all.iter().for_each(|(_, state)| state.warm_up(SECOND));
    for i in 0..50 {
        let found = (subject.pick)(&mut driver, SECOND, &key(i), &mut Tried::default());
        require!(found.is_ok(), "nobody, although all three are open");
    }
    Ok(())
}

#[test]
fn slow_start_refuses_nobody() {
    every_form(check_last_resort);
}
