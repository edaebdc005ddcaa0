//! Each check finds out a subject that is wrong in what it checks: a library that was told something else than the check
//! believes. A check that passes here would be one that cannot fail.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Driver, Fleet, Group, Member, Nanos, NoServer, ServerState, Start, Tried};

use crate::subject::{LIBRARY, SECOND, Subject, Tell, Verdict};
use crate::{eligibility, keys, limits, reasons, reports, returning, shares, threads, times, traces};

fn form(name: &str) -> Spec {
    Spec::new(find(name).unwrap(), &[]).unwrap()
}

/// The check finds fault with the mutant, whatever the algorithm of these, and none with the library.
///
/// An empty message stands for any fault.
fn found_out(check: impl Fn(&Subject, &Spec) -> Verdict, mutant: Subject, message: &str, algorithms: &[&str]) {
    for name in algorithms {
        let spec = form(name);
        assert_eq!(check(&LIBRARY, &spec), Ok(()), "{name}");
        let verdict = check(&mutant, &spec);
        assert!(verdict.as_ref().is_err_and(|error| error.contains(message)), "{name}: {verdict:?}");
    }
}

/// A pick of another driver of the same fleet.
fn of_another(driver: &mut Driver, now: Nanos, key: &[u8], tried: &mut Tried) -> Result<Member, NoServer> {
    thread_local!(static OTHER: RefCell<Option<Driver>> = const { RefCell::new(None) });
    OTHER.with_borrow_mut(|other| {
        let fleet = driver.fleet();
        let of_fleet = other.take().filter(|other| Arc::ptr_eq(other.fleet(), fleet));
        other.insert(of_fleet.unwrap_or_else(|| Driver::new(fleet.clone(), 1, Start::default()))).pick(now, key, tried)
    })
}

/// Never learns what becomes of its servers: their states are others.
const IGNORANT: Subject = Subject { state: |_| Arc::new(ServerState::new()), ..LIBRARY };

const SOME: [&str; 4] = ["round_robin", "least_conn", "random", "hash"];

#[test]
fn eligibility_of_any_kind() {
    let told: [Tell; 7] = [
        |server| server.down = false,
        |server| server.draining = false,
        |server| server.max_conns = 0,
        |server| server.max_fails = 0,
        |server| server.fail_timeout *= 2,
        |server| server.backup = false,
        |server| server.priority = 0,
    ];
    for server in told {
        found_out(eligibility::check_quietly, Subject { server, ..LIBRARY }, "", &SOME[..1]);
    }
    // Closed without a reason: a server is eligible and none is picked, or may be claimed.
    let closed = Subject { server: |server| server.down |= server.weight == 5, ..LIBRARY };
    found_out(eligibility::check_quietly, closed, "", &SOME[..1]);
    // Other states than those that operators change.
    found_out(
        eligibility::check_quietly,
        Subject { state: |_| Arc::new(ServerState::new()), ..LIBRARY },
        "",
        &SOME[..1],
    );
}

#[test]
fn attempts() {
    let forgets = Subject {
        pick: |driver, now, key, tried| {
            let found = driver.pick(now, key, &mut Tried::default());
            found.inspect(|member| tried.insert(*member))
        },
        ..LIBRARY
    };
    found_out(eligibility::check_attempts, forgets, "twice", &SOME);
    let hidden = Subject { server: |server| server.down = server.weight == 3, ..LIBRARY };
    found_out(eligibility::check_attempts, hidden, "not all were tried", &SOME);
}

#[test]
fn traces_of_a_changing_seed() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let restless = Subject { seed: |seed| seed + CALLS.fetch_add(1, Relaxed), ..LIBRARY };
    found_out(traces::check, restless, "runs differ", &["random", "two_choices"]);
    found_out(reasons::check, restless, "picks differ", &["random", "two_choices"]);
}

#[test]
fn times_that_choose() {
    let late = Subject {
        pick: |driver, now, key, tried| {
            if now > 100 * SECOND { of_another(driver, now, key, tried) } else { driver.pick(now, key, tried) }
        },
        ..LIBRARY
    };
    found_out(times::check, late, "change with times", &["round_robin", "least_conn", "random"]);
}

#[test]
fn beginnings_at_one_server() {
    // Every worker is the first and does not know of others.
    let herd = Subject {
        pick: |driver, now, key, tried| {
            let fleet = driver.fleet();
            let of = |m| (fleet.server(m).clone(), Arc::new(ServerState::new()));
            let own = Arc::new(Fleet::new(fleet.spec(), fleet.members().map(of).collect()).unwrap());
            let member = Driver::new(own, 1, Start::default()).pick(now, key, tried)?;
            driver.claim(now, member, &mut Tried::default(), true).map_err(|_| NoServer)?;
            Ok(member)
        },
        ..LIBRARY
    };
    found_out(traces::check_beginning, herd, "begin at", &["round_robin", "least_conn", "random"]);
}

