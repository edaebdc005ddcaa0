//! A stream of bytes to a client or a server. What is done with it has a name here: no other crate touches its socket or
//! the event loop, so that an encrypted stream can be another kind of it.
//!
//! A plain one is a non-blocking socket that joins the event loop only when it has to wait.
//! A short connection that never waits costs no `epoll_ctl`; a read that returns less than was asked for
//! is not followed by one that would fail with EAGAIN.

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net as sys;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use crate::buffer::Buffer;
use crate::event_loop::Registration;
use crate::hang_up::{HangUp, Held};
#[cfg(feature = "simulation")]
use crate::network;
use crate::pipe::Pipe;
use crate::shortage::{ConnectError, Shortage};
use crate::socket::Socket;
use crate::tls::{Secured, Stop, Tls};

/// A connected (or connecting) stream socket, TCP or Unix, plain or encrypted.
pub struct Transport {
    registration: OnceCell<Registration>,
    socket: Socket,
    nodelay: Cell<bool>,
    resets: Cell<bool>,
    /// What is between the socket and the bytes of others, if it is encrypted.
    tls: OnceCell<Box<RefCell<Tls>>>,
}

thread_local! {
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// How many connections this worker has, to clients and to servers: what `worker_connections` limits.
pub fn open_connections() -> usize {
    OPEN.get()
}

/// Counts as a connection for as long as it lives.
pub struct Counted(());

impl Default for Counted {
    fn default() -> Counted {
        OPEN.set(OPEN.get() + 1);
        Counted(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.set(OPEN.get() - 1);
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        OPEN.set(OPEN.get() - 1);
        if !self.resets.get() {
            self.say_goodbye();
        }
    }
}

impl Transport {
    /// Takes a non-blocking descriptor. `nodelay` tells whether TCP_NODELAY is set already, or means nothing to it.
    pub fn new(fd: OwnedFd, nodelay: bool) -> Transport {
        Transport::of(Socket::System(Held::new(fd)), nodelay)
    }

    pub(crate) fn of(socket: Socket, nodelay: bool) -> Transport {
        OPEN.set(OPEN.get() + 1);
        Transport {
            registration: OnceCell::new(),
            socket,
            nodelay: Cell::new(nodelay),
            resets: Cell::new(false),
            tls: OnceCell::new(),
        }
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
        if let Some(tls) = self.tls.get()
            && tls.borrow_mut().has_plain()?
        {
            return Poll::Ready(Ok(()));
        }
        self.register()?.poll_readable(cx).map(Ok)
    }

    /// Waits until the peer has closed its side or can no longer be watched. Never reads.
    pub fn poll_peer_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.register() {
            Ok(registration) => registration.poll_read_closed(cx),
            Err(_) => Poll::Ready(()),
        }
    }

    /// Whether the event loop has told that the peer has closed its side. There may still be something to read.
    pub fn is_closed_by_peer(&self) -> bool {
        self.registration.get().is_some_and(Registration::is_read_closed)
    }

    /// Whether anything (data, end, error) arrived since the last complete read; costs no system call, unless something did
    /// and it is encrypted.
    pub fn has_news(&self) -> bool {
        let readable = self.registration.get().is_some_and(Registration::is_readable);
        match self.tls.get() {
            None => readable,
            Some(tls) => readable && self.has_plain_news(tls),
        }
    }

    /// After reads that leave open whether they emptied the socket: looks, and tells whether nothing is there. Then the
    /// event loop will tell of what comes.
    pub fn is_emptied(&self) -> bool {
        if let Some(tls) = self.tls.get() {
            return !self.has_plain_news(tls);
        }
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
        if let Some(tls) = self.tls.get() {
            ready!(self.poll_readable(cx))?;
            return self.poll_recv_tls(cx, tls, buffer.get_or_insert_with(Buffer::take), usize::MAX);
        }
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
        let read = match self.tls.get() {
            None => self.recv(&mut buffer, usize::MAX).ok()?,
            Some(tls) => self.recv_tls(tls, &mut buffer, usize::MAX).ok()?,
        };
        (read > 0).then_some(buffer)
    }

    /// Reads up to `limit` bytes into the free space of `buffer`; 0 is the end of the stream.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut Buffer, limit: usize) -> Poll<io::Result<usize>> {
        if let Some(tls) = self.tls.get() {
            return self.poll_recv_tls(cx, tls, buffer, limit);
        }
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
    ///
    /// An encrypted stream answers once all that it has taken is written; until then it is to be asked again with the same
    /// bytes.
    pub fn poll_send(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>], last: bool) -> Poll<io::Result<usize>> {
        if let Some(tls) = self.tls.get() {
            return self.poll_send_tls(cx, tls, slices, last);
        }
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
        if self.tls.get().is_some() {
            let mut buffer = Buffer::take();
            let space = buffer.space();
            let wanted = limit.min(space.len());
            buffer.end = file.read_at(&mut space[..wanted], offset)?;
            return self.poll_send(cx, &[IoSlice::new(buffer.unread())], false);
        }
        self.poll_write(cx, |socket| socket.send_file(file, offset, limit))
    }

    /// Whether bytes can be moved inside the kernel: not if they have to be encrypted.
    pub fn splices(&self) -> bool {
        self.tls.get().is_none()
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

    /// What ends the connection from elsewhere on this thread.
    pub fn hang_up(&self) -> HangUp {
        self.socket.hang_up()
    }

    /// Tells the peer that nothing more will be written.
    pub fn shutdown_write(&self) {
        self.say_goodbye();
        self.socket.shutdown_write();
    }

    /// Makes the close send a reset, which frees the socket at once (`reset_timedout_connection`).
    pub fn reset_on_close(&self) {
        self.resets.set(true);
        self.socket.reset_on_close();
    }

    /// The local address of a TCP socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_address()
    }
}

