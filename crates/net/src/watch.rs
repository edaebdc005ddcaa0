//! Descriptors that the runtime watches: the event loop's, and timers.

#![expect(unsafe_code, reason = "a watched descriptor has to stay open")]

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches for something to read.
///
/// # Errors
/// The system's limit of watched descriptors.
pub fn readable(fd: Rc<OwnedFd>) -> io::Result<AsyncFd<Rc<OwnedFd>>> {
    // SAFETY: the registration shares the descriptor's ownership, so it stays open, and the same, while it is watched.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}
