//! How numbers, names and verdicts are written: one way each, the same in all reports.

use balanza_plot::{number, percent, seconds};

use crate::metrics::{Kind, METRICS};
use crate::plan::{Load, Plan, Tool};
use crate::summary::{Estimate, Holds, Verdict, Verified};
use crate::units::{count, show_duration};

/// What stands where there is no number.
pub(super) const NOTHING: &str = "–";

/// In what a metric is measured; a name that is no metric's is a plain number.
pub(super) fn kind(metric: &str) -> Kind {
    METRICS.iter().find(|known| known.name == metric).map_or(Kind::Count, |known| known.kind)
}

/// What a column with a metric is called.
pub(super) fn metric(name: &str) -> &str {
    match name {
        "rps" => "requests/s",
        "sd" => "standard deviation",
        "p999" => "p99.9",
        "errors_per_second" => "errors/s",
        "failures_per_second" => "failures/s",
        "client_errors_per_second" => "client errors/s",
        "error_share" => "errors",
        "jain" => "Jain's index",
        "cpu_balancer" => "CPU balancer",
        "cpu_servers" => "CPU servers",
        "cpu_client" => "CPU client",
        "memory_balancer" => "memory",
        "connect_mean" => "mean connect",
        "waiting_mean" => "mean waiting",
        "transfer_rate" => "bytes/s",
        "connections_max" => "connections",
        name => name,
    }
}

/// A number with its unit, three digits.
pub(super) fn value(kind: Kind, value: f64) -> String {
    match kind {
        Kind::PerSecond | Kind::Count => number(value),
        Kind::Time => seconds(value),
        Kind::Part => percent(value),
        Kind::Processors => percent(value),
        Kind::Bytes => bytes(value),
        Kind::BytesPerSecond => format!("{}/s", bytes(value)),
    }
}

/// A number with the digits that somebody gave it, in its unit.
pub(super) fn exact(kind: Kind, value: f64) -> String {
    let (unit, suffix) = unit(kind, value);
    let digits = (5 - (value / unit).abs().max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{:.digits$}", value / unit);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

/// A mean with half the width of its interval, with the digits that the interval gives sense: `80.42 ± 0.51`.
pub(super) fn plus_minus(kind: Kind, estimate: &Estimate) -> String {
    match estimate.interval {
        Some((low, high)) if low.is_finite() && high.is_finite() => {
            let (unit, suffix) = unit(kind, estimate.mean);
            let half = (high - low) / 2.0 / unit;
            let mean = estimate.mean / unit;
            let digits = decimals(half, mean);
            format!("{mean:.digits$} ± {half:.digits$}{suffix}")
        }
        _ => value(kind, estimate.mean),
    }
}

/// So many decimals show two digits of a spread, or three of the value if there is none.
fn decimals(spread: f64, value: f64) -> usize {
    let (size, digits) = if spread > value.abs() * 1e-6 { (spread, 1) } else { (value.abs(), 2) };
    if size > 0.0 { (digits - size.log10().floor() as i32).clamp(0, 4) as usize } else { 0 }
}

/// The unit that makes a value a small number.
fn unit(kind: Kind, value: f64) -> (f64, &'static str) {
    let size = value.abs();
    match kind {
        Kind::PerSecond | Kind::Count => (1.0, ""),
        Kind::Part | Kind::Processors => (0.01, "%"),
        Kind::Time if size == 0.0 || size >= 0.999_999 => (1.0, " s"),
        Kind::Time if size >= 0.999_999e-3 => (1e-3, " ms"),
        Kind::Time => (1e-6, " µs"),
        Kind::Bytes if size >= 1e6 => (1e6, " MB"),
        Kind::Bytes if size >= 1e3 => (1e3, " kB"),
        Kind::Bytes => (1.0, " B"),
        Kind::BytesPerSecond if size >= 1e6 => (1e6, " MB/s"),
        Kind::BytesPerSecond if size >= 1e3 => (1e3, " kB/s"),
        Kind::BytesPerSecond => (1.0, " B/s"),
    }
}

fn bytes(value: f64) -> String {
    let (unit, suffix) = unit(Kind::Bytes, value);
    number(value / unit) + suffix
}

/// Two parts of one as a range: `56 to 58%`; a range of one number is one number.
pub(super) fn percent_range(low: f64, high: f64) -> String {
    let (low, high) = (low * 100.0, high * 100.0);
    let digits = if low.abs().max(high.abs()) >= 10.0 { 0 } else { 1 };
    let [low, high] = [low, high].map(|end| format!("{end:.digits$}"));
    let end = |text: String| match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|char| char == '0' || char == '.') => rest.to_string(),
        Some(rest) => format!("−{rest}"),
        None => text,
    };
    let [low, high] = [low, high].map(end);
    if low == high { format!("{low}%") } else { format!("{low} to {high}%") }
}

/// How one stands to the best.
pub(super) fn verdict(verdict: Verdict, metric: &str) -> String {
    match verdict {
        Verdict::Best => "best".to_string(),
        Verdict::Tied => "inconclusive".to_string(),
        // A rate cannot be lower than zero.
        Verdict::Worse { low, high } if metric == "rps" => format!("{} worse", percent_range(low, high.min(1.0))),
        Verdict::Worse { low, high } => format!("{} worse", percent_range(low, high)),
        Verdict::Unranked => "not ranked".to_string(),
    }
}

