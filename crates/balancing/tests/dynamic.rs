//! What defines the algorithms that go by times, bytes, reports and probes: sequences worked out by hand, and searches of
//! all servers.

use std::collections::BTreeSet;
use std::sync::Arc;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{
    Basis, Driver, Fleet, Member, Nanos, Outcome, Reason, Report, ServerSpec, ServerState, Start, Tried,
};
use proptest::prelude::*;

mod common;
use common::{driver, fleet, weighted};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;
const NOW: Nanos = 1_000 * SECOND;

fn pick(driver: &mut Driver, now: Nanos) -> Member {
    driver.pick(now, b"", &mut Tried::default()).unwrap()
}

/// A pick without effects: the server that would be chosen, and the reason.
fn look(driver: &mut Driver, now: Nanos) -> Reason {
    let mut reason = Reason::default();
    let member = driver.pick_explained(now, b"", &mut Tried::default(), &mut reason).unwrap();
    driver.complete(now, member, &Report::default());
    reason
}

/// One request to `server` that takes `time` and brings `bytes`.
fn serve(driver: &mut Driver, now: Nanos, server: u32, time: Nanos, bytes: u64) {
    driver.claim(now, Member(server), &mut Tried::default(), true).unwrap();
    let time = Some(time);
    let report = Report { outcome: Outcome::Success, header_time: time, last_byte_time: time, bytes };
    driver.complete(now, Member(server), &report);
}

fn fail(driver: &mut Driver, now: Nanos, server: u32) {
    driver.claim(now, Member(server), &mut Tried::default(), true).unwrap();
    driver.complete(now, Member(server), &Report { outcome: Outcome::Failure, ..Report::default() });
}

fn near(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!((found - expected).abs() <= expected.abs() * 1e-9, "{found}, expected {expected}");
}

/// 110 ms are rounded up to 120, 250 to 260: scores 120, 240, 360 … and 260, 520 ….
#[test]
fn least_time_by_hand() {
    let mut driver = driver("least_time", &[], weighted(&[1, 1]));
    serve(&mut driver, NOW, 0, 110 * MS, 0);
    serve(&mut driver, NOW, 1, 250 * MS, 0);
    let mut reason = Reason::default();
    let mut next = || {
        let member = driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
        (member.0, reason.score.unwrap(), reason.next.unwrap().1)
    };
    let expected = [
        (0, 120.0, 260.0),
        (0, 240.0, 260.0),
        (1, 260.0, 360.0),
        (0, 360.0, 520.0),
        (0, 480.0, 520.0),
        (1, 520.0, 600.0),
        (0, 600.0, 780.0),
    ];
    assert_eq!(std::array::from_fn(|_| next()), expected);
}

/// The average moves by a twentieth of the difference, and weights divide.
#[test]
fn least_time_averages() {
    let mut driver = driver("least_time", &[("by", "last_byte")], weighted(&[4, 1]));
    serve(&mut driver, NOW, 1, 50 * MS, 0);
    serve(&mut driver, NOW, 0, 200 * MS, 0);
    // 200 - 10 + 50 = 240, rounded up to 260; 50 to 60.
    serve(&mut driver, NOW, 0, 1_000 * MS, 0);
    let reason = look(&mut driver, NOW);
    assert_eq!((reason.score, reason.next), (Some(60.0), Some((Member(0), 65.0))));
}

