//! The pictures of a report.

use balanza_plot::{Axis, Bars, Chart, Heat, Series, is_wide};

use super::words::{at, failed};
use crate::result::{Bins, Comparison, LoadSd, Point, QueueSample, Run};
use crate::scenario::{Arrivals, Discipline, Scenario, Service};

/// A chart with a caption.
pub(super) struct Figure {
    pub svg: String,
    pub caption: String,
}

impl Figure {
    fn new(svg: String, caption: impl Into<String>) -> Self {
        Self { svg, caption: caption.into() }
    }
}

fn axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    if is_wide(values) { Axis::log(label) } else { Axis::linear(label) }
}

/// What the points differ in, as an axis with the points' places on it.
fn abscissa(comparison: &Comparison) -> (Axis, Vec<f64>) {
    let users: Option<Vec<f64>> = comparison.points.iter().map(|point| point.users.map(f64::from)).collect();
    match users {
        Some(users) => (axis("users", users.iter().copied()), users),
        None => (Axis::linear("offered load"), comparison.points.iter().map(|point| point.load).collect()),
    }
}

/// The runs of each algorithm at all points.
fn by_algorithm(comparison: &Comparison) -> impl Iterator<Item = (&str, Vec<&Run>)> {
    let algorithms = comparison.points.first().map_or(&[][..], |point| &point.runs);
    algorithms.iter().enumerate().map(|(index, run)| {
        (run.algorithm.as_str(), comparison.points.iter().filter_map(|point| point.runs.get(index)).collect())
    })
}

/// The picture that says most.
pub(super) fn first(comparison: &Comparison) -> Chart {
    match &comparison.points[..] {
        [point] if comparison.scenario.events.is_empty() => tails(point),
        [point] => failures(point).or_else(|| longest(point)).unwrap_or_else(|| tails(point)),
        _ => times(comparison),
    }
}

/// Those that show the result at first sight: over all points, or of the only one.
pub(super) fn first_of_all(comparison: &Comparison) -> Vec<Figure> {
    match &comparison.points[..] {
        [point] => vec![means(point), distribution(point)],
        _ => over_points(comparison),
    }
}

/// Those that compare the points.
fn over_points(comparison: &Comparison) -> Vec<Figure> {
    let note = "Bands are 95% confidence intervals.";
    let mut figures = vec![Figure::new(times(comparison).svg(), note)];
    let (x, places) = abscissa(comparison);
    let curve = |value: &dyn Fn(&Run) -> f64| {
        let of = |(name, runs): (&str, Vec<&Run>)| {
            Series::line(name, places.iter().copied().zip(runs.into_iter().map(value))).markers()
        };
        by_algorithm(comparison).map(of).collect::<Vec<_>>()
    };
    let runs = || comparison.points.iter().flat_map(|point| &point.runs);

    let tail = axis("1 of 100 requests takes longer", runs().map(|run| run.quantiles.p99)).seconds();
    let chart = Chart::new("99th percentile of the time in system").x(x.clone()).y(tail);
    let chart = curve(&|run| run.quantiles.p99).into_iter().fold(chart, Chart::series);
    figures.push(Figure::new(chart.svg(), ""));

    if comparison.points.iter().any(|point| point.users.is_some()) {
        let chart = Chart::new("Throughput").x(x.clone()).y(Axis::linear("responses per second").from(0.0));
        let chart = curve(&|run| run.throughput).into_iter().fold(chart, Chart::series);
        figures.push(Figure::new(chart.svg(), "Responses without errors, per second."));
    }
    if runs().any(|run| failed(run) > 0.0) {
        let chart = Chart::new("Failed requests").x(x).y(Axis::linear("part of all requests").percent());
        let chart = curve(&failed).into_iter().fold(chart, Chart::series);
        figures.push(Figure::new(chart.svg(), "Errors and time-outs. Their times are included in the times above."));
    }
    figures
}

