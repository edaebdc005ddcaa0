//! What the driver does for every algorithm: priorities and their limits, claims, shares, slow start, limits set at run
//! time, reasons.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use balanza_balancing::registry::{Key, Spec, entries, find};
use balanza_balancing::{
    Basis, Cell, Driver, Fleet, FleetError, Group, Member, Nanos, NoServer, Outcome, Reason, Refused, Report,
    ServerSpec, Start, Tried,
};

const SECOND: Nanos = 1_000_000_000;
const NOW: Nanos = 1_000 * SECOND;

fn fleet_of(algorithm: &str, servers: Vec<ServerSpec>, groups: &[Group]) -> Result<Arc<Fleet>, FleetError> {
    let spec = Spec::new(find(algorithm).unwrap(), &[]).unwrap();
    let servers = servers.into_iter().map(|s| (s, Arc::new(Cell::new()))).collect();
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

/// How many of `requests`, one after another, each server gets; a key each.
fn shares(driver: &mut Driver, requests: u32, now: Nanos) -> Vec<f64> {
    let mut counts = vec![0.0; driver.fleet().len()];
    for i in 0..requests {
        let key = i.wrapping_mul(2_654_435_761).to_be_bytes();
        let member = driver.pick(now, &key, &mut Tried::default()).unwrap();
        counts[member.0 as usize] += 1.0 / f64::from(requests);
        done(driver, now, member);
    }
    counts
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
    assert_eq!(fleet.cell(Member(0)).in_flight(), 2);
    fleet.cell(Member(0)).set_max_conns(Some(3));
    assert_eq!(claim(&mut driver, Member(0), true), Ok(()));
    assert_eq!(claim(&mut driver, Member(0), false), Err(Refused::Full));
    fleet.cell(Member(0)).set_max_conns(None);

    fleet.cell(Member(1)).set_draining(true);
    assert_eq!(claim(&mut driver, Member(1), false), Err(Refused::Draining));
    assert_eq!(pick(&mut driver, NOW), Err(NoServer));
    let mut tried = Tried::default();
    assert_eq!(driver.claim(NOW, Member(1), &mut tried, true), Ok(()));
    assert_eq!(driver.claim(NOW, Member(1), &mut tried, true), Err(Refused::Tried));
    fleet.cell(Member(1)).set_draining(false);
    fleet.cell(Member(1)).set_share(0);
    assert_eq!(claim(&mut driver, Member(1), false), Err(Refused::Draining));
    assert_eq!(claim(&mut driver, Member(1), true), Ok(()));
    fleet.cell(Member(1)).set_down(true);
    assert_eq!(claim(&mut driver, Member(1), true), Err(Refused::Down));
    fleet.cell(Member(1)).set_down(false);
    driver.complete(NOW, Member(1), &Report { outcome: Outcome::Failure, ..Report::default() });
    assert_eq!(claim(&mut driver, Member(1), true), Err(Refused::Failed));
    driver.complete(NOW, Member(1), &Report::default());
    assert!(fleet.members().map(|m| fleet.cell(m).in_flight()).eq([3, 0, 0]));
}

#[test]
fn a_server_that_is_configured_to_drain_takes_what_belongs_to_it() {
    let mut driver = driver_of("round_robin", vec![server(0), ServerSpec { draining: true, ..server(1) }]);
    assert_eq!([pick(&mut driver, NOW), pick(&mut driver, NOW)], [Ok(Member(0)), Ok(Member(0))]);
    assert_eq!(claim(&mut driver, Member(1), false), Err(Refused::Draining));
    assert_eq!(claim(&mut driver, Member(1), true), Ok(()));
}

/// Half of the requests belong to server 0: it gets so many fewer of the others. Without the accounting it would get a
/// quarter of them and five eighths in all.
#[test]
fn claims_count_in_the_round_robin() {
    for n in [4usize, 40] {
        let mut driver = driver_of("round_robin", servers(n));
        let requests = 400 * n;
        let (mut placed, mut claimed) = (vec![0usize; n], 0);
        for i in 0..requests {
            let bound = i % n == 0;
            let member = if bound {
                claimed += 1;
                claim(&mut driver, Member(0), true).map(|()| Member(0)).unwrap()
            } else {
                let member = pick(&mut driver, NOW).unwrap();
                placed[member.0 as usize] += 1;
                member
            };
            done(&mut driver, NOW, member);
        }
        assert!(placed[0] <= 2, "server 0 has had its turns: {placed:?}");
        assert!(placed[1..].iter().all(|count| count.abs_diff(claimed) <= 2), "{placed:?}");
    }
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
fn shares_shift_traffic() {
    for entry in entries() {
        // Equal weights, so that whatever an algorithm goes by, the share is the only difference.
        for n in [4usize, 64] {
            let mut driver = driver_of(entry.name, servers(n));
            let fleet = driver.fleet().clone();
            let set_share = |percent| (0..n as u32).step_by(2).for_each(|m| fleet.cell(Member(m)).set_share(percent));
            set_share(20);
            let part = |shares: Vec<f64>| shares.iter().step_by(2).sum::<f64>();
            let share = part(shares(&mut driver, 20_000, NOW));
            // A sixth where turns and draws are given up; keys that lead to nobody else return, and half of what is
            // given up may go to another server of this kind.
            assert!((0.05..0.30).contains(&share), "{}, n = {n}: {share}", entry.name);
            set_share(0);
            assert_eq!(part(shares(&mut driver, 1_000, NOW)), 0.0, "{}", entry.name);
            set_share(100);
            let share = part(shares(&mut driver, 20_000, NOW));
            assert!((0.35..0.65).contains(&share), "{}, n = {n}: {share}", entry.name);
        }
    }
}

#[test]
fn a_key_keeps_its_server_at_a_reduced_share() {
    for entry in entries().iter().filter(|e| e.key != Key::None) {
        let mut driver = driver_of(entry.name, servers(5));
        let fleet = driver.fleet().clone();
        let mut owners = |percent| {
            fleet.cell(Member(2)).set_share(percent);
            let owner = |i: u32| {
                let key = i.wrapping_mul(2_654_435_761).to_be_bytes();
                let member = driver.pick(NOW, &key, &mut Tried::default()).unwrap();
                done(&mut driver, NOW, member);
                member
            };
            (0..5_000).map(owner).collect::<Vec<_>>()
        };
        let (whole, half, less, again) = (owners(100), owners(50), owners(25), owners(50));
        assert_eq!(half, again, "{}", entry.name);
        let count = |owners: &[Member]| owners.iter().filter(|m| m.0 == 2).count();
        let part = |owners: &[Member]| count(owners) as f64 / count(&whole) as f64;
        // Half of its keys, or what half the weight is worth among the others: 0.5 of 4.5 for 1 of 5.
        let (half_part, less_part) = (part(&half), part(&less));
        assert!((0.44..0.62).contains(&half_part), "{} {half_part}", entry.name);
        assert!((0.20..0.36).contains(&less_part), "{} {less_part}", entry.name);
        // Fewer at a lesser share, and nobody else's keys move.
        for (i, (a, b)) in whole.iter().zip(&half).enumerate() {
            assert!(a == b || a.0 == 2, "{} key {i}", entry.name);
            assert!(less[i].0 != 2 || b.0 == 2, "{} key {i}", entry.name);
        }
    }
}

#[test]
fn slow_start_grows_evenly() {
    for entry in entries() {
        let slow = |i| ServerSpec { slow_start: if i == 1 { 100 * SECOND } else { 0 }, ..server(i) };
        let mut driver = driver_of(entry.name, (0..4).map(slow).collect());
        let fleet = driver.fleet().clone();
        let share = |driver: &mut Driver, now: Nanos| shares(driver, 12_000, now)[1];
        let whole = share(&mut driver, NOW);
        fleet.cell(Member(1)).set_down(true);
        assert_eq!(share(&mut driver, NOW), 0.0, "{}", entry.name);
        fleet.cell(Member(1)).set_down(false);
        let ramp = [0, 25, 50, 75, 100].map(|t| share(&mut driver, NOW + t * SECOND) / whole);
        assert_eq!(fleet.cell(Member(1)).slow_start_since(), None);
        assert!(ramp[0] < 0.2 && (0.9..1.1).contains(&ramp[4]), "{} {ramp:?}", entry.name);
        assert!(ramp.windows(2).all(|pair| pair[0] < pair[1] + 0.02), "{} {ramp:?}", entry.name);
        assert!((0.3..0.75).contains(&ramp[2]), "{} {ramp:?}", entry.name);
    }
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
    assert_eq!(driver.fleet().cell(member).slow_start_since(), Some(later));
    assert_eq!(weight(&driver, later), Some(16), "a sixteenth");
    assert_eq!(weight(&driver, later + 5 * SECOND), Some(64));
    assert_eq!(weight(&driver, later + 20 * SECOND), Some(256));
    // A success among others is no return.
    claim(&mut driver, member, true).unwrap();
    done(&mut driver, later + 20 * SECOND, member);
    assert_eq!(driver.fleet().cell(member).slow_start_since(), None);
}

#[test]
fn an_explained_pick_is_the_same_pick() {
    for entry in entries() {
        for n in [1usize, 5, 100] {
            let [mut plain, mut told] = [(); 2].map(|()| driver_of(entry.name, servers(n)));
            let mut reasons = 0;
            for i in 0..300u64 {
                let key = (i * 977).to_be_bytes();
                let mut reason = Reason::default();
                let expected = plain.pick(i, &key, &mut Tried::default());
                assert_eq!(told.pick_explained(i, &key, &mut Tried::default(), &mut reason), expected);
                assert_eq!(reason.algorithm, entry.name);
                assert_eq!(reason.basis == Basis::Only, n == 1, "{}", entry.name);
                if let (Some((next, rival)), Some(score)) = (reason.next, reason.score) {
                    assert!(next != expected.unwrap() && score.is_finite() && !rival.is_nan());
                    reasons += 1;
                }
                if i % 3 > 0 {
                    done(&mut plain, i, expected.unwrap());
                    done(&mut told, i, expected.unwrap());
                }
            }
            assert!(reasons == 0 || n > 1);
        }
    }
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