/// A weight divides the requests in flight, and no latency.
#[test]
fn peak_ewma_by_hand() {
    let e = std::f64::consts::E;
    let mut driver = driver("peak_ewma", &[("decay", "10s")], weighted(&[1, 2]));
    serve(&mut driver, NOW, 0, 60 * MS, 0);
    serve(&mut driver, NOW, 1, 100 * MS, 0);
    let ms = MS as f64;
    let reason = look(&mut driver, NOW);
    near(reason.score, 60.0 * ms);
    near(reason.next.map(|n| n.1), 100.0 * ms);
    // With one in flight it is 60 * 2.
    assert_eq!(pick(&mut driver, NOW), Member(0));
    near(look(&mut driver, NOW).score, 100.0 * ms);
    driver.complete(NOW, Member(0), &Report::default());
    // A slow answer counts at once and whole.
    serve(&mut driver, NOW, 1, 500 * MS, 0);
    near(look(&mut driver, NOW).next.map(|n| n.1), 500.0 * ms);
    // After the time constant all has faded to 1/e; an answer of 20 ms makes it 500/e + 20 (1 - 1/e).
    let later = NOW + 10 * SECOND;
    near(look(&mut driver, later).next.map(|n| n.1), 500.0 / e * ms);
    serve(&mut driver, later, 1, 20 * MS, 0);
    let cost = 500.0 / e + 20.0 * (1.0 - 1.0 / e);
    near(look(&mut driver, later).next.map(|n| n.1), cost * ms);
    near(look(&mut driver, later).score, 60.0 / e * ms);
    let long_after = later + 20 * SECOND;
    near(look(&mut driver, long_after).next.map(|n| n.1), cost / (e * e) * ms);
    // While a request is in flight nothing fades, and the cost is at least the time without an answer.
    assert_eq!(pick(&mut driver, long_after), Member(0));
    let faded = 60.0 / (e * e * e);
    let soon = long_after + MS;
    near(look(&mut driver, soon).score, 2.0 * faded * ms);
    near(look(&mut driver, long_after + 40 * MS).next.map(|n| n.1), 2.0 * 40.0 * ms);
    // It ends without an answer: the cost is its age.
    let gave_up = Report { last_byte_time: Some(SECOND), ..Report::default() };
    driver.complete(long_after + SECOND, Member(0), &gave_up);
    near(look(&mut driver, long_after + SECOND).next.map(|n| n.1), SECOND as f64);
    // Server 1 has weight 2: its requests in flight count half.
    assert_eq!(pick(&mut driver, later + 30 * SECOND), Member(1));
    near(look(&mut driver, later + 30 * SECOND).score, 1.5 * cost / (e * e * e) * ms);
}

#[test]
fn combined_by_hand() {
    let mut driver = driver("combined", &[("time", "25")], weighted(&[1, 2]));
    // The median of the times known at the first completion: 150 ms.
    serve(&mut driver, NOW, 1, 150 * MS, 0);
    serve(&mut driver, NOW, 0, 330 * MS, 0);
    let reason = look(&mut driver, NOW);
    near(reason.score, 0.25 + 0.75 / 2.0);
    near(reason.next.map(|n| n.1), 0.25 * 330.0 / 150.0 + 0.75);
    // Server 1 with a requests in flight has 0.25 + 0.75 (1 + a) / 2: 0.625, 1, 1.375, 1.75, 2.125. Server 0 has 1.3, then
    // 2.05.
    assert_eq!(std::array::from_fn(|_| pick(&mut driver, NOW).0), [1, 1, 0, 1, 1, 0]);
}

/// The rules of `peak_ewma` and `combined` in a few lines, of two servers.
#[derive(Clone, Copy, Default)]
struct Plain {
    cost: f64,
    /// The last answer, and the last answer or beginning of work.
    last: Nanos,
    alive: Nanos,
    in_flight: u32,
}

impl Plain {
    /// The cost, faded while it had no work.
    fn faded(&self, now: Nanos) -> f64 {
        let until = if self.in_flight == 0 { now } else { self.alive };
        self.cost * (-(until.saturating_sub(self.last) as f64) / 10e9).exp()
    }

    fn time(&self, now: Nanos, typical: f64) -> f64 {
        let silent = if self.in_flight == 0 { 0 } else { now - self.alive };
        self.faded(now).max((silent as f64).min(8.0 * typical))
    }

    fn sent(&mut self, now: Nanos) {
        if self.in_flight == 0 {
            self.alive = now;
        }
        self.in_flight += 1;
    }

    fn answered(&mut self, now: Nanos, cost: f64) {
        (self.cost, self.last, self.alive, self.in_flight) = (cost, now, now, self.in_flight - 1);
    }
}