#[test]
fn shares_of_other_weights() {
    let equal = Subject { server: |server| server.weight = 1, ..LIBRARY };
    found_out(
        shares::check_weights,
        equal,
        "",
        &["round_robin", "least_conn", "random", "hash", "ip_hash", "two_choices"],
    );
    let heavier = Subject { server: |server| server.weight += u32::from(server.weight == 2), ..LIBRARY };
    found_out(shares::check_weights, heavier, "off the weights", &["round_robin", "random", "hash"]);
    found_out(shares::check_shares, IGNORANT, "half the share", &SOME);
}

#[test]
fn closed_servers() {
    let told: [Tell; 4] = [
        |server| server.down = false,
        |server| server.draining = false,
        |server| server.weight = 1,
        |server| server.backup = false,
    ];
    for server in told {
        found_out(limits::check_closed, Subject { server, ..LIBRARY }, "closed ones got", &SOME);
    }
    found_out(limits::check_closed, IGNORANT, "closed ones got", &SOME);
    let nowhere = Subject { server: |server| server.down |= server.backup, ..LIBRARY };
    found_out(limits::check_closed, nowhere, "instead of the backup", &SOME);
}

#[test]
fn limits_of_other_sizes() {
    let no_soft = Subject { server: |server| server.soft_max_conns = 0, ..LIBRARY };
    found_out(limits::check_soft, no_soft, "above the soft limit", &SOME);
    let low = Subject { server: |server| server.soft_max_conns = 1, ..LIBRARY };
    found_out(limits::check_soft, low, "below it", &SOME);
    let no_hard = Subject { server: |server| server.max_conns = 0, ..LIBRARY };
    found_out(limits::check_soft, no_hard, "above the hard limit", &SOME);
    let wide =
        |groups: &[Group]| groups.iter().map(|group| Group { max_conns: group.max_conns + 1, ..*group }).collect();
    found_out(limits::check_groups, Subject { groups: wide, ..LIBRARY }, "group is full", &SOME);
    let flat = Subject { server: |server| server.priority = 0, ..LIBRARY };
    found_out(limits::check_groups, flat, "", &SOME);
    found_out(
        threads::check_limits,
        Subject { server: |server| server.max_conns += 1, ..LIBRARY },
        "above a limit",
        &SOME,
    );
    found_out(threads::check_limits, Subject { groups: wide, ..LIBRARY }, "above a limit", &SOME[..1]);
}

#[test]
fn claims_that_are_not_charged() {
    // Picks of a driver that has not seen the claims.
    let apart = Subject { pick: of_another, ..LIBRARY };
    found_out(limits::check_claims, apart, "not charged", &["round_robin"]);
    found_out(limits::check_claims, IGNORANT, "not counted", &SOME);
}

#[test]
fn servers_that_do_not_come_back() {
    let long = Subject { server: |server| server.fail_timeout = 1_000 * SECOND, ..LIBRARY };
    found_out(returning::check_failures, long, "after the timeout", &SOME);
    let never = Subject { server: |server| server.max_fails = 0, ..LIBRARY };
    found_out(returning::check_failures, never, "not closed", &SOME);
    found_out(returning::check_operators, IGNORANT, "while down", &SOME);
    let stays = Subject { server: |server| server.slow_start = 1_000_000 * SECOND, ..LIBRARY };
    found_out(returning::check_operators, stays, "after", &SOME);
    let at_once = Subject { server: |server| server.slow_start = 0, ..LIBRARY };
    found_out(returning::check_slow_start, at_once, "before, then", &SOME);
    found_out(returning::check_slow_start, stays, "before, then", &SOME);
    let closed = Subject { server: |server| server.down = true, ..LIBRARY };
    found_out(returning::check_last_resort, closed, "nobody", &SOME);
}

#[test]
fn memberships_that_forget() {
    found_out(threads::check_memberships, IGNORANT, "requests counted", &SOME[..1]);
    let hidden = Subject { server: |server| server.max_conns = 1, ..LIBRARY };
    found_out(threads::check_memberships, hidden, "found no server", &SOME[..1]);
}

#[test]
fn keys_that_wander() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let wandering = Subject {
        pick: |driver, now, _, tried| driver.pick(now, &CALLS.fetch_add(1, Relaxed).to_le_bytes(), tried),
        ..LIBRARY
    };
    found_out(keys::check, wandering, "have moved", &["hash", "maglev", "rendezvous"]);
    found_out(keys::check, IGNORANT, "at half the share", &["hash", "ip_hash", "maglev", "rendezvous"]);
}

#[test]
fn reports_that_are_not_heard() {
    // Picks of a driver that is not the one that probes are told to.
    let apart = Subject { pick: of_another, ..LIBRARY };
    found_out(reports::check_reports, IGNORANT, "at 95 %", &["least_load", "weighted_load"]);
    let prequal = Spec::new(find("prequal").unwrap(), &[("probe", "/load")]).unwrap();
    assert_eq!(reports::check_probes(&LIBRARY, &prequal), Ok(()));
    let verdict = reports::check_probes(&apart, &prequal);
    assert!(verdict.as_ref().is_err_and(|error| error.contains("when slow")), "{verdict:?}");
}
