//! `USR2` and `WINCH`: another binary takes over.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::running::{End, Running, alive, connect, eventually, pid_in};

/// Starts a daemon and returns the id of its supervisor.
fn daemon(directives: &str) -> (Running, Pid) {
    let running = Running::daemon(directives);
    let pid = running.pid();
    (running, pid)
}

fn upgraded(running: &Running, old: Pid) -> Pid {
    kill(old, Signal::SIGUSR2).unwrap();
    eventually("the new binary", || pid_in(&running.path("fake.pid")).filter(|&pid| pid != old))
}

#[test]
fn changes_outlive_a_worker_a_reload_and_an_upgrade() {
    let (running, old) = daemon("worker_processes 1;");
    let first = running.answer();
    assert_eq!(first.changes, 0);
    for _ in 0..3 {
        running.connect().unwrap().say("change");
    }
    eventually("three changes", || (running.answer().changes == 3).then_some(()));
    // When the worker uses the second configuration, it has told its supervisor of the changes.
    for threads in [2, 3] {
        running.configure(&format!("daemon on; worker_processes {threads};"));
        kill(old, Signal::SIGHUP).unwrap();
        eventually("other threads", || (running.answer().threads == threads).then_some(()));
    }
    kill(first.pid, Signal::SIGKILL).unwrap();
    let second = eventually("another worker", || {
        let answer = running.connect()?.ask()?;
        (answer.pid != first.pid).then_some(answer)
    });
    assert_eq!(second.changes, 3);
    let new = upgraded(&running, old);
    let third = eventually("an answer of the new worker", || {
        let answer = running.connect()?.ask()?;
        (answer.pid != second.pid).then_some(answer)
    });
    assert_eq!(third.changes, 3);
    kill(old, Signal::SIGTERM).unwrap();
    eventually("the end of the old supervisor", || (!alive(old)).then_some(()));
    kill(third.pid, Signal::SIGKILL).unwrap();
    let fourth = eventually("a worker of the new binary", || {
        let answer = running.connect()?.ask()?;
        (answer.pid != third.pid).then_some(answer)
    });
    assert_eq!(fourth.changes, 3);
    assert_eq!(running.pid(), new);
}

#[test]
fn a_new_binary_takes_over_without_a_refused_connection() {
    let (running, old) = daemon("worker_processes 2;");
    let old_worker = running.answer().pid;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&done);
        let client = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                connect(running.port).expect("a connection").ask().expect("an answer");
            }
        });
        let new = upgraded(&running, old);
        assert_eq!(pid_in(&running.path("fake.pid.oldbin")), Some(old));
        eventually("an answer of the new worker", || (running.answer().pid != old_worker).then_some(()));
        kill(new, Signal::SIGUSR2).unwrap();
        running.wait_for_log("the changing binary signal is ignored");
        kill(old, Signal::SIGWINCH).unwrap();
        eventually("the end of the old worker", || (!alive(old_worker)).then_some(()));
        assert!(alive(old), "the old supervisor waits for what becomes of the new one");
        for _ in 0..20 {
            assert_ne!(running.answer().pid, old_worker);
        }
        kill(old, Signal::SIGQUIT).unwrap();
        eventually("the end of the old supervisor", || (!alive(old)).then_some(()));
        assert!(!running.path("fake.pid.oldbin").exists());
        assert_eq!(running.pid(), new);
        std::thread::sleep(Duration::from_millis(100));
        done.store(true, Ordering::SeqCst);
        client.join().unwrap();
        assert!(running.log().contains("using inherited sockets from \""), "{}", running.log());
        // Its turn comes now.
        let newest = upgraded(&running, new);
        assert!(alive(newest));
        kill(new, Signal::SIGTERM).unwrap();
        eventually("the end of the second supervisor", || (!alive(new)).then_some(()));
        running.answer();
    });
}

#[test]
fn the_old_binary_can_come_back() {
    let (running, old) = daemon("");
    let new = upgraded(&running, old);
    kill(old, Signal::SIGWINCH).unwrap();
    eventually("the new worker alone", || {
        let text = fs::read_to_string(format!("/proc/{old}/task/{old}/children")).unwrap();
        (text.split_whitespace().count() == 1).then_some(())
    });
    kill(old, Signal::SIGHUP).unwrap();
    kill(new, Signal::SIGTERM).unwrap();
    eventually("the pid file of the old one", || (pid_in(&running.path("fake.pid")) == Some(old)).then_some(()));
    running.answer();
    assert!(!running.path("fake.pid.oldbin").exists());
    assert!(alive(old));
}

#[test]
fn a_new_binary_that_fails_changes_nothing() {
    let (running, old) = daemon("");
    running.configure("bogus on;");
    kill(old, Signal::SIGUSR2).unwrap();
    running.wait_for_log("exited with code 1");
    eventually("the pid file", || (pid_in(&running.path("fake.pid")) == Some(old)).then_some(()));
    assert!(running.log().contains("new binary process "), "{}", running.log());
    running.answer();
}

#[test]
fn without_a_worker_connections_wait_for_one() {
    let (running, supervisor) = daemon("");
    let first = running.answer().pid;
    kill(supervisor, Signal::SIGWINCH).unwrap();
    eventually("the end of the worker", || (!alive(first)).then_some(()));
    let mut waiting = connect(running.port).expect("the sockets stay");
    kill(supervisor, Signal::SIGHUP).unwrap();
    assert_ne!(waiting.ask().unwrap().pid, first);
}

#[test]
fn a_window_change_of_a_terminal_is_no_order() {
    let running = Running::start("");
    let worker = running.answer().pid;
    running.signal(Signal::SIGWINCH);
    running.wait_for_log("signal 28 (SIGWINCH) received");
    assert_eq!(running.answer().pid, worker);
}
