//! Pictures of one farm and load: distributions of latency, extremes, processor time, shares.

use balanza_plot::{Axis, Bars, Chart, Series};

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

/// All pictures of a farm and a load that there are data for.
pub(super) fn of_place(summary: &Summary, place: (&str, &str)) -> Vec<Figure> {
    let cells = cells_of(summary, place);
    let at = place_words(&summary.plan, place.0, place.1);
    let mut figures = Vec::new();
    for system in systems(&cells) {
        let cells: Vec<&CellSummary> = cells.iter().copied().filter(|cell| cell.cell.system == *system).collect();
        figures.extend(curves(&cells, system, place, &at));
    }
    if cells.len() <= BARS {
        figures.extend(bars(&cells, None, place, &at));
    } else {
        for system in systems(&cells) {
            let cells: Vec<&CellSummary> = cells.iter().copied().filter(|cell| cell.cell.system == *system).collect();
            figures.extend(bars(&cells, Some(system), place, &at));
        }
    }
    figures
}

fn curves(cells: &[&CellSummary], system: &System, (farm, load): (&str, &str), at: &str) -> Vec<Figure> {
    let all: Vec<(&str, Vec<(f64, f64)>)> = cells
        .iter()
        .map(|cell| (cell.cell.algorithm.as_str(), quantiles(&cell.latency)))
        .filter(|one| one.1.len() > 1)
        .collect();
    if all.is_empty() {
        return Vec::new();
    }
    let tail = Chart::new(&format!("Latency: {system}, {at}"))
        .x(Axis::log("latency").seconds())
        .y(Axis::log("part of the requests that take longer"));
    let tail = all.iter().fold(tail, |chart, (name, points)| {
        let tail = points.iter().map(|&(part, time)| (time, 1.0 - part)).filter(|point| point.1 > 1e-9);
        chart.series(Series::line(name, thinned(tail, true)))
    });
    let sorted = Chart::new(&format!("Sorted request times: {system}, {at}"))
        .x(Axis::linear("requests, the fastest first").percent().from(0.0).to(1.0))
        .y(Axis::linear("latency").seconds().from(0.0));
    let sorted = all
        .iter()
        .fold(sorted, |chart, (name, points)| chart.series(Series::line(name, thinned(points.iter().copied(), false))));
    vec![
        Figure::chart(
            &["tail", system.name(), load, farm],
            &tail,
            "Both axes are logarithmic: at 0.01, one request in a hundred takes longer.",
        ),
        Figure::chart(
            &["sorted", system.name(), load, farm],
            &sorted,
            "All requests of all runs that count, by their times.",
        ),
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

fn bars(cells: &[&CellSummary], system: Option<&System>, (farm, load): (&str, &str), at: &str) -> Vec<Figure> {
    let several = systems(cells).len() > 1;
    let row = |cell: &CellSummary| match several {
        true => format!("{}, {}", cell.cell.algorithm, cell.cell.system),
        false => cell.cell.algorithm.clone(),
    };
    let at = system.map_or_else(|| at.to_string(), |system| format!("{system}, {at}"));
    let name = |what| [what, system.map_or("", System::name), load, farm];
    [
        extremes(cells, row, &at).map(|bars| {
            Figure::bars(
                &name("extremes"),
                &bars,
                "From the fastest to the slowest request, with the mean. The slowest is a maximum: it grows with the number of requests.",
            )
        }),
        processors(cells, row, &at).map(|bars| {
            Figure::bars(&name("cpu"), &bars, "Processor time over elapsed time while the load lasted; 100% is one processor.")
        }),
        shares(cells, row, &at).map(|bars| Figure::bars(&name("shares"), &bars, "Part of the answers that each server gave.")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn extremes(cells: &[&CellSummary], row: impl Fn(&CellSummary) -> String, at: &str) -> Option<Bars> {
    let rows: Vec<(String, [f64; 3])> = cells
        .iter()
        .filter_map(|cell| {
            let latency = &cell.latency;
            let mean = cell.metrics.get("mean").map(|mean| mean.mean).or(latency.mean);
            Some((row(cell), [latency.min?, mean?, latency.max?]))
        })
        .collect();
    let (low, high) =
        rows.iter().fold((f64::MAX, 0.0f64), |ends, (_, [min, _, max])| (ends.0.min(*min), ends.1.max(*max)));
    // Where the slowest would leave nothing to see of the others.
    let axis = if high > 8.0 * low && low > 0.0 { Axis::log("latency") } else { Axis::linear("latency") };
    let bars = Bars::new(&format!("Fastest, mean and slowest request: {at}"), axis.seconds()).dots();
    let drawn = rows.iter().fold(bars, |bars, (name, [min, mean, max])| bars.bar(name, *mean, Some((*min, *max))));
    (!rows.is_empty()).then_some(drawn)
}

fn processors(cells: &[&CellSummary], row: impl Fn(&CellSummary) -> String, at: &str) -> Option<Bars> {
    let bars = Bars::new(&format!("Processor time: {at}"), Axis::linear("of one processor").percent()).stacked();
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
    let axis = Axis::linear("of the answers").percent().from(0.0).to(1.0);
    let bars = Bars::new(&format!("Who answered: {at}"), axis).stacked();
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
