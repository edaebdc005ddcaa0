//! Shadows: they change nothing, and what they count is what the algorithm would have chosen.

use std::collections::VecDeque;
use std::sync::Arc;

use balanza_balancing::registry::{Key, Share, Spec, entries, find};
use balanza_balancing::{
    Choice, Decided, Driver, Fleet, Group, Member, Nanos, Outcome, Report, ServerSpec, ServerState, Shadow,
    ShadowDriver, Start, Tried,
};

#[path = "conformance/forms.rs"]
mod forms;

use forms::forms;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MILLISECOND;
/// Later than any fail timeout after the beginning of time.
const BEGIN: Nanos = 1_000 * SECOND;

fn spec(text: &str) -> Spec {
    let mut words = text.split(' ');
    let entry = find(words.next().unwrap()).unwrap();
    let parameters: Vec<(&str, &str)> = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
    Spec::new(entry, &parameters).unwrap()
}

/// Pseudo-random numbers of a test.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What happens to the servers while requests come.
#[derive(Clone, Copy, PartialEq)]
enum Events {
    /// All are up, requests take their time, some are retried and some belong to a server.
    Load,
    /// The same, and servers fail, drain, report loads, start slowly and have limits.
    All,
    /// Nothing is in flight when the next request comes.
    None,
}

struct Run {
    chosen: Vec<Option<Member>>,
    shadows: Vec<Arc<Shadow>>,
    /// What each shadow said, request by request.
    said: Vec<Vec<Choice>>,
}

/// Sends requests by `real` with `shadows` beside it.
fn run(real: &Spec, shadows: &[Spec], n: usize, events: Events, seed: u64) -> Run {
    let all = events == Events::All;
    let server = |i: usize| {
        let weight = 1 + i as u32 % 3;
        let limits = if all { (40, SECOND, u32::from(i % 5 == 4)) } else { (0, 0, 0) };
        let (max_conns, slow_start, priority) = limits;
        ServerSpec {
            weight,
            max_conns,
            slow_start,
            priority,
            fail_timeout: 30 * MILLISECOND,
            ..ServerSpec::new(&format!("s{i}:80"))
        }
    };
    let servers = (0..n).map(|i| (server(i), Arc::new(ServerState::new()))).collect();
    let groups = [Group { priority: 0, max_conns: if all { 60 } else { 0 } }];
    let fleet = Arc::new(Fleet::with_groups(real, servers, &groups).unwrap());
    let shared: Vec<Arc<Shadow>> = shadows.iter().map(|s| Arc::new(Shadow::new(s, &fleet, None).unwrap())).collect();
    let mut driver = Driver::new(fleet.clone(), seed, Start::default());
    let mut beside: Vec<_> = shared.iter().map(|s| ShadowDriver::new(s.clone(), seed, Start::default())).collect();
    let (mut numbers, mut now) = (Numbers(7), BEGIN);
    let mut under_way: VecDeque<(Nanos, Nanos, Member, Outcome)> = VecDeque::new();
    let (mut chosen, mut said) = (Vec::new(), vec![Vec::new(); shadows.len()]);
    let mut tried = Tried::default();
    for _ in 0..200 {
        now += numbers.below(5) * MILLISECOND;
        let is_over = |until: Nanos| until <= now || events == Events::None;
        while let Some((_, begun, member, outcome)) = under_way.pop_front_if(|(until, ..)| is_over(*until)) {
            let time = now - begun;
            if outcome == Outcome::Success {
                driver.header(now, member, time);
                driver.latency(now, member, 1, time);
                beside.iter_mut().for_each(|shadow| shadow.header(now, member, time));
                beside.iter_mut().for_each(|shadow| shadow.latency(now, member, 1, time));
            }
            let header_time = (outcome == Outcome::Success).then_some(time);
            let report = Report { outcome, header_time, last_byte_time: Some(time), bytes: 1_000 + time % 7_000 };
            driver.complete(now, member, &report);
            beside.iter_mut().for_each(|shadow| shadow.complete(now, member, &report));
        }
        if all && numbers.below(40) == 0 {
            let state = fleet.state(Member(numbers.below(n as u64) as u32));
            match numbers.below(4) {
                0 => state.set_draining(numbers.below(4) == 0),
                1 => state.set_down(numbers.below(4) == 0),
                2 => state.set_share(20 + numbers.below(100) as u32),
                _ => (0..n as u32).for_each(|m| fleet.state(Member(m)).report_load(now, f64::from(m % 7) / 7.0)),
            }
        }
        let key = (numbers.below(150) as u32).to_le_bytes();
        let bound = (events != Events::None && numbers.below(11) == 0).then(|| Member(numbers.below(n as u64) as u32));
        tried.clear();
        for _ in 0..if events != Events::None && numbers.below(9) == 0 { 3 } else { 1 } {
            let mut choices = vec![Choice::NotAsked; beside.len()];
            for (choice, shadow) in choices.iter_mut().zip(&mut beside) {
                if bound.is_none() || shadow.shadow().judges_sessions() {
                    *choice = shadow.choose(now, &key, &mut tried, || now);
                }
            }
            let (member, decided) = match bound {
                Some(member) => (driver.claim(now, member, &mut tried, true).map(|()| member).ok(), Decided::Session),
                None => (driver.pick(now, &key, &mut tried).ok(), Decided::Algorithm),
            };
            chosen.push(member);
            for ((shadow, choice), said) in beside.iter_mut().zip(choices).zip(&mut said) {
                said.push(choice);
                member.into_iter().for_each(|member| shadow.dispatched(now, member, choice, decided));
            }
            let Some(member) = member else { break };
            let fails = all && numbers.below(20) == 0;
            let outcome = if fails { Outcome::Failure } else { Outcome::Success };
            let until = now + (1 + numbers.below(40)) * MILLISECOND;
            let at = under_way.partition_point(|(other, ..)| *other <= until);
            under_way.insert(at, (until, now, member, outcome));
        }
    }
    Run { chosen, shadows: shared, said }
}

