//! The shared hot state of one server.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::Nanos;

/// Requests in flight take the low bits of `load`, so that a dispatch is one atomic addition.
const IN_FLIGHT_BITS: u32 = 24;
const IN_FLIGHT: u64 = (1 << IN_FLIGHT_BITS) - 1;
const ONE_MORE: u64 = (1 << IN_FLIGHT_BITS) + 1;

/// Administrative states, bits of [`Cell::state`].
pub(crate) const DOWN: u32 = 1;
pub(crate) const DRAINING: u32 = 2;

/// The shared hot state of one server: counters, failures, averages of times.
///
/// 64 bytes, one cache line. Cells outlive memberships: a fleet built after a reload is given the cells of the servers
/// that stay, and nothing is forgotten. Workers update it without locks; two averages written at the same instant may
/// lose one sample, counters never lose anything.
#[repr(C, align(64))]
#[derive(Default, Debug)]
pub struct Cell {
    /// Low 24 bits: in flight; the rest: requests sent so far.
    load: AtomicU64,
    /// Failures since the server was last found alive.
    fails: AtomicU32,
    state: AtomicU32,
    /// When the server was last chosen, as far as the fail timeout needs it.
    checked: AtomicU64,
    /// When it last failed.
    accessed: AtomicU64,
    /// Averages in nanoseconds; 0 before the first sample.
    header_time: AtomicU64,
    last_byte_time: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
}

impl Cell {
    /// A server that nothing is known of.
    pub fn new() -> Cell {
        Cell::default()
    }

    /// Requests in flight now.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.load.load(Acquire) & IN_FLIGHT) as u32
    }

    /// Requests sent to the server so far, attempts that failed included.
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

    /// Marks the server as down (true) or not, beside what the configuration says.
    pub fn set_down(&self, down: bool) {
        self.set(DOWN, down);
    }

    /// Marks the server as draining: it finishes what it has and takes nothing new.
    pub fn set_draining(&self, draining: bool) {
        self.set(DRAINING, draining);
    }

    fn set(&self, bit: u32, on: bool) {
        if on {
            self.state.fetch_or(bit, AcqRel);
        } else {
            self.state.fetch_and(!bit, AcqRel);
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Acquire)
    }

    #[inline]
    pub(crate) fn checked(&self) -> Nanos {
        self.checked.load(Relaxed)
    }

    /// Takes a slot. With a limit (not 0) it fails when all are taken, however many threads try at once.
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

    /// Remembers that the server was chosen; once in a fail timeout is enough.
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
    #[inline]
    pub(crate) fn succeed(&self) -> bool {
        let alive = self.fails.load(Relaxed) != 0 && self.accessed.load(Relaxed) < self.checked();
        if alive {
            self.fails.store(0, Relaxed);
        }
        alive
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

/// Exponential moving average with NGINX's factor of 1/20; the first sample starts it.
#[inline]
pub(crate) fn average(cell: &AtomicU64, sample: Nanos) {
    let sample = sample.max(1);
    let old = cell.load(Relaxed);
    let new = if old == 0 { sample } else { old - old / 20 + sample / 20 };
    cell.store(new.max(1), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_a_cache_line() {
        assert_eq!((size_of::<Cell>(), align_of::<Cell>()), (64, 64));
    }

    #[test]
    fn averages_converge() {
        let cell = Cell::new();
        assert_eq!(cell.header_time(), None);
        cell.add_header_time(1_000_000);
        assert_eq!(cell.header_time(), Some(1_000_000));
        cell.add_header_time(21_000_000);
        assert_eq!(cell.header_time(), Some(2_000_000));
        (0..500).for_each(|_| cell.add_header_time(7_000_000));
        assert!(cell.header_time().unwrap().abs_diff(7_000_000) < 100);
    }

    #[test]
    fn limits_hold() {
        let cell = Cell::new();
        assert!(cell.acquire(2) && cell.acquire(2) && !cell.acquire(2));
        cell.release();
        assert!(cell.acquire(2));
        assert_eq!((cell.in_flight(), cell.requests()), (2, 3));
    }
}
