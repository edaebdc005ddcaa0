//! What the API answers of an experiment.

use std::time::Duration;

use balanza_config::model::membership::Protocol;
use balanza_experiment::{Comparison, Effect, Part, Phase, compare};
use serde_json::{Map, Value, json};

use super::super::objects::{duration, timestamp};
use super::plan::{Plan, in_use};
use super::trial::Trial;
use crate::servers::membership::Shared;

/// The settings as the configuration and requests have them.
fn settings(plan: &Plan, seed: Option<u64>) -> Value {
    let it = &plan.settings;
    let percent = |part: Option<f64>| part.map(|part| format!("{}%", (part * 1e8).round() / 1e6));
    let mut object = json!({
        "block": duration(it.block), "washout": duration(it.washout()), "rounds": it.rounds, "requests": it.requests,
    });
    let given = [
        ("seed", seed.map(Value::from)),
        ("errors", percent(it.errors).map(Value::from)),
        ("p99", it.p99.map(|time| duration(time).into())),
        ("p99_ratio", it.p99_ratio.map(Value::from)),
        ("full", percent(it.full).map(Value::from)),
    ];
    for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        object[name] = value;
    }
    object
}

fn heading(protocol: Protocol, upstream: &str, state: &str) -> Map<String, Value> {
    let protocol = if protocol == Protocol::Http { "http" } else { "stream" };
    let parts = [("protocol", protocol), ("upstream", upstream), ("state", state)];
    parts.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// One that is configured and has not begun.
pub fn planned(shared: &Shared, plan: &Plan) -> Value {
    let mut object = heading(shared.protocol, &shared.conf.name, "ready");
    let control = in_use(shared, &shared.membership());
    object.insert("settings".into(), settings(plan, plan.settings.seed));
    let names = std::iter::once(&control).chain(&plan.arms);
    object.insert("arms".into(), names.map(|name| arm(name, 0, &Part::default())).collect());
    Value::Object(object)
}

/// One that runs or has ended.
pub fn trial(trial: &Trial) -> Value {
    let state = trial.end.as_ref().map_or("running", |end| end.kind);
    let mut object = heading(trial.key.0, &trial.key.1, state);
    object.insert("settings".into(), settings(&trial.plan, Some(trial.seed)));
    object.insert("started".into(), json!(timestamp(trial.started)));
    if let Some(end) = &trial.end {
        object.insert("ended".into(), json!({ "time": timestamp(end.time), "reason": end.reason }));
    }
    let complete = trial.blocks.iter().filter(|block| block.complete);
    object.insert("blocks".into(), json!({ "planned": trial.schedule.blocks(), "complete": complete.clone().count() }));
    let mut arms = Vec::new();
    for (nth, name) in trial.names().enumerate() {
        let (mut blocks, mut sum) = (0, Part::default());
        for block in complete.clone().filter(|block| block.arm == nth) {
            blocks += 1;
            sum.merge(&block.counted());
        }
        arms.push(arm(name, blocks, &sum));
    }
    let comparisons = compare(arms.len(), &trial.blocks);
    object.insert("analysis".into(), comparisons.iter().map(|one| comparison(trial, one)).collect());
    object.insert("arms".into(), arms.into());
    if let (Some(block), Some((phase, left))) = (trial.current(), trial.place()) {
        let phase = match phase {
            Phase::Washout => "washout",
            Phase::First => "first",
            Phase::Second => "second",
        };
        let mut now = figures(&block.whole());
        now.insert("block".into(), json!(block.number));
        now.insert("round".into(), json!(trial.schedule.round(block.number)));
        now.insert("arm".into(), json!(trial.names().nth(block.arm)));
        now.insert("phase".into(), json!(phase));
        now.insert("seconds_left".into(), json!(seconds(left)));
        object.insert("now".into(), now.into());
    }
    Value::Object(object)
}

/// An arm beside the control; times in milliseconds.
fn comparison(trial: &Trial, it: &Comparison) -> Value {
    let scaled = |effect: Option<Effect>, by: f64| {
        let round = |value: f64| (value * by * 1e6).round() / 1e6;
        effect.map(|effect| {
            let interval = effect.interval.map(|(low, high)| [round(low), round(high)]);
            json!({ "mean": round(effect.mean), "interval": interval })
        })
    };
    json!({
        "arm": trial.names().nth(it.arm),
        "rounds": it.rounds,
        "mean": scaled(it.mean, 1e3),
        "p50": scaled(it.p50, 1e3),
        "p99": scaled(it.p99, 1e3),
        "errors": scaled(it.errors, 1.0),
        "carry_over": scaled(it.carry_over, 1e3),
        "control_carry_over": scaled(it.control_carry_over, 1e3),
        "verdict": it.verdict,
    })
}

/// To the millisecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

fn arm(name: &str, blocks: u64, sum: &Part) -> Value {
    let mut object = figures(sum);
    object.insert("name".into(), json!(name));
    object.insert("blocks".into(), json!(blocks));
    object.into()
}

/// Times in milliseconds, to the microsecond.
fn figures(part: &Part) -> Map<String, Value> {
    let millis = |seconds: f64| (part.requests() > 0).then(|| (seconds * 1e6).round() / 1e3);
    let figures = [
        ("requests", json!(part.requests())),
        ("rate", json!(part.rate())),
        ("failed", json!(part.failures)),
        ("mean", json!(millis(part.times.mean()))),
        ("p50", json!(millis(part.times.quantile(0.5)))),
        ("p99", json!(millis(part.times.quantile(0.99)))),
        ("fullness", json!(part.fullness.mean())),
    ];
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
