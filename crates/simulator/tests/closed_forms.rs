//! Simulations against formulas: within twice their own 95 % confidence intervals, which have to be narrow.
//!
//! Seeds are fixed, so that a test that passes goes on passing; twice the interval is left by one seed in ten thousand.

use std::path::Path;

use balanza_simulator::result::Run;
use balanza_simulator::{Progress, Scenario, run};

fn simulate(text: &str) -> Vec<Run> {
    let comparison = run(&Scenario::parse(text).unwrap(), Path::new("."), &Progress::new()).unwrap();
    comparison.points.into_iter().flat_map(|point| point.runs).collect()
}

/// One algorithm; the service time has a mean of 1.
fn single(algorithm: &str, load: f64, service: &str, servers: &str, requests: u64) -> Run {
    let text = format!(
        "algorithms = [\"{algorithm}\"]\nloads = [{load}]\nseed = 7\nreplications = 10\nrun.requests = {requests}\n\
         service = {{ {service} }}\n[[servers]]\n{servers}\n"
    );
    simulate(&text).remove(0)
}

#[track_caller]
fn agrees(run: &Run, expected: f64, narrow: f64) {
    let half = run.ci95.unwrap();
    let mean = run.mean_time_in_system;
    assert!(half < narrow * expected, "{}: ± {half} is wide for {expected}", run.algorithm);
    assert!((mean - expected).abs() < 2.0 * half, "{}: {mean} ± {half}, not {expected}", run.algorithm);
    assert!((run.utilization - run.load).abs() < 0.01, "{}: used {}, not {}", run.algorithm, run.utilization, run.load);
    // Little's law, for the servers.
    let little = run.mean_queue * run.servers as f64 / (run.throughput * mean);
    assert!((little - 1.0).abs() < 0.02, "{}: Little's law is off by {little}", run.algorithm);
}

const EXPONENTIAL: &str = "kind = \"exponential\", mean = 1";

#[test]
fn one_exponential_server() {
    for load in [0.3, 0.7, 0.9] {
        let run = single("round_robin", load, EXPONENTIAL, "count = 1", 300_000);
        agrees(&run, 1.0 / (1.0 - load), 0.05);
        // The time in system is exponential too.
        let rate = 1.0 - load;
        for (p, q) in [(0.5, run.quantiles.p50), (0.9, run.quantiles.p90), (0.99, run.quantiles.p99)] {
            let expected = -(1.0_f64 - p).ln() / rate;
            assert!((q - expected).abs() < 0.08 * expected, "load {load}, quantile {p}: {q}, not {expected}");
        }
    }
}

#[test]
fn one_server_of_constant_service() {
    for load in [0.5, 0.8] {
        let run = single("round_robin", load, "kind = \"constant\", mean = 1", "count = 1", 300_000);
        agrees(&run, 1.0 + load / (2.0 * (1.0 - load)), 0.03);
    }
}

/// Pollaczek and Khinchine: the wait goes with the second moment of the service.
#[test]
fn one_server_of_any_service() {
    let load = 0.6;
    let wait = |second_moment: f64| 1.0 + load * second_moment / (2.0 * (1.0 - load));
    let cases = [
        ("kind = \"uniform\", from = 0, to = 2", 4.0 / 3.0),
        ("kind = \"lognormal\", mean = 1, cv = 1.5", 3.25),
        ("kind = \"bimodal\", short = 0.5, long = 5.5, part = 0.1", 0.9 * 0.25 + 0.1 * 30.25),
    ];
    for (service, second) in cases {
        agrees(&single("round_robin", load, service, "count = 1", 400_000), wait(second), 0.08);
    }
}

/// Erlang's C formula.
#[test]
fn several_processors_and_one_queue() {
    for (k, load) in [(2, 0.8), (8, 0.9)] {
        let run = single("round_robin", load, EXPONENTIAL, &format!("count = 1\nconcurrency = {k}"), 400_000);
        let offered = load * f64::from(k);
        let mut term = 1.0;
        let mut sum = 0.0;
        for i in 0..k {
            sum += term;
            term *= offered / f64::from(i + 1);
        }
        let c = term / (1.0 - load) / (sum + term / (1.0 - load));
        agrees(&run, 1.0 + c / (f64::from(k) - offered), 0.05);
    }
}

/// Of a shared processor the mean depends on the mean service alone.
#[test]
fn processor_sharing_is_insensitive() {
    let services =
        [EXPONENTIAL, "kind = \"constant\", mean = 1", "kind = \"bimodal\", short = 0.5, long = 5.5, part = 0.1"];
    for service in services {
        let run = single("round_robin", 0.7, service, "count = 1\ndiscipline = \"ps\"", 300_000);
        agrees(&run, 1.0 / 0.3, 0.05);
    }
}

/// Two processors that are shared, and a request that uses one at most, are M/M/2 with another order: the mean is the same.
#[test]
fn shared_processors() {
    let run = single("round_robin", 0.8, EXPONENTIAL, "count = 1\ndiscipline = \"ps\"\nconcurrency = 2", 400_000);
    agrees(&run, 1.0 / (1.0 - 0.64), 0.05);
}

/// Random draws split a Poisson process into Poisson processes: each server is M/M/1, the supermarket model for d = 1.
#[test]
fn random_servers() {
    agrees(&single("random", 0.9, EXPONENTIAL, "count = 50", 1_000_000), 10.0, 0.03);
}

/// Turns give each of n servers every n-th of the Poisson arrivals: E_n/M/1, whose mean is 1 / (1 - s), where s is the root
/// below 1 of `s = (n load / (n load + 1 - s))^n`.
#[test]
fn round_robin_servers() {
    for (n, load) in [(2, 0.8), (10, 0.9)] {
        let rate = f64::from(n) * load;
        let root = (0..10_000).fold(0.0, |s: f64, _| (rate / (rate + 1.0 - s)).powi(n));
        let run = single("round_robin", load, EXPONENTIAL, &format!("count = {n}"), 500_000);
        agrees(&run, 1.0 / (1.0 - root), 0.03);
    }
}

