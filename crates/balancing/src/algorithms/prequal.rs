//! Prequal: probes of a few servers at a time tell who has few requests in flight and who is quick.
//!
//! For each request some servers, drawn by weight, are probed for their requests in flight (RIF) and their latency (all,
//! if there are no more of them than probes); the answers go to a pool of 16. A probe is hot if its RIF is above the
//! quantile of the RIFs seen lately. The request goes to the coldest: of the cold probes to the one of the least latency;
//! if all are hot, to the one of the least RIF. A probe that is used counts the request it caused, and is thrown away after
//! a number of uses. With each request one more is thrown away, the oldest and the worst by turns, and so is one that is
//! too old. With fewer than two usable probes the better of two servers drawn at random by requests in flight gets the
//! request.
//!
//! Each worker has its own pool, as each client in the paper. What is ours: RIFs and latencies are divided by the weights;
//! a newer probe of a server replaces the older; a failure throws away the server's probe and doubles the latency of the
//! next ones, which the paper calls for and leaves open. Without `probe` the workers' shared account of a server answers at
//! once; its average latency is blurred by up to an eighth, and believed less and less while nobody asks it: otherwise, of
//! servers that are alike, one with bad luck would hardly be chosen again.
//! Source: Wydrowski et al., "Load is not what you should balance: introducing Prequal" (NSDI 2024).
//! Cost: a scan of the pool, and the probes. Nobody eligible: the driver goes on to the next level.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::least_conn::Connections;
use super::round_robin::RoundRobin;
use super::two_choices::BestOf;
use crate::Nanos;
use crate::driver::{Outcome, Report};
use crate::fleet::{Level, Member};
use crate::policy::Context;
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::rng::Rng;
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::probes::{Pool, Probe, Quantile};
use crate::structures::typical::{FORGIVING, Failing, Typical};

