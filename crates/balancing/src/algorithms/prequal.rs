//! Prequal: probes of a few servers at a time tell who has few requests in flight and who is quick.
//!
//! For each request some servers, drawn by weight, are probed for their requests in flight (RIF) and their latency; the
//! answers go to a pool of 16. A probe is hot if its RIF is above the quantile of the RIFs seen lately. The request goes to
//! the coldest: of the cold probes to the one of the least latency; if all are hot, to the one of the least RIF. A probe
//! that is used counts the request it caused, and is thrown away after a number of uses. With each request one more is
//! thrown away, the oldest and the worst by turns, and so is one that is too old. With fewer than two usable probes the
//! better of two servers drawn at random by requests in flight gets the request.
//!
//! Each worker has its own pool, as each client in the paper. What is ours: RIFs and latencies are divided by the weights; a newer probe
//! of a server replaces the older; a failure throws away the server's probe and doubles the latency of the next ones,
//! which the paper calls for and leaves open. Without `probe` the workers' shared account of a server answers at once; its
//! average latency is blurred by up to an eighth, and believed less and less while nobody asks it: otherwise, of servers
//! that are alike, one with bad luck would hardly be chosen again.
//! Source: Wydrowski et al., "Load is not what you should balance: introducing Prequal" (NSDI 2024).
//! Cost: a scan of the pool, and the probes. Nobody eligible: the driver goes on to the next level.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::least_conn::Connections;
use super::round_robin::RoundRobin;
use super::two_choices::BestOf;
use crate::Nanos;
use crate::driver::{Outcome, Report};
use crate::fleet::Level;
use crate::policy::Context;
use crate::reason::Basis;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share};
use crate::rng::Rng;
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::probes::{Pool, Probe, Quantile};
use crate::structures::typical::{Failing, Typical};

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
        once. Each worker has its own pool. Servers are probed in proportion to their weights, and what they have in \
        flight and their latency are divided by them. A failure throws a server's probe away. In slow start a server is passed over as often \
        as its weight is short of the whole. Backups are used when all others are closed or full.",
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
    host: Host::Probes,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |spec, level| {
        let rate = spec.number("rate") as f64 / 100.0;
        let uses = uses(spec.number("pool") as f64, level.len() as f64, rate);
        let shared = Arc::new(Shared {
            alias: Arc::new(Alias::new(level)),
            failing: Failing::new(level),
            typical: Typical::default(),
            latencies: level.slots.iter().map(|s| s.cell.last_byte_time().unwrap_or(0).into()).collect(),
            answered: level.slots.iter().map(|_| AtomicU64::new(0)).collect(),
            asks: !spec.text("probe").is_empty(),
            rate,
            uses: (uses as u32, (uses.fract() * PARTS as f64) as u64),
            age: spec.time("age"),
            fading: 0.5 / spec.time("age") as f64,
        });
        shared.typical.sample(level, |i| level.slots[i].cell.last_byte_time());
        let (size, quantile) = (spec.number("pool") as usize, spec.number("quantile") as usize);
        with_turns(level, move |_, rng| Prequal {
            draws: BestOf::new(shared.alias.clone(), 2, Arc::new(Connections)),
            shared: shared.clone(),
            rng: Rng::new(rng.next()),
            pool: Pool::new(size),
            hot: Quantile::new(quantile),
            due: 0.0,
            batch: [u32::MAX; BATCH],
            probed: 0,
            worst_next: false,
            completions: 0,
            basis: Basis::Probe,
        })
    },
};

/// Probes thrown away with each request.
const REMOVED: f64 = 1.0;
/// Servers that are not probed twice for a request.
const BATCH: usize = 16;
/// Parts of a use.
const PARTS: u64 = 1 << 20;
/// The most uses of a probe.
const USES_MAX: f64 = 16.0;
/// Time in which the penalty of failures fades.
const FORGIVING: Nanos = 10_000_000_000;

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
    /// An average latency of each server, 0 before the first answer, and when it last answered.
    latencies: Box<[AtomicU64]>,
    answered: Box<[AtomicU64]>,
    /// Whether the host is asked for probes.
    asks: bool,
    /// Probes for each request.
    rate: f64,
    /// Uses of a probe, and how many of [`PARTS`] probes get one more.
    uses: (u32, u64),
    age: Nanos,
    /// What trust in a latency falls by in a nanosecond.
    fading: f64,
}

impl Shared {
    /// What the workers know of a server's latency: an average of its answers, and the more of a typical server's the
    /// longer ago the last was; that alone after twice the age limit of a probe.
    fn latency(&self, now: Nanos, i: usize) -> Nanos {
        let (known, typical) = (self.latencies[i].load(Relaxed), self.typical.get());
        if known == 0 {
            return typical;
        }
        let idle = now.saturating_sub(self.answered[i].load(Relaxed)) as f64;
        let trust = (1.0 - idle * self.fading).max(0.0);
        (known as f64 * trust + typical as f64 * (1.0 - trust)) as Nanos
    }

