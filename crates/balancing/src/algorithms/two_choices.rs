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

use std::cmp::Ordering;
use std::sync::Arc;

use super::DRAWS;
use super::least_conn::Connections;
use super::least_time::{By, Timing};
use crate::Nanos;
use crate::policy::{Basis, Context, Plan};
use crate::report::Report;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::alias::Alias;
use crate::structures::chances::{self, Draws, Rival, best_of_all};
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::structures::scored::Score;
use crate::tier::Tier;

/// The most servers that are compared.
pub(super) const CHOICES_MAX: u64 = 16;

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
}

/// The servers that are compared for a request, and the best of them; a fair coin decides between equals.
pub(super) struct Compared {
    servers: [usize; CHOICES_MAX as usize],
    count: usize,
    best: usize,
    least: f64,
    equals: u64,
}

impl Compared {
    pub(super) const NONE: Compared =
        Compared { servers: [0; CHOICES_MAX as usize], count: 0, best: 0, least: f64::INFINITY, equals: 0 };

    /// The servers.
    pub(super) fn servers(&self) -> &[usize] {
        &self.servers[..self.count]
    }

    /// The best of them.
    pub(super) fn best(&self) -> Option<usize> {
        (self.count > 0).then_some(self.best)
    }

    #[inline]
    pub(super) fn add(&mut self, cx: &mut Context<'_>, by: &impl Score, index: usize) {
        self.servers[self.count] = index;
        self.count += 1;
        by.observe(cx.now, index);
        let score = by.score(cx.tier, cx.now, index);
        if score < self.least || self.equals == 0 {
            (self.best, self.least, self.equals) = (index, score, 1);
        } else if score == self.least {
            self.equals += 1;
            if cx.rng.below(self.equals) == 0 {
                self.best = index;
            }
        }
    }

    /// Adds as many different servers, drawn by weight, as are left after at most so many draws that hit others; or all
    /// servers of a tier that has no more, where there is nothing to draw.
    pub(super) fn draw(&mut self, cx: &mut Context<'_>, by: &impl Score, alias: &Alias, choices: usize) {
        if cx.tier.len() <= choices {
            for index in 0..cx.tier.len() {
                if cx.admits(index) {
                    self.add(cx, by, index);
                }
            }
            return;
        }
        while self.count < choices && cx.tried.progress.tries <= DRAWS {
            let index = alias.draw(cx.rng);
            if self.servers().contains(&index) || !cx.admits(index) {
                cx.tried.progress.tries += 1;
            } else {
                self.add(cx, by, index);
            }
        }
    }
}

impl<S: Score> Search for BestOf<S> {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        let mut compared = Compared::NONE;
        compared.draw(cx, &*self.score, &self.alias, self.choices);
        // One server alone of several that were to be compared is no choice, unless the tier has no more.
        let enough = compared.count >= self.choices.min(2) || cx.tier.len() <= self.choices;
        compared.best().filter(|_| enough)
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

    fn probability(&self, cx: &Context<'_>, index: Option<usize>, tries: u32) -> Option<f64> {
        let (tier, servers) = (cx.tier, 0..cx.tier.len());
        let compares_all = tier.len() <= self.choices;
        let part = |i| match compares_all {
            true => chances::admission(cx, i),
            false => chances::share(tier, i) * chances::admission(cx, i),
        };
        let lost = (DRAWS + 1).saturating_sub(tries);
        let draws = Draws { choices: self.choices, least: self.choices.min(2), lost };
        let Some(index) = index else {
            return Some(match compares_all {
                true => servers.map(|i| 1.0 - part(i)).product(),
                false => draws.too_few(servers.map(part)),
            });
        };
        let score = |i| self.score.score(tier, cx.now, i);
        let own = score(index);
        let rivals = servers.filter(|i| *i != index).map(|i| match score(i).total_cmp(&own) {
            Ordering::Less => (part(i), Rival::Better),
            Ordering::Equal => (part(i), Rival::Equal),
            Ordering::Greater => (part(i), Rival::Worse),
        });
        Some(if compares_all { best_of_all(part(index), rivals) } else { draws.best(part(index), rivals) })
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}
