//! What is written for people and for programs.

use balanza_simulator::{Progress, Scenario, report, run};

fn comparison(text: &str) -> balanza_simulator::result::Comparison {
    run(&Scenario::parse(text).expect("a scenario"), ".".as_ref(), &Progress::new()).expect("it can be simulated")
}

const SMALL: &str = r#"
name = "Small & <odd>"
description = "One. \"Two\"."
algorithms = ["round_robin", "least_conn", "round_robin weights=1"]
loads = [0.5, 0.9]
replications = 3
run = { duration = "20s", warmup = "2s" }
service = { kind = "exponential", mean = "10ms" }
[[servers]]
count = 5
"#;

#[test]
fn three_files_that_agree() {
    let comparison = comparison(SMALL);
    let directory = std::env::temp_dir().join(format!("balanza-report-{}", std::process::id()));
    report::write(&comparison, &directory.join("new/folder")).expect("it can be written");
    let read = |name: &str| std::fs::read_to_string(directory.join("new/folder").join(name)).expect("it is there");

    let json: serde_json::Value = serde_json::from_str(&read("results.json")).expect("JSON");
    let csv = read("results.csv");
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().expect("a heading").split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 6, "{csv}");
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), columns.len());
        let run = &json["points"][index / 3]["runs"][index % 3];
        for (column, value) in columns.iter().zip(row) {
            let point = &json["points"][index / 3];
            let expected = match *column {
                "p50" | "p75" | "p90" | "p95" | "p99" | "p999" | "p9999" | "max" => &run["quantiles"][column],
                "arrivals" | "ok" | "errors" | "timeouts" | "retries" | "syn_retries" | "in_system" => {
                    &run["counts"][column]
                }
                "rate" | "duration" | "warmup" | "users" => &point[column],
                column => &run[column],
            };
            let same = match (expected.as_f64(), value.parse::<f64>()) {
                // serde_json reads numbers a last bit off.
                (Some(expected), Ok(value)) => (expected - value).abs() <= 1e-12 * expected.abs(),
                _ => expected.as_str().unwrap_or("") == *value,
            };
            assert!(same, "{column}: {value} is not what {run} says");
        }
    }
    assert_eq!(read("report.html"), report::html(&comparison));
    assert_eq!(read("picture.svg"), report::picture(&comparison));
    std::fs::remove_dir_all(directory).expect("it can be removed");
}

