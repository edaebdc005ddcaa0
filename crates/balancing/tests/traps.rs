//! Traps that load balancers fall into elsewhere. Each test shows as well that the plain formula falls into it. One more,
//! that all workers begin at the first server, is in `conformance`.

#[path = "conformance/forms.rs"]
mod forms;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use balanza_balancing::registry::{Key, Spec, find};
use balanza_balancing::{Driver, Fleet, Member, Nanos, Outcome, Report, ServerSpec, ServerState, Start, Tried};
use forms::forms;

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
    fn done(&mut self, now: Nanos, server: usize, time: Nanos, outcome: Outcome);

    /// What servers say of themselves: how many requests each has.
    fn hear(&mut self, _now: Nanos, _in_flight: &[u32]) {}
}

impl Balancer for Driver {
    fn pick(&mut self, now: Nanos) -> Option<usize> {
        Driver::pick(self, now, b"", &mut Tried::default()).ok().map(|m| m.0 as usize)
    }

    fn done(&mut self, now: Nanos, server: usize, time: Nanos, outcome: Outcome) {
        let report = Report { outcome, header_time: Some(time), last_byte_time: Some(time), bytes: 1_000 };
        let member = Member(server as u32);
        if self.wants_latency() && outcome == Outcome::Success {
            let in_flight = self.fleet().state(member).in_flight() - 1;
            self.latency(now, member, in_flight, time);
        }
        self.complete(now, member, &report);
    }

    /// Ten requests make a server fully busy. One that has none answers probes as if it were quick.
    fn hear(&mut self, now: Nanos, in_flight: &[u32]) {
        for (member, in_flight) in self.fleet().members().zip(in_flight) {
            self.fleet().state(member).report_load(now, f64::from(*in_flight) / 10.0);
        }
        let mut asked = Vec::new();
        self.take_probes(now, &mut asked);
        for member in asked {
            let in_flight = in_flight[member.0 as usize];
            let latency = if in_flight == 0 { MS / 10 } else { 200 * MS };
            self.probed(now, member, in_flight, latency);
        }
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

    fn done(&mut self, _now: Nanos, server: usize, time: Nanos, _outcome: Outcome) {
        self.in_flight[server] -= 1;
        let average = &mut self.times[server];
        *average = if *average == 0.0 { time as f64 } else { *average * 0.95 + time as f64 * 0.05 };
    }
}

fn servers(n: usize) -> Vec<ServerSpec> {
    (0..n).map(|i| ServerSpec::new(&format!("10.0.0.{i}:80"))).collect()
}

fn spec(algorithm: &str, parameters: &[(&str, &str)]) -> Spec {
    Spec::new(find(algorithm).unwrap(), parameters).unwrap()
}

fn driver_of(spec: &Spec, servers: Vec<(ServerSpec, Arc<ServerState>)>) -> Driver {
    Driver::new(Arc::new(Fleet::new(spec, servers).unwrap()), 1, Start::default())
}

fn driver(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<ServerSpec>) -> Driver {
    driver_of(&spec(algorithm, parameters), servers.into_iter().map(|s| (s, Arc::new(ServerState::new()))).collect())
}

/// Sends a request every `gap`; `serve` tells how long a server takes and how that ends. Returns requests for each
/// of the `n` servers.
fn simulate(
    balancer: &mut dyn Balancer,
    n: usize,
    requests: u64,
    gap: Nanos,
    serve: impl FnMut(usize, u64) -> (Nanos, Outcome),
) -> Vec<u64> {
    simulate_until(balancer, n, requests, gap, serve, Nanos::MAX)
}

/// The same, with what is in flight at the end left there after a time.
fn simulate_until(
    balancer: &mut dyn Balancer,
    n: usize,
    requests: u64,
    gap: Nanos,
    mut serve: impl FnMut(usize, u64) -> (Nanos, Outcome),
    end: Nanos,
) -> Vec<u64> {
    let mut counts = vec![0; n];
    let mut in_flight = vec![0; n];
    let mut flying: Vec<(Nanos, usize, Nanos, Outcome)> = Vec::new();
    let finish = |balancer: &mut dyn Balancer,
                  flying: &mut Vec<(Nanos, usize, Nanos, Outcome)>,
                  in_flight: &mut [u32],
                  until| {
        flying.sort_by_key(|f| Reverse(f.0));
        while flying.last().is_some_and(|f| f.0 <= until) {
            let Some((end, server, time, outcome)) = flying.pop() else { break };
            in_flight[server] -= 1;
            Balancer::done(balancer, end, server, time, outcome);
        }
    };
    for i in 0..requests {
        let now = NOW + i * gap;
        finish(balancer, &mut flying, &mut in_flight, now);
        balancer.hear(now, &in_flight);
        let Some(server) = balancer.pick(now) else { continue };
        counts[server] += 1;
        in_flight[server] += 1;
        let (time, outcome) = serve(server, i);
        flying.push((now + time, server, time, outcome));
    }
    finish(balancer, &mut flying, &mut in_flight, end);
    counts
}

/// Every form of the registry that goes by load or latency, whatever the failures count for.
#[test]
fn a_server_that_fails_fast_attracts_nothing() {
    let forms: Vec<Spec> = forms().into_iter().filter(goes_by_load_or_latency).collect();
    let names: BTreeSet<&str> = forms.iter().map(|spec| spec.entry().name).collect();
    let expected = [
        "combined",
        "least_bandwidth",
        "least_load",
        "least_time",
        "peak_ewma",
        "prequal",
        "two_choices",
        "weighted_load",
    ];
    assert!(names.iter().eq(&expected), "{names:?}");
    for n in [5usize, 60] {
        // Server 2 fails at once, from the 50th request of each server on.
        let (requests, gap) = (300 * n as u64, 40 * MS / n as u64);
        let fails = |s: usize, i: u64| s == 2 && i > 50 * n as u64;
        for bad in [Outcome::Failure, Outcome::ErrorResponse] {
            let serve = |s, i| if fails(s, i) { (MS / 10, bad) } else { (200 * MS, Outcome::Success) };
            for spec in &forms {
                for max_fails in [1, 0] {
                    let servers = servers(n).into_iter().map(|s| (ServerSpec { max_fails, ..s }, Arc::default()));
                    let mut driver = driver_of(spec, servers.collect());
                    let count = simulate(&mut driver, n, requests, gap, serve)[2];
                    // Half of a fair share, after 50 requests while it was well.
                    assert!(count <= 50 + 125, "{spec:?}, n = {n}, {bad:?}, max_fails {max_fails}: {count}");
                }
            }
            let mut naive = Naive::new(n, |t, a| t * (1.0 + a));
            naive.times.fill((200 * MS) as f64);
            let count = simulate(&mut naive, n, requests, gap, serve)[2];
            assert!(count > requests / 2, "n = {n}: the plain formula sends it everything, {count} of {requests}");
        }
    }
}

/// Peak EWMA as in Finagle, over all servers: the cost fades while requests wait.
struct Fading {
    servers: Vec<(f64, Nanos, u32)>,
}

impl Balancer for Fading {
    fn pick(&mut self, now: Nanos) -> Option<usize> {
        let score = |(cost, last, in_flight): (f64, Nanos, u32)| {
            cost * (-(now.saturating_sub(last) as f64) / 10e9).exp() * f64::from(in_flight + 1)
        };
        let scores = |i: &usize, j: &usize| score(self.servers[*i]).total_cmp(&score(self.servers[*j]));
        let found = (0..self.servers.len()).min_by(scores)?;
        self.servers[found].2 += 1;
        Some(found)
    }

