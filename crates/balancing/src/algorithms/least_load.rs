//! Least load: the server with the least load now, as it reported it last and with what has changed since.
//!
//! A report is a number of the past: seconds old, of a time when the server had `r` requests of ours in flight. Its load
//! with one more is taken to be `L + s * (a + 1 - r)`, where L is the load that it reported last (1.0 is fully busy), a its
//! requests in flight and s what one of them adds. So what is in flight counts as it is now, only what the server does besides is as
//! old as the report, and requests do not all run to the server that had the least load some seconds ago. By default s
//! comes from the reports: the average load of the server over its average requests in flight. Where that is not known, a
//! request is a whole server's load over the weight, which is shortest expected delay. A failure or error response adds the load
//! of a busy server, twice as much with each in a row, until a success or some seconds without requests: a server that
//! fails fast does not look idle.
//! A server without a report, or whose report is too old, is taken to do besides what the median of the others does.
//! Source: Octopus least load, BalanceNG Least Resource; the change since the report: Dahlin, "Interpreting stale load
//! information" (1999). Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a completion.
//! Nobody eligible: the driver goes on to the next level.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::driver::Report;
use crate::fleet::Level;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::structures::typical::{Failing, Typical};

pub(crate) const ENTRY: Entry = Entry {
    name: "least_load",
    aliases: &["least_resource"],
    summary: "the server with the least load, as it reported it last and with what has changed since",
    description: "\
        The server with the least L + s * (a + 1 - r) gets the request: L is the load that it reported last, from 0 to 1 when \
        it is fully busy, a counts its requests in flight, r those that it had when it reported, and s is what one of them \
        adds. So the requests in flight count as they are now, and only the load that other work causes is as old as the \
        report: reports that are seconds apart do not send everything to one server in between.\n\n\
        By default s is the server's average load over its average requests in flight, as the reports tell them; \
        session_weight sets it, for a server of weight 1. Weights count where s is not known: a server of weight w takes 1 \
        / w for a request.\n\n\
        For servers that do other work as well, or whose requests cost very different amounts of what the balancer cannot \
        see. Reports older than stale do not count; a server without one is taken to do as much other work as the median \
        of the others, so that without any reports the connections decide. In slow start what a server has in flight \
        counts for more, and it is passed over as often as its weight is short of the whole. Backups are used when all \
        others are closed or full.",
    nginx: None,
    parameters: &[
        Parameter {
            name: "session_weight",
            summary: "load that one request in flight adds, in percent of a busy server; 0 takes it from the reports",
            kind: Kind::Number(0, 100),
            default: "0",
        },
        Parameter {
            name: "stale",
            summary: "age at which a report does not count any more",
            kind: Kind::Time(1, 86_400_000),
            default: "15s",
        },
    ],
    source: "Octopus least load; BalanceNG Least Resource; Dahlin 1999",
    cost: "a scan up to 32 servers, then O(log n)",
    linear: false,
    times: Times::Always,
    host: Host::Reports,
    share: Share::Load,
    key: Key::None,
    backup: true,
    build: |spec, level| {
        let session = spec.number("session_weight") as f64 / 100.0;
        let stale = spec.time("stale");
        let (rest, unit, failing) = (Typical::default(), AtomicU64::new(0), Failing::new(level));
        least_score(level, Load { session, stale, rest, unit, failing })
    },
};

/// Loads that other work causes are rounded to a part of 2^32, so that servers without a report are neither before nor
/// behind the median, but take turns with it; and stored above this, so that they are no less than 1.
const PARTS: f64 = (1u64 << 32) as f64;
const BASE: u64 = 1 << 62;

/// The request that is to be sent, in the parts in which a level counts burdens. Without it all idle servers were equal.
const ONE: u64 = 256;

struct Load {
    /// What a request adds to a server of weight 1; 0 if the reports tell.
    session: f64,
    stale: Nanos,
    /// The median of the load that other work causes; 0 if nobody reports.
    rest: Typical,
    /// What a request adds to a server of weight 1 on average, the bits of an `f64`; 0 if nobody's reports tell.
    unit: AtomicU64,
    failing: Failing,
}

impl Load {
    /// What a request adds to a server; by its own reports only while they are not too old.
    #[inline]
    fn of_one(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        let slot = &level.slots[i];
        let typical = || match f64::from_bits(self.unit.load(Relaxed)) {
            0.0 => 1.0,
            unit => unit,
        };
        let by_weight = |unit: f64| unit / f64::from(slot.weight);
        if self.session != 0.0 {
            return by_weight(self.session);
        }
        let reports = &slot.cell.reports;
        let known = reports.last(now, self.stale).and_then(|_| reports.load_of_one());
        known.unwrap_or_else(|| by_weight(typical()))
    }

    /// The load of a server that reports without the requests that it had in flight: what other work causes.
    #[inline]
    fn rest(&self, level: &Level, now: Nanos, i: usize, of_one: f64) -> Option<f64> {
        let (load, in_flight) = level.slots[i].cell.reports.last(now, self.stale)?;
        Some(((load - of_one * f64::from(in_flight)) * PARTS).round())
    }
}

impl Score for Load {
    fn score(&self, level: &Level, now: Nanos, i: usize) -> f64 {
        let of_one = self.of_one(level, now, i);
        let rest = self.rest(level, now, i, of_one);
        let rest = rest.unwrap_or_else(|| match self.rest.get() {
            0 => 0.0,
            median => median.wrapping_sub(BASE) as i64 as f64,
        });
        let load = rest / PARTS + of_one * (level.burden(i, now) + ONE) as f64 / ONE as f64;
        load.max(0.0) + self.failing.load(now, i)
    }

    fn on_complete(&self, now: Nanos, level: &Level, i: usize, report: &Report, nth: u32) {
        self.failing.learn(now, i, report);
        if nth % 16 != 1 {
            return;
        }
        let rest =
            |i| self.rest(level, now, i, self.of_one(level, now, i)).map(|rest| BASE.wrapping_add(rest as i64 as u64));
        if !self.rest.sample(level, rest) {
            self.rest.clear();
        }
        let n = level.len();
        let some = (0..n.min(SAMPLE)).map(|k| &level.slots[(nth as usize + k) % n]);
        let (mut sum, mut count) = (0.0, 0u32);
        for slot in some {
            if let Some(of_one) = slot.cell.reports.load_of_one() {
                sum += of_one * f64::from(slot.weight);
                count += 1;
            }
        }
        if count > 0 {
            self.unit.store((sum / f64::from(count)).to_bits(), Relaxed);
        }
    }
}

/// Servers that the average of what a request adds is taken of.
const SAMPLE: usize = 32;
