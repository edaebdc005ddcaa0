//! The tables of all reports, before they have a form.

use std::collections::BTreeSet;

use super::grid::{Align, Entry, Grid, Tone};
use super::words::{self, NOTHING, exact, kind, metric, plus_minus, value};
use crate::environment::Environment;
use crate::metrics::METRICS;
use crate::plan::{Cell, Reported, System, Tool};
use crate::record::{ErrorKind, Role};
use crate::summary::{Among, CellSummary, Ranking, Summary, Verdict};
use crate::units::count;

/// Pairs of farm and load that have cells, in the plan's order.
pub(super) fn places(summary: &Summary) -> Vec<(&str, &str)> {
    let mut places: Vec<(&str, &str)> = Vec::new();
    for cell in &summary.cells {
        let place = (cell.cell.farm.as_str(), cell.cell.load.as_str());
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The cells of a farm and a load.
pub(super) fn cells_of<'a>(summary: &'a Summary, (farm, load): (&str, &str)) -> Vec<&'a CellSummary> {
    summary.cells.iter().filter(|cell| cell.cell.farm == farm && cell.cell.load == load).collect()
}

/// The systems of some cells, in their order.
pub(super) fn systems<'a>(cells: &[&'a CellSummary]) -> Vec<&'a System> {
    let mut systems: Vec<&System> = Vec::new();
    for cell in cells {
        if !systems.contains(&&cell.cell.system) {
            systems.push(&cell.cell.system);
        }
    }
    systems
}

/// The place that is shown first: the one that the document has most rows about, of equals the one where most was measured;
/// without a document the last.
pub(super) fn main_place(summary: &Summary) -> Option<(&str, &str)> {
    let said = |place: &(&str, &str)| {
        let rows = summary.plan.reported.iter().filter(|row| is_at(row, *place)).count();
        let cells = summary.cells.iter().filter(|cell| (cell.cell.farm.as_str(), cell.cell.load.as_str()) == *place);
        (rows, if rows > 0 { cells.count() } else { 0 })
    };
    places(summary).into_iter().max_by_key(said)
}

/// The metric that decides who is best there: a closed loop's throughput, an open loop's mean latency.
pub(super) fn decisive(cells: &[&CellSummary]) -> &'static str {
    if cells.iter().any(|cell| !cell.closed_loop) { "mean" } else { "rps" }
}

fn is_at(row: &Reported, (farm, load): (&str, &str)) -> bool {
    row.farm.as_deref().is_none_or(|named| named == farm) && row.load.as_deref().is_none_or(|named| named == load)
}

fn estimate(cell: &CellSummary, name: &str, write: impl Fn(&crate::summary::Estimate) -> String) -> Entry {
    cell.metrics.get(name).map_or_else(|| NOTHING.to_string(), write).into()
}

/// The verdict on a cell among the algorithms of its system.
fn verdict(summary: &Summary, cell: &Cell, metric: &str) -> Option<Verdict> {
    let among = Among::Algorithms(cell.system.clone());
    let of = |ranking: &&Ranking| {
        ranking.farm == cell.farm && ranking.load == cell.load && ranking.among == among && ranking.metric == metric
    };
    let place = summary.rankings.iter().find(of)?.places.iter().find(|place| place.name == cell.algorithm)?;
    Some(place.verdict)
}

/// What was measured at a farm and a load; `long` has more columns, for paper.
pub(super) fn results(summary: &Summary, place: (&str, &str), long: bool) -> Grid {
    let cells = cells_of(summary, place);
    let decisive = decisive(&cells);
    let mut grid = Grid::default().column("system", Align::Left, 0).column("algorithm", Align::Left, 0);
    let failing =
        cells.iter().any(|cell| cell.metrics.get("errors_per_second").is_some_and(|errors| errors.mean > 0.0));
    // The name, how soon it goes from a narrow terminal, whether only long tables have it.
    let columns = [
        ("rps", 0, false),
        ("mean", 7, false),
        ("sd", 0, true),
        ("median", 3, false),
        ("p90", 0, true),
        ("p95", 2, false),
        ("p99", 5, false),
        ("p999", 0, true),
        ("max", 6, false),
        ("errors_per_second", if failing { 8 } else { 1 }, false),
    ];
    let columns: Vec<_> = columns.into_iter().filter(|column| long || !column.2).collect();
    for (name, dispensable, _) in &columns {
        grid = grid.column(metric(name), Align::Right, *dispensable);
    }
    grid = grid.column("verdict", Align::Left, 0);
    for cell in cells {
        let mut row: Vec<Entry> = vec![cell.cell.system.name().into(), cell.cell.algorithm.as_str().into()];
        row.extend(columns.iter().map(|&(name, ..)| {
            estimate(cell, name, |estimate| match name {
                "rps" => plus_minus(kind(name), estimate),
                "mean" if long => plus_minus(kind(name), estimate),
                _ => value(kind(name), estimate.mean),
            })
        }));
        let verdict = verdict(summary, &cell.cell, decisive);
        let tone = match verdict {
            Some(Verdict::Best) => Tone::Good,
            Some(Verdict::Worse { .. }) => Tone::Bad,
            _ => Tone::Plain,
        };
        row.push(Entry::new(verdict.map_or_else(|| NOTHING.into(), |verdict| words::verdict(verdict, decisive)), tone));
        grid.row(row);
    }
    grid.without_empty()
}

