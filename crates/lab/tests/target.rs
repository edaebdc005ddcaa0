//! The workload server over its socket.

mod common;

use std::time::{Duration, Instant};

use balanza_lab::target::{Stats, Target, Workload};
use common::{Client, has_begun, load, spawn, stats, wait_for};

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn delay(milliseconds: u64) -> Workload {
    Workload::Delay(Duration::from_millis(milliseconds))
}

#[test]
fn answers_name_the_server() {
    let handle = spawn(Target { name: "s1".into(), ..Target::default() });
    let answer = Client::new(handle.address()).get("/any?thing");
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"s1\n"[..]));
    assert!(answer.headers.contains(&"x-server: s1".to_owned()), "{answer:?}");

    let unnamed = spawn(Target { body_size: Some(200), status: 503, ..Target::default() });
    let answer = Client::new(unnamed.address()).get("/");
    assert_eq!((answer.status, answer.body.len()), (503, 200));
    assert!(answer.body.starts_with(unnamed.address().to_string().as_bytes()));
}

#[test]
fn connections_are_kept_and_pipelined_and_bodies_are_read() {
    let handle = spawn(Target::default());
    let mut client = Client::new(handle.address());
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 200);
    }
    let body = "x".repeat(300_000);
    client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    assert_eq!(client.receive().status, 200);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(&get.repeat(5));
    for _ in 0..5 {
        assert_eq!(client.receive().status, 200);
    }
    let after = handle.stats();
    assert_eq!((after.connections, after.requests), (1, 9));

    let closing = spawn(Target { keep_alive: false, ..Target::default() });
    let mut client = Client::new(closing.address());
    assert_eq!(client.get("/").status, 200);
    assert!(client.closed());
}

/// The least time that an answer of each of these takes, asked in turn until `enough` says so, or 300 times. Other work on
/// the machine can only make an answer later, so the least time comes close to the true one sooner or later.
fn least<const N: usize>(targets: [Target; N], enough: impl Fn([f64; N]) -> bool) -> [f64; N] {
    let handles = targets.map(spawn);
    let mut clients = handles.each_ref().map(|handle| Client::new(handle.address()));
    let mut least = [f64::INFINITY; N];
    for round in 0..300 {
        for (least, client) in least.iter_mut().zip(&mut clients) {
            *least = least.min(seconds(|| drop(client.get("/"))));
        }
        if round >= 5 && enough(least) {
            break;
        }
    }
    least
}

#[test]
fn delays_and_speed_as_ratios() {
    let target = |milliseconds, speed| Target { workload: delay(milliseconds), speed, ..Target::default() };
    let fits = |[base, half, four]: [f64; 3]| {
        (0.020..0.024).contains(&base) && (1.8..2.2).contains(&(half / base)) && (3.6..4.4).contains(&(four / base))
    };
    let times = least([target(20, 1.0), target(20, 0.5), target(80, 1.0)], fits);
    assert!(fits(times), "20 ms, at half the speed, 80 ms: {times:?}");
}

#[test]
fn computations_and_speed_as_ratios() {
    // Less than a time slice: even the longest runs through on a busy machine. The differences leave a request's own cost out.
    for workload in [Workload::Loop { turns: 30_000 }, Workload::Matrix { size: 25 }] {
        let target = |speed| Target { workload, speed, ..Target::default() };
        let fits = |[one, two, four]: [f64; 3]| (1.5..2.6).contains(&((four - two) / (two - one))) && four > 1.5 * one;
        let times = least([target(1.0), target(0.5), target(0.25)], fits);
        assert!(fits(times), "{workload}, at half and at a quarter of the speed: {times:?}");
    }
}

#[test]
fn concurrency_limits_what_is_worked_on() {
    for (concurrency, working, waiting) in [(Some(3), 3, 9), (None, 12, 0)] {
        let handle = spawn(Target { workload: delay(60_000), concurrency, ..Target::default() });
        let mut clients: Vec<Client> = (0..12).map(|_| Client::new(handle.address())).collect();
        clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let present = |stats: Stats| stats.in_flight + stats.queued;
        wait_for("not all are there", || present(handle.stats()) == 12);
        let after = handle.stop();
        assert_eq!((after.max_in_flight, after.max_queued), (working, waiting));
    }
    let handle = spawn(Target { workload: delay(500), concurrency: Some(3), ..Target::default() });
    let slow = seconds(|| load(&handle, 12, 2));
    let after = handle.stop();
    assert_eq!((after.max_in_flight, after.requests), (3, 24));
    // 24 requests of 500 ms, three at once.
    assert!(slow >= 4.0, "{slow}");
}

#[test]
fn concurrency_limits_computations_too() {
    let workload = Workload::Loop { turns: 200_000 };
    let handle = spawn(Target { workload, concurrency: Some(2), threads: 4, ..Target::default() });
    load(&handle, 8, 20);
    let after = handle.stop();
    assert_eq!((after.max_in_flight, after.requests), (2, 160));
}

#[test]
fn computations_hold_up_no_other_connection() {
    let answers_meanwhile = || {
        let handle = spawn(Target { workload: Workload::Loop { turns: 1_000_000_000 }, ..Target::default() });
        let mut busy = Client::new(handle.address());
        busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("nothing is worked on", || has_begun(&handle));
        stats(&handle).in_flight == 1 && handle.stats().in_flight == 1
    };
    // On a busy machine the work may end first.
    assert!((0..5).any(|_| answers_meanwhile()));
}

