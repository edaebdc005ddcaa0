//! Each algorithm in each situation of the table, shortened: how much worse than `random`, `two_choices` or `least_conn`
//! it may be, and that data/advice.txt is what the algorithms do.

use std::sync::LazyLock;

use balanza_simulator::Scenario;
use balanza_simulator::advice::{Figure, Mark, Measure, SITUATIONS, Table, algorithms};
use balanza_simulator::scenario::{Run, Time};

/// Algorithms that learn of a busy or slow server before its queue has grown: by requests in flight, by times, or both.
const LOOKING: &[&str] = &[
    "least_conn",
    "bounded_hash",
    "locality_least_conn",
    "two_choices",
    "two_choices by=header",
    "two_choices choices=5",
    "choices_with_memory",
    "least_time",
    "least_time inflight=on",
    "shortest_expected_delay",
    "never_queue",
    "peak_ewma",
    "combined",
    "least_load",
    "join_idle_queue",
    "prequal",
    "prequal probe=/load",
];

/// Those that compare all servers, or a good part of them.
const SEARCHING: &[&str] = &[
    "least_conn",
    "locality_least_conn",
    "two_choices choices=5",
    "least_time",
    "least_time inflight=on",
    "shortest_expected_delay",
    "never_queue",
    "combined",
    "least_load",
    "join_idle_queue",
    "prequal",
    "prequal probe=/load",
];

/// Algorithms whose choice depends on times, loads or bytes, so that they have to see failures.
const MEASURING: &[&str] = &[
    "two_choices by=header",
    "least_time",
    "least_time inflight=on",
    "peak_ewma",
    "combined",
    "least_bandwidth",
    "least_load",
    "weighted_load",
    "prequal",
    "prequal probe=/load",
];

/// All of the table.
const ALL: &[&str] = &[];

/// In a situation these algorithms are at most so many times the figure of another one.
struct Bound {
    scenario: &'static str,
    of: &'static str,
    times: f64,
    algorithms: &'static [&'static str],
}

const fn all(scenario: &'static str, times: f64) -> Bound {
    Bound { scenario, of: "random", times, algorithms: ALL }
}

const fn those(scenario: &'static str, of: &'static str, times: f64, algorithms: &'static [&'static str]) -> Bound {
    Bound { scenario, of, times, algorithms }
}

const BOUNDS: &[Bound] = &[
    all("equal-servers", 1.25),
    those("equal-servers", "two_choices", 1.3, LOOKING),
    all("few-servers", 1.25),
    those("few-servers", "two_choices", 1.4, LOOKING),
    all("weighted-servers", 1.25),
    those("weighted-servers", "two_choices", 1.5, LOOKING),
    those("unweighted-servers", "least_conn", 1.6, SEARCHING),
    those("one-slow-server", "two_choices", 1.3, LOOKING),
    all("cold-start", 1.25),
    those("cold-start", "two_choices", 2.0, LOOKING),
    all("heavy-tails", 1.25),
    those("heavy-tails", "two_choices", 2.0, LOOKING),
    // Some 200 keys a server, or 125 of 6271 parts of the addresses, are not shared out evenly.
    all("many-balancers", 1.5),
    those("many-balancers", "two_choices", 1.3, LOOKING),
    all("stale-reports", 1.1),
    those("hung-server", "random", 0.2, LOOKING),
    all("hung-server", 1.2),
    those("fails-fast", "random", 1.1, MEASURING),
    all("fails-fast", 1.35),
];

/// Algorithms that exceed a bound of a situation, and why. Their cells in docs/algorithms.md say so.
const WEAK: &[(&str, &str, &str)] = &[
    ("weighted-servers", "last_server", "clients stay where they were sent when the fleet was empty"),
    ("cold-start", "least_bandwidth", "a slow server sends few bytes"),
    ("equal-servers", "weighted_load", FEW),
    ("many-balancers", "weighted_load", OWN),
    ("fails-fast", "least_conn", IDLE),
    ("fails-fast", "shortest_expected_delay", IDLE),
    ("fails-fast", "never_queue", IDLE),
    ("fails-fast", "two_choices", IDLE),
    ("fails-fast", "two_choices choices=5", IDLE),
    ("fails-fast", "choices_with_memory", IDLE),
    ("fails-fast", "join_idle_queue", IDLE),
    ("fails-fast", "locality_least_conn", IDLE),
    ("fails-fast", "bounded_hash", IDLE),
];

