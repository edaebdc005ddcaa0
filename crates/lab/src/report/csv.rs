//! Tables for programs (RFC 4180).

use std::collections::BTreeSet;

use crate::plan::Plan;
use crate::record::{ErrorKind, Latency, Run};
use crate::statistics::values::of_run;
use crate::summary::{CellSummary, Summary};

/// The columns of Locust's `_stats.csv`, as Locust 2 writes them.
const LOCUST: &str = "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,\
                      Max Response Time,Average Content Size,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,\
                      99.99%,100%";
/// Their percentiles.
const PERCENTILES: [f64; 11] = [50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.9, 99.99, 100.0];

/// A line for each cell with the columns of Locust's `_stats.csv`: times in milliseconds over the requests of all runs that
/// count, rates as means over the runs. The name is `system/algorithm/load/farm`. As in Locust, requests and their rate count
/// those that failed, too, and what is not known is `N/A`.
pub fn csv(summary: &Summary) -> String {
    let mut lines = vec![LOCUST.to_string()];
    lines.extend(summary.cells.iter().map(|cell| locust(cell).join(",")));
    lines.join("\r\n") + "\r\n"
}

fn locust(cell: &CellSummary) -> Vec<String> {
    let (latency, name) = (&cell.latency, &cell.cell);
    let metric = |name: &str| cell.metrics.get(name).map(|estimate| estimate.mean);
    let failed: u64 = cell.errors.values().sum();
    let (rate, failures) = (metric("rps"), metric("errors_per_second").unwrap_or(0.0));
    let size = metric("transfer_rate").zip(rate).filter(|(_, rate)| *rate > 0.0).map(|(bytes, rate)| bytes / rate);
    let milliseconds = |time: Option<f64>| known(time.map(|time| time * 1e3));
    let mut line = vec![
        "GET".to_string(),
        field(&format!("{}/{}/{}/{}", name.system, name.algorithm, name.load, name.farm)),
        (latency.count + failed).to_string(),
        failed.to_string(),
        milliseconds(percentile(latency, 50.0)),
        milliseconds(latency.mean),
        milliseconds(latency.min),
        milliseconds(latency.max),
        known(size),
        known(rate.map(|rate| rate + failures)),
        known(Some(failures)),
    ];
    line.extend(PERCENTILES.map(|part| milliseconds(percentile(latency, part))));
    line
}

/// A percentile of a distribution, or what the tool said of it.
fn percentile(latency: &Latency, percentile: f64) -> Option<f64> {
    match percentile {
        _ if latency.count == 0 => None,
        100.0 => latency.max,
        _ => latency.quantile(percentile / 100.0),
    }
}

fn known(value: Option<f64>) -> String {
    value.map_or_else(|| "N/A".to_string(), |value| ((value * 1e6).round() / 1e6).to_string())
}

/// A line for each run with everything that was measured of it but distributions: times in seconds, empty where not known.
pub fn runs_csv(plan: &Plan, runs: &[Run]) -> String {
    let kinds: BTreeSet<ErrorKind> = runs.iter().flat_map(|run| run.measured.errors.keys().copied()).collect();
    let mut head: Vec<String> = [
        "farm,load,system,algorithm,repetition,order,started,invalid,tool,closed_loop,seconds,ended,answered,rps,bytes",
        "mean,sd,min,p50,p90,p95,p99,p999,max,connect_mean,waiting_mean,lag_p99,connections_max",
        "cpu_balancer,cpu_servers,cpu_client,memory_balancer,servers",
    ]
    .map(str::to_string)
    .to_vec();
    head.extend(kinds.iter().map(|kind| format!("errors_{}", kind_name(*kind))));
    let mut lines = vec![head.join(",")];
    lines.extend(runs.iter().map(|run| line(plan, run, &kinds).join(",")));
    lines.join("\r\n") + "\r\n"
}

fn kind_name(kind: ErrorKind) -> String {
    serde_json::to_value(kind).ok().and_then(|value| value.as_str().map(str::to_string)).unwrap_or_default()
}

fn line(plan: &Plan, run: &Run, kinds: &BTreeSet<ErrorKind>) -> Vec<String> {
    let (cell, measured) = (&run.cell, &run.measured);
    let latency = &measured.latency;
    let some = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let rate = (measured.seconds > 0.0).then(|| measured.answered as f64 / measured.seconds);
    let mut line = vec![
        field(&cell.farm),
        field(&cell.load),
        field(cell.system.name()),
        field(&cell.algorithm),
        run.repetition.to_string(),
        run.order.to_string(),
        field(&run.started),
        field(&run.invalid.join("; ")),
        format!("{:?}", measured.tool).to_lowercase(),
        measured.closed_loop.to_string(),
        measured.seconds.to_string(),
        measured.ended.to_string(),
        measured.answered.to_string(),
        some(rate),
        some(measured.bytes.map(|bytes| bytes as f64)),
    ];
    line.extend([latency.mean, latency.sd, latency.min].map(some));
    line.extend([50.0, 90.0, 95.0, 99.0, 99.9].map(|part| some(percentile(latency, part))));
    line.push(some(latency.max));
    line.extend([&measured.connect, &measured.waiting].map(|times| some(times.as_ref().and_then(|times| times.mean))));
    line.push(some(measured.lag.as_ref().and_then(|lag| percentile(lag, 99.0))));
    line.push(some(measured.connections_max.map(|connections| connections as f64)));
    let values = of_run(plan, run);
    let named = ["cpu_balancer", "cpu_servers", "cpu_client", "memory_balancer"];
    line.extend(named.map(|name| some(values.value(name, None))));
    let servers: Vec<String> =
        run.servers.iter().map(|server| format!("{}={}", server.name, server.requests)).collect();
    line.push(field(&servers.join(" ")));
    line.extend(kinds.iter().map(|kind| measured.errors.get(kind).copied().unwrap_or(0).to_string()));
    line
}

/// A text as a field: in quotes if it needs them.
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn locusts_columns() {
        let csv = csv(&sample::summary());
        let mut lines = csv.split("\r\n");
        assert_eq!(
            lines.next(),
            Some(
                "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,\
                 Max Response Time,Average Content Size,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,99.99%,100%"
            )
        );
        let cells: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        assert_eq!(cells.len(), sample::summary().cells.len());
        assert!(cells[0].starts_with("GET,balanza/round_robin/10/two unequal,"), "{}", cells[0]);
        for line in cells {
            assert_eq!(line.split(',').count(), 22, "{line}");
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut summary = sample::summary();
        summary.cells.truncate(1);
        summary.cells[0].latency = Latency::default();
        summary.cells[0].metrics.remove("transfer_rate");
        summary.cells[0].cell.algorithm = "hash a,b".into();
        let csv = csv(&summary);
        let line = csv.lines().nth(1).unwrap();
        assert!(line.starts_with("GET,\"balanza/hash a,b/10/two unequal\",0,0,N/A,N/A,N/A,N/A,N/A,"), "{line}");
        assert!(line.ends_with(",N/A,N/A"), "{line}");
    }

    #[test]
    fn runs_have_a_line_each() {
        let runs = sample::runs();
        let csv = runs_csv(&sample::summary().plan, &runs);
        let columns: BTreeSet<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns.len(), 1, "{csv}");
        assert_eq!(csv.lines().count(), runs.len() + 1);
        insta::assert_snapshot!(csv.replace("\r\n", "\n"));
    }
}
