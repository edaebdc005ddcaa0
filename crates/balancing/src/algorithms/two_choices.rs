//! The better of two random choices.
//!
//! Two (or `choices`) different servers are drawn, each with probability in proportion to its weight among those left;
//! the one with the lesser score wins, a fair coin decides between equals. The score is `a / w`, or that of `least_time`.
//! A closed server or one already drawn costs one of 20 draws more that a request has; then round robin decides.
//! Source: Mitzenmacher, "The power of two choices in randomized load balancing" (2001); NGINX `random two`, which gives
//! equals to the second drawn.
//! Cost: O(choices). Nobody eligible: the driver goes to the backups.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;

use super::DRAWS;
use super::least_conn;
use super::least_time::{By, Timing};
use super::round_robin::{RoundRobin, RoundRobinPlan};
use crate::Nanos;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::registry::{Entry, Key, Kind, Parameter};
use crate::rng::Rng;
use crate::structures::alias::Alias;

const CHOICES_MAX: u64 = 16;

pub(crate) const ENTRY: Entry = Entry {
    name: "two_choices",
    aliases: &["p2c"],
    summary: "the better of two servers drawn at random",
    nginx: Some("random two [least_conn | least_time=header | least_time=last_byte]"),
    parameters: &[
        Parameter {
            name: "by",
            summary: "what is better: fewer requests in flight, or less expected time",
            kind: Kind::Choice(&["least_conn", "header", "last_byte"]),
            default: "least_conn",
        },
        Parameter {
            name: "choices",
            summary: "how many servers are drawn",
            kind: Kind::Number(2, CHOICES_MAX),
            default: "2",
        },
    ],
    source: "Mitzenmacher 2001; NGINX",
    cost: "O(1)",
    key: Key::None,
    backup: false,
    build: |spec, level| {
        Arc::new(TwoChoicesPlan {
            alias: Alias::new(level),
            fallback: RoundRobinPlan::new(level),
            timing: By::of(spec.choice("by")).map(|by| Arc::new(Timing::new(level, by, false))),
            choices: spec.number("choices") as usize,
        })
    },
};

struct TwoChoicesPlan {
    alias: Alias,
    fallback: RoundRobinPlan,
    /// With a score by time.
    timing: Option<Arc<Timing>>,
    choices: usize,
}

impl Plan for TwoChoicesPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let fallback = self.fallback.instance(start, rng);
        Box::new(TwoChoices { plan: self, fallback, completions: 0 })
    }
}

struct TwoChoices {
    plan: Arc<TwoChoicesPlan>,
    fallback: RoundRobin,
    completions: u32,
}

impl Policy for TwoChoices {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let mut drawn = [0usize; CHOICES_MAX as usize];
        let (mut count, mut best, mut equals) = (0, 0, 1);
        while cx.tried.progress.tries <= DRAWS {
            let index = self.plan.alias.draw(cx.rng);
            if drawn[..count].contains(&index) || !cx.open(index) {
                cx.tried.progress.tries += 1;
                continue;
            }
            drawn[count] = index;
            count += 1;
            let order = match (count, &self.plan.timing) {
                (1, _) => Less,
                (_, None) => least_conn::compare(cx.level, index, best),
                (_, Some(timing)) => timing.compare(cx.level, cx.now, index, best),
            };
            match order {
                Less => (best, equals) = (index, 1),
                Equal => {
                    equals += 1;
                    if cx.rng.below(equals) == 0 {
                        best = index;
                    }
                }
                Greater => {}
            }
            if count == self.plan.choices {
                return Some(best);
            }
        }
        self.fallback.pick(cx)
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.fallback.on_complete(now, level, index, report);
        if let Some(timing) = &self.plan.timing {
            timing.completed(level, index, report, &mut self.completions);
        }
    }
}
