//! Ejection of outliers: servers that fail while others do not get no requests for a time.
//!
//! A server is ejected after failures in a row, by any worker. At the end of each interval, those are ejected whose rate of
//! successes is far below that of the others, or whose responses take far longer. Each further ejection of a server is longer. When
//! its time is over, one request finds out whether it works again; the first servers' requests are used for that, and a server of
//! a later level, which no request would reach, is simply tried again: its next failure ejects it. If so many servers are ejected or
//! down that the others could not carry the load, ejection is ignored (panic).
//!
//! Source: Envoy's outlier detection (consecutive failures, success rate, ejection time, share, panic threshold), gRPC's proposal
//! A50, and Linkerd's failure accrual (a single probe).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Feature, Settings, parameter};
use crate::Nanos;
use crate::fleet::Fleet;
use crate::server::Member;
use crate::server_state::{Authority, DOWN, EJECTED, ServerState};
use crate::spec::Kind;

/// While servers are ejected, it is looked this often whether the others can still carry the load.
const LOOK: Nanos = 1_000_000_000;

const HOUR: u64 = 3_600_000;

pub(super) static FEATURE: Feature = Feature {
    name: "outlier",
    summary: "sends no requests to servers that fail while others do not",
    parameters: &[
        parameter(
            "consecutive",
            "failures in a row after which a server is ejected; 0: any number",
            Kind::Limit(1, 1_000),
            "5",
        ),
        parameter("interval", "how often success rates and times are compared", Kind::Time(100, HOUR), "10s"),
        parameter(
            "requests",
            "a server is compared if it had so many in the interval",
            Kind::Number(1, 1_000_000),
            "100",
        ),
        parameter("servers", "rates are compared if so many servers can be", Kind::Number(2, 10_000), "5"),
        parameter(
            "deviation",
            "percent of the standard deviation by which a success rate may be below the mean; 0: any",
            Kind::Limit(1, 10_000),
            "190",
        ),
        parameter(
            "success",
            "percent of successes with which a server is not ejected by its rate, whatever the others' are",
            Kind::Number(1, 100),
            "95",
        ),
        parameter(
            "latency",
            "percent of the others' mean time that a server's may be; 0: any",
            Kind::Limit(101, 1_000_000),
            "0",
        ),
        parameter(
            "time",
            "how long the first ejection is; the second is twice as long, and so on",
            Kind::Time(1, HOUR),
            "30s",
        ),
        parameter("max_time", "how long an ejection is at most", Kind::Time(1, 24 * HOUR), "5m"),
        parameter(
            "max_ejected",
            "percent of the servers that may be ejected, but always one of several",
            Kind::Number(1, 100),
            "10",
        ),
        parameter("panic", "ejection is ignored if fewer percent of the servers are left", Kind::Number(0, 100), "50"),
    ],
    source: "Envoy's outlier detection; gRPC proposal A50; Linkerd's failure accrual",
};

#[derive(Clone, Copy, Debug)]
struct Rules {
    consecutive: u32,
    interval: Nanos,
    requests: u32,
    servers: usize,
    deviation: f64,
    success: f64,
    latency: f64,
    time: Nanos,
    max_time: Nanos,
    max_ejected: usize,
    panic: usize,
}

/// What the end of an attempt says of its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It works; the time to the response, if it counts.
    Good(Option<Nanos>),
    /// It failed, or answered with a status of 5xx.
    Bad,
    /// Nothing: the client has gone, or the status is 429.
    Unknown,
}

