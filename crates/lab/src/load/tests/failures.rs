//! Servers that misbehave, and loads that make no sense.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{GOOD, measure, request, server, spec, target};
use crate::load::{Watch, run};
use crate::record::{ErrorKind, Measured};
use crate::target::Target;

/// The only error of a load, and how many of them.
fn only_error(measured: &Measured) -> (ErrorKind, u64) {
    assert_eq!(measured.answered, 0);
    assert_eq!(measured.latency.count, 0);
    let errors: Vec<_> = measured.errors.iter().map(|(kind, count)| (*kind, *count)).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].1, measured.ended);
    errors[0]
}

#[test]
fn each_failure_has_its_name() {
    // Bound, but not listening.
    let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    bound.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let refusing = bound.local_addr().unwrap().as_socket().unwrap();
    let silent = server(|mut stream| while request(&mut stream).is_some() {});
    let resetting = server(|mut stream| {
        request(&mut stream);
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let leaving = server(|mut stream| drop(request(&mut stream)));
    let interrupted = server(|mut stream| {
        request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nonly this");
    });
    let babbling = server(|mut stream| {
        request(&mut stream);
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n\r\n");
    });
    for (address, kind) in [
        (refusing, ErrorKind::Refused),
        (silent, ErrorKind::Timeout),
        (resetting, ErrorKind::Reset),
        (leaving, ErrorKind::Closed),
        (interrupted, ErrorKind::Closed),
        (babbling, ErrorKind::Malformed),
    ] {
        let timeout = if kind == ErrorKind::Timeout { "200ms" } else { "1m" };
        for text in ["users = 2\nrequests = 6", "rate = 100\nrequests = 6"] {
            let watch = Watch::default();
            let measured = run(&spec(address, &format!("{text}\ntimeout = \"{timeout}\"")), &watch).unwrap();
            assert_eq!(only_error(&measured), (kind, 6), "{text}");
            assert_eq!((watch.answered.load(Ordering::Relaxed), watch.failed.load(Ordering::Relaxed)), (0, 6));
        }
    }
}

#[test]
fn errors_that_are_answers_count_as_errors_with_their_status() {
    for (status, kind) in [(503, ErrorKind::ServerError), (404, ErrorKind::ClientError)] {
        let handle = target(Target { status, name: "no".into(), ..Target::default() });
        let measured = measure(handle.address(), "users = 2\nrequests = 10");
        assert_eq!(only_error(&measured), (kind, 10));
        assert_eq!(measured.statuses, [(status, 10)].into());
        assert_eq!(measured.by_server, [("no".to_owned(), 10)].into());
    }
}

#[test]
fn a_full_queue_of_connections_is_a_connect_time_out() {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let measured = measure(address, "users = 8\nrequests = 8\ntimeout = \"400ms\"");
    assert_eq!(measured.ended, 8);
    let count = |kind| measured.errors.get(&kind).copied().unwrap_or(0);
    assert!(count(ErrorKind::ConnectTimeout) >= 4, "{:?}", measured.errors);
    assert_eq!(count(ErrorKind::ConnectTimeout) + count(ErrorKind::Timeout), 8, "{:?}", measured.errors);
}

#[test]
fn a_client_without_descriptors_says_so_at_once() {
    let silent = server(|mut stream| while request(&mut stream).is_some() {});
    let measured = measure(silent, "rate = 200\nrequests = 20\ntimeout = \"3s\"\nconnections_max = 3");
    assert_eq!(measured.errors, [(ErrorKind::Timeout, 3), (ErrorKind::Descriptors, 17)].into());
    assert_eq!(measured.connections_max, Some(3));
    // Connections that are about to be closed are not in the way.
    let handle = target(Target::default());
    let measured = measure(handle.address(), "users = 3\nrequests = 300\nkeep_alive = false\nconnections_max = 3");
    assert_eq!((measured.answered, measured.ended), (300, 300), "{:?}", measured.errors);
}

#[test]
fn a_connection_that_was_closed_meanwhile_is_no_error() {
    // Says nothing of closing, and closes: while nobody uses the connection, or in the way of the next request.
    for pause in [0, 30] {
        let address = server(move |mut stream| {
            if request(&mut stream).is_some() {
                let _ = stream.write_all(GOOD);
                std::thread::sleep(Duration::from_millis(pause));
            }
        });
        for text in
            ["users = 2\nrequests = 20", "users = 2\nrequests = 20\nthink = \"30ms\"", "rate = 50\nrequests = 20"]
        {
            let measured = measure(address, text);
            assert_eq!((measured.answered, measured.ended), (20, 20), "{text}: {:?}", measured.errors);
        }
    }
}

#[test]
fn loads_that_contradict_themselves_are_refused() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let refused = |text: &str| format!("{:#}", run(&spec(address, text), &Watch::default()).unwrap_err());
    let texts = [
        "duration = \"1s\"",
        "users = 1\nrate = 1\nduration = \"1s\"",
        "users = 0\nduration = \"1s\"",
        "rate = 0\nduration = \"1s\"",
        "users = 1",
        "users = 1\nrequests = 0",
        "users = 1\nduration = \"1s\"\nwarmup = \"1s\"",
        "users = 1\nduration = \"1s\"\ntimeout = \"0s\"",
    ];
    insta::assert_snapshot!(texts.map(refused).join("\n"));
}
