//! Each ready scenario, shortened, shows what its description says.

mod common;

use balanza_simulator::gallery::{self, Ready};
use balanza_simulator::result::Point;
use balanza_simulator::scenario::{Arrivals, Run as Length, Scenario, Time};

use common::{mean, near, of, only, ready, simulated};

/// A scenario with two replications of this length in seconds.
fn shortened(name: &str, duration: f64, warmup: f64) -> Scenario {
    let seconds = |seconds| Some(Time::from_secs(seconds));
    let length = Length { duration: seconds(duration), requests: None, warmup: seconds(warmup) };
    Scenario { replications: 2, run: length, ..ready(name) }
}

#[track_caller]
fn rising(values: &[f64]) {
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
}

#[test]
fn names_are_those_of_the_files_and_every_one_says_what_to_look_for() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches(".toml").to_string())
        .collect();
    let mut names: Vec<&str> = gallery::ALL.iter().map(|ready| ready.name).collect();
    files.sort();
    names.sort_unstable();
    assert_eq!(names, files);
    for Ready { name, .. } in gallery::ALL {
        let scenario = ready(name);
        assert!(!scenario.name.is_empty() && scenario.description.contains("Look for: "), "{name}");
        assert!(scenario.replications > 1, "{name} has no intervals");
    }
}

#[test]
fn unicamp_weights_and_backlogs() {
    let mut scenario = shortened("unicamp-2021", 90.0, 45.0);
    let Arrivals::Closed { users, .. } = &mut scenario.arrivals else { panic!("users") };
    *users = vec![10, 100, 250];
    let comparison = simulated(&scenario);
    let [few, some, many] = &comparison.points[..] else { panic!("three numbers of users") };

    let means: Vec<f64> = few.runs.iter().map(|run| run.mean_time_in_system).collect();
    let worst = means.iter().fold(0.0f64, |a, b| a.max(*b)) / means.iter().fold(f64::MAX, |a, b| a.min(*b));
    assert!(worst < 1.2, "with 10 users no algorithm matters much: {means:?}");

    // Capacities of 146.8 and 40.2 requests a second.
    let throughput = |algorithm| of(some, algorithm).throughput;
    near(throughput("round_robin weights=1,1"), 2.0 * 40.2, 0.03);
    near(throughput("round_robin weights=3,1"), 40.2 / 0.25, 0.03);
    near(throughput("round_robin weights=1,3"), 40.2 / 0.75, 0.03);
    near(throughput("ip_hash"), 146.8, 0.02);
    near(throughput("least_conn weights=1,1"), 187.0, 0.02);
    near(throughput("least_conn weights=3,1"), 187.0, 0.02);

    let longest = |point, algorithm| of(point, algorithm).quantiles.max;
    assert!(longest(some, "round_robin weights=1,1") < 4.0, "no listen queue is full with 100 users");
    assert!(longest(many, "round_robin weights=1,1") > 10.0, "SYNs are repeated with 250");
    assert!(longest(many, "least_conn weights=1,1") < 5.0, "least_conn stays below the listen queue");
    assert_eq!(of(many, "least_conn weights=1,1").counts.syn_retries, 0);
}

#[test]
fn unne_is_a_tie() {
    let point = only(&shortened("unne-2023", 40.0, 5.0));
    assert!(point.differences.iter().all(|pair| !pair.detectable), "{:?}", point.differences);
    let shares = |algorithm| {
        let servers = &of(&point, algorithm).per_server;
        let all: f64 = servers.iter().map(|server| server.requests).sum();
        servers.iter().map(|server| server.requests / all).collect::<Vec<f64>>()
    };
    for share in ["round_robin", "least_conn"].into_iter().flat_map(shares) {
        near(share, 1.0 / 3.0, 0.03);
    }
    assert_eq!(shares("ip_hash").into_iter().fold(0.0, f64::max), 1.0, "one address, one server");
}

#[test]
fn ugr_wrong_weights_and_old_reports() {
    let point = only(&ready("ugr-2012"));
    let (turns, fewest) = (of(&point, "round_robin weights=1,1,1,1"), of(&point, "least_conn weights=1,1,1,1"));
    near(turns.throughput, fewest.throughput, 0.04);
    assert!(turns.sd_time_in_system > 2.0 * fewest.sd_time_in_system, "turns vary more");
    assert!(turns.quantiles.p95 > 1.3 * fewest.quantiles.p95 && turns.quantiles.p50 < fewest.quantiles.p50);
    assert!(of(&point, "round_robin").throughput < 0.75 * turns.throughput, "4:4:2:1 overloads two nodes");
    assert!(of(&point, "least_conn").throughput > 0.95 * fewest.throughput, "counts make up for weights");
    assert!(of(&point, "least_load").throughput > 0.95 * turns.throughput, "old reports make no herd");
    let (averages, wrong) = (of(&point, "weighted_load").throughput, of(&point, "round_robin").throughput);
    assert!(averages > wrong, "averages of reports correct wrong weights: {averages} and {wrong}");
}

#[test]
fn earlham_needs_a_limit_to_tell_algorithms_apart() {
    let with = |name| {
        let mut scenario = shortened(name, 40.0, 5.0);
        scenario.replications = 4;
        let Arrivals::Closed { users, .. } = &mut scenario.arrivals else { panic!("users") };
        *users = vec![100];
        only(&scenario)
    };
    let unlimited = with("earlham-2017");
    assert!(unlimited.differences.iter().all(|pair| !pair.detectable), "{:?}", unlimited.differences);
    let limited = with("earlham-2017-finite");
    assert!(limited.differences.iter().filter(|pair| pair.detectable).count() >= 5, "{:?}", limited.differences);
    rising(&["two_choices", "round_robin", "random"].map(|algorithm| mean(&limited, algorithm)));
    assert!(mean(&limited, "least_conn") <= mean(&limited, "two_choices") * 1.01);
}

