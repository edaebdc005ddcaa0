//! A stream of bytes to a client or a server. What is done with it has a name here: no other crate touches its socket or
//! the event loop, so that an encrypted stream can be another kind of it.
//!
//! A plain one is a non-blocking socket that joins the event loop only when it has to wait.
//! A short connection that never waits costs no `epoll_ctl`; a read that returns less than was asked for
//! is not followed by one that would fail with EAGAIN.

use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::task::{Context, Poll, ready};

use rustix::net as sys;

use crate::buffer::Buffer;
use crate::event_loop::Registration;
use crate::pipe::Pipe;
use crate::shortage::{ConnectError, Shortage};
use crate::socket::Socket;

/// A connected (or connecting) stream socket, TCP or Unix.
pub struct Transport {
    registration: OnceCell<Registration>,
    socket: Socket,
    nodelay: Cell<bool>,
}

thread_local! {
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// How many connections this worker has, to clients and to servers: what `worker_connections` limits.
pub fn open_connections() -> usize {
    OPEN.get()
}

impl Drop for Transport {
    fn drop(&mut self) {
        OPEN.set(OPEN.get() - 1);
    }
}

impl Transport {
    /// Takes a non-blocking descriptor. `nodelay` tells whether TCP_NODELAY is set already, or means nothing to it.
    pub fn new(fd: OwnedFd, nodelay: bool) -> Transport {
        Transport::of(Socket::System(fd), nodelay)
    }

    pub(crate) fn of(socket: Socket, nodelay: bool) -> Transport {
        OPEN.set(OPEN.get() + 1);
        Transport { registration: OnceCell::new(), socket, nodelay: Cell::new(nodelay) }
    }

    /// Lets the event loop watch it, which tells of what is readable already, too. A read would do that when it finds
    /// nothing; this is for a moment when nothing can have come yet.
    ///
    /// # Errors
    /// The system's limit of watched descriptors.
    pub fn watch(&self) -> io::Result<()> {
        self.register().map(|_| ())
    }

    fn register(&self) -> io::Result<&Registration> {
        if let Some(registration) = self.registration.get() {
            return Ok(registration);
        }
        let registration = self.socket.register()?;
        Ok(self.registration.get_or_init(|| registration))
    }

    /// Waits until a read would not block.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.register()?.poll_readable(cx).map(Ok)
    }

    /// Waits until the peer has closed its side or can no longer be watched. Never reads.
    pub fn poll_peer_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.register() {
            Ok(registration) => registration.poll_read_closed(cx),
            Err(_) => Poll::Ready(()),
        }
    }

    /// Whether anything (data, end, error) arrived since the last complete read; costs no system call.
    pub fn has_news(&self) -> bool {
        self.registration.get().is_some_and(Registration::is_readable)
    }

    /// After reads that leave open whether they emptied the socket: looks, and tells whether nothing is there. Then the
    /// event loop will tell of what comes.
    pub fn is_emptied(&self) -> bool {
        if !self.socket.is_empty() {
            return false;
        }
        if let Some(registration) = self.registration.get() {
            registration.clear_readable();
        }
        true
    }

    /// Reads into a buffer that is taken only when there is something to read; 0 is the end of the stream.
    pub fn poll_recv_buffer(&self, cx: &mut Context<'_>, buffer: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        let registration = self.register()?;
        loop {
            ready!(registration.poll_readable(cx));
            let result = self.recv(buffer.get_or_insert_with(Buffer::take), usize::MAX);
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Reads what is there, if anything is; without the event loop.
    pub fn try_recv_buffer(&self) -> Option<Buffer> {
        let mut buffer = Buffer::take();
        let read = self.recv(&mut buffer, usize::MAX).ok()?;
        (read > 0).then_some(buffer)
    }

    /// Reads up to `limit` bytes into the free space of `buffer`; 0 is the end of the stream.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut Buffer, limit: usize) -> Poll<io::Result<usize>> {
        if self.registration.get().is_none() {
            match self.recv(buffer, limit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
        let registration = self.register()?;
        loop {
            ready!(registration.poll_readable(cx));
            match self.recv(buffer, limit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Reads once. What shows that the socket is empty is remembered: the next event will tell of more.
    #[inline]
    fn recv(&self, buffer: &mut Buffer, limit: usize) -> io::Result<usize> {
        let space = buffer.space();
        let wanted = space.len().min(limit);
        let result = self.socket.recv(&mut space[..wanted]);
        let is_emptied = match &result {
            Ok(read) => *read > 0 && *read < wanted,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if is_emptied && let Some(registration) = self.registration.get() {
            registration.clear_readable();
        }
        let read = result?;
        buffer.end += read;
        Ok(read)
    }

    /// Writes the slices one after the other, as far as the socket takes them. With `last` a close follows: what is
    /// small leaves together with the end of the stream, in one segment instead of two.
    pub fn poll_send(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>], last: bool) -> Poll<io::Result<usize>> {
        self.poll_write(cx, |socket| socket.send(slices, last))
    }

    /// Sends up to `limit` bytes of a file from `offset` on; 0 shows that the file is shorter.
    pub fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_write(cx, |socket| socket.send_file(file, offset, limit))
    }

    /// Moves up to `limit` bytes into a pipe, without a copy; 0 is the end of the stream.
    pub fn poll_splice_from(&self, cx: &mut Context<'_>, pipe: &mut Pipe, limit: usize) -> Poll<io::Result<usize>> {
        let registration = self.register()?;
        loop {
            ready!(registration.poll_readable(cx));
            match self.socket.splice_to(pipe, limit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => registration.clear_readable(),
                result => return Poll::Ready(result),
            }
        }
    }

    /// Moves what a pipe holds into the stream. `more` tells that more will follow.
    pub fn poll_splice_to(&self, cx: &mut Context<'_>, pipe: &mut Pipe, more: bool) -> Poll<io::Result<usize>> {
        self.poll_write(cx, |socket| socket.splice_from(pipe, more))
    }

    /// Runs a writing system call on the socket and waits while it would block.
    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&Socket) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // Nearly every write succeeds at once, so the event loop is asked only after one that did not.
        match write(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
        let registration = self.register()?;
        loop {
            ready!(registration.poll_writable(cx));
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => registration.clear_writable(),
                result => return Poll::Ready(result),
            }
        }
    }

    /// Waits until the connection that was begun stands, or has failed.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write(cx, |socket| socket.connected().map(|()| 0)).map_ok(|_| ())
    }

    /// Sends small writes at once. Connections that write a message in one piece never need it.
    pub fn set_nodelay(&self) {
        if !self.nodelay.replace(true) {
            self.socket.set_nodelay();
        }
    }

    /// Tells the peer that nothing more will be written.
    pub fn shutdown_write(&self) {
        self.socket.shutdown_write();
    }

    /// Makes the close send a reset, which frees the socket at once (`reset_timedout_connection`).
    pub fn reset_on_close(&self) {
        self.socket.reset_on_close();
    }

    /// The local address of a TCP socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_address()
    }
}

