//! What is said about runs with known figures.

use std::collections::BTreeMap;

use super::estimate::Random;
use super::ranking::{Contestant, rank};
use super::summarize;
use crate::plan::{Cell, Plan, System};
use crate::record::{ErrorKind, Latency, Measured, ProcessRecord, Role, Run, ServerRecord};
use crate::summary::{Among, Holds, Summary, Verdict};

const PLAN: &str = r#"
    name = "two"
    title = "Two"
    repetitions = 5
    farms = [{ name = "uneven", servers = [{ name = "fast" }, { name = "slow" }] }]
    systems = ["balanza", "nginx", "direct"]
    loads = [{ name = "250", users = 250, duration = "10s", warmup = "2s" }]

    [[algorithms]]
    name = "RR"
    balance = "round_robin"
    [[algorithms]]
    name = "LC"
    balance = "least_conn"
    [[algorithms]]
    name = "WLC"
    balance = "least_conn"
    [[algorithms]]
    name = "one"
    balance = "round_robin"
    servers = ["fast"]
    control = true
"#;

fn plan(checks: &[(&str, bool)]) -> Plan {
    let mut text = PLAN.to_string();
    for (i, (expression, must)) in checks.iter().enumerate() {
        text += &format!("[[checks]]\nname = \"c{i}\"\nsays = \"\"\nmust = {must}\nexpression = '''{expression}'''\n");
    }
    toml::from_str(&text).unwrap()
}

/// A run of ten seconds with so many answers a second, each taking `latency`, of which the fast server gave `share`.
fn run(system: System, algorithm: &str, repetition: u32, rps: f64, latency: f64, share: f64) -> Run {
    let answered = (rps * 10.0) as u64;
    let fast = (answered as f64 * share) as u64;
    let server =
        |name: &str, requests| ServerRecord { name: name.into(), requests, in_flight_max: 9, ..Default::default() };
    let process = |name: &str, role, user| ProcessRecord {
        name: name.into(),
        role,
        user,
        system: user / 2.0,
        memory_max: 4_000_000,
        samples: vec![(6.0, 0.1), (12.0, 0.1)],
    };
    let name = system.name().to_string();
    Run {
        cell: Cell { farm: "uneven".into(), load: "250".into(), system, algorithm: algorithm.into() },
        repetition,
        order: 1,
        started: "2026-01-02T03:04:05Z".into(),
        measured: Measured {
            closed_loop: true,
            seconds: 10.0,
            ended: answered,
            answered,
            bytes: Some(answered * 200),
            latency: Latency {
                count: answered,
                mean: Some(latency),
                sd: Some(0.0),
                min: Some(latency),
                max: Some(latency),
                percentiles: vec![(50.0, latency)],
                histogram: vec![(latency, answered)],
            },
            ..Measured::default()
        },
        servers: vec![server("fast", fast), server("slow", answered - fast)],
        events: Vec::new(),
        processes: vec![
            process(&name, Role::Balancer, 2.4),
            process("fast", Role::Server, 1.2),
            process("slow", Role::Server, 3.6),
        ],
        invalid: Vec::new(),
    }
}

/// Both systems: RR at 80, LC and WLC at 187 requests a second, the machine disturbing all of a repetition alike.
fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for (repetition, disturbed) in [0.0, 3.0, -2.0, 4.0, -5.0].into_iter().enumerate() {
        let i = repetition as u32 + 1;
        let own = f64::from(i % 3) * 0.4;
        for system in [System::Balanza, System::Nginx] {
            runs.push(run(system.clone(), "RR", i, 80.0 + disturbed + own, 2.3, 0.5));
            runs.push(run(system.clone(), "LC", i, 187.0 + disturbed, 1.3 + own / 100.0, 0.78));
            runs.push(run(system.clone(), "WLC", i, 186.6 + disturbed + own, 1.3, 0.79));
            runs.push(run(system, "one", i, 146.0 + disturbed, 1.6, 1.0));
        }
    }
    runs
}

fn words(summary: &Summary) -> String {
    let lines = summary.rankings.iter().map(|ranking| {
        let among = match &ranking.among {
            Among::Algorithms(system) => format!("in {system}"),
            Among::Systems(algorithm) => format!("with {algorithm}"),
        };
        format!("{among}, {}: {}\n", ranking.metric, ranking.words)
    });
    lines.collect()
}