/// The mean time in system by load.
fn times(comparison: &Comparison) -> Chart {
    let (x, places) = abscissa(comparison);
    let all = comparison.points.iter().flat_map(|point| &point.runs).map(|run| run.mean_time_in_system);
    let mut chart =
        Chart::new("Mean time in system").x(x).y(axis("from a request's arrival to its end", all).seconds());
    for (name, runs) in by_algorithm(comparison) {
        let means = runs.iter().map(|run| run.mean_time_in_system);
        let band = runs.iter().map(|run| {
            let half = run.ci95.unwrap_or(f64::NAN);
            ((run.mean_time_in_system - half).max(run.mean_time_in_system * 1e-3), run.mean_time_in_system + half)
        });
        chart = chart.series(Series::line(name, places.iter().copied().zip(means)).band(band).markers());
    }
    match unit_of_theory(&comparison.scenario) {
        Some(service) => {
            [(1, "random, by theory"), (2, "two choices, by theory")].into_iter().fold(chart, |chart, (d, name)| {
                let (from, to) =
                    (places.iter().fold(1.0f64, |a, b| a.min(*b)), places.iter().fold(0.0f64, |a, b| a.max(*b)));
                let loads = (0..=60).map(|step| from + (to - from) * f64::from(step) / 60.0).filter(|load| *load < 1.0);
                chart.series(Series::line(name, loads.map(|load| (load, service * supermarket(load, d)))).reference())
            })
        }
        None => chart,
    }
}

/// The mean service time if the scenario is the supermarket model: equal exponential servers, Poisson arrivals, and nothing
/// else that could matter.
fn unit_of_theory(scenario: &Scenario) -> Option<f64> {
    let [servers] = &scenario.servers[..] else { return None };
    let Service::Exponential { mean } = scenario.service else { return None };
    let plain = matches!(scenario.arrivals, Arrivals::Poisson { rate: None })
        && scenario.events.is_empty()
        && servers.concurrency == 1
        && servers.discipline == Discipline::Fifo
        && servers.queue_limit.is_none()
        && servers.max_conns == 0
        && servers.mtbf.is_none()
        && servers.credits.is_none()
        && servers.error_rate == 0.0
        && scenario.requests.timeout.is_none()
        && scenario.network.delay.secs() == 0.0
        && scenario.network.client_rtt.secs() == 0.0;
    plain.then(|| mean.secs() / servers.speed)
}

/// Mean time in system in service times with the shortest of d random queues, for a great number of servers
/// (Mitzenmacher 1996; Vvedenskaya, Dobrushin, Karpelevich 1996).
fn supermarket(load: f64, d: i32) -> f64 {
    if d == 1 {
        return 1.0 / (1.0 - load);
    }
    let d = f64::from(d);
    (1..64).map(|i| load.powf((d.powi(i) - d) / (d - 1.0))).sum()
}

/// The part of the requests that took longer than t, by t.
pub(super) fn tails(point: &Point) -> Chart {
    let tail = |run: &Run| {
        let total: u64 = run.histogram.iter().map(|bin| bin.count).sum();
        let mut left = total;
        let mut steps = vec![(run.histogram.first().map_or(0.0, |bin| bin.from), 1.0)];
        for bin in &run.histogram {
            left -= bin.count;
            // All of the bin are known to have ended at its upper bound, or at the maximum.
            let longest = bin.to.min(run.quantiles.max.max(bin.from));
            steps.push((longest, left as f64 / (total as f64).max(1.0)));
        }
        // The last step would be to zero, which has no place on the axis: it ends at the maximum.
        if let [.., before, last] = &mut steps[..] {
            last.1 = before.1;
        }
        steps
    };
    let spread = point.runs.iter().map(|run| run.quantiles.p9999 / run.quantiles.p50.max(1e-12)).fold(0.0, f64::max);
    let typical = point.runs.iter().map(|run| run.quantiles.p50).filter(|p50| *p50 > 0.0).fold(f64::INFINITY, f64::min);
    // A logarithmic axis would give most of its room to the few requests that take hardly any time.
    let x = if spread > 60.0 {
        Axis::log("time in system, t").from(typical / 20.0)
    } else {
        Axis::linear("time in system, t").from(0.0)
    };
    let chart = Chart::new(&format!("Distribution of the time in system {}", at(point)))
        .x(x.seconds())
        .y(Axis::log("part of the requests that take longer than t").to(1.0));
    point.runs.iter().fold(chart, |chart, run| chart.series(Series::step(&run.algorithm, tail(run))))
}

/// Those of one point.
pub(super) fn of_point(point: &Point, several: bool) -> Vec<Figure> {
    // The only point has its first pictures at the top of the page.
    let mut figures = if several { vec![distribution(point)] } else { Vec::new() };
    if point.runs.iter().any(|run| failed(run) > 0.0) {
        let bars = Bars::new(&format!("Failed requests {}", at(point)), Axis::linear("part of all requests").percent());
        let bars = point.runs.iter().fold(bars, |bars, run| bars.bar(&run.algorithm, failed(run), None));
        figures.push(Figure::new(bars.svg(), "Errors and time-outs. Their times are included in the times above."));
    }
    figures.extend(queues(point));
    figures.extend(spread(point));
    figures.extend(maps(point));
    figures
}