    fn done(&mut self, now: Nanos, server: usize, time: Nanos, _outcome: Outcome) {
        let (cost, last, in_flight) = self.servers[server];
        let keep = (-(now.saturating_sub(last) as f64) / 10e9).exp();
        let time = time as f64;
        self.servers[server] = (time.max(cost * keep + time * (1.0 - keep)), now, in_flight - 1);
    }
}

/// A server that hangs answers nothing: what is known of it does not get better while requests wait for it.
#[test]
fn a_server_that_hangs_attracts_nothing() {
    // weighted_load goes by reports alone: a server that reports to be full keeps a part of its turns.
    let counted = |spec: &Spec| goes_by_load_or_latency(spec) && spec.entry().name != "weighted_load";
    let forms: Vec<Spec> = forms().into_iter().filter(counted).collect();
    for (n, per_server) in [(5usize, 1_500u64), (60, 300)] {
        let (requests, gap) = (per_server * n as u64, 40 * MS / n as u64);
        // From the 50th request of each server on server 2 hangs; the other requests have five in flight on each.
        let hangs = |s: usize, i: u64| s == 2 && i > 50 * n as u64;
        let run = |balancer: &mut dyn Balancer| {
            let mut stuck = 0;
            let serve = |s, i| {
                stuck += u64::from(hangs(s, i));
                (if hangs(s, i) { 10_000 * SECOND } else { 200 * MS }, Outcome::Success)
            };
            simulate_until(balancer, n, requests, gap, serve, NOW + requests * gap);
            stuck
        };
        for spec in &forms {
            let servers = servers(n).into_iter().map(|server| (server, Arc::default()));
            let stuck = run(&mut driver_of(spec, servers.collect()));
            // Bytes say little in the first window: the others catch up with what they have sent.
            let most = if spec.entry().name == "least_bandwidth" { 60 } else { 15 };
            assert!(stuck <= most, "{spec:?}, n = {n}: {stuck} wait");
        }
        let stuck = run(&mut Fading { servers: vec![((200 * MS) as f64, NOW, 0); n] });
        assert!(n > 5 || stuck > 300, "n = {n}: the plain formula sends it more and more, {stuck} wait");
    }
}

fn goes_by_load_or_latency(spec: &Spec) -> bool {
    spec.goes_by_time() && spec.entry().key == Key::None
}

#[test]
fn equal_servers_get_equal_traffic() {
    // A few in flight on each server, times around 30 ms that have nothing to do with the server.
    let serve = |_: usize, i: u64| ((20 + (i * 7_919) % 21) * MS, Outcome::Success);
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
        // The least average time: a server that had bad luck first gets no requests.
        let counts = simulate(&mut Naive::new(n, |t, _| t), n, requests, gap, serve);
        assert!(counts.iter().any(|count| *count < per_server / 3), "{counts:?}");
    }
}

