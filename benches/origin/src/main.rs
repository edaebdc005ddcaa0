//! A web server that does as little as possible, so that the proxy in front of it is what the machine is busy with.
//!
//! One thread, edge-triggered epoll, answers made at the start. It understands GET requests without bodies, which is
//! all that the benchmark sends: `/16k` and `/1m` give 16 KiB and 1 MiB, `/text` gives 16 KiB of HTML, every other path 200 bytes.
//!
//! `bench-origin KEPT CLOSED` listens on two addresses: connections to KEPT stay open, those to CLOSED are closed
//! after one answer, with a `Connection: close` that announces it.
#![forbid(unsafe_code)]

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

const LISTENERS: usize = 2;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The ready answers of one listener, head and body in one piece.
struct Answers {
    small: Vec<u8>,
    medium: Vec<u8>,
    large: Vec<u8>,
    text: Vec<u8>,
    close: bool,
}

impl Answers {
    fn new(close: bool) -> Answers {
        let answer = |kind: &str, body: &[u8]| {
            let connection = if close { "close" } else { "keep-alive" };
            let head = format!(
                "HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                 Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
                body.len()
            );
            [head.as_bytes(), body].concat()
        };
        let bytes = |length: usize| answer("application/octet-stream", &vec![b'x'; length]);
        let text = answer("text/html", text(16 * 1024).as_bytes());
        Answers { small: bytes(200), medium: bytes(16 * 1024), large: bytes(1024 * 1024), text, close }
    }

    fn find(&self, head: &[u8]) -> &[u8] {
        match head.strip_prefix(b"GET /") {
            Some(path) if path.starts_with(b"16k ") => &self.medium,
            Some(path) if path.starts_with(b"1m ") => &self.large,
            Some(path) if path.starts_with(b"text ") => &self.text,
            _ => &self.small,
        }
    }
}

/// Rows of a table with numbers that no other row has, so that it compresses as pages do: to about a fifth.
fn text(length: usize) -> String {
    let mut number = 1_u32;
    let mut text = String::with_capacity(length + 128);
    while text.len() < length {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (id, price) = (number >> 16, number % 10_000);
        text.push_str(&format!("<tr><td><a href=\"/items/{id}\">Item {id}</a></td><td>{price}</td></tr>\n"));
    }
    text.truncate(length);
    text
}

/// A connection: the part of a request that has arrived so far, and what is left to send.
struct Connection {
    socket: TcpStream,
    listener: usize,
    partial: Vec<u8>,
    pending: Vec<u8>,
    finished: bool,
}

impl Connection {
    fn handle(&mut self, event: &Event, answers: &Answers, buffer: &mut [u8]) -> io::Result<bool> {
        if event.is_writable() && !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            self.send(&pending)?;
        }
        let to_the_end = event.is_read_closed() || event.is_error();
        if event.is_readable() || to_the_end {
            self.read(to_the_end, answers, buffer)?;
        }
        // A dropped connection is closed, so it waits for what is still to send.
        Ok(!(self.finished && self.pending.is_empty()))
    }

    fn read(&mut self, to_the_end: bool, answers: &Answers, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let length = match self.socket.read(buffer) {
                Ok(0) => {
                    self.finished = true;
                    return Ok(());
                }
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.answer(&buffer[..length], answers)?;
            // A short read has drained the socket: the next bytes bring their own event.
            if length < buffer.len() && !to_the_end {
                return Ok(());
            }
        }
    }

    /// Answers each request that ends in `bytes`.
    fn answer(&mut self, bytes: &[u8], answers: &Answers) -> io::Result<()> {
        // The usual case: exactly one whole request.
        if self.partial.is_empty() && bytes.ends_with(END_OF_HEAD) && find_end(bytes) == Some(bytes.len()) {
            return self.send_answer(bytes, answers);
        }
        self.partial.extend_from_slice(bytes);
        while let Some(end) = find_end(&self.partial) {
            let head: Vec<u8> = self.partial.drain(..end).collect();
            self.send_answer(&head, answers)?;
        }
        Ok(())
    }

    fn send_answer(&mut self, head: &[u8], answers: &Answers) -> io::Result<()> {
        self.finished |= answers.close;
        self.send(answers.find(head))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while self.pending.is_empty() && sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.extend_from_slice(&bytes[sent..]);
        Ok(())
    }
}

/// The position after the first empty line.
fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD).map(|start| start + END_OF_HEAD.len())
}

fn run(addresses: [SocketAddr; LISTENERS]) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(512);
    let mut listeners = [TcpListener::bind(addresses[0])?, TcpListener::bind(addresses[1])?];
    let answers = [Answers::new(false), Answers::new(true)];
    for (number, listener) in listeners.iter_mut().enumerate() {
        poll.registry().register(listener, Token(number), Interest::READABLE)?;
    }
    let mut slots: Vec<Option<Connection>> = Vec::new();
    let mut free = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        let mut accepting = [false; LISTENERS];
        for event in &events {
            let Token(token) = event.token();
            if token < LISTENERS {
                accepting[token] = true;
                continue;
            }
            let slot = token - LISTENERS;
            // An earlier event of the same batch may have ended the connection.
            let Some(connection) = slots[slot].as_mut() else { continue };
            if !connection.handle(event, &answers[connection.listener], &mut buffer).unwrap_or(false) {
                slots[slot] = None;
                free.push(slot);
            }
        }
        // After the batch, so that no stale event meets a new connection in a reused slot.
        for number in (0..LISTENERS).filter(|number| accepting[*number]) {
            while let Ok((mut socket, _)) = listeners[number].accept() {
                let slot = free.pop().unwrap_or_else(|| {
                    slots.push(None);
                    slots.len() - 1
                });
                let _ = socket.set_nodelay(true);
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut socket, Token(slot + LISTENERS), interest)?;
                let (partial, pending) = (Vec::new(), Vec::new());
                slots[slot] = Some(Connection { socket, listener: number, partial, pending, finished: false });
            }
        }
    }
}

fn main() -> io::Result<()> {
    let addresses: Result<Vec<SocketAddr>, _> = std::env::args().skip(1).map(|argument| argument.parse()).collect();
    match addresses.as_deref() {
        Ok([kept, closed]) => run([*kept, *closed]),
        _ => {
            eprintln!("usage: bench-origin KEPT_ADDRESS:PORT CLOSED_ADDRESS:PORT");
            std::process::exit(2);
        }
    }
}
