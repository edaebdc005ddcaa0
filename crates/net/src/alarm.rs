//! A timer for moments closer than the milliseconds of the event loop's timers.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;

use crate::clock::{self, Nanos};
use crate::watch;

/// A timer for moments closer than the event loop's milliseconds.
pub struct Alarm {
    timer: AsyncFd<Rc<OwnedFd>>,
}

impl Alarm {
    /// One that is not set.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Alarm { timer: watch::readable(Rc::new(timer))? })
    }

    /// Rings at this moment, and no more at an earlier one.
    pub fn set(&self, deadline: Nanos) {
        // 0 would switch it off.
        let wait = Duration::from_nanos(deadline.saturating_sub(clock::recent()).max(1));
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        let _ = rustix::time::timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once);
    }

    /// Waits until it rings.
    pub async fn rings(&self) {
        if let Ok(mut ready) = self.timer.readable().await {
            let mut count = [0; 8];
            let _ = rustix::io::read(self.timer.get_ref(), &mut count);
            ready.clear_ready();
        }
    }
}
