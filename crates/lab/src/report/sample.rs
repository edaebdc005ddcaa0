//! An experiment that never was, for the tests of reports: two unequal servers, two systems, three loads.

use std::collections::BTreeMap;

use crate::environment::Environment;
use crate::plan::{Cell, Plan, System, Tool};
use crate::record::{ErrorKind, Latency, Measured, ProcessRecord, Role, Run, ServerRecord};
use crate::summary::{Among, CellSummary, Estimate, Holds, Place, Ranking, Summary, Verdict, Verified};

const PLAN: &str = r#"
name = "two-unequal"
title = "Two unequal servers"
about = """
One server answers 150 requests per second and one 40. Which algorithm
uses both best?

Users wait for their answers and send again."""
repetitions = 3
seed = 7
systems = ["balanza", "nginx"]

[document]
citation = "Two servers, An author, 2021"
setup = "Three small virtual machines."
differences = "One machine; the servers' service times are as measured there."

[[farms]]
name = "two unequal"
servers = [{ name = "fast" }, { name = "slow" }]

[[algorithms]]
name = "round_robin"
balance = "round_robin"
[[algorithms]]
name = "WRR 3:1"
balance = "round_robin"
weights = [3, 1]
[[algorithms]]
name = "least_conn"
balance = "least_conn"
[[algorithms]]
name = "fast alone"
balance = "round_robin"
servers = ["fast"]
control = true

[[loads]]
name = "10"
users = 10
duration = "20s"
warmup = "5s"
rtt = "171ms"
[[loads]]
name = "100"
users = 100
duration = "20s"
warmup = "5s"
rtt = "171ms"
[[loads]]
name = "250"
users = 250
duration = "20s"
warmup = "5s"
rtt = "171ms"

[[checks]]
name = "lc-reaches-the-sum"
says = "Least connections reaches the sum of both servers' capacities."
document = "188.86 of 186.94 requests/s"
expression = "rps('least_conn', load='250') ~ 186.9 within 5%"
[[checks]]
name = "rr-beats-lc"
says = "Round robin is faster than least connections."
expression = "rps('round_robin', load='250') > rps('least_conn', load='250')"
must = false
[[checks]]
name = "no-algorithm-matters-at-10"
says = "With 10 users no algorithm matters."
expression = "tie(rps('round_robin', load='10'), rps('least_conn', load='10'))"
systems = ["balanza"]

[[reported]]
algorithm = "round_robin"
load = "250"
rps = 87.36
rps_sd = 10.37
median = 0.72
mean = 2.359
max = 38.024
[[reported]]
algorithm = "least_conn"
row = "LC"
load = "250"
rps = 188.86
rps_sd = 0.2
median = 0.89
mean = 1.302
max = 5.136
[[reported]]
algorithm = "round_robin"
load = "100"
rps = 84.8
"#;

/// Requests a second at 10, 100 and 250 users.
const RATES: [(&str, [f64; 3]); 4] = [
    ("round_robin", [44.7, 80.1, 80.4]),
    ("WRR 3:1", [49.6, 158.3, 159.2]),
    ("least_conn", [51.2, 186.2, 187.1]),
    ("fast alone", [51.4, 146.1, 146.8]),
];

/// The estimate from three repetitions that differ by about this part.
fn estimate(mean: f64, part: f64) -> Estimate {
    let values: Vec<f64> = [-1.0, 0.4, 0.6].iter().map(|step| mean * (1.0 + step * part)).collect();
    let sd = mean * part * 0.871_78;
    let half = 4.302_65 * sd / 3f64.sqrt();
    Estimate { mean, sd: Some(sd), median: values[1], interval: Some((mean - half, mean + half)), values }
}

/// A distribution with this mean: a floor and a long tail.
fn latency(mean: f64, count: u64) -> Latency {
    let buckets = (1..=200u32).map(|step| {
        let time = 0.171 + (mean - 0.17).max(0.004) * 0.025 * f64::from(step).powf(1.16);
        (time, (count as f64 * 0.06 * (-0.06 * f64::from(step)).exp()).round() as u64)
    });
    let histogram: Vec<(f64, u64)> = buckets.filter(|bucket| bucket.1 > 0).collect();
    let count = histogram.iter().map(|bucket| bucket.1).sum();
    let max = histogram.last().map(|bucket| bucket.0);
    let mut latency = Latency {
        count,
        mean: Some(mean),
        sd: Some(mean * 0.8),
        min: Some(0.1711),
        max,
        histogram,
        ..Latency::default()
    };
    latency.percentiles =
        [50.0, 90.0, 95.0, 99.0, 99.9].iter().map(|&part| (part, latency.quantile(part / 100.0).unwrap())).collect();
    latency
}