#[test]
fn verdicts_in_words() {
    let summary = summarize(&plan(&[]), &runs(), &[]);
    insta::assert_snapshot!(words(&summary));
    let places = &summary.rankings[0].places;
    let names: Vec<&str> = places.iter().map(|place| place.name.as_str()).collect();
    assert_eq!(names, ["WLC", "LC", "RR", "one"]);
    assert_eq!((places[0].verdict, places[1].verdict), (Verdict::Best, Verdict::Tied));
    assert!(matches!(places[2].verdict, Verdict::Worse { low, high } if 0.55 < low && high < 0.58), "{places:?}");
    assert_eq!(places[3].verdict, Verdict::Unranked);
}

#[test]
fn what_cannot_be_ranked_says_why() {
    let mut runs = runs();
    runs.retain(|run| run.cell.algorithm != "WLC" || run.repetition == 1);
    for run in runs.iter_mut().filter(|run| run.cell.algorithm == "LC") {
        let failed = run.measured.answered / 4;
        run.measured.ended += failed;
        let kind = if run.cell.system == System::Balanza { ErrorKind::Ports } else { ErrorKind::Timeout };
        run.measured.errors.insert(kind, failed);
    }
    for run in runs.iter_mut().filter(|run| run.cell.algorithm == "RR" && run.cell.system == System::Nginx) {
        run.invalid.push("the client was the bottleneck".into());
    }
    let summary = summarize(&plan(&[]), &runs, &[]);
    insta::assert_snapshot!(words(&summary));
    let cell = summary.cells.iter().find(|c| c.cell.algorithm == "RR" && c.cell.system == System::Nginx).unwrap();
    assert_eq!((cell.runs, cell.invalid.len(), cell.metrics.len()), (0, 5, 0));
}

#[test]
fn equal_ones_are_a_tie_with_a_bound() {
    let tie = |disturbances: &[f64]| {
        let contestant = |name: &str, scale: f64| Contestant {
            name: name.into(),
            control: false,
            values: (1..).zip(disturbances.iter().map(|d| 100.0 + scale * d)).collect(),
            client_errors: 0.0,
            errors: 0.0,
        };
        rank("rps", vec![contestant("A", 1.0), contestant("B", -1.0), contestant("C", 0.5)]).unwrap()
    };
    let (places, words) = tie(&[0.3, -0.2, -0.4, 0.5, -0.1]);
    assert!(places.iter().all(|place| place.verdict == Verdict::Tied), "{places:?}");
    insta::assert_snapshot!(words, @"No detectable difference in throughput between A, C and B (100.0 requests/s); differences up to 1.4% cannot be excluded.");
    insta::assert_snapshot!(tie(&[0.0, 0.0, 0.0]).1, @"A, B and C have the same throughput (100.0 requests/s).");
}

/// Seven equal algorithms are 21 pairs: somebody is called worse than the best in at most one experiment of twenty.
#[test]
fn equal_ones_are_seldom_told_apart() {
    let mut random = Random(3);
    let experiments = 400;
    let wrong = (0..experiments).filter(|_| {
        let contestants = (0..7).map(|i| Contestant {
            name: i.to_string(),
            control: false,
            values: (1..=5).map(|repetition| (repetition, 100.0 + random.normal())).collect(),
            client_errors: 0.0,
            errors: 0.0,
        });
        let (places, _) = rank("rps", contestants.collect()).unwrap();
        places.iter().any(|place| place.verdict != Verdict::Tied)
    });
    let wrong = wrong.count() as f64 / f64::from(experiments);
    assert!(wrong <= 0.05 + 2.0 * (0.05 * 0.95 / f64::from(experiments)).sqrt(), "{wrong}");
}

