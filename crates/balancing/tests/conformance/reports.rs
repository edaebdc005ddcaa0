//! Algorithms that go by what servers report or answer to probes: the news shift traffic, old news do not.

use balanza_balancing::registry::{Host, Spec};
use balanza_balancing::{Driver, ServerState, Tried};

use crate::subject::{FEW, MANY, MS, SECOND, Subject, Verdict, every_form, key, require, servers, success};

/// What every server but the first is like.
const USUAL: f64 = 0.2;
/// Longer than what loads are averaged over.
const LONG: u64 = 300 * SECOND;

/// Of 200 requests for each server in `time`, one in flight at a time, what the first gets in proportion to an even share.
fn part(
    subject: &Subject,
    driver: &mut Driver,
    now: &mut u64,
    time: u64,
    mut news: impl FnMut(&mut Driver, u64),
) -> f64 {
    let n = driver.fleet().len();
    let requests = 200 * n as u64;
    let mut mine = 0u64;
    for i in 0..requests {
        *now += time / requests;
        news(driver, *now);
        if let Ok(member) = (subject.pick)(driver, *now, &key(i), &mut Tried::default()) {
            mine += u64::from(member.0 == 0);
            driver.complete(*now, member, &success(10 * MS));
        }
    }
    mine as f64 / 200.0
}

/// More reported load, fewer requests; as before when reports end.
pub fn check_reports(subject: &Subject, spec: &Spec) -> Verdict {
    if spec.entry().host != Host::Reports {
        return Ok(());
    }
    for n in [FEW, MANY] {
        let all = servers(n, |_, _| {});
        let fleet = subject.fleet(spec, &all);
        let mut driver = subject.driver(&fleet, 1);
        let mut now = 1_000 * SECOND;
        let report = |state: &ServerState, now, load| state.report_load(now, load);
        let before = part(subject, &mut driver, &mut now, LONG, |_, _| ());
        require!((0.5..2.0).contains(&before), "{n} servers: {before} of an even share without reports");
        let mut with = |load: f64, now: &mut u64| {
            part(subject, &mut driver, now, LONG, |_, now| {
                all.iter()
                    .enumerate()
                    .for_each(|(i, (_, state))| report(state, now, if i == 0 { load } else { USUAL }));
            })
        };
        let (even, busy) = (with(USUAL, &mut now), with(0.95, &mut now));
        require!((0.5..2.0).contains(&even), "{n} servers: {even} of an even share at the same load");
        require!(busy < 0.5 * even, "{n} servers: {busy} of an even share at 95 %, {even} at {USUAL}");
        // No longer reported: it counts no more.
        now += 3_600 * SECOND;
        let stale = part(subject, &mut driver, &mut now, LONG, |_, _| ());
        require!((0.5..2.0).contains(&stale), "{n} servers: {stale} of an even share with old reports");
    }
    Ok(())
}

#[test]
fn reported_load_shifts_traffic() {
    every_form(check_reports);
}

/// A server whose probes tell of many requests and long times gets few, one that is not probed any more gets some.
pub fn check_probes(subject: &Subject, spec: &Spec) -> Verdict {
    // By default it asks no server.
    if spec.entry().host != Host::Probes || spec.text("probe").is_empty() {
        return Ok(());
    }
    for n in [FEW, MANY] {
        let fleet = subject.fleet(spec, &servers(n, |_, _| {}));
        let mut driver = subject.driver(&fleet, 1);
        require!(driver.wants_probes(), "{n} servers: it asks for no probes");
        let mut now = 1_000 * SECOND;
        let (mut probes, mut members) = (0, Vec::new());
        let mut with = |in_flight: u32, latency: u64, now: &mut u64| {
            part(subject, &mut driver, now, SECOND, |driver, now| {
                driver.take_probes(now, &mut members);
                for member in &members {
                    probes += 1;
                    let (in_flight, latency) = if member.0 == 0 { (in_flight, latency) } else { (3, 10 * MS) };
                    driver.probed(now, *member, in_flight, latency);
                }
            })
        };
        let (even, slow) = (with(3, 10 * MS, &mut now), with(100, 900 * MS, &mut now));
        require!((0.4..2.5).contains(&even), "{n} servers: {even} of an even share with equal probes");
        require!(slow < 0.5 * even, "{n} servers: {slow} of an even share when slow, {even} before");
        require!(probes > 200, "{n} servers: {probes} probes");
        now += 3_600 * SECOND;
        let alone = part(subject, &mut driver, &mut now, SECOND, |_, _| ());
        require!((0.4..2.5).contains(&alone), "{n} servers: {alone} of an even share without probes");
    }
    Ok(())
}

#[test]
fn probes_shift_traffic() {
    every_form(check_probes);
}
