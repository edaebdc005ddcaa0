//! Traps that load balancers fall into elsewhere. Each test shows as well that the plain formula falls into it. One more,
//! that all workers begin at the first server, is in `conformance`.

use std::cmp::Reverse;
use std::sync::Arc;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Cell, Driver, Fleet, Member, Nanos, Outcome, Report, ServerSpec, Start, Tried};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;
const NOW: Nanos = 100 * SECOND;

/// Forms of the algorithms that look at times.
const BY_TIME: [(&str, &[(&str, &str)]); 8] = [
    ("least_time", &[("by", "header")]),
    ("least_time", &[("by", "last_byte")]),
    ("least_time", &[("by", "last_byte"), ("inflight", "on")]),
    ("two_choices", &[("by", "header")]),
    ("two_choices", &[("by", "last_byte")]),
    ("peak_ewma", &[]),
    ("combined", &[]),
    ("prequal", &[]),
];

/// What the simulation balances with.
trait Balancer {
    fn pick(&mut self, now: Nanos) -> Option<usize>;
    fn done(&mut self, now: Nanos, server: usize, time: Nanos, good: bool);
}

impl Balancer for Driver {
    fn pick(&mut self, now: Nanos) -> Option<usize> {
        Driver::pick(self, now, b"", &mut Tried::default()).ok().map(|m| m.0 as usize)
    }

    fn done(&mut self, now: Nanos, server: usize, time: Nanos, good: bool) {
        let outcome = if good { Outcome::Success } else { Outcome::Failure };
        let report = Report { outcome, header_time: Some(time), last_byte_time: Some(time), bytes: 1_000 };
        self.complete(now, Member(server as u32), &report);
    }
}

/// An average of the times of all attempts, 0 before the first, and the least of a formula wins, the first of equals.
struct Naive {
    times: Vec<f64>,
    in_flight: Vec<u32>,
    formula: fn(f64, f64) -> f64,
}

impl Naive {
    fn new(n: usize, formula: fn(f64, f64) -> f64) -> Naive {
        Naive { times: vec![0.0; n], in_flight: vec![0; n], formula }
    }
}

impl Balancer for Naive {
    fn pick(&mut self, _now: Nanos) -> Option<usize> {
        let score = |i: &usize| (self.formula)(self.times[*i], f64::from(self.in_flight[*i]));
        let found = (0..self.times.len()).min_by(|i, j| score(i).total_cmp(&score(j)))?;
        self.in_flight[found] += 1;
        Some(found)
    }

    fn done(&mut self, _now: Nanos, server: usize, time: Nanos, _good: bool) {
        self.in_flight[server] -= 1;
        let average = &mut self.times[server];
        *average = if *average == 0.0 { time as f64 } else { *average * 0.95 + time as f64 * 0.05 };
    }
}

fn servers(n: usize) -> Vec<ServerSpec> {
    (0..n).map(|i| ServerSpec::new(&format!("10.0.0.{i}:80"))).collect()
}

fn driver_of(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<(ServerSpec, Arc<Cell>)>) -> Driver {
    let spec = Spec::new(find(algorithm).unwrap(), parameters).unwrap();
    Driver::new(Arc::new(Fleet::new(&spec, servers).unwrap()), 1, Start::default())
}

fn driver(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<ServerSpec>) -> Driver {
    driver_of(algorithm, parameters, servers.into_iter().map(|s| (s, Arc::new(Cell::new()))).collect())
}

/// Sends a request every `gap`; `serve` tells how long a server takes and whether it succeeds. Returns requests for each
/// of the `n` servers.
fn simulate(
    balancer: &mut impl Balancer,
    n: usize,
    requests: u64,
    gap: Nanos,
    mut serve: impl FnMut(usize, u64) -> (Nanos, bool),
) -> Vec<u64> {
    let mut counts = vec![0; n];
    let mut flying: Vec<(Nanos, usize, Nanos, bool)> = Vec::new();
    let finish = |balancer: &mut _, flying: &mut Vec<(Nanos, usize, Nanos, bool)>, until: Nanos| {
        flying.sort_by_key(|f| Reverse(f.0));
        while flying.last().is_some_and(|f| f.0 <= until) {
            let Some((end, server, time, good)) = flying.pop() else { break };
            Balancer::done(balancer, end, server, time, good);
        }
    };
    for i in 0..requests {
        let now = NOW + i * gap;
        finish(balancer, &mut flying, now);
        let Some(server) = balancer.pick(now) else { continue };
        counts[server] += 1;
        let (time, good) = serve(server, i);
        flying.push((now + time, server, time, good));
    }
    finish(balancer, &mut flying, Nanos::MAX);
    counts
}

