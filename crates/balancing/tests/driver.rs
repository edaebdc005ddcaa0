//! What the driver does, whatever the algorithm: priorities and their limits, claims, slow start after failures, reasons.
//! What holds for every algorithm is in `conformance`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{
    Driver, Fleet, FleetError, Group, Member, Nanos, NoServer, Outcome, Reason, Refused, Report, ServerSpec,
    ServerState, Start, Tried,
};

const SECOND: Nanos = 1_000_000_000;
const NOW: Nanos = 1_000 * SECOND;

fn fleet_of(algorithm: &str, servers: Vec<ServerSpec>, groups: &[Group]) -> Result<Arc<Fleet>, FleetError> {
    let spec = Spec::new(find(algorithm).unwrap(), &[]).unwrap();
    let servers = servers.into_iter().map(|s| (s, Arc::new(ServerState::new()))).collect();
    Fleet::with_groups(&spec, servers, groups).map(Arc::new)
}

fn driver_of(algorithm: &str, servers: Vec<ServerSpec>) -> Driver {
    Driver::new(fleet_of(algorithm, servers, &[]).unwrap(), 1, Start::default())
}

fn server(i: usize) -> ServerSpec {
    ServerSpec::new(&format!("s{i}:80"))
}

fn servers(n: usize) -> Vec<ServerSpec> {
    (0..n).map(server).collect()
}

fn pick(driver: &mut Driver, now: Nanos) -> Result<Member, NoServer> {
    driver.pick(now, b"", &mut Tried::default())
}

fn claim(driver: &mut Driver, member: Member, returning: bool) -> Result<(), Refused> {
    driver.claim(NOW, member, &mut Tried::default(), returning)
}

fn done(driver: &mut Driver, now: Nanos, member: Member) {
    let time = Some(5_000_000);
    let report = Report { outcome: Outcome::Success, header_time: time, last_byte_time: time, bytes: 100 };
    driver.complete(now, member, &report);
}

#[test]
fn priorities_come_in_order_and_backups_last() {
    let priority = |i: usize, priority| ServerSpec { priority, max_conns: 1, ..server(i) };
    let servers = vec![
        priority(0, 7),
        ServerSpec { backup: true, ..priority(1, 0) },
        priority(2, 0),
        priority(3, u32::MAX),
        priority(4, 7),
    ];
    let mut driver = driver_of("round_robin", servers);
    let order: Vec<u32> = std::iter::from_fn(|| pick(&mut driver, NOW).ok()).map(|m| m.0).collect();
    assert_eq!(order, [2, 0, 4, 3, 1]);
    done(&mut driver, NOW, Member(4));
    assert_eq!(pick(&mut driver, NOW), Ok(Member(4)));
    let many = (0..300).map(|i| priority(i, i as u32)).collect();
    assert_eq!(fleet_of("round_robin", many, &[]).unwrap_err(), FleetError::Priorities);
}

#[test]
fn a_group_has_its_limit_exactly() {
    let groups = [Group { priority: 0, max_conns: 10 }, Group { priority: 1, max_conns: 7 }];
    for n in [6usize, 80] {
        let half = |i| ServerSpec { priority: u32::from(i >= n / 2), ..server(i) };
        let fleet = fleet_of("least_conn", (0..n).map(half).collect(), &groups).unwrap();
        let counts = [AtomicU32::new(0), AtomicU32::new(0)];
        let refused = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (fleet, counts, refused) = (fleet.clone(), &counts, &refused);
                scope.spawn(move || {
                    let mut driver = Driver::new(fleet.clone(), 7, Start { worker, workers: 4 });
                    let mut mine = Vec::new();
                    let group = |m: Member| fleet.server(m).priority as usize;
                    for i in 0..20_000usize {
                        let wish = Member((i % n) as u32);
                        let found = match i % 3 {
                            0 => driver.claim(NOW, wish, &mut Tried::default(), true).ok().map(|()| wish),
                            _ => pick(&mut driver, NOW).ok(),
                        };
                        match found {
                            Some(member) => {
                                let before = counts[group(member)].fetch_add(1, Ordering::SeqCst);
                                assert!(before < groups[group(member)].max_conns);
                                mine.push(member);
                            }
                            None => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        }
                        if mine.len() > i % 23 {
                            let member = mine.swap_remove(i % mine.len());
                            counts[group(member)].fetch_sub(1, Ordering::SeqCst);
                            done(&mut driver, NOW, member);
                        }
                    }
                    for member in mine {
                        counts[group(member)].fetch_sub(1, Ordering::SeqCst);
                        done(&mut driver, NOW, member);
                    }
                });
            }
        });
        assert!(refused.into_inner() > 0);
        let mut driver = Driver::new(fleet, 1, Start::default());
        let all: Vec<_> = std::iter::from_fn(|| pick(&mut driver, NOW).ok()).collect();
        assert_eq!(all.len(), 17, "nothing was lost");
        assert!(driver.fleet().members().all(|m| !driver.fleet().accepts(NOW, m)));
        assert_eq!(driver.candidates(NOW, &Tried::default()).count(), 0);
        assert_eq!(claim(&mut driver, Member(0), true), Err(Refused::Full));
    }
}

