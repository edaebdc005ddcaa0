//! Prequal: probes of a few servers at a time tell which have few requests in flight and which are quick.
//!
//! For each request some servers, drawn without replacement, are probed for their requests in flight (RIF) and their
//! latency: the median of recent requests that found about as many in flight. The answers go to a pool of 16. A probe
//! is hot if its RIF is above a quantile of the RIFs seen recently. The request goes to the cold probe of the least
//! latency; if all are hot, to the one of the least RIF. A probe that is used counts the request it caused, and is
//! removed after a number of uses. With each request one more is removed, the oldest and the worst alternately, and so
//! is one that is too old. With fewer than two probes the better of two servers drawn at random by requests in flight
//! gets the request.
//!
//! Each worker has its own pool, as each client in the paper. What is different here:
//! - The paper has servers that answer probes. That is `probe=`. Without it the workers' own account of a server
//!   answers at once ([`Latencies`], shared by the workers). A measurement that gets old is mixed with, and finally
//!   replaced by, the latency of all servers at that RIF.
//! - In the paper the number of uses of a probe has no bound if a pool covers most of the servers: probes are used
//!   until they are too old. With twenty servers and many balancers that is worse than random. Here a probe is used at
//!   most twice.
//! - The median is a running estimate for each of a few ranges of RIF, here and in `balanza target`, which answers probes
//!   that its latency is unknown if it has no request of the last five seconds to go by.
//! - Weights: servers are drawn in proportion to them, and RIFs are divided by them. Latencies are not.
//! - Where there are no more servers than probes, all are probed each time and none is removed.
//! - Errors: the paper asks for a defence against servers that fail fast and does not give one. A failure or an error
//!   response removes the server's probe; the next ones have a doubled latency and a greater RIF for each in a row.
//! - Of probes that are alike the one of the lesser RIF is chosen, and with too few probes the paper draws one server.
//!
//! Source: Wydrowski et al., "Load is not what you should balance: introducing Prequal" (NSDI 2024), arXiv 2312.10172.
//! Cost: a scan of the pool, and the probes.
//! If no server is eligible, the driver goes to the next tier.

use std::sync::Arc;

use super::least_conn::Connections;
use super::two_choices::BestOf;
use crate::Nanos;
use crate::policy::{Basis, Context};
use crate::report::Report;
use crate::rng::Rng;
use crate::server::Member;
use crate::spec::{self, Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::latencies::Latencies;
use crate::structures::probes::{Pool, Probe, Quantile};
use crate::structures::round_robin::RoundRobin;
use crate::structures::typical::{FORGIVING, Failing};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "prequal",
    aliases: &[],
    summary: "the server with the lowest latency of those without many requests in flight, by probes",
    what: "\
        For each request a few servers are probed for their requests in flight and their latency. The answers go to \
        a pool of the worker. A server is hot if it has more requests in flight than the quantile of those seen \
        recently. The request goes to the server with the lowest latency that is not hot; if all are hot, to the one \
        with the fewest requests in flight. A probe is used at most twice and removed when it is older than age; \
        with each request one more is removed, the oldest and the worst alternately. The latency of a server is the \
        median of recent requests that found about as many in flight there as it has now. With fewer than two \
        probes, the better of two random servers is chosen.\n\n\
        With probe=/uri the servers are asked over HTTP. They answer with a line \"in_flight=3 latency_us=1200\" (or \
        latency_ms). Without a latency the time of the probe itself counts; a latency of 0 is unknown, and the \
        median of the other probes counts. Without probe= the workers' own measurements answer at once. Servers are \
        probed in proportion to their weights; if there are no more servers than probes for a request, all are \
        probed. Requests in flight are divided by the weights, latencies are not. A failure or error response \
        removes a server's probe and counts against its next ones. During slow start a server is skipped with \
        probability 1 - current weight / full weight, and its requests in flight are divided by the current weight. \
        Backup servers are used when all others are closed or full.",
    when: "\
        Use it for servers whose speed changes from one moment to the next, and that serve several balancers. With \
        probe= the answers include the requests of all balancers.",
    when_not: "\
        Do not use probe= if the servers cannot answer a probe within milliseconds, or if three probes for each \
        request cost too much (see rate). For equal servers behind one balancer least_conn is simpler and does \
        better.",
    nginx: None,
    parameters: &[
        Parameter {
            name: spec::PROBE,
            summary: "URI at which the servers answer probes",
            kind: Kind::Path,
            default: "",
        },
        Parameter { name: "rate", summary: "probes per 100 requests", kind: Kind::Number(1, 1_600), default: "300" },
        Parameter { name: "pool", summary: "number of probes kept", kind: Kind::Number(2, 64), default: "16" },
        Parameter {
            name: "age",
            summary: "age at which a probe is removed",
            kind: Kind::Time(1, 3_600_000),
            default: "1s",
        },
        Parameter {
            name: "quantile",
            summary: "quantile of recent numbers of requests in flight, in percent; servers above it are hot",
            kind: Kind::Number(0, 100),
            default: "84",
        },
    ],
    source: "Wydrowski et al., NSDI 2024 (Google)",
    cost: "O(1): a scan of the pool",
    linear: false,
    times: Times::Always,
    host: Host::Probes,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        let rate = spec.number("rate");
        let uses = uses(spec.number("pool") as f64, tier.len() as f64, rate as f64 / PROBE as f64);
        let alias = Arc::new(Alias::new(tier));
        let shared = Arc::new(Shared {
            alias,
            failing: Failing::new(tier),
            servers: tier.slots.iter().map(|_| Latencies::default()).collect(),
            all: Latencies::default(),
            asks: !spec.text("probe").is_empty(),
            rate,
            uses: (uses as u32, (uses.fract() * PARTS as f64) as u64),
            age: spec.time("age"),
        });
        let servers = tier.len();
        let (size, quantile) = (spec.number("pool") as usize, spec.number("quantile") as usize);
        with_turns(tier, move |_, rng| Prequal {
            draws: BestOf::new(shared.alias.clone(), 2, Arc::new(Connections)),
            shared: shared.clone(),
            rng: Rng::new(rng.next()),
            pool: Pool::new(size),
            hot: Quantile::new(quantile),
            due: 0,
            targets: Targets::new(servers, (rate / PROBE) as usize),
            worst_next: false,
            basis: Basis::Probe,
        })
    },
};

