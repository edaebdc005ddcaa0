//! The better of two random choices.
//!
//! Two (or `choices`) different servers are drawn, each with probability in proportion to its weight among those left;
//! the one with the lesser score wins, and ties are broken at random. The score is `a / w`, or that of `least_time`. A
//! server that is closed or already drawn is replaced by another draw, up to 20 times for a request; then the best of
//! those drawn gets the request, and if that is one or none, round robin chooses. If a tier has no more servers than
//! choices, all are compared.
//! Source: Mitzenmacher, "The power of two choices in randomized load balancing" (2001); NGINX `random two`, which
//! chooses the second drawn of equals.
//! Cost: O(choices).
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use super::least_conn::Connections;
use super::least_time::{By, Timing};
use crate::Nanos;
use crate::policy::{Basis, Context, Plan};
use crate::report::Report;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::structures::scored::Score;
use crate::tier::Tier;

const CHOICES_MAX: u64 = 16;

/// Also of other algorithms that draw.
pub(crate) const CHOICES: Parameter =
    Parameter { name: "choices", summary: "number of servers drawn", kind: Kind::Number(2, CHOICES_MAX), default: "2" };

pub(crate) const ENTRY: Entry = Entry {
    name: "two_choices",
    aliases: &["p2c"],
    summary: "the better of two servers drawn at random",
    what: "\
        Two different servers are drawn at random, in proportion to the weights. The one with fewer requests in \
        flight for its weight gets the request. With by=header or by=last_byte the times of least_time are compared \
        instead. If choices is at least the number of servers, all servers are compared. Ties are broken at random. \
        Servers that are closed or drawn already are replaced by other draws, up to 20 for a request. If none is \
        found, round robin chooses.\n\n\
        The greatest load among n equal servers falls from about ln n / ln ln n with one choice to ln ln n / ln 2 \
        with two; more choices add little. In an idle fleet the shares are more even than the weights. During slow \
        start a server is skipped with probability 1 - current weight / full weight, and another one is drawn. \
        Backup servers are not allowed.",
    when: "\
        Use it for many servers and for many balancers in front of the same servers: a choice costs the same for \
        three servers and for a hundred thousand, and balancers do not all choose the same server. It suits equal \
        servers, and servers whose weights are their speeds.",
    when_not: "\
        Do not use it if most servers are much slower than the others and the weights do not say so: both drawn \
        servers are then slow too often, and the slow servers get more requests than they can serve. Set weights, \
        raise choices, or use least_conn. With by=least_conn, a server that fails fast has nothing in flight and \
        attracts requests; with by=header it does not.",
    nginx: Some("random two [least_conn | least_time=header | least_time=last_byte]"),
    parameters: &[
        Parameter {
            name: "by",
            summary: "what is compared: requests in flight, or the expected time to the header or to the last byte",
            kind: Kind::Choice(&["least_conn", "header", "last_byte"]),
            default: "least_conn",
        },
        CHOICES,
    ],
    source: "Mitzenmacher 2001; NGINX",
    cost: "O(1)",
    linear: false,
    times: Times::Unless("by", "least_conn"),
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: false,
    build: |spec, tier| {
        let choices = spec.number("choices") as usize;
        match By::of(spec.choice("by")) {
            Some(by) => best_of(tier, choices, Timing::new(tier, by, false)),
            None => best_of(tier, choices, Connections),
        }
    },
};

/// The plan of an algorithm that draws `choices` servers and takes the one of the least score.
pub(crate) fn best_of<S: Score>(tier: &Arc<Tier>, choices: usize, score: S) -> Arc<dyn Plan> {
    let (alias, score) = (Arc::new(Alias::new(tier)), Arc::new(score));
    with_turns(tier, move |_, _| BestOf::new(alias.clone(), choices, score.clone()))
}

/// Draws `choices` servers and takes the best.
pub(crate) struct BestOf<S> {
    alias: Arc<Alias>,
    score: Arc<S>,
    choices: usize,
    completions: u32,
}

impl<S: Score> BestOf<S> {
    pub fn new(alias: Arc<Alias>, choices: usize, score: Arc<S>) -> BestOf<S> {
        BestOf { alias, score, choices, completions: 0 }
    }

    /// The best of a tier that has no more servers than are drawn: there is nothing to draw.
    fn best_of_all(&self, cx: &mut Context<'_>) -> Option<usize> {
        let mut best = Best::NONE;
        for index in 0..cx.tier.len() {
            if cx.admits(index) {
                best.consider(cx, &*self.score, index);
            }
        }
        best.index()
    }
}

/// The best of the servers looked at so far; a fair coin decides between equals.
pub(super) struct Best {
    index: usize,
    least: f64,
    equals: u64,
}

impl Best {
    pub(super) const NONE: Best = Best { index: 0, least: f64::INFINITY, equals: 0 };

    /// The server that is the best, if there is any.
    pub(super) fn index(&self) -> Option<usize> {
        (self.equals > 0).then_some(self.index)
    }

    #[inline]
    pub(super) fn consider(&mut self, cx: &mut Context<'_>, by: &impl Score, index: usize) {
        by.observe(cx.now, index);
        let score = by.score(cx.tier, cx.now, index);
        if score < self.least || self.equals == 0 {
            *self = Best { index, least: score, equals: 1 };
        } else if score == self.least {
            self.equals += 1;
            if cx.rng.below(self.equals) == 0 {
                self.index = index;
            }
        }
    }
}

impl<S: Score> Search for BestOf<S> {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        if cx.tier.len() <= self.choices {
            return self.best_of_all(cx);
        }
        let mut drawn = [0usize; CHOICES_MAX as usize];
        let (mut count, mut best) = (0, Best::NONE);
        while cx.tried.progress.tries <= DRAWS {
            let index = self.alias.draw(cx.rng);
            if drawn[..count].contains(&index) || !cx.admits(index) {
                cx.tried.progress.tries += 1;
                continue;
            }
            drawn[count] = index;
            count += 1;
            best.consider(cx, &*self.score, index);
            if count == self.choices {
                return Some(best.index);
            }
        }
        (count > 1).then_some(best.index)
    }

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, _by_policy: bool) {
        self.score.on_dispatch(now, tier, index);
    }

    fn on_header(&mut self, now: Nanos, index: usize, time: Nanos) {
        self.score.on_header(now, index, time);
    }

    fn wants_header(&self) -> bool {
        self.score.wants_header()
    }

    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        self.completions = self.completions.wrapping_add(1);
        self.score.on_complete(now, tier, index, report, self.completions);
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(self.score.score(cx.tier, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}