fn cell(system: &System, algorithm: &str, load: &str) -> Cell {
    Cell { farm: "two unequal".into(), load: load.into(), system: system.clone(), algorithm: algorithm.into() }
}

fn shares(algorithm: &str) -> f64 {
    match algorithm {
        "round_robin" => 0.5,
        "WRR 3:1" => 0.75,
        "fast alone" => 1.0,
        _ => 0.79,
    }
}

fn measured(cell: &Cell, users: f64, rate: f64) -> CellSummary {
    let factor = if cell.system == System::Nginx { 0.995 } else { 1.0 };
    let (rate, mean) = (rate * factor, users / (rate * factor));
    let latency = latency(mean, (rate * 45.0) as u64);
    let mut metrics: BTreeMap<String, Estimate> = BTreeMap::new();
    let mut put = |name: &str, value: f64, part| metrics.insert(name.into(), estimate(value, part));
    put("rps", rate, 0.004);
    put("mean", mean, 0.005);
    put("sd", mean * 0.8, 0.02);
    put("min", 0.1711, 0.001);
    for (name, part) in [("median", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
        put(name, latency.quantile(part).unwrap(), 0.03);
    }
    let failing = cell.load == "250" && cell.algorithm == "round_robin";
    put("errors_per_second", if failing { 0.41 } else { 0.0 }, 0.2);
    put("transfer_rate", rate * 180.0, 0.004);
    let share = shares(&cell.algorithm);
    put("jain", 1.0 / (2.0 * (share * share + (1.0 - share) * (1.0 - share))), 0.001);
    let cpu = |name: &str, role, value| (name.to_string(), role, estimate(value, 0.02));
    CellSummary {
        cell: cell.clone(),
        tool: Tool::Balanza,
        closed_loop: true,
        runs: 3,
        invalid: Vec::new(),
        metrics,
        latency,
        errors: if failing {
            BTreeMap::from([(ErrorKind::Timeout, 18), (ErrorKind::Ports, 2)])
        } else {
            BTreeMap::new()
        },
        sent_late: 0,
        replayed: None,
        events: Vec::new(),
        shares: vec![("fast".into(), estimate(share, 0.001)), ("slow".into(), estimate(1.0 - share, 0.001))],
        cpu: vec![
            cpu("balancer", Role::Balancer, rate * 0.0009),
            cpu("fast", Role::Server, rate * share * 0.001),
            cpu("slow", Role::Server, rate * (1.0 - share) * 0.001),
            cpu("client", Role::Client, rate * 0.0006),
        ],
        memory: vec![("balancer".into(), Role::Balancer, estimate(9_400_000.0, 0.01))],
    }
}

fn ranking(system: &System, load: &str, rates: [f64; 3]) -> Ranking {
    let tied = load == "10";
    let place =
        |name: &str, value: f64, verdict| Place { name: name.into(), estimate: estimate(value, 0.004), verdict };
    let worse = |low, high| if tied { Verdict::Tied } else { Verdict::Worse { low, high } };
    Ranking {
        farm: "two unequal".into(),
        load: load.into(),
        among: Among::Algorithms(system.clone()),
        metric: "rps".into(),
        places: vec![
            place("least_conn", rates[2], if tied { Verdict::Tied } else { Verdict::Best }),
            place("WRR 3:1", rates[1], worse(0.141, 0.158)),
            place("round_robin", rates[0], worse(0.561, 0.583)),
            place("fast alone", 146.0, Verdict::Unranked),
        ],
        words: match tied {
            true => "No detectable difference between least_conn, WRR 3:1 and round_robin.".into(),
            false => "least_conn is best (187 requests/s); WRR 3:1 is 14 to 16% worse, round_robin is 56 to 58% worse. For comparison: fast alone 146.0 requests/s.".into(),
        },
    }
}

/// All of it.
pub(crate) fn summary() -> Summary {
    let plan: Plan = toml::from_str(PLAN).expect("the sample's plan is one");
    let mut cells = Vec::new();
    let mut rankings = Vec::new();
    for (index, (load, users)) in [("10", 10.0), ("100", 100.0), ("250", 250.0)].into_iter().enumerate() {
        for system in &plan.systems {
            for (algorithm, rates) in RATES {
                cells.push(measured(&cell(system, algorithm, load), users, rates[index]));
            }
            rankings.push(ranking(system, load, [RATES[0].1[index], RATES[1].1[index], RATES[2].1[index]]));
        }
    }
    let why = "the client was the bottleneck: it sent 12% of the requests more than 5 ms late".to_string();
    cells[1].invalid.push((2, vec![why]));
    let missing = cells.pop().map(|cell| (cell.cell, "nginx ended with status 1: bind() failed".to_string()));
    let verified = |check: &str, system: &System, holds, expected, numbers: &str| Verified {
        check: check.into(),
        system: system.clone(),
        holds,
        expected,
        numbers: numbers.into(),
    };
    let (lc, rr) = ("lc-reaches-the-sum", "rr-beats-lc");
    let numbers = "rps(least_conn) 187.1 [185.4, 188.8]; 186.9";
    let checks = vec![
        verified(lc, &System::Balanza, Holds::Yes, Some(true), numbers),
        verified(lc, &System::Nginx, Holds::No, Some(false), "rps(least_conn) 171.4 [170.2, 172.6]; 186.9"),
        verified(
            rr,
            &System::Balanza,
            Holds::No,
            Some(true),
            "rps(round_robin) 80.4 [79.6, 81.2]; rps(least_conn) 187.1",
        ),
        verified(
            rr,
            &System::Nginx,
            Holds::No,
            Some(true),
            "rps(round_robin) 80.0 [79.2, 80.8]; rps(least_conn) 186.2",
        ),
        verified("no-algorithm-matters-at-10", &System::Balanza, Holds::CannotBeTold, None, "too few runs"),
    ];
    Summary { plan, cells, rankings, checks, missing: missing.into_iter().collect() }
}

/// The numbers on the axes of a picture, and the labels of the axes.
pub(crate) fn numbers_on_axes(svg: &str) -> Vec<&str> {
    let texts = svg.split("<text class=\"quiet\"").skip(1);
    texts.filter_map(|text| text.split_once('>')?.1.split_once("</text>").map(|(label, _)| label)).collect()
}

/// Where it ran.
pub(crate) fn environment() -> Environment {
    let facts = [
        ("processor", "a processor, 2 cores"),
        ("kernel", "Linux 6.1"),
        ("nginx", "1.22.1"),
        ("net.core.somaxconn", "4096"),
    ];
    Environment { facts: facts.map(|(name, value)| (name.to_string(), value.to_string())).to_vec() }
}

/// Two of its runs.
pub(crate) fn runs() -> Vec<Run> {
    let run = |repetition, algorithm: &str, measured| Run {
        cell: cell(&System::Balanza, algorithm, "250"),
        repetition,
        order: repetition + 4,
        started: "2026-01-02T03:04:05Z".into(),
        measured,
        servers: vec![ServerRecord { name: "fast".into(), requests: 2900, ..ServerRecord::default() }],
        events: Vec::new(),
        processes: vec![
            ProcessRecord {
                name: "balanza".into(),
                user: 1.0,
                system: 2.0,
                memory_max: 9_400_000,
                ..process(Role::Balancer)
            },
            ProcessRecord { name: "fast".into(), user: 1.5, ..process(Role::Server) },
        ],
        invalid: if repetition > 1 { vec!["the client was late".into()] } else { Vec::new() },
    };
    let closed = Measured { closed_loop: true, seconds: 15.0, ended: 2808, answered: 2806, ..Measured::default() };
    let first = Measured {
        errors: BTreeMap::from([(ErrorKind::Timeout, 2)]),
        latency: latency(1.3, 2800),
        bytes: Some(505_000),
        cpu: Some(0.11),
        ..closed.clone()
    };
    vec![run(1, "least_conn", first), run(2, "round_robin", Measured { tool: Tool::Ab, ..closed })]
}

fn process(role: Role) -> ProcessRecord {
    ProcessRecord { role, ..ProcessRecord::default() }
}
