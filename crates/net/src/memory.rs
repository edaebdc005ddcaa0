//! The memory that this process uses, and the limit that `worker_memory` sets.
//!
//! Large allocations of connections are counted when they are taken from the allocator and released to it, not when a
//! request uses them: buffers by `Buffer`, the rest by [`Held`]. Each thread counts its own and publishes its count in
//! steps. All other memory (code, tables, memory that the allocator keeps) is measured once a second, and more often
//! while much memory is in use.

mod limit;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicIsize, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

pub use limit::{Gauge, Limit};

/// By how many bytes a thread's published count may differ from its own.
const STEP: isize = 256 * 1024;

/// Counted bytes of all threads.
static COUNTED: AtomicIsize = AtomicIsize::new(0);
/// The recent maximum of counted bytes. The allocator may have kept that much.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The counted bytes at the last measurement, or their minimum since then.
static MEASURED_AT: AtomicUsize = AtomicUsize::new(0);
/// Measured bytes, or 0 if the measurement does not shrink when memory is released.
static MEASURED: AtomicUsize = AtomicUsize::new(0);
/// Measured bytes beyond those that are counted or that the allocator may have kept.
static OTHER: AtomicUsize = AtomicUsize::new(0);
/// The limit; `usize::MAX` for none.
static ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);
/// What is measured: [`Gauge`] as a number.
static GAUGE: AtomicU8 = AtomicU8::new(Gauge::Resident as u8);
/// [`Pressure`] as a number.
static PRESSURE: AtomicU8 = AtomicU8::new(0);
/// The second of the last alert.
static ALERTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static UNTOLD: Cell<isize> = const { Cell::new(0) };
}

#[cfg(feature = "simulation")]
thread_local! {
    static OF_THREAD: Cell<isize> = const { Cell::new(0) };
}

/// Bytes that this thread has counted.
#[cfg(feature = "simulation")]
pub fn of_thread() -> isize {
    OF_THREAD.get()
}

/// How short memory is. `Connections` begins at the limit, and each further step a sixteenth of the limit above the
/// previous one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// There is enough memory.
    None,
    /// The limit is reached: a new connection or request is accepted only if an older one that waits is closed.
    Connections,
    /// Bodies that would have to be kept in memory are refused.
    Bodies,
    /// Large heads are refused.
    Heads,
    /// No new request is accepted.
    Requests,
}

/// How short memory is now.
#[inline]
pub fn pressure() -> Pressure {
    match PRESSURE.load(Relaxed) {
        0 => Pressure::None,
        1 => Pressure::Connections,
        2 => Pressure::Bodies,
        3 => Pressure::Heads,
        _ => Pressure::Requests,
    }
}

/// Counts memory that was taken, or released if negative.
#[inline]
pub fn count(bytes: isize) {
    #[cfg(feature = "simulation")]
    let _ = OF_THREAD.try_with(|sum| sum.set(sum.get() + bytes));
    // A thread that ends may release memory after its counter has been destroyed.
    let _ = UNTOLD.try_with(|untold| {
        let sum = untold.get() + bytes;
        untold.set(sum);
        if sum.abs() >= STEP {
            untold.set(0);
            COUNTED.fetch_add(sum, Relaxed);
            assess();
        }
    });
}

/// Publishes the rest of this thread's count. Call it at the end of the thread.
pub fn settle() {
    COUNTED.fetch_add(UNTOLD.take(), Relaxed);
}

/// Computes how short memory is.
fn assess() {
    let counted = counted();
    PEAK.fetch_max(counted, Relaxed);
    let allowed = ALLOWED.load(Relaxed);
    if counted.saturating_sub(MEASURED_AT.fetch_min(counted, Relaxed)) > allowed / 64 {
        measure();
    }
    let expected = step(counted.saturating_add(OTHER.load(Relaxed)), allowed);
    PRESSURE.store(decisive(expected, step(MEASURED.load(Relaxed), allowed)), Relaxed);
}

/// The step that applies. Memory that the allocator has kept from a peak is expected to serve new requests, but may
/// not, for example if it belongs to another thread. So if the measurement shows that little is left, large heads are
/// refused all the same.
fn decisive(expected: u8, measured: u8) -> u8 {
    if measured >= Pressure::Heads as u8 { expected.max(Pressure::Heads as u8) } else { expected }
}

