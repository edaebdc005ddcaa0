//! What plays clients and servers in a simulation.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::network::{Backlog, End, Network, Reception};
use crate::socket::Socket;
use crate::transport::Transport;

/// An end of a connection. Dropping it closes it; unread bytes make that a reset, as with any socket.
pub struct Peer {
    end: End,
}

impl Peer {
    /// A client's connection from here to there: the client, and what the server accepts.
    ///
    /// # Panics
    /// Outside of a simulation.
    pub fn dial(from: SocketAddr, to: SocketAddr) -> (Peer, Transport) {
        Network::with(|network| {
            let (near, far) = network.link(from, to);
            near.establish();
            far.establish();
            network.note(format_args!("{} is a client", near.number()));
            (Peer { end: near }, Transport::of(Socket::Simulated(far), true))
        })
        .expect("a simulation")
    }

    /// The connection's number in the trace.
    pub fn number(&self) -> u64 {
        self.end.number()
    }

    /// Reads what has come, or waits for it; 0 is the end of the stream.
    ///
    /// # Errors
    /// The connection was reset.
    pub async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll(cx, || self.end.recv(into))).await
    }

    /// Writes as much as there is room for, or waits for room.
    ///
    /// # Errors
    /// The connection was reset.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll(cx, || self.end.send(&[IoSlice::new(bytes)]))).await
    }

    /// Writes all of it so that it arrives at one moment, or waits until there is room for that.
    ///
    /// # Errors
    /// The connection was reset.
    pub async fn write_together(&self, bytes: &[u8]) -> io::Result<()> {
        poll_fn(|cx| self.poll(cx, || self.end.send_together(bytes))).await
    }

    fn poll<T>(&self, cx: &mut Context<'_>, mut act: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.end.watch(cx);
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Ends the direction to the other end.
    pub fn shutdown_write(&self) {
        self.end.shutdown_write();
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.end.reset_on_close();
    }

    /// Whether a reset has arrived.
    pub fn is_broken(&self) -> bool {
        self.end.is_broken()
    }
}

/// A server's listening socket.
pub struct Listener {
    backlog: Rc<Backlog>,
}

impl Listener {
    /// Listens on an address. `manner` is asked at each connection what becomes of it.
    ///
    /// # Panics
    /// Outside of a simulation.
    pub fn new(address: SocketAddr, manner: impl FnMut() -> Reception + 'static) -> Listener {
        let backlog = Rc::new(Backlog::new(address, manner));
        Network::with(|network| network.backlogs.borrow_mut().insert(address, Rc::clone(&backlog)))
            .expect("a simulation");
        Listener { backlog }
    }

    /// The next connection; waits for it. It may not stand yet.
    pub async fn accept(&self) -> Peer {
        Peer { end: poll_fn(|cx| self.backlog.poll_come(cx)).await }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        Network::with(|network| network.backlogs.borrow_mut().remove(&self.backlog.address()));
        self.backlog.turn_away();
    }
}
