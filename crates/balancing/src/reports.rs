//! The loads that a server has reported, and its requests in flight before those times. Time is an argument.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::Nanos;
use crate::averages::{Presence, fading};

/// Time over which averages are taken.
const AVERAGED: Nanos = 30_000_000_000;
/// Greater loads count as this one.
const LOAD_MAX: f64 = 1e6;
/// The largest part of a report in an average, so that rare reports are averaged as well.
const PART_MAX: f64 = 1.0 / 8.0;

/// Reports of one server: the last one, and averages over all. A cache line.
#[repr(align(64))]
#[derive(Default, Debug)]
pub(crate) struct Reports {
    /// The last load, and the requests in flight between the report before and this one on average: the bits of an `f32`
    /// each.
    load: AtomicU32,
    in_flight: AtomicU32,
    /// When it came, plus 1; 0 if none did.
    at: AtomicU64,
    /// When the first of the reports came, plus 1; 0 if those before have expired.
    since: AtomicU64,
    /// Requests sent up to the last report.
    requests: AtomicU64,
    /// Averages over time, the bits of an `f64` each: of the load, of the requests in flight, and of the requests that were
    /// sent in a second.
    mean_load: AtomicU64,
    mean_in_flight: AtomicU64,
    rate: AtomicU64,
}

impl Reports {
    /// Stores a report, which is not NaN. `requests` counts all requests sent so far, `presence` those in flight.
    pub fn add(&self, now: Nanos, load: f64, presence: &Presence, requests: u64) {
        let load = load.clamp(0.0, LOAD_MAX);
        self.load.store((load as f32).to_bits(), Relaxed);
        let (before, at) = (self.at.load(Acquire), now.saturating_add(1));
        // Of workers that report at once, one counts the time since the last report and the requests in it.
        if at <= before || self.at.compare_exchange(before, at, AcqRel, Relaxed).is_err() {
            return;
        }
        let in_flight = presence.mean(before.checked_sub(1).unwrap_or(now), now);
        self.in_flight.store((in_flight as f32).to_bits(), Relaxed);
        let since = self.since.load(Relaxed);
        if before == 0 || since == 0 {
            self.since.store(at, Relaxed);
            self.requests.store(requests, Relaxed);
            self.rate.store(0, Relaxed);
            self.mean_load.store(load.to_bits(), Relaxed);
            self.mean_in_flight.store(in_flight.to_bits(), Relaxed);
            return;
        }
        let sent = requests.saturating_sub(self.requests.fetch_max(requests, Relaxed));
        let elapsed = at - before;
        // At first all count alike.
        let whole = at.saturating_sub(since).max(1);
        let part = (1.0 - fading(elapsed, AVERAGED)).min(PART_MAX).max(elapsed as f64 / whole as f64);
        let move_to = |mean: &AtomicU64, sample: f64| {
            let old = f64::from_bits(mean.load(Relaxed));
            mean.store((old + part * (sample - old)).to_bits(), Relaxed);
        };
        move_to(&self.mean_load, load);
        move_to(&self.mean_in_flight, in_flight);
        move_to(&self.rate, sent as f64 * 1e9 / elapsed as f64);
    }

    /// The last load and the average requests in flight since the report before, if it came within `max_age`.
    #[inline]
    pub fn last(&self, now: Nanos, max_age: Nanos) -> Option<(f64, f64)> {
        let at = self.at.load(Acquire).checked_sub(1)?;
        let fresh = now.saturating_sub(at) <= max_age;
        let value = |bits: &AtomicU32| f64::from(f32::from_bits(bits.load(Relaxed)));
        fresh.then(|| (value(&self.load), value(&self.in_flight)))
    }

    /// The reported load and the requests in flight with it, on average; zeros while there are not enough reports.
    #[inline]
    pub fn averages(&self) -> (f64, f64) {
        (f64::from_bits(self.mean_load.load(Relaxed)), f64::from_bits(self.mean_in_flight.load(Relaxed)))
    }

    /// Requests sent in a second, and the load with them, on average, if reports have come for at least `blackout` and the
    /// last one within `expiry`. A shadow leaves it to others to note that they have expired.
    #[inline]
    pub fn rate_and_load(&self, now: Nanos, blackout: Nanos, expiry: Nanos, is_shadow: bool) -> Option<(f64, f64)> {
        let at = self.at.load(Acquire).checked_sub(1)?;
        let since = self.since.load(Relaxed).checked_sub(1)?;
        if now.saturating_sub(at) > expiry {
            // The blackout applies to what comes next.
            if !is_shadow {
                self.since.store(0, Relaxed);
            }
            return None;
        }
        let rate = f64::from_bits(self.rate.load(Relaxed));
        let load = f64::from_bits(self.mean_load.load(Relaxed));
        (now.saturating_sub(since) >= blackout && rate > 0.0 && load > 0.0).then_some((rate, load))
    }

