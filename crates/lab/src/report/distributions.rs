//! Pictures of one farm and load: distributions of latency, extremes, processor time, shares.

use balanza_plot::{Axis, Bars, Chart, Series, is_wide};

use super::charts::Figure;
use super::tables::{cells_of, systems};
use super::words::place as place_words;
use crate::plan::System;
use crate::record::{Latency, Role};
use crate::summary::{CellSummary, Summary};

/// Points that lie closer than this part of the picture are one.
const CLOSE: f64 = 0.004;
/// A picture of all systems has at most so many bars; more have one for each system.
const BARS: usize = 14;
/// A smaller part of the requests than this is what rounding leaves of none.
const SMALLEST_PART: f64 = 1e-9;

/// All pictures of a farm and a load that there are data for.
pub(super) fn of_place(summary: &Summary, place: (&str, &str)) -> Vec<Figure> {
    let cells = cells_of(summary, place);
    let at = place_words(&summary.plan, place.0, place.1);
    let mut figures = Vec::new();
    let axes = Axes::of(&cells);
    let of = |system: &System| -> Vec<&CellSummary> {
        cells.iter().copied().filter(|cell| cell.cell.system == *system).collect()
    };
    for system in systems(&cells) {
        figures.extend(curves(&of(system), system, place, &at, &axes));
    }
    if cells.len() <= BARS {
        figures.extend(bars(&cells, None, place, &at, &axes));
    } else {
        for system in systems(&cells) {
            figures.extend(bars(&of(system), Some(system), place, &at, &axes));
        }
    }
    figures
}

/// The axes that the pictures of all systems have in common, so that they can be compared.
struct Axes {
    tail: (Axis, Axis),
    sorted: (Axis, Axis),
    extremes: Axis,
    processors: Axis,
}

impl Axes {
    fn of(cells: &[&CellSummary]) -> Self {
        let points: Vec<(f64, f64)> = cells.iter().flat_map(|cell| quantiles(&cell.latency)).collect();
        let tails = || points.iter().filter(|point| 1.0 - point.0 > SMALLEST_PART);
        let extremes: Vec<f64> = cells.iter().filter_map(|cell| fastest_mean_slowest(cell)).flatten().collect();
        let all_positive = extremes.iter().all(|time| *time > 0.0);
        // A linear axis would leave nothing to see of the fast ones beside the slowest.
        let latency = if all_positive && is_wide(extremes.iter().copied()) {
            Axis::log("latency")
        } else {
            Axis::linear("latency")
        };
        let sums = cells.iter().map(|cell| cell.cpu.iter().map(|(.., cpu)| cpu.mean).sum::<f64>());
        Self {
            tail: (
                Axis::log("latency").seconds().covering(tails().map(|point| point.1)),
                Axis::log("part of the requests that take longer").covering(tails().map(|point| 1.0 - point.0)),
            ),
            sorted: (
                Axis::linear("requests, the fastest first").percent().from(0.0).to(1.0),
                Axis::linear("latency").seconds().from(0.0).covering(points.iter().map(|point| point.1)),
            ),
            extremes: latency.seconds().covering(extremes),
            processors: Axis::linear("100% is one processor").percent().covering(sums),
        }
    }
}

fn curves(cells: &[&CellSummary], system: &System, (farm, load): (&str, &str), at: &str, axes: &Axes) -> Vec<Figure> {
    let all: Vec<(&str, Vec<(f64, f64)>)> = cells
        .iter()
        .map(|cell| (cell.cell.algorithm.as_str(), quantiles(&cell.latency)))
        .filter(|one| one.1.len() > 1)
        .collect();
    if all.is_empty() {
        return Vec::new();
    }
    let tail = Chart::new(&format!("Distribution of the latency: {system}, {at}"))
        .x(axes.tail.0.clone())
        .y(axes.tail.1.clone());
    let tail = all.iter().fold(tail, |chart, (name, points)| {
        let tail = points.iter().map(|&(part, time)| (time, 1.0 - part)).filter(|point| point.1 > SMALLEST_PART);
        chart.series(Series::line(name, thinned(tail, true)))
    });
    let sorted = Chart::new(&format!("Latencies in ascending order: {system}, {at}"))
        .x(axes.sorted.0.clone())
        .y(axes.sorted.1.clone());
    let sorted = all
        .iter()
        .fold(sorted, |chart, (name, points)| chart.series(Series::line(name, thinned(points.iter().copied(), false))));
    vec![
        Figure::chart(
            &["tail", system.name(), load, farm],
            &tail,
            "A lower line is better. At 0.01, 1 of 100 requests takes longer. Both axes are logarithmic.",
        ),
        Figure::chart(&["sorted", system.name(), load, farm], &sorted, "All requests of all valid runs."),
    ]
}

