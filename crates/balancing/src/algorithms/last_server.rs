//! Last server: a client goes where it was last.
//!
//! A table remembers the server of each key (the client's address), as long as it has been used within the timeout and
//! there is room; it is shared by the workers. For a client that is not known `else` chooses. If a client's server is
//! closed, `lax` chooses another, which then is its server, and `strict` refuses the request. An empty key means
//! `else`.
//! Source: Pen's client table; Crossroads strict-stored-ip and lax-stored-ip; Distributor.
//! Cost: O(1) beside that of `else`. Memory: 16 bytes an entry.
//! If no server is eligible, the driver goes to the backups, but not for a client that strict refuses.

use std::sync::Arc;

use super::{least_conn, round_robin};
use crate::Nanos;
use crate::client_table::ClientTable;
use crate::key::key_hash;
use crate::policy::{Basis, Context, Plan, Policy, Start, charge_otherwise};
use crate::report::Report;
use crate::rng::Rng;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::tier::Tier;

/// A year in milliseconds, the longest timeout.
pub(crate) const YEAR_MS: u64 = 365 * 86_400_000;

/// How many keys the table holds.
pub(crate) const ENTRIES: Parameter = Parameter {
    name: "entries",
    summary: "number of keys in the table; a new key replaces the one unused for longest",
    kind: Kind::Number(8, 1 << 24),
    default: "65536",
};

pub(crate) const ENTRY: Entry = Entry {
    name: "last_server",
    aliases: &["stored_ip", "client_table"],
    summary: "the server that the client used last",
    what: "\
        A table remembers which server each client (or other key) used last, and sends the client there again. For a \
        client that is not in the table, the parameter else names the algorithm. An entry is removed when it has not \
        been used for timeout. If the table is full, a new entry replaces the one unused for longest, of eight that \
        share a place. When a client's server is closed, full or has just failed, mode=lax chooses again and \
        remembers the new server; mode=strict refuses the request. An empty key means else.\n\n\
        The table is shared by all workers and kept when the list of servers changes. Weights and slow start have \
        the same effect on new clients as with else, and none on known ones. Backup servers have a table of their \
        own.",
    when: "\
        Use it for state that a server keeps when clients do not accept cookies. Unlike hashing it moves no client \
        when a server is added, and new clients go to the least busy server.",
    when_not: "\
        Do not use it if several balancers share the servers: each has its own table; use hashed_ip. Do not use it \
        for more clients at a time than entries. It does not react to load for known clients: a slow server keeps \
        them.",
    nginx: None,
    parameters: &[
        Parameter {
            name: "mode",
            summary: "what to do when the client's server is closed: choose again, or refuse",
            kind: Kind::Choice(&["lax", "strict"]),
            default: "lax",
        },
        Parameter {
            name: "else",
            summary: "algorithm for clients that are not in the table",
            kind: Kind::Choice(&["least_conn", "round_robin"]),
            default: "least_conn",
        },
        ENTRIES,
        Parameter {
            name: "timeout",
            summary: "how long an unused entry is kept",
            kind: Kind::Time(1, YEAR_MS),
            default: "10m",
        },
    ],
    source: "Pen; Crossroads strict-stored-ip, lax-stored-ip; Distributor",
    cost: "the key's length; O(1) and that of else",
    linear: false,
    times: Times::Always,
    host: Host::Any,
    share: Share::Load,
    key: Key::Any,
    needs_key: false,
    strict: Some(("mode", "strict")),
    backup: true,
    build: |spec, tier| {
        let otherwise = if spec.choice("else") == "round_robin" { round_robin::ENTRY } else { least_conn::ENTRY };
        Arc::new(LastServerPlan {
            table: ClientTable::new(spec.number("entries") as usize, spec.time("timeout")),
            otherwise: (otherwise.build)(spec, tier),
            strict: spec.choice("mode") == "strict",
        })
    },
};

struct LastServerPlan {
    table: ClientTable,
    otherwise: Arc<dyn Plan>,
    strict: bool,
}

impl Plan for LastServerPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let otherwise = self.otherwise.clone().policy(start, rng);
        Box::new(LastServer { plan: self, otherwise, hash: None, known: false })
    }

    fn table(&self) -> Option<&ClientTable> {
        Some(&self.table)
    }
}

struct LastServer {
    plan: Arc<LastServerPlan>,
    otherwise: Box<dyn Policy>,
    /// Hash of the key that gets a server with the last pick, once the driver has taken that server's slot.
    hash: Option<u64>,
    /// Whether it was by the table.
    known: bool,
}

impl Policy for LastServer {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        (self.hash, self.known) = (None, false);
        if cx.key.is_empty() {
            return self.otherwise.pick(cx);
        }
        let LastServerPlan { table, strict, .. } = &*self.plan;
        let hash = key_hash(cx.key);
        let last = table.peek(cx.now, hash).filter(|(server, _)| (*server as usize) < cx.tier.len());
        cx.tried.progress.bound = *strict && last.is_some();
        match last.map(|(server, entry)| (server as usize, entry)) {
            Some((server, entry)) if cx.open(server) => {
                // Only a server that is used again is remembered for longer, so that strict does not refuse forever.
                entry.touch(cx.now);
                self.known = true;
                Some(server)
            }
            Some(_) if *strict => None,
            _ => {
                self.hash = Some(hash);
                self.otherwise.pick(cx)
            }
        }
    }

    fn binds(&self, cx: &Context<'_>) -> bool {
        let LastServerPlan { table, strict, .. } = &*self.plan;
        let last = || table.peek(cx.now, key_hash(cx.key));
        *strict && !cx.key.is_empty() && last().is_some_and(|(server, _)| (server as usize) < cx.tier.len())
    }

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, by_policy: bool) {
        if let (Some(hash), true) = (self.hash.take(), by_policy) {
            self.plan.table.put(now, hash, index as u32);
        }
        self.otherwise.on_dispatch(now, tier, index, by_policy && !self.known);
    }

    fn on_shadow_dispatch(&mut self, now: Nanos, tier: &Tier, chose: Option<usize>, index: usize) {
        if let (Some(hash), Some(chose)) = (self.hash.take(), chose) {
            self.plan.table.put(now, hash, chose as u32);
        }
        charge_otherwise(&mut *self.otherwise, now, tier, (chose, self.known), index);
    }

    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        self.otherwise.on_complete(now, tier, index, report);
    }

    fn score(&self, cx: &Context<'_>, index: usize) -> Option<f64> {
        if self.known { None } else { self.otherwise.score(cx, index) }
    }

    fn basis(&self) -> Basis {
        if self.known { Basis::Affinity } else { self.otherwise.basis() }
    }
}