#[test]
fn the_report_says_it_in_words_and_needs_nothing_else() {
    let comparison = comparison(SMALL);
    let html = report::html(&comparison);
    for part in [
        "<h1>Small &amp; &lt;odd&gt;</h1>",
        "One. &quot;Two&quot;.",
        "At load 0.5",
        "At load 0.9",
        "inconclusive",
        "Distribution of the time in system at load 0.9",
        "Mean queue at load 0.9",
        "Unevenness at load 0.9",
        "Mean queue of each server at load 0.9",
        "Queues over time: least_conn, at load 0.9",
        "balanza simulate FILE.toml",
        "algorithms = [",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    // Nothing to fetch, nothing that runs, no number that is none.
    let without_names = html.replace("http://www.w3.org/2000/svg", "");
    for part in ["http:", "https:", "<script", "src=", "NaN", "inf "] {
        assert!(!without_names.contains(part), "{part} is there");
    }
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    let verdicts = |text: &str| html.matches(text).count();
    assert!(verdicts("% less</td>") >= 1, "least_conn is better than round_robin at one load at least");
    assert_eq!(verdicts("<td>inconclusive</td>"), 2, "round_robin is as good as itself at both");
}

#[test]
fn the_verdict_comes_first_then_its_picture() {
    let comparison = comparison(SMALL);
    let html = report::html(&comparison);
    let verdicts = report::verdicts(&comparison);
    assert_eq!(verdicts.len(), 2);
    assert!(verdicts[1].starts_with("At load 0.9, least_conn has the shortest mean time in system ("), "{verdicts:?}");
    assert!(verdicts[1].contains("Mean times compared with it: "), "{verdicts:?}");
    let order = ["</h1>", &verdicts[1][..30], "<svg", "What is simulated", "Results in numbers", "Details at load 0.9"];
    let places = order.map(|part| html.find(part).unwrap_or_else(|| panic!("{part} is missing")));
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
}

/// The texts of the legends of all heat maps over time: numbers and the kind of scale.
fn legends(html: &str) -> Vec<Vec<&str>> {
    let maps = html.split("<figure>").filter(|figure| figure.contains(": each") || figure.contains("over time: "));
    maps.map(|map| {
        let key = map.rfind("class=\"frame\"").expect("a frame around the colours");
        map[key..].split("</text>").filter_map(|text| Some(text.rsplit_once('>')?.1)).collect()
    })
    .collect()
}

#[test]
fn maps_of_compared_algorithms_have_one_scale() {
    // The slow server of round_robin has a queue of hundreds, those of least_conn one of a few.
    let comparison = comparison(
        r#"
        algorithms = ["round_robin", "least_conn"]
        loads = [0.6]
        replications = 2
        run = { duration = "30s", warmup = "1s" }
        service = { kind = "exponential", mean = "10ms" }
        [[servers]]
        count = 3
        [[servers]]
        speed = 0.1
        "#,
    );
    let html = report::html(&comparison);
    let legends = legends(&html);
    assert_eq!(legends.len(), 2);
    assert_eq!(legends[0], legends[1]);
    assert!(
        legends[0].contains(&"0") && legends[0].contains(&"requests at the server; logarithmic scale"),
        "{legends:?}"
    );
}

#[test]
fn the_scenario_in_the_report_is_the_one_that_was_run() {
    let comparison = comparison(SMALL);
    let html = report::html(&comparison);
    let start = html.find("<pre>").expect("the scenario") + "<pre>".len();
    let text = &html[start..start + html[start..].find("</pre>").expect("its end")];
    let text = text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let again = run(&Scenario::parse(&text).expect("a scenario"), ".".as_ref(), &Progress::new()).expect("it runs");
    for (one, other) in comparison.points.iter().zip(&again.points) {
        for (one, other) in one.runs.iter().zip(&other.runs) {
            assert_eq!(one.replication_means, other.replication_means);
        }
    }
}

#[test]
fn failures_are_shown_and_one_replication_is_no_verdict() {
    let comparison = comparison(
        r#"
        algorithms = ["round_robin", "random"]
        loads = [0.8]
        replications = 1
        run = { duration = "20s", warmup = "2s" }
        service = { kind = "constant", mean = "10ms" }
        [[servers]]
        count = 2
        error_rate = 0.1
        max_fails = 0
        "#,
    );
    let html = report::html(&comparison);
    assert!(html.contains("Failed requests at load 0.8") && html.contains("<th class=\"number\">failed</th>"));
    assert!(html.contains("one replication") && !html.contains("inconclusive</td>"));
}

#[test]
fn a_short_mean_of_many_errors_is_no_praise() {
    let mut scenario = balanza_simulator::gallery::find("fails-fast").unwrap().scenario().unwrap();
    scenario.replications = 3;
    let comparison = run(&scenario, ".".as_ref(), &Progress::new()).unwrap();
    let verdict = report::verdicts(&comparison).remove(0);
    assert!(verdict.contains("peak_ewma has the fewest failed requests ("), "{verdict}");
    let (_, failing) = verdict.split_once("Not compared, because more requests failed: ").expect("failures");
    assert!(failing.contains("least_conn ") && failing.contains("round_robin "), "{verdict}");
    let html = report::html(&comparison);
    let row = html.split("<tr>").find(|row| row.starts_with("<td>least_conn</td>")).expect("a row");
    assert!(row.contains("less,<br/>but more failed</td>") && !row.contains("good"), "{row}");
}

#[test]
fn the_picture_for_documents_brings_its_colours() {
    let svg = report::picture(&comparison(SMALL));
    assert!(svg.starts_with("<svg") && svg.contains("<style>") && svg.contains("prefers-color-scheme:dark"));
}
