//! What defines the algorithms that go by a key or remember where it went.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{
    Driver, Fleet, Group, Member, Nanos, NoServer, Outcome, Report, ServerSpec, ServerState, Start, Tried,
};
use proptest::prelude::*;

const SECOND: Nanos = 1_000_000_000;
const NOW: Nanos = 1_000 * SECOND;

fn fleet(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<ServerSpec>) -> Arc<Fleet> {
    let spec = Spec::new(find(algorithm).unwrap(), parameters).unwrap();
    Arc::new(Fleet::new(&spec, servers.into_iter().map(|s| (s, Arc::new(ServerState::new()))).collect()).unwrap())
}

fn driver(algorithm: &str, parameters: &[(&str, &str)], weights: &[u32]) -> Driver {
    let server =
        |(i, weight): (usize, &u32)| ServerSpec { weight: *weight, ..ServerSpec::new(&format!("10.0.0.{i}:80")) };
    Driver::new(fleet(algorithm, parameters, weights.iter().enumerate().map(server).collect()), 1, Start::default())
}

fn pick(driver: &mut Driver, now: Nanos, key: &[u8]) -> Result<Member, NoServer> {
    driver.pick(now, key, &mut Tried::default())
}

fn end(driver: &mut Driver, now: Nanos, member: Member) {
    driver.complete(now, member, &Report { outcome: Outcome::Success, ..Report::default() });
}

/// A pick that is over at once.
fn ask(driver: &mut Driver, now: Nanos, key: &[u8]) -> Result<u32, NoServer> {
    let member = pick(driver, now, key)?;
    end(driver, now, member);
    Ok(member.0)
}