#[test]
fn claims_follow_the_rules() {
    let limits = ServerSpec { soft_max_conns: 1, max_conns: 2, ..server(0) };
    let mut driver = driver_of("least_conn", vec![limits, server(1), ServerSpec { down: true, ..server(2) }]);
    let fleet = driver.fleet().clone();
    assert_eq!(claim(&mut driver, Member(2), true), Err(Refused::Down));
    assert_eq!(claim(&mut driver, Member(0), false), Ok(()));
    assert_eq!(claim(&mut driver, Member(0), false), Err(Refused::Full), "the soft limit");
    assert_eq!(claim(&mut driver, Member(0), true), Ok(()));
    assert_eq!(claim(&mut driver, Member(0), true), Err(Refused::Full), "the hard limit");
    assert_eq!(fleet.state(Member(0)).in_flight(), 2);
    fleet.state(Member(0)).set_max_conns(Some(3));
    assert_eq!(claim(&mut driver, Member(0), true), Ok(()));
    assert_eq!(claim(&mut driver, Member(0), false), Err(Refused::Full));
    fleet.state(Member(0)).set_max_conns(None);

    fleet.state(Member(1)).set_draining(true);
    assert_eq!(claim(&mut driver, Member(1), false), Err(Refused::Draining));
    assert_eq!(pick(&mut driver, NOW), Err(NoServer));
    let mut tried = Tried::default();
    assert_eq!(driver.claim(NOW, Member(1), &mut tried, true), Ok(()));
    assert_eq!(driver.claim(NOW, Member(1), &mut tried, true), Err(Refused::Tried));
    fleet.state(Member(1)).set_draining(false);
    fleet.state(Member(1)).set_share(0);
    assert_eq!(claim(&mut driver, Member(1), false), Err(Refused::Draining));
    assert_eq!(claim(&mut driver, Member(1), true), Ok(()));
    fleet.state(Member(1)).set_down(true);
    assert_eq!(claim(&mut driver, Member(1), true), Err(Refused::Down));
    fleet.state(Member(1)).set_down(false);
    driver.complete(NOW, Member(1), &Report { outcome: Outcome::Failure, ..Report::default() });
    assert_eq!(claim(&mut driver, Member(1), true), Err(Refused::Failed));
    driver.complete(NOW, Member(1), &Report::default());
    assert!(fleet.members().map(|m| fleet.state(m).in_flight()).eq([3, 0, 0]));
}

#[test]
fn a_server_that_is_configured_to_drain_takes_what_belongs_to_it() {
    let mut driver = driver_of("round_robin", vec![server(0), ServerSpec { draining: true, ..server(1) }]);
    assert_eq!([pick(&mut driver, NOW), pick(&mut driver, NOW)], [Ok(Member(0)), Ok(Member(0))]);
    assert_eq!(claim(&mut driver, Member(1), false), Err(Refused::Draining));
    assert_eq!(claim(&mut driver, Member(1), true), Ok(()));
}

#[test]
fn sessions_do_not_close_a_server_for_ever() {
    for n in [4usize, 40] {
        let mut driver = driver_of("round_robin", servers(n));
        for _ in 0..100_000 {
            claim(&mut driver, Member(1), true).unwrap();
            done(&mut driver, NOW, Member(1));
        }
        let rounds = (0..100 * n).filter(|_| pick(&mut driver, NOW) == Ok(Member(1))).count();
        assert!((20..90).contains(&rounds), "{rounds} turns of 100");
    }
}

#[test]
fn a_group_has_its_limit_over_a_change_of_its_servers() {
    let groups = [Group { priority: 0, max_conns: 3 }];
    let fleet = fleet_of("least_conn", servers(2), &groups).unwrap();
    let mut old = Driver::new(fleet.clone(), 1, Start::default());
    let first = pick(&mut old, NOW).unwrap();
    pick(&mut old, NOW).unwrap();
    let list = |n| (0..n).map(|i| (server(i), Arc::new(ServerState::new()))).collect();
    let next = Arc::new(fleet.next(fleet.spec(), list(3), &groups).unwrap());
    let mut new = Driver::new(next.clone(), 1, Start::default());
    pick(&mut new, NOW).unwrap();
    assert_eq!(pick(&mut new, NOW), Err(NoServer), "two in the fleet before, one in this");
    done(&mut old, NOW, first);
    pick(&mut new, NOW).unwrap();
    assert_eq!(pick(&mut old, NOW), Err(NoServer));
    // Without a limit before, requests were not counted, and a smaller limit waits.
    let unlimited = Arc::new(next.next(fleet.spec(), list(3), &[]).unwrap());
    let mut driver = Driver::new(unlimited.clone(), 1, Start::default());
    (0..9).for_each(|_| assert!(pick(&mut driver, NOW).is_ok()));
    let less = next.next(fleet.spec(), list(1), &[Group { priority: 0, max_conns: 1 }]).unwrap();
    assert!(!less.accepts(NOW, Member(0)));
    let again = unlimited.next(fleet.spec(), list(1), &groups).unwrap();
    assert!(again.accepts(NOW, Member(0)));
}

