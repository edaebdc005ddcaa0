//! A listening socket in the event loop.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};

use crate::event_loop::Registration;

/// Who has connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix-domain socket.
    Unix,
}

/// The address without the port, as logs have it.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Inet(address) => address.ip().fmt(f),
            Peer::Unix => f.write_str("unix:"),
        }
    }
}

/// A listening socket. The supervisor has a copy of it, so its watch is ended expressly.
pub struct Listening {
    registration: Registration,
    socket: OwnedFd,
}

impl Listening {
    /// Begins to watch a socket. With `nodelay` its connections have TCP_NODELAY from the beginning, without a system call
    /// for each.
    ///
    /// # Errors
    /// The system's limit of watched descriptors.
    pub fn new(socket: OwnedFd, nodelay: bool) -> io::Result<Listening> {
        if nodelay {
            let _ = sockopt::set_tcp_nodelay(&socket, true);
        }
        Ok(Listening { registration: Registration::new(&socket)?, socket })
    }

    /// The next connection; waits for it.
    ///
    /// # Errors
    /// A shortage: `accept4` fails, and not because of the client.
    pub async fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        loop {
            poll_fn(|cx| self.registration.poll_readable(cx)).await;
            match acceptfrom_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    return Ok((fd, from.map_or(Peer::Unix, Peer::Inet)));
                }
                Err(Errno::AGAIN) => self.registration.clear_readable(),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.registration.unwatch(&self.socket);
    }
}
