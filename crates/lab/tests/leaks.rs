//! Targets that were stopped leave no thread, socket or memory. One test in a process of its own, since it counts what
//! the whole process has.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use balanza_lab::target::{Target, Workload};
use common::{Client, spawn};

fn count(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// Bytes of memory that this process has in the machine.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// How many threads there are, once there are no more than `expected` or half a minute has passed: the kernel takes a
/// joined thread out of /proc a moment after its end.
fn threads_left(expected: usize) -> usize {
    let end = Instant::now() + Duration::from_secs(30);
    while count("/proc/self/task") > expected && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    count("/proc/self/task")
}

fn round() {
    for (workload, threads) in
        [(Workload::Fixed, 1), (Workload::Delay(Duration::from_secs(60)), 2), (Workload::Matrix { size: 20 }, 2)]
    {
        let handle = spawn(Target { workload, threads, body_size: Some(1 << 16), ..Target::default() });
        let mut clients: Vec<Client> = (0..4).map(|_| Client::new(handle.address())).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        if !matches!(workload, Workload::Delay(_)) {
            for client in &mut clients {
                assert_eq!(client.receive().status, 200);
            }
        }
        if threads == 1 {
            drop(handle);
        } else {
            handle.stop();
        }
    }
}

#[test]
fn stopped_targets_leave_nothing() {
    let threads = count("/proc/self/task");
    for _ in 0..5 {
        round();
    }
    assert_eq!(threads_left(threads), threads, "threads");
    let (files, memory) = (count("/proc/self/fd"), resident());
    for _ in 0..100 {
        round();
    }
    assert_eq!(threads_left(threads), threads, "threads");
    assert_eq!(count("/proc/self/fd"), files, "descriptors");
    assert!(resident() < memory + (4 << 20), "{memory} bytes grew to {}", resident());
}
