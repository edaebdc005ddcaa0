//! Service times of the workload server over its socket: a server has the capacity that arithmetic says, neither less nor
//! more. That holds when the machine is not busy with something else at that moment, so a measurement is tried for 20 seconds.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use balanza_lab::target::{Credits, Discipline, Handle, STATS_PATH, Service, Stats, Target, Workload};
use common::{Client, has_begun, spawn, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Whether one of the measurements of 20 seconds, or of ten, is as long as expected, or longer by at most this part of it. A busy
/// machine makes one longer, and shorter where the server does not see when a connection came.
fn measures(expected: f64, part: f64, mut measure: impl FnMut() -> f64) {
    let (begin, mut measured) = (Instant::now(), Vec::new());
    while measured.len() < 10 || begin.elapsed() < Duration::from_secs(20) {
        let value = measure();
        if (expected * 0.9999..=expected * (1.0 + part)).contains(&value) {
            return;
        }
        measured.push(value);
    }
    panic!("{expected} s are expected, not {measured:?}");
}

fn delay(microseconds: u64) -> Target {
    Target { workload: Workload::Delay(Duration::from_micros(microseconds)), ..Target::default() }
}

/// How long `clients` take that send `requests` each, one after the other, with a new connection for each or not.
fn saturate(handle: &Handle, clients: usize, requests: usize, keep_alive: bool) -> f64 {
    let address = handle.address();
    let send = move || {
        let mut kept = keep_alive.then(|| Client::new(address));
        for _ in 0..requests {
            let answer = match &mut kept {
                Some(client) => client.get("/"),
                None => Client::new(address).get("/"),
            };
            assert_eq!(answer.status, 200);
        }
    };
    seconds(|| {
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(send);
            }
        });
    })
}

#[test]
fn a_serial_server_has_the_capacity_of_its_service_time() {
    // 763.4 requests a second.
    let handle = spawn(Target { concurrency: Some(1), ..delay(1310) });
    measures(800.0 * 1.31e-3, 0.03, || saturate(&handle, 32, 25, true));
    let after = handle.stop();
    assert_eq!((after.max_in_flight, after.requests % 800, after.aborted), (1, 0, 0));
}

#[test]
fn so_has_one_that_takes_one_connection_at_a_time() {
    // What a busy machine delays adds up here, so each measurement is short.
    for (microseconds, clients, requests, part) in [(1310, 8, 5, 0.05), (6810, 4, 4, 0.05)] {
        let one = Target { connections: Some(1), keep_alive: false, backlog: 128, ..delay(microseconds) };
        let handle = spawn(one);
        let total = (clients * requests) as f64 * microseconds as f64 * 1e-6;
        measures(total, part, || saturate(&handle, clients, requests, false));
        assert_eq!(handle.stop().max_in_flight, 1);
    }
}

#[test]
fn workers_multiply_the_capacity() {
    for target in [
        Target { concurrency: Some(3), ..delay(20_000) },
        Target { connections: Some(3), keep_alive: false, ..delay(20_000) },
        Target { concurrency: Some(3), speed: 0.5, ..delay(10_000) },
    ] {
        let handle = spawn(target.clone());
        measures(60.0 / 3.0 * 20e-3, 0.25, || saturate(&handle, 12, 5, target.keep_alive));
        assert_eq!(handle.stop().max_in_flight, 3);
    }
}

#[test]
fn two_at_once_take_twice_as_long_when_they_share() {
    let time = |discipline, workers, clients| {
        let handle = spawn(Target { discipline, concurrency: Some(workers), ..delay(200_000) });
        saturate(&handle, clients, 1, true)
    };
    measures(0.200, 0.30, || time(Discipline::Sharing, 1, 1));
    measures(0.400, 0.30, || time(Discipline::Sharing, 1, 2));
    measures(0.200, 0.30, || time(Discipline::Sharing, 2, 2));
    // The first of two: with the other one when they share, in the middle in the order of arrival.
    let first = |discipline| {
        let handle = spawn(Target { discipline, concurrency: Some(1), ..delay(200_000) });
        let mut clients = [(); 2].map(|()| Client::new(handle.address()));
        let start = Instant::now();
        clients.iter_mut().for_each(|client| client.send(GET));
        clients[0].receive();
        start.elapsed().as_secs_f64()
    };
    measures(0.200, 0.30, || first(Discipline::Fifo));
    // Less by as much as the other one comes later.
    assert!((0..10).any(|_| first(Discipline::Sharing) > 0.350));
}

