//! Verdicts in sentences.

use super::format;
use super::ranking::Standing;
use crate::metrics::{Kind, METRICS};
use crate::summary::{Estimate, Verdict};

/// From this part of unanswered requests on, a ranked one's errors are mentioned.
const ERRORS_WORTH_SAYING: f64 = 0.01;

/// Which one is best by how much, or that this is inconclusive; then which ones are not ranked, and why.
pub(super) fn verdict(metric: &str, standing: &Standing) -> String {
    let mut sentences = vec![comparison(metric, standing)];
    for (name, .., errors) in &standing.ranked {
        if *errors >= ERRORS_WORTH_SAYING {
            sentences.push(format!("{name}: {:.0}% of the requests failed.", errors * 100.0));
        }
    }
    let unranked = standing.unranked.iter();
    let reasons: Vec<String> =
        unranked.filter_map(|(name, _, reason)| reason.as_ref().map(|reason| format!("{name} ({reason})"))).collect();
    if !reasons.is_empty() {
        sentences.push(format!("Not ranked: {}.", reasons.join(", ")));
    }
    let controls = standing.unranked.iter().filter(|(.., reason)| reason.is_none());
    let controls: Vec<String> = controls
        .filter_map(|(name, estimate, _)| Some(format!("{name} {}", figure(metric, estimate.as_ref()?))))
        .collect();
    if !controls.is_empty() {
        sentences.push(format!("For comparison: {}.", controls.join(", ")));
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences.join(" ")
}

fn comparison(metric: &str, standing: &Standing) -> String {
    let ranked = &standing.ranked;
    let [(best, estimate, ..), others @ ..] = &ranked[..] else { return String::new() };
    if others.is_empty() {
        return format!(
            "{best} has a {} of {}; there is no other valid result to compare with.",
            about(metric),
            figure(metric, estimate)
        );
    }
    let names = |names: &[&str]| match names {
        [] => String::new(),
        [one] => one.to_string(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    };
    let tied: Vec<&str> =
        others.iter().filter(|(_, _, verdict, _)| *verdict == Verdict::Tied).map(|(name, ..)| name.as_str()).collect();
    let what = about(metric);
    if tied.len() == others.len() {
        let all: Vec<&str> = ranked.iter().map(|(name, ..)| name.as_str()).collect();
        let means = ranked.iter().map(|(_, estimate, ..)| estimate.mean);
        let (low, high) = means.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), m| (l.min(m), h.max(m)));
        let means = span(metric, low, high);
        return match standing.excluded {
            Some(most) if most < 0.0005 => format!("{} have the same {what} ({means}).", names(&all)),
            Some(most) => format!(
                "No detectable difference in {what} between {} ({means}); differences up to {} cannot be excluded.",
                names(&all),
                percent(most)
            ),
            None => format!(
                "{best} has the best {what} ({}); the differences to {} are inconclusive.",
                figure(metric, estimate),
                names(&tied)
            ),
        };
    }
    let mut text = match metric {
        "rps" => format!("{best} is best ({})", figure(metric, estimate)),
        _ => format!("{best} has the lowest {what} ({})", figure(metric, estimate)),
    };
    match tied.len() {
        0 => {}
        1 => text += &format!("; the difference to {} is inconclusive", tied[0]),
        _ => text += &format!("; the differences to {} are inconclusive", names(&tied)),
    }
    let mut clauses: Vec<String> = Vec::new();
    for (name, _, verdict, _) in others {
        if let Verdict::Worse { low, high } = verdict {
            clauses.push(match metric {
                "rps" => format!("{name} is {} worse", range(*low, high.min(1.0))),
                _ if *low >= 1.0 => format!("that of {name} is {} times as high", times(1.0 + low, 1.0 + high)),
                _ => format!("that of {name} is {} higher", range(*low, *high)),
            });
        }
    }
    format!("{text}; {}.", clauses.join(", "))
}

/// What a metric is called inside a sentence.
fn about(metric: &str) -> &'static str {
    match metric {
        "rps" => "throughput",
        "mean" => "mean latency",
        "p99" => "99th percentile of the latency",
        _ => "maximum latency",
    }
}

fn figure(metric: &str, estimate: &Estimate) -> String {
    span(metric, estimate.mean, estimate.mean)
}

/// `187 requests/s`, `123 to 126 requests/s`, `1.2 to 1.3 s`.
fn span(metric: &str, low: f64, high: f64) -> String {
    let show = |value: f64| match metric {
        "rps" => match value {
            value if value >= 1000.0 => format!("{value:.0} requests/s"),
            value if value >= 10.0 => format!("{value:.1} requests/s"),
            value => format!("{value:.2} requests/s"),
        },
        _ => {
            let kind = METRICS.iter().find(|known| known.name == metric).map_or(Kind::Count, |known| known.kind);
            format::value(kind, value)
        }
    };
    let (low, high) = (show(low), show(high));
    if low == high {
        return low;
    }
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

fn percent(part: f64) -> String {
    match part * 100.0 {
        most if most < 0.1 => "0.1%".into(),
        most if most < 9.95 => format!("{most:.1}%"),
        most => format!("{most:.0}%"),
    }
}

/// `56 to 58%`, `57%`, `up to 12%`.
fn range(low: f64, high: f64) -> String {
    let places = if high < 0.0995 { 1 } else { 0 };
    let show = |part: f64| format!("{:.places$}", part * 100.0);
    let (low, high) = (show(low), show(high));
    match low.as_str() {
        "0" | "0.0" if high == low => "less than 0.1%".into(),
        "0" | "0.0" => format!("up to {high}%"),
        _ if low == high => format!("{high}%"),
        _ => format!("{low} to {high}%"),
    }
}

/// `2.1 to 2.4`, `17`.
fn times(low: f64, high: f64) -> String {
    let show = |factor: f64| if factor < 10.0 { format!("{factor:.1}") } else { format!("{factor:.0}") };
    let (low, high) = (show(low), show(high));
    if low == high { high } else { format!("{low} to {high}") }
}
