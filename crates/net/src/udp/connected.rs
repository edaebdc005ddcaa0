//! A datagram socket of one session, connected to one server.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::net::{self as sys, RecvFlags, SendFlags};

use super::{LONGEST, with_space};
use crate::event_loop::Registration;
use crate::hang_up::{HangUp, Held};
use crate::retry::retry;
use crate::shortage::ConnectError;
use crate::transport::{ConnectOptions, Counted, Destination, prepare};

/// A datagram socket that is connected to a server. It counts as a connection.
pub struct Connected {
    registration: Registration,
    socket: Rc<Held>,
    _counted: Counted,
}

/// Makes a socket to a server. Nothing is sent, so only this machine can refuse.
///
/// # Errors
/// No descriptor, no route, a local address that cannot be used.
pub fn connect(destination: &Destination<'_>, options: &ConnectOptions) -> Result<Connected, ConnectError> {
    let socket = prepare(destination, sys::SocketType::DGRAM, options)?;
    let connected = match destination {
        Destination::Inet(address) => sys::connect(&socket, address),
        Destination::Unix(path) => sys::SocketAddrUnix::new(*path).and_then(|address| sys::connect(&socket, &address)),
    };
    connected.map_err(io::Error::from)?;
    Ok(Connected { registration: Registration::new(&socket)?, socket: Held::new(socket), _counted: Counted::default() })
}

impl Connected {
    /// What ends the session's part with the server from elsewhere on this thread.
    pub fn hang_up(&self) -> HangUp {
        self.socket.hang_up()
    }

    /// Sends a datagram. One that the socket has no room for is lost, as on the way.
    ///
    /// # Errors
    /// The server has refused an earlier one, or there is no way to it.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match retry(|| sys::send(&self.socket, datagram, SendFlags::NOSIGNAL)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next datagram of the server, given to `take`; waits for it.
    ///
    /// # Errors
    /// The server has refused a datagram, or there is no way to it.
    pub fn poll_receive<T>(&self, cx: &mut Context<'_>, take: impl FnOnce(&[u8]) -> T) -> Poll<io::Result<T>> {
        ready!(self.registration.poll_readable(cx));
        // A socket that is shut has neither an end nor an error to read.
        if self.socket.is_hung_up() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        with_space(|space| {
            let space = &mut space[..LONGEST];
            match retry(|| sys::recv(&self.socket, &mut *space, RecvFlags::empty())) {
                Ok((read, _)) => Poll::Ready(Ok(take(&space[..read]))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.registration.clear_readable();
                    // Registers the task: the next event wakes it.
                    let _ = self.registration.poll_readable(cx);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
    }
}
