use std::time::Duration;

use super::*;

const SMALL: &str = r#"
name = "small"
title = "Small"
systems = ["direct", "balanza", "nginx"]
farms = [{ name = "two", servers = [{ name = "web", count = 2, target = { delay = "10ms", concurrency = 1 } }] }]

[[algorithms]]
name = "RR"
balance = "round_robin"

[[algorithms]]
name = "WRR"
balance = "round_robin"
weights = [2, 1]

[[algorithms]]
name = "one"
balance = "round_robin"
servers = ["web-1"]
control = true

[[loads]]
name = "10"
users = 10
duration = "5s"
warmup = "2s"

[[loads]]
name = "flood"
rate = 100
requests = 1000
arrivals = "poisson"

[quick]
repetitions = 3
duration = "2s"
requests = 100

[[checks]]
name = "alike"
says = "no difference"
expression = 'tie(rps("RR", load="10"), rps("WRR", load="10"))'

[[reported]]
algorithm = "RR"
load = "10"
rps = 12.5
rps_sd = 1
"#;

/// All that is wrong with the small plan after some replacements.
fn wrong(replacements: &[(&str, &str)]) -> String {
    let text = replacements.iter().fold(SMALL.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    });
    Plan::parse_file(std::path::Path::new("own.toml"), &text).unwrap_err().to_string()
}

fn all(plan: &Plan) -> Cells {
    plan.cells(&|_, _, _| Ok(()))
}

fn words(cells: &[Cell]) -> Vec<String> {
    cells.iter().map(|cell| format!("{} {} {}", cell.load, cell.system, cell.algorithm)).collect()
}

#[test]
fn a_plan_survives_its_own_text() {
    let plan = Plan::parse(SMALL).unwrap();
    assert_eq!(plan.repetitions, 5);
    let again = toml::to_string(&plan).unwrap();
    assert_eq!(Plan::parse(&again).unwrap(), plan, "{again}");
}

#[test]
fn names_of_nothing_are_all_reported() {
    insta::assert_snapshot!(wrong(&[("warmup =", "warm_up ="), ("says =", "say ="), ("arrivals =", "spacing =")]));
}

