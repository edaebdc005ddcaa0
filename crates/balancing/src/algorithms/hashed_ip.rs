//! Hashed address: the client's address decides, and least connections or nobody stands in for a closed server.
//!
//! The whole address, hashed, leads to a server by Maglev's table. If that one is closed, `lax` leaves the choice to least
//! connections, and `strict` refuses the request: for clients whose state is on that server and nowhere else. A client without an address (a Unix socket) goes by least connections.
//! Source: Crossroads, strict-hashed-ip and lax-hashed-ip.
//! Cost: O(1) and that of least connections. Nobody eligible: the driver goes to
//! the backups, but not when strict.

use std::sync::Arc;

use super::least_conn;
use super::maglev::Slots;
use crate::Nanos;
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::key::key_hash;
use crate::policy::{Context, Plan, Policy};
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::rng::Rng;

/// Slots of the table at least.
const TABLE: u64 = 65_537;

pub(crate) const ENTRY: Entry = Entry {
    name: "hashed_ip",
    aliases: &[],
    summary: "the client's whole address chooses the server; when it is closed, least_conn or nobody",
    description: "\
        Each client has a server, by a hash of its whole address and Maglev's table; few clients move when \
        servers come or go. What happens when that server is closed, full or has just failed is the mode: lax sends the \
        client where least_conn would, strict refuses the request, for state that is on that server and \
        nowhere else.\n\n\
        Unlike ip_hash, each address of a network counts on its own. Weights are shares of the addresses. \
        In slow start lax gives the server a growing part of its clients, strict all of them. There are no \
        backups.",
    nginx: None,
    parameters: &[Parameter {
        name: "mode",
        summary: "what to do when the client's server is closed: choose again, or refuse",
        kind: Kind::Choice(&["lax", "strict"]),
        default: "lax",
    }],
    source: "Crossroads strict-hashed-ip, lax-hashed-ip",
    cost: "O(1) and that of least_conn",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::ClientAddress,
    backup: false,
    build: |spec, level| {
        Arc::new(HashedIpPlan {
            slots: Slots::new(level, TABLE),
            otherwise: (least_conn::ENTRY.build)(spec, level),
            strict: spec.choice("mode") == "strict",
        })
    },
};

struct HashedIpPlan {
    slots: Slots,
    otherwise: Arc<dyn Plan>,
    strict: bool,
}

impl Plan for HashedIpPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let otherwise = self.otherwise.clone().policy(start, rng);
        Box::new(HashedIp { plan: self, otherwise, by_key: false })
    }
}

struct HashedIp {
    plan: Arc<HashedIpPlan>,
    otherwise: Box<dyn Policy>,
    /// Whether the last pick was by the address.
    by_key: bool,
}

impl Policy for HashedIp {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        self.by_key = matches!(cx.key.len(), 4 | 16);
        if self.by_key {
            let owner = self.plan.slots.owner(key_hash(cx.key))?;
            if self.plan.strict {
                cx.tried.progress.bound = true;
                return cx.open(owner).then_some(owner);
            }
            if cx.admits(owner) {
                return Some(owner);
            }
            self.by_key = false;
        }
        self.otherwise.pick(cx)
    }

    fn binds(&self, cx: &Context<'_>) -> bool {
        self.plan.strict && matches!(cx.key.len(), 4 | 16)
    }

    fn on_dispatch(&mut self, now: Nanos, level: &Level, index: usize, by_policy: bool) {
        self.otherwise.on_dispatch(now, level, index, by_policy && !self.by_key);
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.otherwise.on_complete(now, level, index, report);
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        if self.by_key { None } else { self.otherwise.score(cx, index) }
    }

    fn basis(&self) -> Basis {
        if self.by_key { Basis::Key } else { self.otherwise.basis() }
    }
}
