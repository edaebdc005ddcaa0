//! From a log to an answer.

use balanza_simulator::Progress;
use serde::Serialize;

use crate::Error;
use crate::candidates::{Candidate, candidates};
use crate::check::{Check, check, quantile};
use crate::farm::Farm;
use crate::fit::fit;
use crate::log::Log;
use crate::runs::{Conditions, Outcome};
use crate::setting::Current;
use crate::traces::{Plan, traces};
use crate::verdict::{Answer, Goal, Verdict, WORTH, decide};

/// Requests that are needed to say anything.
pub const REQUESTS_MIN: u64 = 1_000;
/// Candidates that the what-ifs look at, beside the current one and the recommended one.
const RIVALS: usize = 4;
/// A model that is further off than this on what it did not see is no ground for a recommendation.
const TRUSTED: f64 = 0.35;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// What is to be best.
    pub goal: Goal,
    /// The p99 in seconds that servers are counted for.
    pub target: Option<f64>,
    /// The part of the figure that a change has to be worth.
    pub worth: f64,
    /// What is in operation.
    pub current: Current,
    /// Of all random numbers.
    pub seed: u64,
    /// Replications.
    pub replications: usize,
}

impl Default for Question {
    fn default() -> Question {
        Question { goal: Goal::P99, target: None, worth: WORTH, current: Current::default(), seed: 1, replications: 10 }
    }
}

/// What the log says without any model, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Observed {
    /// Requests at servers.
    pub requests: u64,
    /// Seconds of the log.
    pub span: f64,
    /// Requests a second.
    pub rate: f64,
    /// Requests a second in the busiest ten seconds.
    pub peak: f64,
    /// Mean response time, all attempts together.
    pub mean: f64,
    /// Half are below.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// The part of the requests whose last attempt failed.
    pub failed: f64,
}

/// What the answer would be under other conditions.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// "50 % more load", "without 10.0.0.1:80".
    pub name: String,
    /// The outcomes of the current algorithm, the recommended one and their rivals; none if that cannot be said.
    pub outcomes: Vec<Outcome>,
    /// What is best then: an index into `outcomes`.
    pub best: Option<usize>,
    /// Why nothing can be said.
    pub unknown: Option<String>,
}

/// How many servers a candidate needs.
#[derive(Clone, Debug, Serialize)]
pub struct Need {
    /// The candidate.
    pub candidate: Candidate,
    /// The fewest servers; `None` if all of them do not suffice.
    pub servers: Option<usize>,
    /// The p99 with so many.
    pub p99: f64,
}

/// The answer with its evidence.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// What was asked.
    pub goal: Goal,
    /// The part of the figure that a change has to be worth.
    pub worth: f64,
    /// What is in operation.
    pub current: Current,
    /// What the log says.
    pub observed: Observed,
    /// The model.
    pub servers: Vec<crate::farm::Server>,
    /// Whether they serve in order or share.
    pub order: crate::queue::Order,
    /// Mean work by time, relative to that of all.
    pub by_time: Vec<f64>,
    /// The model on what it did not see.
    pub check: Check,
    /// All candidates, the current one first.
    pub outcomes: Vec<Outcome>,
    /// What follows.
    pub verdict: Verdict,
    /// For the goal of fewest servers.
    pub needs: Vec<Need>,
    /// Under other conditions.
    pub what_ifs: Vec<WhatIf>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// Studies a log.
///
/// # Errors
/// Too few requests, or the simulator's.
pub fn study(log: &Log, question: &Question, progress: &Progress) -> Result<Study, Error> {
    if log.requests < REQUESTS_MIN {
        return Err(Error::Few { requests: log.requests, least: REQUESTS_MIN });
    }
    let farm = fit(log, &log.attempts);
    let check = check(log, question.seed);
    let plan = Plan { count: question.replications.max(2), seed: question.seed, load: 1.0 };
    let now = traces(log, &farm, plan);
    let all = candidates(&farm, &question.current);
    let retries = log.retries.min(farm.servers.len() as u32 - 1).min(255);
    let conditions = Conditions { farm: &farm, current: &question.current, retries, lost: &[], seed: question.seed };
    let outcomes = conditions.run(&all, &now, progress)?;
    let mut verdict = decide(question.goal, question.worth, &outcomes);
    let observed = observe(log);
    let mut notes = notes(log, &farm, &question.current, &observed);
    let off = check.p99.off().max(check.mean.off());
    if off > TRUSTED {
        verdict.answer = Answer::Inconclusive;
        notes.insert(
            0,
            format!(
                "The model is off by {:.0} % on the part of the log that it did not see: it does not describe these \
                 servers, and nothing is recommended.",
                off * 100.0
            ),
        );
    }
    let target = question.target.filter(|_| question.goal == Goal::Servers);
    let needs = match target {
        Some(target) => needs(&conditions, &outcomes, &now, target, progress)?,
        None => Vec::new(),
    };
    if target.is_some() {
        by_need(&mut verdict, &needs, &outcomes);
    }
    let what_ifs = what_ifs(log, &conditions, plan, question, &outcomes, &verdict, progress)?;
    Ok(Study {
        goal: question.goal,
        worth: question.worth,
        current: question.current.clone(),
        observed,
        servers: farm.servers.clone(),
        order: farm.order,
        by_time: farm.by_time.clone(),
        check,
        outcomes,
        verdict,
        needs,
        what_ifs,
        notes,
    })
}

