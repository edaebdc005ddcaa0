//! Signals as descriptors and as names.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals of this process: blocked for all its threads, and read one by one.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Which.
    pub signal: Signal,
    /// The sender; 0 when the kernel sent it.
    pub sender: u32,
}

/// What the supervisor acts upon. Window changes of a terminal are among them, so `SIGWINCH` is always taken.
const HANDLED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTERM,
    Signal::SIGCHLD,
    Signal::SIGWINCH,
];

/// Blocks the signals that ask a running program for something until they are read. By default they end a program.
pub fn hold_requests() {
    let requests: SigSet = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect();
    // It fails for wrong arguments only.
    let _ = requests.thread_block();
}

impl Signals {
    /// Blocks the signals; call it before any thread starts, as threads inherit it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn block() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        for signal in HANDLED {
            set.add(signal);
        }
        set.thread_set_mask()?;
        Ok(Self { descriptor: SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)? })
    }

    /// The next signal that has arrived, the lowest number first.
    pub fn next(&self) -> Option<Received> {
        let info = self.descriptor.read_signal().ok()??;
        let number = i32::try_from(info.ssi_signo).ok()?;
        Some(Received { signal: Signal::try_from(number).ok()?, sender: info.ssi_pid })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl std::fmt::Display for Received {
    /// As NGINX's error log: `signal 1 (SIGHUP) received from 4711`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "signal {} ({}) received", self.signal as i32, self.signal.as_str())?;
        if self.sender != 0 {
            write!(f, " from {}", self.sender)?;
        }
        Ok(())
    }
}
