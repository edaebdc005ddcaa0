//! The sentences that the terminal and the page have in common.

use balanza_plot::{number, percent, seconds};

use crate::farm::Server;
use crate::queue::Order;
use crate::runs::Outcome;
use crate::study::{Study, WhatIf};
use crate::verdict::{Answer, Goal, difference};

/// The index of what is to be in operation after the answer.
pub fn chosen(study: &Study) -> usize {
    match study.verdict.answer {
        Answer::Change(index) => index,
        Answer::Stay | Answer::Inconclusive => 0,
    }
}

/// A figure of the goal.
fn figure(goal: Goal, value: f64) -> String {
    if goal == Goal::Errors { percent(value) } else { seconds(value) }
}

/// The answer in a line.
pub fn headline(study: &Study) -> String {
    let label = |index: usize| study.outcomes[index].candidate.label();
    match study.verdict.answer {
        Answer::Change(index) => format!("Recommended: {}", label(index)),
        Answer::Stay => format!("Stay with {}", label(0)),
        Answer::Inconclusive => "Inconclusive".into(),
    }
}

/// Why, in a sentence or two.
pub fn reason(study: &Study) -> String {
    let goal = study.goal;
    let value = |index: usize| figure(goal, goal.of(&study.outcomes[index]));
    let best = study.verdict.best;
    if goal == Goal::Servers && !study.needs.is_empty() {
        return by_need(study);
    }
    match study.verdict.answer {
        Answer::Change(index) => {
            let gain = difference(goal, &study.outcomes[0], &study.outcomes[index]);
            format!(
                "Expected {}: {}, instead of {} with {}. The difference is {} ± {} (95 % interval over pairs of runs with the \
                 same requests).",
                goal.name(),
                value(index),
                value(0),
                study.outcomes[0].candidate.label(),
                figure(goal, -gain.mean),
                figure(goal, gain.half),
            )
        }
        Answer::Stay if best == 0 => format!("No candidate has a better {} than {}.", goal.name(), value(0)),
        Answer::Stay => format!(
            "The best candidate ({}) has a {} of {}, instead of {}: less than the {} that a change has to be worth.",
            study.outcomes[best].candidate.label(),
            goal.name(),
            value(best),
            value(0),
            percent(study.worth),
        ),
        Answer::Inconclusive => format!(
            "The best candidate ({}) has a {} of {}, instead of {}, and the evidence does not suffice to recommend it.",
            study.outcomes[best].candidate.label(),
            goal.name(),
            value(best),
            value(0),
        ),
    }
}

fn by_need(study: &Study) -> String {
    let needs: Vec<String> = study
        .needs
        .iter()
        .map(|need| match need.servers {
            Some(servers) => format!("{}: {servers} (p99 {})", need.candidate.label(), seconds(need.p99)),
            None => format!("{}: more than there are", need.candidate.label()),
        })
        .collect();
    format!("Servers needed for the target, the least capable taken away first: {}.", needs.join("; "))
}

/// What the log is.
pub fn log(study: &Study) -> String {
    let observed = &study.observed;
    format!(
        "{} requests to {} servers in {}: {} requests/s, {} in the busiest 10 s; p99 {}, failed {}.",
        number(observed.requests as f64),
        study.servers.len(),
        seconds(observed.span),
        number(observed.rate),
        number(observed.peak),
        seconds(observed.p99),
        percent(observed.failed),
    )
}

/// How far the model is off.
pub fn check(study: &Study) -> String {
    let check = &study.check;
    let pair = |name: &str, pair: &crate::check::Pair| {
        format!(
            "{name} {} predicted, {} observed ({} off)",
            seconds(pair.predicted),
            seconds(pair.observed),
            percent(pair.off())
        )
    };
    format!(
        "Model check, on the last 30 % of the log, which the model had not seen: {}; {}.",
        pair("mean", &check.mean),
        pair("p99", &check.p99)
    )
}

/// The current algorithm on the model beside the log.
pub fn again(study: &Study) -> String {
    let simulated = &study.outcomes[0];
    format!(
        "{} simulated on the model: mean {}, p99 {}; in the log: mean {}, p99 {}.",
        simulated.candidate.label(),
        seconds(simulated.mean),
        seconds(simulated.p99),
        seconds(study.observed.mean),
        seconds(study.observed.p99),
    )
}

/// A server's units.
pub fn parallel(server: &Server) -> String {
    match (server.parallel, server.parallel_range) {
        (Some(units), Some((from, to))) if from != to => format!("{units} ({from} to {to})"),
        (Some(units), _) => units.to_string(),
        (None, _) => format!("unknown (≥ {})", server.in_flight_max),
    }
}

/// A server's capacity.
pub fn capacity(server: &Server) -> String {
    server.capacity.map_or_else(|| "unknown".into(), |capacity| format!("{}/s", number(capacity)))
}

/// How all servers serve.
pub fn order(study: &Study) -> &'static str {
    match study.order {
        _ if study.servers.iter().all(|server| server.parallel.is_none()) => {
            "No waiting was seen: response times do not depend on the requests in flight."
        }
        Order::Fifo => "Requests wait for a free unit in the order in which they come.",
        Order::Shared => "Requests share the units: each becomes slower when there are more of them.",
    }
}

/// What would change the answer's mind.
pub fn what_if(study: &Study, what_if: &WhatIf) -> String {
    if let Some(unknown) = &what_if.unknown {
        return format!("{}: nothing can be said, because {unknown}.", balanza_plot::capitalised(&what_if.name));
    }
    let goal = study.goal;
    let value = |outcome: &Outcome| figure(goal, goal.of(outcome));
    let name = balanza_plot::capitalised(&what_if.name);
    let answer = &study.outcomes[chosen(study)].candidate;
    let own = what_if.outcomes.iter().find(|outcome| outcome.candidate == *answer);
    let own = own.map_or_else(String::new, value);
    match what_if.best.map(|index| &what_if.outcomes[index]) {
        Some(best) if best.candidate == *answer => format!("{name}: the answer is the same ({} {own}).", goal.name()),
        Some(best) => format!(
            "{name}: {} would be better, with a {} of {} instead of {own}.",
            best.candidate.label(),
            goal.name(),
            value(best)
        ),
        None => format!("{name}: inconclusive; {} has a {} of {own}.", answer.label(), goal.name()),
    }
}