/// Encrypted streams.
impl Transport {
    /// From now on the bytes are those of TLS, as the server. What was read already begins the handshake.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn begin_tls_server(&self, config: Arc<ServerConfig>, received: Option<Buffer>) -> io::Result<()> {
        let _ = self.tls.set(Box::new(RefCell::new(Tls::server(config, received)?)));
        Ok(())
    }

    /// From now on the bytes are those of TLS, as the client. `name` is the server's.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn begin_tls_client(&self, config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<()> {
        let _ = self.tls.set(Box::new(RefCell::new(Tls::client(config, name)?)));
        Ok(())
    }

    /// What was agreed on, once the handshake is complete.
    pub fn secured(&self) -> Option<Secured> {
        self.tls.get()?.borrow().secured()
    }

    /// Waits until the handshake is complete. A stream that is not encrypted has none.
    pub fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(tls) = self.tls.get() else { return Poll::Ready(Ok(())) };
        loop {
            let stop = tls.borrow_mut().handshake();
            if stop.is_err() {
                // The alert tells the peer why; if there is no room for it, it does not learn it.
                let _ = self.poll_flush(cx, tls, false);
            }
            let stop = stop?;
            ready!(self.poll_flush(cx, tls, false))?;
            if !tls.borrow().is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            match stop {
                Stop::Closed => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Stop::Plain | Stop::Full => {}
                Stop::Incomplete => match self.fill(&mut tls.borrow_mut()) {
                    Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let registration = self.register()?;
                        ready!(registration.poll_readable(cx));
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                },
            }
        }
    }

    /// Reads records; 0 is the end of the stream.
    fn fill(&self, tls: &mut Tls) -> io::Result<usize> {
        let read = self.recv(tls.incoming(), usize::MAX);
        tls.settle_incoming();
        read
    }

    /// Reads once, without the event loop. A stream that ends without the word that it does is broken off.
    fn recv_tls(&self, tls: &RefCell<Tls>, buffer: &mut Buffer, limit: usize) -> io::Result<usize> {
        let mut tls = tls.borrow_mut();
        loop {
            let taken = tls.take(buffer, limit);
            if tls.outgoing().is_some() {
                // Answers to the peer's own messages, or an alert. What there is no room for goes with the next write.
                let _ = self.flush(&mut tls, false);
            }
            if let Some(taken) = taken? {
                return Ok(taken);
            }
            if self.fill(&mut tls)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn poll_send_tls(
        &self,
        cx: &mut Context<'_>,
        tls: &RefCell<Tls>,
        slices: &[IoSlice<'_>],
        last: bool,
    ) -> Poll<io::Result<usize>> {
        loop {
            tls.borrow_mut().encrypt(slices, last)?;
            ready!(self.poll_flush(cx, tls, last))?;
            // Nothing is taken when the buffer was full of what goes out by itself.
            match tls.borrow_mut().written() {
                0 if slices.iter().any(|slice| !slice.is_empty()) => {}
                written => return Poll::Ready(Ok(written)),
            }
        }
    }

    fn poll_recv_tls(
        &self,
        cx: &mut Context<'_>,
        tls: &RefCell<Tls>,
        buffer: &mut Buffer,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(registration) = self.registration.get()
            && !tls.borrow_mut().has_plain()?
        {
            ready!(registration.poll_readable(cx));
        }
        loop {
            match self.recv_tls(tls, buffer, limit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
            ready!(self.register()?.poll_readable(cx));
        }
    }

    /// Whether something for the reader has come, an end or an error; what is not for the reader is dealt with.
    fn has_plain_news(&self, tls: &RefCell<Tls>) -> bool {
        let mut tls = tls.borrow_mut();
        loop {
            match tls.has_plain() {
                Ok(false) => {}
                Ok(true) | Err(_) => return true,
            }
            match self.fill(&mut tls) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    fn flush(&self, tls: &mut Tls, last: bool) -> io::Result<()> {
        while let Some(bytes) = tls.outgoing() {
            let wrote = self.socket.send(&[IoSlice::new(bytes)], last)?;
            tls.wrote(wrote);
        }
        Ok(())
    }

    fn poll_flush(&self, cx: &mut Context<'_>, tls: &RefCell<Tls>, last: bool) -> Poll<io::Result<()>> {
        let mut tls = tls.borrow_mut();
        let flushed = self.poll_write(cx, |_| self.flush(&mut tls, last).map(|()| 0));
        flushed.map_ok(|_| ())
    }

    /// Tells the peer of an encrypted stream that nothing more will be written, if there is room for that.
    fn say_goodbye(&self) {
        if let Some(tls) = self.tls.get() {
            let mut tls = tls.borrow_mut();
            if tls.close().is_ok() {
                let _ = self.flush(&mut tls, false);
            }
        }
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
    /// SO_RCVBUF.
    pub receive_buffer: Option<usize>,
    /// SO_SNDBUF.
    pub send_buffer: Option<usize>,
}

/// Begins to connect; the first write tells whether it worked, or waits until it has.
///
/// # Errors
/// What the system refuses at once: no route, refused on loopback, no descriptor, an address in use.
pub fn connect(destination: &Destination<'_>, options: &ConnectOptions) -> Result<Transport, ConnectError> {
    #[cfg(feature = "simulation")]
    if let Some(begun) = network::connect(match destination {
        Destination::Inet(address) => Some(*address),
        Destination::Unix(_) => None,
    }) {
        return begun.map(|end| Transport::of(Socket::Simulated(end), false));
    }
    let fd = prepare(destination, sys::SocketType::STREAM, options)?;
    let begun = match destination {
        Destination::Inet(address) => sys::connect(&fd, address),
        Destination::Unix(path) => sys::SocketAddrUnix::new(*path).and_then(|address| sys::connect(&fd, &address)),
    };
    match begun {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {
            Ok(Transport::new(fd, matches!(destination, Destination::Unix(_))))
        }
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// A socket to a server, before it is connected.
pub(crate) fn prepare(
    destination: &Destination<'_>,
    kind: sys::SocketType,
    options: &ConnectOptions,
) -> Result<OwnedFd, ConnectError> {
    let flags = sys::SocketFlags::NONBLOCK | sys::SocketFlags::CLOEXEC;
    let family = match destination {
        Destination::Inet(SocketAddr::V4(_)) => sys::AddressFamily::INET,
        Destination::Inet(SocketAddr::V6(_)) => sys::AddressFamily::INET6,
        Destination::Unix(_) => sys::AddressFamily::UNIX,
    };
    let fd = sys::socket_with(family, kind, flags, None).map_err(failed("socket"))?;
    if options.keepalive && kind == sys::SocketType::STREAM {
        sys::sockopt::set_socket_keepalive(&fd, true).map_err(failed("setsockopt"))?;
    }
    if let Some(size) = options.receive_buffer {
        sys::sockopt::set_socket_recv_buffer_size(&fd, size).map_err(failed("setsockopt"))?;
    }
    if let Some(size) = options.send_buffer {
        sys::sockopt::set_socket_send_buffer_size(&fd, size).map_err(failed("setsockopt"))?;
    }
    if let Some(local) = options.bind {
        bind(&fd, local, options.transparent)?;
    }
    Ok(fd)
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