proptest! {
    #[test]
    fn latencies_are_those_of_a_plain_model(
        steps in proptest::collection::vec((0u8..5, 1u64..3_000, 0u64..4_000_000), 1..200),
        peak: bool,
    ) {
        let name = if peak { "peak_ewma" } else { "combined" };
        let mut driver = driver(name, &[], weighted(&[1, 3]));
        let mut plain = [Plain::default(); 2];
        let mut now = NOW;
        for i in [1, 0] {
            serve(&mut driver, now, i as u32, 30 * MS, 0);
            plain[i] = Plain { cost: (30 * MS) as f64, last: now, alive: now, in_flight: 0 };
        }
        let (mut flying, mut completions) = (Vec::new(), 2u32);
        let mut typical = (30 * MS) as f64;
        for (step, gap, time) in steps {
            now += gap * MS;
            if step < 3 || flying.is_empty() {
                let score = |i: usize| {
                    let (time, load, weight) = (plain[i].time(now, typical), f64::from(plain[i].in_flight), [1.0, 3.0][i]);
                    if peak { time * (load / weight + 1.0) } else { 0.5 * time / typical + 0.5 * (load + 1.0) / weight }
                };
                let scores = [score(0), score(1)];
                let found = pick(&mut driver, now).0 as usize;
                prop_assert!(scores[found] <= scores[1 - found] * (1.0 + 1e-9), "{name}: {scores:?}, {found}");
                plain[found].sent(now);
                flying.push(found);
            } else {
                let server = flying.swap_remove(time as usize % flying.len());
                let (sample, old) = ((time + 1) as f64, plain[server].faded(now));
                let since = (now - plain[server].last) as f64;
                let cost = match peak {
                    true if sample >= plain[server].cost => sample,
                    true => sample + (plain[server].cost - sample) * (-since / 10e9).exp(),
                    false => old + (sample - old) / 20.0,
                };
                plain[server].answered(now, cost);
                let time = Some(time + 1);
                let report = Report { outcome: Outcome::Success, header_time: time, last_byte_time: time, bytes: 0 };
                driver.complete(now, Member(server as u32), &report);
                completions += 1;
                if completions % 16 == 0 {
                    let costs = plain.map(|server| server.faded(now));
                    typical = costs[0].max(costs[1]).floor().max(1.0);
                }
            }
        }
    }
}

#[test]
fn least_bandwidth_by_hand() {
    let mut driver = driver("least_bandwidth", &[("window", "10s")], weighted(&[1, 3]));
    serve(&mut driver, NOW, 0, MS, 1_000);
    serve(&mut driver, NOW, 1, MS, 6_000);
    let reason = look(&mut driver, NOW);
    // Server 1 has begun with 3 * 1,000, the average of the others for its weight.
    assert_eq!((reason.score, reason.next), (Some(1_000.0), Some((Member(1), 3_000.0))));
    // A request under way counts as much as the first response.
    assert_eq!(pick(&mut driver, NOW), Member(0));
    assert_eq!(look(&mut driver, NOW).score, Some(2_000.0));
    driver.complete(NOW, Member(0), &Report::default());
    // In the middle of the next window half of the last one counts, and then nothing.
    serve(&mut driver, NOW + 15 * SECOND, 0, MS, 700);
    let reason = look(&mut driver, NOW + 15 * SECOND);
    assert_eq!((reason.score, reason.next), (Some(1_000.0), Some((Member(0), 1_200.0))));
    let reason = look(&mut driver, NOW + 21 * SECOND);
    assert_eq!((reason.score, reason.next), (Some(0.0), Some((Member(0), 700.0 * 0.9))));
    assert_eq!(look(&mut driver, NOW + 30 * SECOND).score, Some(0.0));
}

#[test]
fn least_load_by_hand() {
    for n in [3usize, 40] {
        let mut driver = driver("least_load", &[("session_weight", "10"), ("stale", "15s")], weighted(&vec![1; n]));
        let fleet = driver.fleet().clone();
        let report = |m: u32, load: f64| fleet.state(Member(m)).report_load(NOW, load);
        (0..n as u32).for_each(|m| report(m, 0.9));
        report(0, 0.5);
        report(1, 0.25);
        // Reports have no leaf refreshed: the large level sees them as it goes round.
        for _ in 0..2 * n {
            look(&mut driver, NOW);
        }
        // 0.25, 0.35, 0.45, then 0.5 before 0.55, and 0.55 before 0.6.
        assert_eq!(std::array::from_fn(|_| pick(&mut driver, NOW).0), [1, 1, 1, 0, 1, 0], "n = {n}");
    }
}