#[test]
fn what_is_chosen_is_the_same_with_shadows_and_without() {
    let forms = forms();
    let with_defaults: Vec<Spec> = entries().iter().map(|entry| Spec::new(entry, &[]).unwrap()).collect();
    for (n, forms) in [(5, forms), (40, with_defaults)] {
        for real in &forms {
            let alone = run(real, &[], n, Events::All, 3);
            let beside = run(real, &forms, n, Events::All, 3);
            assert!(alone.chosen == beside.chosen, "{real:?}, {n} servers");
            let count = alone.chosen.iter().flatten().count();
            assert!(count > 75, "{real:?}, {n} servers: {count} of {}", alone.chosen.len());
        }
    }
}

/// With which no number is drawn for a choice.
fn deterministic(n: usize, events: Events) -> Vec<Spec> {
    let same = |spec: &Spec| run(spec, &[], n, events, 3).chosen == run(spec, &[], n, events, 4).chosen;
    forms().into_iter().filter(same).collect()
}

#[test]
fn the_shadow_of_an_algorithm_beside_itself_agrees() {
    for n in [5, 40] {
        let deterministic = deterministic(n, Events::Load);
        assert!(deterministic.len() >= 20, "{deterministic:?}");
        for spec in deterministic {
            let counts = run(&spec, std::slice::from_ref(&spec), n, Events::Load, 3).shadows[0].counts();
            assert!(counts.picks > 150 && counts.agreed == counts.picks, "{spec:?}, {n} servers: {counts:?}");
        }
    }
}

#[test]
fn two_that_draw_agree_by_chance_only() {
    let counts = run(&spec("random"), &[spec("random")], 5, Events::None, 3).shadows[0].counts();
    // Of weights 1, 2, 3, 1, 2: the squares of the shares are 19/81 together.
    assert!((25..70).contains(&counts.agreed), "{counts:?}");
}

#[test]
fn what_does_not_go_by_load_chooses_as_if_it_were_alone() {
    for n in [5, 40] {
        let mut compared = 0;
        for spec in deterministic(n, Events::None) {
            let alone = run(&spec, &[], n, Events::None, 3).chosen;
            // Beside one that sends all requests elsewhere, and at once.
            let Run { shadows, said, .. } =
                run(&self::spec("two_choices"), std::slice::from_ref(&spec), n, Events::None, 3);
            let said: Vec<Option<Member>> = said[0]
                .iter()
                .map(|choice| match choice {
                    Choice::Server(member) => Some(*member),
                    _ => None,
                })
                .collect();
            // Times, bytes and places in queues are those of the servers that have had the requests.
            if spec.goes_by_time() || !goes_by_turns_or_keys(&spec) {
                continue;
            }
            compared += 1;
            assert_eq!(said, alone, "{spec:?}, {n} servers");
            for m in 0..n as u32 {
                let times = alone.iter().filter(|member| **member == Some(Member(m))).count() as u64;
                assert_eq!(shadows[0].chosen(Member(m)).0, times, "{spec:?}, {n} servers");
            }
        }
        assert!(compared >= 10, "{compared}");
    }
}

fn goes_by_turns_or_keys(spec: &Spec) -> bool {
    matches!(spec.entry().share, Share::Weights | Share::Key)
}