    fn answered(&self, now: Nanos, i: usize, sample: Nanos) {
        let old = if self.latencies[i].load(Relaxed) == 0 { sample } else { self.latency(now, i) };
        self.latencies[i].store((old - old / 8 + sample / 8).max(1), Relaxed);
        self.answered[i].store(now, Relaxed);
    }
}

struct Prequal {
    shared: Arc<Shared>,
    /// For when there are too few probes.
    draws: BestOf<Connections>,
    rng: Rng,
    pool: Pool,
    hot: Quantile,
    /// Probes that are due.
    due: f64,
    /// The servers probed for the last request.
    batch: [u32; BATCH],
    probed: usize,
    /// Whether the worst probe is thrown away next, and not the oldest.
    worst_next: bool,
    completions: u32,
    basis: Basis,
}

impl Prequal {
    /// A server to be probed, if a probe is due.
    fn target(&mut self, now: Nanos, level: &Level) -> Option<usize> {
        if self.due < 1.0 {
            return None;
        }
        self.due -= 1.0;
        for _ in 0..4 {
            let i = self.shared.alias.draw(&mut self.rng);
            if !self.batch[..self.probed].contains(&(i as u32)) && level.accepts(i, now) {
                if self.probed < BATCH {
                    self.batch[self.probed] = i as u32;
                    self.probed += 1;
                }
                return Some(i);
            }
        }
        None
    }

    fn add(&mut self, now: Nanos, level: &Level, i: usize, in_flight: u32, latency: Nanos) {
        let shared = &*self.shared;
        let mut rif = f64::from(in_flight);
        let mut latency = shared.failing.penalty(level, now, i, latency as f64, shared.typical.get(), FORGIVING);
        let weight = level.slots[i].weight;
        if weight != 1 {
            rif /= f64::from(weight);
            latency /= f64::from(weight);
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
        while self.pool.len() >= 2
            && let Some(k) = self.pool.coldest(barred, self.hot.get())
        {
            let i = self.pool.get(k).server as usize;
            if cx.admits(i) {
                self.pool.take(k, 1.0 / f64::from(cx.level.slots[i].weight));
                self.basis = Basis::Probe;
                return Some(i);
            }
            if cx.tried.contains(cx.level.slots[i].member) {
                barred |= 1 << k;
            } else {
                // Closed, or it gives way; it would be the coldest again next time.
                self.pool.remove(i as u32);
                let before = (1 << k) - 1;
                barred = barred & before | barred >> 1 & !before;
            }
        }
        self.basis = Basis::Score;
        self.draws.find(cx, turns)
    }

    fn on_dispatch(&mut self, now: Nanos, level: &Level, _index: usize, _by_policy: bool) {
        if self.worst_next {
            self.pool.remove_worst(self.hot.get());
        } else {
            self.pool.remove_oldest();
        }
        self.worst_next = !self.worst_next;
        // A host that does not ask does not run up a debt.
        self.due = (self.due + self.shared.rate).min(2.0 * self.shared.rate + 1.0);
        self.probed = 0;
        while !self.shared.asks
            && let Some(i) = self.target(now, level)
        {
            let cell = &level.slots[i].cell;
            let latency = self.shared.latency(now, i);
            let blur = latency / 8;
            let latency = latency - blur + self.rng.below(2 * blur + 1);
            self.add(now, level, i, cell.in_flight(), latency);
        }
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.shared.failing.learn(index, report);
        match report.outcome {
            Outcome::Failure => self.pool.remove(index as u32),
            Outcome::Success => {
                if let Some(time) = report.last_byte_time {
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

    fn next_probe(&mut self, now: Nanos, level: &Level) -> Option<usize> {
        if self.shared.asks { self.target(now, level) } else { None }
    }

    fn on_probe(&mut self, now: Nanos, level: &Level, index: usize, in_flight: u32, latency: Nanos) {
        self.add(now, level, index, in_flight, latency);
    }

    fn wants_probes(&self) -> bool {
        self.shared.asks
    }
}

#[cfg(test)]
mod tests {
    use super::uses;

    #[test]
    fn uses_are_the_papers() {
        // 2 / ((1 - 16 / 100) * 3 - 1).
        assert!((uses(16.0, 100.0, 3.0) - 2.0 / 1.52).abs() < 1e-12);
        assert_eq!(uses(16.0, 1e9, 5.0), 1.0, "at least one");
        assert_eq!(uses(16.0, 10.0, 3.0), 16.0, "all servers are in the pool");
        assert_eq!(uses(16.0, 100.0, 1.0), 16.0, "too few probes");
    }
}