#[test]
fn a_cell_is_all_of_its_runs() {
    let summary = summarize(&plan(&[]), &runs(), &[]);
    let cell = &summary.cells[1];
    assert_eq!((cell.cell.to_string().as_str(), cell.runs), ("balanza, LC, load 250, farm uneven", 5));
    let metric = |name: &str| (cell.metrics[name].mean * 1e4).round() / 1e4;
    let expected = [
        ("rps", 187.0),
        ("requests", 1870.0),
        ("error_share", 0.0),
        ("median", 1.3048),
        ("jain", 0.7615),
        ("cpu_balancer", 0.3),
        ("cpu_servers", 0.6),
        ("memory_balancer", 4e6),
        ("transfer_rate", 37_400.0),
    ];
    for (name, value) in expected {
        assert_eq!(metric(name), value, "{name}");
    }
    for absent in ["connect_mean", "cpu_client", "connections_max"] {
        assert!(!cell.metrics.contains_key(absent), "{absent}");
    }
    assert_eq!(cell.latency.count, 9350);
    assert_eq!(cell.shares.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["fast", "slow"]);
    assert!((cell.shares[0].1.mean - 0.78).abs() < 1e-3);
    let processes: Vec<(&str, Role)> = cell.cpu.iter().map(|(name, role, _)| (name.as_str(), *role)).collect();
    assert_eq!(processes, [("balanza", Role::Balancer), ("fast", Role::Server), ("slow", Role::Server)]);
    let control = summary.cells.iter().find(|cell| cell.cell.algorithm == "one").unwrap();
    assert_eq!(control.metrics["jain"].mean, 1.0, "one server of one");
}

#[test]
fn cells_without_runs_are_missing() {
    let mut plan = plan(&[]);
    plan.systems = vec![System::Balanza, System::Haproxy];
    let mut runs = runs();
    runs.retain(|run| run.cell.system == System::Balanza && run.cell.algorithm != "one");
    let of = |algorithm: &str| Cell { system: System::Haproxy, algorithm: algorithm.into(), ..runs[0].cell.clone() };
    let left_out: Vec<(Cell, String)> = ["RR", "LC", "WLC"].map(|name| (of(name), "no HAProxy".into())).into();
    let missing = summarize(&plan, &runs, &left_out).missing;
    let shown: Vec<String> =
        missing.iter().map(|(cell, why)| format!("{}/{}: {why}", cell.system, cell.algorithm)).collect();
    assert_eq!(
        shown,
        [
            "balanza/one: no run yet",
            "haproxy/RR: no HAProxy",
            "haproxy/LC: no HAProxy",
            "haproxy/WLC: no HAProxy",
            "haproxy/one: no run yet"
        ]
    );
}

