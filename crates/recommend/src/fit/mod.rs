//! A model of the servers from a log.

mod choose;
mod score;
mod speed;

use crate::farm::{Farm, Pool, Server};
use crate::log::{Attempt, Log};
use crate::queue::{Visit, work};
use score::{Part, Scorer};
use speed::Level;

/// Attempts that are looked at, at most, in so many parts of the log.
const LOOKED_AT: usize = 600_000;
const PARTS: usize = 8;
/// Requests that a span of the log needs to have works of its own, and how many spans there are at most.
const SPAN: usize = 5_000;
const SPANS_MAX: usize = 24;
/// Works that a pool keeps.
const POOL_MAX: usize = 50_000;
/// Failed attempts that took less did not occupy their server.
const REFUSED: u32 = 2_000;

/// The parts of a log that are looked at: ranges of its attempts. The busiest is among them.
fn parts(attempts: &[Attempt]) -> Vec<std::ops::Range<usize>> {
    let (count, size) = (attempts.len(), LOOKED_AT / PARTS);
    if count <= LOOKED_AT {
        return std::iter::once(0..count).collect();
    }
    let mut starts: Vec<usize> = (0..PARTS - 1).map(|part| part * (count - size) / (PARTS - 2)).collect();
    // Where so many attempts came in the shortest time.
    let busiest = (0..count - size).step_by(size / 4).min_by_key(|at| attempts[at + size].begin - attempts[*at].begin);
    starts.extend(busiest);
    starts.into_iter().map(|at| at..at + size).collect()
}

/// Fits a model to some of a log's attempts, in the order in which they began.
pub fn fit(log: &Log, attempts: &[Attempt]) -> Farm {
    let begin = attempts.first().map_or(0, |attempt| attempt.begin);
    let end = attempts.last().map_or(begin, |attempt| attempt.begin) + 1;
    let spans = (attempts.len() / SPAN).clamp(1, SPANS_MAX);
    let span = ((end - begin) / spans as u64).max(1);
    let delay = f64::from(log.round_trip) / 2.0;
    let resolution = if log.exact { 1_000.0 } else { 1e6 };
    let span_of = |at: u64| ((at - begin) / span).min(spans as u64 - 1) as u16;

    // What each server did in each part.
    let ranges = parts(attempts);
    let mut by_server: Vec<Vec<Part>> = vec![vec![Part::default(); ranges.len()]; log.servers.len()];
    for (p, range) in ranges.iter().enumerate() {
        for attempt in &attempts[range.clone()] {
            if attempt.failed() && attempt.time < REFUSED {
                continue;
            }
            let part = &mut by_server[usize::from(attempt.server)][p];
            let from = (attempt.begin - begin) as f64 + delay;
            let to = ((attempt.end() - begin) as f64 - delay).max(from);
            part.visits.push(Visit { begin: from, end: to });
            part.kinds.push((!attempt.failed()).then(|| (attempt.class() as u16, span_of(attempt.begin))));
        }
        // What was there before the part began is not known.
        if range.start > 0 {
            by_server.iter_mut().for_each(|parts| parts[p].skip = parts[p].visits.len() / 20);
        }
    }
    let scorers: Vec<Scorer<'_>> = by_server.iter().map(|parts| Scorer::new(parts, spans, resolution)).collect();
    let (order, parallels) = choose::choose(&scorers);

    // Works, by the hypothesis that was chosen.
    let works: Vec<Vec<Vec<f64>>> = by_server
        .iter()
        .zip(&parallels)
        .map(|(parts, parallel)| {
            let units = parallel.units.unwrap_or(crate::queue::UNLIMITED);
            parts.iter().map(|part| work(order, units, &part.visits)).collect()
        })
        .collect();
    let classes = log.classes.len().max(1);
    let speeds = speed::speeds(&levels(&by_server, &works, classes, resolution / 2.0));

    let mut pools = vec![Vec::new(); classes * spans + classes + 1];
    let (mut sum, mut count) = (0.0, 0.0);
    let mut sums_of_spans = vec![(0.0, 0.0); spans];
    for (s, parts) in by_server.iter().enumerate() {
        for (part, works) in parts.iter().zip(&works[s]) {
            for (kind, work) in part.kinds.iter().zip(works).skip(part.skip) {
                let Some((class, span)) = *kind else { continue };
                let work = (work * speeds[s].0).max(0.0);
                let (class, span) = (usize::from(class).min(classes - 1), usize::from(span));
                (sum, count) = (sum + work, count + 1.0);
                sums_of_spans[span] = (sums_of_spans[span].0 + work, sums_of_spans[span].1 + 1.0);
                let all = classes * spans;
                for pool in [class * spans + span, all + class, all + classes] {
                    pools[pool].push(work.min(f64::from(u32::MAX)) as u32);
                }
            }
        }
    }
    let mean_work = if count > 0.0 { sum / count } else { 0.0 };
    let by_time = sums_of_spans.iter().map(|(sum, count)| if *count > 0.0 { sum / count / mean_work } else { 1.0 });
    let by_time = by_time.collect();
    let thin = |mut pool: Vec<u32>| {
        // Every n-th in the order of size keeps the distribution.
        pool.sort_unstable();
        let step = pool.len().div_ceil(POOL_MAX).max(1);
        Pool(if step == 1 { pool } else { pool.into_iter().skip(step / 2).step_by(step).collect() })
    };
    let pools = pools.into_iter().map(thin).collect();
    let counted = counts(log, attempts);
    let servers = (0..log.servers.len()).map(|s| {
        let (speed, speed_error) = speeds[s];
        let parallel = parallels[s];
        let capacity = parallel.units.map(|units| f64::from(units) * speed * 1e6 / mean_work.max(1e-3));
        Server {
            name: log.servers[s].clone(),
            attempts: counted[s].0,
            failed: counted[s].1 as f64 / counted[s].0.max(1) as f64,
            speed,
            speed_error,
            parallel: parallel.units,
            parallel_range: parallel.range,
            in_flight_max: scorers[s].in_flight_max,
            capacity,
            peak: counted[s].2,
        }
    });
    let servers = servers.collect();
    Farm { servers, order, pools, classes, spans, begin, span, mean_work, delay, by_time }
}

