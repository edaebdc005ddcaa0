//! `balanza simulate`.

use std::process::{Command, Output};

use serde_json::Value;

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_balanza")).arg("simulate").args(arguments).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn failure(arguments: &[&str]) -> String {
    let output = simulate(arguments);
    assert!(!output.status.success() && output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

const SHORT: [&str; 4] = ["--requests", "20000", "--replications", "3"];

#[test]
fn a_line_of_json_for_each_algorithm_and_load() {
    let some = [
        "--algorithm",
        "random,two_choices choices=3",
        "--servers",
        "20",
        "--load",
        "0.5,0.8",
        "--seed",
        "5",
        "--json",
    ];
    let all = lines(&simulate(&[&some[..], &SHORT].concat()));
    assert_eq!(all.len(), 4);
    let names = [
        "algorithm",
        "servers",
        "load",
        "mean_time_in_system",
        "ci95",
        "p50",
        "p90",
        "p99",
        "p999",
        "utilization",
        "max_queue",
        "jain",
        "events",
        "events_per_second",
        "seed",
        "replications",
    ];
    for line in &all {
        let line = line.as_object().unwrap();
        assert_eq!(line.len(), names.len());
        assert!(names.iter().all(|name| line.contains_key(*name)));
        assert_eq!((&line["servers"], &line["seed"], &line["replications"]), (&20.into(), &5.into(), &3.into()));
    }
    let of = |i: usize, name: &str| all[i][name].clone();
    assert_eq!((of(0, "algorithm"), of(1, "algorithm")), ("random".into(), "two_choices choices=3".into()));
    assert_eq!((of(0, "load"), of(2, "load")), (0.5.into(), 0.8.into()));
    let mean = of(2, "mean_time_in_system").as_f64().unwrap();
    assert!((4.0..6.0).contains(&mean), "{mean}");
    // The same seed gives the same figures.
    let again = lines(&simulate(&[&some[..], &SHORT].concat()));
    assert!((0..4).all(|i| again[i]["mean_time_in_system"] == all[i]["mean_time_in_system"]));
}

#[test]
fn choices_of_one_are_random() {
    let one = lines(&simulate(&[&["--choices", "1", "--json"][..], &SHORT].concat()));
    assert_eq!(one[0]["algorithm"], "random");
}

#[test]
fn balls_into_bins() {
    let some = ["bins", "--servers", "100", "--requests", "10000", "--algorithm", "random,round_robin", "--json"];
    let all = lines(&simulate(&some));
    assert_eq!(all[1]["max_load"], 100.0);
    let sd = all[0]["sd"].as_f64().unwrap();
    assert!((8.5..11.5).contains(&sd), "{sd}");
}

#[test]
fn a_scenario_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.toml");
    let text = "name = \"Mine\"\nalgorithms = [\"random\", \"least_conn\"]\nloads = [0.8]\nreplications = 2\n\
                run.requests = 20000\n[[servers]]\ncount = 5\n";
    std::fs::write(&file, text).unwrap();
    let name = file.to_str().unwrap();
    let out = directory.path().join("out");
    let shown = simulate(&[name, "--out", out.to_str().unwrap()]);
    let table = String::from_utf8(shown.stdout).unwrap();
    assert!(table.starts_with("Mine\n") && table.contains("least_conn is faster than random by "), "{table}");
    assert!(["report.html", "results.csv", "results.json"].iter().all(|name| out.join(name).exists()));
    let all = lines(&simulate(&[name, "--json", "--seed", "9"]));
    assert_eq!(all[0]["scenario"]["seed"], 9);
    assert_eq!(all[0]["points"][0]["runs"].as_array().unwrap().len(), 2);
    assert!(failure(&[name, "--servers", "3"]).contains("--servers does not go with a scenario"));
    std::fs::write(&file, text.replace("loads", "lods")).unwrap();
    let wrong = failure(&[name]);
    assert!(wrong.contains("scenario.toml: ") && wrong.contains("line 3") && wrong.contains("lods"), "{wrong}");
}

#[test]
fn mistakes_have_hints() {
    let cases = [
        (&["--algorithm", "least_con"][..], "did you mean `least_conn`?"),
        (&["--algorithm", "external"], "add the program: "),
        (&["--algorithm", "first", "--choices", "2"], "--choices is for algorithms that draw some servers"),
        (&["--service", "gauss"], "exponential, constant, uniform"),
        (&["--load", "0"], "loads: 0 is not above 0"),
        (&["one-slow-serve"], "did you mean one-slow-server?"),
        (&["bins", "--weights", "x"], "numbers of at least 1"),
    ];
    for (arguments, hint) in cases {
        let text = failure(arguments);
        assert!(text.contains(hint), "{arguments:?}: {text}");
    }
}

#[test]
fn a_sweep_goes_on_and_does_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    let text = "algorithms = [\"random\", \"least_conn\"]\nloads = [0.5, 0.8]\nreplications = 2\n\
                [scenario]\nrun = { requests = 500, warmup = 0 }\nservers = [{ count = 3 }]\n";
    std::fs::write(&plan, text).unwrap();
    let (plan, out) = (plan.to_str().unwrap(), directory.path().join("out"));
    let with = |more: &[&str]| simulate(&[&["sweep", plan, "--out", out.to_str().unwrap()], more].concat());
    let listed = lines(&with(&["--dry-run", "--json"]));
    assert!(listed.len() == 8 && listed.iter().all(|run| run["done"] == false), "{listed:?}");
    let runs = lines(&with(&["--json", "--jobs", "2"]));
    let ids = |lines: &[Value], of: fn(&Value) -> &Value| lines.iter().map(|line| of(line).clone()).collect::<Vec<_>>();
    assert_eq!(ids(&runs, |run| &run["result"]["id"]), ids(&listed, |run| &run["id"]));
    let one = lines(&simulate(&["sweep", plan, "--run", listed[5]["id"].as_str().unwrap()]));
    assert_eq!(one[0], runs[5]["result"]);
    let (journal, before) = (out.join("journal.jsonl"), std::fs::read(out.join("journal.jsonl")).unwrap());
    let shown = with(&[]);
    assert!(String::from_utf8_lossy(&shown.stdout).starts_with("algorithm "), "{shown:?}");
    assert_eq!(std::fs::read(&journal).unwrap(), before);
    assert!(failure(&["sweep", plan, "--run", "0"]).contains("--dry-run lists them"));
    std::fs::write(plan, text.replace("least_conn", "least_con")).unwrap();
    let wrong = failure(&["sweep", plan]);
    assert!(wrong.contains("plan.toml:1:25") && wrong.contains("did you mean"), "{wrong}");
}
