//! A connection: opening it, sending a request, taking the answer, and what its failures are called.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::response::Reader;
use crate::record::ErrorKind;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Who sent it in a closed loop.
    pub user: Option<u32>,
    /// Which of the source addresses it comes from.
    pub source: u32,
    /// Which page it asks for.
    pub page: u32,
    /// What its latency counts from.
    pub started: u64,
    /// When its bytes were sent, on the connection that it is on now.
    pub sent: u64,
    /// When it is given up.
    pub deadline: u64,
    /// Whether its connection had served before, and the peer may just have closed it.
    pub reused: bool,
}

/// What a connection is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It is being established for this request.
    Connecting(Request),
    /// It has this request.
    Busy(Request),
    /// It waits for the next.
    Idle,
    /// Its last answer is there and the peer is about to close it: whoever closes first keeps the port for a minute.
    Closing,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub stream: TcpStream,
    pub state: State,
    /// Which of the source addresses it comes from.
    pub source: u32,
    /// When it was opened.
    pub opened: u64,
    /// What the socket would not take yet.
    unsent: Vec<u8>,
}

/// What reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// The answer is not complete.
    Part,
    /// It is; whether another request can follow.
    Whole { reusable: bool },
    /// There will be none.
    Failed(ErrorKind),
}

impl Connection {
    /// Begins to connect.
    pub fn open(
        target: SocketAddr,
        address: Option<Ipv4Addr>,
        source: u32,
        request: Request,
        now: u64,
    ) -> Result<Self, ErrorKind> {
        let stream = connect(target, address).map_err(|error| connect_error(&error))?;
        Ok(Self { stream, state: State::Connecting(request), source, opened: now, unsent: Vec::new() })
    }

    /// Sends a request, as much of it as the socket takes.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ErrorKind> {
        self.unsent.clear();
        let sent = write(&self.stream, bytes)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends what was left.
    pub fn flush(&mut self) -> Result<(), ErrorKind> {
        if !self.unsent.is_empty() {
            let sent = write(&self.stream, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }

    /// Reads what has arrived. `to_the_end` if the peer may have closed: otherwise a short read means that no more is there.
    pub fn receive(&mut self, reader: &mut Reader, buffer: &mut [u8], to_the_end: bool) -> Arrived {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) if reader.closed() => return Arrived::Whole { reusable: false },
                Ok(0) => return Arrived::Failed(ErrorKind::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == Io::WouldBlock => return Arrived::Part,
                Err(error) if error.kind() == Io::Interrupted => continue,
                Err(error) => return Arrived::Failed(exchange_error(&error)),
            };
            let Ok(taken) = reader.feed(&buffer[..count]) else { return Arrived::Failed(ErrorKind::Malformed) };
            if reader.is_complete() {
                // Bytes that nobody asked for make the next answer doubtful.
                return Arrived::Whole { reusable: reader.keeps_alive() && taken == count && !to_the_end };
            }
            if count < buffer.len() && !to_the_end {
                return Arrived::Part;
            }
        }
    }

    /// Takes whatever comes while nothing is expected: whether the connection is still open.
    pub fn discard(&mut self, buffer: &mut [u8]) -> bool {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == Io::Interrupted => {}
                Err(error) => return error.kind() == Io::WouldBlock,
            }
        }
    }
}

fn write(mut stream: &TcpStream, bytes: &[u8]) -> Result<usize, ErrorKind> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == Io::WouldBlock => break,
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) => return Err(exchange_error(&error)),
        }
    }
    Ok(sent)
}

fn connect(target: SocketAddr, source: Option<Ipv4Addr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        // The port is chosen by connect(), which knows the peer: as many ports for each peer, not for all of them.
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
    }
    match socket.connect(&target.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// What a failure to connect is called.
pub(super) fn connect_error(error: &io::Error) -> ErrorKind {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => ErrorKind::Refused,
        Some(Errno::ETIMEDOUT) => ErrorKind::ConnectTimeout,
        Some(Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED) => ErrorKind::Reset,
        Some(Errno::EMFILE | Errno::ENFILE) => ErrorKind::Descriptors,
        Some(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE) => ErrorKind::Ports,
        _ => ErrorKind::Client,
    }
}

/// What a failure on an established connection is called.
fn exchange_error(error: &io::Error) -> ErrorKind {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED) => ErrorKind::Reset,
        Some(Errno::ETIMEDOUT) => ErrorKind::Timeout,
        _ => ErrorKind::Client,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_names_of_their_causes() {
        for (errno, kind) in [
            (Errno::ECONNREFUSED, ErrorKind::Refused),
            (Errno::ETIMEDOUT, ErrorKind::ConnectTimeout),
            (Errno::EMFILE, ErrorKind::Descriptors),
            (Errno::ENFILE, ErrorKind::Descriptors),
            (Errno::EADDRNOTAVAIL, ErrorKind::Ports),
            (Errno::ENETUNREACH, ErrorKind::Client),
        ] {
            assert_eq!(connect_error(&io::Error::from_raw_os_error(errno as i32)), kind, "{errno}");
        }
        for (errno, kind) in [(Errno::ECONNRESET, ErrorKind::Reset), (Errno::EPIPE, ErrorKind::Reset)] {
            assert_eq!(exchange_error(&io::Error::from_raw_os_error(errno as i32)), kind, "{errno}");
        }
    }
}