/// What one probe is in the counting of those due.
const PROBE: u64 = 100;
/// Probes removed with each request.
const REMOVED: f64 = 1.0;
/// Servers that are not probed twice for a request.
const BATCH: usize = 16;
/// Draws for one target before there is none.
const DRAWS: usize = 4;
/// Parts of a use.
const PARTS: u64 = 1 << 20;
/// The most uses of a probe.
const USES_MAX: f64 = 2.0;

/// How often a probe is used, on average: the paper's `max(1, (1 + d) / ((1 - m / n) * r - removed))` with d = 1, a pool
/// of m among n servers and r probes a request; bounded where that is large or has no value.
fn uses(m: f64, n: f64, r: f64) -> f64 {
    let gained = (1.0 - m.min(n) / n) * r - REMOVED;
    if gained > 0.0 { (2.0 / gained).clamp(1.0, USES_MAX) } else { USES_MAX }
}

/// The part shared by the workers.
struct Shared {
    alias: Arc<Alias>,
    failing: Failing,
    /// What is known of each server, and of all of them together.
    servers: Box<[Latencies]>,
    all: Latencies,
    /// Whether the host is asked for probes.
    asks: bool,
    /// Probes for a hundred requests.
    rate: u64,
    /// Uses of a probe, and how many of [`PARTS`] probes get one more.
    uses: (u32, u64),
    age: Nanos,
}

impl Shared {
    /// What the workers know of a server's latency with so many in flight: the less of its own the older that is, and that
    /// of all servers alone after twice the age limit of a probe.
    fn latency(&self, now: Nanos, i: usize, in_flight: u32) -> f64 {
        let all = self.all.at(now, in_flight).map_or(0.0, |(latency, _)| latency);
        let Some((own, age)) = self.servers[i].at(now, in_flight) else { return all };
        let trust = (1.0 - age as f64 / (2 * self.age) as f64).max(0.0);
        all + (own - all) * trust
    }