#[test]
fn without_fresh_reports_the_connections_decide() {
    for (n, session_weight) in [(4usize, "1"), (4, "0"), (50, "1"), (50, "0")] {
        let parameters = [("session_weight", session_weight), ("stale", "15s")];
        let mut driver = driver("least_load", &parameters, weighted(&vec![1; n]));
        let fleet = driver.fleet().clone();
        fleet.members().for_each(|m| fleet.state(m).report_load(NOW, f64::from(m.0) / 100.0));
        for _ in 0..5 * n {
            look(&mut driver, NOW);
        }
        let stale = NOW + 16 * SECOND;
        for _ in 0..5 * n {
            look(&mut driver, stale);
        }
        let distinct: BTreeSet<u32> = (0..n).map(|_| pick(&mut driver, stale).0).collect();
        assert_eq!(distinct.len(), n, "one for each, n = {n}, session_weight = {session_weight}");
    }
}

/// What servers of some capacities get in the last 100 s of 400, when those of `reporting` report every 5 s which part of
/// its capacity each has used since the last report.
fn shares_by_load(driver: &mut Driver, capacities: &[f64], reporting: impl Fn(usize) -> bool) -> Vec<f64> {
    let n = driver.fleet().len();
    let (mut counts, mut before, mut old) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    let gap = SECOND / (8 * n as Nanos);
    let mut now = NOW;
    for second in 0..400 {
        if second == 300 {
            old.copy_from_slice(&counts);
        }
        while now < NOW + (second + 1) * SECOND {
            now += gap;
            let member = pick(driver, now);
            counts[member.0 as usize] += 1.0;
            driver.complete(now, member, &Report { outcome: Outcome::Success, ..Report::default() });
        }
        if second % 5 == 4 {
            for i in (0..n).filter(|i| reporting(*i)) {
                let load = (counts[i] - before[i]) / 5.0 / capacities[i % capacities.len()];
                driver.fleet().state(Member(i as u32)).report_load(now, load);
            }
            before.copy_from_slice(&counts);
        }
    }
    let all: f64 = counts.iter().sum::<f64>() - old.iter().sum::<f64>();
    counts.iter().zip(&old).map(|(count, old)| (count - old) / all * n as f64).collect()
}

/// The rule of gRPC (gRFC A58): the weight is the rate over the utilization, which is the capacity; a server that does not
/// report has the mean of the others.
#[test]
fn weighted_load_shares_are_the_capacities() {
    let capacities = [1.0, 4.0, 2.0, 1.0];
    for n in [4usize, 60] {
        // Turns are exact, draws within some deviations of the 400 requests or more that each server gets.
        let slack = if n == 4 { 0.02 } else { 0.25 };
        let agree = |shares: &[f64], expected: [f64; 4]| {
            let sum: f64 = expected.iter().sum::<f64>() / 4.0;
            for (i, share) in shares.iter().enumerate() {
                let expected = expected[i % 4] / sum;
                assert!(
                    (share / expected - 1.0).abs() < slack,
                    "n = {n}, server {i}: {share}, not {expected}: {shares:?}"
                );
            }
        };
        let mut all = driver("weighted_load", &[], weighted(&vec![1; n]));
        agree(&shares_by_load(&mut all, &capacities, |_| true), capacities);
        let mut most = driver("weighted_load", &[], weighted(&vec![1; n]));
        agree(&shares_by_load(&mut most, &capacities, |i| i % 4 != 3), [1.0, 4.0, 2.0, 7.0 / 3.0]);
        let mut one = driver("weighted_load", &[], weighted(&vec![1; n]));
        agree(&shares_by_load(&mut one, &capacities, |i| i == 1), [1.0; 4]);
        let mut late = driver("weighted_load", &[("blackout", "1h")], weighted(&vec![1; n]));
        agree(&shares_by_load(&mut late, &capacities, |_| true), [1.0; 4]);
    }
    // The mean is 0.75, and a server has at least a tenth of it, however bad it looks.
    let mut bounded = driver("weighted_load", &[], weighted(&[1; 4]));
    let least = shares_by_load(&mut bounded, &[1.0, 1.0, 1.0, 1e-6], |_| true)[3];
    assert!((least / (4.0 * 0.075 / 3.075) - 1.0).abs() < 0.05, "{least}");
}

