//! A stream socket: one system call for each operation, none of which waits.
//!
//! With the feature `simulation` it may also be one end of a connection in memory.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::net::{self as sys, RecvFlags, SendFlags};

use crate::event_loop::Registration;
use crate::hang_up::{HangUp, Held};
#[cfg(feature = "simulation")]
use crate::network::End;
use crate::pipe::Pipe;
use crate::retry::retry;

/// A non-blocking stream socket.
pub(crate) enum Socket {
    /// The system's, TCP or Unix.
    System(Rc<Held>),
    /// One end of a simulated connection.
    #[cfg(feature = "simulation")]
    Simulated(End),
}

impl Socket {
    /// Begins to watch it.
    pub fn register(&self) -> io::Result<Registration> {
        match self {
            Socket::System(fd) => Registration::new(fd),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.register(),
        }
    }

    /// Reads what is there; 0 is the end of the stream.
    #[inline]
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::System(fd) => retry(|| sys::recv(fd, &mut *into, RecvFlags::empty())).map(|(read, _)| read),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.recv(into),
        }
    }

    /// Whether a read would find nothing, not even an end or an error.
    pub fn is_empty(&self) -> bool {
        let peeked = match self {
            Socket::System(fd) => {
                let mut byte = [0];
                retry(|| sys::recv(fd, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT)).map(|_| ())
            }
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.peek(),
        };
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Writes the slices one after the other, as far as there is room. With `more` a small write may wait for the next.
    #[inline]
    pub fn send(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match self {
            Socket::System(fd) => {
                let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
                match slices {
                    [one] => retry(|| sys::send(fd, one, flags)),
                    _ => retry(|| sys::sendmsg(fd, slices, &mut sys::SendAncillaryBuffer::default(), flags)),
                }
            }
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.send(slices),
        }
    }

    /// Sends up to `limit` bytes of a file from `offset` on.
    pub fn send_file(&self, file: &File, offset: u64, limit: usize) -> io::Result<usize> {
        match self {
            Socket::System(fd) => retry(|| rustix::fs::sendfile(fd, file.as_fd(), Some(&mut { offset }), limit)),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.send_file(file, offset, limit),
        }
    }

    /// Moves up to `limit` bytes into a pipe; 0 is the end of the stream.
    pub fn splice_to(&self, pipe: &mut Pipe, limit: usize) -> io::Result<usize> {
        match self {
            Socket::System(fd) => pipe.fill(fd.as_fd(), limit),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => pipe.fill_with(limit, |bytes| end.recv(bytes)),
        }
    }

    /// Moves what a pipe holds into the socket. `more` tells that more will follow.
    pub fn splice_from(&self, pipe: &mut Pipe, more: bool) -> io::Result<usize> {
        match self {
            Socket::System(fd) => pipe.drain(fd.as_fd(), more),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => pipe.drain_with(end.room()?, |bytes| end.send(&[IoSlice::new(bytes)])),
        }
    }

    /// Tells whether the connection that was begun stands.
    ///
    /// # Errors
    /// `WouldBlock` while that is not known; why it failed.
    pub fn connected(&self) -> io::Result<()> {
        match self {
            Socket::System(fd) => match sys::getpeername(fd) {
                Ok(_) => Ok(()),
                Err(rustix::io::Errno::NOTCONN) => {
                    sys::sockopt::socket_error(fd)??;
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Err(error) => Err(error.into()),
            },
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.connected(),
        }
    }

    /// Sends small writes at once.
    pub fn set_nodelay(&self) {
        match self {
            // A Unix socket has no such option and no such delay.
            Socket::System(fd) => drop(sys::sockopt::set_tcp_nodelay(fd, true)),
            #[cfg(feature = "simulation")]
            Socket::Simulated(_) => {}
        }
    }

    /// What ends the connection from elsewhere; one in memory has nothing.
    pub fn hang_up(&self) -> HangUp {
        match self {
            Socket::System(held) => held.hang_up(),
            #[cfg(feature = "simulation")]
            Socket::Simulated(_) => HangUp::default(),
        }
    }

    /// Ends the direction to the peer.
    pub fn shutdown_write(&self) {
        match self {
            Socket::System(fd) => drop(sys::shutdown(fd, sys::Shutdown::Write)),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.shutdown_write(),
        }
    }

    /// Makes the close send a reset.
    pub fn reset_on_close(&self) {
        match self {
            Socket::System(fd) => drop(sys::sockopt::set_socket_linger(fd, Some(std::time::Duration::ZERO))),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => end.reset_on_close(),
        }
    }

    /// The local address of a TCP socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Socket::System(fd) => SocketAddr::try_from(sys::getsockname(fd).ok()?).ok(),
            #[cfg(feature = "simulation")]
            Socket::Simulated(end) => Some(end.local_address()),
        }
    }
}
