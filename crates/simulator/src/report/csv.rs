//! One line for each algorithm and load (RFC 4180): times in seconds, empty where there is no value.

use crate::result::{Bins, Comparison, Point, Run};

const COLUMNS: &[&str] = &[
    "algorithm",
    "servers",
    "load",
    "users",
    "rate",
    "replications",
    "seed",
    "duration",
    "warmup",
    "mean_time_in_system",
    "ci95",
    "sd_time_in_system",
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p999",
    "p9999",
    "max",
    "utilization",
    "mean_queue",
    "max_queue",
    "jain",
    "throughput",
    "arrivals",
    "ok",
    "errors",
    "timeouts",
    "retries",
    "syn_retries",
    "in_system",
    "events",
    "events_per_second",
];

pub(super) fn comparison(comparison: &Comparison) -> String {
    let mut lines = vec![COLUMNS.join(",")];
    for point in &comparison.points {
        lines.extend(point.runs.iter().map(|run| line(point, run).join(",")));
    }
    lines.join("\r\n") + "\r\n"
}

fn line(point: &Point, run: &Run) -> Vec<String> {
    let (quantiles, counts) = (&run.quantiles, &run.counts);
    let or_empty = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let mut line = vec![
        field(&run.algorithm),
        run.servers.to_string(),
        point.load.to_string(),
        or_empty(point.users.map(f64::from)),
        or_empty(point.rate),
        run.replications.to_string(),
        run.seed.to_string(),
        point.duration.to_string(),
        point.warmup.to_string(),
        run.mean_time_in_system.to_string(),
        or_empty(run.ci95),
        run.sd_time_in_system.to_string(),
    ];
    let q = quantiles;
    line.extend([q.p50, q.p75, q.p90, q.p95, q.p99, q.p999, q.p9999, q.max].map(|value| value.to_string()));
    line.extend([run.utilization, run.mean_queue].map(|value| value.to_string()));
    line.push(run.max_queue.to_string());
    line.extend([run.jain, run.throughput].map(|value| value.to_string()));
    let c = counts;
    let counts = [c.arrivals, c.ok, c.errors, c.timeouts, c.retries, c.syn_retries, c.in_system, run.events];
    line.extend(counts.map(|count| count.to_string()));
    line.push(run.events_per_second.to_string());
    line
}

/// One line for each algorithm and number of requests so far, from its curve.
pub(super) fn bins(bins: &[Bins]) -> String {
    let mut lines = vec!["algorithm,servers,requests,sd,max_load,max_load_ci95,replications,seed".to_string()];
    for run in bins {
        let name = field(&run.algorithm);
        let end = format!("{},{}", run.replications, run.seed);
        for point in &run.series {
            lines.push(format!("{name},{},{},{},,,{end}", run.servers, point.requests, point.sd));
        }
        let ci95 = run.max_load_ci95.map_or_else(String::new, |ci95| ci95.to_string());
        lines.push(format!("{name},{},{},{},{},{ci95},{end}", run.servers, run.requests, run.sd, run.max_load));
    }
    lines.join("\r\n") + "\r\n"
}

/// A text as a field: in quotes if it needs them.
pub fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        assert_eq!(field("two_choices choices=3"), "two_choices choices=3");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"x\""), "\"say \"\"x\"\"\"");
    }
}