/// The result of a check in words.
pub(super) fn outcome(verified: &Verified) -> &'static str {
    match (verified.holds, verified.expected) {
        (Holds::CannotBeTold, _) | (_, None) => "inconclusive",
        (Holds::Yes, Some(true)) => "confirmed",
        (Holds::No, Some(false)) => "not confirmed",
        (Holds::No, Some(true)) => "expected to fail: confirmed",
        (Holds::Yes, Some(false)) => "expected to fail: not confirmed",
    }
}

/// The result of a check as a mark.
pub(super) fn expected(expected: Option<bool>) -> char {
    match expected {
        Some(true) => '✓',
        Some(false) => '✗',
        None => '?',
    }
}

/// A load in a heading: `250 users`, `small pages (100 requests/s)`.
pub(super) fn load_title(load: &Load) -> String {
    let size = size(load);
    let number: String = size.chars().take_while(char::is_ascii_digit).collect();
    match size.is_empty() {
        true => format!("load {}", load.name),
        false if load.name == number || load.name == size => size,
        false => format!("{} ({size})", load.name),
    }
}

fn size(load: &Load) -> String {
    if let Some(log) = &load.log {
        return log.to_string();
    }
    match (load.users, load.rate) {
        (Some(users), _) => count(u64::from(users), "user"),
        (None, Some(rate)) => format!("{} requests/s", exact(Kind::PerSecond, rate)),
        (None, None) => String::new(),
    }
}

/// A load in a sentence: which program sends it, how, for how long.
pub(super) fn load_words(load: &Load) -> String {
    let mut words = vec![match load.users {
        Some(_) => format!("a closed loop of {}", size(load)),
        None if load.is_open() => format!("an open loop of {}", size(load)),
        None => "a load".to_string(),
    }];
    words[0].push_str(&format!(" by {}", tool(load.tool)));
    words.extend(load.duration.map(|time| show_duration(time.0)));
    words.extend(load.requests.map(|requests| count(requests, "request")));
    let times = [("warm-up", load.warmup), ("think time", load.think), ("added network delay", load.rtt)];
    words.extend(
        times
            .iter()
            .filter(|(_, time)| !time.is_zero())
            .map(|(what, time)| format!("{what} {}", show_duration(time.0))),
    );
    words.push(format!("time-out after {}", show_duration(load.timeout.0)));
    if load.sources > 1 {
        words.push(format!("from {} addresses", load.sources));
    }
    words.push(if load.keep_alive { "connection reuse" } else { "a new connection for each request" }.to_string());
    words.join(", ")
}

/// The program that sends a load.
pub(super) fn tool(tool: Tool) -> &'static str {
    match tool {
        Tool::Balanza => "the built-in load generator",
        Tool::Ab => "ApacheBench",
        Tool::Siege => "Siege",
        Tool::Httperf => "httperf",
        Tool::Wrk => "wrk",
        Tool::Locust => "Locust",
    }
}

/// A farm and a load in a heading; the farm is not named where there is only one.
pub(super) fn place(plan: &Plan, farm: &str, load: &str) -> String {
    let load = plan.loads.iter().find(|known| known.name == load).map_or_else(|| format!("load {load}"), load_title);
    if plan.farms.len() > 1 { format!("{farm}, {load}") } else { load }
}

/// Text without its line breaks, and its paragraphs.
pub(super) fn paragraphs(text: &str) -> impl Iterator<Item = String> {
    let joined = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(joined).filter(|paragraph| !paragraph.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(mean: f64, half: f64) -> Estimate {
        Estimate { mean, interval: Some((mean - half, mean + half)), ..Estimate::default() }
    }

    #[test]
    fn numbers_have_the_digits_and_units_of_sense() {
        assert_eq!(plus_minus(Kind::PerSecond, &estimate(80.4219, 0.512)), "80.42 ± 0.51");
        assert_eq!(plus_minus(Kind::Time, &estimate(1.3017, 0.0121)), "1.302 ± 0.012 s");
        assert_eq!(plus_minus(Kind::Time, &estimate(0.0199, 0.000109)), "19.90 ± 0.11 ms");
        assert_eq!(plus_minus(Kind::PerSecond, &estimate(12345.0, 120.0)), "12345 ± 120");
        assert_eq!(plus_minus(Kind::PerSecond, &Estimate { mean: 80.4219, ..Estimate::default() }), "80.4");
        assert_eq!(exact(Kind::PerSecond, 87.36), "87.36");
        assert_eq!(exact(Kind::Time, 0.72), "720 ms");
        assert_eq!(exact(Kind::Time, 38.024), "38.024 s");
        assert_eq!(value(Kind::Bytes, 12_345_678.0), "12.3 MB");
        assert_eq!(value(Kind::Processors, 0.1099), "11%");
    }

    #[test]
    fn ranges_are_as_short_as_they_can_be() {
        assert_eq!(percent_range(0.561, 0.583), "56 to 58%");
        assert_eq!(percent_range(0.0012, 0.031), "0.1 to 3.1%");
        assert_eq!(percent_range(-0.02, 0.03), "−2.0 to 3.0%");
        assert_eq!(percent_range(0.4101, 0.4102), "41%");
        assert_eq!(percent_range(-0.0001, 0.02), "0.0 to 2.0%");
    }

    #[test]
    fn loads_have_titles() {
        let load = |text: &str| load_title(&toml::from_str::<Load>(text).unwrap());
        assert_eq!(load("name = '250'\nusers = 250"), "250 users");
        assert_eq!(load("name = 'one'\nusers = 1"), "one (1 user)");
        assert_eq!(load("name = '1000'\nrate = 1000.0"), "1000 requests/s");
    }
}
