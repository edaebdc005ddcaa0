//! The shared hot state of one server.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::Nanos;
use crate::averages::{Presence, average};
use crate::reports::Reports;

/// Requests in flight take the low bits of `load`, so that a dispatch is one atomic addition.
const IN_FLIGHT_BITS: u32 = 24;
const IN_FLIGHT: u64 = (1 << IN_FLIGHT_BITS) - 1;
const ONE_MORE: u64 = (1 << IN_FLIGHT_BITS) + 1;

/// Takes no new requests: down, draining, or a share of 0.
pub(crate) const CLOSED: u32 = DOWN | DRAINING | NOTHING;
/// Takes less or more than its weight: slow start, or a share other than 100 percent.
pub(crate) const ADJUSTED: u32 = WARMING | 0xff << SHARE_SHIFT;
/// Has a limit set at run time.
pub(crate) const LIMITED: u32 = 16;
/// Has a limit that was found by measuring.
pub(crate) const MEASURED: u32 = 1 << 17;

// Bits of `ServerState::flags`; 0 is a server in its normal flags.
pub(crate) const DOWN: u32 = 1 | 1 << 5 | 1 << 6 | 1 << 7 | EJECTED;
/// Of [`Authority::Outlier`]: a server with no other bit of these may be tried by a probe.
pub(crate) const EJECTED: u32 = 1 << 16;
const DRAINING: u32 = 2;
const NOTHING: u32 = 4;
const WARMING: u32 = 8;
/// Eight bits with the share in percent, exclusive or 100.
const SHARE_SHIFT: u32 = 8;
const NORMAL_SHARE: u32 = 100;
/// The other bits count slow starts, so that the end of one does not end the next.
const WARM_UP: u32 = 1 << 18;

/// Who says that a server is down. It is up when none of them does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Authority {
    /// The operator.
    Operator = 1,
    /// The agent on the server.
    Agent = 1 << 5,
    /// A health check.
    HealthCheck = 1 << 6,
    /// The server was removed from its upstream.
    Membership = 1 << 7,
    /// It is ejected as an outlier ([`crate::overload::Outliers`]).
    Outlier = EJECTED,
}

/// What an algorithm can keep in a state: see [`ServerState::words`].
pub(crate) type Words = [AtomicU64; 4];

/// The shared hot state of one server: counters, failures, averages of times.
///
/// It has three cache lines: the fields of every request, those that operators and a few algorithms change, and
/// reports. A fleet built after a reload gets the states of the servers that stay, so their state is kept. Workers
/// update it without locks: of two samples of an average written at the same time one may be lost, counts are never
/// lost.
#[repr(C, align(64))]
#[derive(Default, Debug)]
pub struct ServerState {
    /// Low 24 bits: in flight; the rest: requests sent so far.
    load: AtomicU64,
    /// Failures since the server's last success.
    fails: AtomicU32,
    flags: AtomicU32,
    /// When the server was last chosen, as far as the fail timeout needs it.
    checked: AtomicU64,
    /// When it last failed.
    accessed: AtomicU64,
    /// Averages in nanoseconds; 0 before the first sample.
    header_time: AtomicU64,
    last_byte_time: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,

    // The second line.
    /// When the slow start began; 0 if it begins with the next look at the server.
    warm_since: AtomicU64,
    max_conns: AtomicU32,
    /// The limit found by measuring.
    ceiling: AtomicU32,
    /// What an algorithm keeps here, and which one does: 0 is none.
    owner: AtomicU64,
    words: Words,
    /// Requests in flight over time, if the algorithm tells it of them.
    pub(crate) presence: Presence,
    /// What it reports of its load: a line of its own.
    pub(crate) reports: Reports,
}

impl ServerState {
    /// A new server.
    pub fn new() -> ServerState {
        ServerState::default()
    }

