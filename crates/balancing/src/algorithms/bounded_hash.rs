//! Consistent hashing with bounded loads: a key goes to its server, unless that has more than its share of the
//! requests.
//!
//! With `A` requests in flight, a server of weight `w` of all `T` may have `ceil(c * (A + 1) * w / T)` of them, `c`
//! being the balance factor over 100. A key belongs to the next point of the ring; a server that is closed or at its
//! bound sends the request to the next one, up to 20 of them, then to up to 64 places that the key gives, then to any
//! server below the bound. No server is ever above the bound, over all workers and over reloads, because the requests
//! in flight are counted in the servers' states. `T` counts the servers that take requests, as far as earlier picks have
//! looked at them.
//! Source: Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads" (SODA 2018); HAProxy
//! hash-balance-factor.
//! Cost: the length of the key and O(1) if there are many keys; a key that brings most of the requests by itself may
//! cost a scan.
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use super::DRAWS;
use crate::Nanos;
use crate::crc32::crc32;
use crate::key::mix;
use crate::policy::{Basis, Context, Plan, Policy, Start};
use crate::report::Report;
use crate::rng::Rng;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::ring::Ring;
use crate::tier::{SCAN, Tier};

/// Places that the key gives beside those after its point.
const JUMPS: u64 = 64;
/// The greatest balance factor, in percent.
pub(crate) const FACTOR_MAX: u64 = 10_000;

pub(crate) const ENTRY: Entry = Entry {
    name: "bounded_hash",
    aliases: &["bounded_load"],
    summary: "a key chooses the server; if that has more than its share of the requests, the next one",
    what: "\
        This is consistent hashing with a limit for each server. A key belongs to a server of the ring, as in hash \
        with consistent. With A requests in flight, a server of weight w may have ceil(c * (A + 1) * w / T) of them, \
        where T is the sum of the weights and c is balance_factor / 100. A request above this limit goes to the next \
        server of the ring. With balance_factor=125 a server has at most a quarter more than its fair share. A \
        greater factor keeps more keys on their server; a smaller factor spreads the requests better.\n\n\
        The limit holds over all workers of a process and over reloads. Requests in flight on servers that a reload \
        has removed count in A until they end, with more than 8 servers; until then the limits are higher. Weights are shares of the keys and of the \
        limit. A request with an empty key goes to a random place of the ring. During slow start a server gets a \
        growing part of its keys. Backup servers are not allowed.",
    when: "\
        Use it for caches if some keys are much more popular than others. 150 is a good factor for caches.",
    when_not: "\
        Do not use it for state that is on one server only: a key leaves its server while that is at its limit. Do \
        not use it for servers of different speed unless the weights are the speeds: the limit follows the weights, \
        not the response times.",
    nginx: None,
    parameters: &[Parameter {
        name: "balance_factor",
        summary: "limit of a server's requests in flight, in percent of its fair share",
        kind: Kind::Number(101, FACTOR_MAX),
        default: "125",
    }],
    source: "Mirrokni, Thorup, Zadimoghaddam 2018; HAProxy hash-balance-factor",
    cost: "the key's length; O(1); O(n) when one key brings most of the work",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::Any,
    needs_key: false,
    strict: None,
    backup: false,
    build: |spec, tier| plan(tier, spec.number("balance_factor")),
};

/// The plan with this balance factor in percent.
pub(crate) fn plan(tier: &Arc<Tier>, factor: u64) -> Arc<dyn Plan> {
    tier.count();
    Arc::new(BoundedPlan { ring: Ring::new(tier), loads: Loads::new(tier, factor) })
}

struct BoundedPlan {
    ring: Ring,
    loads: Loads,
}

/// The weights for the bound, as all workers together know them. The requests in flight are the states', so that a bound
/// holds over a reload as well.
struct Loads {
    factor: u64,
    /// The weight of all servers, as last seen, in 1/256.
    weight: AtomicU64,
    /// That of each server, 0 when it took nothing.
    servers: Box<[AtomicU64]>,
}

impl Loads {
    fn new(tier: &Tier, factor: u64) -> Loads {
        let servers = (0..tier.len()).map(|i| AtomicU64::new(tier.whole_weight(i))).collect();
        Loads { factor, weight: AtomicU64::new(tier.total_weight << 8), servers }
    }