/// The load now is that of the report and what has changed since its time; what a request adds, the reports tell.
#[test]
fn least_load_adds_what_came_since_the_report() {
    // More than 32 servers are not scanned.
    for n in [3usize, 33] {
        let mut driver = driver("least_load", &[], weighted(&vec![1; n]));
        let fleet = driver.fleet().clone();
        // Two servers report loads with requests in flight; the others are full of other work.
        let (loads, mut in_flight) = ([0.44, 0.4], [4, 2]);
        for (server, requests) in in_flight.iter().enumerate() {
            let member = Member(server as u32);
            (0..*requests).for_each(|_| driver.claim(NOW, member, &mut Tried::default(), true).unwrap());
        }
        for report in 0..3 {
            let now = NOW + report * 5 * SECOND;
            let load = |member: Member| loads.get(member.0 as usize).copied().unwrap_or(5.0);
            fleet.members().for_each(|m| fleet.state(m).report_load(now, load(m)));
        }
        let now = NOW + 10 * SECOND;
        // Six requests of them all, and one more that is as those of all servers.
        let all = (0.44 + 0.4) / 6.0;
        let added = [(0.44 + all) / 5.0, (0.4 + all) / 3.0];
        let score = |i: usize, in_flight: &[i32; 2]| loads[i] + added[i] * f64::from(in_flight[i] + 1 - [4, 2][i]);
        let check = |driver: &mut Driver, in_flight: &mut [i32; 2], picks: usize| {
            for _ in 0..2 * n {
                look(driver, now);
            }
            for _ in 0..picks {
                let expected = if score(0, in_flight) < score(1, in_flight) { 0usize } else { 1 };
                assert_eq!(pick(driver, now), Member(expected as u32), "n = {n}, {in_flight:?}");
                in_flight[expected] += 1;
            }
        };
        check(&mut driver, &mut in_flight, 8);
        // Those that end take it away.
        (0..6).for_each(|_| {
            driver.complete(now, Member(0), &Report::default());
        });
        in_flight[0] -= 6;
        check(&mut driver, &mut in_flight, 12);
        assert!(in_flight[0] > 4 && in_flight[1] > 3, "{in_flight:?}");
    }
}

#[test]
fn without_reports_weighted_load_is_round_robin() {
    let [mut loads, mut turns] = ["weighted_load", "round_robin"].map(|name| driver(name, &[], weighted(&[5, 1, 2])));
    for _ in 0..100 {
        let found = pick(&mut loads, NOW);
        assert_eq!(found, pick(&mut turns, NOW));
        loads.complete(NOW, found, &Report::default());
        turns.complete(NOW, found, &Report::default());
    }
}

/// A pool of four probes, as the paper's rules say.
#[test]
fn prequal_by_hand() {
    let mut driver = driver("prequal", &[("probe", "/load")], weighted(&[1; 4]));
    assert!(driver.wants_probes());
    let next = |driver: &mut Driver| {
        let mut reason = Reason::default();
        let member = driver.pick_explained(NOW, b"", &mut Tried::default(), &mut reason).unwrap();
        (member.0, reason.basis)
    };
    assert_eq!(next(&mut driver).1, Basis::Score, "no probes: the better of two");
    let mut asked = Vec::new();
    driver.take_probes(NOW, &mut asked);
    let different: BTreeSet<&Member> = asked.iter().collect();
    assert!((1..=3).contains(&asked.len()) && different.len() == asked.len(), "three, and nobody twice: {asked:?}");
    let probe = |driver: &mut Driver, server: u32, in_flight: u32, latency: Nanos| {
        driver.probed(NOW, Member(server), in_flight, latency * MS);
    };
    probe(&mut driver, 0, 1, 10);
    probe(&mut driver, 1, 5, 1);
    probe(&mut driver, 2, 2, 20);
    probe(&mut driver, 3, 3, 5);
    // 84 % of 1, 2, 3, 5 do not exceed 5: all are cold, and 1 is the quickest. It then has 6 in flight and is hot. The
    // oldest probe, that of 0, goes.
    assert_eq!(next(&mut driver), (1, Basis::Probe));
    // Of 2 and 3 the quicker. The worst goes: 1, the only hot one.
    assert_eq!(next(&mut driver), (3, Basis::Probe));
    // 3 again, with 4 in flight; then the oldest goes, which is 2.
    assert_eq!(next(&mut driver), (3, Basis::Probe));
    assert_eq!(next(&mut driver).1, Basis::Score, "one probe is too few");
    // All hot: the least in flight.
    let mut zero =
        Driver::new(fleet("prequal", &[("probe", "/load"), ("quantile", "0")], weighted(&[1; 4])), 1, Start::default());
    for (server, in_flight, latency) in [(0, 1, 50), (1, 9, 1), (2, 4, 2), (3, 3, 30)] {
        probe(&mut zero, server, in_flight, latency);
    }
    assert_eq!(next(&mut zero), (0, Basis::Probe), "the only cold one");
    assert_eq!(next(&mut zero), (3, Basis::Probe), "0 went as the oldest; of 9, 4 and 3 in flight the least");
    // Probes grow old.
    let old = NOW + SECOND + 1;
    let mut reason = Reason::default();
    zero.pick_explained(old, b"", &mut Tried::default(), &mut reason).unwrap();
    assert_eq!(reason.basis, Basis::Score);
}

