//! Pictures that compare balancers: the main result, and how throughput and latency follow the load.

use balanza_plot::{Axis, Bars, Chart, Series, is_wide};

use super::tables::{cells_of, decisive, main_place, systems};
use super::words;
use crate::plan::{Load, Plan, System};
use crate::summary::{CellSummary, Estimate, Summary};

/// A picture with what is to be said about it.
pub(super) struct Figure {
    /// What its file is called, without the ending.
    pub name: String,
    /// For a page.
    pub svg: String,
    /// For a file of its own.
    pub document: String,
    /// One sentence or two.
    pub caption: String,
}

impl Figure {
    pub fn chart(name: &[&str], chart: &Chart, caption: &str) -> Self {
        Self { name: slug(name), svg: chart.svg(), document: chart.document(), caption: caption.to_string() }
    }

    pub fn bars(name: &[&str], bars: &Bars, caption: &str) -> Self {
        Self { name: slug(name), svg: bars.svg(), document: bars.document(), caption: caption.to_string() }
    }
}

/// A name of a file: letters, digits and hyphens.
fn slug(parts: &[&str]) -> String {
    let mut name = String::new();
    for char in parts.join("-").chars() {
        match char {
            'a'..='z' | '0'..='9' => name.push(char),
            'A'..='Z' => name.push(char.to_ascii_lowercase()),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.trim_matches('-').to_string()
}

/// The main result: throughput, or the mean latency of an open loop, by algorithm and system, where most was measured.
pub(super) fn overview(summary: &Summary) -> Option<Figure> {
    let place = main_place(summary)?;
    let cells = cells_of(summary, place);
    let metric = decisive(&cells);
    let means: Vec<f64> = cells.iter().filter_map(|cell| Some(cell.metrics.get(metric)?.mean)).collect();
    if means.len() < 2 {
        return None;
    }
    let (what, axis, better) = match metric {
        "rps" => ("Throughput", Axis::linear("responses per second"), "More is better."),
        _ if is_wide(means) => ("Mean latency", Axis::log("mean latency").seconds(), "Less is better."),
        _ => ("Mean latency", Axis::linear("mean latency").seconds(), "Less is better."),
    };
    let at = words::place(&summary.plan, place.0, place.1);
    let bars = Bars::new(&format!("{what}: {at}"), axis);
    let bars = summary.plan.algorithms.iter().fold(bars, |bars, algorithm| {
        let of = cells.iter().copied().filter(|cell| cell.cell.algorithm == algorithm.name);
        let bar = |cell: &CellSummary| cell.metrics.get(metric).map(|estimate| (estimate.mean, estimate.interval));
        let group: Vec<_> =
            of.filter_map(|cell| bar(cell).map(|(mean, interval)| (cell.cell.system.name(), mean, interval))).collect();
        if group.is_empty() { bars } else { bars.group(&algorithm.name, group) }
    });
    let caption = format!("{better} Means with 95% confidence intervals over the repetitions.");
    Some(Figure::bars(&["result", place.1, place.0], &bars, &caption))
}

/// From so many loads on there is a line to draw.
const LOADS: usize = 3;

/// Throughput and latency by users or rate, for each farm and system that has at least three loads that differ in nothing else.
pub(super) fn over_loads(summary: &Summary) -> Vec<Figure> {
    let mut sets = Vec::new();
    for farm in &summary.plan.farms {
        for (index, sweep) in sweeps(&summary.plan).iter().enumerate() {
            let cells: Vec<&CellSummary> = summary
                .cells
                .iter()
                .filter(|cell| cell.cell.farm == farm.name && sweep.iter().any(|load| load.name == cell.cell.load))
                .collect();
            let all = cells;
            for system in systems(&all) {
                let cells: Vec<&CellSummary> = all.iter().copied().filter(|cell| cell.cell.system == *system).collect();
                sets.push(sweep_figures(&summary.plan, (&farm.name, index, system), sweep, (&cells, &all)));
            }
        }
    }
    // All throughputs, then all latencies: systems are compared side by side.
    let mut figures: Vec<(usize, Figure)> = sets.into_iter().flat_map(|set| set.into_iter().enumerate()).collect();
    figures.sort_by_key(|(what, _)| *what);
    figures.into_iter().map(|(_, figure)| figure).collect()
}

/// Loads that differ only in users, or only in rate.
fn sweeps(plan: &Plan) -> Vec<Vec<&Load>> {
    let alike = |load: &Load| Load {
        name: String::new(),
        users: load.users.map(|_| 1),
        rate: load.rate.map(|_| 1.0),
        connections_max: None,
        ..load.clone()
    };
    let mut sweeps: Vec<(Load, Vec<&Load>)> = Vec::new();
    for load in plan.loads.iter().filter(|load| abscissa(load).is_some()) {
        let key = alike(load);
        match sweeps.iter_mut().find(|(known, _)| *known == key) {
            Some((_, loads)) => loads.push(load),
            None => sweeps.push((key, vec![load])),
        }
    }
    let mut sweeps: Vec<Vec<&Load>> = sweeps.into_iter().map(|(_, loads)| loads).collect();
    for loads in &mut sweeps {
        loads.sort_by(|one, other| abscissa(one).partial_cmp(&abscissa(other)).unwrap_or(std::cmp::Ordering::Equal));
    }
    sweeps.retain(|loads| loads.len() >= LOADS);
    sweeps
}

fn abscissa(load: &Load) -> Option<f64> {
    load.users.map(f64::from).or(load.rate)
}

fn sweep_figures(
    plan: &Plan,
    (farm, index, system): (&str, usize, &System),
    sweep: &[&Load],
    (cells, all): (&[&CellSummary], &[&CellSummary]),
) -> Vec<Figure> {
    let of = |algorithm: &str, load: &str| {
        cells.iter().copied().find(|cell| cell.cell.algorithm == algorithm && cell.cell.load == load)
    };
    let measured = sweep.iter().filter(|load| cells.iter().any(|cell| cell.cell.load == load.name)).count();
    if measured < LOADS {
        return Vec::new();
    }
    let (label, first) =
        if sweep[0].users.is_some() { ("users", "users") } else { ("requests per second sent", "rate") };
    let wide = is_wide(sweep.iter().filter_map(|load| abscissa(load)));
    let x = || {
        let x = if wide { Axis::log(label) } else { Axis::linear(label) };
        x.covering(sweep.iter().filter_map(|load| abscissa(load)))
    };
    // The pictures of all systems have the same axes, so that they can be compared.
    let shared = |axis: Axis, metric: &str| {
        let estimates = all.iter().filter_map(|cell| cell.metrics.get(metric));
        axis.covering(estimates.flat_map(|estimate| {
            let (low, high) = band(estimate);
            [low, estimate.mean, high]
        }))
    };
    let curves = |chart: Chart, metric: &str| {
        plan.algorithms.iter().fold(chart, |chart, algorithm| {
            let points: Vec<(f64, f64, (f64, f64))> = sweep
                .iter()
                .filter_map(|load| {
                    let estimate = of(&algorithm.name, &load.name)?.metrics.get(metric)?;
                    Some((abscissa(load)?, estimate.mean, band(estimate)))
                })
                .collect();
            if points.is_empty() {
                return chart;
            }
            let series = Series::line(&algorithm.name, points.iter().map(|point| (point.0, point.1)));
            chart.series(series.band(points.iter().map(|point| point.2)).markers())
        })
    };
    let here = if plan.farms.len() > 1 { format!("{system}, {farm}") } else { system.to_string() };
    let part = if index > 0 { format!("{}-{first}", index + 1) } else { first.to_string() };
    let name = |what: &str| [what.to_string(), format!("by-{part}"), system.to_string(), farm.to_string()];
    let figure = |what: &str, chart: Chart, caption: &str| {
        let name = name(what);
        Figure::chart(&name.each_ref().map(String::as_str), &chart, caption)
    };
    let throughput = Chart::new(&format!("Throughput by {first}: {here}"))
        .x(x())
        .y(shared(Axis::linear("responses per second").from(0.0), "rps"));
    let mean = Chart::new(&format!("Mean latency by {first}: {here}"))
        .x(x())
        .y(shared(Axis::log("mean latency").seconds(), "mean"));
    let p99 = Chart::new(&format!("99th percentile of the latency by {first}: {here}"))
        .x(x())
        .y(shared(Axis::log("1 of 100 requests takes longer").seconds(), "p99"));
    let mut figures = vec![
        figure("throughput", curves(throughput, "rps"), "Bands are 95% confidence intervals over the repetitions."),
        figure("latency", curves(mean, "mean"), "Bands are 95% confidence intervals over the repetitions."),
    ];
    if cells.iter().any(|cell| cell.metrics.contains_key("p99")) {
        figures.push(figure("p99", curves(p99, "p99"), "Bands are 95% confidence intervals over the repetitions."));
    }
    figures
}

/// The interval of an estimate, within what a logarithmic axis can show.
fn band(estimate: &Estimate) -> (f64, f64) {
    let (low, high) = estimate.interval.unwrap_or((estimate.mean, estimate.mean));
    (low.max(estimate.mean * 0.01), high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn pictures_of_compared_systems_have_the_same_axes() {
        let mut summary = sample::summary();
        // One system is ten times as fast as the other.
        for cell in summary.cells.iter_mut().filter(|cell| cell.cell.system == System::Nginx) {
            for estimate in cell.metrics.values_mut() {
                estimate.mean *= 10.0;
                estimate.interval = estimate.interval.map(|(low, high)| (low * 10.0, high * 10.0));
            }
        }
        let figures = over_loads(&summary);
        for what in ["throughput", "latency", "p99"] {
            let axes: Vec<Vec<&str>> = figures
                .iter()
                .filter(|figure| figure.name.starts_with(what))
                .map(|figure| sample::numbers_on_axes(&figure.svg))
                .collect();
            assert_eq!(axes.len(), 2, "{what}");
            assert!(axes[0] == axes[1] && axes[0].len() > 5, "{what}: {axes:?}");
        }
    }

    #[test]
    fn the_main_result_has_all_algorithms_of_all_systems_on_one_axis() {
        let figure = overview(&sample::summary()).unwrap();
        for part in ["Throughput: 250 users", "WRR 3:1", "least_conn", "balanza", "nginx"] {
            assert!(figure.svg.contains(part), "{part}");
        }
        assert_eq!(figure.name, "result-250-two-unequal");
        let mut empty = sample::summary();
        empty.cells.clear();
        assert!(overview(&empty).is_none());
    }

    #[test]
    fn three_loads_that_differ_in_one_thing_are_a_line() {
        let summary = sample::summary();
        let names: Vec<String> = over_loads(&summary).into_iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        assert_eq!(names[0], "throughput-by-users-balanza-two-unequal");

        let mut other = summary.clone();
        other.plan.loads[1].keep_alive = false;
        assert!(over_loads(&other).is_empty(), "two loads are no line");
        let mut fewer = summary;
        fewer.cells.retain(|cell| cell.cell.load != "250");
        assert!(over_loads(&fewer).is_empty(), "what was not run is not drawn");
    }
}