/// The level of each server's works, each class compared with itself.
fn levels(by_server: &[Vec<Part>], works: &[Vec<Vec<f64>>], classes: usize, least: f64) -> Vec<Level> {
    let each = |s: usize| {
        let parts = by_server[s].iter().zip(&works[s]);
        parts.flat_map(move |(part, works)| {
            let counted = part.kinds.iter().zip(works).skip(part.skip);
            counted.filter_map(move |(kind, work)| kind.map(|(class, _)| (class, (work.max(0.0) + least).ln())))
        })
    };
    let mut of_class = vec![(0.0, 0.0); classes];
    for (class, log) in (0..works.len()).flat_map(each) {
        let sum = &mut of_class[usize::from(class).min(classes - 1)];
        *sum = (sum.0 + log, sum.1 + 1.0);
    }
    let level = |s: usize| {
        let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
        for (class, log) in each(s) {
            let (total, number) = of_class[usize::from(class).min(classes - 1)];
            let log = log - total / number;
            (sum, squares, count) = (sum + log, squares + log * log, count + 1.0);
        }
        let mean = sum / f64::max(count, 1.0);
        let variance = (squares / f64::max(count, 1.0) - mean * mean).max(0.0);
        Level { mean, error: (variance / f64::max(count, 1.0)).sqrt(), count }
    };
    (0..works.len()).map(level).collect()
}

/// Attempts and failures of each server, and the most attempts a second over ten seconds.
fn counts(log: &Log, attempts: &[Attempt]) -> Vec<(u64, u64, f64)> {
    const SECONDS: u64 = 10;
    let begin = attempts.first().map_or(0, |attempt| attempt.begin);
    let mut counts = vec![(0, 0, 0.0); log.servers.len()];
    let mut spans = vec![(0u64, 0u64); log.servers.len()];
    for attempt in attempts {
        let server = usize::from(attempt.server);
        let (all, failed, peak) = &mut counts[server];
        *all += 1;
        *failed += u64::from(attempt.failed());
        let at = (attempt.begin - begin) / (SECONDS * 1_000_000);
        let (current, count) = &mut spans[server];
        if at != *current {
            (*current, *count) = (at, 0);
        }
        *count += 1;
        *peak = f64::max(*peak, *count as f64 / SECONDS as f64);
    }
    counts
}
