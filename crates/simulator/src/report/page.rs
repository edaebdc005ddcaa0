//! The report for people.

use balanza_plot::{Cell, Page, Table, capitalised, number, percent, seconds};

use super::figures::{self, Figure};
use super::words::{FAILURES, at, difference, failed, interval, verdicts};
use crate::result::{Bins, Comparison, Difference, Point, Run};

/// Of how many points the pictures are shown; the tables are of all.
const DETAILED: usize = 2;
/// Up to how many algorithms all pairs are shown.
const PAIRED: usize = 12;

pub(super) fn comparison(comparison: &Comparison) -> String {
    let scenario = &comparison.scenario;
    let title = if scenario.name.is_empty() { "Simulation" } else { &scenario.name };
    let mut page = Page::new(title).list(verdicts(comparison));
    page = show(page, figures::first_of_all(comparison)).heading("What is simulated");
    for paragraph in scenario.description.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        page = page.paragraph(&paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    page = page.heading("Results in numbers");
    for point in &comparison.points {
        page = page.subheading(&capitalised(&at(point))).list(warnings(point)).table(&results(point));
    }
    page = page.note(
        "Times are from the arrival of a request to its end; errors and time-outs are included. ± is half the width of the 95% \
         confidence interval over the replications (Student's t). Differences compare pairs of replications with the same \
         arrivals; \"inconclusive\" means that no difference can be shown. The maximum is the slowest request of all \
         replications: it grows with the number of requests and has no interval. The longest queue is a maximum as well.",
    );

    let several = comparison.points.len() > 1;
    // The last ones: the highest loads, where algorithms differ most.
    for point in comparison.points.iter().skip(comparison.points.len().saturating_sub(DETAILED)).rev() {
        page = show(page.heading(&format!("Details {}", at(point))), figures::of_point(point, several));
    }
    let pairs = comparison.points.iter().filter(|point| (3..=PAIRED).contains(&point.runs.len()));
    for (index, point) in pairs.enumerate() {
        if index == 0 {
            page = page.heading("All pairs of algorithms").note(
                "Mean time of the algorithm in the row minus mean time of the algorithm in the column, with the same arrivals. \
                 \"=\" means that the difference is inconclusive.",
            );
        }
        page = page.table(&matrix(point));
    }
    how(page, comparison).html()
}

fn show(page: Page, figures: Vec<Figure>) -> Page {
    figures.into_iter().fold(page, |page, figure| page.figure(&figure.svg, &figure.caption))
}

/// What the reader has to know about a point.
fn warnings(point: &Point) -> impl Iterator<Item = String> {
    point.warnings.iter().map(|warning| format!("Note: {warning}."))
}

/// A plain number with half the width of its interval.
fn plain_interval(value: f64, half: Option<f64>) -> String {
    half.map_or_else(|| number(value), |half| format!("{} ± {}", number(value), number(half)))
}

fn results(point: &Point) -> Table {
    let first = point.runs.first().map_or("", |run| &run.algorithm);
    let failures = point.runs.iter().any(|run| failed(run) > 0.0);
    let mut heading = vec![Cell::text("algorithm"), Cell::number("mean"), Cell::text(format!("difference to {first}"))];
    if failures {
        heading.push(Cell::number("failed"));
    }
    let numbers =
        ["median", "p90", "p99", "p99.9", "maximum", "responses/s", "utilisation", "longest queue", "Jain's index"];
    heading.extend(numbers.map(Cell::number));
    let mut table = Table::new(heading);
    for (index, run) in point.runs.iter().enumerate() {
        let q = &run.quantiles;
        let verdict = match difference(point, 0, index) {
            None => Cell::text(""),
            Some((mean, difference)) => verdict(mean, &difference, &point.runs[0], run),
        };
        let mean = interval(run.mean_time_in_system, run.ci95);
        let mut row = vec![Cell::text(&run.algorithm), Cell::number(mean), verdict];
        if failures {
            row.push(Cell::number(percent(failed(run))));
        }
        row.extend([q.p50, q.p90, q.p99, q.p999, q.max].map(|time| Cell::number(seconds(time))));
        row.extend([
            Cell::number(number(run.throughput)),
            Cell::number(percent(run.utilization)),
            Cell::number(run.max_queue.to_string()),
            Cell::number(format!("{:.3}", run.jain)),
        ]);
        table.row(row);
    }
    table
}

/// A difference of `run` from `base` in words.
fn verdict(mean: f64, difference: &Difference, base: &Run, run: &Run) -> Cell {
    let fails_more = failed(run) > failed(base) + FAILURES;
    let part = |value: f64| 100.0 * value.abs() / base.mean_time_in_system;
    let less = |mean: f64| if mean < 0.0 { "less" } else { "more" };
    let sized = |half: f64| {
        let half = part(half);
        let decimals = if half >= 2.0 { 0 } else { (1 - half.max(0.01).log10().floor() as i32) as usize };
        format!("{:.decimals$} ± {half:.decimals$}% {}", part(mean), less(mean))
    };
    match difference.ci95 {
        None => Cell::text(format!("{} {}, one replication", percent(part(mean) / 100.0), less(mean))),
        Some(_) if !difference.detectable => Cell::text("inconclusive"),
        Some(half) if mean < 0.0 && fails_more => Cell::text(format!("{},\nbut more failed", sized(half))),
        Some(half) if mean < 0.0 => Cell::good(sized(half)),
        Some(half) => Cell::bad(sized(half)),
    }
}

fn matrix(point: &Point) -> Table {
    let heading = std::iter::once(Cell::text(capitalised(&at(point))));
    let mut table = Table::new(heading.chain(point.runs.iter().map(|run| Cell::number(&run.algorithm))));
    for (row, run) in point.runs.iter().enumerate() {
        let cells = (0..point.runs.len()).map(|column| match difference(point, column, row) {
            None => Cell::number(""),
            Some((_, pair)) if pair.ci95.is_some() && !pair.detectable => Cell::number("="),
            Some((mean, pair)) if mean < 0.0 => Cell::number(format!("−{}", interval(-mean, pair.ci95))),
            Some((mean, pair)) => Cell::number(format!("+{}", interval(mean, pair.ci95))),
        });
        table.row(std::iter::once(Cell::text(&run.algorithm)).chain(cells));
    }
    table
}

/// How the numbers came about, and how to get them again.
fn how(page: Page, comparison: &Comparison) -> Page {
    let scenario = &comparison.scenario;
    let events: u64 = comparison.points.iter().flat_map(|point| &point.runs).map(|run| run.events).sum();
    let warmups: Vec<String> = comparison
        .points
        .iter()
        .map(|point| {
            format!("{} of {} {} ({})", seconds(point.warmup), seconds(point.duration), at(point), point.warmup_by)
        })
        .collect();
    let text = format!(
        "{} replications of each algorithm and load; {} events in {}. Warm-up that is not measured: {}. The same scenario with the \
         same seed ({}) gives the same numbers.",
        scenario.replications,
        number(events as f64),
        seconds(comparison.elapsed),
        warmups.join("; "),
        scenario.seed,
    );
    let page = page.heading("Method").paragraph(&text);
    match toml::to_string(scenario) {
        Ok(text) => page
            .paragraph(
                "The scenario with all defaults. To repeat the simulation, save it and run: balanza simulate FILE.toml",
            )
            .preformatted(&text),
        Err(_) => page,
    }
}

pub(super) fn bins(bins: &[Bins]) -> String {
    let mut page = Page::new("Balls into bins").paragraph(
        "Each request is sent to a server and never ends. The results show how evenly the requests are distributed and how many \
         the server with the most requests has.",
    );
    let heading = [
        "servers",
        "requests",
        "mean per server",
        "standard deviation",
        "most on a server",
        "maximum of all replications",
    ];
    let mut table = Table::new(std::iter::once(Cell::text("algorithm")).chain(heading.map(Cell::number)));
    for run in bins {
        table.row([
            Cell::text(&run.algorithm),
            Cell::number(run.servers.to_string()),
            Cell::number(run.requests.to_string()),
            Cell::number(number(run.mean_load)),
            Cell::number(plain_interval(run.sd, run.sd_ci95)),
            Cell::number(plain_interval(run.max_load, run.max_load_ci95)),
            Cell::number(number(run.max_load_max)),
        ]);
    }
    page = page.table(&table);
    page = page
        .note("± is half the width of the 95% confidence interval over the replications; the last column is a maximum and has no interval.");
    page = show(page, figures::bins(bins));
    let seeds =
        bins.first().map_or_else(String::new, |run| format!("{} replications, seed {}.", run.replications, run.seed));
    page.note(&seeds).html()
}