#[test]
fn faster_servers_get_more() {
    for (algorithm, parameters) in BY_TIME {
        for n in [4usize, 60] {
            let slow = |s: usize| s.is_multiple_of(2);
            let serve = |s, _| (if slow(s) { 400 * MS } else { 50 * MS }, Outcome::Success);
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
    let serve = |_: usize, _: u64| (200 * MS, Outcome::Success);
    for n in [5usize, 60] {
        let (warm, gap) = (100 * n as u64, 40 * MS / n as u64);
        // So many at once that each server gets about ten.
        let picks = 10 * n;
        for (algorithm, parameters) in BY_TIME {
            let states: Vec<_> = (0..n).map(|_| Arc::new(ServerState::new())).collect();
            let known = |n: usize| servers(n).into_iter().zip(states.iter().cloned()).collect::<Vec<_>>();
            simulate(&mut driver_of(&spec(algorithm, parameters), known(n - 1)), n, warm, gap, serve);
            // The membership changes: the others are known, the last server is not.
            let mut new = driver_of(&spec(algorithm, parameters), known(n));
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
            balancer.done(NOW + i * MS, server, if server == 0 { 3_000 * MS } else { 30 * MS }, Outcome::Success);
        }
        let mut tried = |from: Nanos| {
            (0..400 * n as u64).any(|i| {
                let now = from + i * MS;
                let server = balancer.pick(now);
                server.inspect(|s| balancer.done(now, *s, 30 * MS, Outcome::Success));
                server == Some(0)
            })
        };
        (tried(NOW + SECOND), tried(NOW + 200 * SECOND))
    };
    for n in [3usize, 40] {
        for (algorithm, parameters) in [("least_time", &[][..]), ("combined", &[("time", "90")]), ("peak_ewma", &[])] {
            let mut driver = driver(algorithm, parameters, servers(n));
            let (soon, later) = run(&mut driver, n);

            // Of 40 servers a draw of two may be of 0 and another that has no requests yet.
            assert!(!soon || n > 3 && algorithm == "peak_ewma", "{algorithm}, n = {n}: slow, so left alone");
            assert!(later, "{algorithm}, n = {n}: tried again");
        }
        let (_, later) = run(&mut Naive::new(n, |t, a| t * (1.0 + a)), n);
        assert!(!later, "the plain formula never tries it again");
    }
}

/// The same when the configuration was loaded again meanwhile: what is remembered fades too.
#[test]
fn a_slow_server_is_tried_again_after_a_reload() {
    for (algorithm, parameters) in [("least_time", &[][..]), ("combined", &[]), ("peak_ewma", &[])] {
        let states: Vec<Arc<ServerState>> = (0..3).map(|_| Arc::new(ServerState::new())).collect();
        let start = || driver_of(&spec(algorithm, parameters), servers(3).into_iter().zip(states.clone()).collect());
        let mut driver = start();
        for i in 0..90 {
            let server = Balancer::pick(&mut driver, NOW + i * MS).unwrap();
            driver.done(NOW + i * MS, server, if server == 0 { 3_000 * MS } else { 30 * MS }, Outcome::Success);
        }
        let mut driver = start();
        let later = NOW + 200 * SECOND;
        let tried = (0..1_200).any(|i| {
            let server = Balancer::pick(&mut driver, later + i * MS).unwrap();
            driver.done(later + i * MS, server, 30 * MS, Outcome::Success);
            server == 0
        });
        assert!(tried, "{algorithm}");
    }
}

/// A server fails once, is forgiven, and is slower than the others or hangs: the faded penalty does not make it look fast.
#[test]
fn a_failure_that_is_forgiven_leaves_the_time() {
    for algorithm in ["combined", "peak_ewma", "prequal"] {
        let n = 5;
        let mut driver = driver(algorithm, &[], servers(n));
        // A request every 40 ms that takes 200 ms, so that five are in flight; server 2 fails one and then hangs.
        let (mut failed, mut stuck) = (false, 0);
        let serve = |s: usize, _: u64| {
            if s != 2 {
                return (200 * MS, Outcome::Success);
            }
            if !std::mem::replace(&mut failed, true) {
                return (MS, Outcome::ErrorResponse);
            }
            stuck += 1;
            (10_000 * SECOND, Outcome::Success)
        };
        // Two minutes: the penalty has long faded.
        simulate_until(&mut driver, n, 3_000, 40 * MS, serve, NOW + 120 * SECOND);
        assert!(stuck <= 15, "{algorithm}: {stuck} wait");
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
                driver.done(NOW, server, MS, Outcome::Success);
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
        driver.done(NOW, 1, 10 * MS, Outcome::Success);
        for _ in 0..1_000 {
            let server = Balancer::pick(&mut driver, NOW);
            assert_eq!(server, Some(0), "{algorithm}");
            driver.done(NOW, 0, 10 * MS, Outcome::Success);
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
