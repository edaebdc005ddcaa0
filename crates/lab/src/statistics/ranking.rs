//! Who is best, by paired differences between the repetitions.
//!
//! The repetitions of a plan are interleaved, so two cells share what the machine did meanwhile: differences are taken
//! inside a repetition. The best is found by looking at the same numbers, so any pair may come to be compared: the
//! intervals hold for all pairs at once (Bonferroni).

use std::collections::BTreeMap;

use super::data::Data;
use super::estimate::{ALPHA, estimate, interval};
use super::words;
use crate::plan::{Cell, System};
use crate::summary::{Among, Estimate, Place, Ranking, Verdict};

/// Rates of a client that fails itself say nothing about what it asks: at most this part may be its own failures.
const CLIENT_ERRORS_MAX: f64 = 0.05;

/// Metrics that rank, and whether they need each request's time.
const METRICS: [(&str, bool); 4] = [("rps", false), ("mean", false), ("p99", true), ("max", true)];

/// One that is compared.
#[derive(Clone, Debug)]
pub(super) struct Contestant {
    pub name: String,
    /// Something to measure the others by.
    pub control: bool,
    /// The metric in each repetition that counts.
    pub values: BTreeMap<u32, f64>,
    /// Part of the ended requests that the client failed itself.
    pub client_errors: f64,
    /// Part of the ended requests that were not answered.
    pub errors: f64,
}

/// All comparisons of a plan: of the algorithms in each system, then of the systems with each algorithm.
pub(super) fn all(data: &Data) -> Vec<Ranking> {
    let plan = data.plan;
    let mut found = Vec::new();
    for (farm, load) in plan.farms.iter().flat_map(|farm| plan.loads.iter().map(move |load| (farm, load))) {
        let cell = |system: &System, algorithm: &str| Cell {
            farm: farm.name.clone(),
            load: load.name.clone(),
            system: system.clone(),
            algorithm: algorithm.into(),
        };
        for system in plan.systems.iter().filter(|system| **system != System::Direct) {
            let algorithms = plan.algorithms.iter();
            let among = algorithms.map(|a| (a.name.clone(), a.control, cell(system, &a.name))).collect();
            found.extend(rankings(data, Among::Algorithms(system.clone()), among));
        }
        for algorithm in plan.algorithms.iter().filter(|algorithm| !algorithm.control) {
            let systems = plan.systems.iter();
            let among = systems.map(|s| (s.name().into(), *s == System::Direct, cell(s, &algorithm.name))).collect();
            found.extend(rankings(data, Among::Systems(algorithm.name.clone()), among));
        }
    }
    found
}

fn rankings(data: &Data, among: Among, cells: Vec<(String, bool, Cell)>) -> Vec<Ranking> {
    let cells: Vec<_> = cells.into_iter().filter(|(.., cell)| data.runs(cell).is_some()).collect();
    let Some(Cell { farm, load, .. }) = cells.first().map(|(.., cell)| cell.clone()) else { return Vec::new() };
    let has_times = cells.iter().all(|(.., cell)| {
        let runs = data.runs(cell).into_iter().flat_map(|runs| runs.valid.values());
        runs.map(|(run, _)| &run.measured.latency).all(|latency| latency.count == 0 || !latency.histogram.is_empty())
    });
    let ranked = METRICS.iter().filter(|(_, needs_times)| has_times || !needs_times).filter_map(|(metric, _)| {
        let contestants = cells.iter().map(|(name, control, cell)| {
            let mean = |metric| {
                let values = data.repetitions(cell, metric, None);
                values.values().sum::<f64>() / values.len().max(1) as f64
            };
            let (client, offered) = (mean("client_errors_per_second"), mean("offered"));
            Contestant {
                name: name.clone(),
                control: *control,
                values: data.repetitions(cell, metric, None),
                client_errors: if offered > 0.0 { client / offered } else { 0.0 },
                errors: mean("error_share"),
            }
        });
        let (places, words) = rank(metric, contestants.collect())?;
        let (farm, load, among, metric) = (farm.clone(), load.clone(), among.clone(), metric.to_string());
        Some(Ranking { farm, load, among, metric, places, words })
    });
    ranked.collect()
}

/// How the ranked ones stand, for the words.
pub(super) struct Standing {
    /// From best to worst: who, its estimate, its verdict, its errors.
    pub ranked: Vec<(String, Estimate, Verdict, f64)>,
    /// The greatest part of the best's mean by which two that are tied may differ; none if two of them do differ.
    pub excluded: Option<f64>,
    /// Who is not ranked, its estimate if it has one, and why; no reason for controls.
    pub unranked: Vec<(String, Option<Estimate>, Option<String>)>,
}

