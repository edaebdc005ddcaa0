//! What failures, backups and hanging servers do.

use std::sync::Arc;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{
    Driver, Fleet, Member, Nanos, NoServer, Outcome, Report, ServerSpec, ServerState, Start, Tried,
};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

fn server(name: usize) -> ServerSpec {
    ServerSpec::new(&format!("10.0.0.{name}:80"))
}

fn driver_of(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<(ServerSpec, Arc<ServerState>)>) -> Driver {
    let spec = Spec::new(find(algorithm).unwrap(), parameters).unwrap();
    Driver::new(Arc::new(Fleet::new(&spec, servers).unwrap()), 1, Start::default())
}

fn driver(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<ServerSpec>) -> Driver {
    driver_of(algorithm, parameters, servers.into_iter().map(|s| (s, Arc::new(ServerState::new()))).collect())
}

fn pick(driver: &mut Driver, now: Nanos) -> Result<Member, NoServer> {
    driver.pick(now, b"", &mut Tried::default())
}

fn success(time: Nanos) -> Report {
    Report { outcome: Outcome::Success, header_time: Some(time), last_byte_time: Some(time), bytes: 0 }
}

const FAILED: Report = Report { outcome: Outcome::Failure, header_time: None, last_byte_time: None, bytes: 0 };

#[test]
fn with_inflight_a_hanging_server_is_left_alone() {
    for (inflight, most) in [("on", 12), ("off", 40)] {
        for by in ["header", "last_byte"] {
            let mut driver = driver("least_time", &[("by", by), ("inflight", inflight)], (0..3).map(server).collect());
            let mut hangs = 0;
            for i in 0..1_500u64 {
                let now = 100 * SECOND + i * 10 * MS;
                let member = pick(&mut driver, now).unwrap();
                if i > 200 && member.0 == 1 {
                    hangs += 1;
                    continue;
                }
                if driver.wants_header() {
                    driver.header(now + 5 * MS, member, 5 * MS);
                }
                driver.complete(now + 5 * MS, member, &success(5 * MS));
            }
            assert!(hangs <= most, "{by}, inflight {inflight}: {hangs}");
        }
    }
}

#[test]
fn max_fails_closes_and_the_fail_timeout_opens() {
    for n in [3usize, 40] {
        for algorithm in ["round_robin", "least_conn", "random", "two_choices", "least_time"] {
            let servers = (0..n).map(|i| ServerSpec { max_fails: 2, ..server(i) }).collect();
            let mut driver = driver(algorithm, &[], servers);
            let fleet = driver.fleet().clone();
            let zero = |driver: &mut Driver, now| {
                let mut tried = Tried::default();
                fleet.members().skip(1).for_each(|m| tried.insert(m));
                driver.pick(now, b"", &mut tried)
            };
            let start = 1_000 * SECOND;
            let (first, second) = (zero(&mut driver, start).unwrap(), zero(&mut driver, start).unwrap());
            let straggler = zero(&mut driver, start).unwrap();
            assert!(!driver.complete(start, first, &FAILED).disabled);
            assert!(driver.complete(start, second, &FAILED).disabled);
            assert!(!driver.complete(start, straggler, &FAILED).disabled, "logged once");
            assert_eq!(zero(&mut driver, start + 10 * SECOND), Err(NoServer));
            // A probe that fails closes it again, one that succeeds clears its account.
            let probe = zero(&mut driver, start + 10 * SECOND + 1).unwrap();
            assert!(driver.complete(start + 11 * SECOND, probe, &FAILED).disabled);
            let probe = zero(&mut driver, start + 22 * SECOND).unwrap();
            driver.complete(start + 23 * SECOND, probe, &success(MS));
            assert_eq!(fleet.state(Member(0)).fails(), 0);
            assert_eq!(fleet.state(Member(0)).failures(), 4);
        }
    }
}

#[test]
fn a_success_within_the_fail_timeout_does_not_clear_failures() {
    let servers = (0..3).map(|i| ServerSpec { max_fails: 2, ..server(i) }).collect();
    let mut driver = driver("round_robin", &[], servers);
    let mut end = |now: Nanos, report: &Report| {
        let mut tried = Tried::default();
        [1, 2].into_iter().for_each(|m| tried.insert(Member(m)));
        let member = driver.pick(now, b"", &mut tried).unwrap();
        let disabled = driver.complete(now, member, report).disabled;
        (driver.fleet().state(member).fails(), disabled)
    };
    let start = 1_000 * SECOND;
    assert_eq!(end(start, &FAILED), (1, false));
    assert_eq!(end(start + SECOND, &success(MS)), (1, false));
    assert_eq!(end(start + 11 * SECOND, &success(MS)), (0, false));
    assert_eq!(end(start + 12 * SECOND, &FAILED), (1, false));
    assert_eq!(end(start + 13 * SECOND, &FAILED), (2, true));
}

#[test]
fn many_servers_learn_of_an_opening_at_once() {
    let mut driver = driver("least_conn", &[], (0..100).map(server).collect());
    let failing = pick(&mut driver, SECOND).unwrap();
    driver.complete(SECOND, failing, &FAILED);
    for _ in 0..99 {
        assert_ne!(pick(&mut driver, 2 * SECOND).unwrap(), failing);
    }
    assert_ne!(pick(&mut driver, 11 * SECOND).unwrap(), failing);
    assert_eq!(pick(&mut driver, 11 * SECOND + 1).unwrap(), failing);
}