    /// Requests in flight for a unit of weight, and a latency, with what the server's failures add.
    fn judged(&self, now: Nanos, tier: &Tier, i: usize, in_flight: u32, latency: f64) -> (f64, f64) {
        let typical = if self.failing.of(i) == 0 { 0.0 } else { self.all.at(now, 0).map_or(0.0, |(time, _)| time) };
        let latency = self.failing.penalty(now, i, latency, typical as Nanos, FORGIVING);
        let rif = f64::from(in_flight) + self.failing.load(now, i);
        (rif * 256.0 / tier.weight(i, now).max(1) as f64, latency)
    }
}

/// The servers to probe for a request: drawn by weight, none twice.
struct Targets {
    drawn: [u32; BATCH],
    count: usize,
    /// How many servers there are.
    n: usize,
    /// Whether there are enough probes for all servers.
    all: bool,
    /// The one that comes first if all do.
    first: usize,
}

impl Targets {
    /// Targets of `n` servers, so many of them for each request.
    fn new(n: usize, probes: usize) -> Targets {
        Targets { drawn: [0; BATCH], count: 0, n, all: n <= probes, first: 0 }
    }

    /// Starts again, for another request.
    fn begin(&mut self) {
        self.count = 0;
        // By turns, since of equal probes the older wins.
        self.first = (self.first + 1) % self.n;
    }

    fn draw(&mut self, alias: &Alias, rng: &mut Rng) -> Option<usize> {
        if self.all {
            self.count += 1;
            return (self.count <= self.n).then(|| (self.first + self.count - 1) % self.n);
        }
        let drawn = &self.drawn[..self.count];
        let i = (0..DRAWS).map(|_| alias.draw(rng)).find(|i| !drawn.contains(&(*i as u32)))?;
        if self.count < BATCH {
            self.drawn[self.count] = i as u32;
            self.count += 1;
        }
        Some(i)
    }
}

struct Prequal {
    shared: Arc<Shared>,
    /// For when there are too few probes.
    draws: BestOf<Connections>,
    rng: Rng,
    pool: Pool,
    hot: Quantile,
    /// Probes that are due, in hundredths.
    due: u64,
    targets: Targets,
    /// Whether the worst probe is removed next, and not the oldest.
    worst_next: bool,
    basis: Basis,
}

impl Prequal {
    /// A server to be probed, if a probe is due.
    fn target(&mut self, now: Nanos, tier: &Tier) -> Option<usize> {
        if self.due < PROBE {
            return None;
        }
        self.due -= PROBE;
        (0..DRAWS).map_while(|_| self.targets.draw(&self.shared.alias, &mut self.rng)).find(|i| tier.accepts(*i, now))
    }

    fn add(&mut self, now: Nanos, tier: &Tier, i: usize, in_flight: u32, latency: f64) {
        let shared = &*self.shared;
        let (rif, latency) = shared.judged(now, tier, i, in_flight, latency);
        let more = shared.uses.1 != 0 && self.rng.below(PARTS) < shared.uses.1;
        self.hot.add(rif);
        self.pool.add(Probe { server: i as u32, rif, latency, at: now, uses: shared.uses.0 + u32::from(more) });
    }
}