    /// Requests in flight now.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.load.load(Acquire) & IN_FLIGHT) as u32
    }

    /// Requests sent to the server so far, failed attempts included.
    pub fn requests(&self) -> u64 {
        self.load.load(Relaxed) >> IN_FLIGHT_BITS
    }

    /// Failed attempts so far.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Bytes of responses so far, as reported on completion.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Failures counted against `max_fails`.
    #[inline]
    pub fn fails(&self) -> u32 {
        self.fails.load(Acquire)
    }

    /// Moving average of the time to the response's header; `None` before the first successful response.
    pub fn header_time(&self) -> Option<Nanos> {
        Some(self.header_time.load(Relaxed)).filter(|t| *t != 0)
    }

    /// Moving average of the time to the response's last byte; `None` before the first successful response.
    pub fn last_byte_time(&self) -> Option<Nanos> {
        Some(self.last_byte_time.load(Relaxed)).filter(|t| *t != 0)
    }

    /// The operator marks the server as down (true) or not, in addition to the configuration. When it is up again, slow
    /// start begins.
    pub fn set_down(&self, down: bool) {
        self.set_down_by(Authority::Operator, down);
    }

    /// The same for any authority: one cannot undo what another has said.
    pub fn set_down_by(&self, authority: Authority, down: bool) {
        self.set(authority as u32, down);
    }

    /// Whether this authority says that it is down.
    pub fn is_down_by(&self, authority: Authority) -> bool {
        self.flags() & authority as u32 != 0
    }

    /// Whether it is down, whoever says so.
    pub fn is_down(&self) -> bool {
        self.flags() & DOWN != 0
    }

    /// Marks the server as draining: it finishes its requests and takes no new ones. When draining ends, slow start
    /// begins.
    pub fn set_draining(&self, draining: bool) {
        self.set(DRAINING, draining);
    }

    /// Whether [`ServerState::set_draining`] holds.
    pub fn is_draining(&self) -> bool {
        self.flags() & DRAINING != 0
    }

    fn set(&self, bit: u32, on: bool) {
        if on {
            self.flags.fetch_or(bit, AcqRel);
            return;
        }
        let before = self.flags.fetch_and(!bit, AcqRel);
        if before & bit != 0 && before & !bit & (DOWN | DRAINING) == 0 {
            self.begin_slow_start(0);
        }
    }

    /// Sets the share of its weight that the server takes, in percent: 100 is normal, 0 takes no new requests, 255 is
    /// the maximum. Shares above 100 have an effect only with algorithms that compare scores.
    pub fn set_share(&self, percent: u32) {
        let share = percent.min(255);
        let nothing = if share == 0 { NOTHING } else { 0 };
        let change = |flags: u32| {
            let rest = flags & !(NOTHING | 0xff << SHARE_SHIFT);
            Some(rest | nothing | (share ^ NORMAL_SHARE) << SHARE_SHIFT)
        };
        // The closure always gives a value, so the update cannot fail.
        let _ = self.flags.fetch_update(AcqRel, Acquire, change);
    }

    /// The share set with [`ServerState::set_share`], in percent.
    pub fn share(&self) -> u32 {
        (self.flags() >> SHARE_SHIFT & 0xff) ^ NORMAL_SHARE
    }

    /// Sets a limit of requests in flight that replaces the configured one: `Some(0)` is no limit, `None` the configured.
    pub fn set_max_conns(&self, limit: Option<u32>) {
        if let Some(limit) = limit {
            self.max_conns.store(limit, Relaxed);
            self.flags.fetch_or(LIMITED, AcqRel);
        } else {
            self.flags.fetch_and(!LIMITED, AcqRel);
        }
    }

    /// The limit set with [`ServerState::set_max_conns`].
    pub fn max_conns_override(&self) -> Option<u32> {
        (self.flags() & LIMITED != 0).then(|| self.max_conns.load(Relaxed))
    }

    /// Sets a limit of requests in flight that was found by measuring, beside all others; `None` is none.
    pub(crate) fn set_ceiling(&self, limit: Option<u32>) {
        if let Some(limit) = limit {
            self.ceiling.store(limit, Relaxed);
            self.flags.fetch_or(MEASURED, AcqRel);
        } else {
            self.flags.fetch_and(!MEASURED, AcqRel);
        }
    }

    /// The limit found by measuring ([`crate::overload::Concurrency`]).
    pub fn ceiling(&self) -> Option<u32> {
        (self.flags() & MEASURED != 0).then(|| self.ceiling.load(Relaxed))
    }

    /// Begins the slow start of a server with `slow_start`: its weight grows to the full weight over that time. For
    /// servers that are new in a running fleet; for servers that return it begins by itself.
    pub fn warm_up(&self, now: Nanos) {
        self.begin_slow_start(now.max(1));
    }

    fn begin_slow_start(&self, since: Nanos) {
        self.warm_since.store(since, Relaxed);
        let begin = |flags: u32| Some(flags.wrapping_add(WARM_UP) | WARMING);
        let _ = self.flags.fetch_update(AcqRel, Acquire, begin);
    }

    /// When the slow start under way began; `None` if none is, or if no pick has looked at the server since it was due.
    pub fn slow_start_since(&self) -> Option<Nanos> {
        let warming = self.flags() & WARMING != 0;
        Some(self.warm_since.load(Relaxed)).filter(|since| warming && *since != 0)
    }

    /// The time since the slow start began; `None` if there is none. Ends it after `slow_start`.
    pub(crate) fn warming(&self, now: Nanos, slow_start: Nanos) -> Option<Nanos> {
        let flags = self.flags();
        if flags & WARMING == 0 {
            return None;
        }
        let due = self.warm_since.compare_exchange(0, now.max(1), Relaxed, Relaxed);
        let elapsed = now.saturating_sub(due.map_or_else(|since| since, |_| now));
        if elapsed < slow_start {
            return Some(elapsed);
        }
        // Fails if another slow start has begun meanwhile, so that this does not end it.
        let _ = self.flags.compare_exchange(flags, flags & !WARMING, AcqRel, Relaxed);
        None
    }

    /// The same for those that only look: nothing begins or ends.
    pub(crate) fn warmed(&self, now: Nanos, slow_start: Nanos) -> Option<Nanos> {
        let since = match self.warm_since.load(Relaxed) {
            0 => now,
            since => since,
        };
        let elapsed = now.saturating_sub(since);
        (self.flags() & WARMING != 0 && elapsed < slow_start).then_some(elapsed)
    }

    /// Stores the load that the server reports: 0.0 is idle, 1.0 fully busy, more is overload.
    pub fn report_load(&self, now: Nanos, load: f64) {
        if !load.is_nan() {
            self.reports.add(now, load, &self.presence, self.requests());
        }
    }

    /// The load that the server reported, if it did so within `max_age`.
    #[inline]
    pub fn reported_load(&self, now: Nanos, max_age: Nanos) -> Option<f64> {
        self.reports.last(now, max_age).map(|(load, _)| load)
    }

    /// Forgets the reported load.
    pub fn clear_report(&self) {
        self.reports.clear();
    }

    /// Copies the state of another state of the same server, except the requests in flight, which end in the other state.
    /// For programs that replace their states with their configuration. Call it before the first pick.
    pub fn remember(&self, before: &ServerState) {
        self.load.store(before.requests() << IN_FLIGHT_BITS, Relaxed);
        let copy = |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Relaxed), Relaxed);
        copy(&self.checked, &before.checked);
        copy(&self.accessed, &before.accessed);
        copy(&self.header_time, &before.header_time);
        copy(&self.last_byte_time, &before.last_byte_time);
        copy(&self.bytes, &before.bytes);
        copy(&self.failures, &before.failures);
        copy(&self.warm_since, &before.warm_since);
        self.max_conns.store(before.max_conns.load(Relaxed), Relaxed);
        self.ceiling.store(before.ceiling.load(Relaxed), Relaxed);
        self.reports.remember(&before.reports);
        let (owner, own) = (before.owner.load(Acquire), self.owner.load(Acquire));
        if own == 0 || own == owner {
            self.words.iter().zip(&before.words).for_each(|(to, from)| copy(to, from));
            self.owner.store(owner, Release);
        }
        self.fails.store(before.fails(), Relaxed);
        self.flags.store(before.flags(), Release);
    }

    /// Gives the words to an algorithm, with 0 in each unless they are its own already.
    pub(crate) fn give_words(&self, owner: u64) {
        if self.owner.swap(owner, AcqRel) != owner {
            self.words.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// The words of an algorithm, unless another one has got them.
    #[inline]
    pub(crate) fn words(&self, owner: u64) -> Option<&Words> {
        (self.owner.load(Acquire) == owner).then_some(&self.words)
    }

    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Acquire)
    }

    #[inline]
    pub(crate) fn checked(&self) -> Nanos {
        self.checked.load(Relaxed)
    }

    /// Takes a slot. With a limit (not 0) it fails when all slots are taken, for any number of threads.
    #[inline]
    pub(crate) fn acquire(&self, max_conns: u32) -> bool {
        if max_conns == 0 {
            self.load.fetch_add(ONE_MORE, AcqRel);
            return true;
        }
        let take = |load: u64| (load & IN_FLIGHT < u64::from(max_conns)).then_some(load + ONE_MORE);
        self.load.fetch_update(AcqRel, Acquire, take).is_ok()
    }

    #[inline]
    pub(crate) fn release(&self) {
        let before = self.load.fetch_sub(1, AcqRel);
        debug_assert!(before & IN_FLIGHT > 0, "a slot released twice");
    }

    /// Stores that the server was chosen; once in a fail timeout is enough.
    #[inline]
    pub(crate) fn touch(&self, now: Nanos, fail_timeout: Nanos) {
        if now.saturating_sub(self.checked()) > fail_timeout {
            self.checked.store(now, Relaxed);
        }
    }

    /// Counts a failure; returns the failures before it and the time of the last one.
    pub(crate) fn fail(&self, now: Nanos) -> (u32, Nanos) {
        self.failures.fetch_add(1, Relaxed);
        let last = self.accessed.swap(now, Relaxed);
        self.checked.store(now, Relaxed);
        (self.fails.fetch_add(1, AcqRel), last)
    }

    /// Forgets the failures if the server was chosen again after the last of them.
    ///
    /// Returns how many there were.
    #[inline]
    pub(crate) fn succeed(&self) -> u32 {
        let fails = self.fails.load(Relaxed);
        let alive = fails != 0 && self.accessed.load(Relaxed) < self.checked();
        if alive {
            self.fails.store(0, Relaxed);
            return fails;
        }
        0
    }

    /// Forgets the failures.
    #[inline]
    pub(crate) fn forgive(&self) {
        if self.fails.load(Relaxed) != 0 {
            self.fails.store(0, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn add_bytes(&self, bytes: u64) {
        if bytes != 0 {
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn add_header_time(&self, sample: Nanos) {
        average(&self.header_time, sample);
    }

    #[inline]
    pub(crate) fn add_last_byte_time(&self, sample: Nanos) {
        average(&self.last_byte_time, sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_part_fits_a_cache_line() {
        assert_eq!((size_of::<ServerState>(), align_of::<ServerState>()), (192, 64));
        assert_eq!(
            (std::mem::offset_of!(ServerState, warm_since), std::mem::offset_of!(ServerState, reports)),
            (64, 128)
        );
    }

    #[test]
    fn states_are_independent() {
        let state = ServerState::new();
        assert_eq!((state.flags(), state.share(), state.max_conns_override()), (0, 100, None));
        state.set_share(40);
        state.set_max_conns(Some(7));
        state.set_down(true);
        assert_eq!((state.share(), state.max_conns_override(), state.is_down()), (40, Some(7), true));
        state.set_share(0);
        state.set_down(false);
        assert!(state.flags() & CLOSED != 0 && !state.is_down() && !state.is_draining());
        state.set_share(1_000);
        assert_eq!((state.share(), state.flags() & CLOSED), (255, 0));
        state.set_share(100);
        state.set_max_conns(None);
        assert_eq!((state.flags() & ADJUSTED, state.max_conns_override()), (WARMING, None));
        assert_eq!(state.warming(50, 10), Some(0), "begins with the first look");
        assert_eq!((state.slow_start_since(), state.warming(59, 10), state.warming(60, 10)), (Some(50), Some(9), None));
        assert_eq!((state.slow_start_since(), state.flags() & ADJUSTED), (None, 0));
    }

    #[test]
    fn one_authority_cannot_undo_another() {
        use Authority::{Agent, HealthCheck, Membership, Operator, Outlier};
        let state = ServerState::new();
        let pairs = [(Operator, Agent), (Agent, HealthCheck), (HealthCheck, Membership), (Membership, Outlier)];
        for (first, second) in pairs {
            state.set_down_by(first, true);
            state.set_down_by(second, true);
            state.set_down_by(first, false);
            assert!(state.is_down() && state.flags() & ADJUSTED == 0, "{second:?} still says so");
            state.set_down_by(second, false);
            assert!(!state.is_down() && state.flags() & ADJUSTED == WARMING, "slow start begins");
            assert_eq!(state.warming(50, 10), Some(0));
            assert_eq!(state.warming(60, 10), None);
        }
    }

    #[test]
    fn reports_grow_old() {
        let state = ServerState::new();
        assert_eq!(state.reported_load(5, 10), None);
        state.report_load(0, 0.5);
        assert_eq!((state.reported_load(10, 10), state.reported_load(11, 10)), (Some(0.5), None));
        state.report_load(20, f64::NAN);
        assert_eq!(state.reported_load(20, 10), None);
        state.report_load(20, -3.0);
        assert_eq!(state.reported_load(20, 0), Some(0.0));
        state.clear_report();
        assert_eq!(state.reported_load(20, 10), None);
    }

    #[test]
    fn a_new_cell_takes_over_all_but_the_requests_in_flight() {
        let old = ServerState::new();
        assert!(old.acquire(0) && old.acquire(0));
        old.release();
        old.fail(30);
        old.touch(90, 10);
        old.add_bytes(7);
        old.add_header_time(11);
        old.add_last_byte_time(12);
        old.set_share(40);
        old.set_max_conns(Some(3));
        old.warm_up(20);
        old.report_load(25, 0.5);
        old.give_words(6);
        old.words(6).unwrap()[3].store(77, Relaxed);
        let new = ServerState::new();
        new.remember(&old);
        assert_eq!((new.in_flight(), new.requests()), (0, 2));
        // All that is printed but the requests in flight is equal.
        old.release();
        assert_eq!(format!("{new:?}"), format!("{old:?}"));
        // Another algorithm's words are not taken over, its own are.
        let other = ServerState::new();
        other.give_words(7);
        other.remember(&old);
        assert!(other.words(6).is_none() && other.words(7).unwrap()[3].load(Relaxed) == 0);
        let same = ServerState::new();
        same.give_words(6);
        same.remember(&old);
        assert_eq!(same.words(6).unwrap()[3].load(Relaxed), 77);
    }

    #[test]
    fn words_belong_to_one_algorithm() {
        let state = ServerState::new();
        assert!(state.words(1).is_none());
        state.give_words(1);
        state.words(1).unwrap()[0].store(5, Relaxed);
        state.give_words(1);
        assert_eq!(state.words(1).unwrap()[0].load(Relaxed), 5);
        state.give_words(2);
        assert!(state.words(1).is_none() && state.words(2).unwrap().iter().all(|word| word.load(Relaxed) == 0));
    }

    #[test]
    fn averages_converge() {
        let state = ServerState::new();
        assert_eq!(state.header_time(), None);
        state.add_header_time(1_000_000);
        assert_eq!(state.header_time(), Some(1_000_000));
        state.add_header_time(21_000_000);
        assert_eq!(state.header_time(), Some(2_000_000));
        (0..500).for_each(|_| state.add_header_time(7_000_000));
        assert!(state.header_time().unwrap().abs_diff(7_000_000) < 100);
    }

    #[test]
    fn limits_hold() {
        let state = ServerState::new();
        assert!(state.acquire(2) && state.acquire(2) && !state.acquire(2));
        state.release();
        assert!(state.acquire(2));
        assert_eq!((state.in_flight(), state.requests()), (2, 3));
    }
}
