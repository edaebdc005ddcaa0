//! What follows from the runs: a recommendation, "stay", or "inconclusive".

use serde::Serialize;

use crate::runs::Outcome;

/// What is to be best.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The response time that 99 of 100 requests stay below.
    P99,
    /// The mean response time.
    Mean,
    /// The part of the requests that fails.
    Errors,
    /// The number of servers that are needed for a p99.
    Servers,
}

impl Goal {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Goal::P99 | Goal::Servers => "p99",
            Goal::Mean => "mean response time",
            Goal::Errors => "part of failed requests",
        }
    }

    /// The figure of an outcome.
    pub fn of(self, outcome: &Outcome) -> f64 {
        match self {
            Goal::P99 | Goal::Servers => outcome.p99,
            Goal::Mean => outcome.mean,
            Goal::Errors => outcome.failed,
        }
    }

    /// The figure of one replication.
    fn of_each(self, each: &(f64, f64, f64)) -> f64 {
        match self {
            Goal::P99 | Goal::Servers => each.1,
            Goal::Mean => each.0,
            Goal::Errors => each.2,
        }
    }

    /// Differences below it do not matter: the resolution of the log, a request of ten thousand.
    fn least(self) -> f64 {
        match self {
            Goal::P99 | Goal::Mean | Goal::Servers => 0.001,
            Goal::Errors => 0.0001,
        }
    }
}

/// A change has to be worth this part of the figure, unless the question says otherwise.
pub const WORTH: f64 = 0.03;
/// Candidates are as good as the best within this part of what a change has to be worth.
const AS_GOOD: f64 = 0.2;
/// The best of many candidates is partly luck: its difference has to be so much wider than the interval of one pair.
const LUCK: f64 = 1.5;

/// The second's figure less the first's, over pairs of replications, and half its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// The mean.
    pub mean: f64,
    /// Half the interval; infinite for one replication.
    pub half: f64,
}

/// Compares two outcomes on the same requests.
pub fn difference(goal: Goal, first: &Outcome, second: &Outcome) -> Difference {
    let pairs = first.each.iter().zip(&second.each);
    let values: Vec<f64> = pairs.map(|(a, b)| goal.of_each(b) - goal.of_each(a)).collect();
    let (mean, half) = mean_and_half(&values);
    Difference { mean, half }
}

/// Mean and half of its 95 % interval.
pub(crate) fn mean_and_half(values: &[f64]) -> (f64, f64) {
    // The 97.5 % quantiles of Student's t; from 30 on they hardly change.
    const T: [f64; 15] =
        [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(2.1);
    (mean, t * (variance / n).sqrt())
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Change to the candidate of this index.
    Change(usize),
    /// No candidate is better by enough.
    Stay,
    /// One may be better, and the log does not suffice to know.
    Inconclusive,
}

/// The answer, with the best candidate and what it changes.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What to do.
    pub answer: Answer,
    /// The best candidate, by the figure alone.
    pub best: usize,
    /// Of the candidate that is recommended, or else of the best: its figure less the current one's.
    pub gain: Difference,
}

/// What the outcomes say; the first is what is in operation. A change has to be worth the part `worth` of the figure.
pub fn decide(goal: Goal, worth: f64, outcomes: &[Outcome]) -> Verdict {
    let figure = |index: usize| goal.of(&outcomes[index]);
    // One that lets the queues grow, or fails more requests, is not better.
    let fewest = outcomes.iter().map(|outcome| outcome.failed).fold(f64::INFINITY, f64::min);
    let sound = |index: &usize| outcomes[*index].failed <= fewest + 0.002;
    let best = (0..outcomes.len()).filter(sound).min_by(|a, b| figure(*a).total_cmp(&figure(*b))).unwrap_or(0);
    // As good and nearer to what there is: the candidates are in the order of how simple they are.
    let as_good = |index: &usize| {
        let allowed = (AS_GOOD * worth * figure(best)).max(goal.least() / 2.0);
        figure(*index) - figure(best) <= allowed && difference(goal, &outcomes[best], &outcomes[*index]).mean <= allowed
    };
    let chosen = (0..outcomes.len()).filter(sound).find(as_good).unwrap_or(best);
    let gain = difference(goal, &outcomes[0], &outcomes[chosen]);
    let worth = (worth * figure(0)).max(goal.least());
    let certain = gain.mean < 0.0 && -gain.mean > LUCK * gain.half;
    let answer = if chosen == 0 {
        Answer::Stay
    } else if certain && figure(0) - figure(chosen) >= worth && -gain.mean >= worth {
        Answer::Change(chosen)
    } else if certain || -gain.mean + gain.half < worth {
        // Better by less than a change is worth, at most.
        Answer::Stay
    } else {
        Answer::Inconclusive
    };
    Verdict { answer, best, gain }
}
