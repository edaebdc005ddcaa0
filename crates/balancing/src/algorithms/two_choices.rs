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
use super::round_robin::RoundRobin;
use crate::Nanos;
use crate::driver::Report;
use crate::fleet::Level;
use crate::policy::Context;
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share};
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};

const CHOICES_MAX: u64 = 16;

pub(crate) const ENTRY: Entry = Entry {
    name: "two_choices",
    aliases: &["p2c"],
    summary: "the better of two servers drawn at random",
    description: "\
        Two servers are drawn at random, in proportion to the weights and never the same twice, and the one \
        with fewer requests in flight for its weight gets the request. That is nearly as good as looking at \
        all servers, costs the same for three as for a hundred thousand, and many balancers in front of the \
        same servers do not all run to the same one.\n\n\
        The greatest load among n servers falls from about ln n / ln ln n with one choice to ln ln n / ln 2 \
        with two; more choices add little. By header or last_byte it compares times as least_time does. \
        Equals get a fair coin, so an idle fleet's shares are more even than the weights. There are no \
        backups.",
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
    linear: false,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    backup: false,
    build: |spec, level| {
        let alias = Arc::new(Alias::new(level));
        let timing = By::of(spec.choice("by")).map(|by| Arc::new(Timing::new(level, by, false)));
        let choices = spec.number("choices") as usize;
        with_turns(level, move |_, _| TwoChoices {
            alias: alias.clone(),
            timing: timing.clone(),
            choices,
            completions: 0,
        })
    },
};

struct TwoChoices {
    alias: Arc<Alias>,
    /// With a score by time.
    timing: Option<Arc<Timing>>,
    choices: usize,
    completions: u32,
}

impl Search for TwoChoices {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        let mut drawn = [0usize; CHOICES_MAX as usize];
        let (mut count, mut best, mut equals) = (0, 0, 1);
        while cx.tried.progress.tries <= DRAWS {
            let index = self.alias.draw(cx.rng);
            if drawn[..count].contains(&index) || !cx.admits(index) {
                cx.tried.progress.tries += 1;
                continue;
            }
            drawn[count] = index;
            count += 1;
            let order = match (count, &self.timing) {
                (1, _) => Less,
                (_, None) => least_conn::compare(cx.level, cx.now, index, best),
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
            if count == self.choices {
                return Some(best);
            }
        }
        None
    }

    fn on_complete(&mut self, _now: Nanos, level: &Level, index: usize, report: &Report) {
        if let Some(timing) = &self.timing {
            timing.completed(level, index, report, &mut self.completions);
        }
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(match &self.timing {
            None => least_conn::score(cx.level, cx.now, index),
            Some(timing) => timing.score(cx.level, cx.now, index),
        })
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}