    /// Notes that a server has this weight now; 0 if it takes nothing.
    #[inline]
    fn note(&self, i: usize, weight: u64) {
        let known = &self.servers[i];
        if known.load(Relaxed) != weight {
            // Workers that find it out at once each account for what they replaced, so the sum stays right.
            let before = known.swap(weight, AcqRel);
            self.weight.fetch_add(weight.wrapping_sub(before), AcqRel);
        }
    }

    /// Notes that a server has closed, if it has.
    fn note_closed(&self, tier: &Tier, now: Nanos, i: usize) {
        if !tier.accepts(i, now) {
            self.note(i, 0);
        }
    }

    /// Takes a slot of server `i`, which is open, if it is not at its bound when there are `total` requests.
    #[inline]
    fn enter(&self, tier: &Tier, now: Nanos, i: usize, total: u64) -> bool {
        let weight = tier.weight(i, now);
        self.note(i, weight);
        let all = 100 * u128::from(self.weight.load(Acquire));
        let bound = (u128::from(self.factor) * u128::from(weight) * u128::from(total)).div_ceil(all.max(1));
        tier.slots[i].acquire_within(bound.clamp(1, u128::from(u32::MAX)) as u32)
    }
}

impl Plan for BoundedPlan {
    fn policy(self: Arc<Self>, _: Start, _: &mut Rng) -> Box<dyn Policy> {
        Box::new(Bounded { plan: self, turn: 0 })
    }
}

struct Bounded {
    plan: Arc<BoundedPlan>,
    /// Which of the servers of one name is looked at first.
    turn: usize,
}

impl Bounded {
    /// A server at this point of the ring, its slot taken.
    #[inline]
    fn at(&self, cx: &mut Context<'_>, point: usize, total: u64) -> Option<usize> {
        let BoundedPlan { ring, loads } = &*self.plan;
        let owner = ring.owner(point);
        let found = match ring.servers(&owner) {
            [one] => Some(*one as usize).filter(|i| cx.admits(*i)),
            several => {
                let relative = |i: &usize| {
                    let weight = cx.tier.whole_weight(*i).max(1);
                    (u64::from(cx.tier.slots[*i].state.in_flight()) << 32) / weight
                };
                let looks = several.len().min(SCAN);
                let among = (0..looks).map(|k| several[(self.turn + k) % several.len()] as usize);
                among.filter(|i| cx.open(*i)).min_by_key(relative).filter(|i| cx.spares(*i))
            }
        };
        match found {
            Some(i) if loads.enter(cx.tier, cx.now, i, total) => Some(i),
            Some(_) => None,
            None => {
                let closed = ring.servers(&owner).iter().take(SCAN);
                closed.for_each(|i| loads.note_closed(cx.tier, cx.now, *i as usize));
                None
            }
        }
    }

    fn search(&self, cx: &mut Context<'_>, total: u64) -> Option<usize> {
        let BoundedPlan { ring, loads } = &*self.plan;
        if ring.len() == 0 {
            return None;
        }
        let hash = if cx.key.is_empty() { cx.rng.next() as u32 } else { crc32(cx.key) };
        let point = ring.find(hash);
        if let Some(found) = (point..=point + DRAWS as usize).find_map(|point| self.at(cx, point, total)) {
            return Some(found);
        }
        let jump = |round| ring.find(mix(u64::from(hash) + (round << 32)) as u32);
        (1..=JUMPS).find_map(|round| self.at(cx, jump(round), total)).or_else(|| {
            // Any server below the bound; if all are closed or above it, the open one that is least above it.
            let n = cx.tier.len();
            let start = cx.rng.below(n as u64) as usize;
            let mut least: Option<(f64, usize)> = None;
            for i in (start..n).chain(0..start).filter(|i| cx.open(*i)) {
                if loads.enter(cx.tier, cx.now, i, total) {
                    return Some(i);
                }
                let load = f64::from(cx.tier.slots[i].state.in_flight()) / cx.tier.weight(i, cx.now) as f64;
                if least.is_none_or(|(best, _)| load < best) {
                    least = Some((load, i));
                }
            }
            least.map(|(_, i)| i).filter(|i| cx.tier.slots[*i].acquire_within(0))
        })
    }
}

impl Policy for Bounded {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        self.turn = self.turn.wrapping_add(1);
        let found = self.search(cx, u64::from(cx.tier.in_flight()));
        cx.taken = found.is_some();
        found
    }

    #[inline]
    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, report: &Report) {
        if report.failed() {
            self.plan.loads.note_closed(tier, now, index);
        }
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}
