//! Random, weighted: each request goes to a server drawn with probability `w / T`.
//!
//! A closed server is drawn again, up to 20 times in a request, then round robin decides.
//! Source: NGINX `random`; the draw is Walker's alias method (1977).
//! Cost: O(1) a draw.
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use crate::policy::{Basis, Context, Plan};
use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::alias::Alias;
use crate::structures::chances;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "random",
    aliases: &[],
    summary: "a server drawn at random, in proportion to the weights",
    what: "\
        Each request goes to a server drawn at random, with probability w / T: w is its weight, T the sum of the \
        weights. Earlier requests do not matter. If the server is closed, another one is drawn, up to 20 times; then \
        round robin chooses.\n\n\
        During slow start a server is skipped with probability 1 - current weight / full weight, and another one is \
        drawn. Backup servers are not allowed.",
    when: "\
        Use it for many balancers in front of the same servers, for requests that are short and of similar cost. It \
        keeps no state, so balancers cannot choose the same server in step.",
    when_not: "\
        Do not use it if servers are busy most of the time: by chance a server gets several requests in a row, and \
        they wait. two_choices costs little more and avoids most of this. Do not use it if a server may become \
        slower than the others: it does not react to load.",
    nginx: Some("random"),
    parameters: &[],
    source: "NGINX; Walker's alias method",
    cost: "O(1)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Weights,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: false,
    build: |_, tier| plan(tier),
};

/// The plan of one tier.
pub(crate) fn plan(tier: &Arc<Tier>) -> Arc<dyn Plan> {
    let alias = Arc::new(Alias::new(tier));
    with_turns(tier, move |_, _| Random { alias: alias.clone() })
}

struct Random {
    alias: Arc<Alias>,
}

impl Search for Random {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        while cx.tried.progress.tries <= DRAWS {
            let index = self.alias.draw(cx.rng);
            if cx.admits(index) {
                return Some(index);
            }
            cx.tried.progress.tries += 1;
        }
        None
    }

    fn probability(&self, cx: &Context<'_>, index: Option<usize>, tries: u32) -> Option<f64> {
        let part = |i| chances::share(cx.tier, i) * chances::admission(cx, i);
        let missing = (1.0 - (0..cx.tier.len()).map(part).sum::<f64>()).max(0.0);
        let draws = (DRAWS + 1).saturating_sub(tries);
        Some(match index {
            Some(index) => chances::first(part(index), missing, draws),
            None => missing.powi(draws as i32),
        })
    }

    fn basis(&self) -> Basis {
        Basis::Draw
    }
}