fn observe(log: &Log) -> Observed {
    let firsts = || log.attempts.iter().filter(|attempt| attempt.is_first());
    let mut times: Vec<f64> = firsts().map(|attempt| f64::from(attempt.total) / 1e6).collect();
    times.sort_unstable_by(f64::total_cmp);
    let failed = log.attempts.iter().filter(|attempt| attempt.failed()).count() as f64;
    // Attempts that were tried again are not failures of their requests.
    let retried = log.attempts.len() as f64 - log.requests as f64;
    Observed {
        requests: log.requests,
        span: log.span(),
        rate: log.requests as f64 / log.span().max(1e-6),
        peak: log.peak(10.0_f64.min(log.span())),
        mean: times.iter().sum::<f64>() / times.len().max(1) as f64,
        p50: quantile(&times, 0.5),
        p99: quantile(&times, 0.99),
        failed: (failed - retried).max(0.0) / log.requests.max(1) as f64,
    }
}

fn notes(log: &Log, farm: &Farm, current: &Current, observed: &Observed) -> Vec<String> {
    let mut notes = Vec::new();
    let unknown = farm.servers.iter().filter(|server| server.parallel.is_none()).count();
    if unknown > 0 {
        let which = if unknown == farm.servers.len() {
            "The servers were never busy enough to show".to_string()
        } else {
            format!("{unknown} of {} servers were never busy enough to show", farm.servers.len())
        };
        notes.push(format!(
            "{which} how much they can do: nothing can be told above {:.0} requests/s, the most that this log has.",
            observed.peak
        ));
    }
    if !log.exact {
        notes.push(
            "The log has times in whole seconds: the order of requests within a second is known and their distances are \
             not. Add $msec to the log_format."
                .into(),
        );
    }
    if current.assumed {
        notes.push(format!(
            "No configuration was given: it is assumed that {} with equal weights was in operation.",
            current.algorithm
        ));
    }
    if observed.p50 < 0.005 {
        notes.push(
            "Half of the response times are below 5 ms and the log has milliseconds: small differences are not seen."
                .into(),
        );
    }
    if log.strange > 0 {
        notes.push(format!("{} lines are of another format and were left out.", log.strange));
    }
    if log.attempts.iter().any(|attempt| attempt.failed()) {
        notes.push(
            "Failures are simulated as independent of each other and of load, each server with its own rate; an outage in \
             the log counts as a higher rate."
                .into(),
        );
    }
    if crate::candidates::is_keyed(&current.algorithm) {
        notes.push(
            "The algorithm in operation goes by a key: only others that do are compared, and what a cache gains or loses \
             by a change is not in the model."
                .into(),
        );
    }
    notes
}

/// The fewest servers with which the best candidates stay below the target. The least capable are taken away first.
fn needs(
    conditions: &Conditions<'_>,
    outcomes: &[Outcome],
    traces: &[balanza_simulator::Trace],
    target: f64,
    progress: &Progress,
) -> Result<Vec<Need>, Error> {
    let traces = &traces[..traces.len().min(4)];
    let farm = conditions.farm;
    let mut order: Vec<usize> = (0..farm.servers.len()).collect();
    let power = |index: usize| farm.servers[index].speed * f64::from(farm.servers[index].concurrency());
    order.sort_by(|a, b| power(*a).total_cmp(&power(*b)));
    let mut needs = Vec::new();
    for index in rivals(outcomes, Goal::P99, 0, None) {
        let candidate = outcomes[index].candidate.clone();
        let mut need = Need { candidate: candidate.clone(), servers: None, p99: outcomes[index].p99 };
        // More servers are never worse: the fewest is found by halving.
        let (mut enough, mut few) = (order.len() + 1, 0);
        while enough - few > 1 {
            let count = (enough + few) / 2;
            let lost = &order[..order.len() - count.min(order.len())];
            let run = Conditions { lost, ..*conditions }.run(std::slice::from_ref(&candidate), traces, progress)?;
            let outcome = &run[0];
            if outcome.p99 <= target && outcome.unfinished < 0.02 {
                enough = count;
                (need.servers, need.p99) = (Some(count), outcome.p99);
            } else {
                few = count;
            }
        }
        needs.push(need);
    }
    Ok(needs)
}