/// The published results for a farm and a load, with ours below each of their rows; empty if there are none.
pub(super) fn reported(summary: &Summary, place: (&str, &str)) -> Grid {
    let rows: Vec<&Reported> = summary.plan.reported.iter().filter(|row| is_at(row, place)).collect();
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| row.values.keys()).map(String::as_str).collect();
    let mut metrics: Vec<&str> = METRICS.iter().map(|metric| metric.name).filter(|name| named.contains(name)).collect();
    // The maximum follows the percentiles.
    metrics.sort_by_key(|name| {
        METRICS.iter().position(|metric| metric.name == if *name == "max" { "p999" } else { *name })
    });
    let deviation = |name: &str| name.strip_suffix("_sd").is_some_and(|base| named.contains(base));
    let others = named.iter().copied().filter(|name| !deviation(name));
    metrics.extend(others.filter(|name| METRICS.iter().all(|metric| metric.name != *name)));

    let mut grid = Grid::default().column("", Align::Left, 0).column("source", Align::Left, 0);
    for name in &metrics {
        grid = grid.column(metric(name), Align::Right, 0);
    }
    let cells = cells_of(summary, place);
    for row in rows {
        let name = row.row.as_deref().unwrap_or(&row.algorithm);
        let mut entries: Vec<Entry> = vec![name.into(), "published".into()];
        entries.extend(metrics.iter().map(|name| {
            match (row.values.get(*name), row.values.get(&format!("{name}_sd"))) {
                (Some(&mean), Some(&sd)) => format!("{} ({})", exact(kind(name), mean), exact(kind(name), sd)).into(),
                (Some(&mean), None) => exact(kind(name), mean).into(),
                _ => Entry::from(NOTHING),
            }
        }));
        grid.row(entries);
        let ours = cells.iter().filter(|cell| cell.cell.algorithm == row.algorithm);
        for cell in ours.filter(|cell| match &row.system {
            Some(system) => cell.cell.system == *system,
            None => true,
        }) {
            let mut entries: Vec<Entry> = vec!["".into(), format!("ours, {}", cell.cell.system.name()).into()];
            entries.extend(metrics.iter().map(|name| {
                let Some(estimate) = cell.metrics.get(*name) else { return Entry::from(NOTHING) };
                let ours = plus_minus(kind(name), estimate);
                match row.values.get(*name) {
                    // On a line of its own, so that the columns are narrow.
                    Some(&theirs) if theirs > 0.0 => format!("{ours}\n×{:.2}", estimate.mean / theirs).into(),
                    _ => ours.into(),
                }
            }));
            grid.row(entries);
        }
    }
    grid.without_empty()
}