/// Places and words; none if there are not two to compare.
pub(super) fn rank(metric: &str, contestants: Vec<Contestant>) -> Option<(Vec<Place>, String)> {
    if contestants.iter().filter(|contestant| !contestant.control).count() < 2
        || contestants.iter().all(|contestant| contestant.values.is_empty())
    {
        return None;
    }
    let standing = stand(metric, contestants);
    let words = words::verdict(metric, &standing);
    let ranked = standing.ranked.into_iter().map(|(name, estimate, verdict, _)| Place { name, estimate, verdict });
    let unranked = standing.unranked.into_iter();
    let unranked = unranked
        .filter_map(|(name, estimate, _)| Some(Place { name, estimate: estimate?, verdict: Verdict::Unranked }));
    Some((ranked.chain(unranked).collect(), words))
}

fn stand(metric: &str, contestants: Vec<Contestant>) -> Standing {
    let more_is_better = metric == "rps";
    let mut unranked = Vec::new();
    let mut ranked: Vec<(Contestant, Estimate)> = Vec::new();
    for contestant in contestants {
        let estimate = estimate(contestant.values.values().copied().collect());
        match (why_not(&contestant), estimate) {
            (None, Some(estimate)) if !contestant.control => ranked.push((contestant, estimate)),
            (why, estimate) => unranked.push((contestant.name, estimate, why.filter(|_| !contestant.control))),
        }
    }
    let worth = |estimate: &Estimate| if more_is_better { -estimate.mean } else { estimate.mean };
    ranked.sort_by(|(_, a), (_, b)| worth(a).total_cmp(&worth(b)));
    if let Some((best, _)) = ranked.first().cloned() {
        let paired = |contestant: &Contestant| worse_by(&best, contestant, more_is_better, 1.0).is_some();
        let (compared, alone): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|(contestant, _)| paired(contestant));
        ranked = compared;
        let reason = format!("fewer than 2 valid repetitions in common with {}", best.name);
        unranked.extend(alone.into_iter().map(|(c, estimate)| (c.name, Some(estimate), Some(reason.clone()))));
    }

    let pairs = (ranked.len() * ranked.len().saturating_sub(1) / 2).max(1) as f64;
    let scale = ranked.first().map_or(1.0, |(_, best)| best.mean.abs());
    let relative = |a: &Contestant, b: &Contestant| {
        let (low, high) = worse_by(a, b, more_is_better, pairs)?;
        // Where the best is nothing at all, any difference is without measure.
        let part = |value: f64| if value == 0.0 { 0.0 } else { value / scale };
        Some((part(low), part(high)))
    };
    let verdicts: Vec<Verdict> = ranked
        .iter()
        .map(|(contestant, _)| match relative(&ranked[0].0, contestant) {
            Some((low, high)) if low > 0.0 => Verdict::Worse { low, high },
            _ => Verdict::Tied,
        })
        .collect();
    let somebody_is_worse = verdicts.iter().any(|verdict| *verdict != Verdict::Tied);
    let tied: Vec<&Contestant> =
        ranked.iter().zip(&verdicts).filter(|(_, v)| **v == Verdict::Tied).map(|((c, _), _)| c).collect();
    let mut excluded = Some(0.0f64);
    for (i, a) in tied.iter().enumerate() {
        for b in &tied[i + 1..] {
            excluded = match (excluded, relative(a, b)) {
                (Some(most), Some((low, high))) if low <= 0.0 && high >= 0.0 => Some(most.max(high).max(-low)),
                _ => None,
            };
        }
    }
    let ranked = ranked.into_iter().zip(verdicts).enumerate().map(|(i, ((contestant, estimate), verdict))| {
        let verdict = if i == 0 && somebody_is_worse { Verdict::Best } else { verdict };
        (contestant.name, estimate, verdict, contestant.errors)
    });
    Standing { ranked: ranked.collect(), excluded, unranked }
}

/// Why one cannot be ranked.
fn why_not(contestant: &Contestant) -> Option<String> {
    if contestant.client_errors > CLIENT_ERRORS_MAX {
        return Some(format!("{:.0}% of its requests failed in the client", contestant.client_errors * 100.0));
    }
    match contestant.values.len() {
        0 => Some("no valid run measured this".into()),
        1 => Some("only one valid run".into()),
        _ => None,
    }
}

/// By how much `b` is worse than `a`: the interval of the mean paired difference that holds for so many pairs at once.
/// None without two common repetitions.
fn worse_by(a: &Contestant, b: &Contestant, more_is_better: bool, pairs: f64) -> Option<(f64, f64)> {
    let sign = if more_is_better { -1.0 } else { 1.0 };
    let both = a.values.iter().filter_map(|(repetition, a)| Some(sign * (b.values.get(repetition)? - a)));
    interval(&both.collect::<Vec<_>>(), ALPHA / pairs)
}
