//! One alarm with the kernel's precision; tokio's own timers count whole milliseconds.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::net::unix::pipe::Receiver;

/// An alarm that any thread sets and one task waits for.
#[derive(Clone, Debug)]
pub(super) struct Timer(Arc<TimerFd>);

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self(Arc::new(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?)))
    }

    /// Rings after so long, at once if it is zero; what was set before is forgotten.
    pub(super) fn set(&self, after: Duration) {
        // Zero would mean never.
        let after = after.max(Duration::from_nanos(1));
        // Fails for no valid time.
        let _ = self.0.set(Expiration::OneShot(after.into()), TimerSetTimeFlags::empty());
    }

    /// What a task of the current runtime waits with. To tokio's safe types a timer is a pipe from which numbers come.
    pub(super) fn alarms(&self) -> io::Result<Receiver> {
        Receiver::from_file_unchecked(File::from(self.0.as_fd().try_clone_to_owned()?))
    }
}

/// Waits until the alarm rings.
pub(super) async fn rung(alarms: &Receiver) -> io::Result<()> {
    loop {
        alarms.readable().await?;
        match alarms.try_read(&mut [0; size_of::<u64>()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_alarm_rings_when_it_is_set_to_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let round = || {
            runtime.block_on(async {
                let timer = Timer::new().unwrap();
                let alarms = timer.alarms().unwrap();
                let mut late = Vec::new();
                for microseconds in (100..3000).step_by(100) {
                    let after = Duration::from_micros(microseconds);
                    let start = Instant::now();
                    timer.set(Duration::from_secs(60));
                    timer.set(after);
                    rung(&alarms).await.unwrap();
                    late.push(start.elapsed().checked_sub(after).expect("it rang too early"));
                }
                late.sort();
                late
            })
        };
        // A busy machine makes many late, but not in every round as many as a timer of whole milliseconds would.
        let rounds: Vec<Vec<Duration>> = (0..20).map(|_| round()).collect();
        assert!(rounds.iter().any(|late| late[2] < Duration::from_micros(500)), "{rounds:?}");
    }
}
