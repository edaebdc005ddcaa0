//! Registration of descriptors with the event loop: the only unsafe code of the data plane.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that somebody else owns and closes only after this has gone.
pub struct Borrowed(RawFd);

impl AsRawFd for Borrowed {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Watches for something to read: connections to accept, a timer that rings.
///
/// # Errors
/// The system's limit of watched descriptors.
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the registration owns the descriptor, so it stays open, and the same, for as long as it is watched.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Watches a connection's descriptor. The caller drops the registration before it closes `fd`, as
/// [`Socket`](super::socket::Socket) does by the order of its fields.
///
/// # Errors
/// The system's limit of watched descriptors.
pub(super) fn connection(fd: &OwnedFd) -> io::Result<AsyncFd<Borrowed>> {
    // SAFETY: fields are dropped in the order of declaration and `Socket` declares the registration first, so the
    // descriptor is open, and the same, for as long as it is watched.
    Ok(unsafe { AsyncFd::register(Borrowed(fd.as_raw_fd())) }?)
}
