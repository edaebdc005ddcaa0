//! Start, stop, logs, and workers that die.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::running::{Running, alive, connect, eventually, pid_in};

#[test]
fn the_pid_file_lives_as_long_as_the_supervisor() {
    // The supervisor kills a worker that has not ended after a second. On a busy machine that can happen once.
    assert!((0..3).any(|_| lives_and_stops_in_order()), "the worker is killed");
}

/// Whether the worker has ended by itself; if it was killed, this checks that it had a second.
fn lives_and_stops_in_order() -> bool {
    let mut running = Running::start("worker_processes 2;");
    assert_eq!(running.pid().as_raw(), i32::try_from(running.child.id()).unwrap());
    let answer = running.answer();
    assert_eq!((answer.threads, answer.sockets), (2, 2));
    assert_ne!(answer.pid, running.pid(), "the worker is another process");
    let begin = Instant::now();
    running.signal(Signal::SIGTERM);
    assert!(running.exit().success());
    let took = begin.elapsed();
    assert!(!running.path("fake.pid").exists());
    assert!(!alive(answer.pid));
    let log = running.log();
    let pid = running.child.id();
    assert!(log.contains(&format!("[notice] {pid}#{pid}: signal 15 (SIGTERM) received from ")), "{log}");
    assert!(log.contains(", exiting\n"), "{log}");
    assert!(log.ends_with(&format!("[notice] {pid}#{pid}: exit\n")), "{log}");
    let ended = log.contains(&format!("[notice] {pid}#{pid}: worker process {} exited with code 0\n", answer.pid));
    assert!(ended || took >= Duration::from_secs(1), "{log}");
    ended
}

#[test]
fn titles_are_those_of_nginx() {
    let running = Running::start("");
    let command = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let name = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let title = command(running.pid());
    assert!(title.starts_with("balanza: master process ") && title.ends_with("test.conf\0"), "{title}");
    assert_eq!(command(running.answer().pid), "balanza: worker process\0");
    assert_eq!(name(running.pid()), "balanza\n");
    assert_eq!(name(running.answer().pid), "balanza\n");
}

#[test]
fn requests_during_the_start_wait_until_it_serves() {
    let mut running = Running::spawn("daemon off;");
    let pid = Pid::from_raw(i32::try_from(running.child.id()).unwrap());
    // This does not sleep, because the start takes only a few milliseconds.
    while !fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().starts_with("balanza: master process ") {
        assert_eq!(running.child.try_wait().unwrap(), None);
    }
    for request in [Signal::SIGHUP, Signal::SIGUSR1] {
        kill(pid, request).unwrap();
    }
    running.wait_for_log("reopening logs");
    running.wait_for_log(": reconfiguring\n");
    assert_eq!(running.child.try_wait().unwrap(), None);
    running.answer();
}