/// What each process used, and what part of the responses each server sent; empty if this was not measured.
pub(super) fn processes(summary: &Summary, place: (&str, &str)) -> Grid {
    let cells = cells_of(summary, place);
    let mut names: Vec<&str> = Vec::new();
    for cell in &cells {
        let servers = cell.cpu.iter().filter(|(_, role, _)| *role == Role::Server).map(|(name, _, _)| name);
        for name in servers.chain(cell.shares.iter().map(|(name, _)| name)) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let mut grid = Grid::default()
        .column("system", Align::Left, 0)
        .column("algorithm", Align::Left, 0)
        .column("CPU balancer", Align::Right, 0)
        .column("memory", Align::Right, 0)
        .column("CPU client", Align::Right, 0)
        .column(metric("transfer_rate"), Align::Right, 0)
        .column(metric("jain"), Align::Right, 0);
    // A page scrolls, but a table of forty columns is of no use.
    names.truncate(SERVERS);
    for name in &names {
        grid = grid.column(&format!("{name}: share"), Align::Right, 0).column("CPU", Align::Right, 0);
    }
    for cell in cells {
        let cpu = |wanted: Role| {
            let mut of = cell.cpu.iter().filter(|(_, role, _)| *role == wanted);
            of.next().map_or_else(|| NOTHING.to_string(), |(_, _, cpu)| plus_minus(kind("cpu"), cpu))
        };
        let memory = cell.memory.iter().find(|(_, role, _)| *role == Role::Balancer);
        let mut row: Vec<Entry> = vec![
            cell.cell.system.name().into(),
            cell.cell.algorithm.as_str().into(),
            cpu(Role::Balancer).into(),
            memory
                .map_or_else(|| NOTHING.to_string(), |(_, _, memory)| value(kind("memory_balancer"), memory.mean))
                .into(),
            cpu(Role::Client).into(),
            estimate(cell, "transfer_rate", |rate| value(kind("transfer_rate"), rate.mean)),
            estimate(cell, "jain", |index| format!("{:.3}", index.mean)),
        ];
        for wanted in &names {
            let share = cell.shares.iter().find(|(name, _)| name == wanted);
            let cpu = cell.cpu.iter().find(|(name, role, _)| name == wanted && *role == Role::Server);
            let number =
                |found: Option<f64>, name| found.map_or_else(|| NOTHING.to_string(), |part| value(kind(name), part));
            row.push(number(share.map(|(_, share)| share.mean), "share").into());
            row.push(number(cpu.map(|(_, _, cpu)| cpu.mean), "cpu").into());
        }
        grid.row(row);
    }
    grid.without_empty()
}

/// Of how many servers the table of processes has columns.
const SERVERS: usize = 8;

/// Errors by kind, of all runs that count; empty if there were none.
pub(super) fn errors(summary: &Summary, place: (&str, &str)) -> Grid {
    let cells: Vec<&CellSummary> =
        cells_of(summary, place).into_iter().filter(|cell| !cell.errors.is_empty()).collect();
    let kinds: BTreeSet<ErrorKind> = cells.iter().flat_map(|cell| cell.errors.keys().copied()).collect();
    let mut grid = Grid::default().column("system", Align::Left, 0).column("algorithm", Align::Left, 0);
    for kind in &kinds {
        grid = grid.column(error(*kind), Align::Right, 0);
    }
    for cell in cells {
        let mut row: Vec<Entry> = vec![cell.cell.system.name().into(), cell.cell.algorithm.as_str().into()];
        row.extend(
            kinds.iter().map(|kind| cell.errors.get(kind).map_or(NOTHING.into(), |count| count.to_string().into())),
        );
        grid.row(row);
    }
    grid
}

/// An error's kind in words; the client's own are told apart.
fn error(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ServerError => "status 5xx",
        ErrorKind::ClientError => "status 4xx",
        ErrorKind::Refused => "refused",
        ErrorKind::ConnectTimeout => "connect timed out",
        ErrorKind::Timeout => "timed out",
        ErrorKind::Reset => "reset",
        ErrorKind::Closed => "closed early",
        ErrorKind::Malformed => "not HTTP",
        ErrorKind::Descriptors => "client: out of descriptors",
        ErrorKind::Ports => "client: out of ports",
        ErrorKind::Client => "client: other",
        ErrorKind::Other => "unknown",
    }
}

/// The rankings of a farm and a load in words, the decisive metric's first: what is compared by what, and the verdict.
pub(super) fn verdicts(summary: &Summary, place: (&str, &str)) -> Vec<(bool, String)> {
    let decisive = decisive(&cells_of(summary, place));
    let here = summary.rankings.iter().filter(|ranking| (ranking.farm.as_str(), ranking.load.as_str()) == place);
    let mut verdicts: Vec<(bool, String)> = here
        .map(|ranking| {
            let (among, first) = match &ranking.among {
                Among::Algorithms(system) => (system.to_string(), ranking.metric == decisive),
                Among::Systems(algorithm) => (format!("systems with {algorithm}"), false),
            };
            (first, format!("{among}: {}", ranking.words))
        })
        .collect();
    verdicts.sort_by_key(|(first, _)| !first);
    verdicts
}

/// Those of the decisive metric, one for each system.
pub(super) fn decisive_verdicts(summary: &Summary, place: (&str, &str)) -> Vec<String> {
    verdicts(summary, place).into_iter().filter(|(decisive, _)| *decisive).map(|(_, words)| words).collect()
}

