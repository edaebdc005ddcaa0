//! Equal to NGINX, pick by pick: replays what `golden/record.sh` recorded from a real one.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Driver, Fleet, Nanos, Outcome, Report, ServerSpec, ServerState, Start, Tried};

const SYMBOLS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SECOND: Nanos = 1_000_000_000;
/// A trace records one client, so time within a phase does not matter; between phases every fail timeout of 1 s ends.
const PHASE: Nanos = 3 * SECOND;

/// One recorded upstream.
#[derive(Default)]
struct Block {
    name: String,
    servers: Vec<ServerSpec>,
    refused: Vec<usize>,
    phases: Vec<String>,
}

fn server(text: &str) -> ServerSpec {
    let mut words = text.split(' ');
    let mut server = ServerSpec::new(words.next().unwrap());
    for word in words {
        match word.split_once('=') {
            Some(("weight", n)) => server.weight = n.parse().unwrap(),
            Some(("max_fails", n)) => server.max_fails = n.parse().unwrap(),
            Some(("fail_timeout", n)) => {
                server.fail_timeout = n.strip_suffix('s').unwrap().parse::<Nanos>().unwrap() * SECOND;
            }
            _ if word == "backup" => server.backup = true,
            _ if word == "down" => server.down = true,
            _ => panic!("unknown parameter {word}"),
        }
    }
    server
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for line in text.lines() {
        let (kind, rest) = line.split_at(2);
        match (kind, blocks.last_mut()) {
            ("= ", _) => blocks.push(Block { name: rest.into(), ..Block::default() }),
            ("+ ", Some(block)) => block.servers.push(server(rest)),
            ("! ", Some(block)) => block.refused.push(rest.parse().unwrap()),
            ("> ", Some(block)) => block.phases.push(rest.into()),
            _ => panic!("unknown line {line}"),
        }
    }
    blocks
}

/// How many requests a trace holds.
fn requests(trace: &str) -> usize {
    let mut inside = false;
    let count = |b: u8| {
        inside = b == b'(' || inside && b != b')';
        b == b')' || !inside
    };
    trace.bytes().map(count).filter(|one| *one).count()
}

/// Replays a file on an algorithm. `key` gives the key of the i-th request.
fn replay(algorithm: &str, parameters: &[(&str, &str)], text: &str, key: impl Fn(usize) -> Vec<u8>) -> usize {
    let spec = Spec::new(find(algorithm).unwrap(), parameters).unwrap();
    let mut total = 0;
    for block in blocks(text) {
        let servers = block.servers.iter().map(|s| (s.clone(), Arc::new(ServerState::new()))).collect();
        let fleet = Arc::new(Fleet::new(&spec, servers).unwrap());
        let mut driver = Driver::new(fleet.clone(), 1, Start::default());
        let mut tried = Tried::default();
        for (phase, trace) in block.phases.iter().enumerate() {
            let now = 1_000 * SECOND + phase as Nanos * PHASE;
            let mut ours = String::new();
            for request in 0..requests(trace) {
                tried.clear();
                let mut attempts = String::new();
                for _ in 0..fleet.tries() {
                    let Ok(member) = driver.pick(now, &key(request), &mut tried) else {
                        attempts.push('-');
                        break;
                    };
                    attempts.push(char::from(SYMBOLS[member.0 as usize]));
                    let refused = block.refused.contains(&(member.0 as usize));
                    let outcome = if refused { Outcome::Failure } else { Outcome::Success };
                    driver.complete(now, member, &Report { outcome, ..Report::default() });
                    if !refused {
                        break;
                    }
                }
                match attempts.len() {
                    1 => ours.push_str(&attempts),
                    _ => write!(ours, "({attempts})").unwrap(),
                }
            }
            let same = ours.bytes().zip(trace.bytes()).take_while(|(a, b)| a == b).count();
            assert!(
                ours == *trace,
                "{algorithm} {}, phase {phase}, from byte {same}:\n ours  {:.80}\n NGINX {:.80}",
                block.name,
                &ours[same..],
                &trace[same..]
            );
            total += requests(trace);
        }
    }
    total
}

fn uri(i: usize) -> Vec<u8> {
    format!("/key/{i}").into_bytes()
}

/// The recorder's clients: two of three are IPv4.
fn client(i: usize) -> Vec<u8> {
    let i = i as u32;
    let address: IpAddr = if i % 3 < 2 {
        Ipv4Addr::from(i.wrapping_mul(2_654_435_761)).into()
    } else {
        let word = |j: u32| (i + 1).wrapping_mul(2_246_822_519).wrapping_add(j.wrapping_mul(3_266_489_917));
        Ipv6Addr::from((0..4).fold(0u128, |sum, j| sum << 32 | u128::from(word(j)))).into()
    };
    match address {
        IpAddr::V4(a) => a.octets().into(),
        IpAddr::V6(a) => a.octets().into(),
    }
}

#[test]
fn round_robin() {
    let count = replay("round_robin", &[], include_str!("golden/round_robin.txt"), |_| Vec::new());
    assert!(count > 2_500, "{count}");
}

#[test]
fn least_conn() {
    let count = replay("least_conn", &[], include_str!("golden/least_conn.txt"), |_| Vec::new());
    assert!(count > 2_500, "{count}");
}

#[test]
fn ip_hash() {
    assert_eq!(replay("ip_hash", &[], include_str!("golden/ip_hash.txt"), client), 9 * 1_000);
}

#[test]
fn hash() {
    assert_eq!(replay("hash", &[], include_str!("golden/hash.txt"), uri), 9 * 10_000);
    replay("hash", &[], include_str!("golden/hash_empty.txt"), |_| Vec::new());
}

#[test]
fn hash_consistent() {
    let consistent = [("consistent", "on")];
    assert_eq!(replay("hash", &consistent, include_str!("golden/hash_consistent.txt"), uri), 9 * 10_000);
    replay("hash", &consistent, include_str!("golden/hash_consistent_empty.txt"), |_| Vec::new());
}
