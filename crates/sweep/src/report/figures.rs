//! The pictures of a sweep.

use balanza_plot::{Axis, Chart, Heat, Series, is_wide};
use serde_json::Value as Json;

use super::shown;
use crate::cells::Sweep;
use crate::summary::{Point, Row, Standing};

/// Of how many combinations there are pictures of their own; the tables have all.
const PICTURES: usize = 12;
/// Algorithms that have heat maps.
const MAPS: usize = 8;

/// What the points differ in, as places in [`Point::values`].
struct Dimensions {
    /// The horizontal one: numbers, the load if it is among them.
    x: Option<usize>,
    /// Another one with several values.
    y: Option<usize>,
}

/// The different values of a dimension, in the order of the plan.
fn values(points: &[Point], dimension: usize) -> Vec<&Json> {
    let mut values: Vec<&Json> = Vec::new();
    for point in points {
        let value = &point.values[dimension];
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

impl Dimensions {
    fn of(sweep: &Sweep, points: &[Point]) -> Dimensions {
        let several = |at: &usize| values(points, *at).len() > 1;
        let numbers = |at: &usize| several(at) && values(points, *at).iter().all(|value| value.is_number());
        let all = 0..sweep.titles.len();
        // Loads are the last dimension.
        let is_load = |at: &usize| ["load", "users"].contains(&sweep.titles[*at].as_str());
        let x = all.clone().filter(numbers).find(is_load).or_else(|| all.clone().find(numbers));
        let y = all.clone().filter(several).find(|at| Some(*at) != x);
        Dimensions { x, y }
    }
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    if is_wide(values) { Axis::log(label) } else { Axis::linear(label) }
}

/// What says most: times over the horizontal dimension, or all points at a glance.
pub(super) fn picture(sweep: &Sweep, points: &[Point]) -> String {
    match lines(sweep, points).into_iter().next() {
        Some(chart) => chart.document(),
        None => glance(sweep, points).document(),
    }
}

/// All points, each algorithm compared with the best one.
pub(super) fn glance(sweep: &Sweep, points: &[Point]) -> Heat {
    let ratios = Axis::log("mean time / best mean time of the point").from(1.0);
    let heat = Heat::new("All points from the first to the last", ratios).ends("first point", "last point");
    let ratio = |row: &Row| if row.standing == Standing::Failing { f64::NAN } else { row.ratio };
    sweep
        .algorithms
        .iter()
        .enumerate()
        .fold(heat, |heat, (at, algorithm)| heat.row(algorithm, points.iter().map(|point| ratio(&point.rows[at]))))
}

/// The interval of a mean. A logarithmic axis has no place for 0.
fn band(row: &Row) -> (f64, f64) {
    let half = row.ci95.unwrap_or(f64::NAN);
    ((row.mean - half).max(row.mean * 0.1), row.mean + half)
}

/// Mean times by the horizontal dimension: a chart for each combination of the others.
pub(super) fn lines(sweep: &Sweep, points: &[Point]) -> Vec<Chart> {
    let Some(x) = Dimensions::of(sweep, points).x else { return Vec::new() };
    let rows = || points.iter().flat_map(|point| &point.rows);
    let ends = rows().flat_map(|row| <[f64; 2]>::from(band(row)));
    let places = values(points, x).into_iter().map(number);
    let across = axis(&sweep.titles[x], places);
    let up = axis("from a request's arrival to its end", rows().map(|row| row.mean)).seconds().covering(ends);
    let mut facets: Vec<(Vec<&Json>, Vec<&Point>)> = Vec::new();
    for point in points {
        let rest: Vec<&Json> = point.values.iter().enumerate().filter(|(at, _)| *at != x).map(|(_, v)| v).collect();
        match facets.iter_mut().find(|(others, _)| *others == rest) {
            Some((_, points)) => points.push(point),
            None => facets.push((rest, vec![point])),
        }
    }
    let titles: Vec<&String> = sweep.titles.iter().enumerate().filter(|(at, _)| *at != x).map(|(_, t)| t).collect();
    let chart = |(rest, points): (Vec<&Json>, Vec<&Point>)| {
        let which: Vec<String> =
            titles.iter().zip(&rest).map(|(title, value)| format!("{title} {}", shown(value))).collect();
        let which = if which.is_empty() { String::new() } else { format!(": {}", which.join(", ")) };
        let chart = Chart::new(&format!("Mean time in system{which}")).x(across.clone()).y(up.clone());
        sweep.algorithms.iter().enumerate().fold(chart, |chart, (at, algorithm)| {
            let rows = || points.iter().map(move |point| (number(&point.values[x]), &point.rows[at]));
            let bands = rows().map(|(_, row)| band(row));
            chart.series(Series::line(algorithm, rows().map(|(x, row)| (x, row.mean))).band(bands).markers())
        })
    };
    facets.into_iter().take(PICTURES).map(chart).collect()
}

/// Mean times over two dimensions, the others at their first values: a map for each algorithm, all with the same colours.
pub(super) fn maps(sweep: &Sweep, points: &[Point]) -> Vec<Heat> {
    let Dimensions { x: Some(x), y: Some(y) } = Dimensions::of(sweep, points) else { return Vec::new() };
    let Some(first) = points.first() else { return Vec::new() };
    let shown_points: Vec<&Point> = points
        .iter()
        .filter(|point| (0..first.values.len()).all(|at| at == x || at == y || point.values[at] == first.values[at]))
        .collect();
    let means = || shown_points.iter().flat_map(|point| &point.rows).map(|row| row.mean);
    let colours = axis("mean time in system", means()).seconds().covering(means());
    let (columns, rows) = (values(points, x), values(points, y));
    let end =
        |value: Option<&&Json>| format!("{} {}", sweep.titles[x], value.map_or_else(String::new, |value| shown(value)));
    let map = |(at, algorithm): (usize, &String)| {
        let heat = Heat::new(algorithm, colours.clone()).ends(&end(columns.first()), &end(columns.last()));
        rows.iter().fold(heat, |heat, row| {
            let mean = |column: &&Json| {
                let point = shown_points.iter().find(|point| point.values[y] == **row && point.values[x] == **column);
                point.map_or(f64::NAN, |point| point.rows[at].mean)
            };
            heat.row(&format!("{} {}", sweep.titles[y], shown(row)), columns.iter().map(mean))
        })
    };
    sweep.algorithms.iter().enumerate().take(MAPS).map(map).collect()
}