fn step(taken: usize, allowed: usize) -> u8 {
    match taken.checked_sub(allowed) {
        None => 0,
        Some(excess) => 1 + (excess / (allowed / 16).max(1)).min(3) as u8,
    }
}

/// Applies this limit from now on.
pub fn configure(limit: Option<Limit>) {
    ALLOWED.store(limit.map_or(usize::MAX, |limit| limit.bytes), Relaxed);
    GAUGE.store(limit.map_or(Gauge::Resident, |limit| limit.gauge) as u8, Relaxed);
    tick();
}

/// Measures the memory of this process. Call it once a second.
pub fn tick() {
    if ALLOWED.load(Relaxed) != usize::MAX {
        // Memory that the allocator has returned after a peak is not available for the next one, so the peak decays.
        if measures_what_is_freed() {
            let peak = PEAK.load(Relaxed);
            PEAK.store(counted().max(peak - peak / 8), Relaxed);
        }
        measure();
    }
    assess();
}

/// Measures the memory that this process uses beyond what is counted.
fn measure() {
    let counted = counted();
    MEASURED_AT.store(counted, Relaxed);
    if let Some(measured) = gauge().measure() {
        MEASURED.store(if measures_what_is_freed() { measured } else { 0 }, Relaxed);
        // Memory that the allocator has kept from the last peak is available for the next one.
        OTHER.store(measured.saturating_sub(PEAK.load(Relaxed).max(counted)), Relaxed);
    }
}

/// Whether a measurement becomes smaller when memory is released: addresses may be kept.
fn measures_what_is_freed() -> bool {
    gauge() != Gauge::Addresses || limit::addresses_return()
}

fn gauge() -> Gauge {
    const ADDRESSES: u8 = Gauge::Addresses as u8;
    const GROUP: u8 = Gauge::Group as u8;
    match GAUGE.load(Relaxed) {
        ADDRESSES => Gauge::Addresses,
        GROUP => Gauge::Group,
        _ => Gauge::Resident,
    }
}

fn counted() -> usize {
    usize::try_from(COUNTED.load(Relaxed)).unwrap_or(0)
}

/// Whether an alert is due; there is one alert a second.
pub fn alert_is_due(second: u64) -> bool {
    ALERTED.swap(second, Relaxed) != second
}

/// The state, for the alert.
pub struct State;

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = counted() + OTHER.load(Relaxed);
        let megabytes = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        write!(f, "{:.0} of {:.0} MiB taken", megabytes(taken), megabytes(ALLOWED.load(Relaxed)))
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Default)]
pub struct Held(usize);

impl Held {
    /// Counts this many bytes instead of the previous number.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.0 {
            count(bytes as isize - self.0 as isize);
            self.0 = bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_by_sixteenths_of_the_limit() {
        assert_eq!([0, 159, 160, 169, 170, 180, 190, 1000].map(|taken| step(taken, 160)), [0, 0, 1, 1, 2, 3, 4, 4]);
        assert_eq!(step(usize::MAX, usize::MAX), 1);
        assert_eq!(step(usize::MAX - 1, usize::MAX), 0);
        assert_eq!(step(5, 0), 4);
    }

    #[test]
    fn what_was_measured_counts_when_little_is_left() {
        assert_eq!([0, 1, 2, 3, 4].map(|measured| decisive(0, measured)), [0, 0, 0, 3, 3]);
        assert_eq!(decisive(Pressure::Requests as u8, Pressure::Heads as u8), Pressure::Requests as u8);
    }

    #[test]
    fn what_is_held_is_told_in_steps() {
        let mut held = Held::default();
        held.set(1000);
        assert_eq!(UNTOLD.get(), 1000, "too little to tell");
        held.set(STEP as usize);
        assert_eq!(UNTOLD.get(), 0, "told");
        held.set(STEP as usize - 7);
        assert_eq!(UNTOLD.get(), -7);
        drop(held);
        assert_eq!(UNTOLD.get(), 0, "told that all of it has gone");
    }
}