pub(crate) const ENTRY: Entry = Entry {
    name: "prequal",
    aliases: &[],
    summary: "the quickest server that is not hot, by probes of requests in flight and latency",
    description: "\
        For each request a few servers are probed for their requests in flight and their latency; the answers go to a \
        pool. Servers with more in flight than the quantile of what was seen lately are hot. The request goes to the cold \
        server of the least latency; if all are hot, to the one with the least in flight. Probes are used a few times, \
        grow old, and are thrown away, the oldest and the worst by turns.\n\n\
        For services whose servers differ from moment to moment and serve more than this balancer: the servers themselves \
        say how they are. With probe=/uri they are asked over HTTP and answer with a line \"in_flight=3 latency_us=1200\" \
        (or latency_ms; without it the probe's own time counts); without, what the workers know of them answers at \
        once. Each worker has its own pool. Servers are probed in proportion to their weights, or all of them for each \
        request if they are no more than its probes, and what they have in flight and their latency are divided by their \
        weights. A failure throws a server's probe away. In slow start a server is passed over as often as its weight is \
        short of the whole. Backups are used when all others are closed or full.",
    nginx: None,
    parameters: &[
        Parameter { name: "probe", summary: "URI to ask the servers at", kind: Kind::Text, default: "" },
        Parameter {
            name: "rate",
            summary: "probes for a hundred requests",
            kind: Kind::Number(1, 1_600),
            default: "300",
        },
        Parameter { name: "pool", summary: "probes to choose from", kind: Kind::Number(2, 64), default: "16" },
        Parameter {
            name: "age",
            summary: "age at which a probe is thrown away",
            kind: Kind::Time(1, 3_600_000),
            default: "1s",
        },
        Parameter {
            name: "quantile",
            summary: "of the requests in flight seen lately, in percent: servers above are hot",
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
    backup: true,
    build: |spec, level| {
        let rate = spec.number("rate");
        let uses = uses(spec.number("pool") as f64, level.len() as f64, rate as f64 / PROBE as f64);
        let alias = Arc::new(Alias::new(level));
        let shared = Arc::new(Shared {
            is_uniform: alias.is_uniform(),
            alias,
            failing: Failing::new(level),
            typical: Typical::default(),
            known: level.slots.iter().map(|s| Known::new(s.cell.last_byte_time())).collect(),
            asks: !spec.text("probe").is_empty(),
            rate,
            uses: (uses as u32, (uses.fract() * PARTS as f64) as u64),
            age: spec.time("age"),
            fading: 0.5 / spec.time("age") as f64,
        });
        shared.typical.sample(level, |i| level.slots[i].cell.last_byte_time());
        let servers = level.len();
        let (size, quantile) = (spec.number("pool") as usize, spec.number("quantile") as usize);
        with_turns(level, move |_, rng| Prequal {
            draws: BestOf::new(shared.alias.clone(), 2, Arc::new(Connections)),
            shared: shared.clone(),
            rng: Rng::new(rng.next()),
            pool: Pool::new(size, servers),
            hot: Quantile::new(quantile),
            due: 0,
            targets: Targets::new(servers, (rate / PROBE) as usize, &shared.alias),
            worst_next: false,
            completions: 0,
            basis: Basis::Probe,
        })
    },
};

/// What one probe is in the counting of those due.
const PROBE: u64 = 100;
/// Probes thrown away with each request.
const REMOVED: f64 = 1.0;
/// Servers that are not probed twice for a request.
const BATCH: usize = 16;
/// So many servers are drawn as cards are.
const CARDS: usize = 64;
/// Parts of a use.
const PARTS: u64 = 1 << 20;
/// The most uses of a probe.
const USES_MAX: f64 = 16.0;

/// How often a probe is used, on average: the paper's `max(1, (1 + d) / ((1 - m / n) * r - removed))` with d = 1, a pool
/// of m among n servers and r probes a request; bounded where probes are too few.
fn uses(m: f64, n: f64, r: f64) -> f64 {
    let gained = (1.0 - m.min(n) / n) * r - REMOVED;
    if gained > 0.0 { (2.0 / gained).clamp(1.0, USES_MAX) } else { USES_MAX }
}

/// The part shared by the workers.
struct Shared {
    alias: Arc<Alias>,
    failing: Failing,
    typical: Typical,
    /// One for each server, so that a probe looks at one place.
    known: Box<[Known]>,
    /// Whether all servers have the same weight, so that it makes no difference.
    is_uniform: bool,
    /// Whether the host is asked for probes.
    asks: bool,
    /// Probes for a hundred requests.
    rate: u64,
    /// Uses of a probe, and how many of [`PARTS`] probes get one more.
    uses: (u32, u64),
    age: Nanos,
    /// What trust in a latency falls by in a nanosecond.
    fading: f64,
}

/// What is known of a server's latency.
struct Known {
    /// The bits of an average in nanoseconds; 0 before the first answer.
    latency: AtomicU64,
    /// When it last answered.
    answered: AtomicU64,
}

impl Known {
    fn new(latency: Option<Nanos>) -> Known {
        Known {
            latency: AtomicU64::new(latency.map_or(0, |time| (time as f64).to_bits())),
            answered: AtomicU64::new(0),
        }
    }

    fn latency(&self) -> Option<f64> {
        let bits = self.latency.load(Relaxed);
        (bits != 0).then(|| f64::from_bits(bits))
    }
}

impl Shared {
    /// What the workers know of a server's latency: an average of its answers, and the more of a typical server's the
    /// longer ago the last was; that alone after twice the age limit of a probe.
    #[inline(always)]
    fn latency(&self, now: Nanos, i: usize, typical: f64) -> f64 {
        let known = &self.known[i];
        let Some(latency) = known.latency() else { return typical };
        let idle = now.saturating_sub(known.answered.load(Relaxed)) as i64 as f64;
        let trust = (1.0 - idle * self.fading).max(0.0);
        typical + (latency - typical) * trust
    }

    fn typical(&self) -> f64 {
        self.typical.get() as i64 as f64
    }

    #[inline]
    fn answered(&self, now: Nanos, i: usize, sample: Nanos) {
        let (known, sample) = (&self.known[i], sample as i64 as f64);
        let old = if known.latency().is_none() { sample } else { self.latency(now, i, self.typical()) };
        known.latency.store((old + (sample - old) / 8.0).max(1.0).to_bits(), Relaxed);
        known.answered.store(now, Relaxed);
    }
}

/// Whom to probe for a request: servers drawn by weight, none twice.
struct Targets {
    /// Those drawn come first. Of a few servers of equal weight all are here, and the rest are those still to be drawn:
    /// in whatever order they are, one at random is at the place of the next. Of others only those drawn are here.
    servers: [u32; CARDS],
    drawn: usize,
    /// How many servers there are.
    n: usize,
    how: Drawing,
    /// The one that comes first if all do.
    first: usize,
}

/// How targets are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drawing {
    /// There are enough probes for all servers.
    All,
    /// The servers are few and of equal weight.
    Cards,
    ByWeight,
}

impl Targets {
    /// Targets of `n` servers, so many of them for each request.
    fn new(n: usize, probes: usize, alias: &Alias) -> Targets {
        let how = if n <= probes {
            Drawing::All
        } else if n <= CARDS && alias.is_uniform() {
            Drawing::Cards
        } else {
            Drawing::ByWeight
        };
        Targets { servers: std::array::from_fn(|i| i as u32), drawn: 0, n, how, first: 0 }
    }

    /// Begins anew, for another request.
    #[inline]
    fn begin(&mut self) {
        self.drawn = 0;
        // By turns, since of equal probes the older wins.
        self.first = if self.first + 1 < self.n { self.first + 1 } else { 0 };
    }

    #[inline(always)]
    fn draw(&mut self, alias: &Alias, rng: &mut Rng) -> Option<usize> {
        let drawn = self.drawn;
        match self.how {
            Drawing::All => {
                self.drawn += 1;
                let i = self.first + drawn;
                (drawn < self.n).then_some(if i < self.n { i } else { i - self.n })
            }
            Drawing::Cards => {
                let rest = self.n.checked_sub(drawn).filter(|rest| *rest > 0)?;
                let place = (drawn + rng.below(rest as u64) as usize) % CARDS;
                self.servers.swap(drawn % CARDS, place);
                self.drawn += 1;
                Some(self.servers[drawn % CARDS] as usize)
            }
            Drawing::ByWeight => self.draw_of_many(alias, rng),
        }
    }

    #[inline(never)]
    fn draw_of_many(&mut self, alias: &Alias, rng: &mut Rng) -> Option<usize> {
        let drawn = self.drawn;
        let i = (0..4).map(|_| alias.draw(rng)).find(|i| !self.servers[..drawn].contains(&(*i as u32)))?;
        if drawn < BATCH {
            self.servers[drawn] = i as u32;
            self.drawn += 1;
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
    /// Whether the worst probe is thrown away next, and not the oldest.
    worst_next: bool,
    completions: u32,
    basis: Basis,
}

impl Prequal {
    /// A server to be probed, if a probe is due.
    #[inline(always)]
    fn target(&mut self, now: Nanos, level: &Level) -> Option<usize> {
        if self.due < PROBE {
            return None;
        }
        self.due -= PROBE;
        let i = self.targets.draw(&self.shared.alias, &mut self.rng)?;
        if level.accepts(i, now) { Some(i) } else { self.other_target(now, level) }
    }

    /// After one that is closed.
    #[cold]
    fn other_target(&mut self, now: Nanos, level: &Level) -> Option<usize> {
        for _ in 0..3 {
            let i = self.targets.draw(&self.shared.alias, &mut self.rng)?;
            if level.accepts(i, now) {
                return Some(i);
            }
        }
        None
    }

    #[inline(always)]
    fn add(&mut self, now: Nanos, level: &Level, i: usize, in_flight: u32, latency: f64) {
        let shared = &*self.shared;
        let mut rif = f64::from(in_flight);
        let mut latency = shared.failing.penalty(now, i, latency, shared.typical.get(), FORGIVING);
        if !shared.is_uniform {
            let weight = f64::from(level.slots[i].weight);
            rif /= weight;
            latency /= weight;
        }
        let more = shared.uses.1 != 0 && self.rng.below(PARTS) < shared.uses.1;
        let uses = shared.uses.0 + u32::from(more);
        self.hot.add(rif);
        self.pool.add(Probe { server: i as u32, rif, latency, at: now, uses });
    }
}

impl Search for Prequal {
    fn find(&mut self, cx: &mut Context<'_>, turns: &mut RoundRobin) -> Option<usize> {
        self.pool.expire(cx.now, self.shared.age);
        let mut barred = 0u64;
        while self.pool.has_two()
            && let Some(k) = self.pool.coldest(barred, self.hot.get())
        {
            let i = self.pool.get(k).server as usize;
            if cx.admits(i) {
                let weight = if self.shared.is_uniform { 1 } else { cx.level.slots[i].weight };
                self.pool.take(k, 1.0 / f64::from(weight));
                self.basis = Basis::Probe;
                return Some(i);
            }
            if cx.tried.contains(cx.level.slots[i].member) {
                barred |= 1 << k;
            } else {
                // Closed, or it gives way; it would be the coldest again next time.
                self.pool.remove(i as u32);
            }
        }
        self.basis = Basis::Score;
        self.draws.find(cx, turns)
    }

    fn on_dispatch(&mut self, now: Nanos, level: &Level, _index: usize, _by_policy: bool) {
        // Where all are probed each time, none is to be thrown away.
        if self.targets.how != Drawing::All {
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
        let typical = self.shared.typical();
        while let Some(i) = self.target(now, level) {
            let latency = self.shared.latency(now, i, typical);
            // Between 7/8 and 9/8 of it.
            let blurred = latency * (0.875 + f64::from((self.rng.next() >> 32) as u32) * (0.25 / 4_294_967_296.0));
            self.add(now, level, i, level.slots[i].cell.in_flight(), blurred);
        }
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.shared.failing.learn(now, index, report);
        match report.outcome {
            Outcome::Failure | Outcome::ErrorResponse => self.pool.remove(index as u32),
            Outcome::Success => {
                // Servers that are asked say themselves how long they take.
                if let (Some(time), false) = (report.last_byte_time, self.shared.asks) {
                    self.shared.answered(now, index, time);
                }
            }
            Outcome::Neutral => {}
        }
        self.completions = self.completions.wrapping_add(1);
        self.shared.typical.learn(level, self.completions, |i| level.slots[i].cell.last_byte_time());
    }

    /// The latency of the server's probe, in milliseconds for a unit of weight.
    fn score(&self, _cx: &Context<'_>, index: usize) -> Option<f64> {
        self.pool.of(index as u32).map(|probe| probe.latency / 1e6)
    }

    fn basis(&self) -> Basis {
        self.basis
    }

    fn take_probes(&mut self, now: Nanos, level: &Level, members: &mut Vec<Member>) {
        if !self.shared.asks {
            return;
        }
        while let Some(i) = self.target(now, level) {
            members.push(level.slots[i].member);
        }
    }

    fn on_probe(&mut self, now: Nanos, level: &Level, index: usize, in_flight: u32, latency: Nanos) {
        self.add(now, level, index, in_flight, latency as i64 as f64);
    }

    fn wants_probes(&self) -> bool {
        self.shared.asks
    }
}

#[cfg(test)]
mod tests {
    use super::{Alias, CARDS, Rng, Targets, uses};
    use crate::structures::wheel::tests::level;

    #[test]
    fn targets_are_drawn_by_weight_and_none_twice() {
        for weights in [&[1; 5][..], &[5, 1, 1, 2, 1], &[1; 100]] {
            let n = weights.len();
            let alias = Alias::new(&level(weights));
            let (mut targets, mut rng) = (Targets::new(n, 2, &alias), Rng::new(7));
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
        for n in [2, CARDS] {
            let alias = Alias::new(&level(&vec![1; n]));
            for probes in [n - 1, n] {
                let (mut targets, mut rng) = (Targets::new(n, probes, &alias), Rng::new(1));
                let drawn = (0..n + 1).filter(|_| targets.draw(&alias, &mut rng).is_some()).count();
                assert_eq!(drawn, n, "each once, with {probes} probes");
            }
        }
    }

    #[test]
    fn as_many_targets_as_servers_are_all_of_them_each_first_in_turn() {
        let alias = Alias::new(&level(&[5, 1, 2]));
        let (mut targets, mut rng) = (Targets::new(3, 3, &alias), Rng::new(1));
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
        assert_eq!(uses(16.0, 10.0, 3.0), 16.0, "all servers are in the pool");
        assert_eq!(uses(16.0, 100.0, 1.0), 16.0, "too few probes");
    }
}
