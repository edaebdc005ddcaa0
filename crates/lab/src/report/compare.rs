//! Two results side by side: what is faster now, what is slower, what is inconclusive.

use super::grid::{Align, Entry, Grid, Tone, indented};
use super::tables::places;
use super::words::{self, kind, metric, percent_range, plus_minus};
use crate::environment::Environment;
use crate::statistics::student;
use crate::summary::{CellSummary, Estimate, Summary};

/// One of two results.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// What the comparison calls it: its directory.
    pub name: &'a str,
    /// What was measured.
    pub summary: &'a Summary,
    /// Where.
    pub environment: &'a Environment,
}

/// What is compared of each cell, and whether less is better.
const COMPARED: [(&str, bool); 3] = [("rps", false), ("mean", true), ("p99", true)];
/// Of all differences together, this part may be shown where there is none.
const ERROR: f64 = 0.05;

/// The second of two results against the first, cell by cell: throughput, mean and 99th percentile, each with its
/// difference as a part of the first's. The runs of two results are not pairs: Welch's interval, at 95% for all differences
/// at once (Bonferroni).
pub fn compare(first: Side, second: Side, width: usize, colour: bool) -> String {
    let width = width.max(60);
    let bold = |text: &str| if colour { format!("\x1b[1m{text}\x1b[0m\n") } else { format!("{text}\n") };
    let mut out = bold(&format!("{} against {}", second.name, first.name));
    for note in differences_of_place(first, second) {
        out.push_str(&indented(&note, 0, width));
    }
    let pairs = pairs(first.summary, second.summary);
    if pairs.is_empty() {
        out.push_str("The two results have no combination in common.\n");
        return out;
    }
    let comparisons = pairs.iter().flat_map(|(one, other)| COMPARED.map(|(name, _)| difference(one, other, name, 1)));
    let comparisons = comparisons.flatten().count().max(1);
    let mut counts = [0; 3];
    for place in places(first.summary) {
        let mut grid = Grid::default()
            .column("system", Align::Left, 0)
            .column("algorithm", Align::Left, 0)
            .column("", Align::Left, 0)
            .column("before", Align::Right, 1)
            .column("now", Align::Right, 2)
            .column("difference", Align::Left, 0);
        for (one, other) in &pairs {
            if (one.cell.farm.as_str(), one.cell.load.as_str()) != place {
                continue;
            }
            let mut names = [one.cell.system.name(), one.cell.algorithm.as_str()];
            for (name, less_is_better) in COMPARED {
                let (Some(before), Some(now)) = (one.metrics.get(name), other.metrics.get(name)) else { continue };
                let interval = difference(one, other, name, comparisons);
                let verdict = verdict(interval, less_is_better);
                counts[match verdict.tone {
                    Tone::Good => 0,
                    Tone::Bad => 1,
                    Tone::Plain => 2,
                }] += 1;
                let numbers = [before, now].map(|estimate| plus_minus(kind(name), estimate).into());
                let mut row: Vec<Entry> = names.map(Entry::from).to_vec();
                row.push(metric(name).into());
                row.extend(numbers);
                row.push(verdict);
                grid.row(row);
                // Named once for all its metrics.
                names = ["", ""];
            }
        }
        if !grid.is_empty() {
            out.push_str(&format!("\n{}", bold(&words::place(&first.summary.plan, place.0, place.1))));
            out.push_str(&grid.terminal(width, colour));
        }
    }
    let [better, worse, neither] = counts;
    out.push('\n');
    let words = format!(
        "{better} better, {worse} worse, {neither} inconclusive. Differences are those of the second result to the first, as 95% \
         confidence intervals that hold for all {comparisons} comparisons at once."
    );
    out.push_str(&indented(&words, 0, width));
    out
}

/// What is not the same in both and explains differences.
fn differences_of_place(first: Side, second: Side) -> Vec<String> {
    let mut notes = Vec::new();
    let (one, other) = (&first.summary.plan, &second.summary.plan);
    if one.name != other.name {
        notes.push(format!("The results are of different plans: {} and {}.", one.name, other.name));
    } else if one != other {
        notes.push("The plan was changed between the two results; differences may be due to that.".to_string());
    }
    // Two results are never of one moment.
    let facts =
        |side: Side| side.environment.facts.iter().filter(|(name, _)| name != "date").cloned().collect::<Vec<_>>();
    let (before, now) = (facts(first), facts(second));
    for (name, value) in &before {
        match now.iter().find(|(other, _)| other == name) {
            Some((_, other)) if other != value => notes.push(format!("{name}: {value}, now {other}.")),
            Some(_) => {}
            None => notes.push(format!("{name}: {value}, now unknown.")),
        }
    }
    let new = now.iter().filter(|(name, _)| before.iter().all(|(other, _)| other != name));
    notes.extend(new.map(|(name, value)| format!("{name}: now {value}.")));
    let only = |side: Side, than: Side| {
        let missing =
            side.summary.cells.iter().filter(|cell| than.summary.cells.iter().all(|other| other.cell != cell.cell));
        (missing.count(), side.name.to_string())
    };
    for (cells, name) in [only(first, second), only(second, first)] {
        if cells > 0 {
            notes.push(format!("{} only in {name}.", crate::units::count(cells as u64, "combination")));
        }
    }
    notes
}

