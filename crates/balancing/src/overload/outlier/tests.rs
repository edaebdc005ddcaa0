use proptest::prelude::*;

use super::*;
use crate::driver::Driver;
use crate::policy::Start;
use crate::report::Report;
use crate::server::{Refused, ServerSpec};
use crate::spec::Spec;
use crate::tried::Tried;

const SECOND: Nanos = 1_000_000_000;
const START: Nanos = 1_000 * SECOND;

/// An upstream with its outliers, and what they have told.
struct Farm {
    fleet: Arc<Fleet>,
    driver: Driver,
    outliers: Outliers,
    told: Vec<Notice>,
}

impl Farm {
    fn of(servers: Vec<ServerSpec>, given: &[(&str, &str)]) -> Farm {
        let servers = servers.into_iter().map(|server| (server, Arc::new(ServerState::new()))).collect();
        let fleet = Arc::new(Fleet::with_groups(&Spec::default(), servers, &[]).unwrap());
        let outliers = Outliers::new(&Settings::new(&FEATURE, given).unwrap(), &fleet, None);
        outliers.begin();
        let driver = Driver::new(Arc::clone(&fleet), 1, Start::default());
        Farm { fleet, driver, outliers, told: Vec::new() }
    }

    fn new(servers: usize, given: &[(&str, &str)]) -> Farm {
        Farm::of(
            (0..servers).map(|n| ServerSpec { max_fails: 0, ..ServerSpec::new(&format!("s{n}")) }).collect(),
            given,
        )
    }

    fn tick(&mut self, now: Nanos) {
        self.outliers.tick(now, &mut |notice| self.told.push(notice));
    }

    /// Attempts at a server that end like this.
    fn attempts(&mut self, now: Nanos, server: u32, count: usize, verdict: Verdict) {
        for _ in 0..count {
            self.outliers.complete(now, Member(server), verdict, false, &mut |notice| self.told.push(notice));
        }
    }

    /// Ends the probe of a server.
    fn decide(&mut self, now: Nanos, server: u32, verdict: Verdict) {
        self.outliers.complete(now, Member(server), verdict, true, &mut |notice| self.told.push(notice));
    }

    fn fail(&mut self, now: Nanos, server: u32, count: usize) {
        self.attempts(now, server, count, Verdict::Bad);
    }

    fn open(&self, now: Nanos) -> Vec<u32> {
        self.fleet.members().filter(|member| self.fleet.accepts(now, *member)).map(|Member(m)| m).collect()
    }

    fn ejected(&self) -> Vec<u32> {
        let is = |member: &Member| self.outliers.ejected_until(*member).is_some();
        self.fleet.members().filter(is).map(|Member(m)| m).collect()
    }
}

const ALL: (&str, &str) = ("max_ejected", "100");

#[test]
fn failures_in_a_row_eject_a_server() {
    let mut farm = Farm::new(4, &[]);
    farm.fail(START, 2, 4);
    farm.attempts(START, 2, 1, Verdict::Unknown);
    farm.attempts(START, 2, 1, Verdict::Good(None));
    farm.fail(START, 2, 4);
    assert!(farm.told.is_empty());
    farm.fail(START, 2, 1);
    assert_eq!(farm.told, [Notice::Ejected(Member(2), Reasons::Consecutive(5), 30 * SECOND)]);
    assert_eq!(farm.open(START), [0, 1, 3]);
    // Those that were under way then change nothing, and no second one may be ejected.
    farm.fail(START, 2, 9);
    farm.fail(START, 0, 9);
    farm.attempts(START, 2, 1, Verdict::Good(None));
    assert_eq!((farm.told.len(), farm.ejected()), (1, vec![2]));
}

#[test]
fn a_single_probe_brings_it_back_and_ejections_grow() {
    let mut farm = Farm::new(3, &[("time", "10s"), ("max_time", "25s")]);
    farm.tick(START);
    farm.fail(START, 1, 5);
    let mut now = START;
    for length in [10, 20, 25, 25] {
        now += (length - 1) * SECOND;
        farm.tick(now);
        assert_eq!(farm.outliers.probe(now), None);
        now += SECOND;
        farm.tick(now);
        assert_eq!(farm.open(now), [0, 2], "others do not see it");
        assert_eq!((farm.outliers.probe(now), farm.outliers.probe(now)), (Some(Member(1)), None));
        // Its client has gone: the next request is the probe.
        farm.decide(now, 1, Verdict::Unknown);
        assert_eq!(farm.outliers.probe(now), Some(Member(1)));
        if length == 25 && farm.told.len() == 4 {
            break;
        }
        farm.decide(now, 1, Verdict::Bad);
    }
    let ejected: Vec<Nanos> = farm
        .told
        .iter()
        .filter_map(|n| if let Notice::Ejected(_, _, t) = n { Some(t / SECOND) } else { None })
        .collect();
    assert_eq!(ejected, [10, 20, 25, 25]);
    farm.decide(now, 1, Verdict::Good(None));
    assert_eq!((farm.told.last(), farm.open(now)), (Some(&Notice::Returned(Member(1))), vec![0, 1, 2]));
    // A server that is well for long is like a new one.
    for _ in 0..5 {
        now += 10 * SECOND;
        farm.tick(now);
    }
    farm.fail(now, 1, 5);
    assert_eq!(farm.told.last(), Some(&Notice::Ejected(Member(1), Reasons::Consecutive(5), 10 * SECOND)));
}

