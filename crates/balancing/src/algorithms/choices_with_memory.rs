//! Random choices beside the best server of the choice before.
//!
//! `choices` different servers are drawn, each with probability in proportion to its weight among those left. They and
//! the remembered server are compared by `a / w`; the least gets the request, and ties are broken at random. What is then
//! the least of them, with the new request counted, is remembered for the next choice. A server that is closed or already
//! drawn is replaced by another draw, up to 20 times for a request; then the best of those found gets the request, and if
//! there is none, round robin chooses.
//! Source: Mitzenmacher, Prabhakar, Shah, "Load balancing with memory" (FOCS 2002).
//! Cost: O(choices).
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use super::least_conn::Connections;
use super::two_choices::{CHOICES_MAX, Compared};
use crate::Nanos;
use crate::policy::{Basis, Context};
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::structures::scored::Score;
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "choices_with_memory",
    aliases: &[],
    summary: "the best of two servers drawn at random and the best one of the choice before",
    what: "\
        Two different servers (or choices servers) are drawn at random, in proportion to the weights, and compared with \
        the server that each worker remembers. The one with the fewest requests in flight for its weight gets the request. The \
        server that then has the fewest, with the new request counted, is remembered. Ties are broken at random. Servers \
        that are closed or drawn already are replaced by other draws, up to 20 for a request. If none is found, round \
        robin chooses.\n\n\
        The memory is worth a little less than another draw: with 100 equal servers at a load of 0.9, requests take \
        17 % less time than with two_choices and 6 % more than with two_choices choices=3. With choices=1 they take \
        longer than with two_choices. During slow start a server is skipped \
        with probability 1 - current weight / full weight. Backup servers are not allowed.",
    when: "\
        Use it as two_choices, for many servers at a constant cost, when many requests come at once and few have ended: \
        the server that was the better one, and was not chosen, is then a good choice for the next request.",
    when_not: "\
        Do not use it if several balancers share the servers and each sees only its own requests: the remembered server \
        is then the best by what one balancer knows. A server that \
        fails fast has nothing in flight, is remembered and attracts requests.",
    nginx: None,
    parameters: &[Parameter {
        name: "choices",
        summary: "number of servers drawn",
        kind: Kind::Number(1, CHOICES_MAX - 1),
        default: "2",
    }],
    source: "Mitzenmacher, Prabhakar, Shah 2002",
    cost: "O(1)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: false,
    build: |spec, tier| {
        let choices = spec.number("choices") as usize;
        let alias = Arc::new(Alias::new(tier));
        with_turns(tier, move |_, _| Remembering {
            alias: alias.clone(),
            choices,
            compared: Compared::NONE,
            remembered: None,
        })
    },
};

/// One worker's draws and its memory.
struct Remembering {
    alias: Arc<Alias>,
    choices: usize,
    /// For the request at hand.
    compared: Compared,
    remembered: Option<usize>,
}

impl Search for Remembering {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        let mut compared = Compared::NONE;
        compared.draw(cx, &Connections, &self.alias, self.choices);
        if let Some(index) = self.remembered
            && cx.tier.len() > self.choices
            && !compared.servers().contains(&index)
            && cx.admits(index)
        {
            compared.add(cx, &Connections, index);
        }
        self.compared = compared;
        self.compared.best()
    }

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, _index: usize, by_policy: bool) {
        if by_policy {
            let load = |index: &usize| Connections.score(tier, now, *index);
            self.remembered =
                self.compared.servers().iter().copied().min_by(|one, other| load(one).total_cmp(&load(other)));
        }
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        Some(Connections.score(cx.tier, cx.now, index))
    }

    fn basis(&self) -> Basis {
        Basis::Score
    }
}
