//! The report for people.

use balanza_plot::{Cell, Page, Table, percent, seconds};
use balanza_simulator::report::interval;

use super::{figures, shown};
use crate::cells::Sweep;
use crate::summary::{Point, Standing, overall};

/// So many points have lines in the table; results.csv has all runs.
const LINES: usize = 500;

pub(super) fn report(sweep: &Sweep, plan: &str, points: &[Point]) -> String {
    let title = if sweep.plan.name.is_empty() { "Sweep" } else { &sweep.plan.name };
    let mut page = Page::new(title);
    for paragraph in sweep.plan.description.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        page = page.paragraph(&paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    page = page.table(&standings(sweep, points)).note(
        "The best algorithm of a point is the one with the shortest mean time in system among those with the fewest failed \
         requests. Tied: the 95% confidence interval of the difference to it, seed by seed, contains zero. Failing: more of \
         its requests failed, so that its times are not compared.",
    );
    page = page.figure(
        &figures::glance(sweep, points).svg(),
        "White: more of its requests failed than with the best one. Points are in the order of the table below.",
    );
    let lines = figures::lines(sweep, points);
    if !lines.is_empty() {
        page = page.heading("Times").note("Bands are 95% confidence intervals. All pictures have the same limits.");
        page = lines.iter().fold(page, |page, chart| page.figure(&chart.svg(), ""));
    }
    let maps = figures::maps(sweep, points);
    if !maps.is_empty() {
        page = page.heading("Maps").note("What is varied beside the two dimensions of a map has its first value.");
        page = maps.iter().fold(page, |page, map| page.figure(&map.svg(), ""));
    }
    page = page.heading("Points").table(&table(sweep, points));
    if points.len() > LINES {
        page = page.note(&format!("The first {LINES} of {} points; results.csv has all runs.", points.len()));
    }
    page.heading("Method")
        .paragraph(&format!(
            "{} runs: {} combinations, each with {} seeds. All algorithms of a point get the same requests from the same seed. \
             ± is half the width of the 95% confidence interval over seeds (Student's t). To repeat the sweep, save this as a \
             file and run: balanza simulate sweep FILE.toml",
            sweep.len(),
            sweep.cells.len(),
            sweep.replications
        ))
        .preformatted(plan)
        .html()
}

fn standings(sweep: &Sweep, points: &[Point]) -> Table {
    let heading = ["best", "tied", "slower", "failing", "median", "worst"];
    let mut table = Table::new(std::iter::once(Cell::text("algorithm")).chain(heading.map(Cell::number)));
    for line in overall(sweep, points) {
        let (median, worst) =
            line.ratios.map_or_else(Default::default, |(median, worst)| (times(median), times(worst)));
        let numbers = line.counts.map(|count| count.to_string()).into_iter().chain([median, worst]);
        table.row(std::iter::once(Cell::text(line.algorithm)).chain(numbers.map(Cell::number)));
    }
    table
}

/// A ratio of times.
pub(super) fn times(ratio: f64) -> String {
    format!("{ratio:.2}×")
}

fn table(sweep: &Sweep, points: &[Point]) -> Table {
    let failing = points.iter().flat_map(|point| &point.rows).any(|row| row.failed > 0.0);
    let titles = sweep.titles.iter().map(Cell::text);
    let mut heading: Vec<Cell> = titles.chain([Cell::text("algorithm")]).collect();
    heading.extend(["mean", "p99"].map(Cell::number));
    heading.push(Cell::text("compared with the best"));
    heading.extend(failing.then(|| Cell::number("failed")));
    let mut table = Table::new(heading);
    for point in points.iter().take(LINES) {
        for row in &point.rows {
            let standing = match row.standing {
                Standing::Best => Cell::good("best"),
                Standing::Tied => Cell::text("tied"),
                Standing::Slower => Cell::bad(times(row.ratio)),
                Standing::Failing => Cell::bad("more failed"),
            };
            let mut cells: Vec<Cell> = point.values.iter().map(|value| Cell::text(shown(value))).collect();
            cells.extend([
                Cell::text(&row.algorithm),
                Cell::number(interval(row.mean, row.ci95)),
                Cell::number(seconds(row.p99)),
                standing,
            ]);
            cells.extend(failing.then(|| Cell::number(percent(row.failed))));
            table.row(cells);
        }
    }
    table
}