#[test]
fn a_lone_server_is_never_closed() {
    let mut driver = driver("least_conn", &[], vec![server(0)]);
    for _ in 0..5 {
        let member = pick(&mut driver, SECOND).unwrap();
        assert!(!driver.complete(SECOND, member, &FAILED).disabled);
    }
    // Tried is tried, unless the caller takes it back.
    let mut tried = Tried::default();
    let member = driver.pick(SECOND, b"", &mut tried).unwrap();
    assert_eq!(driver.pick(SECOND, b"", &mut tried), Err(NoServer));
    tried.forget(member);
    assert_eq!(driver.pick(SECOND, b"", &mut tried), Ok(member));
}

#[test]
fn backups_are_used_when_no_primary_is_left() {
    let servers = vec![server(0), ServerSpec { backup: true, ..server(1) }, ServerSpec { max_conns: 1, ..server(2) }];
    let mut driver = driver("round_robin", &[], servers);
    let mut tried = Tried::default();
    let order: Vec<_> = std::iter::from_fn(|| driver.pick(SECOND, b"", &mut tried).ok()).collect();
    assert_eq!(order, [Member(0), Member(2), Member(1)]);
    driver.fleet().state(Member(0)).set_draining(true);
    // Server 2 is full, server 0 drains.
    assert_eq!(pick(&mut driver, SECOND), Ok(Member(1)));
    driver.fleet().state(Member(0)).set_draining(false);
    assert_eq!(pick(&mut driver, SECOND), Ok(Member(0)));
}

#[test]
fn threads_leave_least_conn_right() {
    let n = 100;
    let mut checker =
        driver("least_conn", &[], (0..n).map(|i| ServerSpec { weight: 1 + i as u32 % 3, ..server(i) }).collect());
    let fleet = checker.fleet().clone();
    let left: Vec<Member> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|worker| {
                let fleet = fleet.clone();
                scope.spawn(move || {
                    let mut driver = Driver::new(fleet, 9, Start { worker, workers: 4 });
                    let mut flying = std::collections::VecDeque::new();
                    for i in 0..20_000u64 {
                        flying.push_back(pick(&mut driver, i).unwrap());
                        while flying.len() > 20 + i as usize % 90 {
                            driver.complete(i, flying.pop_front().unwrap(), &success(MS));
                        }
                    }
                    flying
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let ratio = |m: Member| f64::from(fleet.state(m).in_flight()) / f64::from(fleet.server(m).weight);
    for member in left {
        let least = fleet.members().map(ratio).fold(f64::INFINITY, f64::min);
        let before: Vec<f64> = fleet.members().map(ratio).collect();
        let found = pick(&mut checker, 20_000).unwrap();
        assert_eq!(before[found.0 as usize], least);
        checker.complete(20_000, found, &success(MS));
        checker.complete(20_000, member, &success(MS));
    }
    assert!(fleet.members().all(|m| fleet.state(m).in_flight() == 0));
}

/// The picks of server 1 among 40, with what is known of the two servers.
fn picks_of_the_bad_one(algorithm: &str, states: &[Arc<ServerState>; 2]) -> usize {
    let servers = states.iter().enumerate().map(|(i, state)| (server(i), state.clone()));
    let mut driver = driver_of(algorithm, &[], servers.collect());
    let mut count = 0;
    for i in 0..40 {
        let member = pick(&mut driver, 101 * SECOND + i).unwrap();
        driver.complete(101 * SECOND + i, member, &Report::default());
        count += usize::from(member == Member(1));
    }
    count
}

#[test]
fn measurements_outlive_a_reload_but_not_another_algorithm() {
    for [algorithm, other] in
        [["peak_ewma", "least_bandwidth"], ["least_bandwidth", "peak_ewma"], ["combined", "peak_ewma"]]
    {
        let states = [Arc::new(ServerState::new()), Arc::new(ServerState::new())];
        let servers = || (0..2).map(|i| (server(i), states[i].clone())).collect();
        let mut driver = driver_of(algorithm, &[], servers());
        let measure = |driver: &mut Driver| {
            for i in 0..100 {
                let now = 100 * SECOND + 10 * i * MS;
                let member = Member((i % 2) as u32);
                driver.claim(now, member, &mut Tried::default(), false).unwrap();
                let report =
                    Report { bytes: 1_000 + 1_000_000 * u64::from(member.0), ..success(MS + 90 * MS * (i % 2)) };
                driver.complete(now, member, &report);
            }
        };
        measure(&mut driver);
        assert!(picks_of_the_bad_one(algorithm, &states) <= 2, "{algorithm}: known after a reload");
        // The next fleet is of another algorithm; requests of the one before still end.
        let next = driver_of(other, &[], servers());
        measure(&mut driver);
        drop(next);
        let count = picks_of_the_bad_one(algorithm, &states);
        assert!(algorithm == "combined" || (8..=32).contains(&count), "{algorithm}: forgotten after {other}: {count}");
    }
}
