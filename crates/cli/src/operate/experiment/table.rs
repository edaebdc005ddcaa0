//! What there is to read of an experiment.

use balanza_plot::columns;
use serde_json::Value;

/// A line for each experiment.
pub fn list(all: &Value) -> String {
    let mut rows = vec![["upstream", "", "state", "arms"].map(str::to_string).to_vec()];
    for it in all.as_array().into_iter().flatten() {
        let names: Vec<&str> = items(&it["arms"]).filter_map(|arm| arm["name"].as_str()).collect();
        let words = ["upstream", "protocol", "state"].map(|name| text(&it[name]));
        rows.push(words.into_iter().chain([names.join(", ")]).collect());
    }
    match rows.len() {
        1 => "no experiments\n".to_string(),
        _ => columns(&rows, 4),
    }
}

/// One of them: its state, the arms, and what follows.
pub fn whole(it: &Value) -> String {
    let mut out = format!("upstream {} ({}): {}\n", text(&it["upstream"]), text(&it["protocol"]), state(it));
    let head = ["arm", "blocks", "requests", "requests/s", "failed", "mean ms", "p50 ms", "p99 ms"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for arm in items(&it["arms"]) {
        let mut row = vec![text(&arm["name"]), count(&arm["blocks"]), count(&arm["requests"])];
        row.push(decimal(&arm["rate"], 1));
        row.push(count(&arm["failed"]));
        row.extend(["mean", "p50", "p99"].map(|name| decimal(&arm[name], 2)));
        rows.push(row);
    }
    out.push_str(&columns(&rows, 1));
    let mut rows = Vec::new();
    for one in items(&it["analysis"]).filter(|one| one["rounds"].as_u64() > Some(0)) {
        let mut row = vec![text(&one["arm"]), count(&one["rounds"])];
        row.extend(["mean", "p50", "p99"].map(|name| effect(&one[name], 1.0, 2)));
        row.push(effect(&one["errors"], 100.0, 2));
        row.push(effect(&one["carry_over"], 1.0, 2));
        row.push(verdict(&one["verdict"]).to_string());
        rows.push(row);
    }
    if !rows.is_empty() {
        let control = it["arms"][0]["name"].as_str().unwrap_or_default();
        out.push_str(&format!("\nDifferences to \"{control}\", with intervals that hold together with 99 %:\n"));
        let head = ["arm", "rounds", "mean ms", "p50 ms", "p99 ms", "failed %", "carry-over ms", ""];
        rows.insert(0, head.map(str::to_string).to_vec());
        out.push_str(&columns(&rows, 1));
    }
    out
}

fn state(it: &Value) -> String {
    let now = &it["now"];
    match it["state"].as_str() {
        Some("ready") => "not started".to_string(),
        Some("running") if now.is_object() => {
            let half = match now["phase"].as_str() {
                Some("washout") => "washout",
                Some("first") => "first half",
                _ => "second half",
            };
            format!(
                "running, block {} of {}: \"{}\", {half}, {} s left",
                now["block"].as_u64().unwrap_or_default() + 1,
                count(&it["blocks"]["planned"]),
                text(&now["arm"]),
                decimal(&now["seconds_left"], 0)
            )
        }
        Some(state) => match it["ended"]["reason"].as_str() {
            Some(reason) => format!("{state}, {reason}"),
            None => state.to_string(),
        },
        None => String::new(),
    }
}

/// In words.
fn verdict(word: &Value) -> &str {
    match word.as_str().unwrap_or_default() {
        "too_few_rounds" => "too few rounds",
        "carry_over" => "carry-over: make blocks and washout longer",
        "no_difference" => "no difference shown",
        other => other,
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn count(value: &Value) -> String {
    value.as_u64().unwrap_or_default().to_string()
}

fn decimal(value: &Value, places: usize) -> String {
    value.as_f64().map_or("-".to_string(), |number| format!("{number:.places$}"))
}

/// A difference with its interval.
fn effect(value: &Value, by: f64, places: usize) -> String {
    let number = |value: &Value| value.as_f64().map(|number| format!("{:+.places$}", number * by));
    let Some(mean) = number(&value["mean"]) else { return "-".to_string() };
    match (number(&value["interval"][0]), number(&value["interval"][1])) {
        (Some(low), Some(high)) => format!("{mean} ({low} to {high})"),
        _ => mean,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn experiment() -> Value {
        let arm = |name: &str| json!({ "name": name, "blocks": 5, "requests": 1000, "rate": 20.0, "failed": 1, "mean": 12.3456, "p50": 10.0, "p99": null });
        let effect = json!({ "mean": -1.5, "interval": [-2.0, -1.0] });
        json!({
            "protocol": "http", "upstream": "app", "state": "running",
            "blocks": { "planned": 60, "complete": 10 },
            "arms": [arm("least_conn"), arm("random two")],
            "analysis": [{
                "arm": "random two", "rounds": 5, "mean": effect, "p50": effect, "p99": { "mean": 0.25, "interval": null },
                "errors": { "mean": 0.01, "interval": [0.0, 0.02] }, "carry_over": null, "verdict": "mixed",
            }],
            "now": { "block": 10, "arm": "least_conn", "phase": "first", "seconds_left": 12.3 },
        })
    }

    #[test]
    fn an_experiment_that_runs() {
        let expected = r#"upstream app (http): running, block 11 of 60: "least_conn", first half, 12 s left
arm         blocks  requests  requests/s  failed  mean ms  p50 ms  p99 ms
least_conn       5      1000        20.0       1    12.35   10.00       -
random two       5      1000        20.0       1    12.35   10.00       -

Differences to "least_conn", with intervals that hold together with 99 %:
"#;
        let shown = whole(&experiment());
        assert!(shown.starts_with(expected), "{shown}");
        let last = shown.lines().last().unwrap();
        for part in ["-1.50 (-2.00 to -1.00)", "+0.25", "+1.00 (+0.00 to +2.00)", "mixed"] {
            assert!(last.contains(part), "{last}");
        }
    }

    #[test]
    fn others() {
        let mut one = experiment();
        one["state"] = json!("guard");
        one["ended"] = json!({ "reason": "guard in arm \"random two\": 9% of 500 requests failed; 5% may" });
        assert!(whole(&one).starts_with("upstream app (http): guard, guard in arm"));
        let listed = list(&json!([one]));
        assert!(listed.ends_with("app       http  guard  least_conn, random two\n"), "{listed}");
        assert_eq!(list(&json!([])), "no experiments\n");
    }
}