/// Pairs of a part of the requests and the time within which they were answered, ascending.
fn quantiles(latency: &Latency) -> Vec<(f64, f64)> {
    let all: u64 = latency.histogram.iter().map(|bucket| bucket.1).sum();
    if all == 0 {
        return latency.percentiles.iter().map(|&(percentile, time)| (percentile / 100.0, time)).collect();
    }
    let least = latency.min.or_else(|| latency.histogram.first().map(|bucket| bucket.0));
    let counted = latency.histogram.iter().scan(0, |count, &(time, requests)| {
        *count += requests;
        Some((*count as f64 / all as f64, time))
    });
    least.map(|time| (0.0, time)).into_iter().chain(counted).collect()
}

/// The same line with points far enough from each other to be seen; the ends stay.
fn thinned(points: impl Iterator<Item = (f64, f64)>, log: bool) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points.filter(|point| !log || (point.0 > 0.0 && point.1 > 0.0)).collect();
    let scale = |value: f64| if log { value.ln() } else { value };
    let extent = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let ends =
            points.iter().map(of).fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        (ends.1 - ends.0).max(f64::MIN_POSITIVE)
    };
    let (width, height) = (extent(&|point| scale(point.0)), extent(&|point| scale(point.1)));
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (index, &point) in points.iter().enumerate() {
        let far = kept.last().is_none_or(|last| {
            let across = (scale(point.0) - scale(last.0)).abs() / width;
            across.max((scale(point.1) - scale(last.1)).abs() / height) >= CLOSE
        });
        if far || index + 1 == points.len() {
            kept.push(point);
        }
    }
    kept
}