#[test]
fn connections_beyond_the_limit_wait_to_be_accepted() {
    let handle = spawn(Target { connections: Some(1), ..Target::default() });
    let mut first = Client::new(handle.address());
    assert_eq!(first.get("/").status, 200);
    let mut second = Client::new(handle.address());
    second.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(handle.stats().connections, 1);
    drop(first);
    assert_eq!(second.receive().status, 200);
    assert_eq!(handle.stats().connections, 2);
}

#[test]
#[cfg(target_os = "linux")]
fn the_backlog_holds_what_is_not_accepted() {
    let handle = spawn(Target { connections: Some(1), backlog: 2, ..Target::default() });
    let connect = |_| std::net::TcpStream::connect_timeout(&handle.address(), Duration::from_millis(200)).ok();
    let mut held = Client::new(handle.address());
    assert_eq!(held.get("/").status, 200);
    let queued = (0..20).map_while(connect).count();
    // Linux holds one more than the backlog says.
    assert_eq!(queued, 3);
}

#[test]
fn stats_over_http_are_the_counters_and_count_nothing() {
    let handle = spawn(Target { name: "s1".into(), workload: delay(5000), concurrency: Some(1), ..Target::default() });
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(handle.address())).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_for("nobody waits", || stats(&handle).queued == 2);
    let during = stats(&handle);
    assert_eq!((during.name.as_str(), during.in_flight, during.queued, during.requests), ("s1", 1, 2, 0));
    // One client that waits and the one that is served go away.
    drop(clients.remove(2));
    drop(clients.remove(0));
    assert_eq!(clients[0].receive().status, 200);
    wait_for("the gauges do not return to 0", || {
        let after = stats(&handle);
        after.in_flight == 0 && after.queued == 0
    });
    let after = handle.stop();
    assert_eq!((after.requests, after.aborted), (1, 2));
    assert!(after.time_us >= 4_900_000, "{after:?}");
}

#[test]
fn a_seed_repeats_the_answers_times() {
    let times = |seed| {
        let workload = Workload::Poisson { mean: 2.0, step: Duration::from_millis(20) };
        let handle = spawn(Target { workload, seed, ..Target::default() });
        let mut client = Client::new(handle.address());
        let time = |_| (seconds(|| drop(client.get("/"))) / 0.020) as u32;
        (0..12).map(time).collect::<Vec<u32>>()
    };
    // A busy machine makes single delays longer, so the least of several attempts counts.
    let mut least = [(3, vec![u32::MAX; 12]), (3, vec![u32::MAX; 12]), (4, vec![u32::MAX; 12])];
    for _ in 0..20 {
        for (seed, known) in &mut least {
            known.iter_mut().zip(times(*seed)).for_each(|(known, time)| *known = time.min(*known));
        }
        if least[0] == least[1] && least[0].1 != least[2].1 {
            return;
        }
    }
    panic!("by seed, in steps of 20 ms: {least:?}");
}

#[test]
fn stopping_ends_open_connections_and_frees_the_port() {
    let handle = spawn(Target { workload: delay(60_000), ..Target::default() });
    let address = handle.address();
    let mut waiting = Client::new(address);
    waiting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("nothing is in flight", || handle.stats().in_flight == 1);
    let mut last = Stats::default();
    assert!(seconds(|| last = handle.stop()) < 30.0);
    assert_eq!((last.requests, last.aborted, last.in_flight), (0, 1, 0));
    assert!(waiting.closed());
    // Another test may take the port at once, but not five.
    let is_free = |address| {
        let refused = std::net::TcpStream::connect(address).is_err();
        refused && Target { listen: address, ..Target::default() }.spawn().is_ok()
    };
    let other = || {
        let handle = spawn(Target::default());
        let address = handle.address();
        handle.stop();
        address
    };
    assert!(is_free(address) || (0..4).any(|_| is_free(other())));
}

#[test]
fn a_target_that_drains_answers_what_it_has_and_ends() {
    let handle = spawn(Target { workload: delay(1000), ..Target::default() });
    let (mut idle, mut busy) = (Client::new(handle.address()), Client::new(handle.address()));
    assert_eq!(idle.get("/").status, 200);
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // One that is answered already has been there.
    wait_for("the request is not there", || handle.stats().in_flight == 1 || handle.stats().requests == 2);
    handle.drain();
    assert!(idle.closed());
    assert_eq!(busy.receive().status, 200);
    assert!(busy.closed());
    wait_for("it does not end", || handle.has_ended());
    assert!(std::net::TcpStream::connect(handle.address()).is_err());
    assert_eq!(handle.stop().requests, 2);
}

#[test]
fn a_control_socket_changes_its_target() {
    let control = Some(([127, 0, 0, 1], 0).into());
    let handle = spawn(Target { workload: delay(10), control, ..Target::default() });
    let change = |what: &str| Client::new(handle.control().unwrap()).get(&format!("/_target/change?{what}")).status;
    let mut client = Client::new(handle.address());
    assert_eq!((change("failing=on"), client.get("/").status), (200, 503));
    assert_eq!((change("failing=off"), client.get("/").status), (200, 200));
    assert_eq!(change("slower=30"), 200);
    assert!(seconds(|| drop(client.get("/"))) >= 0.3);
    assert_eq!(change("slower=1"), 200);
    let again = (0..300).any(|_| seconds(|| drop(client.get("/"))) < 0.3);
    assert!(again, "it stays slow");
    for wrong in ["", "slower", "slower=0", "slower=x", "failing=maybe", "faster=2"] {
        assert_eq!(change(wrong), 400, "{wrong}");
    }
    // Clients cannot change it.
    assert_eq!(client.get("/_target/change?failing=on").status, 200);
    assert_eq!(client.get("/").status, 200);
}
