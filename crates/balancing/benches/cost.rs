//! Nanoseconds of a pick and its completion for fleets of 3 to 100,000 servers, one thread:
//! `cargo bench -p balanza-balancing [name]`. 64 requests are in flight. Of many short rounds the
//! least counts, so that other work on the machine does not; every server is visited once before.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Cell, Driver, Fleet, Member, Outcome, Report, ServerSpec, Start, Tried};

const SIZES: [u32; 6] = [3, 10, 100, 1_000, 10_000, 100_000];
const IN_FLIGHT: usize = 64;
const ROUNDS: u32 = 200;
const PICKS: u32 = 10_000;

fn measure(algorithm: &str, parameters: &[(&str, &str)], n: u32, weights: &[u32]) -> f64 {
    let spec = Spec::new(find(algorithm).expect("known"), parameters).expect("valid");
    let server = |i: u32| {
        let weight = weights[i as usize % weights.len()];
        ServerSpec { weight, ..ServerSpec::new(&format!("10.{}.{}.{}:80", i >> 16, i >> 8 & 255, i & 255)) }
    };
    let servers = (0..n).map(|i| (server(i), Arc::new(Cell::new()))).collect();
    let mut driver = Driver::new(Arc::new(Fleet::new(&spec, servers).expect("servers")), 1, Start::default());
    let mut tried = Tried::default();
    let mut flying = [None; IN_FLIGHT];
    let mut best = f64::INFINITY;
    let mut key = *b"/images/0000.png";
    for round in 0..ROUNDS {
        let begin = Instant::now();
        for i in round * PICKS..(round + 1) * PICKS {
            let now = u64::from(i) * 20_000;
            key[8..12].copy_from_slice(&i.to_le_bytes());
            tried.clear();
            let member = driver.pick(now, black_box(&key), &mut tried).expect("someone");
            let old: Option<Member> = flying[i as usize % IN_FLIGHT].replace(member);
            if let Some(old) = old {
                let times = Some(1_000_000 + u64::from(old.0 % 7) * 10_000_000);
                let report =
                    Report { outcome: Outcome::Success, header_time: times, last_byte_time: times, bytes: 200 };
                black_box(driver.complete(now, old, &report));
            }
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(PICKS));
    }
    best
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a [u32]);
    let cases: [Case<'_>; 12] = [
        ("round_robin", "round_robin", &[], &[1]),
        ("round_robin, weights", "round_robin", &[], &[5, 1, 2, 1]),
        ("least_conn", "least_conn", &[], &[1]),
        ("least_conn, weights", "least_conn", &[], &[5, 1, 2, 1]),
        ("ip_hash", "ip_hash", &[], &[1]),
        ("hash", "hash", &[], &[1]),
        ("hash, weights", "hash", &[], &[5, 1, 2, 1]),
        ("hash consistent", "hash", &[("consistent", "on")], &[1]),
        ("random, weights", "random", &[], &[5, 1, 2, 1]),
        ("two_choices", "two_choices", &[], &[1]),
        ("two_choices header", "two_choices", &[("by", "header")], &[1]),
        ("least_time last_byte", "least_time", &[("by", "last_byte")], &[1]),
    ];
    println!("{:24}{}", "ns, n =", SIZES.map(|n| format!("{n:>8}")).concat());
    for (label, algorithm, parameters, weights) in cases {
        if wanted.is_empty() || wanted.iter().any(|w| label.contains(w.as_str())) {
            let row = SIZES.map(|n| format!("{:8.0}", measure(algorithm, parameters, n, weights)));
            println!("{label:24}{}", row.concat());
        }
    }
}