fn bars(
    cells: &[&CellSummary],
    system: Option<&System>,
    (farm, load): (&str, &str),
    at: &str,
    axes: &Axes,
) -> Vec<Figure> {
    let several = systems(cells).len() > 1;
    let row = |cell: &CellSummary| match several {
        true => format!("{}, {}", cell.cell.algorithm, cell.cell.system),
        false => cell.cell.algorithm.clone(),
    };
    let at = system.map_or_else(|| at.to_string(), |system| format!("{system}, {at}"));
    let name = |what| [what, system.map_or("", System::name), load, farm];
    [
        extremes(cells, row, &at, axes.extremes.clone()).map(|bars| {
            Figure::bars(
                &name("extremes"),
                &bars,
                "A line goes from the fastest to the slowest request; the dot is the mean. The slowest is a maximum: it grows with the number of requests.",
            )
        }),
        processors(cells, row, &at, axes.processors.clone()).map(|bars| {
            Figure::bars(&name("cpu"), &bars, "Processor time divided by elapsed time, while the load ran.")
        }),
        shares(cells, row, &at).map(|bars| Figure::bars(&name("shares"), &bars, "Part of the responses that each server sent.")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The fastest request, the mean latency and the slowest request; none if the tool does not report them.
fn fastest_mean_slowest(cell: &CellSummary) -> Option<[f64; 3]> {
    let latency = &cell.latency;
    let mean = cell.metrics.get("mean").map(|mean| mean.mean).or(latency.mean);
    Some([latency.min?, mean?, latency.max?])
}

fn extremes(cells: &[&CellSummary], row: impl Fn(&CellSummary) -> String, at: &str, axis: Axis) -> Option<Bars> {
    let rows: Vec<(String, [f64; 3])> =
        cells.iter().filter_map(|cell| Some((row(cell), fastest_mean_slowest(cell)?))).collect();
    let bars = Bars::new(&format!("Fastest, mean and slowest request: {at}"), axis).dots();
    let drawn = rows.iter().fold(bars, |bars, (name, [min, mean, max])| bars.bar(name, *mean, Some((*min, *max))));
    (!rows.is_empty()).then_some(drawn)
}

fn processors(cells: &[&CellSummary], row: impl Fn(&CellSummary) -> String, at: &str, axis: Axis) -> Option<Bars> {
    let bars = Bars::new(&format!("Processor time: {at}"), axis).stacked();
    let drawn = cells.iter().filter(|cell| !cell.cpu.is_empty()).fold(bars, |bars, cell| {
        bars.group(
            &row(cell),
            cell.cpu.iter().map(|(name, role, cpu)| {
                let name = if *role == Role::Balancer { "balancer" } else { name.as_str() };
                (name, cpu.mean, None)
            }),
        )
    });
    cells.iter().any(|cell| !cell.cpu.is_empty()).then_some(drawn)
}

fn shares(cells: &[&CellSummary], row: impl Fn(&CellSummary) -> String, at: &str) -> Option<Bars> {
    let axis = Axis::linear("part of the responses").percent().from(0.0).to(1.0);
    let bars = Bars::new(&format!("Responses by server: {at}"), axis).stacked();
    let drawn = cells.iter().filter(|cell| cell.shares.len() > 1).fold(bars, |bars, cell| {
        bars.group(&row(cell), cell.shares.iter().map(|(name, share)| (name.as_str(), share.mean, None)))
    });
    cells.iter().any(|cell| cell.shares.len() > 1).then_some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn names(summary: &Summary) -> Vec<String> {
        of_place(summary, ("two unequal", "250")).into_iter().map(|figure| figure.name).collect()
    }

    #[test]
    fn there_is_a_picture_for_what_was_measured_only() {
        let mut summary = sample::summary();
        assert_eq!(
            names(&summary),
            [
                "tail-balanza-250-two-unequal",
                "sorted-balanza-250-two-unequal",
                "tail-nginx-250-two-unequal",
                "sorted-nginx-250-two-unequal",
                "extremes-250-two-unequal",
                "cpu-250-two-unequal",
                "shares-250-two-unequal"
            ]
        );
        for cell in &mut summary.cells {
            (cell.cpu, cell.latency) = (Vec::new(), Latency::default());
        }
        assert_eq!(names(&summary), ["shares-250-two-unequal"]);
        for cell in &mut summary.cells {
            cell.shares.clear();
        }
        assert!(names(&summary).is_empty());
    }

    #[test]
    fn pictures_of_compared_systems_have_the_same_axes() {
        let mut summary = sample::summary();
        // One system is ten times as slow as the other, in its distribution, its extremes and its processor time.
        for cell in summary.cells.iter_mut().filter(|cell| cell.cell.system == System::Nginx) {
            let latency = &mut cell.latency;
            latency.histogram.iter_mut().for_each(|bucket| bucket.0 *= 10.0);
            latency.max = latency.max.map(|max| max * 10.0);
            cell.cpu.iter_mut().for_each(|(.., cpu)| cpu.mean *= 10.0);
        }
        let place = ("two unequal", "250");
        let cells = cells_of(&summary, place);
        let axes = Axes::of(&cells);
        let mut by_system = Vec::new();
        for system in systems(&cells) {
            let cells: Vec<&CellSummary> = cells.iter().copied().filter(|cell| cell.cell.system == *system).collect();
            let mut figures = curves(&cells, system, place, "", &axes);
            figures.extend(bars(&cells, Some(system), place, "", &axes));
            let numbers = figures.iter().map(|figure| sample::numbers_on_axes(&figure.svg).join(" "));
            by_system.push(numbers.collect::<Vec<_>>());
        }
        assert_eq!(by_system[0].len(), 5);
        assert_eq!(by_system[0], by_system[1]);
    }

    #[test]
    fn a_tool_without_a_histogram_has_its_percentiles() {
        let latency = Latency { percentiles: vec![(50.0, 0.1), (99.0, 0.4)], ..Latency::default() };
        assert_eq!(quantiles(&latency), [(0.5, 0.1), (0.99, 0.4)]);
        let latency = Latency { min: Some(0.01), histogram: vec![(0.1, 3), (0.2, 1)], ..Latency::default() };
        assert_eq!(quantiles(&latency), [(0.0, 0.01), (0.75, 0.1), (1.0, 0.2)]);
    }

    #[test]
    fn thin_lines_keep_their_ends_and_are_short() {
        let line: Vec<(f64, f64)> = (1..100_000).map(|step| (f64::from(step), f64::from(step).sqrt())).collect();
        for log in [false, true] {
            let thin = thinned(line.iter().copied(), log);
            assert_eq!((thin.first(), thin.last()), (line.first(), line.last()));
            assert!((100..600).contains(&thin.len()), "{}", thin.len());
        }
    }
}
