//! The servers: queues, service, failures.

use balanza_balancing::Nanos;

use super::request::NONE;
use crate::scenario::{Discipline, Overflow};

/// What a group of equal servers has in common.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub concurrency: u32,
    pub discipline: Discipline,
    /// Requests that may wait.
    pub queue_limit: u32,
    pub overflow: Overflow,
    pub error_rate: f64,
    pub drops_abandoned: bool,
    pub credits: Option<Bucket>,
    pub speed: f64,
}

/// A bucket of credits, in nanoseconds of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub initial: f64,
    pub limit: f64,
    pub baseline: f64,
}

/// How a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    Well,
    Crashed,
    Hung,
    FailsFast,
}

/// One server: a cache line.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// First and last of those that wait.
    pub head: u32,
    pub tail: u32,
    pub waiting: u32,
    /// In service.
    pub busy: u32,
    /// Requests that may be in service together.
    pub concurrency: u32,
    pub queue_limit: u32,
    /// Requests sent to it, from the start; and up to the end of the warm-up.
    pub sent: u32,
    pub sent_before: u32,
    pub speed: f64,
    /// Time served since the end of the warm-up, over all that were served.
    pub busy_time: Nanos,
    /// Time that requests have spent here since then.
    pub sojourn: Nanos,
    pub kind: u16,
    pub health: Health,
    /// No special case: first come, first served, without credits, and nothing is dropped.
    pub plain: bool,
    /// Part of the requests that it answers with an error status.
    pub error_rate: f32,
}

impl Server {
    pub fn new(kind: &Kind, number: u16) -> Server {
        Server {
            head: NONE,
            tail: NONE,
            waiting: 0,
            busy: 0,
            concurrency: if kind.discipline == Discipline::Ps { u32::MAX } else { kind.concurrency },
            queue_limit: kind.queue_limit,
            sent: 0,
            sent_before: 0,
            speed: kind.speed,
            busy_time: 0,
            sojourn: 0,
            kind: number,
            health: Health::Well,
            plain: kind.discipline == Discipline::Fifo && kind.credits.is_none() && !kind.drops_abandoned,
            error_rate: kind.error_rate as f32,
        }
    }

    /// Requests here.
    #[inline]
    pub fn queue(&self) -> u32 {
        self.waiting + self.busy
    }
}

/// State of a server that shares its processors among all its requests, or has credits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sharing {
    /// Work that each request has had since the start, in nanoseconds at speed 1.
    attained: f64,
    updated: Nanos,
    /// The server's speed since then.
    speed: f64,
    /// (what `attained` will be when it is done, request), a heap with the least first.
    heap: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u32)>>,
    /// Completions announced: those of an older version are void.
    pub version: u32,
    credits: f64,
    credited: Nanos,
}

/// `attained` counts in units of 2^-10 ns, so that it can be ordered and nothing is lost.
const FINE: f64 = 1024.0;

impl Sharing {
    pub fn new(kind: &Kind) -> Sharing {
        Sharing { credits: kind.credits.map_or(0.0, |c| c.initial), ..Sharing::default() }
    }

    /// Work that each request gets in a nanosecond.
    fn rate(&self, processors: u32) -> f64 {
        self.speed * (f64::from(processors) / self.heap.len().max(1) as f64).min(1.0)
    }

    /// Lets the time up to now pass.
    pub fn advance(&mut self, now: Nanos, processors: u32) {
        let passed = (now - self.updated) as f64;
        self.attained += passed * self.rate(processors);
        self.updated = now;
        if self.heap.is_empty() {
            self.attained = 0.0;
        }
    }

    /// Lets the time up to now pass without work.
    pub fn skip_to(&mut self, now: Nanos) {
        self.updated = now;
    }

    pub fn add(&mut self, work: Nanos, request: u32) {
        let target = (self.attained + work as f64) * FINE;
        self.heap.push(std::cmp::Reverse((target as u64, request)));
    }

    /// The request that is done first, and when, at this speed from now on.
    pub fn first(&mut self, processors: u32, speed: f64) -> Option<(Nanos, u32)> {
        self.speed = speed;
        let &std::cmp::Reverse((target, request)) = self.heap.peek()?;
        let left = (target as f64 / FINE - self.attained).max(0.0);
        let time = left / self.rate(processors);
        Some((self.updated.saturating_add(time.ceil().min(2.3e18) as Nanos), request))
    }

    pub fn take(&mut self) -> Option<u32> {
        self.heap.pop().map(|std::cmp::Reverse((_, request))| request)
    }

    pub fn clear(&mut self) {
        self.heap.clear();
        self.version = self.version.wrapping_add(1);
    }

    /// Part of the speed that the server has now, when it has used `busy` processors since it was last asked.
    pub fn throttle(&mut self, now: Nanos, bucket: Bucket, processors: u32, busy: u32) -> f64 {
        let passed = (now - self.credited) as f64;
        let used = f64::from(busy.min(processors));
        let earned = bucket.baseline * f64::from(processors);
        // Without credits it uses what it earns.
        let used = if self.credits > 0.0 { used } else { used.min(earned) };
        self.credits = (self.credits + passed * (earned - used)).clamp(0.0, bucket.limit);
        self.credited = now;
        if self.credits > 0.0 { 1.0 } else { bucket.baseline }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_cache_line() {
        assert_eq!(size_of::<Server>(), 64);
    }

    #[test]
    fn processors_are_shared() {
        let mut sharing = Sharing::default();
        sharing.advance(0, 1);
        sharing.add(100, 1);
        assert_eq!(sharing.first(1, 1.0), Some((100, 1)));
        sharing.advance(50, 1);
        sharing.add(20, 2);
        // Both at half the speed: 20 takes 40.
        assert_eq!(sharing.first(1, 1.0), Some((90, 2)));
        sharing.advance(90, 1);
        assert_eq!(sharing.take(), Some(2));
        assert_eq!(sharing.first(1, 1.0), Some((120, 1)));
        // Of two processors one request uses one.
        assert_eq!(sharing.first(2, 1.0), Some((120, 1)));
    }

    #[test]
    fn credits_are_used_up_and_earned() {
        let bucket = Bucket { initial: 90.0, limit: 1_000.0, baseline: 0.1 };
        let mut sharing = Sharing { credits: 90.0, ..Sharing::default() };
        assert_eq!(sharing.throttle(50, bucket, 1, 1), 1.0, "45 are left");
        assert_eq!(sharing.throttle(100, bucket, 1, 1), 0.1);
        assert_eq!(sharing.throttle(200, bucket, 1, 1), 0.1, "all that is earned is used");
        assert_eq!(sharing.throttle(300, bucket, 1, 0), 1.0);
    }
}
