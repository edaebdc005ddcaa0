//! The ready scenarios of servers that fail and of too much load show what their descriptions say.

mod common;

use balanza_simulator::result::{Point, Run};
use balanza_simulator::scenario::{Errors, Scenario};

use common::{mean, near, of, only, ready};

/// The part of the requests that failed between these times, in the first replication.
fn failed_between(run: &Run, from: f64, to: f64) -> f64 {
    let samples = || run.queues.iter().filter(|sample| from < sample.time && sample.time <= to);
    let ended: u64 = samples().map(|sample| sample.ended).sum();
    assert!(ended > 0, "no request ended between {from} and {to} s with seed {}", run.seed);
    samples().map(|sample| sample.failed).sum::<u64>() as f64 / ended as f64
}

#[test]
fn errors_that_come_fast_attract() {
    let mut scenario = Scenario { replications: 2, ..ready("fails-fast") };
    let lost = |point: &Point, algorithm| {
        let counts = &of(point, algorithm).counts;
        counts.errors as f64 / counts.arrivals as f64
    };
    let point = only(&scenario);
    // A tenth of the requests in 30 of 80 seconds.
    near(lost(&point, "round_robin"), 0.1 * 30.0 / 80.0, 0.05);
    assert!(lost(&point, "least_conn") > 2.0 * lost(&point, "round_robin"), "the failing server is always idle");
    assert!(lost(&point, "peak_ewma") < 0.1 * lost(&point, "round_robin"), "an error counts as a long time");
    scenario.requests.errors = Errors::Fail;
    assert!(lost(&only(&scenario), "least_conn") < 0.01, "passive health checks");
}

#[test]
fn ejection_helps_where_one_server_fails() {
    let point = only(&Scenario { replications: 2, ..ready("ejected-server") });
    let errors = |algorithm: &str| of(&point, algorithm).counts.errors;
    for (algorithm, without) in [("round_robin", 3_900), ("least_conn", 9_000)] {
        assert!(errors(algorithm) > without, "{algorithm}: {}", errors(algorithm));
        // Five, one for each probe, and those that were there, in each replication.
        let ejecting = format!("{algorithm} + outlier time=10s");
        let count = errors(&ejecting);
        assert!((12..=20).contains(&count), "{ejecting}: {count}");
    }
    // It is used again.
    let last = |algorithm: &str| of(&point, algorithm).per_server[9].requests;
    assert!(last("round_robin + outlier time=10s") > 0.4 * last("round_robin"));
}

#[test]
fn ejection_hurts_where_all_servers_fail_alike() {
    let point = only(&Scenario { replications: 2, ..ready("ejected-farm") });
    let with = |parameters| format!("round_robin + outlier{parameters}");
    let failed = |algorithm: &str| {
        let counts = &of(&point, algorithm).counts;
        counts.errors as f64 / (counts.errors + counts.ok) as f64
    };
    near(failed(&with("")), failed("round_robin"), 0.05);
    let (none, one, half, all) = (
        mean(&point, "round_robin"),
        mean(&point, &with("")),
        mean(&point, &with(" max_ejected=100")),
        mean(&point, &with(" max_ejected=100 panic=0")),
    );
    assert!(none < one && one < 1.6 * none, "{none} {one}");
    assert!(all > 100.0 * none && half < 0.1 * all, "{none} {half} {all}");
}

#[test]
fn a_budget_ends_a_storm_of_retries() {
    let point = only(&Scenario { replications: 2, ..ready("retry-storm") });
    let counts = |algorithm| of(&point, algorithm).counts;
    let (storm, budget) = (counts("round_robin"), counts("round_robin + retry_budget"));
    assert!(storm.timeouts > 20_000, "{} of {}", storm.timeouts, storm.arrivals);
    assert!(3 * budget.timeouts < storm.timeouts, "{} of {}", budget.timeouts, budget.arrivals);
    assert!(budget.retries * 5 <= budget.arrivals + 5 * 6, "{} of {}", budget.retries, budget.arrivals);
}

#[test]
fn a_budget_can_be_too_small() {
    let point = only(&Scenario { replications: 2, ..ready("retry-shortage") });
    let failed = |algorithm| {
        let counts = &of(&point, algorithm).counts;
        counts.errors as f64 / counts.arrivals as f64
    };
    near(failed("round_robin"), 0.027, 0.1);
    let (small, great) = (failed("round_robin + retry_budget"), failed("round_robin + retry_budget ratio=50"));
    assert!((0.12..0.2).contains(&small) && great < 0.03, "{small} {great}");
}

#[test]
fn a_measured_limit_keeps_servers_useful() {
    let point = only(&Scenario { replications: 2, ..ready("measured-limit") });
    let (none, limit) = (of(&point, "least_conn"), of(&point, "least_conn + concurrency"));
    assert!(none.throughput < 150.0, "of 1,000: {}", none.throughput);
    assert!(limit.throughput > 850.0 && limit.counts.timeouts * 100 < limit.counts.arrivals, "{}", limit.throughput);
    assert!(limit.quantiles.p99 < 0.3, "{}", limit.quantiles.p99);
}