#[test]
fn claims() {
    use Holds::{CannotBeTold, No, Yes};
    let asked = [
        (r#"rps("LC") ~ 187 within 5%"#, Yes),
        (r#"rps("LC") ~ 150 within 5%"#, No),
        (r#"rps("LC") ~ 182 within 3%"#, CannotBeTold),
        (r#"rps("RR") < 0.9 * rps("LC")"#, Yes),
        (r#"rps("RR") >= 0.9 * rps("LC")"#, No),
        (r#"rps("LC") > 185"#, CannotBeTold),
        (r#"tie(rps("LC"), rps("WLC"))"#, Yes),
        (r#"tie(rps("LC"), rps("RR"))"#, No),
        (r#"share("RR", server="fast") ~ 1/2 within 2%"#, Yes),
        (r#"max("LC") < 0.6 * max("RR") and errors_per_second("LC") <= 0"#, Yes),
        (r#"rps("LC") > 185 and rps("RR") > 100"#, No),
        (r#"rps("LC") > 185 or rps("RR") > 100"#, CannotBeTold),
        (r#"not (rps("LC") > 185 or rps("RR") < 100)"#, No),
        (r#"mean("LC") < 1500ms"#, Yes),
        (r#"rps("one") < least(rps("LC"), rps("WLC"))"#, Yes),
        (r#"rps("one") > greatest(rps("RR"), 100)"#, Yes),
        (r#"connect_mean("LC") < 1ms"#, CannotBeTold),
        (r#"rps("LC", system="direct") > rps("LC")"#, CannotBeTold),
        (r#"rps("LX") > 1"#, CannotBeTold),
        ("1 < 2", Yes),
    ];
    let plan = plan(&asked.map(|(expression, _)| (expression, true)));
    let summary = summarize(&plan, &runs(), &[]);
    let mut numbers = String::new();
    for (i, (expression, holds)) in asked.iter().enumerate() {
        let answers: Vec<_> = summary.checks.iter().filter(|verified| verified.check == format!("c{i}")).collect();
        assert_eq!(answers.iter().map(|v| v.system.name()).collect::<Vec<_>>(), ["balanza", "nginx"], "{expression}");
        for verified in &answers {
            assert_eq!(verified.holds, *holds, "{expression}: {}", verified.numbers);
            assert_eq!(
                verified.expected,
                match holds {
                    Yes => Some(true),
                    No => Some(false),
                    _ => None,
                }
            );
        }
        numbers += &format!("{expression}\n  {:?}: {}\n", holds, answers[0].numbers);
    }
    insta::assert_snapshot!(numbers);
}

#[test]
fn what_must_not_hold_is_expected_not_to() {
    let summary = summarize(&plan(&[(r#"rps("RR") > 1.35 * rps("LC")"#, false)]), &runs(), &[]);
    assert!(summary.checks.iter().all(|v| v.holds == Holds::No && v.expected == Some(true)));
}

#[test]
fn a_single_repetition_tells_nothing() {
    let mut runs = runs();
    runs.retain(|run| run.repetition == 2);
    let summary = summarize(&plan(&[(r#"rps("RR") < rps("LC")"#, true)]), &runs, &[]);
    assert!(summary.checks.iter().all(|v| v.holds == Holds::CannotBeTold && v.expected.is_none()));
    assert!(summary.rankings.iter().all(|r| r.places.iter().all(|place| place.verdict == Verdict::Unranked)));
}

/// A claim goes to the systems that have what it speaks of, to those that it names, or once if it names them itself.
#[test]
fn systems_that_a_claim_is_asked_of() {
    let expressions = [
        (r#"rps("RR") < rps("LC")"#, true),
        (r#"rps("RR", system="nginx") < rps("LC", system="balanza")"#, true),
        (r#"rps("WLC") > 0"#, true),
    ];
    let mut plan = plan(&expressions);
    plan.checks[2].systems = vec![System::Nginx];
    let left_out = vec![(Cell { system: System::Nginx, ..runs()[1].cell.clone() }, "no least_conn".to_string())];
    let mut runs = runs();
    runs.retain(|run| run.cell.system == System::Balanza || run.cell.algorithm == "RR");
    let summary = summarize(&plan, &runs, &left_out);
    let asked: Vec<(&str, &str)> = summary.checks.iter().map(|v| (v.check.as_str(), v.system.name())).collect();
    assert_eq!(asked, [("c0", "balanza"), ("c1", "nginx"), ("c2", "nginx")]);
    assert_eq!(summary.checks[2].numbers, "nginx, WLC, load 250, farm uneven: no run yet");
}

#[test]
fn without_runs_there_is_nothing_to_say() {
    let summary = summarize(&plan(&[("rps(\"RR\") > 0", true)]), &[], &[]);
    assert_eq!((summary.cells.len(), summary.rankings.len()), (0, 0));
    assert_eq!(summary.missing.len(), 9);
    assert!(summary.checks.iter().all(|verified| verified.holds == Holds::CannotBeTold));
    let infinite = BTreeMap::from([(1, f64::INFINITY), (2, 1.0)]);
    let contestant = |name: &str| Contestant {
        name: name.into(),
        control: false,
        values: infinite.clone(),
        client_errors: 0.0,
        errors: 0.0,
    };
    assert!(rank("rps", vec![contestant("A"), contestant("B")]).is_some());
}

/// What the plans that come with the program claim is decided: runs that say nothing leave it open, for a reason.
#[test]
fn claims_of_the_plans_that_come_along() {
    for plan in Plan::built_in() {
        let parsed = Plan::parse(plan.text).unwrap();
        let cells = parsed.cells(&|_, _, _| Ok(()));
        let mut runs = Vec::new();
        for cell in &cells.run {
            for repetition in 1..=parsed.repetitions {
                let run = run(cell.system.clone(), &cell.algorithm, repetition, 50.0 + f64::from(repetition), 0.1, 0.5);
                runs.push(Run { cell: cell.clone(), ..run });
            }
        }
        let summary = summarize(&parsed, &runs, &cells.left_out);
        let names: std::collections::BTreeSet<&str> = summary.checks.iter().map(|v| v.check.as_str()).collect();
        assert_eq!(names.len(), parsed.checks.len(), "{}: each claim is asked", plan.name);
        assert_eq!((summary.cells.len(), summary.missing.len()), (cells.run.len(), 0), "{}", plan.name);
        for verified in &summary.checks {
            for reason in ["no run", "not among", "cannot be read", "does not have"] {
                assert!(!verified.numbers.contains(reason), "{}: {verified:?}", plan.name);
            }
        }
    }
}