const FEW: &str = "the average load of one processor says little about the next five seconds";
const OWN: &str =
    "a balancer knows its own requests, and the load is that of all; gRPC's servers report the rate of all";
const IDLE: &str = "a server that fails at once has nothing in flight";

/// Seconds of virtual time of a shortened situation, the warm-up included.
fn seconds(scenario: &str) -> Option<(f64, f64)> {
    match scenario {
        "many-balancers" => Some((25.0, 10.0)),
        "one-slow-server" => Some((60.0, 20.0)),
        "cold-start" | "hung-server" | "fails-fast" => None,
        _ => Some((100.0, 30.0)),
    }
}

fn shortened(index: usize) -> Scenario {
    let scenario = SITUATIONS[index].scenario(&algorithms()).unwrap();
    let time = |seconds| Some(Time::from_secs(seconds));
    let run = match seconds(SITUATIONS[index].scenario) {
        Some((duration, warmup)) => Run { duration: time(duration), requests: None, warmup: time(warmup) },
        None => scenario.run.clone(),
    };
    Scenario { replications: 1, run, ..scenario }
}

/// The columns of the table, shortened.
static COLUMNS: LazyLock<Vec<Vec<Figure>>> = LazyLock::new(|| {
    let column = |index: usize| SITUATIONS[index].simulate(&shortened(index)).unwrap();
    (0..SITUATIONS.len()).map(column).collect()
});

fn figure(scenario: &str, algorithm: &str) -> Figure {
    let column = SITUATIONS.iter().position(|situation| situation.scenario == scenario).expect("a situation");
    let row = algorithms().iter().position(|name| name == algorithm).expect("an algorithm");
    COLUMNS[column][row]
}

#[test]
fn none_is_much_worse_than_what_is_simple() {
    let (names, mut wrong) = (algorithms(), Vec::new());
    for bound in BOUNDS {
        let reference = figure(bound.scenario, bound.of);
        let concerned = |name: &&str| bound.algorithms.is_empty() || bound.algorithms.contains(name);
        for algorithm in names.iter().map(String::as_str).filter(concerned) {
            let found = figure(bound.scenario, algorithm);
            // Beside what is unstable itself everything else passes.
            if found.value <= bound.times * reference.value && (!found.unstable || reference.unstable) {
                continue;
            }
            if !WEAK.iter().any(|(scenario, weak, _)| (*scenario, *weak) == (bound.scenario, algorithm)) {
                wrong.push(format!(
                    "{}: {algorithm} {:.4}{}, and {} {:.4}: more than {} times",
                    bound.scenario,
                    found.value,
                    if found.unstable { " (unstable)" } else { "" },
                    bound.of,
                    reference.value,
                    bound.times,
                ));
            }
        }
    }
    let seed = shortened(0).seed;
    assert!(wrong.is_empty(), "seed {seed}, one replication\n{}", wrong.join("\n"));
}

#[test]
fn weaknesses_are_marked_in_the_table() {
    let table = Table::ready().unwrap();
    for (scenario, algorithm, _) in WEAK {
        let at = SITUATIONS.iter().position(|situation| situation.scenario == *scenario).expect("a situation");
        let row = table.rows.iter().position(|(name, _)| name == algorithm).expect("an algorithm");
        assert!(table.column(at)[row].mark >= Mark::Fair, "{scenario}: {algorithm}");
    }
}

/// `make advice` was run after the last change that made an algorithm worse.
#[test]
fn none_is_much_worse_than_the_table_says() {
    let table = Table::ready().unwrap();
    let mut wrong = Vec::new();
    for (index, situation) in SITUATIONS.iter().enumerate() {
        let cells = table.column(index);
        // What is bad has queues that are still growing in a shortened run.
        for (row, (algorithm, figures)) in table.rows.iter().enumerate().filter(|(row, _)| cells[*row].mark < Mark::Bad)
        {
            let (found, stored) = (COLUMNS[index][row], figures[index]);
            // Figures of few lost requests are rough.
            let least = if situation.measure == Measure::Lost { 0.005 } else { 0.0 };
            let more = found.value + least > 2.0 * (stored.value + least) || found.unstable;
            if more {
                let scenario = situation.scenario;
                wrong.push(format!("{scenario}: {algorithm} {:.4}, in the table {:.4}", found.value, stored.value));
            }
        }
    }
    assert!(wrong.is_empty(), "run make advice if this is as it should be:\n{}", wrong.join("\n"));
}
