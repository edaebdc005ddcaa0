//! Least bandwidth: the server that sent the fewest bytes recently, for its weight.
//!
//! The least `(B + a * b) / w` wins: B are the bytes of responses that the server finished within a sliding window, a
//! its requests in flight, b the average size of a response, so that responses in progress count. Ties are broken by
//! round robin. A failure or error response counts as a response of average size, twice as much with each in a row: a
//! server that sends nothing but errors does not look free. While requests wait for a server and it answers none, its
//! window stands still, and it is charged the bytes that a typical server sends in that time: one that hangs does not
//! look free.
//!
//! The window of a server that is new or returns is empty, and would attract all requests until it has as many bytes as
//! the others. So the window begins with the average of the others for its weight.
//! Source: BalanceNG Least Bandwidth. Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a
//! completion.
//! If no server is eligible, the driver goes to the next tier.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::averages::average;
use crate::report::{Outcome, Report};
use crate::server::Slot;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::kept::Kept;
use crate::structures::scored::{Score, least_score};
use crate::structures::silence::Silence;
use crate::structures::traffic::Traffic;
use crate::structures::typical::{Failing, Typical};
use crate::tier::{SCAN, Tier};

pub(crate) const ENTRY: Entry = Entry {
    name: "least_bandwidth",
    aliases: &["least_traffic"],
    summary: "the server that sent the fewest bytes recently for its weight",
    what: "\
        The server with the smallest (B + a * b) / w gets the request: B is the size of the responses that it \
        finished within the last window, a the number of its requests in flight, b the average size of a response, w \
        its weight. B / w over the window is the bandwidth for each unit of weight; a * b estimates what is still to \
        be sent.\n\n\
        The window slides, so old responses count less and less. While a server does not answer its requests, its \
        window stands still and the server is charged what a typical server sends in that time; so a server that \
        hangs does not look free. A failure or error response counts as a response of average size. A server that is \
        new or returns begins with the average of the others. During slow start a server is skipped with probability \
        1 - current weight / full weight, and counts with the current weight. Backup servers are used when all \
        others are closed or full.",
    when: "\
        Use it for downloads and streams of very different sizes if the servers' network links are the bottleneck. \
        Set the weights to the bandwidths of the links.",
    when_not: "\
        Do not use it if anything else than the network limits the servers. It does not compare response times, so a \
        slow server gets as many bytes to send as the others, and its queue grows.",
    nginx: None,
    parameters: &[Parameter {
        name: "window",
        summary: "length of the window",
        kind: Kind::Time(10, 3_600_000),
        default: "10s",
    }],
    source: "BalanceNG Least Bandwidth",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Always,
    host: Host::Any,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        let window = spec.time("window");
        let score = Bandwidth {
            kept: Kept::new(&format!("least_bandwidth window={window}"), tier),
            window,
            size: AtomicU64::new(0),
            failing: Failing::new(tier),
            silence: Silence::new(tier),
            typical: Typical::default(),
        };
        least_score(tier, score)
    },
};

struct Bandwidth {
    /// [`Traffic`] of each server.
    kept: Kept,
    window: Nanos,
    /// Average size of a response.
    size: AtomicU64,
    failing: Failing,
    silence: Silence,
    /// Bytes within the window for a unit of weight, the median of the servers.
    typical: Typical,
}

impl Bandwidth {
    #[inline]
    fn traffic<'a>(&self, slot: &'a Slot) -> Option<Traffic<'a>> {
        self.kept.of(slot).map(Traffic::of)
    }

    /// The bytes within the window of a server.
    fn sent(&self, slot: &Slot, now: Nanos) -> f64 {
        self.traffic(slot).map_or(0.0, |traffic| traffic.bytes(now, self.window))
    }

    /// The bytes for each unit of weight of the servers that have sent any, of up to 32 after server `i`.
    fn others(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let (mut bytes, mut weight) = (0.0, 0u64);
        for k in 1..tier.len().min(SCAN + 1) {
            let slot = &tier.slots[(i + k) % tier.len()];
            let sent = self.sent(slot, now);
            if sent > 0.0 {
                bytes += sent;
                weight += u64::from(slot.weight);
            }
        }
        bytes / weight.max(1) as f64
    }
}

impl Score for Bandwidth {
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let state = &tier.slots[i].state;
        let under_way = f64::from(state.in_flight()) * self.size.load(Relaxed) as f64;
        let alive = self.silence.alive(now, i);
        let bytes = self.sent(&tier.slots[i], alive) + under_way;
        let silent = (now - alive) as f64 / self.window as f64;
        bytes * 256.0 / tier.weight(i, now) as f64 + self.typical.get() as f64 * silent
    }

    fn on_dispatch(&self, now: Nanos, tier: &Tier, i: usize) {
        let slot = &tier.slots[i];
        if let Some(traffic) = self.traffic(slot) {
            traffic.begin(now, self.window, || self.others(tier, now, i) * f64::from(slot.weight));
        }
        self.silence.on_dispatch(now, i);
    }

    fn on_header(&self, now: Nanos, i: usize, _time: Nanos) {
        self.silence.on_header(now, i);
    }

    fn wants_header(&self) -> bool {
        true
    }

    fn on_complete(&self, now: Nanos, tier: &Tier, i: usize, report: &Report, nth: u32) {
        self.silence.on_complete(now, i, report);
        self.failing.learn(now, i, report);
        let size = self.size.load(Relaxed);
        let bytes = match report.outcome {
            Outcome::Failure | Outcome::ErrorResponse => report.bytes.max(size.max(1) << self.failing.of(i)),
            _ => report.bytes,
        };
        if let Some(traffic) = self.traffic(&tier.slots[i]) {
            traffic.add(now, self.window, bytes);
        }
        // All workers share it, so not each response changes it.
        if report.outcome == Outcome::Success && (size == 0 || nth.is_multiple_of(8)) {
            average(&self.size, report.bytes);
        }
        let sent = |i: usize| self.sent(&tier.slots[i], now) / f64::from(tier.slots[i].weight.max(1));
        self.typical.learn(tier, nth, |i| Some(sent(i) as u64));
    }
}