fn distribution(point: &Point) -> Figure {
    let caption = "A lower line is better. The right end of a line is the slowest request. At 0.01, 1 of 100 requests takes longer.";
    Figure::new(tails(point).svg(), caption)
}

fn means(point: &Point) -> Figure {
    let range = |run: &Run| run.ci95.map(|half| (run.mean_time_in_system - half, run.mean_time_in_system + half));
    let x = axis("mean time in system", point.runs.iter().map(|run| run.mean_time_in_system)).seconds();
    let bars = Bars::new(&format!("Mean time in system {}", at(point)), x);
    let bars = point.runs.iter().fold(bars, |bars, run| bars.bar(&run.algorithm, run.mean_time_in_system, range(run)));
    Figure::new(bars.svg(), "Mean with the 95% confidence interval over the replications.")
}

/// Into how many spans of time the samples are put together, so that lines can be told apart.
const SPANS: usize = 60;

fn samples(point: &Point) -> impl Iterator<Item = &QueueSample> {
    point.runs.iter().flat_map(|run| &run.queues)
}

/// A value of each span of the first replication.
fn over_time(point: &Point, title: &str, y: Axis, value: impl Fn(&[QueueSample]) -> f64) -> Chart {
    let chart = Chart::new(&format!("{title} {}", at(point))).x(Axis::linear("time").seconds().from(0.0)).y(y);
    let of = |run: &Run| {
        let spans = run.queues.chunks(run.queues.len().div_ceil(SPANS).max(1));
        Series::step(&run.algorithm, spans.map(|span| (span[0].time, value(span))).collect::<Vec<_>>())
    };
    point.runs.iter().map(of).fold(chart, Chart::series)
}

/// Failed requests over time, if any fail.
fn failures(point: &Point) -> Option<Chart> {
    let part = |span: &[QueueSample]| {
        let ended: u64 = span.iter().map(|sample| sample.ended).sum();
        span.iter().map(|sample| sample.failed).sum::<u64>() as f64 / (ended as f64).max(1.0)
    };
    let y = Axis::linear("part of the requests that ended").percent().from(0.0);
    let any = samples(point).any(|sample| sample.failed > 0);
    any.then(|| over_time(point, "Failed requests", y, part))
}

/// The longest queue over time.
fn longest(point: &Point) -> Option<Chart> {
    samples(point).next()?;
    let y = axis(
        "requests at the server with the most requests",
        samples(point).map(|sample| f64::from(sample.max.max(1))),
    );
    let most = |span: &[QueueSample]| span.iter().map(|sample| f64::from(sample.max)).fold(0.0, f64::max);
    Some(over_time(point, "Longest queue", y, most))
}

/// Failures and queues over time, and the servers that are up if that changes.
fn queues(point: &Point) -> Vec<Figure> {
    let Some(longest) = longest(point) else { return Vec::new() };
    let y = axis(
        "requests per server, mean of all servers",
        samples(point).map(|sample| sample.mean).filter(|mean| *mean >= 0.5),
    );
    let mean = over_time(point, "Mean queue", y, |span| mean_of(span, |sample| sample.mean));
    let up = samples(point).any(|sample| sample.up < 1.0).then(|| {
        let y = Axis::linear("part of the servers that are up").percent().from(0.0).to(1.0);
        over_time(point, "Servers that are up", y, |span| mean_of(span, |sample| sample.up))
    });
    let charts = failures(point).into_iter().chain([mean, longest]).chain(up);
    charts.map(|chart| Figure::new(chart.svg(), "First replication, including its warm-up.")).collect()
}

fn mean_of(span: &[QueueSample], value: impl Fn(&QueueSample) -> f64) -> f64 {
    span.iter().map(value).sum::<f64>() / span.len() as f64
}

