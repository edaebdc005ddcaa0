//! `HUP`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::Signal;

use crate::running::{End, Running, alive, connect, eventually, free_port};

#[test]
fn a_reload_keeps_the_worker_and_its_connections() {
    let running = Running::start("worker_processes 1;");
    let mut client = running.connect().unwrap();
    let before = client.ask().unwrap();
    running.configure("daemon off; worker_processes 4;");
    running.signal(Signal::SIGHUP);
    eventually("four threads", || (running.answer().threads == 4).then_some(()));
    let after = client.ask().unwrap();
    assert_eq!((after.pid, after.threads, after.sockets), (before.pid, 4, 4));
    running.configure("daemon off; worker_processes 2;");
    running.signal(Signal::SIGHUP);
    eventually("two threads", || (running.answer().threads == 2).then_some(()));
    assert_eq!(running.answer().sockets, 4, "closing a socket would reset the connections that wait in it");
    assert_eq!(client.ask().unwrap().pid, before.pid);
}

#[test]
fn a_bad_configuration_changes_nothing_and_says_why() {
    let running = Running::start("worker_processes 2;");
    let before = running.answer();
    let supervisor = running.child.id();
    for (directives, complaint) in [
        ("daemon off; bogus on;", "unknown directive \"bogus\""),
        (
            "error_log /nonexistent/error.log;",
            "open() \"/nonexistent/error.log\" failed (2: No such file or directory)",
        ),
        ("worker_processes 13;", "13 threads bring bad luck"),
    ] {
        running.configure(directives);
        running.signal(Signal::SIGHUP);
        running.wait_for_log(&format!("[emerg] {supervisor}#{supervisor}: {complaint}"));
        assert_eq!(running.answer(), before, "{directives}");
    }
    running.configure("daemon off; worker_processes 3;");
    running.signal(Signal::SIGHUP);
    eventually("three threads", || (running.answer().threads == 3).then_some(()));
    assert_eq!(running.answer().pid, before.pid);
}

#[test]
fn addresses_come_and_go() {
    let running = Running::start("");
    let (first, second) = (running.port, free_port());
    let path = running.path("test.conf");
    let text = std::fs::read_to_string(&path).unwrap();
    let with =
        |listen: &str| std::fs::write(&path, text.replace(&format!("listen 127.0.0.1:{first};"), listen)).unwrap();
    assert!(connect(second).is_none());
    with(&format!("listen 127.0.0.1:{first}; listen 127.0.0.1:{second};"));
    running.signal(Signal::SIGHUP);
    let worker = eventually("the second address", || connect(second)?.ask());
    assert_eq!(running.answer(), worker);
    with(&format!("listen 127.0.0.1:{second};"));
    running.signal(Signal::SIGHUP);
    eventually("the end of the first address", || connect(first).is_none().then_some(()));
    assert_eq!(connect(second).unwrap().ask().unwrap().pid, worker.pid);
    // A wildcard address takes the place of one of its own.
    with(&format!("listen 0.0.0.0:{second};"));
    running.signal(Signal::SIGHUP);
    eventually("the wildcard address", || std::net::TcpStream::connect(("127.0.0.2", second)).is_ok().then_some(()));
}

#[test]
fn nothing_is_refused_while_reloads_follow_each_other() {
    let running = Running::start("");
    let done = AtomicBool::new(false);
    let asked = [const { AtomicUsize::new(0) }; 2];
    std::thread::scope(|scope| {
        let _end = End(&done);
        for asked in &asked {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    connect(running.port).expect("a connection").ask().expect("an answer");
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for round in 0..20 {
            let before = asked.each_ref().map(|asked| asked.load(Ordering::SeqCst));
            running.configure(&format!("worker_processes {};", 1 + round % 3));
            running.signal(Signal::SIGHUP);
            // Two answers, of which the second was asked for after the signal.
            eventually("two answers for each client", || {
                asked.iter().zip(before).all(|(asked, before)| asked.load(Ordering::SeqCst) >= before + 2).then_some(())
            });
        }
    });
    assert!(!running.log().contains("[alert]"), "{}", running.log());
}

#[test]
fn another_account_needs_another_worker() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let running = Running::start("user nobody;");
    let mut client = running.connect().unwrap();
    let old = client.ask().unwrap().pid;
    running.configure("user www-data;");
    running.signal(Signal::SIGHUP);
    eventually("another worker", || (running.answer().pid != old).then_some(()));
    assert_eq!(client.ask().unwrap().pid, old, "the old one finishes what is in flight");
    drop(client);
    eventually("the end of the old worker", || (!alive(old)).then_some(()));
}
