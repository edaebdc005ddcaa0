//! Maglev: a table of slots that the servers fill in rotation, each in its own order.
//!
//! Server `i` prefers the slots `offset + k * skip` modulo the prime size `M`, both numbers from its name. In rotation,
//! as often as its weight says, every server takes its next free preference, until the table is full: shares are exact
//! to about one slot, and when a server is removed few slots besides its own change owner: 0.2 % of all with ten
//! servers, 0.4 % with a thousand. The table has few sizes, so that it stays the same while servers are added and
//! removed. A key's hash selects a slot. If the slot's server is closed, another slot is tried, up to 20 times; then
//! round robin chooses. So the keys of a closed server spread evenly. An empty key means round robin.
//! Source: Eisenbud et al., "Maglev: a fast and reliable software network load balancer" (NSDI 2016); LVS mh.
//! Cost: the length of the key and O(1). Memory: 4 bytes a slot.
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use crate::key::{in_round, key_hash, mix, reduce, seeds};
use crate::policy::{Basis, Context};
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::tier::Tier;

/// Sizes of tables, all prime: the paper's two, a step between them, and Envoy's greatest. A table serves as many servers as
/// are a hundredth of its slots, as the paper asks; only beyond that is the next size taken, so that its keys stay where they
/// are while servers come and go.
const SIZES: [u64; 3] = [65_537, 655_373, 5_000_011];
const SLOTS_PER_SERVER: u64 = 100;

pub(crate) const ENTRY: Entry = Entry {
    name: "maglev",
    aliases: &["mh"],
    summary: "a key chooses the server, by a table whose shares are the weights",
    what: "\
        The hash of the key selects a slot of a table. The servers have filled the table in rotation, each in its \
        own order of slots, as often as their weights say. The shares of the keys are the weights to within one \
        slot. When one of ten servers is removed, its own keys and about 0.2 % of the others move.\n\n\
        The table has 65,537 slots for up to 655 servers, 655,373 for up to 6,553 and 5,000,011 for more. Its size \
        stays the same within these limits when servers are added or removed. All keys move when the number of \
        servers crosses a limit; for an upstream that will grow, set table=655373 from the beginning. Keys of a \
        server that is closed, or that takes less than its weight during slow start, go to other slots and spread \
        evenly. An empty key means round robin. Backup servers are not allowed.",
    when: "\
        Use it for caches and sessions by key if even shares are more important than that no other key moves. A \
        choice costs one look into the table, whatever the number of servers.",
    when_not: "\
        Do not use it if no key of the remaining servers may move: use rendezvous. If a few keys bring most of the \
        requests, use bounded_hash. It does not react to load: a slow server keeps its keys.",
    nginx: None,
    parameters: &[Parameter {
        name: "table",
        summary: "least number of slots; raised to a prime, and to the size that the number of servers needs",
        kind: Kind::Number(2, 1 << 24),
        default: "65537",
    }],
    source: "Maglev (NSDI 2016); LVS mh",
    cost: "the key's length; O(1)",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::Any,
    needs_key: false,
    strict: None,
    backup: false,
    build: |spec, tier| {
        let slots = Arc::new(Slots::new(tier, spec.number("table")));
        with_turns(tier, move |_, _| Maglev { slots: slots.clone() })
    },
};

/// The table of one tier.
pub(crate) struct Slots(Box<[u32]>);

impl Slots {
    /// A table of at least this size.
    pub fn new(tier: &Tier, size: u64) -> Slots {
        Slots(fill(tier, prime(size.max(step_for(tier.len())))))
    }

    /// The server that a hash falls on; `None` when all weights are 0.
    #[inline]
    pub fn owner(&self, hash: u64) -> Option<usize> {
        self.0.get(reduce(hash, self.0.len() as u64) as usize).map(|server| *server as usize)
    }
}

/// The size that so many servers need.
fn step_for(servers: usize) -> u64 {
    let wanted = SLOTS_PER_SERVER * servers as u64;
    SIZES.into_iter().find(|size| *size >= wanted).unwrap_or(SIZES[SIZES.len() - 1])
}

