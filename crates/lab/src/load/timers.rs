//! What is due when: a heap of deadlines, and a timer that wakes the event loop in time.
//!
//! Times are nanoseconds since the load began. A timerfd is used because epoll's own time-out counts in milliseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// This user sends.
    User(u32),
    /// Somebody has waited long enough on the connection in this slot.
    Deadline(u32),
}

/// The clock of a load and its deadlines.
#[derive(Debug)]
pub(super) struct Timers {
    began: Instant,
    heap: BinaryHeap<Reverse<(u64, Due)>>,
    timer: TimerFd,
    /// When the timer will go off; in the past if it has.
    armed: u64,
}

/// Of the timer among the events; no slot of a connection.
pub(super) const TIMER: u64 = u64::MAX;

/// The event loop looks around at least so often, in milliseconds.
const PULSE: u16 = 50;

impl Timers {
    pub fn new(epoll: &Epoll) -> nix::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        // Edge-triggered: each expiration is told once, and nobody has to read the timer.
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER))?;
        Ok(Self { began: Instant::now(), heap: BinaryHeap::new(), timer, armed: 0 })
    }

    /// Nanoseconds since the load began.
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub fn push(&mut self, when: u64, due: Due) {
        self.heap.push(Reverse((when, due)));
    }

    /// The earliest, and when it was due, if that is not after `now`.
    pub fn pop(&mut self, now: u64) -> Option<(u64, Due)> {
        let top = self.heap.peek()?;
        if top.0.0 > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Waits for events until the next deadline or `wake`, whichever is first, and not longer than the pulse.
    pub fn wait(&mut self, epoll: &Epoll, events: &mut [EpollEvent], wake: u64) -> nix::Result<usize> {
        let next = self.heap.peek().map_or(wake, |Reverse((when, _))| wake.min(*when));
        let now = self.now();
        if next <= now {
            return epoll.wait(events, EpollTimeout::ZERO);
        }
        // Going off too early does no harm, so a timer that is earlier stays.
        if next < self.armed || self.armed <= now {
            let left = TimeSpec::nanoseconds((next - now).min(i64::MAX as u64) as i64);
            self.timer.set(Expiration::OneShot(left), TimerSetTimeFlags::empty())?;
            self.armed = next;
        }
        epoll.wait(events, PULSE)
    }
}

/// A new event loop.
pub(super) fn event_loop() -> nix::Result<Epoll> {
    Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
}

/// Nanoseconds of a time; half a millennium is the most.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 2)
}
