//! Locality-based least connections: a key keeps its server, unless that is overloaded while another is not.
//!
//! A table remembers the server of each key. It is kept unless it is closed, or has more requests in flight than its
//! weight (`a > w`) while another has fewer than half of it (`2a < w`): then least connections chooses a server, and
//! the key stays there. `replicated` gives a key a set of servers: the least loaded of them takes the request, the set
//! grows when that one is overloaded as above, and loses the most loaded when it has not changed for a while. An empty
//! key means least connections.
//! Source: LVS lblc and lblcr. There the key is the destination address, in front of a cluster of caches.
//! Cost: O(1) beside that of least connections, replicated: O(set), of at most 16 servers. Memory: 16 bytes an entry.
//! If no server is eligible, the driver goes to the backups.

use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

use super::last_server::{ENTRIES, YEAR_MS};
use super::least_conn;
use crate::Nanos;
use crate::client_table::ClientTable;
use crate::key::{key_hash, mix};
use crate::policy::{Basis, Context, Plan, Policy, Start, charge_otherwise};
use crate::report::Report;
use crate::rng::Rng;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::tier::{SCAN, SERVER, Tier};

/// Servers of a key at most.
const SET_MAX: usize = 16;
const SECOND: Nanos = 1_000_000_000;

pub(crate) const ENTRY: Entry = Entry {
    name: "locality_least_conn",
    aliases: &["lblc"],
    summary: "a key keeps its server, unless that is overloaded while another is not",
    what: "\
        A table remembers which server each key went to. The key goes there again unless that server is closed, or \
        has more requests in flight than its weight (a > w) while another server has fewer than half of its own \
        weight (2a < w). Then least_conn chooses, and the table remembers the new server. An empty key means \
        least_conn.\n\n\
        With replicated, a key has a set of up to 16 servers, and the least loaded of them gets the request. The set \
        grows instead of moving, and loses its most loaded server when it has not changed for the time shrink. The \
        table is shared by all workers and kept when the list of servers changes. Slow start and backup servers are \
        as with least_conn.",
    when: "\
        Use it for caches if keys should stay on their server and an overloaded server may give keys away. Set each \
        weight to the number of requests that the server handles well at the same time.",
    when_not: "\
        Do not use it with weights of 1: a server then counts as overloaded with two requests in flight. Do not use \
        it for state that is on one server only. If several balancers share the servers, each has its own table; use \
        bounded_hash.",
    nginx: None,
    parameters: &[
        Parameter { name: "replicated", summary: "a key may have several servers", kind: Kind::Switch, default: "off" },
        ENTRIES,
        Parameter {
            name: "timeout",
            summary: "how long an unused entry is kept",
            kind: Kind::Time(1, YEAR_MS),
            default: "1d",
        },
        Parameter {
            name: "shrink",
            summary: "how long a set stays unchanged before it loses a server",
            kind: Kind::Time(1_000, YEAR_MS),
            default: "1d",
        },
    ],
    source: "LVS lblc, lblcr",
    cost: "the key's length; O(1) and that of least_conn",
    linear: false,
    times: Times::Always,
    host: Host::Any,
    share: Share::Load,
    key: Key::Any,
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        Arc::new(LocalityPlan {
            table: ClientTable::new(spec.number("entries") as usize, spec.time("timeout")),
            otherwise: (least_conn::ENTRY.build)(spec, tier),
            shrink: spec.switch("replicated").then(|| spec.time("shrink")),
        })
    },
};

struct LocalityPlan {
    table: ClientTable,
    otherwise: Arc<dyn Plan>,
    /// With sets of servers, when they shrink.
    shrink: Option<Nanos>,
}

impl Plan for LocalityPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let otherwise = self.otherwise.clone().policy(start, rng);
        Box::new(Locality { plan: self, otherwise, known: false })
    }

    fn table(&self) -> Option<&ClientTable> {
        Some(&self.table)
    }
}

struct Locality {
    plan: Arc<LocalityPlan>,
    otherwise: Box<dyn Policy>,
    /// Whether the last pick was by the table.
    known: bool,
}

/// The place of a key's k-th server.
fn place(hash: u64, k: usize) -> u64 {
    if k == 0 { hash } else { mix(hash.wrapping_add(k as u64)) }
}

/// The place of the second in which a key's set last changed, which has the highest bit set: it is no server.
fn stamp(hash: u64) -> u64 {
    mix(!hash)
}

const NO_SERVER: u32 = 1 << 31;