#[test]
fn spent_credits_throttle() {
    let credits = Some(Credits { size: Duration::from_millis(100), rate: 0.0, throttle: 0.25 });
    let computing = Target {
        workload: Workload::Loop { turns: 1000 },
        time: Some(Duration::from_millis(50)),
        credits,
        ..Target::default()
    };
    let waiting = Target { service: Some(Service::Virtual), concurrency: Some(1), ..computing.clone() };
    assert_eq!((waiting.service(), computing.service()), (Service::Virtual, Service::Burn));
    // Two requests at full speed, one at a quarter of it.
    for (requests, expected) in [(2, 0.100), (3, 0.300)] {
        measures(expected, 0.30, || saturate(&spawn(waiting.clone()), 1, requests, true));
    }
    // A computation takes as much longer as the machine is busy, but never less.
    measures(0.300, f64::INFINITY, || saturate(&spawn(computing.clone()), 1, 3, true));
}

#[test]
fn connections_that_find_the_queue_full_are_tried_again_after_a_second() {
    let connect = || {
        let one = Target { connections: Some(1), keep_alive: false, backlog: 1, ..delay(600_000) };
        let handle = spawn(one);
        let mut at_work = Client::new(handle.address());
        at_work.send(GET);
        wait_for("nothing is at work", || has_begun(&handle));
        // Linux holds one more than the backlog says.
        let _queued = [(); 2].map(|()| {
            let mut client = Client::new(handle.address());
            client.send(GET);
            client
        });
        seconds(|| drop(TcpStream::connect(handle.address()).unwrap()))
    };
    // Not if this was held up for so long that there was a place again.
    assert!((0..10).any(|_| connect() > 0.9));
}

#[test]
fn who_leaves_gives_up_a_place_but_not_a_worker() {
    let total = || {
        let handle = spawn(Target { concurrency: Some(1), ..delay(1_000_000) });
        let [mut first, mut second, mut third] = [(); 3].map(|()| Client::new(handle.address()));
        let start = Instant::now();
        first.send(GET);
        wait_for("nothing is at work", || has_begun(&handle));
        second.send(GET);
        wait_for("nobody waits", || handle.stats().queued + handle.stats().requests > 0);
        drop((first, second));
        third.send(GET);
        third.receive();
        let total = start.elapsed().as_secs_f64();
        let after = handle.stop();
        // Otherwise the first was answered before it left: no measurement.
        if (after.requests, after.aborted, after.queued) == (1, 2, 0) { total } else { f64::NAN }
    };
    measures(2.000, 0.10, total);
}

#[test]
fn who_leaves_keeps_the_only_connection_until_its_work_ends() {
    let total = || {
        let handle = spawn(Target { connections: Some(1), keep_alive: false, ..delay(1_000_000) });
        let mut first = Client::new(handle.address());
        let start = Instant::now();
        first.send(GET);
        wait_for("nothing is at work", || has_begun(&handle));
        drop(first);
        assert_eq!(Client::new(handle.address()).get("/").status, 200);
        let total = start.elapsed().as_secs_f64();
        let after = handle.stop();
        // Otherwise the first was answered before it left: no measurement.
        if (after.requests, after.aborted, after.max_in_flight) == (1, 1, 1) { total } else { f64::NAN }
    };
    measures(2.000, 0.10, total);
}

#[test]
fn counters_are_told_out_of_band() {
    let one = Target {
        name: "s1".into(),
        control: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        connections: Some(1),
        ..delay(60_000_000)
    };
    let handle = spawn(one);
    let mut client = Client::new(handle.address());
    client.send(GET);
    wait_for("nothing is at work", || handle.stats().in_flight == 1);
    let control = handle.control().unwrap();
    let stats = Client::new(control).get(STATS_PATH);
    let stats: Stats = serde_json::from_slice(&stats.body).unwrap();
    assert_eq!((stats.name.as_str(), stats.connections, stats.in_flight), ("s1", 1, 1));
    let mut asking = Client::new(control);
    assert_eq!(asking.get(balanza_lab::target::LOAD_PATH).status, 200);
    assert_eq!(asking.get("/").status, 404);
}