#[test]
fn a_server_that_fails_quickly_attracts_nothing() {
    for n in [5usize, 60] {
        // Server 2 fails at once, from the 50th request of each server on.
        let fails = |s: usize, i: u64| s == 2 && i > 50 * n as u64;
        let serve = |s, i| if fails(s, i) { (MS / 10, false) } else { (200 * MS, true) };
        let (requests, gap) = (300 * n as u64, 40 * MS / n as u64);
        for (algorithm, parameters) in BY_TIME {
            for max_fails in [1, 0] {
                let servers = servers(n).into_iter().map(|s| ServerSpec { max_fails, ..s }).collect();
                let mut driver = driver(algorithm, parameters, servers);
                let count = simulate(&mut driver, n, requests, gap, serve)[2];
                assert!(count <= 300, "{algorithm} {parameters:?}, n = {n}, max_fails {max_fails}: {count}");
            }
        }
        let mut naive = Naive::new(n, |t, a| t * (1.0 + a));
        naive.times.fill((200 * MS) as f64);
        let count = simulate(&mut naive, n, requests, gap, serve)[2];
        assert!(count > requests / 2, "n = {n}: the plain formula sends it everything, {count} of {requests}");
    }
}

#[test]
fn a_failing_server_does_not_look_as_if_it_sent_little() {
    let mut driver =
        driver("least_bandwidth", &[], servers(5).into_iter().map(|s| ServerSpec { max_fails: 0, ..s }).collect());
    let counts =
        simulate(&mut driver, 5, 2_000, 8 * MS, |s, _| if s == 2 { (MS / 10, false) } else { (50 * MS, true) });
    assert!(counts[2] < 300, "{counts:?}");
}

#[test]
fn equal_servers_get_equal_traffic() {
    // A few in flight on each server, times around 30 ms that have nothing to do with the server.
    let serve = |_: usize, i: u64| ((20 + (i * 7_919) % 21) * MS, true);
    let per_server = 300;
    for n in [5usize, 60] {
        let (requests, gap) = (per_server * n as u64, 15 * MS / n as u64);
        for (algorithm, parameters) in BY_TIME {
            let counts = simulate(&mut driver(algorithm, parameters, servers(n)), n, requests, gap, serve);
            let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
            // The least latency of a few goes to the lucky for a while.
            let slack = if algorithm == "prequal" { 8 } else { 3 };
            let fair = per_server * (10 - slack) / 10..=per_server * (10 + slack) / 10;
            assert!(fair.contains(&least) && fair.contains(&most), "{algorithm} {parameters:?} {counts:?}");
        }
        // The least average time: whoever had bad luck first is left alone.
        let counts = simulate(&mut Naive::new(n, |t, _| t), n, requests, gap, serve);
        assert!(counts.iter().any(|count| *count < per_server / 3), "{counts:?}");
    }
}

#[test]
fn faster_servers_get_more() {
    for (algorithm, parameters) in BY_TIME {
        for n in [4usize, 60] {
            let slow = |s: usize| s.is_multiple_of(2);
            let serve = |s, _| (if slow(s) { 400 * MS } else { 50 * MS }, true);
            let mut driver = driver(algorithm, parameters, servers(n));
            let counts = simulate(&mut driver, n, 400 * n as u64, 50 * MS / n as u64, serve);
            let to_slow: u64 = (0..n).filter(|s| slow(*s)).map(|s| counts[s]).sum();
            let share = to_slow as f64 / counts.iter().sum::<u64>() as f64;
            assert!((0.001..0.36).contains(&share), "{algorithm} {parameters:?}, n = {n}: {share}");
        }
    }
}