#[test]
fn only_the_probe_gets_a_slot_of_an_ejected_server() {
    let mut farm = Farm::new(2, &[]);
    farm.fail(START, 0, 5);
    let tried = &mut Tried::default();
    assert_eq!(farm.driver.claim(START, Member(0), tried, true), Err(Refused::Down));
    assert_eq!(farm.driver.claim_probe(START, Member(0), tried), Ok(()));
    assert_eq!(farm.driver.claim_probe(START, Member(0), tried), Err(Refused::Tried));
    farm.driver.complete(START, Member(0), &Report::default());
    farm.fleet.state(Member(0)).set_down(true);
    assert_eq!(farm.driver.claim_probe(START, Member(0), &mut Tried::default()), Err(Refused::Down));
    // While an operator closes it, it is not probed.
    farm.tick(START + 30 * SECOND);
    assert_eq!(farm.outliers.probe(START + 30 * SECOND), None);
    farm.fleet.state(Member(0)).set_down(false);
    farm.tick(START + 31 * SECOND);
    assert_eq!(farm.outliers.probe(START + 31 * SECOND), Some(Member(0)));
    // A server that is full is asked a second later.
    farm.outliers.refused(START + 31 * SECOND, Member(0));
    assert_eq!(farm.outliers.probe(START + 31 * SECOND), None);
    farm.tick(START + 32 * SECOND);
    assert_eq!(farm.outliers.probe(START + 32 * SECOND), Some(Member(0)));
}

#[test]
fn too_few_servers_left_are_a_panic() {
    let mut farm = Farm::new(4, &[ALL, ("time", "10s")]);
    for server in 0..2 {
        farm.fail(START, server, 5);
    }
    assert_eq!(farm.open(START), [2, 3]);
    farm.fail(START, 2, 5);
    assert_eq!((farm.told.last(), farm.open(START)), (Some(&Notice::Panic(true)), vec![0, 1, 2, 3]));
    // When its time is over, any request decides.
    farm.attempts(START + 9 * SECOND, 2, 1, Verdict::Good(None));
    assert_eq!(farm.ejected(), [0, 1, 2]);
    farm.tick(START + 10 * SECOND);
    assert_eq!(farm.outliers.probe(START + 10 * SECOND), None);
    farm.attempts(START + 10 * SECOND, 2, 1, Verdict::Good(None));
    assert_eq!((farm.told.last(), farm.open(START)), (Some(&Notice::Panic(false)), vec![2, 3]));
    // Servers that are down for another reason are not left either.
    farm.fleet.state(Member(3)).set_down(true);
    farm.tick(START + 12 * SECOND);
    assert_eq!(farm.open(START), [0, 1, 2]);
}

#[test]
fn rates_far_below_the_others_eject() {
    let mut farm = Farm::new(10, &[("consecutive", "0"), ALL, ("panic", "0")]);
    farm.tick(START);
    for server in 0..10 {
        let bad = if server == 7 { 60 } else { 2 };
        farm.attempts(START, server, 200 - bad, Verdict::Good(None));
        farm.fail(START, server, bad);
    }
    farm.tick(START + 9 * SECOND);
    assert_eq!(farm.ejected(), []);
    farm.tick(START + 10 * SECOND);
    assert_eq!(farm.ejected(), [7]);
    let [Notice::Ejected(_, why, _)] = farm.told[..] else { panic!("{:?}", farm.told) };
    // The mean is 96.1 %, the deviation 8.7 %.
    assert_eq!(why.to_string(), "70.0 % of its requests succeeded, below 79.6 %");
    // A few failures more than the others have are not enough.
    farm.fail(START + 10 * SECOND, 3, 4);
    for server in 0..10 {
        farm.attempts(START + 10 * SECOND, server, 196, Verdict::Good(None));
    }
    farm.tick(START + 20 * SECOND);
    assert_eq!(farm.ejected(), [7]);
    // The counts begin anew, and servers with few requests are not compared.
    farm.attempts(START + 21 * SECOND, 3, 90, Verdict::Bad);
    farm.tick(START + 30 * SECOND);
    assert_eq!(farm.ejected(), [7]);
}

