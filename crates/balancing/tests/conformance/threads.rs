//! Several threads on shared states: limits are exact, books are right, memberships change under traffic.

#![allow(clippy::disallowed_methods, reason = "its threads wait for each other")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use balanza_balancing::registry::Spec;
use balanza_balancing::{Driver, Fleet, Group, Member, ServerSpec, ServerState, Start, Tried};

use crate::subject::{MS, SECOND, Subject, Verdict, every_form, key, refuses, require, servers, success};

const THREADS: usize = 4;

/// What four threads hold together, counted beside the library.
struct Held {
    servers: Vec<AtomicU32>,
    all: AtomicU32,
    /// The most that any server held above its limit, and all of them above the group's.
    above: AtomicU32,
    refused: AtomicU32,
}

fn hammer(subject: &Subject, fleet: &Arc<Fleet>, group: u32) -> Held {
    let n = fleet.len();
    let held = Held {
        servers: (0..n).map(|_| AtomicU32::new(0)).collect(),
        all: AtomicU32::new(0),
        above: AtomicU32::new(0),
        refused: AtomicU32::new(0),
    };
    std::thread::scope(|scope| {
        for worker in 0..THREADS {
            let (fleet, held) = (fleet.clone(), &held);
            scope.spawn(move || {
                let mut driver = Driver::new(fleet, 7, Start { worker, workers: THREADS });
                let mut mine: VecDeque<Member> = VecDeque::new();
                let give_back = |driver: &mut Driver, mine: &mut VecDeque<Member>| {
                    if let Some(member) = mine.pop_front() {
                        held.servers[member.0 as usize].fetch_sub(1, SeqCst);
                        held.all.fetch_sub(1, SeqCst);
                        driver.complete(SECOND, member, &success(MS));
                    }
                };
                for i in 0..1_500u64 {
                    let mut tried = Tried::default();
                    // Every fifth request is bound for a server.
                    let bound = Member((i as usize * 7 % n) as u32);
                    let found = if i % 5 == 0 {
                        driver.claim(SECOND, bound, &mut tried, true).map(|()| bound).ok()
                    } else {
                        (subject.pick)(&mut driver, SECOND, &key(i), &mut tried).ok()
                    };
                    if let Some(member) = found {
                        let of_server = held.servers[member.0 as usize].fetch_add(1, SeqCst) + 1;
                        let of_all = held.all.fetch_add(1, SeqCst) + 1;
                        let limit = 1 + member.0 % 2;
                        if of_server > limit || of_all > group {
                            held.above.fetch_add(1, Relaxed);
                        }
                        mine.push_back(member);
                    } else {
                        held.refused.fetch_add(1, Relaxed);
                    }
                    if mine.len() > 1 + i as usize % 14 {
                        give_back(&mut driver, &mut mine);
                    }
                }
                while !mine.is_empty() {
                    give_back(&mut driver, &mut mine);
                }
            });
        }
    });
    held
}

/// `max_conns` of servers and of groups hold exactly, and what is taken is given back.
pub fn check_limits(subject: &Subject, spec: &Spec) -> Verdict {
    for (n, group) in [(3, u32::MAX), (40, u32::MAX), (40, 9)] {
        let all = servers(n, |i, server| server.max_conns = 1 + i as u32 % 2);
        let groups = [Group { priority: 0, max_conns: group }];
        let fleet = subject.fleet_with_groups(spec, &all, if group == u32::MAX { &[] } else { &groups });
        let held = hammer(subject, &fleet, group);
        let above = held.above.load(Relaxed);
        require!(above == 0, "{n} servers, group of {group}: {above} times above a limit");
        let left: u32 = all.iter().map(|(_, state)| state.in_flight()).sum();
        require!(left == 0, "{n} servers: {left} in flight in the end");
        require!(n > 3 && group > 9 || held.refused.load(Relaxed) > 0, "{n} servers: no limit was reached");
        if group == 9 {
            // Nothing of the group is left taken either.
            let mut driver = subject.driver(&fleet, 1);
            let room = (0..9).filter(|i| (subject.pick)(&mut driver, SECOND, &key(*i), &mut Tried::default()).is_ok());
            let room = room.count();
            require!(room == 9 || refuses(spec), "the group has room for {room} of 9");
        }
    }
    Ok(())
}

