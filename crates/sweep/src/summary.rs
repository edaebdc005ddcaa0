//! What the runs of a sweep give together.

use std::collections::HashMap;

use balanza_simulator::mean_and_ci95;
use balanza_simulator::report::FAILURES;
use serde_json::Value as Json;

use crate::cells::Sweep;
use crate::record::Record;

/// All algorithms at one combination of values.
#[derive(Clone, Debug)]
pub struct Point {
    /// One for each of the sweep's titles.
    pub values: Vec<Json>,
    /// In the order of the plan.
    pub rows: Vec<Row>,
}

/// One algorithm at a point: means over its seeds.
#[derive(Clone, Debug)]
pub struct Row {
    /// As written.
    pub algorithm: String,
    /// Mean time in system in seconds.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval; `None` for one seed.
    pub ci95: Option<f64>,
    /// The 99th percentile of the time in system.
    pub p99: f64,
    /// Part of the requests that failed or were not answered in time.
    pub failed: f64,
    /// How it compares with the best algorithm of its point.
    pub standing: Standing,
    /// Its mean time as a multiple of the best one's.
    pub ratio: f64,
}

/// An algorithm compared with the best one of its point: that with the shortest mean time among those with the fewest
/// failed requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    /// It is the best one.
    Best,
    /// The interval of the difference, seed by seed, contains zero.
    Tied,
    /// Its mean time is longer.
    Slower,
    /// More of its requests failed, so that its times say little.
    Failing,
}

/// The points of a sweep in its order; only those whose runs are all there.
pub fn points(sweep: &Sweep, records: &HashMap<String, Record>) -> Vec<Point> {
    let (algorithms, seeds) = (sweep.algorithms.len(), sweep.replications as usize);
    let point = |cells: usize| {
        let of = |cell: usize| -> Option<Vec<&Record>> {
            (cell * seeds..(cell + 1) * seeds).map(|run| records.get(&sweep.id(run))).collect()
        };
        let runs = (cells..cells + algorithms).map(of).collect::<Option<Vec<_>>>()?;
        Some(Point { values: sweep.cells[cells].values.clone(), rows: rows(sweep, &runs) })
    };
    (0..sweep.cells.len()).step_by(algorithms).filter_map(point).collect()
}

fn rows(sweep: &Sweep, runs: &[Vec<&Record>]) -> Vec<Row> {
    let mean = |of: &[&Record], value: fn(&Record) -> f64| {
        mean_and_ci95(&of.iter().map(|record| value(record)).collect::<Vec<_>>())
    };
    let times: Vec<_> = runs.iter().map(|of| mean(of, |record| record.mean_time_in_system)).collect();
    let failed: Vec<f64> = runs.iter().map(|of| mean(of, Record::failed).0).collect();
    let fewest = failed.iter().copied().fold(f64::INFINITY, f64::min);
    let sound = |at: usize| failed[at] <= fewest + FAILURES;
    let best = (0..runs.len()).filter(|at| sound(*at)).min_by(|a, b| times[*a].0.total_cmp(&times[*b].0)).unwrap_or(0);
    // The same seed is the same requests: pairs differ by the algorithm alone.
    let standing = |at: usize| {
        let pairs = runs[at].iter().zip(&runs[best]).map(|(a, b)| a.mean_time_in_system - b.mean_time_in_system);
        match mean_and_ci95(&pairs.collect::<Vec<_>>()) {
            _ if at == best => Standing::Best,
            _ if !sound(at) => Standing::Failing,
            (mean, Some(half)) if mean.abs() <= half => Standing::Tied,
            _ => Standing::Slower,
        }
    };
    let row = |at: usize| Row {
        algorithm: sweep.algorithms[at].clone(),
        mean: times[at].0,
        ci95: times[at].1,
        p99: mean(&runs[at], |record| record.quantiles.p99).0,
        failed: failed[at],
        standing: standing(at),
        ratio: times[at].0 / times[best].0.max(1e-12),
    };
    (0..runs.len()).map(row).collect()
}

/// One algorithm over all points.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    /// As written.
    pub algorithm: String,
    /// At how many points it is the best one, tied with it, slower, or failing.
    pub counts: [usize; 4],
    /// The median and the greatest of its ratios where it does not fail; `None` where it always does.
    pub ratios: Option<(f64, f64)>,
}

/// The algorithms over all points, in the order of the plan.
pub fn overall(sweep: &Sweep, points: &[Point]) -> Vec<Overall> {
    let of = |at: usize| {
        let rows = || points.iter().map(move |point| &point.rows[at]);
        let count = |standing| rows().filter(|row| row.standing == standing).count();
        let counts = [Standing::Best, Standing::Tied, Standing::Slower, Standing::Failing].map(count);
        let mut ratios: Vec<f64> =
            rows().filter(|row| row.standing != Standing::Failing).map(|row| row.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let ratios = ratios.last().map(|most| (ratios[ratios.len() / 2], *most));
        Overall { algorithm: sweep.algorithms[at].clone(), counts, ratios }
    };
    (0..sweep.algorithms.len()).map(of).collect()
}