#[test]
fn least_connections_of_many_idle_servers_take_turns() {
    for name in ["least_conn", "shortest_expected_delay", "hashed_ip", "last_server"] {
        for n in [20, 60] {
            let servers = (0..n).map(|i| (ServerSpec::new(&format!("s{i}:80")), Arc::new(ServerState::new())));
            let fleet = Arc::new(Fleet::new(&spec("hash"), servers.collect()).unwrap());
            let shadow = Arc::new(Shadow::new(&spec(name), &fleet, None).unwrap());
            let mut driver = Driver::new(fleet, 1, Start::default());
            let mut beside = ShadowDriver::new(shadow.clone(), 1, Start::default());
            for i in 0..n as u64 * 10 {
                let (now, mut tried) = (BEGIN + i * MILLISECOND, Tried::default());
                let choice = beside.choose(now, b"", &mut tried, || now);
                let member = driver.pick(now, b"one key", &mut tried).unwrap();
                beside.dispatched(now, member, choice, Decided::Algorithm);
                driver.complete(now, member, &Report::default());
                beside.complete(now, member, &Report::default());
            }
            let shares: Vec<u64> = (0..n as u32).map(|m| shadow.chosen(Member(m)).0).collect();
            assert!(shares.iter().all(|times| (8..=12).contains(times)), "{name}, {n}: {shares:?}");
            let really: Vec<u64> = (0..n as u32).map(|m| shadow.chosen(Member(m)).1).filter(|n| *n > 0).collect();
            assert_eq!(really, [n as u64 * 10], "all went to one");
        }
    }
}

/// Servers whose states stay.
fn fleet_of(real: &str, states: &[(&str, Arc<ServerState>)]) -> Arc<Fleet> {
    let servers = states.iter().map(|(name, state)| (ServerSpec::new(name), state.clone())).collect();
    Arc::new(Fleet::new(&spec(real), servers).unwrap())
}

fn send(fleet: &Arc<Fleet>, shadow: &Arc<Shadow>, keys: std::ops::Range<u32>) {
    let mut driver = Driver::new(fleet.clone(), 1, Start::default());
    let mut beside = ShadowDriver::new(shadow.clone(), 1, Start::default());
    for key in keys {
        let mut tried = Tried::default();
        let choice = beside.choose(BEGIN, &key.to_le_bytes(), &mut tried, || BEGIN);
        let member = driver.pick(BEGIN, b"", &mut tried).unwrap();
        beside.dispatched(BEGIN, member, choice, Decided::Algorithm);
        driver.complete(BEGIN, member, &Report::default());
        beside.complete(BEGIN, member, &Report::default());
    }
}

#[test]
fn counts_and_keys_outlive_a_change_of_the_servers() {
    let states: Vec<_> = ["a:80", "b:80", "c:80", "d:80"].map(|name| (name, Arc::new(ServerState::new()))).into();
    let (four, three) = (fleet_of("round_robin", &states), fleet_of("round_robin", &states[1..]));
    let keys = 0..1_000;
    let before = Arc::new(Shadow::new(&spec("rendezvous"), &four, None).unwrap());
    send(&four, &before, keys.clone());
    send(&four, &before, keys.clone());
    let counts = before.counts();
    assert_eq!((counts.picks, counts.keys, counts.keys_moved), (2_000, 1_000, 0));
    let of_a = before.chosen(Member(0)).0 / 2;
    assert!((200..300).contains(&of_a), "{of_a}");
    let after = Arc::new(Shadow::new(&spec("rendezvous"), &three, Some(&before)).unwrap());
    assert_eq!((after.counts(), after.chosen(Member(0))), (counts, before.chosen(Member(1))));
    send(&three, &after, keys.clone());
    assert_eq!((after.counts().keys, after.counts().keys_moved), (2_000, of_a), "those of the server that has left");
    // It returns as a new server.
    let again = Arc::new(Shadow::new(&spec("rendezvous"), &four, Some(&after)).unwrap());
    assert_eq!(again.chosen(Member(0)), (0, 0));
    send(&four, &again, keys);
    assert_eq!(again.counts().keys_moved, 2 * of_a);
    again.reset();
    assert_eq!((again.counts(), again.chosen(Member(1))), (Default::default(), (0, 0)));
}