/// What the table says of a place of a key, if it is a server, and how many more its set has (for the first place).
fn server(cx: &Context<'_>, table: &ClientTable, place: u64) -> Option<(usize, usize)> {
    let value = table.get(cx.now, place)?;
    let (server, more) = ((value & SERVER) as usize, (value >> SERVER.count_ones()) as usize);
    (server < cx.tier.len() && more < SET_MAX).then_some((server, more))
}

/// Stores a set, of which the k-th server is new.
fn store(table: &ClientTable, now: Nanos, hash: u64, set: &[usize], k: usize) {
    if k != 0 {
        table.put(now, place(hash, k), set[k] as u32);
    }
    table.put(now, hash, set[0] as u32 | (set.len() as u32 - 1) << SERVER.count_ones());
    if set.len() > 1 {
        table.put(now, stamp(hash), NO_SERVER | (now / SECOND) as u32);
    }
}

/// `a > w`.
fn is_busy(cx: &Context<'_>, i: usize) -> bool {
    cx.tier.burden(i, cx.now) > cx.tier.whole_weight(i)
}

/// `2a < w`.
fn is_light(cx: &Context<'_>, i: usize) -> bool {
    2 * cx.tier.burden(i, cx.now) < cx.tier.whole_weight(i)
}

/// `kept`, and that it is, unless it is closed, or overloaded while another is light; then the choice of least connections.
fn keep(otherwise: &mut dyn Policy, cx: &mut Context<'_>, kept: Option<usize>) -> Option<(usize, bool)> {
    if let Some(i) = kept {
        if !is_busy(cx, i) {
            return Some((i, true));
        }
        // A look at a few costs less than a choice among them.
        let n = cx.tier.len();
        if n <= SCAN && !(0..n).any(|i| is_light(cx, i) && cx.open(i)) {
            return Some((i, true));
        }
    }
    // The least loaded is light if any is.
    let least = otherwise.pick(cx)?;
    match kept {
        Some(i) if !is_light(cx, least) => Some((i, true)),
        _ => Some((least, false)),
    }
}

impl Locality {
    fn of_one(&mut self, cx: &mut Context<'_>, hash: u64) -> Option<usize> {
        let kept = server(cx, &self.plan.table, hash).map(|(i, _)| i).filter(|i| cx.open(*i));
        let (found, known) = keep(&mut *self.otherwise, cx, kept)?;
        self.known = known;
        if !known {
            self.plan.table.put(cx.now, hash, found as u32);
        }
        Some(found)
    }

    fn of_set(&mut self, cx: &mut Context<'_>, hash: u64, shrink: Nanos) -> Option<usize> {
        let (table, now) = (&self.plan.table, cx.now);
        let mut set = [0usize; SET_MAX];
        let mut len = 0;
        if let Some((first, more)) = server(cx, table, hash) {
            (set[0], len) = (first, 1);
            // A member whose entry made room for another key ends the set.
            while len <= more
                && let Some((next, _)) = server(cx, table, place(hash, len))
            {
                set[len] = next;
                len += 1;
            }
        }
        let most = |set: &[usize]| {
            (0..set.len()).reduce(|a, b| if least_conn::compare(cx.tier, now, set[b], set[a]) != Less { b } else { a })
        };
        if let (2.., Some(most)) = (len, most(&set[..len])) {
            let changed = table.get(now, stamp(hash)).map_or(0, |second| u64::from(second & !NO_SERVER));
            if now.saturating_sub(changed * SECOND) >= shrink {
                len -= 1;
                set[most] = set[len];
                table.remove(place(hash, len));
                store(table, now, hash, &set[..len], most.min(len - 1));
            }
        }
        let most = most(&set[..len]);
        let open = set[..len].iter().copied().filter(|i| cx.open(*i));
        let least = open.reduce(|a, b| if least_conn::compare(cx.tier, now, a, b) == Greater { b } else { a });
        let (found, known) = keep(&mut *self.otherwise, cx, least)?;
        self.known = known;
        if !known && !set[..len].contains(&found) {
            // A set that is full gives up its most loaded.
            let at = if len < SET_MAX { len } else { most.unwrap_or(0) };
            set[at] = found;
            store(table, now, hash, &set[..len.max(at + 1)], at);
        }
        Some(found)
    }
}

impl Policy for Locality {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        if cx.key.is_empty() {
            self.known = false;
            return self.otherwise.pick(cx);
        }
        let hash = key_hash(cx.key);
        match self.plan.shrink {
            None => self.of_one(cx, hash),
            Some(shrink) => self.of_set(cx, hash, shrink),
        }
    }

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, index: usize, by_policy: bool) {
        self.otherwise.on_dispatch(now, tier, index, by_policy && !self.known);
    }

    fn on_shadow_dispatch(&mut self, now: Nanos, tier: &Tier, chose: Option<usize>, index: usize) {
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