/// The verdict by numbers of servers: fewer is better, and then the p99.
fn by_need(verdict: &mut Verdict, needs: &[Need], outcomes: &[Outcome]) {
    if verdict.answer == Answer::Inconclusive {
        return;
    }
    let best = needs
        .iter()
        .filter(|need| need.servers.is_some())
        .min_by(|a, b| a.servers.cmp(&b.servers).then(a.p99.total_cmp(&b.p99)));
    let current = needs.iter().find(|need| need.candidate == outcomes[0].candidate).and_then(|need| need.servers);
    verdict.answer = match best {
        None => Answer::Inconclusive,
        Some(best) if current.is_some_and(|current| current <= best.servers.unwrap_or(0)) => Answer::Stay,
        Some(best) => match outcomes.iter().position(|outcome| outcome.candidate == best.candidate) {
            Some(index) => Answer::Change(index),
            None => Answer::Inconclusive,
        },
    };
}

/// The indices of the current candidate, the chosen one, and the best others.
fn rivals(outcomes: &[Outcome], goal: Goal, best: usize, chosen: Option<usize>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..outcomes.len()).collect();
    order.sort_by(|a, b| goal.of(&outcomes[*a]).total_cmp(&goal.of(&outcomes[*b])));
    let mut rivals = vec![0];
    for index in chosen.into_iter().chain([best]).chain(order) {
        if rivals.len() < RIVALS + 2 && !rivals.contains(&index) {
            rivals.push(index);
        }
    }
    rivals
}

fn what_ifs(
    log: &Log,
    conditions: &Conditions<'_>,
    plan: Plan,
    question: &Question,
    outcomes: &[Outcome],
    verdict: &Verdict,
    progress: &Progress,
) -> Result<Vec<WhatIf>, Error> {
    let (farm, goal) = (conditions.farm, question.goal);
    let chosen = match verdict.answer {
        Answer::Change(index) => Some(index),
        _ => None,
    };
    let rivals = rivals(outcomes, goal, verdict.best, chosen);
    let candidates: Vec<Candidate> = rivals.iter().map(|index| outcomes[*index].candidate.clone()).collect();
    let power = |index: usize| farm.servers[index].speed * f64::from(farm.servers[index].concurrency());
    let greatest = (0..farm.servers.len()).max_by(|a, b| power(*a).total_cmp(&power(*b))).unwrap_or(0);
    let lost = [greatest];
    let mut what_ifs = Vec::new();
    let mut cases = vec![("50 % more load".to_string(), 1.5, &lost[..0])];
    if farm.servers.len() > 1 {
        cases.push((format!("without {}", farm.servers[greatest].name), 1.0, &lost[..]));
    }
    for (name, load, lost) in cases {
        let unknown = farm.servers.iter().any(|server| server.parallel.is_none());
        if unknown {
            let unknown = Some("the servers were never so busy that their capacity is known".to_string());
            what_ifs.push(WhatIf { name, outcomes: Vec::new(), best: None, unknown });
            continue;
        }
        let traces = traces(log, farm, Plan { load, ..plan });
        let outcomes = Conditions { lost, ..*conditions }.run(&candidates, &traces, progress)?;
        let overloaded = outcomes.iter().map(|outcome| outcome.unfinished).fold(f64::INFINITY, f64::min) > 0.02;
        let unknown = overloaded.then(|| "the servers cannot do that much with any algorithm".to_string());
        let best = match decide(goal, question.worth, &outcomes).answer {
            _ if overloaded => None,
            Answer::Change(index) => Some(index),
            Answer::Stay => Some(0),
            Answer::Inconclusive => None,
        };
        what_ifs.push(WhatIf { name, outcomes, best, unknown });
    }
    Ok(what_ifs)
}
