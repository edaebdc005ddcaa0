//! Requests begin, are tried again, are claimed, fail and end in any order, servers are changed by operators and
//! reports, memberships come and go: each pick is eligible and new to its request, there is one whenever a server is
//! eligible, and the books are right after every step. What is eligible is said here a second time, as simply as
//! possible.

use std::sync::Arc;

use balanza_balancing::registry::Spec;
use balanza_balancing::{
    Driver, Fleet, Group, Member, Nanos, Outcome, Refused, Report, ServerSpec, ServerState, Tried,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::subject::{MS, SECOND, Subject, Verdict, every_form, key, refuses, require, servers, success};

/// What is known of a server beside its configuration.
#[derive(Clone, Default, Debug)]
struct Server {
    spec: Option<ServerSpec>,
    down: bool,
    draining: bool,
    share: Option<u32>,
    limit: Option<u32>,
    in_flight: u32,
    fails: u32,
    accessed: Nanos,
    checked: Nanos,
}

impl Server {
    fn spec(&self) -> &ServerSpec {
        self.spec.as_ref().expect("a server of the fleet")
    }

    fn failed(&self, now: Nanos, single: bool) -> bool {
        let spec = self.spec();
        !single && spec.max_fails > 0 && self.fails >= spec.max_fails && now - self.checked <= spec.fail_timeout
    }

    fn full(&self, returning: bool) -> bool {
        let spec = self.spec();
        let hard = self.limit.unwrap_or(spec.max_conns);
        let soft = if returning { 0 } else { spec.soft_max_conns };
        [hard, soft].into_iter().any(|limit| limit > 0 && self.in_flight >= limit)
    }

    /// Why it does not take the request.
    fn closed(&self, now: Nanos, single: bool, returning: bool) -> Vec<Refused> {
        let spec = self.spec();
        let takes_nothing_new = spec.draining || self.draining || spec.weight == 0 || self.share == Some(0);
        let reasons = [
            (Refused::Down, spec.down || self.down),
            (Refused::Draining, !returning && takes_nothing_new),
            (Refused::Failed, self.failed(now, single)),
            (Refused::Full, self.full(returning)),
        ];
        reasons.into_iter().filter_map(|(reason, holds)| holds.then_some(reason)).collect()
    }
}

/// A fleet, its drivers, and which servers of the world its members are.
struct Generation {
    fleet: Arc<Fleet>,
    drivers: Vec<Driver>,
    servers: Vec<usize>,
    groups: Vec<Group>,
}

impl Generation {
    /// The rank of a server's level: priorities in order, then the backups.
    fn level(&self, world: &World, m: usize) -> (bool, u32) {
        let spec = world.servers[self.servers[m]].spec();
        (spec.backup, if spec.backup { 0 } else { spec.priority })
    }

    fn group_full(&self, world: &World, level: (bool, u32)) -> bool {
        let in_level = |m: &usize| self.level(world, *m) == level;
        let busy: u32 =
            (0..self.servers.len()).filter(in_level).map(|m| world.servers[self.servers[m]].in_flight).sum();
        self.groups.iter().any(|g| !level.0 && g.priority == level.1 && g.max_conns > 0 && busy >= g.max_conns)
    }
}

struct Request {
    tried: Tried,
    seen: Vec<usize>,
    level: Option<(bool, u32)>,
    key: [u8; 4],
}

struct World {
    servers: Vec<Server>,
    states: Vec<Arc<ServerState>>,
    now: Nanos,
}

/// A step: what, and two numbers that say where and how much.
type Step = (u8, u16, u64);

#[derive(Clone, Debug)]
struct Scenario {
    servers: Vec<ServerSpec>,
    groups: Vec<Group>,
    seed: u64,
    steps: Vec<Step>,
}

prop_compose! {
    fn server()(
        name in 0u32..60, weight in 0u32..6, max_conns in 0u32..4, soft in 0u32..3, max_fails in 0u32..3,
        timeout in 1u64..4, slow in 0u64..3, priority in prop_oneof![3 => Just(0u32), 1 => 1u32..3], rare in 0u8..16,
    ) -> ServerSpec {
        let backup = rare < 2;
        ServerSpec {
            weight, max_conns, max_fails, fail_timeout: timeout * SECOND, backup, down: rare == 9,
            soft_max_conns: soft,
            slow_start: slow * SECOND, draining: rare == 10,
            priority: if backup { 0 } else { priority },
            ..ServerSpec::new(&format!("s{name}:80"))
        }
    }
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let size = prop_oneof![1usize..6, 6usize..33, 33usize..80];
    let servers = size
        .prop_flat_map(|n| prop::collection::vec(server(), n))
        .prop_filter("a primary", |servers| servers.iter().any(|s| !s.backup));
    let groups = prop::option::weighted(0.3, (0u32..2, 1u32..8));
    let steps = prop::collection::vec((0u8..24, any::<u16>(), 0u64..2_000_000_000), 1..200);
    (servers, groups, any::<u64>(), steps).prop_map(|(servers, group, seed, steps)| {
        let groups = group.into_iter().map(|(priority, max_conns)| Group { priority, max_conns });
        let exists = |g: &Group| servers.iter().any(|s| !s.backup && s.priority == g.priority);
        let groups = groups.filter(exists).collect();
        Scenario { servers, groups, seed, steps }
    })
}

fn generation(
    subject: &Subject,
    spec: &Spec,
    world: &World,
    servers: Vec<usize>,
    groups: &[Group],
    seed: u64,
) -> Generation {
    let told: Vec<_> = servers.iter().map(|s| (world.servers[*s].spec().clone(), world.states[*s].clone())).collect();
    let fleet = subject.fleet_with_groups(spec, &told, groups);
    let drivers = (0..2).map(|worker| subject.driver(&fleet, seed + worker)).collect();
    Generation { fleet, drivers, servers, groups: groups.to_vec() }
}

fn run(subject: &Subject, spec: &Spec, scenario: &Scenario) -> Result<(), TestCaseError> {
    let n = scenario.servers.len();
    let mut world = World {
        servers: scenario.servers.iter().map(|s| Server { spec: Some(s.clone()), ..Server::default() }).collect(),
        states: (0..n).map(|_| Arc::new(ServerState::new())).collect(),
        now: 1_000 * SECOND,
    };
    let mut generations = vec![generation(subject, spec, &world, (0..n).collect(), &scenario.groups, scenario.seed)];
    // Requests of the last generation, and what is in flight of all: (generation, member).
    let mut requests: Vec<Request> = Vec::new();
    let mut flying: Vec<(usize, Member)> = Vec::new();
    for &(kind, at, amount) in &scenario.steps {
        let at = usize::from(at);
        let last = generations.len() - 1;
        let server = at % world.servers.len();
        match kind {
            0..=9 => {
                let again = kind >= 7 && !requests.is_empty();
                if !again {
                    let (tried, key) = (Tried::default(), key(amount % 50));
                    requests.push(Request { tried, seen: Vec::new(), level: None, key });
                }
                let index = if again { at % requests.len() } else { requests.len() - 1 };
                let picked = pick(subject, spec, &mut generations[last], &mut world, &mut requests[index], at)?;
                match picked {
                    Some(member) => flying.push((last, member)),
                    None => drop(requests.swap_remove(index)),
                }
            }
            10..=13 if !flying.is_empty() => {
                let (of, member) = flying.swap_remove(at % flying.len());
                let outcome =
                    [Outcome::Success, Outcome::Success, Outcome::Failure, Outcome::Neutral][usize::from(kind) - 10];
                complete(&mut generations[of], &mut world, member, outcome, amount, at);
            }
            14 | 15 => {
                let member = Member((at % generations[last].servers.len()) as u32);
                if claim(&mut generations[last], &mut world, member, kind == 14, at)? {
                    flying.push((last, member));
                }
            }
            16 => world.now += amount,
            17 => {
                world.servers[server].down ^= true;
                world.states[server].set_down(world.servers[server].down);
            }
            18 => {
                world.servers[server].draining ^= true;
                world.states[server].set_draining(world.servers[server].draining);
            }
            19 => {
                let share = [0, 10, 50, 100][amount as usize % 4];
                world.servers[server].share = Some(share);
                world.states[server].set_share(share);
            }
            20 => {
                let limit = [None, Some(0), Some(1), Some(3)][amount as usize % 4];
                world.servers[server].limit = limit;
                world.states[server].set_max_conns(limit);
            }
            21 => world.states[server].report_load(world.now, (amount % 13) as f64 / 10.0),
            22 => probe(&mut generations[last], &world, at)?,
            23 => {
                // Every third server leaves, and a new one comes.
                let kept: Vec<usize> = generations[last].servers.iter().copied().filter(|s| s % 3 != at % 3).collect();
                world.servers.push(Server { spec: Some(ServerSpec::new(&format!("new{at}:80"))), ..Server::default() });
                world.states.push(Arc::new(ServerState::new()));
                let servers = kept.into_iter().chain([world.servers.len() - 1]).collect();
                let next = generation(subject, spec, &world, servers, &[], amount);
                next.fleet.remember(&generations[last].fleet);
                generations.push(next);
                requests.clear();
            }
            _ => {}
        }
        for (state, server) in world.states.iter().zip(&world.servers) {
            prop_assert_eq!(state.in_flight(), server.in_flight, "in flight");
            prop_assert_eq!(state.fails(), server.fails, "failures counted");
        }
    }
    for (of, member) in flying {
        complete(&mut generations[of], &mut world, member, Outcome::Neutral, 1, 0);
    }
    prop_assert!(world.states.iter().all(|state| state.in_flight() == 0), "in flight in the end");
    Ok(())
}

fn pick(
    subject: &Subject,
    spec: &Spec,
    generation: &mut Generation,
    world: &mut World,
    request: &mut Request,
    worker: usize,
) -> Result<Option<Member>, TestCaseError> {
    let single = generation.servers.len() == 1;
    let now = world.now;
    let open = |m: usize| {
        let server = &world.servers[generation.servers[m]];
        let level = generation.level(world, m);
        server.closed(now, single, false).is_empty()
            && !request.seen.contains(&m)
            && request.level.is_none_or(|reached| level >= reached)
            && !generation.group_full(world, level)
    };
    let eligible: Vec<usize> = (0..generation.servers.len()).filter(|m| open(*m)).collect();
    let level = eligible.iter().map(|m| generation.level(world, *m)).min();
    let of_level: Vec<usize> =
        eligible.iter().copied().filter(|m| Some(generation.level(world, *m)) == level).collect();
    let driver = &mut generation.drivers[worker % 2];
    let candidates: Vec<usize> = driver.candidates(now, &request.tried).map(|c| c.member.0 as usize).collect();
    let picked = match (subject.pick)(driver, now, &request.key, &mut request.tried) {
        Ok(member) => {
            let m = member.0 as usize;
            prop_assert!(eligible.contains(&m), "{:?} was picked of {:?}", m, eligible);
            let of = generation.level(world, m);
            prop_assert_eq!(Some(of), level, "a later level was taken");
            prop_assert!(request.tried.contains(member), "not marked as tried");
            request.seen.push(m);
            request.level = Some(of);
            take(&generation.servers, world, m);
            Some(member)
        }
        Err(_) => {
            prop_assert!(eligible.is_empty() || refuses(spec), "nobody was picked of {:?}", eligible);
            None
        }
    };
    prop_assert_eq!(candidates, of_level, "candidates");
    Ok(picked)
}

fn take(servers: &[usize], world: &mut World, m: usize) {
    let now = world.now;
    let server = &mut world.servers[servers[m]];
    server.in_flight += 1;
    if now - server.checked > server.spec().fail_timeout {
        server.checked = now;
    }
}

fn claim(
    generation: &mut Generation,
    world: &mut World,
    member: Member,
    returning: bool,
    worker: usize,
) -> Result<bool, TestCaseError> {
    let m = member.0 as usize;
    let mut reasons = world.servers[generation.servers[m]].closed(world.now, generation.servers.len() == 1, returning);
    if generation.group_full(world, generation.level(world, m)) {
        reasons.push(Refused::Full);
    }
    let mut tried = Tried::default();
    let driver = &mut generation.drivers[worker % 2];
    match driver.claim(world.now, member, &mut tried, returning) {
        Ok(()) => {
            prop_assert!(reasons.is_empty(), "claimed although {:?}", reasons);
            prop_assert!(tried.contains(member), "a claim is an attempt");
            take(&generation.servers, world, m);
            prop_assert_eq!(driver.claim(world.now, member, &mut tried, returning), Err(Refused::Tried));
            Ok(true)
        }
        Err(reason) => {
            prop_assert!(reasons.contains(&reason), "refused as {:?}, but {:?}", reason, reasons);
            Ok(false)
        }
    }
}

fn complete(
    generation: &mut Generation,
    world: &mut World,
    member: Member,
    outcome: Outcome,
    time: Nanos,
    worker: usize,
) {
    let now = world.now;
    let single = generation.fleet.is_single();
    let server = &mut world.servers[generation.servers[member.0 as usize]];
    server.in_flight -= 1;
    match outcome {
        Outcome::Failure => {
            server.fails += 1;
            (server.accessed, server.checked) = (now, now);
        }
        _ if server.fails > 0 && server.accessed < server.checked => server.fails = 0,
        _ => {}
    }
    if single {
        server.fails = 0;
    }
    let report = Report { outcome, header_time: Some(time), last_byte_time: Some(time), bytes: time % 5_000 };
    generation.drivers[worker % 2].complete(now, member, &report);
}

/// Probes come to an end.
fn probe(generation: &mut Generation, world: &World, worker: usize) -> Result<(), TestCaseError> {
    let driver = &mut generation.drivers[worker % 2];
    let mut members = Vec::new();
    driver.take_probes(world.now, &mut members);
    prop_assert!(members.len() < 100, "{} probes", members.len());
    for member in members {
        prop_assert!((member.0 as usize) < generation.servers.len());
        driver.probed(world.now, member, world.servers[generation.servers[member.0 as usize]].in_flight, MS);
    }
    Ok(())
}

fn check_with(subject: &Subject, spec: &Spec, config: Config) -> Verdict {
    let mut runner = TestRunner::new(config);
    runner.run(&scenario(), |scenario| run(subject, spec, &scenario)).map_err(|error| error.to_string())
}

/// Prints what fails as small as it gets, and keeps its seed beside this file.
pub fn check(subject: &Subject, spec: &Spec) -> Verdict {
    let config = Config { cases: 40, source_file: Some(file!()), max_shrink_iters: 4_000, ..Config::default() };
    check_with(subject, spec, config)
}

/// The same for a subject that is wrong on purpose.
pub fn check_quietly(subject: &Subject, spec: &Spec) -> Verdict {
    let config = Config { cases: 400, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    check_with(subject, spec, config)
}

#[test]
fn picks_are_eligible_and_exist() {
    every_form(check);
}

/// Every server is picked once, then none: a request is not sent again to a server that it has tried.
pub fn check_attempts(subject: &Subject, spec: &Spec) -> Verdict {
    for n in [1, 3, 33, 100] {
        let fleet = subject.fleet(spec, &servers(n, |i, server| server.weight = 1 + i as u32 % 3));
        let mut driver = subject.driver(&fleet, 1);
        for request in 0..20 {
            let mut tried = Tried::default();
            let mut seen = vec![false; n];
            while let Ok(member) = (subject.pick)(&mut driver, SECOND, &key(request), &mut tried) {
                require!(!std::mem::replace(&mut seen[member.0 as usize], true), "{member:?} was picked twice");
                driver.complete(SECOND, member, &success(MS));
            }
            require!(refuses(spec) || seen.iter().all(|s| *s), "{n} servers: not all were tried");
        }
    }
    Ok(())
}

#[test]
fn a_request_tries_everybody_once() {
    every_form(check_attempts);
}