/// The least prime that is not below `n`.
fn prime(n: u64) -> u32 {
    let is_prime = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    (n..).find(|n| is_prime(*n)).unwrap_or(n) as u32
}

/// The owner of each slot. Empty when there is no weight.
fn fill(tier: &Tier, size: u32) -> Box<[u32]> {
    const FREE: u32 = u32::MAX;
    struct Turns {
        server: u32,
        weight: u64,
        /// Weight spent on turns so far.
        spent: u64,
        next: u32,
        skip: u32,
    }
    let seeds = seeds(&tier.names);
    let turns = tier.weights().zip(seeds).zip(0..).filter(|((weight, _), _)| *weight != 0);
    let mut turns: Vec<Turns> = turns
        .map(|((weight, seed), server)| Turns {
            server,
            weight: u64::from(weight),
            spent: 0,
            next: reduce(seed, u64::from(size)) as u32,
            skip: reduce(mix(seed), u64::from(size) - 1) as u32 + 1,
        })
        .collect();
    let Some(heaviest) = turns.iter().map(|t| t.weight).max() else { return Box::default() };
    let mut table = vec![FREE; size as usize];
    let mut free = size;
    for round in 1.. {
        for turn in &mut turns {
            // In `heaviest` rounds a server has as many turns as its weight, spread evenly, the first in the first.
            if turn.spent >= round * turn.weight {
                continue;
            }
            turn.spent += heaviest;
            while table[turn.next as usize] != FREE {
                turn.next = step(turn.next, turn.skip, size);
            }
            table[turn.next as usize] = turn.server;
            free -= 1;
            if free == 0 {
                return table.into();
            }
        }
    }
    table.into()
}

fn step(slot: u32, skip: u32, size: u32) -> u32 {
    let next = slot + skip;
    if next < size { next } else { next - size }
}

struct Maglev {
    slots: Arc<Slots>,
}

impl Search for Maglev {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        if cx.tier.len() < 2 || cx.key.is_empty() {
            return None;
        }
        let hash = key_hash(cx.key);
        while cx.tried.progress.tries <= DRAWS {
            let index = self.slots.owner(in_round(hash, cx.tried.progress.tries))?;
            if cx.admits(index) {
                return Some(index);
            }
            cx.tried.progress.tries += 1;
        }
        None
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::structures::wheel::tests::{tier, tier_of};

    #[test]
    fn primes() {
        let found: Vec<u32> = [0, 2, 4, 9, 65_536, 1 << 24, 1_600_000].map(prime).into();
        assert_eq!(found, [2, 2, 5, 11, 65_537, 16_777_259, 1_600_033]);
    }

    #[test]
    fn sizes_have_coarse_steps() {
        let found = [1, 655, 656, 6_553, 6_554, 1 << 24].map(step_for);
        assert_eq!(found, [65_537, 65_537, 655_373, 655_373, 5_000_011, 5_000_011]);
        assert!(SIZES.iter().all(|size| u64::from(prime(*size)) == *size));
    }

    /// The table as the paper fills it: permutations written out, one turn for each of equal servers.
    fn reference(tier: &Tier, size: u32) -> Vec<u32> {
        let permutation = |seed: u64| {
            let offset = u64::from(reduce(seed, u64::from(size)) as u32);
            let skip = u64::from(reduce(mix(seed), u64::from(size) - 1) as u32 + 1);
            (0..u64::from(size)).map(|j| ((offset + j * skip) % u64::from(size)) as usize).collect::<Vec<_>>()
        };
        let permutations: Vec<Vec<usize>> = seeds(&tier.names).into_iter().map(permutation).collect();
        let mut table = vec![u32::MAX; size as usize];
        let mut next = vec![0; permutations.len()];
        for server in (0..permutations.len()).cycle() {
            let taken = |slot: usize| table[slot] != u32::MAX;
            if (0..size as usize).all(taken) {
                break;
            }
            let Some(at) = (next[server]..).find(|j| !taken(permutations[server][*j])) else { break };
            table[permutations[server][at]] = server as u32;
            next[server] = at + 1;
        }
        table
    }