#[test]
fn limits_hold_across_threads() {
    every_form(check_limits);
}

/// A fleet after another takes over the states of those that stay, while threads pick and complete.
pub fn check_memberships(subject: &Subject, spec: &Spec) -> Verdict {
    let pool: Vec<(ServerSpec, Arc<ServerState>)> = servers(50, |i, server| server.weight = 1 + i as u32 % 3);
    let member_of = |generation: usize, s: usize| s == 0 || !(s * 7 + generation * 11).is_multiple_of(3);
    let build = |generation: usize| {
        let size = if generation.is_multiple_of(2) { 50 } else { 12 };
        let of = (0..size).filter(|s| member_of(generation, *s)).map(|s| pool[s].clone()).collect::<Vec<_>>();
        subject.fleet(spec, &of)
    };
    let current = Mutex::new((0usize, build(0)));
    let (stop, picks, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (current, stop, picks, refused) = (&current, &stop, &picks, &refused);
            scope.spawn(move || {
                let mut generations: VecDeque<(usize, Driver)> = VecDeque::new();
                let mut flying: VecDeque<(usize, Member)> = VecDeque::new();
                let mut i = 0u64;
                while !stop.load(Relaxed) {
                    let (number, fleet) = current.lock().unwrap().clone();
                    if generations.back().is_none_or(|(last, _)| *last != number) {
                        let driver = Driver::new(fleet, number as u64, Start { worker, workers: 3 });
                        generations.push_back((number, driver));
                    }
                    for _ in 0..20 {
                        i += 1;
                        let (number, driver) = generations.back_mut().unwrap();
                        match (subject.pick)(driver, SECOND + i * MS, &key(i % 300), &mut Tried::default()) {
                            Ok(member) => flying.push_back((*number, member)),
                            Err(_) => _ = refused.fetch_add(1, Relaxed),
                        }
                        picks.fetch_add(1, Relaxed);
                        if flying.len() > 60 {
                            let (of, member) = flying.pop_front().unwrap();
                            let (_, driver) = generations.iter_mut().find(|(number, _)| *number == of).unwrap();
                            driver.complete(SECOND + i * MS, member, &success(MS * (1 + i % 9)));
                        }
                    }
                    let oldest = flying.front().map_or(usize::MAX, |(of, _)| *of);
                    while generations.len() > 1 && generations[0].0 < oldest {
                        generations.pop_front();
                    }
                }
                for (of, member) in flying {
                    let (_, driver) = generations.iter_mut().find(|(number, _)| *number == of).unwrap();
                    driver.complete(SECOND + i * MS, member, &success(MS));
                }
            });
        }
        for generation in 1..15 {
            let before = picks.load(Relaxed);
            let fleet = build(generation);
            fleet.remember(&current.lock().unwrap().1);
            *current.lock().unwrap() = (generation, fleet);
            while picks.load(Relaxed) < before + 300 {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        }
        stop.store(true, Relaxed);
    });
    let left: u32 = pool.iter().map(|(_, state)| state.in_flight()).sum();
    require!(left == 0, "{left} in flight in the end");
    let refused = refused.load(Relaxed);
    require!(refused == 0 || refuses(spec), "{refused} requests found no server");
    let taken: u64 = pool.iter().map(|(_, state)| state.requests()).sum();
    let picks = picks.load(Relaxed) - refused;
    require!(taken == picks, "{taken} requests counted of {picks}");
    // A client that has stayed since the beginning is still known.
    require!(pool[0].1.requests() > 0, "the server that always stays got nothing");
    Ok(())
}

#[test]
fn memberships_change_under_traffic() {
    every_form(check_memberships);
}