/// Why servers are ejected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reasons {
    /// So many failures in a row.
    Consecutive(u32),
    /// Its rate of successes, and the least that was accepted, in percent.
    SuccessRate(f64, f64),
    /// Its mean time, and that of the others, in milliseconds.
    Latency(f64, f64),
    /// Its probe has failed.
    Probe,
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Notice {
    /// A server gets no requests for a time.
    Ejected(Member, Reasons, Nanos),
    /// It gets requests again.
    Returned(Member),
    /// Too few servers are left, so that ejected ones get requests too (true); or no longer (false).
    Panic(bool),
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reasons::Consecutive(1) => f.write_str("a failure"),
            Reasons::Consecutive(count) => write!(f, "{count} failures in a row"),
            Reasons::SuccessRate(rate, least) => write!(f, "{rate:.1} % of its requests succeeded, below {least:.1} %"),
            Reasons::Latency(own, others) => write!(f, "{own:.0} ms on average, and {others:.0} ms by the others"),
            Reasons::Probe => f.write_str("a failed probe"),
        }
    }
}

/// What is known of one server. It outlives memberships.
#[derive(Default, Debug)]
struct Record {
    /// Failures in a row.
    row: AtomicU32,
    /// Of this interval: requests with a verdict, those that failed, times of the others and how many.
    requests: AtomicU32,
    failures: AtomicU32,
    time: AtomicU64,
    times: AtomicU32,
    /// When the ejection ends; 0 for a server that is not ejected.
    until: AtomicU64,
    /// Ejections; one is forgotten with each interval without one.
    ejections: AtomicU32,
    probing: AtomicBool,
}

impl Record {
    fn is_ejected(&self) -> bool {
        self.until.load(Acquire) != 0
    }

    fn begin_interval(&self) {
        for count in [&self.requests, &self.failures, &self.times] {
            count.store(0, Relaxed);
        }
        self.time.store(0, Relaxed);
    }
}

#[derive(Debug)]
struct Server {
    state: Arc<ServerState>,
    record: Arc<Record>,
    /// Its configuration counts it.
    counts: bool,
    /// A request may be taken for its probe.
    probed: bool,
}

impl Server {
    fn is_down_otherwise(&self) -> bool {
        self.state.flags() & DOWN & !EJECTED != 0
    }
}

/// What changes seldom, under the lock.
#[derive(Debug, Default)]
struct Book {
    /// Another membership is in use.
    retired: bool,
    /// When the interval ends; 0 before the first request.
    ends: Nanos,
    panics: bool,
}

/// The outliers of an upstream's servers.
#[derive(Debug)]
pub struct Outliers {
    rules: Rules,
    servers: Box<[Server]>,
    /// Servers that the rules speak of, and how many of them may be ejected.
    counted: usize,
    most: usize,
    /// When there is something to look at.
    due: AtomicU64,
    /// Servers that wait for their probe.
    waiting: AtomicU32,
    book: Mutex<Book>,
}