fn address(i: u32) -> [u8; 4] {
    i.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// Keys have their servers in every priority, also when those of the priorities before are closed.
#[test]
fn a_key_keeps_its_server_in_the_next_priority() {
    for algorithm in ["hash", "ip_hash", "maglev", "rendezvous", "bounded_hash", "hashed_ip"] {
        for n in [10, 60] {
            let server = |i: u32| ServerSpec { priority: i / n, ..ServerSpec::new(&format!("10.0.0.{i}:80")) };
            let parameters: &[_] = if algorithm == "bounded_hash" { &[("balance_factor", "10000")] } else { &[] };
            let fleet = fleet(algorithm, parameters, (0..2 * n).map(server).collect());
            let mut driver = Driver::new(fleet.clone(), 1, Start::default());
            (0..n).for_each(|i| fleet.state(Member(i)).set_down(true));
            let mut owners = BTreeSet::new();
            for i in 0..200 {
                let owner = ask(&mut driver, NOW, &address(i)).unwrap();
                assert_eq!(ask(&mut driver, NOW, &address(i)), Ok(owner), "{algorithm}, {n} servers");
                assert!(owner >= n);
                owners.insert(owner);
            }
            assert!(owners.len() > 5, "{algorithm}: {owners:?}");
        }
    }
}

/// When a server closes, only its keys move, and not all to the same server.
#[test]
fn a_closed_server_disturbs_no_other() {
    let forms: [(&str, &[(&str, &str)]); 6] = [
        ("hash", &[]),
        ("hash", &[("consistent", "on")]),
        ("maglev", &[]),
        ("rendezvous", &[]),
        ("bounded_hash", &[("balance_factor", "10000")]),
        ("hashed_ip", &[]),
    ];
    for (algorithm, parameters) in forms {
        for n in [10u32, 60] {
            let mut driver = driver(algorithm, parameters, &vec![1; n as usize]);
            let owners =
                |driver: &mut Driver| (0..6_000).map(|i| ask(driver, NOW, &address(i)).unwrap()).collect::<Vec<_>>();
            let before = owners(&mut driver);
            driver.fleet().state(Member(3)).set_down(true);
            let after = owners(&mut driver);
            let mut takers = BTreeMap::new();
            for (old, new) in before.iter().zip(&after) {
                assert!(*old == 3 || old == new, "{algorithm} {parameters:?}");
                if *old == 3 {
                    assert_ne!(*new, 3);
                    *takers.entry(*new).or_insert(0) += 1;
                }
            }
            let moved: u32 = takers.values().sum();
            assert!(takers.len() > 3 && takers.values().all(|taken| *taken < moved / 2), "{takers:?}");
            driver.fleet().state(Member(3)).set_down(false);
            assert_eq!(owners(&mut driver), before);
        }
    }
}

/// The next best of rendezvous is the best when the best is not in the list at all.
#[test]
fn rendezvous_falls_to_the_next_best() {
    let server = |i: &u32| ServerSpec { weight: 1 + i % 3, ..ServerSpec::new(&format!("s{i}:80")) };
    let servers = |gone: Option<u32>| (0..12).filter(|i| Some(*i) != gone).map(|i| server(&i)).collect::<Vec<_>>();
    let mut all = Driver::new(fleet("rendezvous", &[], servers(None)), 1, Start::default());
    let mut without: Vec<Driver> =
        (0..12).map(|gone| Driver::new(fleet("rendezvous", &[], servers(Some(gone))), 1, Start::default())).collect();
    for key in (0..2_000).map(address) {
        let mut tried = Tried::default();
        let (first, second) = (all.pick(NOW, &key, &mut tried).unwrap(), all.pick(NOW, &key, &mut tried).unwrap());
        [first, second].into_iter().for_each(|m| end(&mut all, NOW, m));
        let rest = &mut without[first.0 as usize];
        let best = Member(ask(rest, NOW, &key).unwrap());
        assert_eq!(rest.fleet().server(best).name, all.fleet().server(second).name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Of bounded loads no server ever has more than its bound, however few keys bring all the work.
    #[test]
    fn bounds_hold(
        n in prop_oneof![2usize..12, 33usize..150],
        pattern in prop::collection::vec(1u32..9, 1..4),
        factor in prop_oneof![Just(101u64), 102u64..200],
        keys in 1u32..40,
        steps in prop::collection::vec((any::<u16>(), 0u8..10), 1..600),
    ) {
        let weights: Vec<u32> = (0..n).map(|i| pattern[i % pattern.len()]).collect();
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let text = factor.to_string();
        let mut driver = driver("bounded_hash", &[("balance_factor", &text)], &weights);
        let mut flying: Vec<Member> = Vec::new();
        for (random, what) in steps {
            if what < 3 && !flying.is_empty() {
                let member = flying.swap_remove(usize::from(random) % flying.len());
                end(&mut driver, NOW, member);
                continue;
            }
            let member = pick(&mut driver, NOW, &address(u32::from(random) % keys)).unwrap();
            flying.push(member);
            let weight = u64::from(weights[member.0 as usize]);
            let bound = (factor * flying.len() as u64 * weight).div_ceil(100 * total);
            let load = u64::from(driver.fleet().state(member).in_flight());
            prop_assert!(load <= bound, "{} of {} on weight {} of {}, bound {}", load, flying.len(), weight, total, bound);
        }
    }

    /// Locality is what a search of all servers and a map of keys say.
    #[test]
    fn locality_is_its_definition(
        weights in prop::collection::vec(1u32..6, 1..50),
        keys in 1u32..12,
        steps in prop::collection::vec((any::<u16>(), 0u8..10), 1..500),
    ) {
        let mut driver = driver("locality_least_conn", &[], &weights);
        let fleet = driver.fleet().clone();
        let mut home: BTreeMap<u32, Member> = BTreeMap::new();
        let mut flying: Vec<Member> = Vec::new();
        for (random, what) in steps {
            match what {
                // Of many servers least connections finds one that is back a little later.
                0 if weights.len() <= 32 => {
                    let member = Member(u32::from(random) % weights.len() as u32);
                    fleet.state(member).set_down(random & 1 == 1);
                }
                1..=3 => if !flying.is_empty() {
                    let member = flying.swap_remove(usize::from(random) % flying.len());
                    end(&mut driver, NOW, member);
                },
                _ => {
                    let key = u32::from(random) % keys;
                    let a = |m: Member| fleet.state(m).in_flight();
                    let w = |m: Member| weights[m.0 as usize];
                    let open: Vec<Member> = fleet.members().filter(|m| fleet.accepts(NOW, *m)).collect();
                    let light = open.iter().any(|m| 2 * a(*m) < w(*m));
                    let kept = home.get(&key).copied().filter(|m| open.contains(m) && !(a(*m) > w(*m) && light));
                    let least = open.iter().copied().min_by(|i, j| (a(*i) * w(*j)).cmp(&(a(*j) * w(*i))));
                    let relative = |m: Member| f64::from(a(m)) / f64::from(w(m));
                    let (least, loads) = (least.map(relative), open.iter().map(|m| (*m, relative(*m))).collect::<BTreeMap<_, _>>());
                    match pick(&mut driver, NOW, &address(key)) {
                        Ok(member) => {
                            match kept {
                                Some(kept) => prop_assert_eq!(member, kept),
                                None => prop_assert_eq!(loads.get(&member).copied(), least),
                            }
                            home.insert(key, member);
                            flying.push(member);
                        }
                        Err(NoServer) => prop_assert!(open.is_empty()),
                    }
                }
            }
        }
    }
}

/// With nothing in flight bounded loads are plain consistent hashing, and `hash` has the same under its own name.
#[test]
fn bounds_move_only_what_exceeds_them() {
    let weights = [3, 1, 2, 2, 5];
    let mut plain = driver("hash", &[("consistent", "on")], &weights);
    let mut bounded = driver("bounded_hash", &[("balance_factor", "150")], &weights);
    let mut hash = driver("hash", &[("consistent", "on"), ("balance_factor", "150")], &weights);
    for i in 0..2_000 {
        let expected = ask(&mut plain, NOW, &address(i));
        assert_eq!(ask(&mut bounded, NOW, &address(i)), expected);
        assert_eq!(ask(&mut hash, NOW, &address(i)), expected);
    }
    let mut moved = 0;
    for i in 0..500 {
        let plain = ask(&mut plain, NOW, &address(i)).unwrap();
        let found = pick(&mut bounded, NOW, &address(i)).unwrap();
        assert_eq!(pick(&mut hash, NOW, &address(i)), Ok(found));
        moved += u32::from(found.0 != plain);
    }
    assert!((1..150).contains(&moved), "{moved}");
}

/// The bound is over all workers, at every moment.
#[test]
fn bounds_hold_across_threads() {
    const N: u64 = 10;
    const HELD: u64 = 60;
    let fleet = fleet("bounded_hash", &[], (0..N).map(|i| ServerSpec::new(&format!("s{i}:80"))).collect());
    // 125 % of the fair part of all that four workers can hold.
    let bound = (125 * 4 * HELD).div_ceil(100 * N) as u32;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let fleet = fleet.clone();
                scope.spawn(move || {
                    let mut driver = Driver::new(fleet, 3, Start { worker, workers: 4 });
                    let mut mine = std::collections::VecDeque::new();
                    for _ in 0..30_000 {
                        mine.push_back(pick(&mut driver, NOW, b"one key").unwrap());
                        if mine.len() as u64 == HELD {
                            end(&mut driver, NOW, mine.pop_front().unwrap());
                        }
                    }
                    mine.into_iter().for_each(|m| end(&mut driver, NOW, m));
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let most = fleet.members().map(|m| fleet.state(m).in_flight()).max();
                assert!(most <= Some(bound), "{most:?} of {bound}");
                std::thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::SeqCst);
    });
    // The accounts are even: an idle fleet again gives the key its own server.
    let mut driver = Driver::new(fleet.clone(), 3, Start::default());
    let home = ask(&mut driver, NOW, b"one key");
    assert!((0..100).all(|_| ask(&mut driver, NOW, b"one key") == home));
}

/// Servers that are closed do not count for the bound, so that the others may take all.
#[test]
fn bounds_follow_the_servers_that_are_open() {
    for n in [6u32, 80] {
        let mut driver = driver("bounded_hash", &[], &vec![1; n as usize]);
        (0..n / 2).for_each(|m| driver.fleet().state(Member(m)).set_down(true));
        // Each pick finds out about one server.
        (0..n).for_each(|i| {
            ask(&mut driver, NOW, &address(i)).unwrap();
        });
        for i in 1..=10 * u64::from(n) {
            let member = pick(&mut driver, NOW, &address(i as u32 % 5)).unwrap();
            let bound = (125 * i).div_ceil(100 * u64::from(n / 2));
            assert!(u64::from(driver.fleet().state(member).in_flight()) <= bound);
        }
    }
}

#[test]
fn claims_count_for_the_bound() {
    let mut driver = driver("bounded_hash", &[], &[1; 4]);
    let home = ask(&mut driver, NOW, b"key").unwrap();
    for _ in 0..8 {
        driver.claim(NOW, Member(home), &mut Tried::default(), true).unwrap();
    }
    // 8 of 8 are there, and its bound is ceil(1.25 * 9 / 4) = 3.
    assert_ne!(ask(&mut driver, NOW, b"key").unwrap(), home);
    (0..8).for_each(|_| end(&mut driver, NOW, Member(home)));
    assert_eq!(ask(&mut driver, NOW, b"key").unwrap(), home);
}

#[test]
fn strict_hashed_addresses_are_refused_where_lax_ones_go_on() {
    for n in [5u32, 50] {
        let mut strict = driver("hashed_ip", &[("mode", "strict")], &vec![1; n as usize]);
        let mut lax = driver("hashed_ip", &[("mode", "lax")], &vec![1; n as usize]);
        let before: Vec<u32> = (0..1_000).map(|i| ask(&mut strict, NOW, &address(i)).unwrap()).collect();
        for driver in [&mut strict, &mut lax] {
            driver.fleet().state(Member(1)).set_down(true);
            // Where least connections goes.
            (0..n).filter(|m| *m > 2).for_each(|m| {
                driver.claim(NOW, Member(m), &mut Tried::default(), true).unwrap();
            });
        }
        for (i, owner) in (0..1_000).zip(before) {
            let expected = if owner == 1 { Err(NoServer) } else { Ok(owner) };
            assert_eq!(ask(&mut strict, NOW, &address(i)), expected);
            let found = ask(&mut lax, NOW, &address(i)).unwrap();
            assert!(found == owner || owner == 1 && [0, 2].contains(&found), "{found}");
        }
        // Without an address there is no owner.
        assert!(ask(&mut strict, NOW, b"unix:").is_ok());
    }
}

#[test]
fn a_client_returns_to_its_last_server() {
    for otherwise in ["least_conn", "round_robin"] {
        let mut driver = driver("last_server", &[("else", otherwise), ("timeout", "60s")], &[1, 1, 1]);
        let fleet = driver.fleet().clone();
        let homes: Vec<u32> = (0..30).map(|i| ask(&mut driver, NOW, &address(i)).unwrap()).collect();
        assert_eq!((0..3).map(|s| homes.iter().filter(|h| **h == s).count()).collect::<Vec<_>>(), [10; 3]);
        // Another worker knows it, at any load.
        let mut other = Driver::new(fleet.clone(), 2, Start { worker: 1, workers: 2 });
        for (i, home) in (0..30).zip(&homes) {
            assert_eq!(pick(&mut other, NOW + 50 * SECOND, &address(i)), Ok(Member(*home)));
        }
        for home in &homes {
            end(&mut other, NOW + 50 * SECOND, Member(*home));
        }
        // Each use begins the timeout anew; after it the client is a new one.
        let later = NOW + 100 * SECOND;
        let kept = (0..30).filter(|i| ask(&mut driver, later, &address(*i)) == Ok(homes[*i as usize])).count();
        assert_eq!(kept, 30);
        fleet.state(Member(0)).set_down(true);
        (0..30).for_each(|i| assert_ne!(ask(&mut driver, later, &address(i)), Ok(0)));
        fleet.state(Member(0)).set_down(false);
        let away = (0..30).filter(|i| ask(&mut driver, later, &address(*i)) == Ok(0)).count();
        assert_eq!(away, 0, "lax: a client that has moved stays");
        let much_later = later + 61 * SECOND;
        let back = (0..30).filter(|i| ask(&mut driver, much_later, &address(*i)) == Ok(0)).count();
        assert!((10..=20).contains(&back), "{back}: forgotten, and the others' turns were counted");
    }
}

#[test]
fn strict_clients_are_refused_until_they_are_forgotten() {
    let mut driver = driver("last_server", &[("mode", "strict"), ("timeout", "60s")], &[1, 1]);
    let home = ask(&mut driver, NOW, b"client").unwrap();
    driver.fleet().state(Member(home)).set_down(true);
    assert_eq!(ask(&mut driver, NOW + 30 * SECOND, b"client"), Err(NoServer));
    assert_eq!(ask(&mut driver, NOW + 60 * SECOND, b"client"), Err(NoServer), "to ask is not to use");
    assert_eq!(ask(&mut driver, NOW + 61 * SECOND, b"client"), Ok(1 - home));
    assert!(ask(&mut driver, NOW, b"").is_ok());
    // A retry of a strict client has nowhere to go either.
    let mut tried = Tried::default();
    let member = driver.pick(NOW + 61 * SECOND, b"client", &mut tried).unwrap();
    driver.complete(NOW + 61 * SECOND, member, &Report { outcome: Outcome::Failure, ..Report::default() });
    driver.fleet().state(Member(home)).set_down(false);
    assert_eq!(driver.pick(NOW + 61 * SECOND, b"client", &mut tried), Err(NoServer));
}

#[test]
fn a_table_that_is_full_forgets_who_was_not_there_for_longest() {
    let mut driver = driver("last_server", &[("entries", "8"), ("else", "round_robin")], &[1; 100]);
    let homes: Vec<u32> = (0..9).map(|i| ask(&mut driver, NOW + u64::from(i), &address(i)).unwrap()).collect();
    let known: BTreeSet<u32> =
        (1..9).filter(|i| ask(&mut driver, NOW + 10, &address(*i)) == Ok(homes[*i as usize])).collect();
    assert_eq!(known.len(), 8);
    assert_ne!(ask(&mut driver, NOW + 20, &address(0)), Ok(homes[0]));
}

#[test]
fn replicas_grow_under_load_and_shrink_in_time() {
    for n in [4usize, 40] {
        let mut driver = driver("locality_least_conn", &[("replicated", "on"), ("shrink", "60s")], &vec![2; n]);
        let used = |driver: &mut Driver, now: Nanos, requests: u32| {
            let flying: Vec<Member> = (0..requests).map(|_| pick(driver, now, b"key").unwrap()).collect();
            flying.iter().for_each(|m| end(driver, now, *m));
            flying.into_iter().collect::<BTreeSet<_>>()
        };
        // Three at once fit: a > w is false for the third.
        let one = used(&mut driver, NOW, 3);
        assert_eq!(one.len(), 1);
        let two = used(&mut driver, NOW, 6);
        assert_eq!(two.len(), 2, "the set has grown");
        assert!(two.is_superset(&one));
        // Now its members share the work, the least loaded first, and stay while the set is young.
        let mut held: Vec<Member> = (0..2).map(|_| pick(&mut driver, NOW + 50 * SECOND, b"key").unwrap()).collect();
        held.sort();
        assert_eq!(held, two.iter().copied().collect::<Vec<_>>());
        held.into_iter().for_each(|m| end(&mut driver, NOW, m));
        // After the time it loses the most loaded.
        let loaded = *two.first().unwrap();
        driver.claim(NOW, loaded, &mut Tried::default(), true).unwrap();
        let left = used(&mut driver, NOW + 61 * SECOND, 3);
        assert_eq!(left, two.iter().copied().filter(|m| *m != loaded).collect());
        end(&mut driver, NOW, loaded);
        // Not without bound, and every member of the set is one that was chosen.
        let many = used(&mut driver, NOW + 62 * SECOND, 3 * n as u32);
        assert!(many.len() >= n.min(16), "{many:?}");
    }
}

#[test]
fn strict_requests_go_to_no_other_level() {
    for (algorithm, backup) in [("hashed_ip", false), ("last_server", true), ("last_server", false)] {
        let server = |i: u32| {
            let mut server = ServerSpec::new(&format!("s{i}:80"));
            (server.backup, server.priority) = (backup && i > 1, if backup { 0 } else { i / 2 });
            server
        };
        let fleet = fleet(algorithm, &[("mode", "strict")], (0..4).map(server).collect());
        let mut driver = Driver::new(fleet.clone(), 1, Start::default());
        let home = Member(ask(&mut driver, NOW, &address(1)).unwrap());
        assert!(home.0 < 2);
        fleet.state(home).set_down(true);
        assert_eq!(ask(&mut driver, NOW, &address(1)), Err(NoServer), "{algorithm}");
        fleet.state(home).set_down(false);
        assert_eq!(ask(&mut driver, NOW, &address(1)), Ok(home.0), "{algorithm}");
    }
}

/// Nor when the whole group has as many requests in flight as it may.
#[test]
fn strict_requests_wait_for_room_in_their_group() {
    for algorithm in ["hashed_ip", "last_server"] {
        for (mode, elsewhere) in [("strict", false), ("lax", true)] {
            let spec = Spec::new(find(algorithm).unwrap(), &[("mode", mode)]).unwrap();
            let server = |i: u32| ServerSpec { priority: i / 2, ..ServerSpec::new(&format!("s{i}:80")) };
            let servers = (0..4).map(|i| (server(i), Arc::new(ServerState::new()))).collect();
            let group = Group { priority: 0, max_conns: 2 };
            let mut driver =
                Driver::new(Arc::new(Fleet::with_groups(&spec, servers, &[group]).unwrap()), 1, Start::default());
            let home = ask(&mut driver, NOW, &address(1)).unwrap();
            let others: Vec<_> = (2..4).map(|i| pick(&mut driver, NOW, &address(i)).unwrap()).collect();
            let found = ask(&mut driver, NOW, &address(1));
            assert_eq!(found.is_ok_and(|i| i >= 2), elsewhere, "{algorithm} {mode}: {found:?}");
            assert_eq!(found.is_err(), !elsewhere, "{algorithm} {mode}");
            others.into_iter().for_each(|m| end(&mut driver, NOW, m));
            assert_eq!(ask(&mut driver, NOW, &address(1)), Ok(home), "{algorithm} {mode}");
        }
    }
}

/// A new list of servers keeps what is known of the clients of those that stay.
#[test]
fn clients_outlive_a_change_of_servers() {
    let forms: [(&str, &[(&str, &str)]); 3] =
        [("last_server", &[]), ("locality_least_conn", &[]), ("locality_least_conn", &[("replicated", "on")])];
    for (algorithm, parameters) in forms {
        let server =
            |i: u32| (ServerSpec { weight: 2, ..ServerSpec::new(&format!("s{i}:80")) }, Arc::new(ServerState::new()));
        let all: Vec<_> = (0..6).map(server).collect();
        let spec = |parameters| Spec::new(find(algorithm).unwrap(), parameters).unwrap();
        let build =
            |spec: &Spec, servers: Vec<(ServerSpec, Arc<ServerState>)>| Arc::new(Fleet::new(spec, servers).unwrap());
        let old = build(&spec(parameters), all.clone());
        let mut driver = Driver::new(old.clone(), 1, Start::default());
        let name = |fleet: &Fleet, m: u32| fleet.server(Member(m)).name.clone();
        let homes: Vec<_> = (0..60).map(|i| name(&old, ask(&mut driver, NOW, &address(i)).unwrap())).collect();
        // Server 0 goes, the others change places, a new one comes.
        let servers: Vec<_> = [6, 5, 3, 4, 2, 1].map(|i| all.get(i).cloned().unwrap_or_else(|| server(9))).into();
        let new = build(&spec(parameters), servers.clone());
        new.remember(&old);
        let mut driver = Driver::new(new.clone(), 1, Start::default());
        for (i, home) in (0..60).zip(&homes) {
            let now = name(&new, ask(&mut driver, NOW + SECOND, &address(i)).unwrap());
            assert!(now == *home || &**home == "s0:80", "{algorithm} {parameters:?}: {home} and then {now}");
        }
        // A table of another size begins anew.
        let mut other = parameters.to_vec();
        other.push(("entries", "1024"));
        let resized = build(&spec(&other), servers);
        resized.remember(&old);
        let mut driver = Driver::new(resized.clone(), 1, Start::default());
        let found: Vec<_> = (0..60).map(|i| name(&resized, ask(&mut driver, NOW, &address(i)).unwrap())).collect();
        assert!(found.iter().zip(&homes).filter(|(now, before)| now == before).count() < 50);
    }
}

/// Long requests outlive reloads: each new fleet knows what the servers have in flight, so no server ever has more than
/// the bound of all that are under way.
#[test]
fn bounds_hold_over_reloads() {
    for n in [5u32, 9, 40] {
        let spec = Spec::new(find("bounded_hash").unwrap(), &[]).unwrap();
        let servers: Vec<_> =
            (0..n).map(|i| (ServerSpec::new(&format!("10.0.0.{i}:80")), Arc::new(ServerState::new()))).collect();
        let mut fleet = Arc::new(Fleet::new(&spec, servers.clone()).unwrap());
        let mut flying = Vec::new();
        for reload in 0..20 {
            let mut driver = Driver::new(fleet.clone(), 1, Start::default());
            for _ in 0..2 {
                let member = pick(&mut driver, NOW, b"one key").unwrap();
                flying.push((fleet.clone(), member));
                let bound = (125 * flying.len()).div_ceil(100 * fleet.len()) as u32;
                let found = fleet.state(member).in_flight();
                assert!(found <= bound, "{n} servers, reload {reload}: {found} where the bound is {bound}");
            }
            // Requests of earlier fleets end there, and count for this one.
            if reload % 3 == 2 {
                let (of, member) = flying.swap_remove(0);
                end(&mut Driver::new(of, 1, Start::default()), NOW, member);
            }
            // Servers come and go.
            let some = servers.len() - reload % 3;
            fleet = Arc::new(fleet.next(&spec, servers[..some].to_vec(), &[]).unwrap());
        }
        fleet = Arc::new(fleet.next(&spec, servers.clone(), &[]).unwrap());
        for (of, member) in flying {
            end(&mut Driver::new(of, 1, Start::default()), NOW, member);
        }
        let mut driver = Driver::new(fleet.clone(), 1, Start::default());
        let home = ask(&mut driver, NOW, b"one key");
        assert!((0..50).all(|_| ask(&mut driver, NOW, b"one key") == home), "the accounts are even");
    }
}

/// Requests that a server had when it was removed count for the bounds of the others until they end, except in small levels.
#[test]
fn requests_of_removed_servers_count_until_they_end() {
    for (n, counted) in [(5u32, false), (12, true)] {
        let spec = Spec::new(find("bounded_hash").unwrap(), &[]).unwrap();
        let servers: Vec<_> =
            (0..=n).map(|i| (ServerSpec::new(&format!("10.0.0.{i}:80")), Arc::new(ServerState::new()))).collect();
        let old = Arc::new(Fleet::new(&spec, servers.clone()).unwrap());
        let mut before = Driver::new(old.clone(), 1, Start::default());
        let removed = Member(n);
        (0..2 * n).for_each(|_| before.claim(NOW, removed, &mut Tried::default(), true).unwrap());
        let fleet = Arc::new(old.next(&spec, servers[..n as usize].to_vec(), &[]).unwrap());
        let mut driver = Driver::new(fleet, 1, Start::default());
        let home = pick(&mut driver, NOW, b"one key").unwrap();
        // The bound is ceil(1.25 * (2 n + 2) / n) = 3 or 4 if they count, and 1 if not.
        assert_eq!(pick(&mut driver, NOW, b"one key").unwrap() == home, counted, "{n} servers");
        (0..2 * n).for_each(|_| end(&mut before, NOW, removed));
        assert_ne!(pick(&mut driver, NOW, b"one key").unwrap(), home, "{n} servers");
    }
}

/// Many entries of few addresses: entries of one address are one set of points, each takes its turns, and a choice costs
/// what it costs among as many addresses.
#[test]
#[allow(clippy::disallowed_methods, reason = "it measures time")]
fn a_server_written_many_times_costs_no_more() {
    const N: usize = 9_000;
    for (algorithm, parameters) in [("hash", &[("consistent", "on")][..]), ("bounded_hash", &[])] {
        let of = |addresses: usize| {
            let server =
                |i: usize| ServerSpec::new(&format!("10.0.{}.{}:80", i % addresses / 250, i % addresses % 250));
            Driver::new(fleet(algorithm, parameters, (0..N).map(server).collect()), 1, Start::default())
        };
        let (mut three, mut all) = (of(3), of(N));
        // The quickest of several rounds, so that a busy machine does not matter.
        let cost = |driver: &mut Driver, counts: &mut [u32]| {
            let round = |round: u32| {
                let begin = std::time::Instant::now();
                for i in 0..3_000 {
                    counts[ask(driver, NOW, &address(i * 20 + round)).unwrap() as usize] += 1;
                }
                begin.elapsed()
            };
            (0..12).map(round).min().unwrap()
        };
        let mut counts = vec![0; N];
        let (few, many) = (cost(&mut three, &mut counts), cost(&mut all, &mut vec![0; N]));
        assert!(few < many * 10, "{algorithm}: {few:?} for 3,000 choices of three addresses, {many:?} of {N}");
        // 36,000 requests: 4 for each entry on average.
        let most = counts.iter().max().unwrap();
        assert!(*most < 16, "{algorithm}: up to {most} of 4");
    }
}

/// Turns among entries of one address follow the weights, and a closed one gives up its turns.
#[test]
fn entries_of_one_address_share_by_weight() {
    let server = |i: u32| ServerSpec { weight: 1 + i % 3, ..ServerSpec::new(&format!("10.0.0.{}:80", i % 2)) };
    let mut driver =
        Driver::new(fleet("hash", &[("consistent", "on")], (0..120).map(server).collect()), 1, Start::default());
    driver.fleet().state(Member(0)).set_down(true);
    let mut counts = [0u32; 120];
    (0..24_000).for_each(|i| counts[ask(&mut driver, NOW, &address(i)).unwrap() as usize] += 1);
    assert_eq!(counts[0], 0);
    // Each address has half of the ring and 60 entries of weights 1, 2, 3: a unit of weight is about 100 requests.
    for (i, count) in counts.iter().enumerate().skip(1) {
        let unit = f64::from(*count) / f64::from(1 + i as u32 % 3);
        assert!((70.0..135.0).contains(&unit), "entry {i}: {count}");
    }
}