/// Cells without a run and why, and runs that do not count and why.
pub(super) fn left_out(summary: &Summary) -> (Vec<String>, Vec<String>) {
    let missing = summary.missing.iter().map(|(cell, why)| match why.as_str() {
        "" => cell.to_string(),
        why => format!("{cell}: {why}"),
    });
    let invalid = summary
        .cells
        .iter()
        .flat_map(|cell| cell.invalid.iter().map(|(run, why)| format!("{}, run {run}: {}", cell.cell, why.join("; "))));
    (missing.collect(), invalid.collect())
}

/// How it was measured, sentence by sentence.
pub(super) fn method(summary: &Summary) -> Vec<String> {
    let plan = &summary.plan;
    let (closed, open): (Vec<&CellSummary>, Vec<&CellSummary>) =
        summary.cells.iter().partition(|cell| cell.closed_loop);
    let mut method = vec![
        format!(
            "Each combination is run {}. The runs are interleaved in random order (seed {}). Servers and balancer are restarted \
             for each run.",
            match plan.repetitions {
                1 => "once".to_string(),
                times => format!("{times} times"),
            },
            plan.seed
        ),
        "± and brackets are 95% confidence intervals of the mean over the repetitions. Algorithms are compared by pairs of \
         repetitions, with intervals that hold for all comparisons of a ranking at once. \"Inconclusive\" means that no \
         difference to the best can be shown."
            .to_string(),
        "A maximum is the slowest request of a run; the tables show its mean over the runs. It grows with the number of requests."
            .to_string(),
    ];
    if !closed.is_empty() {
        let which = if open.is_empty() {
            "All loads are closed loops".to_string()
        } else {
            format!("Closed loop (load {})", names(&closed))
        };
        method.push(format!(
            "{which}: users wait for a response before they send the next request. A slow balancer therefore gets fewer \
             requests, and the latencies do not include requests that were not sent during a stall."
        ));
    }
    if !open.is_empty() {
        let which = if closed.is_empty() {
            "All loads are open loops".to_string()
        } else {
            format!("Open loop (load {})", names(&open))
        };
        method.push(format!(
            "{which}: requests are sent at a fixed rate or at the times of a log, whether or not responses arrive. The built-in \
             load generator measures latency from the time at which a request was due."
        ));
        method.extend(late(&open));
    }
    method.extend(logs(summary));
    method.extend(
        plan.loads
            .iter()
            .filter(|load| summary.cells.iter().any(|cell| cell.cell.load == load.name))
            .map(|load| format!("Load {}: {}.", load.name, words::load_words(load))),
    );
    method
}

/// How many requests the generator sent too late.
fn late(open: &[&CellSummary]) -> Option<String> {
    let own = || open.iter().filter(|cell| cell.tool == Tool::Balanza);
    let late: u64 = own().map(|cell| cell.sent_late).sum();
    let sent: u64 = own().map(|cell| cell.latency.count + cell.errors.values().sum::<u64>()).sum();
    (sent > 0).then(|| {
        format!(
            "Of the {} of open loops in valid runs, {late} were sent more than 10 ms after they were due, because the load \
             generator was behind. None was left out, and the delay is part of their latency.",
            count(sent, "request")
        )
    })
}

/// What was read of each log.
fn logs(summary: &Summary) -> impl Iterator<Item = String> {
    summary.plan.loads.iter().filter_map(|load| {
        let replayed = summary.cells.iter().find(|cell| cell.cell.load == load.name)?.replayed?;
        let mut words =
            format!("Load {}: the log has {} that can be sent", load.name, count(replayed.requests, "request"));
        if replayed.unsendable + replayed.strange > 0 {
            words += &format!(
                "; left out are {} without a request that can be sent and {} of another format",
                count(replayed.unsendable, "line"),
                count(replayed.strange, "line")
            );
        }
        words += ". POST, PUT and PATCH are sent with an empty body.";
        if !replayed.exact {
            words +=
                " Its times are in whole seconds: the requests that ended in one second are spread evenly over it.";
        }
        Some(words)
    })
}

fn names(cells: &[&CellSummary]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.cell.load.as_str()) {
            names.push(&cell.cell.load);
        }
    }
    names.join(", ")
}

/// Facts about the machine and its programs.
pub(super) fn environment(environment: &Environment) -> Grid {
    let mut grid = Grid::default().column("fact", Align::Left, 0).column("value", Align::Prose, 0);
    for (name, value) in &environment.facts {
        grid.row(vec![name.as_str().into(), value.as_str().into()]);
    }
    grid
}
