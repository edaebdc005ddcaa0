//! The time since servers with waiting requests last answered.
//!
//! A request waits until its response begins, or, if the host does not report headers, until it ends: a long download
//! or a WebSocket counts as an answer. Kept for each server: the number of its waiting requests, and one time: its last
//! response, or when it got a request while none was waiting.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::report::{Outcome, Report};
use crate::tier::Tier;

/// Beyond so many times what is typical a silence is as long as any.
const LONGEST: f64 = 8.0;

/// The times of a tier's servers, shared by the workers.
pub(crate) struct Silence {
    servers: Box<[Server]>,
    hears_headers: AtomicBool,
}

#[derive(Default)]
struct Server {
    /// Below 0 if requests end here that a worker which has died began elsewhere.
    waiting: AtomicI32,
    since: AtomicU64,
}

impl Silence {
    pub fn new(tier: &Tier) -> Silence {
        let servers = tier.slots.iter().map(|_| Server::default()).collect();
        Silence { servers, hears_headers: AtomicBool::new(false) }
    }

    /// A request has been sent.
    #[inline]
    pub fn on_dispatch(&self, now: Nanos, i: usize) {
        let server = &self.servers[i];
        if server.waiting.fetch_add(1, Relaxed) <= 0 {
            server.since.store(now, Relaxed);
        }
    }

    /// A response has begun.
    #[inline]
    pub fn on_header(&self, now: Nanos, i: usize) {
        self.hears_headers.store(true, Relaxed);
        self.servers[i].waiting.fetch_sub(1, Relaxed);
        self.servers[i].since.store(now, Relaxed);
    }

    /// A request is over.
    #[inline]
    pub fn on_complete(&self, now: Nanos, i: usize, report: &Report) {
        let server = &self.servers[i];
        let answered = report.header_time.is_some();
        if !(answered && self.hears_headers.load(Relaxed)) {
            server.waiting.fetch_sub(1, Relaxed);
        }
        if answered || report.outcome == Outcome::Success || server.waiting.load(Relaxed) <= 0 {
            server.since.store(now, Relaxed);
        }
    }

    /// How long a server has not answered any of the requests that wait, at most eight times the `typical` time of a
    /// response; 0 if none waits.
    #[inline]
    pub fn of(&self, now: Nanos, i: usize, typical: Nanos) -> f64 {
        let server = &self.servers[i];
        match server.waiting.load(Relaxed) {
            ..=0 => 0.0,
            _ => (now.saturating_sub(server.since.load(Relaxed)) as f64).min(LONGEST * typical as f64),
        }
    }

    /// When the server last gave a sign of life if a request waits, else now.
    #[inline]
    pub fn alive(&self, now: Nanos, i: usize) -> Nanos {
        let server = &self.servers[i];
        if server.waiting.load(Relaxed) <= 0 { now } else { server.since.load(Relaxed).min(now) }
    }

    /// For how much of the time since `last`, its last response, no request waited for the server.
    #[inline]
    pub fn idle(&self, now: Nanos, i: usize, last: Nanos) -> Nanos {
        self.alive(now, i).saturating_sub(last)
    }

    /// The same when a request ends, before [`Silence::on_complete`]: until then it waited, if there was no header.
    #[inline]
    pub fn idle_before(&self, i: usize, last: Nanos) -> Nanos {
        self.servers[i].since.load(Relaxed).saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The NGINX module completes what a dead worker held, also where the counts are new.
    #[test]
    fn what_began_elsewhere_makes_no_server_silent() {
        let servers = [Server::default()].into();
        let silence = Silence { servers, hears_headers: AtomicBool::new(false) };
        silence.on_complete(5, 0, &Report::default());
        assert_eq!(silence.of(1_000_000, 0, 1_000), 0.0);
        assert_eq!(silence.alive(1_000_000, 0), 1_000_000);
        silence.on_dispatch(10, 0);
        silence.on_dispatch(20, 0);
        assert_eq!(silence.of(520, 0, 1_000), 500.0, "since the last that was sent");
    }
}
