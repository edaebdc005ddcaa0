//! Results as text.

use std::fmt::Write as _;

use balanza_plot::columns;
use balanza_simulator::report::{self, interval, part, time};
use balanza_simulator::result::{Comparison, Difference, Point};

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The verdicts, then all points, each with its table and the differences of pairs.
pub fn of(comparison: &Comparison, terminal: bool) -> String {
    let (bold, plain) = if terminal { (BOLD, PLAIN) } else { ("", "") };
    let mut text = String::new();
    let scenario = &comparison.scenario;
    if !scenario.name.is_empty() {
        let _ = writeln!(text, "{bold}{}{plain}", scenario.name);
    }
    for verdict in report::verdicts(comparison) {
        let _ = writeln!(text, "{verdict}");
    }
    if !scenario.description.is_empty() {
        let _ = writeln!(text, "\n{}", scenario.description.trim());
    }
    for point in &comparison.points {
        let _ = writeln!(text, "\n{bold}{}{plain}", heading(point));
        for warning in &point.warnings {
            let _ = writeln!(text, "note: {warning}");
        }
        let _ = write!(text, "\n{}", table(point));
        let pairs = differences(point);
        if !pairs.is_empty() {
            let _ = write!(text, "\n{pairs}");
        }
    }
    let events: u64 = comparison.points.iter().flat_map(|p| &p.runs).map(|run| run.events).sum();
    let replications = comparison.points.iter().flat_map(|p| &p.runs).map(|run| run.replications).max().unwrap_or(0);
    let (seed, elapsed) = (scenario.seed, report::time(comparison.elapsed));
    let _ = writeln!(
        text,
        "\nTimes are from the arrival of a request to its end; failures are included. ±: half the width of the 95%\n\
         confidence interval over {replications} replications. max: the slowest request of all. busy: mean utilisation of the\n\
         servers. Seed {seed}; {} events in {elapsed}.",
        short(events as f64),
    );
    text
}

fn heading(point: &Point) -> String {
    let servers = point.runs.first().map_or(0, |run| run.servers);
    let of = match (point.users, point.rate) {
        (Some(users), _) => format!("{users} users"),
        (None, Some(rate)) => format!("load {:.3}, {} requests/s", point.load, short(rate)),
        (None, None) => format!("load {:.3}", point.load),
    };
    let (duration, warmup) = (time(point.duration), time(point.warmup));
    format!("{servers} servers, {of}; {duration}, of which {warmup} warm-up ({})", point.warmup_by)
}

fn table(point: &Point) -> String {
    let failures = point.runs.iter().any(|run| run.counts.errors + run.counts.timeouts > 0);
    let mut head =
        vec!["algorithm", "mean", "median", "p90", "p99", "p99.9", "max", "busy", "longest queue", "Jain's index"];
    if failures {
        head.extend(["errors", "time-outs"]);
    }
    let mut rows = vec![head.into_iter().map(String::from).collect::<Vec<_>>()];
    for run in &point.runs {
        let q = &run.quantiles;
        let mut row = vec![run.algorithm.clone(), interval(run.mean_time_in_system, run.ci95)];
        row.extend([q.p50, q.p90, q.p99, q.p999, q.max].map(time));
        row.extend([part(run.utilization), run.max_queue.to_string(), format!("{:.3}", run.jain)]);
        if failures {
            let all = (run.counts.ok + run.counts.errors + run.counts.timeouts).max(1) as f64;
            row.extend([run.counts.errors, run.counts.timeouts].map(|n| part(n as f64 / all)));
        }
        rows.push(row);
    }
    columns(&rows, 1)
}

/// Those of neighbours in the order of their means, which say it all.
fn differences(point: &Point) -> String {
    let mut order: Vec<usize> = (0..point.runs.len()).collect();
    order.sort_by(|a, b| point.runs[*a].mean_time_in_system.total_cmp(&point.runs[*b].mean_time_in_system));
    let line = |pair: &[usize]| {
        let [fast, slow] = [pair[0], pair[1]];
        let of = |d: &&Difference| (d.first.min(d.second), d.first.max(d.second)) == (fast.min(slow), fast.max(slow));
        let difference = point.differences.iter().find(of)?;
        let (half, by) = (difference.ci95?, difference.mean.abs());
        let [fast, slow] = [fast, slow].map(|i| &point.runs[i]);
        let (by_words, names) = (interval(by, Some(half)), [&fast.algorithm, &slow.algorithm]);
        if !difference.detectable {
            return Some(format!("{} and {}: inconclusive (difference {by_words})", names[0], names[1]));
        }
        let share = by / slow.mean_time_in_system.max(1e-12) * 100.0;
        Some(format!("{} is faster than {} by {by_words} ({share:.0}%)", names[0], names[1]))
    };
    order.windows(2).filter_map(line).map(|line| format!("{line}\n")).collect()
}

/// Four digits, as far as they say something.
fn short(number: f64) -> String {
    let digits = match number.abs() {
        0.0 => 0,
        n if n >= 1e6 => return format!("{number:.2e}"),
        n if n >= 1_000.0 => 0,
        n if n >= 100.0 => 1,
        n if n >= 10.0 => 2,
        n if n >= 0.1 => 3,
        n if n >= 0.001 => 5,
        _ => return format!("{number:.1e}"),
    };
    format!("{number:.digits$}")
}

/// Names and what they are, in two columns.
pub fn list(rows: &[Vec<String>]) -> String {
    let width = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
    rows.iter().map(|row| format!("{:width$}  {}\n", row[0], row[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 1e-7, 0.00123, 0.5, 2.64541, 35.555, 123.456, 12_345.6, 4.2e7];
        let texts = ["0", "1.0e-7", "0.00123", "0.500", "2.645", "35.55", "123.5", "12346", "4.20e7"];
        assert_eq!(numbers.map(short), texts);
    }
}
