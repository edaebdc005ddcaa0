//! A datagram socket of one session, connected to one server.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg};
use rustix::net::{self as sys, SendFlags};

use super::joining::{self, Joining, Run};
use super::segments::{self, Segments};
use super::{LONGEST, with_space};
use crate::event_loop::Registration;
use crate::hang_up::{HangUp, Held};
use crate::retry::retry;
use crate::shortage::ConnectError;
use crate::transport::{ConnectOptions, Counted, Destination, prepare};

/// Datagrams that are received at once. Few servers answer with more.
const BATCH: usize = 4;

thread_local! {
    /// Headers for a batch in which there is no run.
    static HEADERS: RefCell<MultiHeaders<()>> = RefCell::new(MultiHeaders::preallocate(BATCH, None));
}

/// A datagram socket that is connected to a server. It counts as a connection.
pub struct Connected {
    registration: Registration,
    socket: Rc<Held>,
    joining: Joining,
    segments: Segments,
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
    Ok(Connected {
        registration: Registration::new(&socket)?,
        socket: Held::new(socket),
        joining: Joining::default(),
        segments: Segments::default(),
        _counted: Counted::default(),
    })
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

    /// Sends all datagrams of a run, in one piece if the kernel divides it.
    ///
    /// # Errors
    /// As those of [`Connected::send`].
    pub fn send_run(&self, run: Run<'_>) -> io::Result<()> {
        let lengths = run.datagrams().map(<[u8]>::len);
        let count = run.count();
        if count >= segments::LEAST && self.segments.count(lengths) == count {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let fd = self.socket.as_fd().as_raw_fd();
            match self.segments.send(fd, run.bytes(), run.each(), None, None, flags) {
                Ok(true) | Err(Errno::EAGAIN) => return Ok(()),
                Ok(false) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        run.datagrams().try_for_each(|datagram| self.send(datagram))
    }

    /// Gives the datagrams of the server that have come to `take`, or waits for one. With `few` one by one, so that what
    /// is not wanted yet stays in the socket.
    ///
    /// # Errors
    /// The server has refused a datagram, or there is no way to it.
    pub fn poll_receive(&self, cx: &mut Context<'_>, few: bool, take: impl FnMut(&[u8])) -> Poll<io::Result<()>> {
        ready!(self.registration.poll_readable(cx));
        // A socket that is shut has neither an end nor an error to read.
        if self.socket.is_hung_up() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let (most, received) = if few {
            (1, HEADERS.with_borrow_mut(|headers| self.receive(headers, 1, take)))
        } else if self.joining.is_on() {
            (joining::BATCH, self.receive(&mut joining::headers(0), joining::BATCH, take))
        } else {
            (BATCH, HEADERS.with_borrow_mut(|headers| self.receive(headers, BATCH, take)))
        };
        match received {
            Ok(count) => {
                // A batch that is not full has emptied the socket.
                if count < most {
                    self.registration.clear_readable();
                }
                Poll::Ready(Ok(()))
            }
            Err(Errno::EAGAIN) => {
                self.registration.clear_readable();
                // Registers the task: the next event wakes it.
                let _ = self.registration.poll_readable(cx);
                Poll::Pending
            }
            // The caller asks again.
            Err(Errno::EINTR) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Receives up to `most` messages.
    fn receive(&self, headers: &mut MultiHeaders<()>, most: usize, mut take: impl FnMut(&[u8])) -> nix::Result<usize> {
        with_space(|space| {
            let mut pieces = space.chunks_mut(LONGEST);
            let mut slices: [[IoSliceMut<'_>; 1]; joining::BATCH] =
                std::array::from_fn(|_| [IoSliceMut::new(pieces.next().unwrap_or_default())]);
            let fd = self.socket.as_fd().as_raw_fd();
            let mut received = [(0, 0); joining::BATCH];
            let mut count = 0;
            let messages = recvmmsg(fd, headers, slices[..most].iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
            for (place, message) in received.iter_mut().zip(messages) {
                let each = match message.cmsgs() {
                    Ok(mut parts) => parts.find_map(|part| joining::each(&part)),
                    Err(_) => None,
                };
                *place = (message.bytes, each.unwrap_or(0));
                count += 1;
            }
            let received = &received[..count];
            if count >= joining::LEAST && received.iter().all(|(length, _)| *length > 0 && *length == received[0].0) {
                self.joining.after_bulk(&self.socket);
            }
            for (bytes, (length, each)) in space.chunks(LONGEST).zip(received) {
                Run::new(&bytes[..*length], *each).datagrams().for_each(&mut take);
            }
            Ok(count)
        })
    }
}
