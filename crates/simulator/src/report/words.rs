//! How times and verdicts are written, in the terminal and on the page: one way each.

use std::cmp::Ordering;

use balanza_plot::{capitalised, number, percent, seconds};
pub use balanza_plot::{percent as part, seconds as time};

use crate::result::{Comparison, Difference, Point, Run};

/// From this ratio of two means on, a ratio says more than a percentage.
const RATIO: f64 = 2.0;
/// From this part of the requests on, those without an end distort a mean.
const UNFINISHED: f64 = 0.005;
/// So many more failed requests, as a part of all, are no praise for a shorter mean.
pub const FAILURES: f64 = 0.001;

/// A time with half the width of its interval, both in the time's unit, with as many digits as the interval gives sense:
/// `19.90 ± 0.11 ms`.
pub fn interval(value: f64, half: Option<f64>) -> String {
    let Some(half) = half else { return seconds(value) };
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let size = value.abs().max(half);
    let (unit, name) = units.into_iter().find(|(unit, _)| size >= *unit).unwrap_or((1e-9, "ns"));
    let (value, half) = (value / unit, half / unit);
    let smallest = if half > 0.0 { half } else { value.abs() * 0.01 };
    let decimals = if smallest > 0.0 { (1 - smallest.log10().floor() as i32).clamp(0, 4) as usize } else { 0 };
    format!("{value:.decimals$} ± {half:.decimals$} {name}")
}

/// "at load 0.9", "with 10 users": what a point is called in titles and sentences.
pub fn at(point: &Point) -> String {
    match point.users {
        Some(1) => "with 1 user".to_string(),
        Some(users) => format!("with {users} users"),
        None => format!("at load {}", number(point.load)),
    }
}

/// The result of each point in a sentence or two: which algorithm has the shortest mean time, and by how much the others
/// differ from it.
pub fn verdicts(comparison: &Comparison) -> Vec<String> {
    comparison.points.iter().filter_map(verdict).map(|verdict| capitalised(&verdict)).collect()
}

/// The part of the requests that ended badly.
pub(super) fn failed(run: &Run) -> f64 {
    let counts = &run.counts;
    let ended = counts.ok + counts.errors + counts.timeouts;
    (counts.errors + counts.timeouts) as f64 / (ended as f64).max(1.0)
}

/// The second's mean less the first's, with the pair that says it.
pub(super) fn difference(point: &Point, first: usize, second: usize) -> Option<(f64, Difference)> {
    let pair = |a: usize, b: usize| point.differences.iter().find(|pair| (pair.first, pair.second) == (a, b)).cloned();
    pair(first, second).map(|pair| (pair.mean, pair)).or_else(|| pair(second, first).map(|pair| (-pair.mean, pair)))
}

fn verdict(point: &Point) -> Option<String> {
    let runs = &point.runs;
    let by_mean = |a: &usize, b: &usize| {
        let mean = |index: &usize| runs[*index].mean_time_in_system;
        mean(a).partial_cmp(&mean(b)).unwrap_or(Ordering::Equal)
    };
    // Errors can be fast: a short mean of an algorithm with more of them is no merit.
    let fewest = runs.iter().map(failed).fold(f64::INFINITY, f64::min);
    let (mut order, failing): (Vec<usize>, Vec<usize>) =
        (0..runs.len()).partition(|&index| failed(&runs[index]) <= fewest + FAILURES);
    order.sort_by(by_mean);
    let (&best, others) = order.split_first()?;
    let (name, mean) = (&runs[best].algorithm, runs[best].mean_time_in_system);
    let at = at(point);
    let mut sentences = match others {
        [] if !failing.is_empty() => vec![format!(
            "{at}, {name} has the fewest failed requests ({}); its mean time in system is {}.",
            percent(failed(&runs[best])),
            seconds(mean)
        )],
        [] => vec![format!("{at}, the mean time in system of {name} is {}.", seconds(mean))],
        _ => vec![format!("{at}, {name} has the shortest mean time in system ({}).", seconds(mean))],
    };
    let is_open = |index: usize| difference(point, best, index).is_some_and(|(_, d)| d.ci95.is_some() && !d.detectable);
    let open: Vec<&str> = others.iter().filter(|index| is_open(**index)).map(|i| runs[*i].algorithm.as_str()).collect();
    if !open.is_empty() {
        sentences.push(format!("The difference to {} is inconclusive.", list(&open)));
    }
    let longer = others.iter().filter(|index| !is_open(**index)).map(|&index| {
        let ratio = runs[index].mean_time_in_system / mean;
        let by = match ratio {
            ratio if ratio < RATIO => percent_more(ratio - 1.0),
            ratio if ratio < 10.0 => format!("{ratio:.1} times as long"),
            ratio => format!("{} times as long", number(ratio.round())),
        };
        format!("{} {by}", runs[index].algorithm)
    });
    let longer: Vec<String> = longer.collect();
    if !longer.is_empty() {
        sentences.push(format!("Mean times compared with it: {}.", longer.join(", ")));
    }
    if fewest > FAILURES && (!others.is_empty() || failing.is_empty()) {
        sentences.push(format!("{} of its requests failed.", percent(failed(&runs[best]))));
    }
    if !failing.is_empty() {
        let failing: Vec<String> = failing
            .iter()
            .map(|&index| format!("{} {}", runs[index].algorithm, percent(failed(&runs[index]))))
            .collect();
        sentences.push(format!("Not compared, because more requests failed: {}.", failing.join(", ")));
    }
    let unfinished = runs.iter().map(|run| (&run.algorithm, unfinished(run))).filter(|(_, part)| *part > UNFINISHED);
    let unfinished: Vec<String> = unfinished.map(|(name, part)| format!("{name} {}", percent(part))).collect();
    if !unfinished.is_empty() {
        let which = unfinished.join(", ");
        sentences
            .push(format!("Requests without an end: {which}; their times are missing, so these means are too low."));
    }
    Some(sentences.join(" "))
}

/// The part of the requests by which those without an end have become more.
fn unfinished(run: &Run) -> f64 {
    run.counts.in_system.saturating_sub(run.counts.carried) as f64 / run.counts.arrivals.max(1) as f64
}

fn percent_more(part: f64) -> String {
    let digits = if part < 0.0995 { 1 } else { 0 };
    format!("{:.digits$}% longer", part * 100.0)
}

fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => one.to_string(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_unit_and_the_digits_of_sense() {
        for (value, half, text) in [
            (0.0199, 0.000109, "19.90 ± 0.11 ms"),
            (1.11, 0.0534, "1.110 ± 0.053 s"),
            (0.179, 0.0157, "179 ± 16 ms"),
            (0.0000352, 0.0, "35.20 ± 0.00 µs"),
            (0.0306, 0.1663, "31 ± 166 ms"),
            (0.0, 0.0, "0 ± 0 ns"),
        ] {
            assert_eq!(interval(value, Some(half)), text);
        }
        assert_eq!(interval(0.0199, None), "19.9 ms");
    }

    #[test]
    fn differences_in_words() {
        assert_eq!(percent_more(0.0123), "1.2% longer");
        assert_eq!(percent_more(0.561), "56% longer");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        assert_eq!(list(&["a"]), "a");
    }
}