fn pairs<'a>(first: &'a Summary, second: &'a Summary) -> Vec<(&'a CellSummary, &'a CellSummary)> {
    first
        .cells
        .iter()
        .filter_map(|cell| Some((cell, second.cells.iter().find(|other| other.cell == cell.cell)?)))
        .collect()
}

/// The difference of a metric as a part of the first's mean, with the interval of one of so many comparisons.
fn difference(first: &CellSummary, second: &CellSummary, name: &str, comparisons: usize) -> Option<(f64, f64)> {
    let (one, other) = (first.metrics.get(name)?, second.metrics.get(name)?);
    let (low, high) = welch(one, other, ERROR / comparisons as f64)?;
    (one.mean > 0.0).then_some((low / one.mean, high / one.mean))
}

/// The interval of the second's mean less the first's (Welch, Satterthwaite).
fn welch(first: &Estimate, second: &Estimate, alpha: f64) -> Option<(f64, f64)> {
    let part = |estimate: &Estimate| {
        let count = estimate.values.len() as f64;
        Some((estimate.sd?.powi(2) / count, count - 1.0)).filter(|_| count >= 2.0)
    };
    let ((one, one_free), (other, other_free)) = (part(first)?, part(second)?);
    let (variance, middle) = (one + other, second.mean - first.mean);
    if variance <= 0.0 {
        return Some((middle, middle));
    }
    let freedom = variance.powi(2) / (one.powi(2) / one_free + other.powi(2) / other_free);
    let half = student::two_sided(alpha, freedom) * variance.sqrt();
    Some((middle - half, middle + half))
}

fn verdict(interval: Option<(f64, f64)>, less_is_better: bool) -> Entry {
    let Some((low, high)) = interval else { return Entry::from("too few runs") };
    if low <= 0.0 && high >= 0.0 {
        return Entry::from(format!("inconclusive ({})", percent_range(low, high)));
    }
    let more = low > 0.0;
    let range = if more { percent_range(low, high) } else { percent_range(-high, -low) };
    let tone = if more == less_is_better { Tone::Bad } else { Tone::Good };
    let better = if tone == Tone::Good { "better" } else { "worse" };
    Entry::new(format!("{range} {}: {better}", if more { "more" } else { "less" }), tone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn estimate(values: &[f64]) -> Estimate {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let sd = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
        Estimate { mean, sd: Some(sd), values: values.to_vec(), ..Estimate::default() }
    }

    #[test]
    fn welchs_interval() {
        // By hand: means 10 and 13, variances 1 and 4, three of each; 2.94 degrees of freedom, t = 3.22.
        let (low, high) = welch(&estimate(&[9.0, 10.0, 11.0]), &estimate(&[11.0, 13.0, 15.0]), 0.05).unwrap();
        let half = (high - low) / 2.0;
        assert!(((low + high) / 2.0 - 3.0).abs() < 1e-9);
        assert!((half - 3.22 * (5.0f64 / 3.0).sqrt()).abs() < 0.02, "{half}");
        assert_eq!(welch(&estimate(&[1.0]), &estimate(&[2.0, 3.0]), 0.05), None);
        assert_eq!(welch(&estimate(&[1.0, 1.0]), &estimate(&[2.0, 2.0]), 0.05), Some((1.0, 1.0)));
    }

    #[test]
    fn verdicts_say_what_is_better() {
        let words = |interval, less| verdict(interval, less).text;
        assert_eq!(words(Some((0.05, 0.08)), false), "5.0 to 8.0% more: better");
        assert_eq!(words(Some((0.05, 0.08)), true), "5.0 to 8.0% more: worse");
        assert_eq!(words(Some((-0.4, -0.3)), true), "30 to 40% less: better");
        assert_eq!(words(Some((-0.02, 0.03)), true), "inconclusive (−2.0 to 3.0%)");
        assert_eq!(words(None, true), "too few runs");
    }

    #[test]
    fn two_results() {
        let (first, mut second) = (sample::summary(), sample::summary());
        let environment = sample::environment();
        let mut elsewhere = environment.clone();
        elsewhere.facts[1].1 = "Linux 6.12".into();
        second.cells.retain(|cell| cell.cell.load != "10");
        for cell in &mut second.cells {
            for (name, factor) in [("rps", 1.3), ("p99", 1.4)] {
                let metric = cell.metrics.get_mut(name).unwrap();
                metric.mean *= if cell.cell.algorithm == "least_conn" { factor } else { 1.0 };
            }
        }
        let before = Side { name: "before", summary: &first, environment: &environment };
        let now = Side { name: "now", summary: &second, environment: &elsewhere };
        let text = compare(before, now, 100, false);
        insta::assert_snapshot!(text);
        assert!(text.lines().all(|line| line.chars().count() <= 100));
        second.cells.clear();
        let now = Side { name: "now", summary: &second, environment: &elsewhere };
        assert!(compare(before, now, 80, true).contains("no combination in common"));
    }
}
