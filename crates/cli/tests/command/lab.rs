//! Plans that are run with this binary as servers and as balancer.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use balanza_lab::plan::{Cell, Plan, System};
use balanza_lab::record::{Role, Run};
use balanza_lab::results;
use balanza_lab::runner::{Event, Options, Outcome, Watcher, run_with};
use balanza_lab::system::{Program, Programs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Two servers of this name, so that their processes can be told from those of other tests, and so much load.
fn plan(name: &str, load: &str) -> Plan {
    let text = format!(
        r#"
        name = "small"
        title = "Two servers"
        repetitions = 2
        systems = ["balanza", "direct"]
        farms = [{{ name = "two", servers = [{{ name = "{name}", count = 2, target = {{ delay = "5ms" }} }}] }}]
        algorithms = [
            {{ name = "RR", balance = "round_robin" }},
            {{ name = "second", balance = "ip_hash", reaches = "{name}-2" }},
            {{ name = "alone", balance = "round_robin", servers = ["{name}-2"], control = true, systems = ["direct"] }},
        ]
        loads = [{{ name = "4", users = 4, {load}, timeout = "20s" }}]
        "#
    );
    Plan::parse(&text).unwrap()
}

/// Keeps what it is told, in words, and does something at each event.
struct Told<'a> {
    words: Mutex<Vec<String>>,
    act: &'a (dyn Fn(&Event<'_>) + Send + Sync),
}

impl Watcher for Told<'_> {
    fn event(&self, event: &Event<'_>) {
        let words = match event {
            Event::Begun { total, finished, .. } => format!("{finished} of {total}"),
            Event::LeftOut { cell, reason } => format!("without {cell}: {reason}"),
            Event::Started { job, number, .. } => format!("{number} started: {}", job.cell),
            Event::Progress { .. } => String::new(),
            Event::Failed { error, .. } => format!("failed: {error:#}"),
            Event::Ended { number, .. } => format!("{number} ended"),
        };
        self.words.lock().unwrap().push(words);
        (self.act)(event);
    }
}

fn run(
    plan: &Plan,
    out: &Path,
    resume: bool,
    act: &(dyn Fn(&Event<'_>) + Send + Sync),
    stop: &AtomicBool,
) -> (anyhow::Result<Outcome>, Vec<String>) {
    let balanza = Program::ask(Path::new(env!("CARGO_BIN_EXE_balanza")), "balanza/");
    let programs = Programs { balanza, ..Programs::find() };
    let told = Told { words: Mutex::default(), act };
    let outcome = run_with(&programs, plan, &Options { out: out.to_owned(), resume }, &told, stop);
    let words = told.words.into_inner().unwrap().into_iter().filter(|words| !words.is_empty()).collect();
    (outcome, words)
}

/// Processes whose command line has these words.
fn processes(words: &[&str]) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        words.iter().all(|word| line.contains(word))
    };
    pids.filter(has).collect()
}

/// What tells one run from another.
fn keys(runs: &[Run]) -> Vec<(&Cell, u32, u32, &str, u64)> {
    runs.iter().map(|run| (&run.cell, run.repetition, run.order, &*run.started, run.measured.answered)).collect()
}

fn shares(run: &Run) -> Vec<(&str, u64)> {
    run.servers.iter().map(|server| (server.name.as_str(), server.requests)).collect()
}

#[test]
fn a_plan_is_run() {
    let keep = tempfile::tempdir().unwrap();
    let out = keep.path().join("results");
    let (outcome, words) = run(&plan("whole", "requests = 300"), &out, false, &|_| (), &AtomicBool::new(false));
    let outcome = outcome.unwrap();
    assert_eq!((outcome.total, outcome.runs.len(), outcome.interrupted), (6, 6, false), "{words:?}");
    assert_eq!((words[0].as_str(), words.last().unwrap().as_str()), ("0 of 6", "6 ended"));

    let kept = results::open(&out).unwrap();
    assert_eq!(kept.plan, plan("whole", "requests = 300"));
    assert_eq!(keys(&kept.runs), keys(&outcome.runs));
    assert_eq!(kept.environment, outcome.environment);
    for run in &kept.runs {
        let cell = &run.cell;
        assert!(run.measured.answered > 0 && run.measured.errors.is_empty(), "{cell}: {:?}", run.measured);
        let answered = run.measured.answered;
        let roles: Vec<Role> = run.processes.iter().map(|process| process.role).collect();
        match (cell.algorithm.as_str(), &shares(run)[..]) {
            ("RR", [(_, one), (_, two)]) => assert!(one.abs_diff(*two) <= 8, "{cell}: {one} and {two}"),
            ("second", [(_, 0), ("whole-2", two)]) | ("alone", [("whole-2", two)]) => {
                assert!(*two >= answered, "{cell}: {two} of {answered}");
            }
            (_, shares) => panic!("{cell}: {shares:?}"),
        }
        let servers = run.servers.len();
        assert_eq!(roles.iter().filter(|&&role| role == Role::Server).count(), servers, "{cell}: {roles:?}");
        assert_eq!(roles.contains(&Role::Balancer), cell.system == System::Balanza, "{cell}: {roles:?}");
        assert!(roles.contains(&Role::Client), "{cell}: {roles:?}");
    }
    let configuration = fs::read_dir(out.join("configurations/balanza/RR@two")).unwrap().next().unwrap().unwrap();
    assert!(fs::read_to_string(configuration.path()).unwrap().contains("upstream"));
    assert_eq!(processes(&["--name whole-"]), [0; 0], "servers are left");
    assert_eq!(processes(&[out.to_str().unwrap()]), [0; 0], "balancers are left");
}

