//! What holds for every scenario: nothing is lost, nothing is left to chance twice, more load is more time.

use std::path::Path;

use balanza_balancing::registry::{self, Host};
use balanza_simulator::result::{Comparison, Run};
use balanza_simulator::{Error, Progress, Scenario, run};
use proptest::prelude::*;

fn simulate(text: &str) -> Comparison {
    let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    run(&scenario, Path::new("."), &Progress::new()).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn conserved(run: &Run) -> bool {
    let c = &run.counts;
    c.carried + c.arrivals == c.ok + c.errors + c.timeouts + c.in_system
}

/// What does not depend on the machine's speed.
fn fingerprint(comparison: Comparison) -> String {
    let mut value = serde_json::to_value(comparison).unwrap();
    value["elapsed"] = 0.into();
    for point in value["points"].as_array_mut().unwrap() {
        for run in point["runs"].as_array_mut().unwrap() {
            run["events_per_second"] = 0.into();
        }
    }
    value.to_string()
}

fn algorithms() -> Vec<&'static str> {
    registry::entries().iter().filter(|entry| entry.host != Host::Program).map(|entry| entry.name).collect()
}

/// A scenario with a bit of everything.
fn scenario() -> impl Strategy<Value = String> {
    let arrivals = prop::sample::select(vec![
        "arrivals = { kind = \"poisson\" }\nloads = [0.7, 1.1]",
        "arrivals = { kind = \"deterministic\" }\nloads = [0.8]",
        "arrivals = { kind = \"mmpp\", burst = 5, on = 3, off = 10 }\nloads = [0.6]",
        "arrivals = { kind = \"closed\", users = [1, 20], think = { kind = \"exponential\", mean = 1 } }",
    ]);
    let service = prop::sample::select(vec![
        "kind = \"exponential\", mean = 1",
        "kind = \"constant\", mean = \"900ms\"",
        "kind = \"pareto\", mean = 1, shape = 1.5",
        "kind = \"poisson\", step = 1, mean = 0.99",
    ]);
    let servers = prop::sample::select(vec![
        "discipline = \"ps\"\nconcurrency = 2\nerror_rate = 0.1",
        "queue_limit = 2\noverflow = \"syn_retry\"",
        "queue_limit = 0\noverflow = \"refuse\"\nslow_start = 20",
        "mtbf = 50\nmttr = 5\nfailure = \"crash\"\nfail_timeout = 3",
        "mtbf = 50\nmttr = 5\nfailure = \"hang\"\ndiscipline = \"ps\"",
        "mtbf = 50\nmttr = 5\nfailure = \"hang\"\nmax_fails = 0",
        "mtbf = 20\nmttr = 5\nfailure = \"fail_fast\"\nmax_conns = 4",
        "credits = { initial = 10, limit = 50, baseline = 0.3 }\nspeed = 1.5",
        "credits = { initial = 10, limit = 50, baseline = 0.3 }\ndiscipline = \"ps\"",
        "concurrency = 3\nweight = 3",
        "drops_abandoned = true\nqueue_limit = 20",
        "mtbf = 50\nmttr = 5\nfailure = \"hang\"\ndrops_abandoned = true",
    ]);
    let view = prop::sample::select(vec!["shared", "own", "board"]);
    let events = prop::sample::select(vec![
        "",
        "[[events]]\nat = 30\naction = \"restart\"\n[[events]]\nat = 60\naction = \"reload\"\n",
        "[[events]]\nat = 20\naction = \"crash\"\nservers = \"0\"\n[[events]]\nat = 70\naction = \"recover\"\nservers = \"0\"\n",
        "[[events]]\nat = 20\naction = \"hang\"\n[[events]]\nat = 40\naction = \"crash\"\nservers = \"1\"\n\
         [[events]]\nat = 60\naction = \"recover\"\n",
        "[[events]]\nat = 20\naction = \"speed\"\nvalue = 0.2\nservers = \"0-1\"\n[[events]]\nat = 30\naction = \"errors\"\nvalue = 0.3\n[[events]]\nat = 40\naction = \"rate\"\nvalue = 2\n\
         [[events]]\nat = 50\naction = \"down\"\nservers = \"1\"\n[[events]]\nat = 55\naction = \"up\"\n",
    ]);
    let timeout = prop::option::of(1u32..8);
    let directives = prop::sample::select(vec![
        "",
        " + outlier consecutive=2 time=3s interval=2s requests=3",
        " + retry_budget",
        " + hedge percentile=50 min=0 window=1s + retry_budget ratio=100",
        " + concurrency initial=4 max=6 requests=10 interval=5s + outlier max_ejected=100 panic=0 latency=200 time=2s",
    ]);
    let algorithm = (prop::sample::select(algorithms()), directives);
    let algorithm = algorithm.prop_map(|(algorithm, directives)| format!("{algorithm}{directives}"));
    let numbers = (0u32..3, 0u32..3, 1u32..4, any::<u32>(), 1u32..4);
    (arrivals, service, (servers.clone(), servers), view, events, timeout, algorithm, numbers).prop_map(
        |(arrivals, service, (first, second), view, events, timeout, algorithm, (retries, delay, count, seed, dispatchers))| {
            let timeout = timeout.map_or(String::new(), |t| format!("timeout = {t}\n"));
            format!(
                "algorithms = [\"{algorithm}\"]\nseed = {seed}\nreplications = 2\nservice = {{ {service} }}\n{arrivals}\n\
                 run = {{ duration = 120, warmup = 10 }}\n\
                 [requests]\nretries = {retries}\n{timeout}\
                 [network]\ndelay = {}\n\
                 [dispatchers]\ncount = {dispatchers}\nview = \"{view}\"\nrefresh = \"700ms\"\n\
                 [[servers]]\ncount = {count}\n{first}\n[[servers]]\n{second}\n{events}",
                f64::from(delay) * 0.25,
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost(text in scenario()) {
        for run in simulate(&text).points.iter().flat_map(|point| &point.runs) {
            prop_assert!(conserved(run), "{}: {:?}", run.algorithm, run.counts);
            let ended = run.counts.ok + run.counts.errors + run.counts.timeouts;
            prop_assert_eq!(run.histogram.iter().map(|bin| bin.count).sum::<u64>(), ended);
            prop_assert!(run.utilization >= 0.0 && run.jain > 0.0 && run.jain <= 1.0 + 1e-9);
        }
    }

    #[test]
    fn a_seed_says_it_all(text in scenario()) {
        prop_assert_eq!(fingerprint(simulate(&text)), fingerprint(simulate(&text)));
    }
}

/// Every algorithm of the registry, with few servers and with many, alone and as one of several with views of their own.
#[test]
fn every_algorithm_runs() {
    for (count, dispatchers) in [(4, ""), (60, ""), (4, "dispatchers = { count = 3, view = \"own\" }\n")] {
        let names: Vec<String> = algorithms().iter().map(|name| format!("\"{name}\"")).collect();
        let text = format!(
            "algorithms = [{}, \"prequal probe=/load age=10s\"]\nloads = [0.5]\nreplications = 1\n{dispatchers}\
             network.delay = \"10ms\"\nrun = {{ requests = 20000, warmup = 10 }}\n[[servers]]\ncount = {count}\nmax_conns = 40\n",
            names.join(", ")
        );
        for run in &simulate(&text).points[0].runs {
            assert!(conserved(run), "{}", run.algorithm);
            // `first` and `priority` fill one server after the other.
            let waits = matches!(run.algorithm.as_str(), "first" | "priority");
            assert!(run.mean_time_in_system < if waits { 120.0 } else { 15.0 }, "{}: {run:?}", run.algorithm);
            assert!(run.counts.errors * 50 < run.counts.ok, "{}: {:?}", run.algorithm, run.counts);
            let key = ["hash", "maglev", "rendezvous", "last_server", "locality", "ip"]
                .iter()
                .any(|k| run.algorithm.contains(k));
            assert!(waits || key || run.jain > 0.75, "{}: {}", run.algorithm, run.jain);
        }
    }
}

/// A program that chooses is asked as the proxy asks it.
#[test]
fn a_program_chooses() {
    let file = std::env::temp_dir().join(format!("balanza-chooser-{}.py", std::process::id()));
    let simulate_with = |program: &str| {
        std::fs::write(&file, program).unwrap();
        let text = format!(
            "algorithms = [\"external program={}\"]\nloads = [0.3]\nreplications = 1\n\
             run = {{ requests = 2000, warmup = 10 }}\n[[servers]]\ncount = 3\n",
            file.display()
        );
        run(&Scenario::parse(&text).unwrap(), Path::new("."), &Progress::new())
    };
    let head = "#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    words = line.split()\n";
    // Written before it may be run, so that no other thread has it open for writing when it is.
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let least = format!(
        "{head}    least = min(words[3:], key=lambda word: int(word.split(':')[2]))\n    \
         print(words[1], least.split(':')[0], flush=True)\n"
    );
    let chosen = simulate_with(&least).unwrap();
    assert!(conserved(&chosen.points[0].runs[0]));
    let first = simulate_with(&format!("{head}    print(words[1], 0, flush=True)\n")).unwrap();
    let (chosen, first) = (&chosen.points[0].runs[0], &first.points[0].runs[0]);
    assert!(first.jain < 0.4 && chosen.jain > 0.4, "{} {}", first.jain, chosen.jain);
    for (program, complaint) in [("print('x', flush=True)", "\"x\" is no answer"), ("sys.exit()", "it ended")] {
        let wrong = simulate_with(&format!("{head}    {program}\n")).unwrap_err();
        assert!(wrong.to_string().contains(complaint), "{wrong}");
    }
    std::fs::remove_file(&file).unwrap();
    let missing = Scenario::parse("algorithms = [\"external\"]\nloads = [0.5]\n[[servers]]\n").unwrap();
    assert!(matches!(run(&missing, Path::new("."), &Progress::new()), Err(Error::Value(_))));
}

/// The algorithms of a scenario see the same arrivals.
#[test]
fn arrivals_are_common() {
    let text = "algorithms = [\"random\", \"least_conn\", \"hash\"]\nloads = [0.8]\nreplications = 3\n\
                run = { requests = 5000, warmup = 0 }\n[[servers]]\ncount = 5\n";
    let comparison = simulate(text);
    let arrivals: Vec<u64> = comparison.points[0].runs.iter().map(|run| run.counts.arrivals).collect();
    assert!(arrivals[0] > 10_000 && arrivals.iter().all(|a| *a == arrivals[0]), "{arrivals:?}");
    // Without choices, there is no difference at all.
    let lone = simulate(&text.replace("count = 5", "count = 1"));
    let point = &lone.points[0];
    assert!(point.runs.windows(2).all(|pair| pair[0].replication_means == pair[1].replication_means));
    assert!(point.differences.iter().all(|difference| difference.mean == 0.0 && !difference.detectable));
}

#[test]
fn more_load_is_more_time_and_more_choice_is_less() {
    let text = "algorithms = [\"random\", \"two_choices\", \"two_choices choices=4\"]\nloads = [0.3, 0.5, 0.7, 0.8, 0.9]\n\
                replications = 4\nrun.requests = 60000\n[[servers]]\ncount = 20\n";
    let points = simulate(text).points;
    let mean = |point: usize, run: usize| points[point].runs[run].mean_time_in_system;
    for algorithm in 0..3 {
        assert!((1..5).all(|p| mean(p, algorithm) > mean(p - 1, algorithm)));
    }
    assert!((0..5).all(|p| mean(p, 0) > mean(p, 1) && mean(p, 1) > mean(p, 2)));
}

/// What dispatchers do not know costs time: own counts more than shared ones, and a board the more the older it is.
#[test]
fn old_news_is_bad_news() {
    let time = |dispatchers: &str| {
        let text = format!(
            "algorithms = [\"least_conn\"]\nloads = [0.8]\nreplications = 3\nrun.requests = 40000\n\
             dispatchers = {{ count = 4, {dispatchers} }}\n[[servers]]\ncount = 20\n"
        );
        simulate(&text).points[0].runs[0].mean_time_in_system
    };
    let times = [
        time("view = \"shared\""),
        time("view = \"own\""),
        time("view = \"board\", refresh = \"3s\""),
        time("view = \"board\", refresh = \"30s\""),
    ];
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    // A board that is renewed all the time is as good as shared counts.
    let fresh = time("view = \"board\", refresh = \"1ms\"");
    assert!((fresh / times[0] - 1.0).abs() < 0.05, "{fresh} {times:?}");
}

/// Retries find another server; without them, the failures are seen.
#[test]
fn retries_hide_a_server_that_crashed() {
    let text = |retries: u32| {
        format!(
            "algorithms = [\"round_robin\"]\nloads = [0.5]\nreplications = 2\nrun = {{ duration = 2000, warmup = 0 }}\n\
             requests.retries = {retries}\n[[servers]]\ncount = 4\nfail_timeout = 10\n\
             [[events]]\nat = 500\naction = \"crash\"\nservers = \"2\"\n"
        )
    };
    let [without, with] = [0, 1].map(|retries| simulate(&text(retries)).points.remove(0).runs.remove(0));
    // One attempt in each fail timeout, and what was at the server.
    assert!((200..400).contains(&without.counts.errors), "{:?}", without.counts);
    assert_eq!(with.counts.errors, 0);
    assert!(with.counts.retries >= 200);
}

/// A listen queue that overflows: the kernel of the client asks again after 1, 3 and 7 seconds.
#[test]
fn connections_wait_for_the_kernel() {
    let text = "algorithms = [\"round_robin\"]\nreplications = 1\nrun = { duration = 22, warmup = 0 }\n\
                service = { kind = \"constant\", mean = 5 }\narrivals = { kind = \"deterministic\", rate = 0.25 }\n\
                [[servers]]\nqueue_limit = 0\noverflow = \"syn_retry\"\n";
    // Arrivals at 4, 8, 12, 16, 20. Of them the second is served from 9 to 14, after a second of waiting, and the third,
    // which asks again at 13 and 15, until 20.
    let run = &simulate(text).points[0].runs[0];
    assert_eq!((run.counts.ok, run.mean_time_in_system, run.quantiles.max), (3, (5.0 + 6.0 + 8.0) / 3.0, 8.0));
    // 9; 13, 15; 17, 19, and the fourth waits for 23.
    assert_eq!(run.counts.syn_retries, 6);
}

#[test]
fn mistakes_are_explained() {
    let error = |text: &str| match Scenario::parse(text) {
        Err(error) => error.to_string(),
        Ok(scenario) => run(&scenario, Path::new("."), &Progress::new()).unwrap_err().to_string(),
    };
    let all = [
        ("algorithms = [\"random\"]\nlods = [1]\n[[servers]]\n", "unknown field `lods`"),
        ("algorithms = [\"random\"]\nloads = [0.5]\n[[servers]]\ncount = 0\n", "servers: there have to be 1 to"),
        (
            "algorithms = [\"random\"]\nloads = [0.5]\ndispatchers = { count = 1000, view = \"own\" }\n[[servers]]\ncount = 100000\n",
            "100000 servers in 1000 views of their own",
        ),
        ("algorithms = [\"random\"]\n[[servers]]\n", "loads: how much work?"),
        ("algorithms = [\"nosuch\"]\nloads = [0.5]\n[[servers]]\n", "unknown balancing algorithm \"nosuch\""),
        ("algorithms = [\"random\"]\nloads = [0.5]\nrun.duration = \"5 apples\"\n[[servers]]\n", "unit"),
        (
            "algorithms = [\"random\"]\nloads = [0.5]\nrun = { duration = 5, warmup = 5 }\n[[servers]]\n",
            "nothing is measured",
        ),
        (
            "algorithms = [\"random\"]\nloads = [0.5]\n[[servers]]\n[[events]]\nat = 1\naction = \"crash\"\nservers = \"1\"\n",
            "they are 0 to 0",
        ),
        (
            "algorithms = [\"random\"]\narrivals = { kind = \"trace\", file = \"nosuch.txt\" }\n[[servers]]\n",
            "nosuch.txt: ",
        ),
    ];
    for (text, expected) in all {
        let found = error(text);
        assert!(found.contains(expected), "{text}\n{found}");
    }
}

/// A trace says when requests come, how much work they are, and whose.
#[test]
fn traces_are_followed() {
    let directory = std::env::temp_dir().join(format!("balanza-trace-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("trace.csv"), "# time, work, key\n1,2,7\n1.5 2 8\n\n2,0.5,7\n").unwrap();
    let text = "algorithms = [\"last_server\"]\nreplications = 1\nrun = { duration = 10, warmup = 0 }\n\
                arrivals = { kind = \"trace\", file = \"trace.csv\" }\n[[servers]]\ncount = 2\n";
    let comparison = run(&Scenario::parse(text).unwrap(), &directory, &Progress::new());
    std::fs::write(directory.join("trace.csv"), "2\n1\n").unwrap();
    let backwards = run(&Scenario::parse(text).unwrap(), &directory, &Progress::new());
    std::fs::remove_dir_all(&directory).unwrap();
    // The third is the first one's client again, and waits for the first to end at 3.
    let run = &comparison.unwrap().points[0].runs[0];
    assert_eq!((run.counts.ok, run.mean_time_in_system), (3, (2.0 + 2.0 + 1.5) / 3.0));
    assert_eq!(backwards.unwrap_err().to_string(), "trace.csv:2: earlier than the line before");
}

/// A server that lives on credits slows down to its baseline when they are used up: first in order, and shared.
#[test]
fn credits_end() {
    for discipline in ["fifo", "ps"] {
        let text = format!(
            "algorithms = [\"round_robin\"]\nreplications = 1\nrun = {{ duration = 1000, warmup = 500 }}\n\
             service = {{ kind = \"constant\", mean = 1 }}\n\
             arrivals = {{ kind = \"closed\", users = [4] }}\n[[servers]]\ndiscipline = \"{discipline}\"\n\
             credits = {{ initial = 60, limit = 100, baseline = 0.25 }}\n"
        );
        let after = simulate(&text).points[0].runs[0].throughput;
        assert!((after - 0.25).abs() < 0.01, "{discipline}: {after}");
        // 60 seconds of credits, used at 3/4 of a second in each: full speed for 80 seconds.
        let before = simulate(&text.replace("duration = 1000, warmup = 500", "duration = 70, warmup = 10")).points[0]
            .runs[0]
            .throughput;
        assert!((before - 1.0).abs() < 0.05, "{discipline}: {before}");
    }
}
