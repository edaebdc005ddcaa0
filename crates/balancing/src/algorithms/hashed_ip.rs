//! Hashed address: the client's address selects the server. If it is closed, least connections chooses or the request
//! is refused.
//!
//! A hash of the whole address selects a server from Maglev's table. If that server is closed, `lax` leaves the choice
//! to least connections, and `strict` refuses the request, for clients whose state is on that server only. For a client
//! without an address (a Unix socket) least connections chooses.
//! Source: Crossroads, strict-hashed-ip and lax-hashed-ip.
//! Cost: O(1) and that of least connections.
//! If no server is eligible, the driver goes to the next tier, but not when strict.

use std::sync::Arc;

use super::least_conn;
use super::maglev::Slots;
use crate::Nanos;
use crate::key::key_hash;
use crate::policy::{Basis, Context, Plan, Policy, Start, charge_otherwise};
use crate::report::Report;
use crate::rng::Rng;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::tier::Tier;

/// Slots of the table at least.
const TABLE: u64 = 65_537;

pub(crate) const ENTRY: Entry = Entry {
    name: "hashed_ip",
    aliases: &[],
    summary: "the client's whole address chooses the server; if that is closed, least_conn does",
    what: "\
        A hash of the client's whole address selects a server from a table like that of maglev, so few clients move \
        when a server is added or removed. The parameter mode says what happens when that server is closed, full or \
        has just failed: with lax, least_conn chooses another server; with strict, the request is refused. Clients \
        without an address (Unix sockets) are sent by least_conn.\n\n\
        Weights are shares of the addresses. During slow start lax sends a server a growing part of its clients, \
        strict sends it all of them. Backup servers are not allowed.",
    when: "\
        Use it for sessions in the memory of one server when clients do not accept cookies. Use mode=strict if the \
        state is on that server only and no other server can answer. Unlike ip_hash it uses every bit of the \
        address.",
    when_not: "\
        Do not use it if many clients come from one address (NAT, a proxy): they all go to one server. Do not use it \
        if clients change their address during a session: use sticky cookie. It does not react to load: a slow \
        server keeps its clients.",
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
    needs_key: false,
    strict: Some(("mode", "strict")),
    backup: false,
    build: |spec, tier| {
        Arc::new(HashedIpPlan {
            slots: Slots::new(tier, TABLE),
            otherwise: (least_conn::ENTRY.build)(spec, tier),
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

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, by_policy: bool) {
        self.otherwise.on_dispatch(now, tier, index, by_policy && !self.by_key);
    }

    fn on_shadow_dispatch(&mut self, now: Nanos, tier: &Tier, chose: Option<usize>, index: usize) {
        charge_otherwise(&mut *self.otherwise, now, tier, (chose, self.by_key), index);
    }

    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        self.otherwise.on_complete(now, tier, index, report);
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        if self.by_key { None } else { self.otherwise.score(cx, index) }
    }

    fn basis(&self) -> Basis {
        if self.by_key { Basis::Key } else { self.otherwise.basis() }
    }
}