#[test]
fn a_measured_limit_takes_slowness_for_a_queue() {
    let point = only(&Scenario { replications: 2, ..ready("measured-too-low") });
    let failed = |algorithm| {
        let counts = &of(&point, algorithm).counts;
        counts.errors as f64 / counts.arrivals as f64
    };
    assert_eq!(failed("least_conn"), 0.0);
    let (low, tolerant) = (failed("least_conn + concurrency"), failed("least_conn + concurrency tolerance=150"));
    assert!(low > 0.1 && tolerant < 0.01, "{low} {tolerant}");
}

#[test]
fn a_second_attempt_passes_by_a_server_that_pauses() {
    let point = only(&Scenario { replications: 2, ..ready("hedged-pauses") });
    let (none, hedge) = (of(&point, "round_robin"), of(&point, "round_robin + hedge"));
    assert!(none.quantiles.p99 > 0.2 && hedge.quantiles.p99 < 0.08, "{} {}", none.quantiles.p99, hedge.quantiles.p99);
    // Hardly more than the requests that are late by definition.
    let counts = hedge.counts;
    assert!(counts.errors == 0 && counts.retries * 100 < 8 * counts.arrivals, "{counts:?}");
}

#[test]
fn second_attempts_overload_servers_that_are_busy() {
    let point = only(&Scenario { replications: 2, ..ready("hedged-load") });
    let (none, hedge) = (mean(&point, "least_conn"), mean(&point, "least_conn + hedge"));
    assert!(hedge > 20.0 * none, "{none} {hedge}");
    let small = mean(&point, "least_conn + hedge + retry_budget ratio=1");
    assert!(none < small && small < 3.0 * none, "{none} {small}");
}

#[test]
fn an_ill_server_that_passes_its_checks_is_found_by_its_failures() {
    let point = only(&Scenario { replications: 2, ..ready("gray-failure") });
    for run in &point.runs {
        let name = format!("{} with seed {}", run.algorithm, run.seed);
        assert!(run.queues.iter().all(|sample| sample.up == 1.0), "{name}: it is up all the time");
        let (before, after) = (failed_between(run, 10.0, 20.0), failed_between(run, 90.0, 100.0));
        assert!(before == 0.0 && after < 0.005, "{name}: {before} {after}");
    }
    let ill = |algorithm: &str| failed_between(of(&point, algorithm), 30.0, 80.0);
    let (turns, fewest, times) = (ill("round_robin"), ill("least_conn"), ill("peak_ewma"));
    assert!(turns > 0.03 && fewest < 0.8 * turns && times < fewest, "{turns} {fewest} {times}");
    for algorithm in ["round_robin", "least_conn"] {
        let ejecting = ill(&format!("{algorithm} + outlier"));
        assert!(4.0 * ejecting < ill(algorithm), "{algorithm}: {ejecting}");
    }
}

/// Before the pause, long after it, and after the operator has helped.
fn around_the_pause(run: &Run) -> [f64; 3] {
    [(12.0, 20.0), (40.0, 80.0), (95.0, 120.0)].map(|(from, to)| failed_between(run, from, to))
}

#[test]
fn a_collapse_stays_until_something_takes_the_retries_away() {
    let point = only(&Scenario { replications: 2, ..ready("metastable-collapse") });
    let [first, others @ ..] = &point.runs[..] else { panic!("algorithms") };
    let [before, collapse, after] = around_the_pause(first);
    let seed = first.seed;
    assert!(before < 0.001 && collapse > 0.8 && after < 0.001, "{before} {collapse} {after} with seed {seed}");
    for run in others {
        let [before, long_after, _] = around_the_pause(run);
        let soon = failed_between(run, 30.0, 40.0);
        assert!(before < 0.001 && soon < 0.01 && long_after < 0.001, "{}: {soon} {long_after}", run.algorithm);
    }
}

#[test]
fn to_drop_what_is_too_late_is_not_enough_and_helps_a_budget() {
    let scenario = Scenario { replications: 2, ..ready("metastable-deadline") };
    let mut working = scenario.clone();
    working.servers[0].drops_abandoned = false;
    let (drops, works) = (only(&scenario), only(&working));
    let collapse = |point| around_the_pause(of(point, "least_conn"))[1];
    let (less, all) = (collapse(&drops), collapse(&works));
    assert!((0.4..0.75).contains(&less) && all > 0.8, "{less} {all} with seed {}", scenario.seed);
    let after_the_pause = |point| failed_between(of(point, "least_conn + retry_budget"), 23.0, 28.0);
    let (sooner, later) = (after_the_pause(&drops), after_the_pause(&works));
    assert!(3.0 * sooner < later, "{sooner} {later} with seed {}", scenario.seed);
    let [before, _, after] = around_the_pause(of(&drops, "least_conn"));
    assert!(before < 0.001 && after < 0.001, "{before} {after} with seed {}", scenario.seed);
}