#[test]
fn interrupt_stops_at_once_and_quit_waits() {
    let mut running = Running::start("");
    let mut client = running.connect().unwrap();
    client.ask().unwrap();
    running.signal(Signal::SIGQUIT);
    running.wait_for_log("gracefully shutting down");
    eventually("refused connections", || connect(running.port).is_none().then_some(()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(client.ask().is_some(), "what is in flight goes on");
    assert!(running.child.try_wait().unwrap().is_none());
    drop(client);
    assert!(running.exit().success());

    let mut running = Running::start("");
    let mut client = running.connect().unwrap();
    client.ask().unwrap();
    running.signal(Signal::SIGINT);
    assert!(running.exit().success());
    assert!(client.ask().is_none());
}

#[test]
fn a_shutdown_timeout_ends_a_graceful_shutdown() {
    let mut running = Running::start("worker_shutdown_timeout 300ms;");
    let mut client = running.connect().unwrap();
    client.ask().unwrap();
    let start = Instant::now();
    running.signal(Signal::SIGQUIT);
    assert!(running.exit().success());
    assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
}

#[test]
fn a_killed_worker_is_replaced() {
    let running = Running::daemon("");
    let first = running.answer().pid;
    kill(first, Signal::SIGKILL).unwrap();
    let second = eventually("another worker", || {
        let pid = running.connect()?.ask()?.pid;
        (pid != first).then_some(pid)
    });
    assert!(alive(second));
    let supervisor = running.pid();
    let line = format!("[alert] {supervisor}#{supervisor}: worker process {first} exited on signal 9\n");
    assert!(running.log().contains(&line), "{}", running.log());
    running.connect().unwrap().say("abort");
    running.wait_for_log(&format!("worker process {second} exited on signal 6"));
    let third = running.answer().pid;
    assert!(![first, second].contains(&third));
}

/// The kernel kills a worker in this way when memory runs out. The supervisor may not know yet that the worker serves.
#[test]
fn a_worker_that_is_killed_at_its_start_is_replaced() {
    let running = Running::spawn("daemon off;");
    let first = eventually("a worker", || {
        let log = running.log();
        let (_, rest) = log.split_once("start worker process ")?;
        rest.split_once('\n')?.0.parse().ok()
    });
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    let second = eventually("another worker", || running.connect()?.ask()).pid;
    assert_ne!(second.as_raw(), first);
    assert!(running.log().contains(&format!("worker process {first} exited on signal 9\n")), "{}", running.log());
}

#[test]
fn a_worker_that_gives_up_is_not_replaced_until_a_reload() {
    let running = Running::daemon("");
    let first = running.answer().pid;
    running.connect().unwrap().say("give up");
    let supervisor = running.pid();
    running.wait_for_log(&format!(
        "[alert] {supervisor}#{supervisor}: worker process {first} exited with fatal code 2 and cannot be respawned"
    ));
    std::thread::sleep(Duration::from_millis(300));
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
    assert_eq!(children, "");
    running.signal(Signal::SIGHUP);
    assert_ne!(running.answer().pid, first);
}

#[test]
fn connections_wait_while_a_worker_is_replaced() {
    let running = Running::start("");
    let first = running.answer().pid;
    kill(first, Signal::SIGKILL).unwrap();
    // The supervisor holds the socket, so nothing is refused; only what the dead worker had accepted is lost.
    for _ in 0..50 {
        assert!(connect(running.port).is_some());
    }
    assert_ne!(running.answer().pid, first);
}

#[test]
fn logs_are_reopened() {
    let running = Running::start("");
    running.answer();
    fs::rename(running.path("error.log"), running.path("old.log")).unwrap();
    running.signal(Signal::SIGUSR1);
    eventually("a new log", || {
        running.answer();
        running.log().contains("request who").then_some(())
    });
    let old = fs::read_to_string(running.path("old.log")).unwrap();
    assert!(old.contains(", reopening logs\n") && old.contains(": reopening logs\n"), "{old}");
}

#[test]
fn a_port_in_use_is_tried_five_times() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut running = Running::spawn("daemon off;");
    running.signal(Signal::SIGTERM);
    running.exit();
    let text = fs::read_to_string(running.path("test.conf")).unwrap();
    fs::write(running.path("test.conf"), text.replace(&format!(":{}", running.port), &format!(":{port}"))).unwrap();
    let start = Instant::now();
    let mut child = Running::command(running.directory.path(), &crate::running::program()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let first = format!("balanza: [emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use) in /");
    assert!(errors.starts_with(&first) && errors.matches("bind() to").count() == 1, "said once: {errors}");
    assert!(errors.contains(".conf:") && errors.contains("\nbalanza: [emerg] still could not bind()"), "{errors}");
    assert!(!running.path("fake.pid").exists());
}

#[test]
fn a_daemon_is_left_behind_when_it_serves() {
    let running = Running::daemon("");
    // This does not wait, because the command returns when the daemon serves.
    let pid = pid_in(&running.path("fake.pid")).unwrap();
    let answer = connect(running.port).unwrap().ask().unwrap();
    assert_ne!(pid.as_raw(), i32::try_from(running.child.id()).unwrap());
    assert_eq!(nix::unistd::getsid(Some(pid)).unwrap(), pid);
    for process in [pid, answer.pid] {
        for (number, target) in [(0, "/dev/null"), (1, "/dev/null"), (2, running.path("error.log").to_str().unwrap())] {
            assert_eq!(fs::read_link(format!("/proc/{process}/fd/{number}")).unwrap().to_str(), Some(target));
        }
    }
    running.signal(Signal::SIGQUIT);
    eventually("the end", || (!alive(pid) && !running.path("fake.pid").exists()).then_some(()));
}

#[test]
fn a_daemon_that_cannot_start_says_so() {
    for directives in ["daemon on; bogus on;", "daemon on; pid /nonexistent/x.pid;", "daemon on; worker_processes 13;"]
    {
        let mut running = Running::spawn(directives);
        assert_eq!(running.exit().code(), Some(1), "{directives}");
        let mut errors = String::new();
        running.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(errors.starts_with("balanza: [emerg] "), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(!running.path("fake.pid").exists());
    }
}

#[test]
fn without_a_master_there_is_one_process() {
    let mut running = Running::start("master_process off;");
    assert_eq!(running.answer().pid, running.pid());
    running.configure("daemon off; master_process off; worker_processes 3;");
    running.signal(Signal::SIGHUP);
    eventually("three threads", || (running.answer().threads == 3).then_some(()));
    running.signal(Signal::SIGQUIT);
    assert!(running.exit().success());
    assert!(!running.path("fake.pid").exists());
}

#[test]
fn the_worker_of_root_is_someone_else() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let running = Running::start("user nobody;");
    let status = fs::read_to_string(format!("/proc/{}/status", running.answer().pid)).unwrap();
    let uid = nix::unistd::User::from_name("nobody").unwrap().unwrap().uid;
    assert!(status.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000\n"), "{status}");
}

#[test]
fn the_limit_of_files_is_for_each_thread() {
    let limits = |running: &Running| {
        let text = fs::read_to_string(format!("/proc/{}/limits", running.answer().pid)).unwrap();
        let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap().to_string();
        let mut words = line.split_whitespace().skip(3).map(|word| word.parse::<u64>().unwrap());
        (words.next().unwrap(), words.next().unwrap())
    };
    let free = limits(&Running::start("worker_processes 2;"));
    assert_eq!(free.0, free.1);
    assert_eq!(limits(&Running::start("worker_processes 3; worker_rlimit_nofile 300;")), (900, 900));
}