    /// Resets everything.
    pub fn clear(&self) {
        self.since.store(0, Relaxed);
        self.mean_load.store(0, Relaxed);
        self.mean_in_flight.store(0, Relaxed);
        self.at.store(0, Release);
    }

    /// Copies another's state, except the requests in flight.
    pub fn remember(&self, before: &Reports) {
        let copy = |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Relaxed), Relaxed);
        copy(&self.at, &before.at);
        copy(&self.since, &before.since);
        copy(&self.requests, &before.requests);
        copy(&self.mean_load, &before.mean_load);
        copy(&self.mean_in_flight, &before.mean_in_flight);
        copy(&self.rate, &before.rate);
        self.load.store(before.load.load(Relaxed), Relaxed);
        self.in_flight.store(before.in_flight.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn averages_are_of_the_load_and_of_the_requests_with_it() {
        let (reports, presence) = (Reports::default(), Presence::default());
        assert_eq!(
            (reports.last(0, 9), reports.averages(), reports.rate_and_load(0, 0, 9, false)),
            (None, (0.0, 0.0), None)
        );
        // Every 5 s 500 requests more; the load is 0.25 and 0.75 by turns, with 4 and 12 requests in flight.
        for k in 0..200u64 {
            let (load, in_flight) = if k % 2 == 0 { (0.25, 4) } else { (0.75, 12) };
            let (start, end) = (k * 5 * SECOND, (k + 1) * 5 * SECOND);
            (0..in_flight).for_each(|_| presence.on_dispatch(start));
            (0..in_flight).for_each(|_| presence.on_complete(end));
            reports.add(end, load, &presence, k * 500);
        }
        let now = 200 * 5 * SECOND;
        assert_eq!(reports.last(now, SECOND), Some((0.75, 12.0)));
        let (load, in_flight) = reports.averages();
        assert!((load / in_flight * 16.0 - 1.0).abs() < 0.01, "whatever the load was: {load} {in_flight}");
        let (rate, load) = reports.rate_and_load(now, 10 * SECOND, 180 * SECOND, false).unwrap();
        assert!((rate - 100.0).abs() < 1e-9 && (0.47..0.55).contains(&load), "{rate} {load}");
    }

    #[test]
    fn averages_begin_after_the_blackout_and_end_with_the_expiry() {
        let (reports, blackout, expiry) = (Reports::default(), 10 * SECOND, 180 * SECOND);
        let known = |now| reports.rate_and_load(now, blackout, expiry, false);
        for k in 0..=4 {
            assert_eq!(known(k * 4 * SECOND).is_some(), k > 2, "{k}");
            reports.add(k * 4 * SECOND, 0.5, &Presence::default(), k * 40);
        }
        let (rate, load) = known(16 * SECOND).unwrap();
        assert!((rate - 10.0).abs() < 1e-9 && (load - 0.5).abs() < 1e-9);
        assert!(known(196 * SECOND).is_some() && known(197 * SECOND).is_none());
        // It has come back, and the blackout applies.
        reports.add(200 * SECOND, 0.5, &Presence::default(), 200);
        reports.add(209 * SECOND, 0.5, &Presence::default(), 290);
        assert_eq!(known(209 * SECOND), None);
        reports.add(210 * SECOND, 0.5, &Presence::default(), 300);
        assert!(known(210 * SECOND).is_some_and(|(rate, _)| (rate - 10.0).abs() < 1e-9), "of the new time alone");
        reports.clear();
        assert_eq!((known(211 * SECOND), reports.last(211 * SECOND, SECOND)), (None, None));
        assert_eq!(reports.averages(), (0.0, 0.0));
    }

    /// Reports with each response are averaged over the same time.
    #[test]
    fn many_reports_are_as_good_as_few() {
        let reports = Reports::default();
        for k in 0..200_000u64 {
            reports.add(k * SECOND / 1_000, if k % 10 == 0 { 1.0 } else { 0.2 }, &Presence::default(), k);
        }
        let (rate, load) = reports.rate_and_load(200 * SECOND, 0, SECOND, false).unwrap();
        assert!((rate - 1_000.0).abs() < 1.0 && (load - 0.28).abs() < 0.001, "{rate} {load}");
    }

    /// Four workers report 200,000 times, each report a microsecond and a request after the one before.
    #[test]
    fn workers_that_report_at_once_count_each_interval_once() {
        let (reports, clock) = (Reports::default(), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..50_000 {
                        let count = clock.fetch_add(1, Relaxed);
                        reports.add(count * 1_000, 0.5, &Presence::default(), count);
                    }
                });
            }
        });
        let (rate, load) = reports.rate_and_load(200_000_000, 0, SECOND, false).unwrap();
        assert!((rate / 1e6 - 1.0).abs() < 0.05 && (load - 0.5).abs() < 1e-9, "{rate} {load}");
    }
}