/// Servers of one place each that are filled in order: what the first i leave over is Erlang's B formula for i, so that
/// server i carries the difference of two of them.
#[test]
fn first_fills_in_order() {
    let offered = 3.0;
    let text = format!(
        "algorithms = [\"first\"]\nloads = [{}]\nseed = 7\nreplications = 5\nrun.requests = 200000\n\
         [[servers]]\ncount = 6\nmax_conns = 1\n",
        offered / 6.0
    );
    let run = &simulate(&text)[0];
    let mut left = 1.0;
    for (i, server) in run.per_server.iter().enumerate() {
        let rest = offered * left / (1.0 + i as f64 + offered * left);
        let expected = offered * (left - rest);
        assert!((server.utilization - expected).abs() < 0.01, "server {i}: {}, not {expected}", server.utilization);
        left = rest;
    }
    let lost = run.counts.errors as f64 / run.counts.arrivals as f64;
    assert!((lost - left).abs() < 0.005, "{lost} lost, not {left}");
}

/// The better of two, 100 servers: numbers of the finite system.
#[test]
fn supermarket_of_a_hundred() {
    for (load, expected) in [(0.5, 1.2673), (0.7, 1.6202), (0.9, 2.6454)] {
        let run = single("two_choices", load, EXPONENTIAL, "count = 100", 400_000);
        agrees(&run, expected, 0.01);
    }
}

/// In the limit of many servers: `sum over i of load^((d^i - d) / (d - 1))`. With 20,000 servers the difference to it is
/// below a thousandth.
#[test]
fn supermarket_in_the_limit() {
    for (d, load) in [(2, 0.7), (3, 0.7)] {
        let run = single(&format!("two_choices choices={d}"), load, EXPONENTIAL, "count = 20000", 600_000);
        let d = f64::from(d);
        let expected: f64 = (1..30).map(|i| load.powf((d.powi(i) - d) / (d - 1.0))).sum();
        let error = (run.mean_time_in_system - expected).abs();
        assert!(error < 0.004 * expected, "{d}: {} ± {:?}, not {expected}", run.mean_time_in_system, run.ci95);
    }
}

/// The best server of the choice before is worth something, but less than another draw.
#[test]
fn a_memory_is_worth_less_than_a_draw() {
    for load in [0.7, 0.9] {
        let mean = |algorithm| single(algorithm, load, EXPONENTIAL, "count = 100", 100_000).mean_time_in_system;
        let means = ["two_choices", "choices_with_memory", "two_choices choices=3"].map(mean);
        assert!(means[1] < 0.95 * means[0] && means[2] < 0.98 * means[1], "{load}: {means:?}");
    }
}

/// All servers' queues seen at once, and one queue for all: the bounds that no algorithm leaves.
#[test]
fn algorithms_are_in_order() {
    let text = "algorithms = [\"random\", \"round_robin\", \"two_choices\", \"two_choices choices=5\", \"least_conn\"]\n\
                loads = [0.9]\nreplications = 6\nrun.requests = 200000\n[[servers]]\ncount = 10\n";
    let means: Vec<f64> = simulate(text).iter().map(|run| run.mean_time_in_system).collect();
    assert!(means.windows(2).all(|pair| pair[0] > pair[1]), "{means:?}");
    let central = single("round_robin", 0.9, EXPONENTIAL, "count = 1\nconcurrency = 10", 300_000);
    assert!(means[4] > central.mean_time_in_system);
}

/// Closed loop: throughput and time in system hold `N = X * (R + Z)`, and a lone server with exponential service is a
/// birth-death chain.
#[test]
fn users_that_think() {
    let text = "algorithms = [\"round_robin\"]\nreplications = 10\nrun.duration = \"20000s\"\n\
                arrivals = { kind = \"closed\", users = [5], think = { kind = \"exponential\", mean = 4 } }\n\
                [[servers]]\ncount = 1\n";
    let run = &simulate(text)[0];
    // p(n) ~ N! / (N - n)! (S / Z)^n.
    let mut weight = 1.0;
    let mut weights = vec![1.0];
    for n in 0..5 {
        weight *= f64::from(5 - n) / 4.0;
        weights.push(weight);
    }
    let busy = 1.0 - weights[0] / weights.iter().sum::<f64>();
    assert!((run.throughput - busy).abs() < 0.01, "{} {busy}", run.throughput);
    let round = 5.0 / run.throughput - 4.0;
    assert!((run.mean_time_in_system - round).abs() < 0.03 * round, "{} {round}", run.mean_time_in_system);
}

/// Lu et al. 2011: with r servers to a dispatcher a part p of the queues of idle servers is not empty, where
/// p / (1 - p) = r (1 - load); the other requests make busy servers M/M/1 queues of load * (1 - p). For many servers.
#[test]
fn idle_servers_enlist_with_one_of_several_dispatchers() {
    let text = "algorithms = [\"join_idle_queue\"]\nloads = [0.9]\nseed = 7\nreplications = 4\nrun.requests = 200_000\n\
                service = { kind = \"exponential\", mean = 1 }\ndispatchers = { count = 10, view = \"own\" }\n\
                [[servers]]\ncount = 100\n";
    let run = simulate(text).remove(0);
    let odds = 10.0 * (1.0 - 0.9);
    let expected = 1.0 / (1.0 - 0.9 / (1.0 + odds));
    let mean = run.mean_time_in_system;
    assert!((mean / expected - 1.0).abs() < 0.08, "{mean}, and {expected} for many servers");
}