/// How evenly the servers are used: the deviation by number of requests, and all servers' queues.
fn spread(point: &Point) -> Vec<Figure> {
    let mut figures = Vec::new();
    if point.runs.iter().any(|run| run.load_sd.len() > 1) {
        let curves = point.runs.iter().map(|run| (run.algorithm.as_str(), &run.load_sd[..]));
        let chart = deviation(&format!("Unevenness {}", at(point)), curves);
        figures.push(Figure::new(chart.svg(), DEVIATION));
    }
    if point.runs.iter().any(|run| run.per_server.len() > 1) {
        let busiest = |run: &Run| run.per_server.iter().map(|server| server.mean_queue).fold(0.0, f64::max);
        let label = "requests at the server, mean over time";
        let scale =
            if is_wide(point.runs.iter().map(busiest)) { Axis::log(label) } else { Axis::linear(label).from(0.0) };
        let heat = Heat::new(&format!("Mean queue of each server {}", at(point)), scale);
        let servers = point.runs[0].servers;
        let heat = point.runs.iter().fold(heat.ends("first server", &format!("server {servers}")), |heat, run| {
            heat.row(&run.algorithm, run.per_server.iter().map(|server| server.mean_queue))
        });
        figures.push(Figure::new(
            heat.svg(),
            "One row per algorithm; the servers from left to right. All rows have the same scale.",
        ));
    }
    figures
}

/// Standard deviation over servers by number of requests.
fn deviation<'a>(title: &str, curves: impl Iterator<Item = (&'a str, &'a [LoadSd])>) -> Chart {
    let mut chart =
        Chart::new(title).x(Axis::log("requests so far")).y(Axis::log("standard deviation of the requests per server"));
    for (name, series) in curves {
        // What rounding leaves of zero would stretch the axis.
        let sd = |sd: f64| if sd < 1e-6 { 0.0 } else { sd };
        let points = series.iter().map(|point| (point.requests as f64, sd(point.sd)));
        chart = chart.series(Series::line(name, points.collect::<Vec<_>>()));
    }
    chart
}

/// What is said about it.
const DEVIATION: &str = "From the start of the run; mean over the replications. With random choices it grows with the square root \
                         of the number of requests. Algorithms that compare queues equalise the queues, not the number of \
                         requests that each server has received.";

/// Beyond this number of requests at one server, a linear scale has one colour for all short queues.
const LONG: f64 = 16.0;

/// Queues of all servers over time, a map for each algorithm, all with the same scale.
fn maps(point: &Point) -> Vec<Figure> {
    let all = || point.runs.iter().flat_map(|run| run.heat.iter().flatten()).map(|queue| f64::from(*queue));
    let most = all().fold(0.0f64, f64::max);
    let label = "requests at the server";
    let scale = if most > LONG { Axis::log(label).covering(all()) } else { Axis::linear(label).from(0.0).to(most) };
    let maps = point.runs.iter().filter(|run| run.heat.len() > 1 && run.heat[0].len() > 1);
    maps.map(|run| {
        let map = Heat::new(&format!("Queues over time: {}, {}", run.algorithm, at(point)), scale.clone());
        let end = run.queues.last().map_or(point.duration, |sample| sample.time);
        let map = map.map().ends("top: first server; left: time 0", &balanza_plot::seconds(end));
        let servers = run.heat[0].len();
        let map = (0..servers).fold(map, |map, server| {
            map.row("", run.heat.iter().map(|row| row.get(server).copied().map_or(f64::NAN, f64::from)))
        });
        Figure::new(map.svg(), "The maps of all algorithms have the same scale.")
    })
    .collect()
}

/// The deviation by requests of balls into bins.
pub(super) fn bins_deviation(bins: &[Bins]) -> Chart {
    deviation("Unevenness by number of requests", bins.iter().map(|run| (run.algorithm.as_str(), &run.series[..])))
}

/// Those of balls into bins.
pub(super) fn bins(bins: &[Bins]) -> Vec<Figure> {
    let range = |run: &Bins| run.max_load_ci95.map(|half| (run.max_load - half, run.max_load + half));
    let bars = Bars::new("Most requests on one server at the end", Axis::linear("requests"));
    let bars = bins.iter().fold(bars, |bars, run| bars.bar(&run.algorithm, run.max_load, range(run)));
    vec![
        Figure::new(
            bins_deviation(bins).svg(),
            "With random choices it grows with the square root of the number of requests; algorithms that compare loads keep it constant.",
        ),
        Figure::new(bars.svg(), "Mean with the 95% confidence interval over the replications."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_is_theory() {
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-4, "{value} is not {expected}");
        near(supermarket(0.9, 1), 10.0);
        near(supermarket(0.9, 2), 2.6141);
        near(supermarket(0.99, 2), 5.4320);
        near(supermarket(0.0, 2), 1.0);
    }
}
