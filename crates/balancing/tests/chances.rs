//! The probability of a choice beside how often it is made, with servers that stay as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Driver, Fleet, Member, Nanos, Outcome, Reason, Report, ServerSpec, ServerState, Start, Tried};

const NOW: Nanos = 1_000_000_000;
const PICKS: u32 = 30_000;
/// Of so many the probability is computed.
const WEIGHED: u32 = 300;

/// A fleet: weight and requests in flight of each server; it is down if these are none.
type Servers<'a> = &'a [(u32, Option<u32>)];

fn prepared(algorithm: &str, choices: Option<&str>, servers: Servers<'_>) -> Driver {
    let specs = servers.iter().enumerate().map(|(i, (weight, in_flight))| ServerSpec {
        weight: *weight,
        down: in_flight.is_none(),
        ..ServerSpec::new(&format!("s{i}:80"))
    });
    let parameters: Vec<(&str, &str)> = choices.iter().map(|choices| ("choices", *choices)).collect();
    let spec = Spec::new(find(algorithm).unwrap(), &parameters).unwrap();
    let fleet = Fleet::new(&spec, specs.map(|spec| (spec, Arc::new(ServerState::new()))).collect());
    let mut driver = Driver::new(Arc::new(fleet.unwrap()), 1, Start::default());
    for (i, (_, in_flight)) in servers.iter().enumerate() {
        for _ in 0..in_flight.unwrap_or(0) {
            driver.claim(NOW, Member(i as u32), &mut Tried::default(), false).unwrap();
        }
    }
    driver
}

/// Chooses often, and compares. `tried` servers have failed for the request.
fn agrees(algorithm: &str, choices: Option<&str>, servers: Servers<'_>, failed: &[u32]) {
    let mut driver = prepared(algorithm, choices, servers);
    // A choice is a server, and whether round robin made it.
    let mut seen: BTreeMap<(u32, bool), (u32, Option<f64>)> = BTreeMap::new();
    for nth in 0..PICKS {
        let mut tried = Tried::default();
        failed.iter().for_each(|member| tried.insert(Member(*member)));
        let (mut reason, mut probability) = (Reason::default(), None);
        let member = match nth < WEIGHED {
            true => driver.pick_weighed(NOW, b"", &mut tried, &mut reason, &mut probability),
            false => driver.pick_explained(NOW, b"", &mut tried, &mut reason),
        };
        let member = member.unwrap();
        driver.complete(NOW, member, &Report { outcome: Outcome::Neutral, ..Report::default() });
        let is_fallback = reason.to_string().contains("fallback");
        let known = seen.entry((if is_fallback { 0 } else { member.0 }, is_fallback)).or_insert((0, probability));
        assert!(nth >= WEIGHED || probability.is_some_and(|now| (known.1.unwrap() - now).abs() < 1e-12));
        known.0 += 1;
    }
    let what = format!("{algorithm} {choices:?} {servers:?} {failed:?}: {seen:?}");
    // What was not seen in the first choices is rare.
    let known = || seen.values().filter_map(|(count, probability)| Some((count, (*probability)?)));
    let sum: f64 = known().map(|(_, probability)| probability).sum();
    assert!((0.97..1.000_001).contains(&sum), "{sum} {what}");
    for (count, probability) in known() {
        let expected = probability * f64::from(PICKS);
        let deviation = (expected * (1.0 - probability)).sqrt();
        assert!((f64::from(*count) - expected).abs() <= 5.0 * deviation + 1e-6, "{what}");
    }
}

#[test]
fn random() {
    agrees("random", None, &[(1, Some(0)); 4], &[]);
    agrees("random", None, &[(5, Some(3)), (1, Some(0)), (2, Some(0))], &[]);
    // Round robin chooses where so many draws find nothing.
    agrees("random", None, &[(30, None), (1, Some(0)), (2, Some(0))], &[]);
    agrees("random", None, &[(1, Some(0)), (2, Some(0)), (3, Some(0))], &[1]);
}

#[test]
fn two_choices() {
    for choices in [None, Some("2"), Some("3")] {
        agrees("two_choices", choices, &[(1, Some(0)); 5], &[]);
        agrees("two_choices", choices, &[(1, Some(2)), (1, Some(1)), (1, Some(0)), (1, Some(1))], &[]);
        agrees("two_choices", choices, &[(5, Some(9)), (1, Some(0)), (2, Some(2)), (3, Some(3)), (1, None)], &[]);
        agrees(
            "two_choices",
            choices,
            &[(5, Some(1)), (1, Some(0)), (2, Some(0)), (3, Some(0)), (1, Some(0))],
            &[1, 3],
        );
        // Most draws are lost.
        agrees("two_choices", choices, &[(40, None), (1, Some(0)), (2, Some(1)), (1, Some(1)), (1, Some(0))], &[]);
    }
    agrees("two_choices", Some("16"), &[(1, Some(1)); 18], &[]);
    agrees("two_choices", Some("7"), &[(1, Some(1)), (2, Some(1)), (1, Some(1)), (4, Some(5))], &[]);
}
