use std::collections::BTreeMap;

use super::*;
use crate::plan::{Algorithm, Farm, Load, Server, Setting, System, Time};
use crate::record::{ErrorKind as Kind, Measured};

fn plan() -> Plan {
    let server = Server {
        name: "web".into(),
        count: 2,
        address: None,
        target: BTreeMap::from([
            ("time".into(), Setting::Text("6.81ms".into())),
            ("no-keep-alive".into(), Setting::Flag(true)),
            ("backlog".into(), Setting::Whole(128)),
            ("speed".into(), Setting::Number(0.5)),
        ]),
    };
    let text = r#"
        name = "small"
        title = "Two servers"
        farms = []
        systems = ["balanza", "mine=http://127.0.0.1:8080"]
        algorithms = [{ name = "WRR 3:1", balance = "round_robin", weights = [3, 1] }, { name = "LC", balance = "least_conn" }]
        loads = [{ name = "10", users = 10, duration = "1.5s", warmup = "250ms", rtt = "171ms" }]
        [[checks]]
        name = "order"
        says = "LC is ahead."
        expression = "rps(LC) > rps(WRR 3:1)"
        [[reported]]
        algorithm = "LC"
        rps = 189
        rps_sd = 0.2
        [quick]
        repetitions = 3
    "#;
    let mut plan: Plan = toml::from_str(text).unwrap();
    plan.farms.push(Farm { name: "two".into(), servers: vec![server], events: vec![] });
    plan
}

fn run(repetition: u32, order: u32) -> Run {
    let cell = Cell { farm: "two".into(), load: "10".into(), system: System::Balanza, algorithm: "LC".into() };
    let errors = BTreeMap::from([(Kind::Timeout, 3)]);
    let statuses = BTreeMap::from([(200, 5)]);
    let measured = Measured { seconds: 1.25, ended: 8, answered: 5, errors, statuses, ..Measured::default() };
    let started = "2026-01-02T03:04:05Z".into();
    Run {
        cell,
        repetition,
        order,
        started,
        measured,
        servers: vec![],
        processes: vec![],
        events: vec![],
        invalid: vec!["late".into()],
    }
}

fn refused(directory: &Path, plan: &Plan, resume: bool) -> String {
    let error = Results::create(directory, plan, resume).unwrap_err();
    format!("{error:#}").replace(&directory.display().to_string(), "DIR")
}

#[test]
fn what_is_kept_is_read_again() {
    let keep = tempfile::tempdir().unwrap();
    let directory = keep.path().join("deep/results");
    let (results, none) = Results::create(&directory, &plan(), false).unwrap();
    assert!(none.is_empty());
    let environment = Environment { facts: vec![("kernel".into(), "6.1".into())] };
    let left_out = vec![(run(1, 1).cell, "there is no nginx".to_string())];
    results.environment(&environment, &left_out).unwrap();
    results.save(&run(2, 1)).unwrap();
    results.save(&run(1, 2)).unwrap();
    let kept = open(&directory).unwrap();
    assert_eq!(kept, Kept { plan: plan(), environment, left_out, runs: vec![run(2, 1), run(1, 2)] });
}

#[test]
fn a_run_is_there_as_a_whole_or_not_at_all() {
    let keep = tempfile::tempdir().unwrap();
    let (results, _) = Results::create(keep.path(), &plan(), false).unwrap();
    results.save(&run(1, 1)).unwrap();
    let runs = keep.path().join(RUNS);
    fs::write(runs.join(".aside-x1y2"), "{ \"farm\": \"tw").unwrap();
    fs::write(runs.join(".aside-x1y2.json"), "{ \"farm\": \"tw").unwrap();
    assert_eq!(open(keep.path()).unwrap().runs.len(), 1);
    let names: Vec<_> = fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.contains(&"two.10.balanza.LC.1.json".into()), "{names:?}");
    fs::write(runs.join("two.10.balanza.LC.2.json"), "{ \"farm\": \"tw").unwrap();
    let error = format!("{:#}", open(keep.path()).unwrap_err());
    assert!(error.contains("LC.2.json is damaged: remove it"), "{error}");
}

#[test]
fn finished_runs_are_neither_lost_nor_mixed() {
    let keep = tempfile::tempdir().unwrap();
    let (results, _) = Results::create(keep.path(), &plan(), false).unwrap();
    assert_eq!(refused(keep.path(), &plan(), false), "another lab is at work in DIR: wait for it, or use --out");
    drop(results);
    // Nothing is finished yet: any plan may have the directory.
    let other = Plan { name: "other".into(), ..plan() };
    drop(Results::create(keep.path(), &other, false).unwrap());
    let (results, _) = Results::create(keep.path(), &plan(), false).unwrap();
    results.save(&run(1, 1)).unwrap();
    drop(results);

    let hint = "go on with --resume, or name another directory with --out";
    assert_eq!(refused(keep.path(), &plan(), false), format!("DIR has 1 finished run: {hint}"));
    let mut changed = plan();
    changed.loads[0].think = Time(std::time::Duration::from_millis(1));
    for (plan, difference) in [
        (other, "small, not other"),
        (Plan { seed: 7, ..plan() }, "seed 1, not 7"),
        (changed, "load 10 is not the same"),
    ] {
        let hint = "name another directory with --out";
        assert_eq!(refused(keep.path(), &plan, true), format!("DIR was made with another plan ({difference}): {hint}"));
    }

    let mut more = Plan { repetitions: 9, systems: vec![System::Balanza, System::Nginx], ..plan() };
    more.loads.push(Load { name: "20".into(), users: Some(20), ..plan().loads.remove(0) });
    more.algorithms.push(Algorithm { name: "random".into(), balance: "random".into(), ..plan().algorithms.remove(1) });
    let (_results, runs) = Results::create(keep.path(), &more, true).unwrap();
    assert_eq!(runs, [run(1, 1)]);
    assert_eq!(open(keep.path()).unwrap().plan, more);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let keep = tempfile::tempdir().unwrap();
    fs::write(keep.path().join("thesis.tex"), "").unwrap();
    let hint = "name another directory with --out";
    assert_eq!(refused(keep.path(), &plan(), true), format!("DIR holds something else than results: {hint}"));
    let error = open(keep.path()).unwrap_err().to_string();
    assert!(error.ends_with("holds no results: there is no plan.toml in it"), "{error}");
    let file = keep.path().join("thesis.tex");
    assert!(refused(&file, &plan(), false).starts_with("cannot read DIR"), "{}", refused(&file, &plan(), false));
}

#[test]
fn configurations_are_kept_and_logs_are_of_one_run() {
    let keep = tempfile::tempdir().unwrap();
    let (results, _) = Results::create(keep.path(), &plan(), false).unwrap();
    let files = [("nginx.conf".to_owned(), "events {}\n".to_owned())];
    results.configuration(&run(1, 1).cell, false, &files).unwrap();
    let path = keep.path().join("configurations/balanza/LC@two@close/nginx.conf");
    assert_eq!(fs::read_to_string(path).unwrap(), "events {}\n");
    let logs = results.logs().unwrap();
    fs::write(logs.join("web-1.log"), "listening").unwrap();
    assert_eq!(fs::read_dir(results.logs().unwrap()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let keep = tempfile::tempdir().unwrap();
    let (results, _) = Results::create(keep.path(), &plan(), false).unwrap();
    fs::remove_dir(keep.path().join(RUNS)).unwrap();
    let error = format!("{:#}", results.save(&run(1, 1)).unwrap_err());
    assert!(error.contains("cannot write") && error.contains("LC.1.json"), "{error}");
}