#[test]
fn values_that_cannot_be_read() {
    let texts = [
        wrong(&[("\"5s\"", "\"5\"")]),
        wrong(&[("\"nginx\"]", "\"ngins\"]")]),
        wrong(&[("\"poisson\"", "\"poison\"")]),
        wrong(&[("rate = 100\n", "rate = \"fast\"\n")]),
        wrong(&[("[quick]", "[quick")]),
        wrong(&[("title = \"Small\"", "")]),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn contradictions_are_all_reported() {
    insta::assert_snapshot!(wrong(&[
        ("name = \"small\"", "name = \"Small plan\""),
        ("title = \"Small\"", "title = \"Small\"\nrepetitions = 0"),
        ("\"nginx\"]", "\"nginx\", \"nginx\"]"),
        ("delay = \"10ms\", concurrency = 1", "dely = \"10ms\", seed = 4"),
        (
            "name = \"RR\"\nbalance = \"round_robin\"",
            "name = \"RR\"\nbalance = \"round_robbin\"\nsystems = [\"haproxy\"]"
        ),
        ("weights = [2, 1]", "weights = [2, 1, 0]"),
        ("\"web-1\"", "\"web-3\""),
        ("users = 10", "users = 10\nrate = 5\nrequests = 9"),
        ("rate = 100\n", "ramp = \"1s\"\nrate = 100\npages = 7\n"),
        ("name = \"flood\"", "name = \"10\""),
        ("algorithm = \"RR\"\nload = \"10\"", "algorithm = \"RRR\""),
        ("rps_sd = 1", "rsp_sd = 1"),
        ("rps(\"WRR\", load=\"10\")", "rps(\"WR\")"),
    ]));
}

#[test]
fn options_of_servers_are_those_of_the_target() {
    let target = "{ delay = \"10ms\", concurrency = 1 }";
    let texts = [
        wrong(&[(target, "{ dely = \"10ms\" }")]),
        wrong(&[(target, "{ delay = \"10\" }")]),
        wrong(&[(target, "{ delay = \"10ms\", turns = 5 }")]),
        wrong(&[("target = { delay = \"10ms\", concurrency = 1 }", "address = \"localhost\"")]),
        wrong(&[("rate = 100\n", "rate = 100\ntool = \"ab\"\n")]),
        wrong(&[("count = 2, target", "address = \"127.0.0.1:80\", target")]),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}

/// The small plan with these events.
fn eventful(events: &str) -> [(String, String); 1] {
    let farm = "concurrency = 1 } }] }]";
    [(farm.to_owned(), format!("concurrency = 1 }} }}], events = [{events}] }}]"))]
}

#[test]
fn events_that_cannot_be() {
    let wrong = |events: &str| {
        let changes = eventful(events);
        // The flood ends after its requests, so that no event would be too late.
        let [(farm, new)] = &changes;
        wrong(&[(farm, new), ("requests = 1000", "duration = \"5s\"")])
    };
    let texts = [
        wrong(r#"{ at = "1s", do = "freez" }"#),
        wrong(r#"{ at = "1", do = "freeze", server = "web-1" }"#),
        wrong(r#"{ at = "1s", do = "kill", servers = ["web-1", "web-3"] }"#),
        wrong(r#"{ at = "5s", do = "stop" }"#),
        wrong(r#"{ at = "1s", do = "freeze", duration = "0s", factor = 2 }, { at = "2s", do = "slow", factor = 0.5 }"#),
        wrong(r#"{ at = "1s", do = "kill", servers = ["web-1"] }, { at = "2s", do = "deploy" }"#),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn events_survive_their_own_text_and_are_of_the_servers_that_are_there() {
    let [(farm, new)] = eventful(
        r#"{ at = "500ms", do = "deploy" }, { at = "2s", do = "slow", servers = ["web-2"], duration = "1s" }"#,
    );
    let plan = Plan::parse(&SMALL.replace(&farm, &new)).unwrap();
    assert_eq!(Plan::parse(&toml::to_string(&plan).unwrap()).unwrap(), plan);
    let farm = &plan.farms[0];
    let words: Vec<String> = farm.events.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["500ms: deploy all servers", "2s: slow web-2 by 4 for 1s"]);
    let of_one = farm.events_of(&["web-1".into()]);
    assert_eq!(of_one, [Event { servers: vec!["web-1".into()], ..farm.events[0].clone() }]);
}

#[test]
fn a_peer_takes_part_where_others_do_and_claims_stay_as_they_are() {
    let text = SMALL.replace("name = \"WRR\"", "name = \"WRR\"\nsystems = [\"nginx\"]");
    let text = text.replace("[quick]\n", "[quick]\ncells = [{ systems = [\"nginx\"] }, { systems = [\"balanza\"] }]\n");
    let plan = Plan::parse(&text).unwrap();
    let more = plan.with_peer(&System::Caddy);
    assert_eq!(more.with_peer(&System::Caddy), more);
    assert_eq!(Plan::parse(&toml::to_string(&more).unwrap()).unwrap(), more, "it is a plan as well");
    let of_peer: Vec<String> = words(&all(&more).run).into_iter().filter(|words| words.contains("caddy")).collect();
    assert_eq!(
        of_peer,
        ["10 caddy RR", "10 caddy WRR", "10 caddy one", "flood caddy RR", "flood caddy WRR", "flood caddy one"]
    );
    let quick = words(&all(&more.quick()).run);
    assert!(quick.contains(&"10 caddy RR".to_owned()) && quick.contains(&"10 balanza RR".to_owned()), "{quick:?}");
    assert_eq!(more.checks[0].systems, [System::Balanza, System::Nginx]);
    let others: Vec<String> = words(&all(&more).run).into_iter().filter(|words| !words.contains("caddy")).collect();
    assert_eq!(others, words(&all(&plan).run));
}

#[test]
fn combinations() {
    let plan = Plan::parse(SMALL).unwrap();
    let cells = plan.cells(&|system, algorithm, _| match system {
        System::Nginx if algorithm.name == "WRR" => Err("no weights".into()),
        _ => Ok(()),
    });
    let of_one = ["direct one", "balanza RR", "balanza WRR", "balanza one", "nginx RR", "nginx one"];
    let expected: Vec<String> =
        ["10", "flood"].iter().flat_map(|load| of_one.map(|rest| format!("{load} {rest}"))).collect();
    assert_eq!(words(&cells.run), expected);
    assert_eq!(cells.left_out.len(), 2);
    assert_eq!(cells.left_out[0].1, "no weights");

    // Loads of 5 s, and of 1000 requests at 100 a second; each run takes a little more.
    let seconds = plan.estimate(&cells).as_secs_f64();
    assert!((seconds - 5.0 * 6.0 * (5.0 + 10.0 + 1.6)).abs() < 1.0, "{seconds}");
}

#[test]
fn quick_shortens() {
    let plan = Plan::parse(SMALL).unwrap().quick();
    assert_eq!((plan.repetitions, plan.loads[0].duration), (3, Some(Time(Duration::from_secs(2)))));
    assert_eq!((plan.loads[0].warmup, plan.loads[1].requests), (Time(Duration::from_secs(1)), Some(100)));
    assert_eq!(plan.quick(), plan);
    assert_eq!(plan.checks.len(), 1);
    assert_eq!(plan.only(&["10".into(), "nginx".into()]).unwrap().checks[0].systems, [System::Nginx]);
    assert!(plan.only(&["flood".into()]).unwrap().checks.is_empty());
}

#[test]
fn only_some() {
    let plan = Plan::parse(SMALL).unwrap();
    let only = |filters: &[&str]| {
        let filters: Vec<String> = filters.iter().map(|&filter| filter.to_owned()).collect();
        plan.only(&filters).map(|plan| words(&all(&plan).run))
    };
    assert_eq!(only(&["RR,load=10", "nginx"]).unwrap(), ["10 nginx RR"]);
    assert_eq!(only(&["system=nginx", "system=balanza,flood,RR"]).unwrap(), ["flood balanza RR", "flood nginx RR"]);
    assert_eq!(only(&[]).unwrap().len(), all(&plan).run.len());
    let errors = [only(&["system=ngnix"]), only(&["speed=1"]), only(&["foo"]), only(&["WR"])].map(Result::unwrap_err);
    insta::assert_snapshot!(errors.join("\n"));
    let mut narrow = plan.clone();
    narrow.cells = vec![Selection { loads: Some(vec!["10".into()]), ..Selection::default() }];
    assert_eq!(narrow.only(&["flood".into()]).unwrap_err(), "the plan small has no combination of flood");
}

#[test]
fn the_built_in_plans_are_right() {
    for BuiltIn { name, text } in Plan::built_in() {
        let plan = Plan::parse_file(std::path::Path::new(name), text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(plan.name, *name);
        assert!(plan.repetitions >= 3 && !plan.checks.is_empty() && !plan.quick().checks.is_empty(), "{name}");
        for check in &plan.checks {
            for system in plan.asked(check) {
                assert!(plan.can_ask(check, &system), "{name}: {} of {system}", check.name);
            }
        }
        let minutes = |plan: &Plan| plan.estimate(&all(plan)).as_secs_f64() / 60.0;
        let (long, short) = (minutes(&plan), minutes(&plan.quick()));
        println!("{name}: {long:.1} minutes, quick {short:.1}");
        assert!(long < 20.0, "{name} takes {long} minutes");
        assert!(short < 2.0, "{name} takes {short} minutes with --quick");
    }
}