#[test]
fn what_an_algorithm_keeps_of_servers_outlives_a_change_too() {
    let states: Vec<_> = ["a:80", "b:80"].map(|name| (name, Arc::new(ServerState::new()))).into();
    let fleet = fleet_of("round_robin", &states);
    let measured = |shadow: &Arc<Shadow>| {
        let mut beside = ShadowDriver::new(shadow.clone(), 1, Start::default());
        let choices = (0..20).map(|_| beside.choose(BEGIN, b"", &mut Tried::default(), || BEGIN));
        choices.filter(|choice| *choice == Choice::Server(Member(1))).count()
    };
    let before = Arc::new(Shadow::new(&spec("peak_ewma"), &fleet, None).unwrap());
    let mut beside = ShadowDriver::new(before.clone(), 1, Start::default());
    for (member, time) in [(Member(0), 900 * MILLISECOND), (Member(1), MILLISECOND)] {
        beside.dispatched(BEGIN, member, Choice::NotAsked, Decided::Other);
        let report = Report { outcome: Outcome::Success, header_time: None, last_byte_time: Some(time), bytes: 1 };
        beside.complete(BEGIN, member, &report);
    }
    assert_eq!(measured(&before), 20);
    assert_eq!(measured(&Arc::new(Shadow::new(&spec("peak_ewma"), &fleet, Some(&before)).unwrap())), 20);
    assert!(measured(&Arc::new(Shadow::new(&spec("peak_ewma"), &fleet, None).unwrap())) < 20);
}

#[test]
fn sessions_that_a_key_would_have_left_are_counted() {
    let states: Vec<_> = ["a:80", "b:80"].map(|name| (name, Arc::new(ServerState::new()))).into();
    let fleet = fleet_of("round_robin", &states);
    let shadow = Arc::new(Shadow::new(&spec("maglev"), &fleet, None).unwrap());
    assert!(shadow.judges_sessions());
    let mut beside = ShadowDriver::new(shadow.clone(), 1, Start::default());
    let mut said = Vec::new();
    for (decided, member) in [(Decided::Session, 0), (Decided::Session, 1), (Decided::Other, 0), (Decided::Other, 1)] {
        let choice = beside.choose(BEGIN, b"key", &mut Tried::default(), || BEGIN);
        said.push(choice);
        beside.dispatched(BEGIN, Member(member), choice, decided);
        beside.complete(BEGIN, Member(member), &Report::default());
    }
    assert!(said.iter().all(|choice| *choice == said[0]), "{said:?}");
    let counts = shadow.counts();
    assert_eq!((counts.picks, counts.sessions, counts.sessions_left, counts.keys), (0, 2, 1, 3));
    // Those that remember clients remember what they chose themselves, so sessions say nothing of them.
    let of = |text| Shadow::new(&spec(text), &fleet, None).unwrap();
    assert!(!of("last_server").judges_sessions() && !of("least_conn").judges_sessions());
}

#[test]
fn a_shadow_that_remembers_clients_keeps_what_it_has_chosen() {
    let states: Vec<_> = ["a:80", "b:80"].map(|name| (name, Arc::new(ServerState::new()))).into();
    let fleet = fleet_of("round_robin", &states);
    let strict = Arc::new(Shadow::new(&spec("last_server mode=strict"), &fleet, None).unwrap());
    assert_eq!(strict.spec().entry().key, Key::Any);
    let mut beside = ShadowDriver::new(strict.clone(), 1, Start::default());
    let mut ask = |other: Option<Member>| {
        let choice = beside.choose(BEGIN, b"key", &mut Tried::default(), || BEGIN);
        let Choice::Server(first) = choice else { return choice };
        let other = other.unwrap_or(Member(1 - first.0));
        beside.dispatched(BEGIN, other, choice, Decided::Algorithm);
        beside.complete(BEGIN, other, &Report::default());
        choice
    };
    let first = ask(None);
    let Choice::Server(member) = first else { panic!("{first:?}") };
    assert_eq!((ask(None), ask(Some(member)), ask(None)), (first, first, first));
    fleet.state(member).set_down(true);
    assert_eq!(ask(None), Choice::NoServer);
    beside.dispatched(BEGIN, Member(1 - member.0), Choice::NoServer, Decided::Algorithm);
    let counts = strict.counts();
    assert_eq!((counts.picks, counts.agreed, counts.nobody), (5, 1, 1));
    assert_eq!((counts.keys, counts.keys_moved), (3, 0));
    assert_eq!((strict.chosen(member), strict.chosen(Member(1 - member.0))), ((4, 1), (0, 4)));
}

#[test]
fn one_choice_in_64_is_timed() {
    let fleet = fleet_of("round_robin", &[("a:80", Arc::new(ServerState::new()))]);
    let shadow = Arc::new(Shadow::new(&spec("round_robin"), &fleet, None).unwrap());
    let (mut beside, clock) = (ShadowDriver::new(shadow.clone(), 1, Start::default()), std::cell::Cell::new(0));
    for _ in 0..640 {
        beside.choose(BEGIN, b"", &mut Tried::default(), || clock.replace(clock.get() + 30));
    }
    assert_eq!((shadow.counts().timed, shadow.counts().time), (10, 300));
}
