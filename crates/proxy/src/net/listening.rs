//! A listening socket in the event loop.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};

use super::event_loop::Registration;

/// A listening socket. The supervisor has a copy of it, so its watch is ended expressly.
pub struct Listening {
    registration: Registration,
    socket: OwnedFd,
}

impl Listening {
    /// Begins to watch a socket.
    ///
    /// # Errors
    /// The system's limit of watched descriptors.
    pub fn new(socket: OwnedFd) -> io::Result<Listening> {
        Ok(Listening { registration: Registration::new(&socket)?, socket })
    }

    /// The next connection; waits for it.
    ///
    /// # Errors
    /// Those of `accept4`, except that there is none yet.
    pub async fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)> {
        loop {
            poll_fn(|cx| self.registration.poll_readable(cx)).await;
            match acceptfrom_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Err(rustix::io::Errno::AGAIN) => self.registration.clear_readable(),
                result => return result,
            }
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.registration.unwatch(&self.socket);
    }
}