    #[test]
    fn equal_servers_fill_it_as_the_paper_says() {
        for (n, size) in [(1, 7), (2, 7), (3, 7), (5, 101), (30, 499)] {
            let tier = tier(&vec![1; n]);
            assert_eq!(fill(&tier, size)[..], reference(&tier, size));
        }
    }

    proptest! {
        /// Every slot has an owner, and every server its share to a slot and a turn.
        #[test]
        fn shares_are_right(weights in prop::collection::vec(0u32..20, 1..60), size in 1_000u64..3_000) {
            let size = prime(size);
            let table = fill(&tier(&weights), size);
            let total: u32 = weights.iter().sum();
            if total == 0 {
                prop_assert!(table.is_empty());
                return Ok(());
            }
            prop_assert_eq!(table.len() as u32, size);
            let mut counts = vec![0u32; weights.len()];
            table.iter().for_each(|owner| counts[*owner as usize] += 1);
            // Every server has its weight's part of the slots, rounded up; so all others together can cost one slot
            // each.
            let servers = weights.iter().filter(|weight| **weight != 0).count() as f64;
            for (count, weight) in counts.iter().zip(&weights) {
                let part = f64::from(*weight) / f64::from(total);
                let (most, least) = (f64::from(size) * part + 2.0, (f64::from(size) - servers) * part - 2.0);
                prop_assert!((least..=most).contains(&f64::from(*count)), "{} of {}..{}", count, least, most);
                prop_assert!((*count > 0) == (*weight > 0));
            }
        }
    }

    /// The published disruption: of 10 servers and 65,537 slots, when one goes its tenth moves and about 0.2 % beside.
    #[test]
    fn little_moves_when_a_server_goes() {
        let names = |skip: Option<usize>| (0..10).filter(move |i| Some(*i) != skip).map(|i| (format!("s{i}:80"), 1));
        let owners = |tier: Arc<Tier>| {
            let table = fill(&tier, 65_537);
            table.iter().map(|i| tier.names[*i as usize].clone()).collect::<Vec<_>>()
        };
        let full = owners(tier_of(names(None)));
        for gone in 0..10 {
            let rest = owners(tier_of(names(Some(gone))));
            let name = format!("s{gone}:80");
            let moved = full.iter().zip(&rest).filter(|(a, b)| a != b).count() as f64 / 655.37;
            let own = full.iter().filter(|owner| ***owner == *name).count() as f64 / 655.37;
            assert!((9.9..10.1).contains(&own), "{own} % were its own");
            assert!((own..own + 0.5).contains(&moved), "{moved} % moved, {own} % were its own");
            assert!(moved > own, "a table of this size is not perfect");
        }
    }

    /// The part of all keys that moves when one of many servers goes is a few times what it had, and never nearly all, since
    /// the table keeps its size.
    #[test]
    fn little_moves_when_one_of_many_goes() {
        let slots = |n: usize, gone: usize| {
            let tier = tier_of((0..n).filter(|i| *i != gone).map(|i| (format!("s{i}:80"), 1)));
            let name = |owner: u32| tier.names[owner as usize].clone();
            Slots::new(&tier, SIZES[0]).0.iter().map(|owner| name(*owner)).collect::<Vec<_>>()
        };
        for n in [650, 1_000, 4_097] {
            let (full, rest) = (slots(n, n), slots(n, n / 2));
            assert_eq!(full.len(), rest.len(), "{n} servers");
            let moved = full.iter().zip(&rest).filter(|(a, b)| a != b).count() as f64 / full.len() as f64;
            assert!((1.0..12.0).contains(&(moved * n as f64)), "{n} servers: {moved} of all keys moved");
        }
    }
}
