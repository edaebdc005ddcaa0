//! Descriptors that can be shut from elsewhere on their thread, while a task uses them.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};

use nix::sys::socket::sockopt::GetStruct;
use rustix::net::{self as sys, Shutdown};

/// A socket's descriptor.
pub(crate) struct Held {
    fd: OwnedFd,
    is_hung_up: Cell<bool>,
}

impl Held {
    pub fn new(fd: OwnedFd) -> Rc<Held> {
        Rc::new(Held { fd, is_hung_up: Cell::new(false) })
    }

    /// Whether its connection was ended from elsewhere.
    pub fn is_hung_up(&self) -> bool {
        self.is_hung_up.get()
    }

    /// What ends its connection.
    pub fn hang_up(self: &Rc<Self>) -> HangUp {
        HangUp(Rc::downgrade(self))
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the system knows of a TCP connection.
#[derive(Debug, Clone, Copy)]
pub struct TcpInfo {
    /// The round-trip time, in microseconds.
    pub rtt: u32,
    /// How much it varies, in microseconds.
    pub rtt_variation: u32,
    /// The congestion window, in segments.
    pub congestion_window: u32,
    /// Room for what the peer sends, in bytes.
    pub receive_space: u32,
}

#[derive(Clone, Copy)]
struct Information;
nix::getsockopt_impl!(Information, libc::IPPROTO_TCP, libc::TCP_INFO, libc::tcp_info, GetStruct<libc::tcp_info>);

/// Ends a connection that a task of this thread uses. The task finds it closed in both directions.
#[derive(Clone, Default)]
pub struct HangUp(Weak<Held>);

impl HangUp {
    /// Ends it; false if it has been closed already.
    pub fn hang_up(&self) -> bool {
        self.0.upgrade().is_some_and(|held| {
            held.is_hung_up.set(true);
            let _ = sys::shutdown(&held.fd, Shutdown::Both);
            true
        })
    }

    /// What the system knows of it; nothing if it is not TCP or has been closed.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        let info = nix::sys::socket::getsockopt(&self.0.upgrade()?.fd, Information).ok()?;
        Some(TcpInfo {
            rtt: info.tcpi_rtt,
            rtt_variation: info.tcpi_rttvar,
            congestion_window: info.tcpi_snd_cwnd,
            receive_space: info.tcpi_rcv_space,
        })
    }

    /// Whether there is nothing to end.
    pub fn is_closed(&self) -> bool {
        self.0.strong_count() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_ends_see_the_end() {
        let (mine, mut theirs) = UnixStream::pair().unwrap();
        let held = Held::new(mine.into());
        let end = held.hang_up();
        assert!(!end.is_closed() && !held.is_hung_up());
        assert!(end.hang_up() && held.is_hung_up());
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).unwrap();
        drop(held);
        assert!(end.is_closed() && !end.hang_up());
    }
}