impl Outliers {
    /// For the servers of a fleet; what is known of them, by their states, goes on. [`Outliers::begin`] puts it to use.
    pub fn new(settings: &Settings, fleet: &Fleet, before: Option<&Outliers>) -> Outliers {
        let (number, percent) = (|name| settings.number(name), |name| settings.number(name) as f64 / 100.0);
        let rules = Rules {
            consecutive: number("consecutive") as u32,
            interval: settings.time("interval"),
            requests: number("requests") as u32,
            servers: number("servers") as usize,
            deviation: percent("deviation"),
            success: percent("success"),
            latency: percent("latency"),
            time: settings.time("time"),
            max_time: settings.time("max_time").max(settings.time("time")),
            max_ejected: number("max_ejected") as usize,
            panic: number("panic") as usize,
        };
        let known: HashMap<_, _> =
            before.iter().flat_map(|b| &b.servers).map(|s| (Arc::as_ptr(&s.state), &s.record)).collect();
        let strict = fleet.spec().is_strict();
        let server = |member: Member| {
            let (conf, state) = (fleet.server(member), fleet.shared_cell(member));
            Server {
                state: Arc::clone(state),
                record: known.get(&Arc::as_ptr(state)).map(|record| Arc::clone(record)).unwrap_or_default(),
                counts: !conf.down,
                probed: fleet.place(member).0 == 0 && !conf.backup && !strict,
            }
        };
        let servers: Box<[Server]> = fleet.members().map(server).collect();
        let counted = servers.iter().filter(|server| server.counts).count();
        let most = if servers.len() < 2 { 0 } else { (counted * rules.max_ejected / 100).max(1) };
        let (due, waiting) = (AtomicU64::new(0), AtomicU32::new(0));
        Outliers { rules, servers, counted, most, due, waiting, book: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this decides who is ejected.
    pub fn begin(&self) {
        let mut book = self.lock();
        for server in &self.servers {
            server.record.probing.store(false, Relaxed);
        }
        self.apply(&mut book, &mut |_| ());
    }

    /// Another one decides from now on, or none.
    pub fn retire(&self, next: Option<&Outliers>) {
        self.lock().retired = true;
        self.due.store(Nanos::MAX, Relaxed);
        self.waiting.store(0, Relaxed);
        if next.is_none() {
            self.servers.iter().for_each(|server| self.set_down(server, false));
        }
    }

    /// Looks at what time has brought: to be called before a server is chosen. The cost is that of a comparison, but for once in
    /// an interval, and when an ejection ends.
    #[inline]
    pub fn tick(&self, now: Nanos, tell: &mut dyn FnMut(Notice)) {
        if now >= self.due.load(Relaxed) {
            self.look(now, tell);
        }
    }

    #[cold]
    fn look(&self, now: Nanos, tell: &mut dyn FnMut(Notice)) {
        let mut book = self.lock();
        if book.retired || now < self.due.load(Relaxed) {
            return;
        }
        for (m, server) in self.servers.iter().enumerate() {
            let until = server.record.until.load(Relaxed);
            if until != 0 && until <= now && !server.probed {
                // Its next failure ejects it again.
                server.record.row.store(self.rules.consecutive.saturating_sub(1), Relaxed);
                self.restore(m, tell);
            }
        }
        if book.ends == 0 {
            book.ends = now + self.rules.interval;
        } else if book.ends <= now {
            self.compare(now, tell);
            book.ends = now + self.rules.interval;
        }
        self.apply(&mut book, tell);
        self.wait(&book, now);
    }

    /// When to look again, and how many wait for a probe.
    fn wait(&self, book: &Book, now: Nanos) {
        let ejected = || self.servers.iter().map(|server| &*server.record).filter(|record| record.is_ejected());
        let ends = ejected().map(|record| record.until.load(Relaxed)).filter(|until| *until > now);
        let look = if ejected().next().is_some() { now + LOOK } else { Nanos::MAX };
        self.due.store(ends.fold(book.ends, Nanos::min).min(look), Relaxed);
        let waits = |server: &&Server| {
            let until = server.record.until.load(Relaxed);
            let is_due = until != 0 && until <= now && !server.record.probing.load(Relaxed);
            is_due && server.probed && !server.is_down_otherwise()
        };
        let count = if book.panics { 0 } else { self.servers.iter().filter(waits).count() };
        self.waiting.store(count as u32, Relaxed);
    }

    /// Compares the servers at the end of an interval.
    fn compare(&self, now: Nanos, tell: &mut dyn FnMut(Notice)) {
        let judged = |server: &&Server| {
            !server.record.is_ejected() && server.record.requests.load(Relaxed) >= self.rules.requests
        };
        let rate = |record: &Record| {
            1.0 - f64::from(record.failures.load(Relaxed)) / f64::from(record.requests.load(Relaxed).max(1))
        };
        let rates = || self.servers.iter().filter(judged).map(|server| rate(&server.record));
        let count = rates().count();
        if self.rules.deviation > 0.0 && count >= self.rules.servers {
            let mean = rates().sum::<f64>() / count as f64;
            let variance = rates().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / count as f64;
            let least = (mean - self.rules.deviation * variance.sqrt()).min(self.rules.success);
            self.eject_worst(now, tell, |server| {
                let own = rate(&server.record);
                (judged(&server) && own < least)
                    .then_some((1.0 - own, Reasons::SuccessRate(own * 100.0, least * 100.0)))
            });
        }
        if self.rules.latency > 0.0 && count >= 2 {
            let sums = |record: &Record| (record.time.load(Relaxed) as f64, f64::from(record.times.load(Relaxed)));
            let all = self.servers.iter().filter(judged).map(|server| sums(&server.record));
            let all = all.fold((0.0, 0.0), |(time, count), (t, c)| (time + t, count + c));
            self.eject_worst(now, tell, |server| {
                let (time, count) = sums(&server.record);
                let (own, others) = (time / count.max(1.0), (all.0 - time) / (all.1 - count).max(1.0));
                (judged(&server) && all.1 > count && own > others * self.rules.latency)
                    .then_some((own, Reasons::Latency(own / 1e6, others / 1e6)))
            });
        }
        for server in &self.servers {
            server.record.begin_interval();
            if !server.record.is_ejected() {
                let ejections = server.record.ejections.load(Relaxed);
                server.record.ejections.store(ejections.saturating_sub(1), Relaxed);
            }
        }
    }

    /// Ejects the servers with the greatest badness first, as long as they may be.
    fn eject_worst(&self, now: Nanos, tell: &mut dyn FnMut(Notice), bad: impl Fn(&Server) -> Option<(f64, Reasons)>) {
        loop {
            let all = self.servers.iter().enumerate();
            let worst = all.filter_map(|(m, server)| bad(server).map(|(badness, why)| (badness, m, why)));
            let Some((_, m, why)) = worst.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
            if !self.eject(now, m, why, tell) {
                return;
            }
        }
    }

    /// Ejects a server unless too many are ejected.
    fn eject(&self, now: Nanos, m: usize, why: Reasons, tell: &mut dyn FnMut(Notice)) -> bool {
        let record = &self.servers[m].record;
        let others = self.servers.iter().enumerate().filter(|(i, server)| *i != m && server.record.is_ejected());
        if others.count() >= self.most {
            return false;
        }
        let times = record.ejections.load(Relaxed).saturating_add(1);
        let time = self.rules.time.saturating_mul(u64::from(times)).min(self.rules.max_time);
        record.ejections.store(times, Relaxed);
        record.row.store(0, Relaxed);
        record.until.store(now.saturating_add(time).max(1), Relaxed);
        tell(Notice::Ejected(Member(m as u32), why, time));
        true
    }

    fn restore(&self, m: usize, tell: &mut dyn FnMut(Notice)) {
        self.servers[m].record.until.store(0, Relaxed);
        tell(Notice::Returned(Member(m as u32)));
    }

    /// Closes the ejected servers, unless too few others are left.
    fn apply(&self, book: &mut Book, tell: &mut dyn FnMut(Notice)) {
        let is_left = |server: &&Server| server.counts && !server.record.is_ejected() && !server.is_down_otherwise();
        let left = self.servers.iter().filter(is_left).count();
        let any = self.servers.iter().any(|server| server.record.is_ejected());
        let panics = any && left * 100 < self.counted * self.rules.panic;
        if panics != book.panics {
            book.panics = panics;
            tell(Notice::Panic(panics));
        }
        for server in &self.servers {
            self.set_down(server, server.record.is_ejected() && !panics);
        }
    }

    fn set_down(&self, server: &Server, down: bool) {
        if server.state.is_down_by(Authority::Outlier) != down {
            server.state.set_down_by(Authority::Outlier, down);
        }
    }

    /// A server whose ejection is over, for a request that finds out whether it works again: take a slot of it with
    /// [`crate::Driver::claim_probe`], and report the end with [`Outliers::complete`]. No other request is given it meanwhile.
    #[inline]
    pub fn probe(&self, now: Nanos) -> Option<Member> {
        if self.waiting.load(Relaxed) == 0 { None } else { self.find_probe(now) }
    }

    #[cold]
    fn find_probe(&self, now: Nanos) -> Option<Member> {
        let book = self.lock();
        let waits = |server: &Server| {
            let until = server.record.until.load(Relaxed);
            server.probed && until != 0 && until <= now && !server.is_down_otherwise()
        };
        let found = self.servers.iter().position(|server| waits(server) && !server.record.probing.load(Relaxed));
        let found = found.filter(|_| !book.retired && !book.panics)?;
        self.servers[found].record.probing.store(true, Relaxed);
        self.waiting.fetch_sub(1, AcqRel);
        Some(Member(found as u32))
    }

    /// The server of a probe does not take a request now; it is asked again in a second.
    pub fn refused(&self, now: Nanos, member: Member) {
        let book = self.lock();
        let record = &self.servers[member.0 as usize].record;
        record.probing.store(false, Relaxed);
        if record.is_ejected() {
            record.until.store(now + LOOK, Relaxed);
        }
        self.wait(&book, now);
    }

    /// An attempt has ended; `probe` if [`Outliers::probe`] has given its server.
    #[inline]
    pub fn complete(&self, now: Nanos, member: Member, verdict: Verdict, probe: bool, tell: &mut dyn FnMut(Notice)) {
        let m = member.0 as usize;
        let record = &*self.servers[m].record;
        if probe || record.is_ejected() {
            return self.decide(now, m, verdict, probe, tell);
        }
        match verdict {
            Verdict::Good(time) => {
                if record.row.load(Relaxed) != 0 {
                    record.row.store(0, Relaxed);
                }
                record.requests.fetch_add(1, Relaxed);
                if let Some(time) = time.filter(|_| self.rules.latency > 0.0) {
                    record.time.fetch_add(time, Relaxed);
                    record.times.fetch_add(1, Relaxed);
                }
            }
            Verdict::Bad => {
                record.requests.fetch_add(1, Relaxed);
                record.failures.fetch_add(1, Relaxed);
                let row = record.row.fetch_add(1, AcqRel).saturating_add(1);
                if self.rules.consecutive != 0 && row >= self.rules.consecutive {
                    self.fail(now, m, row, tell);
                }
            }
            Verdict::Unknown => {}
        }
    }

    #[cold]
    fn fail(&self, now: Nanos, m: usize, row: u32, tell: &mut dyn FnMut(Notice)) {
        let mut book = self.lock();
        let server = &self.servers[m];
        if book.retired || server.record.is_ejected() {
            return;
        }
        if self.eject(now, m, Reasons::Consecutive(row), tell) {
            self.apply(&mut book, tell);
            self.wait(&book, now);
        }
    }

    /// What a request says of an ejected server: it is its probe, or the ejection is over and ignored. Others were under way before.
    #[cold]
    fn decide(&self, now: Nanos, m: usize, verdict: Verdict, probe: bool, tell: &mut dyn FnMut(Notice)) {
        let record = &*self.servers[m].record;
        let until = record.until.load(Relaxed);
        let is_open = until != 0 && until <= now && !self.servers[m].state.is_down_by(Authority::Outlier);
        if !probe && !is_open {
            return;
        }
        let mut book = self.lock();
        if book.retired {
            return;
        }
        if probe {
            record.probing.store(false, Relaxed);
        }
        if record.is_ejected() {
            match verdict {
                Verdict::Good(_) => {
                    record.row.store(0, Relaxed);
                    self.restore(m, tell);
                }
                Verdict::Bad => {
                    self.eject(now, m, Reasons::Probe, tell);
                }
                Verdict::Unknown => {}
            }
        }
        self.apply(&mut book, tell);
        self.wait(&book, now);
    }

    /// Whether a server is ejected, and since when it may be probed: a time to come or past.
    pub fn ejected_until(&self, member: Member) -> Option<Nanos> {
        Some(self.servers[member.0 as usize].record.until.load(Relaxed)).filter(|until| *until != 0)
    }
}

#[cfg(test)]
mod tests;