#[test]
fn one_that_is_interrupted_goes_on() {
    let keep = tempfile::tempdir().unwrap();
    let out = keep.path();
    let plan = plan("halfway", "duration = '300ms'");
    let stop = AtomicBool::new(false);
    let in_third = |event: &Event<'_>| {
        if matches!(event, Event::Started { number: 3, .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let (outcome, _) = run(&plan, out, false, &in_third, &stop);
    let outcome = outcome.unwrap();
    // On a busy machine the third run ends before anybody looks whether it should stop: then it is whole.
    let finished = outcome.runs.len();
    assert!((2..=3).contains(&finished) && outcome.runs.iter().all(|run| run.measured.seconds >= 0.3), "{finished}");
    let advice = outcome.advice(&Options { out: out.to_owned(), resume: false }).unwrap();
    let kept = format!("{finished} of 6 runs are finished and kept in {}", out.display());
    assert_eq!(advice, format!("interrupted: {kept}: go on with --resume"));
    assert_eq!(processes(&["--name halfway-"]), [0; 0], "servers are left");

    let (refused, _) = run(&plan, out, false, &|_| (), &AtomicBool::new(false));
    let expected = format!("has {finished} finished runs: go on with --resume");
    assert!(refused.unwrap_err().to_string().contains(&expected));
    let (whole, words) = run(&plan, out, true, &|_| (), &AtomicBool::new(false));
    let whole = whole.unwrap();
    assert_eq!(words[0], format!("{} of 6", outcome.runs.iter().filter(|run| run.invalid.is_empty()).count()));
    assert_eq!((whole.runs.len(), whole.interrupted), (6, false));
    let orders: std::collections::BTreeSet<u32> = whole.runs.iter().map(|run| run.order).collect();
    assert_eq!(orders.len(), 6);
    let valid = outcome.runs.iter().filter(|run| run.invalid.is_empty());
    for run in keys(&valid.cloned().collect::<Vec<Run>>()) {
        assert!(keys(&whole.runs).contains(&run), "a finished run has changed: {run:?}");
    }
}

#[test]
fn a_killed_server_fails_a_run_and_the_next_try_counts() {
    let keep = tempfile::tempdir().unwrap();
    let left = Mutex::new(1);
    let kill_one = |name: &str| {
        let mut left = left.lock().unwrap();
        if *left > 0
            && let [pid, ..] = processes(&["target --listen", name])[..]
        {
            *left -= 1;
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
    };
    let during = |event: &Event<'_>| {
        if let Event::Progress { .. } = event {
            kill_one("--name mortal-2");
        }
    };
    let mut plan = plan("mortal", "duration = '5s'");
    plan.repetitions = 1;
    plan.algorithms.truncate(1);
    let (outcome, words) = run(&plan, &keep.path().join("once"), false, &during, &AtomicBool::new(false));
    assert_eq!(outcome.unwrap().runs.len(), 1);
    let failed = words.iter().find(|words| words.starts_with("failed: ")).unwrap();
    assert!(
        failed.contains("mortal-2 (process ") && failed.contains("ended during the run (killed by SIGKILL)"),
        "{failed}"
    );

    *left.lock().unwrap() = 2;
    let (outcome, _) = run(&plan, &keep.path().join("twice"), false, &during, &AtomicBool::new(false));
    let error = format!("{:#}", outcome.unwrap_err());
    for part in
        ["run 1 of 1 failed: balanza, RR, load 4, farm two", "twice/logs", "mortal-2, listening on", "none of 1 run"]
    {
        assert!(error.contains(part), "no \"{part}\" in: {error}");
    }
    assert_eq!(processes(&["--name mortal-"]), [0; 0], "servers are left");
}

#[test]
fn what_cannot_be_run_is_left_out_with_its_reason() {
    let keep = tempfile::tempdir().unwrap();
    let mut plan = plan("some", "duration = '200ms'");
    plan.repetitions = 1;
    plan.systems = vec![System::Haproxy];
    plan.algorithms.truncate(1);
    plan.algorithms[0].balance = "prequal".into();
    let (outcome, _) = run(&plan, keep.path(), false, &|_| (), &AtomicBool::new(false));
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("nothing of the plan small can be run here\nhaproxy: "), "{error}");
    assert!(fs::read_dir(keep.path()).unwrap().next().is_none(), "something was written");
}