#[test]
fn a_server_that_is_far_slower_is_ejected_on_request() {
    let slow = |given: &[(&str, &str)]| {
        let mut farm = Farm::new(4, given);
        farm.tick(START);
        for server in 0..4 {
            let time = if server == 1 { 40_000_000 } else { 10_000_000 };
            farm.attempts(START, server, 100, Verdict::Good(Some(time)));
        }
        farm.tick(START + 10 * SECOND);
        farm
    };
    assert_eq!(slow(&[]).ejected(), []);
    assert_eq!(slow(&[("latency", "401")]).ejected(), []);
    let farm = slow(&[("latency", "399")]);
    assert_eq!(farm.told, [Notice::Ejected(Member(1), Reasons::Latency(40.0, 10.0), 30 * SECOND)]);
}

#[test]
fn a_backup_is_tried_again_without_a_probe() {
    let mut servers: Vec<ServerSpec> = (0..3).map(|n| ServerSpec::new(&format!("s{n}"))).collect();
    servers[2].backup = true;
    let mut farm = Farm::of(servers, &[("time", "1s")]);
    farm.tick(START);
    farm.fail(START, 2, 5);
    assert_eq!(farm.ejected(), [2]);
    farm.tick(START + SECOND);
    assert_eq!((farm.outliers.probe(START + SECOND), farm.ejected()), (None, vec![]));
    farm.fail(START + SECOND, 2, 1);
    assert_eq!(farm.ejected(), [2], "one failure more is enough");
}

#[test]
fn a_single_server_is_not_ejected() {
    let mut farm = Farm::new(1, &[ALL, ("panic", "0")]);
    farm.fail(START, 0, 100);
    assert!(farm.told.is_empty() && farm.open(START) == [0]);
}

#[test]
fn the_next_membership_goes_on() {
    let mut farm = Farm::new(3, &[]);
    farm.fail(START, 1, 5);
    let next = Outliers::new(&Settings::new(&FEATURE, &[]).unwrap(), &farm.fleet, Some(&farm.outliers));
    farm.outliers.retire(Some(&next));
    next.begin();
    assert_eq!((farm.open(START), next.ejected_until(Member(1))), (vec![0, 2], Some(START + 30 * SECOND)));
    // Requests of before say nothing any more.
    farm.fail(START, 0, 10);
    farm.tick(START + 100 * SECOND);
    assert_eq!((farm.open(START), farm.outliers.probe(START + 100 * SECOND)), (vec![0, 2], None));
    next.tick(START + 30 * SECOND, &mut |_| ());
    assert_eq!(next.probe(START + 30 * SECOND), Some(Member(1)));
    // Without the directive all are open.
    next.retire(None);
    assert_eq!(farm.open(START), [0, 1, 2]);
}

#[test]
fn all_workers_together_count() {
    let farm = Farm::new(10, &[("consecutive", "400"), ALL, ("panic", "0")]);
    let told = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    for member in farm.fleet.members() {
                        let tell = &mut |notice| told.lock().unwrap().push(notice);
                        farm.outliers.complete(START, member, Verdict::Bad, false, tell);
                    }
                }
            });
        }
    });
    assert_eq!(farm.ejected().len(), 10);
    assert_eq!(told.into_inner().unwrap().len(), 10, "each once");
}

proptest! {
    /// Whatever comes: never more than the share is ejected, closed are the ejected ones or none, and requests under way
    /// to a server are at most one probe while it is ejected and obeyed.
    #[test]
    fn bounds_hold(
        steps in prop::collection::vec((0u32..8, 0u8..6, 0u64..20), 0..300),
        most in 1usize..100, panic in 0usize..100,
    ) {
        let mut farm = Farm::new(8, &[
            ("max_ejected", &most.to_string()), ("panic", &panic.to_string()), ("consecutive", "2"), ("time", "3s"),
            ("requests", "3"), ("servers", "2"), ("latency", "150"),
        ]);
        let (mut now, mut probes) = (START, Vec::new());
        for (server, what, more) in steps {
            now += more * SECOND / 10;
            farm.tick(now);
            match what {
                0 | 1 => farm.fail(now, server, 1),
                2 => farm.attempts(now, server, 1, Verdict::Good(Some(u64::from(server) * 1_000))),
                3 => probes.extend(farm.outliers.probe(now)),
                _ => if let Some(Member(m)) = probes.pop() {
                    farm.decide(now, m, if what == 4 { Verdict::Good(None) } else { Verdict::Bad });
                }
            }
            let (ejected, open) = (farm.ejected(), farm.open(now));
            prop_assert!(ejected.len() <= (8 * most / 100).max(1));
            let panics = !ejected.is_empty() && (8 - ejected.len()) * 100 < 8 * panic;
            let expected: Vec<u32> = (0..8).filter(|m| panics || !ejected.contains(m)).collect();
            prop_assert_eq!(open, expected);
            let mut distinct = probes.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), probes.len());
        }
    }
}