impl Search for Prequal {
    fn find(&mut self, cx: &mut Context<'_>, turns: &mut RoundRobin) -> Option<usize> {
        self.pool.expire(cx.now, self.shared.age);
        while self.pool.len() >= 2 {
            let untried = |server: u32| !cx.tried.contains(cx.tier.slots[server as usize].member);
            let Some(server) = self.pool.best(self.hot.get(), untried) else { break };
            let i = server as usize;
            if cx.admits(i) {
                self.pool.take(server, 1.0 / f64::from(cx.tier.slots[i].weight.max(1)));
                self.basis = Basis::Probe;
                return Some(i);
            }
            // Closed, or it gives way; it would be the best again next time.
            self.pool.remove(server);
        }
        self.basis = Basis::Score;
        self.draws.find(cx, turns)
    }

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, _index: usize, _by_policy: bool) {
        // Where all are probed each time, none is to be removed.
        if !self.targets.all {
            if self.worst_next {
                self.pool.remove_worst(self.hot.get());
            } else {
                self.pool.remove_oldest();
            }
            self.worst_next = !self.worst_next;
        }
        // A host that does not ask does not run up a debt.
        self.due = (self.due + self.shared.rate).min(2 * self.shared.rate + PROBE);
        self.targets.begin();
        if self.shared.asks {
            return;
        }
        while let Some(i) = self.target(now, tier) {
            let in_flight = tier.slots[i].state.in_flight();
            let latency = self.shared.latency(now, i, in_flight);
            self.add(now, tier, i, in_flight, latency);
        }
    }

    fn on_latency(&mut self, now: Nanos, index: usize, in_flight: u32, latency: Nanos) {
        self.shared.servers[index].add(now, in_flight, latency);
        self.shared.all.add(now, in_flight, latency);
    }

    fn wants_latency(&self) -> bool {
        // Servers that are asked say themselves how long they take.
        !self.shared.asks
    }

    fn on_complete(&mut self, now: Nanos, _tier: &Tier, index: usize, report: &Report) {
        self.shared.failing.learn(now, index, report);
        if report.speaks_against() {
            self.pool.remove(index as u32);
        }
    }

    /// The latency of the server's probe, in milliseconds.
    fn score(&self, _cx: &Context<'_>, index: usize) -> Option<f64> {
        self.pool.of(index as u32).map(|probe| probe.latency / 1e6)
    }

    fn basis(&self) -> Basis {
        self.basis
    }

    fn take_probes(&mut self, now: Nanos, tier: &Tier, members: &mut Vec<Member>) {
        if !self.shared.asks {
            return;
        }
        while let Some(i) = self.target(now, tier) {
            members.push(tier.slots[i].member);
        }
    }

    fn on_probe(&mut self, now: Nanos, tier: &Tier, index: usize, in_flight: u32, latency: Nanos) {
        // A server that does not know its latency yet is neither the best nor the worst.
        let known = Some(latency as f64).filter(|latency| *latency > 0.0);
        let latency = known.or_else(|| self.pool.median_latency()).unwrap_or(0.0);
        self.add(now, tier, index, in_flight, latency);
    }

    fn wants_probes(&self) -> bool {
        self.shared.asks
    }
}

#[cfg(test)]
mod tests {
    use super::{Alias, Rng, Targets, uses};
    use crate::structures::wheel::tests::tier;

    #[test]
    fn targets_are_drawn_by_weight_and_none_twice() {
        for weights in [&[1; 5][..], &[5, 1, 1, 2, 1], &[1; 100]] {
            let n = weights.len();
            let alias = Alias::new(&tier(weights));
            let (mut targets, mut rng) = (Targets::new(n, 2), Rng::new(7));
            let (mut first, mut second) = (vec![0f64; n], vec![0f64; n]);
            let draws = 100_000;
            for _ in 0..draws {
                targets.begin();
                let (a, b) = (targets.draw(&alias, &mut rng).unwrap(), targets.draw(&alias, &mut rng));
                first[a] += 1.0;
                if let Some(b) = b {
                    assert_ne!(a, b);
                    second[b] += 1.0;
                }
            }
            let total = f64::from(weights.iter().sum::<u32>());
            for ((first, second), weight) in first.iter().zip(&second).zip(weights) {
                let p = f64::from(*weight) / total;
                let deviation = (f64::from(draws) * p * (1.0 - p)).sqrt();
                assert!((first - f64::from(draws) * p).abs() < 5.0 * deviation, "{weights:?} {first}");
                let equal = weights.iter().all(|weight| *weight == 1);
                assert!(!equal || (second - f64::from(draws) * p).abs() < 5.0 * deviation, "{weights:?} {second}");
            }
        }
    }

    #[test]
    fn as_many_targets_as_servers_are_all_of_them_each_first_in_turn() {
        let alias = Alias::new(&tier(&[5, 1, 2]));
        let (mut targets, mut rng) = (Targets::new(3, 3), Rng::new(1));
        let mut batches = Vec::new();
        for _ in 0..4 {
            targets.begin();
            batches.push((0..4).map_while(|_| targets.draw(&alias, &mut rng)).collect::<Vec<_>>());
        }
        assert_eq!(batches, [[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]);
    }

    #[test]
    fn uses_are_the_papers() {
        // 2 / ((1 - 16 / 100) * 3 - 1).
        assert!((uses(16.0, 100.0, 3.0) - 2.0 / 1.52).abs() < 1e-12);
        assert_eq!(uses(16.0, 1e9, 5.0), 1.0, "at least one");
        assert_eq!(uses(16.0, 10.0, 3.0), 2.0, "all servers are in the pool");
        assert_eq!(uses(16.0, 100.0, 1.0), 2.0, "too few probes");
    }
}