#[test]
fn a_failure_throws_a_probe_away() {
    let mut driver = driver("prequal", &[("probe", "/load")], weighted(&[1; 4]));
    for (server, latency) in [(0, 1), (1, 20), (2, 30)] {
        driver.probed(NOW, Member(server), 0, latency * MS);
    }
    fail(&mut driver, NOW + SECOND / 2, 0);
    // The failing one went as the oldest when it was chosen; its next probe counts double, with at least a typical time.
    driver.probed(NOW + SECOND / 2, Member(0), 0, 15 * MS);
    let open = NOW + SECOND / 2;
    let mut reason = Reason::default();
    let mut tried = Tried::default();
    let member = driver.pick_explained(open, b"", &mut tried, &mut reason).unwrap();
    assert_eq!((member, reason.basis), (Member(1), Basis::Probe));
}

#[test]
fn groups_share_out_as_they_are_told() {
    for (by, expected) in [("round_robin", [0, 1, 0, 1]), ("least_conn", [0, 1, 1, 1])] {
        let servers = weighted(&[1, 1]).into_iter().chain([ServerSpec { priority: 1, ..ServerSpec::new("spare:80") }]);
        let mut driver = driver("priority", &[("by", by)], servers.collect());
        // Server 0 keeps its first request, server 1 is done at once.
        let found = std::array::from_fn(|_| {
            let member = pick(&mut driver, NOW);
            if member.0 == 1 {
                driver.complete(NOW, member, &Report::default());
            }
            member.0
        });
        assert_eq!(found, expected, "{by}");
    }
}

/// A server that was away for long, or is new, begins with the average of the others' bytes, and gets no more than they do.
#[test]
fn a_window_that_was_empty_begins_with_the_average() {
    for n in [5usize, 60] {
        for is_new in [false, true] {
            let states: Vec<_> = (0..n).map(|_| Arc::new(ServerState::new())).collect();
            let spec = Spec::new(find("least_bandwidth").unwrap(), &[]).unwrap();
            let of = |n: usize| {
                let servers = weighted(&vec![2; n]).into_iter().zip(states.iter().cloned()).collect();
                Driver::new(Arc::new(Fleet::new(&spec, servers).unwrap()), 1, Start::default())
            };
            let send = |driver: &mut Driver, from: Nanos, requests: u64| {
                let mut counts = vec![0u32; n];
                for now in (0..requests).map(|i| from + i * 20 * MS) {
                    let member = pick(driver, now);
                    counts[member.0 as usize] += 1;
                    driver.complete(
                        now,
                        member,
                        &Report { outcome: Outcome::Success, bytes: 1_000, ..Report::default() },
                    );
                }
                counts[n - 1]
            };
            states[n - 1].set_down(!is_new);
            let mut driver = of(if is_new { n - 1 } else { n });
            assert_eq!(send(&mut driver, NOW, 3_000), 0);
            states[n - 1].set_down(false);
            if is_new {
                driver = of(n);
            }
            let mine = send(&mut driver, NOW + 60 * SECOND, 40 * n as u64);
            assert!((20..=60).contains(&mine), "{n} servers, new: {is_new}: {mine} requests, 40 would be its share");
        }
    }
}