#[test]
fn a_server_that_failed_comes_back_slowly() {
    let slow = |i| ServerSpec { slow_start: 20 * SECOND, ..server(i) };
    let mut driver = driver_of("round_robin", (0..2).map(slow).collect());
    let member = pick(&mut driver, NOW).unwrap();
    let weight = |driver: &Driver, now| {
        let tried = Tried::default();
        driver.candidates(now, &tried).find(|c| c.member == member).map(|c| c.weight)
    };
    assert_eq!(weight(&driver, NOW), Some(256));
    driver.complete(NOW, member, &Report { outcome: Outcome::Failure, ..Report::default() });
    assert_eq!(weight(&driver, NOW + SECOND), None);
    let later = NOW + 11 * SECOND;
    while pick(&mut driver, later).unwrap() != member {}
    assert_eq!(weight(&driver, later), None, "one request finds out whether it is alive");
    done(&mut driver, later, member);
    assert_eq!(driver.fleet().state(member).slow_start_since(), Some(later));
    assert_eq!(weight(&driver, later), Some(16), "a sixteenth");
    assert_eq!(weight(&driver, later + 5 * SECOND), Some(64));
    assert_eq!(weight(&driver, later + 20 * SECOND), Some(256));
    // A success among others is no return.
    claim(&mut driver, member, true).unwrap();
    done(&mut driver, later + 20 * SECOND, member);
    assert_eq!(driver.fleet().state(member).slow_start_since(), None);
}

#[test]
fn reasons_are_right() {
    let mut driver = driver_of("least_conn", vec![ServerSpec { weight: 2, ..server(0) }, server(1)]);
    let mut reason = Reason::default();
    let mut next = || {
        driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
        reason.words(driver.fleet()).to_string()
    };
    assert_eq!(next(), "least_conn score=0 next=s1:80 0");
    assert_eq!(next(), "least_conn score=0 next=s0:80 0.5");
    assert_eq!(next(), "least_conn score=0.5 next=s1:80 1");
    let mut driver = driver_of("round_robin", servers(2));
    driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
    assert_eq!(reason.to_string(), "round_robin turn");
}

#[test]
fn a_long_request_says_early_that_its_server_is_alive() {
    let mut driver = driver_of("round_robin", servers(2));
    let member = pick(&mut driver, NOW).unwrap();
    driver.complete(NOW, member, &Report { outcome: Outcome::Failure, ..Report::default() });
    let later = NOW + 11 * SECOND;
    while pick(&mut driver, later).unwrap() != member {}
    let open = |driver: &Driver| driver.candidates(later, &Tried::default()).any(|c| c.member == member);
    assert!(!open(&driver), "one request finds out");
    driver.alive(later, member);
    assert!(open(&driver), "and need not end for that");
    assert_eq!(driver.fleet().state(member).in_flight(), 1);
    assert_eq!(driver.fleet().state(member).fails(), 0);
}

#[test]
fn without_a_timeout_failures_close_a_server_for_the_rest_of_the_second() {
    let server = |i| ServerSpec { fail_timeout: 0, ..server(i) };
    let mut driver = driver_of("round_robin", vec![server(0), server(1)]);
    let at = NOW + SECOND / 4;
    let first = pick(&mut driver, at).unwrap();
    driver.complete(at, first, &Report { outcome: Outcome::Failure, ..Report::default() });
    for now in [at, at + SECOND / 2, NOW + SECOND - 1] {
        let next = pick(&mut driver, now).unwrap();
        assert_ne!(next, first, "at {now}");
        done(&mut driver, now, next);
    }
    let later: Vec<_> = (0..8).map(|_| pick(&mut driver, NOW + SECOND).unwrap()).collect();
    assert!(later.contains(&first), "{later:?}");
}

/// A request each second to a server of 300 ms and one of 1 ms.
#[test]
fn least_time_without_a_timeout_tries_the_slow_server_now_and_then() {
    let server = |i| ServerSpec { fail_timeout: 0, ..server(i) };
    let mut driver = driver_of("least_time", vec![server(0), server(1)]);
    let mut slow = 0;
    for second in 0..64 {
        let now = NOW + second * SECOND;
        let member = pick(&mut driver, now).unwrap();
        let time = if member == Member(0) { 300_000_000 } else { 1_000_000 };
        slow += u32::from(member == Member(0));
        let report =
            Report { outcome: Outcome::Success, header_time: Some(time), last_byte_time: Some(time), bytes: 1 };
        driver.complete(now + time, member, &report);
    }
    // Its time is halved each second until it is as good as the other.
    assert!((4..=16).contains(&slow), "{slow} of 64");
}