#[test]
fn a_new_server_is_not_flooded() {
    let serve = |_: usize, _: u64| (200 * MS, true);
    for n in [5usize, 60] {
        let (warm, gap) = (100 * n as u64, 40 * MS / n as u64);
        // So many at once that each server gets about ten.
        let picks = 10 * n;
        for (algorithm, parameters) in BY_TIME {
            let cells: Vec<_> = (0..n).map(|_| Arc::new(Cell::new())).collect();
            let known = |n: usize| servers(n).into_iter().zip(cells.iter().cloned()).collect::<Vec<_>>();
            simulate(&mut driver_of(algorithm, parameters, known(n - 1)), n, warm, gap, serve);
            // The membership changes: the others are known, the last server is not.
            let mut new = driver_of(algorithm, parameters, known(n));
            let now = NOW + warm * gap;
            let mine = (0..picks).filter(|_| Balancer::pick(&mut new, now) == Some(n - 1)).count();
            assert!((4..=20).contains(&mine), "{algorithm} {parameters:?}, n = {n}: {mine} of {picks}");
        }
        let mut naive = Naive::new(n, |t, a| t * (1.0 + a));
        (0..n - 1).for_each(|i| naive.times[i] = (200 * MS) as f64);
        let mine = (0..picks).filter(|_| naive.pick(NOW) == Some(n - 1)).count();
        assert_eq!(mine, picks, "the plain formula floods it");
    }
}

#[test]
fn a_slow_server_is_tried_again() {
    // Server 0 was slow at first, and is as quick as the others later. Requests come one at a time.
    let run = |balancer: &mut dyn Balancer, n: usize| {
        for i in 0..n as u64 * 30 {
            let Some(server) = balancer.pick(NOW + i * MS) else { continue };
            balancer.done(NOW + i * MS, server, if server == 0 { 3_000 * MS } else { 30 * MS }, true);
        }
        let mut tried = |from: Nanos| {
            (0..400 * n as u64).any(|i| {
                let now = from + i * MS;
                let server = balancer.pick(now);
                server.inspect(|s| balancer.done(now, *s, 30 * MS, true));
                server == Some(0)
            })
        };
        (tried(NOW + SECOND), tried(NOW + 200 * SECOND))
    };
    for n in [3usize, 40] {
        for (algorithm, parameters) in [("least_time", &[][..]), ("combined", &[("time", "90")]), ("peak_ewma", &[])] {
            let mut driver = driver(algorithm, parameters, servers(n));
            let (soon, later) = run(&mut driver, n);
            // Of 40 servers a draw of two may be of 0 and another that nobody asked yet.
            assert!(!soon || n > 3 && algorithm == "peak_ewma", "{algorithm}, n = {n}: slow, so left alone");
            assert!(later, "{algorithm}, n = {n}: tried again");
        }
        let (_, later) = run(&mut Naive::new(n, |t, a| t * (1.0 + a)), n);
        assert!(!later, "the plain formula never tries it again");
    }
}

/// Half of the requests belong to server 0: it gets so many fewer of the others.
#[test]
fn sticky_requests_count_as_turns() {
    for algorithm in ["round_robin", "weighted_load"] {
        for n in [4usize, 40] {
            if algorithm == "weighted_load" && n > 32 {
                continue; // Draws owe nothing.
            }
            let mut driver = driver(algorithm, &[], servers(n));
            let rounds = 400;
            let (mut mine, mut naive, mut turn) = (0, 0, 0);
            for i in 0..rounds * n {
                let bound = i % n == 0;
                let server = if bound {
                    driver.claim(NOW, Member(0), &mut Tried::default(), true).unwrap();
                    0
                } else {
                    Balancer::pick(&mut driver, NOW).unwrap()
                };
                driver.done(NOW, server, MS, true);
                mine += usize::from(server == 0);
                // Turns that do not know of the bound requests.
                naive += usize::from(bound || turn % n == 0);
                turn += usize::from(!bound);
            }
            assert!(mine.abs_diff(rounds) <= 2, "{algorithm}, n = {n}: {mine} of {rounds}");
            assert!(naive > rounds * 3 / 2, "n = {n}: turns on their own give it {naive}");
        }
    }
}

/// Of an idle server and a busy one the idle one wins whenever both are drawn. With replacement the busy one is drawn twice
/// a quarter of the time.
#[test]
fn two_draws_are_of_two_servers() {
    for algorithm in ["two_choices", "peak_ewma"] {
        let mut driver = driver(algorithm, &[], servers(2));
        for _ in 0..5 {
            driver.claim(NOW, Member(1), &mut Tried::default(), true).unwrap();
        }
        driver.done(NOW, 1, 10 * MS, true);
        for _ in 0..1_000 {
            let server = Balancer::pick(&mut driver, NOW);
            assert_eq!(server, Some(0), "{algorithm}");
            driver.done(NOW, 0, 10 * MS, true);
        }
    }
    let mut state = 7u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 63
    };
    let busy = (0..1_000).filter(|_| draw() & draw() == 1).count();
    assert!((200..300).contains(&busy), "{busy}");
}
