//! A supervisor is killed: its worker goes on, and the next start takes the sockets over.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::running::{End, Running, alive, connect, eventually, pid_in, program};

/// Kills the supervisor; returns its worker.
fn orphaned(running: &mut Running) -> Pid {
    let worker = running.answer().pid;
    kill(running.pid(), Signal::SIGKILL).unwrap();
    assert_eq!(running.exit().signal(), Some(9));
    running.wait_for_log("the master process has died: this worker goes on");
    worker
}

/// Starts the program again, with the same configuration.
fn start_again(running: &mut Running) {
    running.child = Running::command(running.directory.path(), &program()).spawn().unwrap();
}

#[test]
fn the_next_start_takes_over_without_a_refused_connection() {
    let mut running = Running::start("worker_processes 2;");
    let takeover = running.path("fake.pid.takeover");
    assert_eq!(fs::metadata(&takeover).unwrap().permissions().mode() & 0o777, 0o600);
    let done = AtomicBool::new(false);
    let port = running.port;
    std::thread::scope(|scope| {
        let _end = End(&done);
        let client = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                connect(port).expect("a connection").ask().expect("an answer");
            }
        });
        // Twice: the program that takes over leaves an orphan that can be taken over.
        for _ in 0..2 {
            let mut kept = running.connect().unwrap();
            let orphan = orphaned(&mut running);
            assert_eq!(running.answer().pid, orphan);
            start_again(&mut running);
            eventually("an answer of the new worker", || (running.answer().pid != orphan).then_some(()));
            running.wait_for_log(&format!("using the sockets of worker process {orphan}, whose master process died"));
            assert!(kept.ask().is_some(), "what the orphan had accepted is finished");
            drop(kept);
            eventually("the end of the orphan", || (!alive(orphan)).then_some(()));
        }
        done.store(true, Ordering::SeqCst);
        client.join().unwrap();
    });
    running.signal(Signal::SIGQUIT);
    assert!(running.exit().success());
    assert!(!takeover.exists());
}

#[test]
fn a_start_that_fails_leaves_the_orphan_as_it_was() {
    let mut running = Running::start("");
    let orphan = orphaned(&mut running);
    running.configure("daemon off; user no_such_account_here;");
    start_again(&mut running);
    assert!(!running.exit().success());
    assert_eq!(running.answer().pid, orphan);
    running.configure("daemon off;");
    start_again(&mut running);
    eventually("an answer of the new worker", || (running.answer().pid != orphan).then_some(()));
}

#[test]
fn a_start_whose_worker_fails_leaves_the_orphan_as_it_was() {
    let mut running = Running::start("");
    let orphan = orphaned(&mut running);
    // The data plane refuses this.
    running.configure("daemon off; worker_processes 13;");
    start_again(&mut running);
    assert!(!running.exit().success());
    assert!(running.path("fake.pid.takeover").exists());
    assert_eq!(running.answer().pid, orphan);
    running.configure("daemon off;");
    start_again(&mut running);
    eventually("an answer of the new worker", || (running.answer().pid != orphan).then_some(()));
    eventually("the end of the orphan", || (!alive(orphan)).then_some(()));
}

#[test]
fn in_an_upgrade_no_worker_outlives_its_supervisor_beside_the_other() {
    // The new one is killed: the old one goes on alone.
    let mut running = Running::start("");
    let (old, old_worker) = (running.pid(), running.answer().pid);
    let upgrade = |running: &Running, old: Pid, old_worker: Pid| {
        kill(old, Signal::SIGUSR2).unwrap();
        let new = eventually("the new pid file", || pid_in(&running.path("fake.pid")).filter(|pid| *pid != old));
        (new, eventually("its worker", || Some(running.answer().pid).filter(|pid| *pid != old_worker)))
    };
    let (new, new_worker) = upgrade(&running, old, old_worker);
    kill(new, Signal::SIGKILL).unwrap();
    eventually("the end of the new worker", || (!alive(new_worker)).then_some(()));
    eventually("the old pid file", || pid_in(&running.path("fake.pid")).filter(|pid| *pid == old));
    assert_eq!(running.answer().pid, old_worker);
    assert!(running.path("fake.pid.takeover").exists());
    // The old one is killed: its worker finishes what it has.
    let (new, new_worker) = upgrade(&running, old, old_worker);
    // A signal without a meaning: when it is read, the old one has told its worker of the new one.
    kill(old, Signal::SIGWINCH).unwrap();
    running.wait_for_log("signal 28 (SIGWINCH) received");
    kill(old, Signal::SIGKILL).unwrap();
    running.exit();
    eventually("the end of the old worker", || (!alive(old_worker)).then_some(()));
    assert_eq!(running.answer().pid, new_worker);
    kill(new, Signal::SIGTERM).unwrap();
    eventually("the end of the new one", || (!alive(new)).then_some(()));
}

#[test]
fn beside_a_supervisor_that_lives_the_port_is_in_use() {
    let running = Running::start("");
    let worker = running.answer().pid;
    let second = Running::command(running.directory.path(), &program()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("still could not bind()"));
    assert_eq!(running.answer().pid, worker);
}

#[test]
fn an_orphan_obeys_signals() {
    let mut running = Running::start("");
    let orphan = orphaned(&mut running);
    kill(orphan, Signal::SIGQUIT).unwrap();
    eventually("the end of the orphan", || (!alive(orphan)).then_some(()));
    fs::remove_file(running.path("fake.pid")).unwrap();
}

#[test]
fn without_a_pid_file_a_worker_ends_with_its_supervisor() {
    let mut running = Running::start("");
    running.configure_pid("off");
    running.signal(Signal::SIGHUP);
    eventually("the end of the pid file", || (!running.path("fake.pid").exists()).then_some(()));
    eventually("the end of the takeover socket", || (!running.path("fake.pid.takeover").exists()).then_some(()));
    let mut client = running.connect().unwrap();
    let worker = client.ask().unwrap().pid;
    let supervisor = Pid::from_raw(i32::try_from(running.child.id()).unwrap());
    kill(supervisor, Signal::SIGKILL).unwrap();
    assert_eq!(running.exit().signal(), Some(9));
    running.wait_for_log("the master process has died, shutting down");
    assert!(client.ask().is_some());
    drop(client);
    eventually("the end of the worker", || (!alive(worker)).then_some(()));
}

#[test]
fn the_takeover_socket_follows_the_pid_file() {
    let mut running = Running::start("");
    running.answer();
    running.configure_pid("other.pid");
    running.signal(Signal::SIGHUP);
    eventually("the other pid file", || pid_in(&running.path("other.pid")));
    eventually("the takeover socket", || running.path("other.pid.takeover").exists().then_some(()));
    assert!(!running.path("fake.pid.takeover").exists());
    kill(pid_in(&running.path("other.pid")).unwrap(), Signal::SIGTERM).unwrap();
    assert!(running.exit().success());
    assert!(!running.path("other.pid.takeover").exists());
}
