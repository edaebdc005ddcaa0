//! Least load: the server with the least load now, by its last report and the requests since then.
//!
//! A report is seconds old, and usually an average over the time since the one before; the server had `r` of our requests
//! in flight then, on average over the same time. The load with one more request is estimated as `L + s * (a + 1 - r)`: L
//! is the last reported load (1.0 is fully busy), a the requests in flight now, s the load that one request adds. So
//! requests in flight count as they are now, only the load of other work is as old as the report, and requests do not all
//! go to the server that had the least load some seconds ago. By default s comes from the reports: the average load over
//! the average requests in flight, of the server and of all servers. Where no reports tell s, it is 1 over the weight,
//! which is shortest expected delay. A failure or error response adds the load of a busy server, twice as much with each
//! in a row, until a success or some seconds without requests: a server that fails fast does not look idle. A server whose
//! report is missing or too old is assumed to have the median of the others' other work.
//! Source: Octopus least load, BalanceNG Least Resource; the change since the report: Dahlin, "Interpreting stale load
//! information" (1999). Cost: a scan of up to 32 servers; beyond, O(log8 n) for a pick, a dispatch and a completion.
//! If no server is eligible, the driver goes to the next tier.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::report::Report;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::{Score, least_score};
use crate::structures::typical::{Failing, Typical};
use crate::tier::Tier;

pub(crate) const ENTRY: Entry = Entry {
    name: "least_load",
    aliases: &["least_resource"],
    summary: "the server with the least load: its last report, and the requests since then",
    what: "\
        The server with the smallest L + s * (a + 1 - r) gets the request: L is the load that it reported last (1 is \
        fully busy), a the number of its requests in flight, r the average of that number between the last two \
        reports, s the load that one request adds. So requests count as they are now, and only the load of other \
        work is as old as the report: servers are not flooded between two reports. Reports should be averages over \
        the time since the report before, as the loads of operating systems are.\n\n\
        By default s is the server's average load divided by its average number of requests in flight, both from the \
        reports. The average of all servers, in inverse proportion to their weights, counts as much as one request in \
        flight of its own. session_weight sets s instead, for a server of weight 1; for weight w it is divided by w. \
        Reports older than stale are ignored. A server without a report is assumed to have the median of the other \
        servers' other work; without any reports this is shortest_expected_delay. Failures and error responses in a \
        row add the load of a busy server. During slow start a server is skipped with probability 1 - current weight \
        / full weight, and its requests in flight are divided by the current weight. Backup servers are used when all \
        others are closed or full.",
    when: "\
        Use it for servers that do other work as well, and for requests whose cost the balancer cannot see (CPU, \
        GPU, memory, licences).",
    when_not: "\
        Do not use it if the servers do not report their load: use shortest_expected_delay or combined. Set \
        session_weight if the reported load does not grow with the number of requests in flight.",
    nginx: None,
    parameters: &[
        Parameter {
            name: "session_weight",
            summary: "load that one request in flight adds, in percent of a fully busy server; 0 takes it from the reports",
            kind: Kind::Number(0, 100),
            default: "0",
        },
        Parameter {
            name: "stale",
            summary: "age above which a report is ignored",
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
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        let session = spec.number("session_weight") as f64 / 100.0;
        let stale = spec.time("stale");
        let (rest, unit, failing) = (Typical::default(), AtomicU64::new(0), Failing::new(tier));
        least_score(tier, Load { session, stale, rest, unit, failing, tells: tier.tell_presence() })
    },
};

/// Loads that other work causes are rounded to a part of 2^32, so that servers without a report tie with the median;
/// and stored above `BASE`, so that they are at least 1.
const PARTS: f64 = (1u64 << 32) as f64;
const BASE: u64 = 1 << 62;

/// The request that is to be sent, in the parts in which a tier counts burdens. Without it all idle servers were equal.
const ONE: u64 = 256;

struct Load {
    /// What a request adds to a server of weight 1; 0 if the reports tell.
    session: f64,
    stale: Nanos,
    /// The median of the load that other work causes; 0 if no server reports.
    rest: Typical,
    /// What a request adds to a server of weight 1, by the reports of some servers together: the bits of an `f64`; 0 if they
    /// do not tell.
    unit: AtomicU64,
    failing: Failing,
    /// It tells the states of requests in flight.
    tells: bool,
}

impl Load {
    /// What a request adds to a server: by its own reports, while they are not too old, and by those of all servers. Reports
    /// with almost no requests say almost nothing of it: where one short request did not show in the load, the next hundred
    /// would seem to add nothing.
    #[inline]
    fn of_one(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let slot = &tier.slots[i];
        let by_weight = |unit: f64| unit / f64::from(slot.weight);
        if self.session != 0.0 {
            return by_weight(self.session);
        }
        let typical = match f64::from_bits(self.unit.load(Relaxed)) {
            0.0 => return by_weight(1.0),
            unit => by_weight(unit),
        };
        let reports = &slot.state.reports;
        let (load, in_flight) = match reports.last(now, self.stale) {
            Some(_) => reports.averages(),
            None => (0.0, 0.0),
        };
        (load + OTHERS * typical) / (in_flight + OTHERS)
    }

    /// The load of a server that reports without the requests that it had in flight: what other work causes.
    #[inline]
    fn rest(&self, tier: &Tier, now: Nanos, i: usize, of_one: f64) -> Option<f64> {
        let (load, in_flight) = tier.slots[i].state.reports.last(now, self.stale)?;
        Some(((load - of_one * in_flight) * PARTS).round())
    }
}

impl Score for Load {
    fn score(&self, tier: &Tier, now: Nanos, i: usize) -> f64 {
        let of_one = self.of_one(tier, now, i);
        let rest = self.rest(tier, now, i, of_one);
        let rest = rest.unwrap_or_else(|| match self.rest.get() {
            0 => 0.0,
            median => median.wrapping_sub(BASE) as i64 as f64,
        });
        let load = rest / PARTS + of_one * (tier.burden(i, now) + ONE) as f64 / ONE as f64;
        load.max(0.0) + self.failing.load(now, i)
    }

    #[inline]
    fn on_dispatch(&self, now: Nanos, tier: &Tier, i: usize) {
        if self.tells {
            tier.slots[i].state.presence.on_dispatch(now);
        }
    }

    fn on_complete(&self, now: Nanos, tier: &Tier, i: usize, report: &Report, nth: u32) {
        if self.tells {
            tier.slots[i].state.presence.on_complete(now);
        }
        self.failing.learn(now, i, report);
        if nth % 16 != 1 {
            return;
        }
        let rest =
            |i| self.rest(tier, now, i, self.of_one(tier, now, i)).map(|rest| BASE.wrapping_add(rest as i64 as u64));
        if !self.rest.sample(tier, rest) {
            self.rest.clear();
        }
        let n = tier.len();
        let some = (0..n.min(SAMPLE)).map(|k| &tier.slots[(nth as usize + k) % n]);
        let (mut loads, mut requests) = (0.0, 0.0);
        for slot in some {
            let (load, in_flight) = slot.state.reports.averages();
            if in_flight > 0.0 {
                loads += load * f64::from(slot.weight);
                requests += in_flight;
            }
        }
        if loads > 0.0 {
            self.unit.store((loads / requests).to_bits(), Relaxed);
        }
    }
}

/// The reports of all servers count as much as those of a server with so many requests in flight.
const OTHERS: f64 = 1.0;
/// Servers whose reports are taken together for what a request adds.
const SAMPLE: usize = 32;
