//! Plans: the runs that they have, and what is wrong with them.

use std::path::Path;

use balanza_sweep::{Sweep, Unit};

const PLAN: &str = r#"
algorithms = ["random", "least_conn"]
loads = [0.5, 0.9]
replications = 3

[scenario]
run = { requests = 200, warmup = 0 }
[[scenario.servers]]
count = 2

[[axes]]
key = "servers.0.count"
values = [2, 4]
"#;

fn read(text: &str) -> Sweep {
    Sweep::read(Path::new("plan.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

/// The messages with their lines and hints.
fn wrong(text: &str) -> String {
    Sweep::read(Path::new("plan.toml"), text).err().expect("a mistake").to_string()
}

fn settings(sweep: &Sweep, run: usize) -> String {
    sweep.settings(run).iter().map(|(title, value)| format!("{title}={value} ")).collect()
}

#[test]
fn the_cross_product_in_the_order_of_the_plan() {
    let sweep = read(PLAN);
    assert_eq!(sweep.len(), 2 * 2 * 2 * 3);
    assert_eq!(settings(&sweep, 0), "servers.0.count=2 load=0.5 algorithm=\"random\" seed=1 ");
    assert_eq!(settings(&sweep, 3), "servers.0.count=2 load=0.5 algorithm=\"least_conn\" seed=1 ");
    assert_eq!(settings(&sweep, 23), "servers.0.count=4 load=0.9 algorithm=\"least_conn\" seed=3 ");
    let mut ids: Vec<String> = (0..sweep.len()).map(|run| sweep.id(run)).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 24);
}

#[test]
fn an_id_is_made_of_the_input_alone() {
    let ids = |text: &str| {
        let sweep = read(text);
        (0..sweep.len()).map(|run| sweep.id(run)).collect::<Vec<_>>()
    };
    let plain = ids(PLAN);
    assert_eq!(plain, ids(&format!("name = \"Other words\"\n{PLAN}")));
    // What is added changes no other run.
    let more = ids(&PLAN.replace("[2, 4]", "[2, 4, 8]").replace("= 3", "= 4"));
    assert!(more.len() > plain.len() && plain.iter().all(|id| more.contains(id)));
    let others = ids(&PLAN.replace("200", "201"));
    assert!(plain.iter().all(|id| !others.contains(id)));
}

#[test]
fn a_run_is_the_same_from_its_text() {
    let sweep = read(PLAN);
    let unit = sweep.unit(23);
    let text = serde_json::to_string(&unit).unwrap();
    assert_eq!(Unit::parse(&text).unwrap().perform().unwrap(), unit.perform().unwrap());
    let tampered = Unit::parse(&text.replace("least_conn", "random")).unwrap();
    assert!(tampered.perform().unwrap_err().to_string().contains("is not the same here"));
}

#[test]
fn a_changed_file_makes_other_runs() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("times.txt");
    let text = "replications = 1\n[scenario]\nalgorithms = [\"random\"]\nloads = [0.5]\nrun.requests = 100\n\
                service = { kind = \"trace\", file = \"times.txt\" }\nservers = [{ count = 2 }]\n";
    let read = || Sweep::read(&directory.path().join("plan.toml"), text).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(&trace, "1\n2\n").unwrap();
    let unit = read().unit(0);
    unit.perform().unwrap();
    std::fs::write(&trace, "1\n3\n").unwrap();
    assert_ne!(read().id(0), unit.id);
    assert!(unit.perform().is_err());
}

#[test]
fn the_scenarios_own_loads_and_users_are_axes() {
    let sweep = read(
        "scenario = \"unicamp-2021\"\nreplications = 2\nset = { \"run.duration\" = \"9s\", \"run.warmup\" = \"1s\" }\n",
    );
    assert!(settings(&sweep, 0).starts_with("users=10 "), "{}", settings(&sweep, 0));
    let sweep = read("scenario = \"supermarket\"\n[set]\n\"run.requests\" = 500\n");
    // A fifth is warm-up where none is stated.
    let record = sweep.unit(0).perform().unwrap();
    assert!((record.warmup / record.duration - 0.2).abs() < 1e-6 || record.warmup > 0.0, "{record:?}");
}

#[test]
fn values_that_change_together() {
    let axes = "[[axes]]\nname = \"farm\"\nnames = [\"even\", \"skewed\"]\nvalues = [{ \"servers.0.speed\" = 1 }, \
                { \"servers.0.speed\" = 2, \"servers.0.weight\" = 2 }]\n";
    let sweep = read(&format!("{PLAN}{axes}"));
    assert_eq!(sweep.len(), 48);
    assert!(settings(&sweep, 12).contains("farm=\"skewed\""), "{}", settings(&sweep, 12));
    let servers = &sweep.unit(12).scenario.servers[0];
    assert_eq!((servers.weight, servers.speed), (2, 2.0));
}

#[test]
fn mistakes_have_their_lines_and_hints() {
    let with = |from: &str, to: &str| wrong(&PLAN.replace(from, to));
    for (from, to, line, words) in [
        ("\"random\", ", "\"randon\", ", "plan.toml:2:15", "did you mean \"random\"?"),
        ("[0.5, 0.9]", "[0.5, -1]", "plan.toml:3:15", "loads: -1 is not above 0"),
        ("= 3", "= 0", "plan.toml:4:16", "nothing is simulated in 0 replications"),
        ("[2, 4]", "[2, 0]", "plan.toml:13:14", "servers: there have to be 1 to"),
        ("[2, 4]", "[2, 2]", "plan.toml:13:14", "the same runs are in the plan twice"),
        ("[2, 4]", "[]", "plan.toml:13:10", "the axis has no values"),
        ("servers.0.count", "servers.1.count", "plan.toml:13:11", "\"1\" is none of 0 to 0"),
        ("servers.0.count", "servers.0.cout", "plan.toml:13:11", "did you mean count?"),
        ("servers.0.count", "loads", "plan.toml:12:7", "write loads = [...] at the top of the plan"),
        ("requests = 200", "request = 200", "plan.toml:6:1", "did you mean requests?"),
        ("[[axes]]", "[[axis]]", "plan.toml:11:", "did you mean axes?"),
        ("values = [2, 4]", "values = [2, 4]\nnames = [\"two\"]", "plan.toml:14:9", "1 names for 2 values"),
        ("key = ", "name = \"load\"\nkey = ", "plan.toml:11:", "the name \"load\" is taken"),
    ] {
        let text = with(from, to);
        assert!(text.contains(line) && text.contains(words), "{to}: {text}");
    }
    let text = wrong("scenario = \"supermarke\"\n");
    assert!(text.contains("plan.toml:1:12") && text.contains("did you mean supermarket?"), "{text}");
    let text = wrong("scenario = \"supermarket\"\n[set]\n\"servers.7.count\" = 1\n");
    assert!(text.contains("plan.toml:3:21") && text.contains("is none of 0 to 0"), "{text}");
    // Several at once.
    let text = with("\"random\", \"least_conn\"", "\"randon\", \"first\", \"least_con\"");
    assert_eq!(text.matches("error: ").count(), 2, "{text}");
    assert!(wrong(&PLAN.replace("= 3", "= 3_000_000")).contains("more than 1000000 runs"));
}
