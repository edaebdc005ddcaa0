//! The whole program with its data plane.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Balancer, Client, Place, answering, eventually, free_port};

#[test]
fn it_serves_until_it_is_told_to_stop() {
    let mut balancer = Balancer::start();
    assert_eq!(balancer.get().unwrap(), "one");
    assert_eq!(balancer.place.pid(), Some(Pid::from_raw(i32::try_from(balancer.child.id()).unwrap())));
    assert!(balancer.place.run(&["-s", "stop"]).status.success());
    assert!(balancer.exit().success());
    assert!(!balancer.place.path("test.pid").exists());
    assert!(Client::connect(balancer.port).is_none());
}

#[test]
fn a_reload_keeps_connections_and_a_bad_one_changes_nothing() {
    let balancer = Balancer::start();
    let worker = balancer.worker();
    let mut client = Client::connect(balancer.port).unwrap();
    assert_eq!(client.get("/").unwrap(), "one");
    balancer.configure("two");
    assert!(balancer.place.run(&["-s", "reload"]).status.success());
    eventually("the new answer", || (balancer.get()? == "two").then_some(()));
    // Its thread may be another one, which hears of it a moment later.
    eventually("the new answer on the same connection", || (client.get("/")? == "two").then_some(()));
    let text = balancer.place.read("nginx.conf");
    balancer.place.write("nginx.conf", &text.replace("return", "retrun"));
    // A reload that is asked for by -s checks the configuration before it signals anybody.
    assert_eq!(balancer.place.run(&["-s", "reload"]).status.code(), Some(1));
    balancer.signal(Signal::SIGHUP);
    let file = balancer.place.path("nginx.conf").display().to_string();
    eventually("the reason", || {
        let line = format!(": unknown directive \"retrun\" in {file}:5\n");
        balancer.place.read("error.log").contains(&line).then_some(())
    });
    assert_eq!(client.get("/").unwrap(), "two");
    assert_eq!(balancer.worker(), worker);
}

#[test]
fn a_killed_worker_is_replaced() {
    let balancer = Balancer::start();
    let worker = balancer.worker();
    // A worker that dies before the supervisor has heard that it is ready counts as one that cannot start.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    kill(worker, Signal::SIGKILL).unwrap();
    assert_eq!(eventually("an answer", || balancer.get()), "one");
    assert_ne!(balancer.worker(), worker);
    let log = balancer.place.read("error.log");
    let supervisor = balancer.child.id();
    let line = format!("[alert] {supervisor}#{supervisor}: worker process {worker} exited on signal 9\n");
    assert!(log.contains(&line), "{log}");
}

#[test]
fn logs_can_be_rotated() {
    let balancer = Balancer::start();
    let mut client = Client::connect(balancer.port).unwrap();
    client.get("/before").unwrap();
    eventually("a line", || balancer.place.read("access.log").contains("GET /before ").then_some(()));
    fs::rename(balancer.place.path("access.log"), balancer.place.path("access.log.1")).unwrap();
    assert!(balancer.place.run(&["-s", "reopen"]).status.success());
    eventually("a new log", || balancer.place.path("access.log").exists().then_some(()));
    eventually("a line in it", || {
        client.get("/after")?;
        balancer.place.read("access.log").contains("GET /after ").then_some(())
    });
    client.get("/last").unwrap();
    eventually("the last line", || balancer.place.read("access.log").contains("GET /last ").then_some(()));
    assert!(!balancer.place.read("access.log.1").contains("GET /last "));
}

#[test]
fn a_graceful_stop_ends_idle_connections() {
    let mut balancer = Balancer::start();
    let mut client = Client::connect(balancer.port).unwrap();
    client.get("/").unwrap();
    assert!(balancer.place.run(&["-s", "quit"]).status.success());
    assert!(balancer.exit().success());
    assert!(client.get("/").is_none());
}

#[test]
fn a_new_binary_takes_over_without_a_failed_request() {
    let mut balancer = Balancer::start();
    let old = balancer.place.pid().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while !done.load(Ordering::SeqCst) {
                        assert!(balancer.get().is_some(), "after {answers} answers");
                        answers += 1;
                    }
                })
            })
            .collect();
        balancer.configure("two");
        kill(old, Signal::SIGUSR2).unwrap();
        eventually("the new binary", || balancer.place.pid().filter(|&pid| pid != old));
        eventually("its answer", || (balancer.get()? == "two").then_some(()));
        assert_eq!(balancer.place.read("test.pid.oldbin").trim(), old.to_string());
        kill(old, Signal::SIGQUIT).unwrap();
        eventually("only new answers", || (0..30).all(|_| balancer.get().as_deref() == Some("two")).then_some(()));
        std::thread::sleep(Duration::from_millis(200));
        done.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().unwrap();
        }
    });
    assert!(balancer.exit().success());
    assert!(!balancer.place.path("test.pid.oldbin").exists());
    assert_eq!(balancer.get().unwrap(), "two");
}

#[test]
fn a_daemon_serves_when_its_command_returns() {
    let port = free_port();
    let place = Place::new(&answering(port, "daemon"));
    let output = place.run(&[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(Client::connect(port).unwrap().get("/").unwrap(), "daemon");
    let pid = place.pid().unwrap();
    assert!(place.run(&["-s", "quit"]).status.success());
    eventually("the end", || (!place.path("test.pid").exists()).then_some(()));
    eventually("no process", || kill(pid, None).is_err().then_some(()));
}

#[test]
fn a_port_in_use_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let place = Place::new(&answering(port, "x"));
    for directives in ["daemon off;", "daemon on;"] {
        let output = place.run(&["-g", directives]);
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8(output.stderr).unwrap();
        let first = format!("balanza: [emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use) in /");
        assert!(errors.starts_with(&first) && errors.matches("bind() to").count() == 1, "said once: {errors}");
        assert!(errors.contains(".conf:") && errors.contains("\nbalanza: [emerg] still could not bind()"), "{errors}");
        assert!(!place.path("test.pid").exists());
    }
}

#[test]
fn one_process_is_enough_for_debugging() {
    let port = free_port();
    let place = Place::new(&answering(port, "alone"));
    let mut child = place.command(&["-g", "daemon off; master_process off;"]).spawn().unwrap();
    assert_eq!(eventually("an answer", || Client::connect(port)?.get("/")), "alone");
    assert!(place.run(&["-s", "stop"]).status.success());
    assert!(child.wait().unwrap().success());
}