#[test]
fn bhat_one_server_is_not_enough() {
    let with = |name| only(&Scenario { replications: 3, ..ready(name) });
    let three = with("bhat-2021");
    for run in &three.runs {
        assert_eq!((run.counts.errors, run.counts.timeouts), (0, 0));
        assert!((0.0015..0.003).contains(&run.mean_time_in_system), "{}", run.mean_time_in_system);
    }
    let one = with("bhat-2021-one").runs.remove(0);
    near(one.throughput, 1.0 / 0.00131, 0.02);
    assert!(one.counts.timeouts > 1_000 && one.counts.syn_retries > 0 && one.mean_time_in_system > 0.2);
    let stated = with("bhat-2021-stated").runs.remove(0);
    near(stated.throughput, 300.0, 0.02);
}

#[test]
fn the_second_choice_is_the_one_that_counts() {
    let mut scenario = shortened("supermarket", 20.0, 5.0);
    scenario.loads = vec![0.9];
    let point = only(&scenario);
    near(mean(&point, "two_choices"), 0.026_454, 0.03);
    near(mean(&point, "random"), 0.1, 0.12);
    let order =
        ["least_conn", "two_choices choices=5", "two_choices choices=3", "two_choices", "round_robin", "random"];
    rising(&order.map(|algorithm| mean(&point, algorithm)));
}

#[test]
fn who_does_not_look_drowns_the_slow_server() {
    let mut scenario = shortened("one-slow-server", 60.0, 20.0);
    scenario.loads = vec![0.7];
    let point = only(&scenario);
    for blind in ["round_robin", "random"] {
        assert!(of(&point, blind).max_queue > 500, "{blind} piles requests up");
        for looks in ["two_choices", "least_conn", "least_time", "peak_ewma"] {
            assert!(mean(&point, blind) > 20.0 * mean(&point, looks), "{blind} against {looks}");
        }
    }
}

#[test]
fn slow_start_spares_a_cold_server() {
    let warm = ready("cold-start");
    let mut cold = warm.clone();
    cold.servers[0].slow_start = Time::from_secs(0.0);
    let (warm, cold) = (only(&warm), only(&cold));
    let queue = |point: &Point, algorithm| of(point, algorithm).max_queue;
    assert!(2 * queue(&warm, "round_robin") < queue(&cold, "round_robin"), "slow_start holds turns back");
    assert!(mean(&warm, "round_robin") < 0.7 * mean(&cold, "round_robin"));
    assert!(10 * queue(&warm, "least_conn") < queue(&warm, "round_robin"), "counting holds back by itself");
}

#[test]
fn a_herd_follows_a_restart_where_all_prefer_the_same() {
    let point = only(&Scenario { replications: 2, ..ready("herd-after-reload") });
    let longest = |algorithm, from: f64, to: f64| {
        let samples = of(&point, algorithm).queues.iter().filter(|sample| (from..to).contains(&sample.time));
        samples.map(|sample| sample.max).max().expect("samples")
    };
    for spread in ["round_robin", "random", "two_choices"] {
        assert!(longest(spread, 20.0, 25.0) < 3 * longest(spread, 10.0, 20.0), "{spread} begins anywhere");
    }
    assert!(longest("least_conn", 20.0, 25.0) > 3 * longest("random", 20.0, 25.0));
}

#[test]
fn old_information_can_be_worse_than_none() {
    let mut scenario = shortened("stale-board", 20.0, 5.0);
    scenario.loads = vec![0.9];
    let point = only(&scenario);
    rising(&["two_choices", "random", "least_conn"].map(|algorithm| mean(&point, algorithm)));
    assert!(mean(&point, "least_conn") > 1.5 * mean(&point, "random"));
}

#[test]
fn own_counts_of_many_balancers_hardly_help() {
    let mut scenario = shortened("ten-thousand-servers", 2.0, 1.0);
    scenario.servers[0].count = 1_000;
    let point = only(&scenario);
    let random = mean(&point, "random");
    assert!((0.7 * random..random).contains(&mean(&point, "two_choices")), "own counts");
    assert!(mean(&point, "prequal probe=/load quantile=0") < 0.5 * random, "the servers' counts");
}

#[test]
fn the_document_has_all_of_them() {
    let text = include_str!("../../../docs/simulator.md");
    for Ready { name, .. } in gallery::ALL {
        assert!(text.contains(&format!("`{name}`")), "{name} is missing");
    }
}

#[test]
fn the_documents_scenario_is_one() {
    let text = include_str!("../../../docs/simulator.md");
    let start = text.find("```toml\n").expect("a scenario") + "```toml\n".len();
    let mut scenario = Scenario::parse(&text[start..start + text[start..].find("```").expect("its end")]).unwrap();
    scenario.replications = 1;
    let comparison = simulated(&scenario);
    assert_eq!((comparison.points.len(), comparison.points[0].runs.len()), (2, 3));
    let failed = comparison.points[1].runs.iter().map(|run| run.counts.retries);
    assert!(failed.sum::<u64>() > 0, "the crash is noticed");
}
