//! A relay that parses nothing: the floor under the cost of any proxy that moves bytes through user space.
//!
//! One thread, edge-triggered epoll, one server connection for each client connection, opened when the client
//! connects and kept as long as it. A request costs two reads and two writes and nothing else: a read shorter than the
//! buffer has drained the socket, so no read ends in `EAGAIN`, and interest is registered once per connection.
//!
//! `bench-relay LISTEN SERVER…`, for example `bench-relay 127.0.0.1:8080 127.0.0.1:9000 127.0.0.2:9000`; with `udp` or
//! `udp-once` before it, datagrams are relayed to one server.
#![forbid(unsafe_code)]

mod datagrams;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

const BUFFER: usize = 64 * 1024;
const LISTENER: Token = Token(usize::MAX);

/// One of the two sockets of a pair, with the bytes that the kernel would not yet take for it.
struct Side {
    socket: TcpStream,
    pending: Vec<u8>,
    read_closed: bool,
}

impl Side {
    fn new(socket: TcpStream) -> Side {
        // Refused only on a socket that is already dead, which its first read reports.
        let _ = socket.set_nodelay(true);
        Side { socket, pending: Vec::new(), read_closed: false }
    }

    /// Writes what is pending; true when nothing is left.
    fn flush(&mut self) -> io::Result<bool> {
        while !self.pending.is_empty() {
            match self.socket.write(&self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if is_not_ready(&error) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes `bytes`, and keeps as pending what the kernel does not take.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(written) => sent += written,
                Err(error) if is_not_ready(&error) => {
                    self.pending.extend_from_slice(&bytes[sent..]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// True for a socket that is full, empty, or not connected yet: a later event tells when to go on.
fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// A client's connection (side 0) and the server's (side 1).
struct Pair {
    sides: [Side; 2],
}

impl Pair {
    /// Handles one event of `side`; false when the pair is finished.
    fn handle(&mut self, side: usize, event: &Event, buffer: &mut [u8]) -> io::Result<bool> {
        let other = 1 - side;
        if event.is_writable() && !self.sides[side].pending.is_empty() {
            // While bytes were pending the other side was not read, so its edge may be lost: read it to the end.
            if self.sides[side].flush()? && !self.copy(other, true, buffer)? {
                return Ok(false);
            }
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            return self.copy(side, event.is_read_closed() || event.is_error(), buffer);
        }
        Ok(true)
    }

    /// Copies from side `from` to the other until a read is short (or, with `to_the_end`, until the socket has no more)
    /// or the other side is full. False when both directions have ended.
    fn copy(&mut self, from: usize, to_the_end: bool, buffer: &mut [u8]) -> io::Result<bool> {
        let to = 1 - from;
        while self.sides[to].pending.is_empty() && !self.sides[from].read_closed {
            match self.sides[from].socket.read(buffer) {
                Ok(0) => {
                    self.sides[from].read_closed = true;
                    // The peer may have gone already; its own event says so.
                    let _ = self.sides[to].socket.shutdown(Shutdown::Write);
                }
                Ok(length) => {
                    self.sides[to].send(&buffer[..length])?;
                    if length < buffer.len() && !to_the_end {
                        break;
                    }
                }
                Err(error) if is_not_ready(&error) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(!(self.sides[0].read_closed && self.sides[1].read_closed))
    }
}

/// The open pairs; a pair's sockets have the tokens `2 * index` and `2 * index + 1`.
#[derive(Default)]
struct Pairs {
    slots: Vec<Option<Pair>>,
    free: Vec<usize>,
}

impl Pairs {
    fn open(&mut self, client: TcpStream, server: TcpStream, registry: &Registry) -> io::Result<()> {
        let mut pair = Pair { sides: [Side::new(client), Side::new(server)] };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        for (number, side) in pair.sides.iter_mut().enumerate() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            registry.register(&mut side.socket, Token(2 * index + number), interest)?;
        }
        self.slots[index] = Some(pair);
        Ok(())
    }

    fn handle(&mut self, event: &Event, buffer: &mut [u8]) {
        let Token(token) = event.token();
        // An earlier event of the same batch may have ended the pair.
        let Some(pair) = self.slots[token / 2].as_mut() else { return };
        if !pair.handle(token % 2, event, buffer).unwrap_or(false) {
            self.slots[token / 2] = None;
            self.free.push(token / 2);
        }
    }
}

fn accept(listener: &TcpListener, servers: &mut impl Iterator<Item = SocketAddr>, pairs: &mut Pairs, poll: &Poll) {
    // Any error, "nothing more to accept" first of all, ends the turn; the next event brings the next one.
    while let Ok((client, _)) = listener.accept() {
        let opened = servers
            .next()
            .ok_or_else(|| ErrorKind::NotFound.into())
            .and_then(TcpStream::connect)
            .and_then(|server| pairs.open(client, server, poll.registry()));
        if let Err(error) = opened {
            eprintln!("bench-relay: {error}");
        }
    }
}

fn run(listen: SocketAddr, servers: Vec<SocketAddr>) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(512);
    let mut listener = TcpListener::bind(listen)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut servers = servers.into_iter().cycle();
    let mut pairs = Pairs::default();
    let mut buffer = vec![0; BUFFER];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        let mut accepting = false;
        for event in &events {
            match event.token() {
                LISTENER => accepting = true,
                _ => pairs.handle(event, &mut buffer),
            }
        }
        // After the batch, so that no stale event meets a new pair in a reused slot.
        if accepting {
            accept(&listener, &mut servers, &mut pairs, &poll);
        }
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let udp = arguments.next_if(|word| word.starts_with("udp"));
    let addresses: Result<Vec<SocketAddr>, _> = arguments.map(|argument| argument.parse()).collect();
    match (udp.as_deref(), addresses.as_deref()) {
        (None, Ok([listen, servers @ ..])) if !servers.is_empty() => run(*listen, servers.to_vec()),
        (Some(mode @ ("udp" | "udp-once")), Ok([listen, server])) => {
            datagrams::run(*listen, *server, mode == "udp-once")
        }
        _ => {
            eprintln!("usage: bench-relay [udp|udp-once] LISTEN_ADDRESS:PORT SERVER_ADDRESS:PORT...");
            std::process::exit(2);
        }
    }
}