/// Where to connect to.
pub enum Destination<'a> {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix-domain socket.
    Unix(&'a Path),
}

/// How to connect.
#[derive(Default)]
pub struct ConnectOptions {
    /// Local address (`proxy_bind`).
    pub bind: Option<SocketAddr>,
    /// Bind to a foreign address (`transparent`).
    pub transparent: bool,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
}

/// Begins to connect; the first write tells whether it worked, or waits until it has.
///
/// # Errors
/// What the system refuses at once: no route, refused on loopback, no descriptor, an address in use.
pub fn connect(destination: &Destination<'_>, options: &ConnectOptions) -> Result<Transport, ConnectError> {
    #[cfg(feature = "simulation")]
    if let Some(begun) = crate::simulation::connect(destination) {
        return begun;
    }
    let flags = sys::SocketFlags::NONBLOCK | sys::SocketFlags::CLOEXEC;
    let (family, nodelay) = match destination {
        Destination::Inet(SocketAddr::V4(_)) => (sys::AddressFamily::INET, false),
        Destination::Inet(SocketAddr::V6(_)) => (sys::AddressFamily::INET6, false),
        Destination::Unix(_) => (sys::AddressFamily::UNIX, true),
    };
    let fd = sys::socket_with(family, sys::SocketType::STREAM, flags, None).map_err(failed("socket"))?;
    if options.keepalive {
        sys::sockopt::set_socket_keepalive(&fd, true).map_err(failed("setsockopt"))?;
    }
    if let Some(local) = options.bind {
        bind(&fd, local, options.transparent)?;
    }
    let begun = match destination {
        Destination::Inet(address) => sys::connect(&fd, address),
        Destination::Unix(path) => sys::SocketAddrUnix::new(*path).and_then(|address| sys::connect(&fd, &address)),
    };
    match begun {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Transport::new(fd, nodelay)),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// A system call that fails whatever the server is.
fn failed<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> ConnectError {
    move |error| ConnectError::Own(Shortage::System(call, error.into()))
}

/// Gives a socket its local address. Without a port in it, the port is chosen when the server is known: so the same
/// port serves connections to many servers.
fn bind(fd: &OwnedFd, local: SocketAddr, transparent: bool) -> Result<(), ConnectError> {
    if transparent && local.is_ipv4() {
        socket2::SockRef::from(fd).set_ip_transparent_v4(true).map_err(failed("setsockopt"))?;
    }
    if local.port() == 0 {
        // An old kernel does not know it, and chooses at once.
        let _ = nix::sys::socket::setsockopt(fd, nix::sys::socket::sockopt::IpBindAddressNoPort, &true);
    }
    sys::bind(fd, &local).map_err(failed("bind"))
}
