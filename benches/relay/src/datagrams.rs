//! The same for datagrams: a session and a socket for each client. Those of clients are received and answered in batches; a
//! session's own socket is written and read once for each.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};

const BATCH: usize = 64;
const LARGEST: usize = 2048;
const LISTENER: Token = Token(usize::MAX);

/// A client's session.
struct Session {
    server: UdpSocket,
    client: SockaddrIn,
}

struct Relay {
    poll: Poll,
    listener: UdpSocket,
    server: SocketAddr,
    /// A session ends with its first answer.
    once: bool,
    sessions: Vec<Option<Session>>,
    free: Vec<usize>,
    of_clients: HashMap<SockaddrIn, usize>,
}

impl Relay {
    fn session(&mut self, client: SockaddrIn) -> io::Result<&Session> {
        let index = match self.of_clients.get(&client) {
            Some(index) => *index,
            None => {
                let mut server = UdpSocket::bind(([127, 0, 0, 1], 0).into())?;
                server.connect(self.server)?;
                let index = self.free.pop().unwrap_or(self.sessions.len());
                self.poll.registry().register(&mut server, Token(index), Interest::READABLE)?;
                if index == self.sessions.len() {
                    self.sessions.push(None);
                }
                self.sessions[index] = Some(Session { server, client });
                self.of_clients.insert(client, index);
                index
            }
        };
        self.sessions[index].as_ref().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Receives a batch of the clients' datagrams and sends each to the server; false when there are no more.
    fn requests(&mut self, headers: &mut MultiHeaders<SockaddrIn>, buffers: &mut [Vec<u8>]) -> io::Result<bool> {
        let mut spaces: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let received = recvmmsg(self.listener.as_raw_fd(), headers, spaces.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        let received: Vec<_> = match received {
            Ok(received) => received.map(|message| (message.bytes, message.address)).collect(),
            Err(nix::errno::Errno::EAGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for ((length, client), buffer) in received.iter().zip(buffers) {
            if let Some(client) = client {
                self.session(*client)?.server.send(&buffer[..*length])?;
            }
        }
        Ok(received.len() == BATCH)
    }

    /// Receives the server's answer to a session, if it is there.
    fn answer(&mut self, index: usize, buffer: &mut [u8]) -> Option<(usize, SockaddrIn)> {
        let session = self.sessions.get(index)?.as_ref()?;
        let found = session.server.recv(buffer).ok().map(|length| (length, session.client));
        if let Some((_, client)) = found.filter(|_| self.once) {
            self.sessions[index] = None;
            self.free.push(index);
            self.of_clients.remove(&client);
        }
        found
    }
}

/// Relays between clients and one server, without end.
pub fn run(listen: SocketAddr, server: SocketAddr, once: bool) -> io::Result<()> {
    let (poll, listener) = (Poll::new()?, UdpSocket::bind(listen)?);
    let (sessions, free, of_clients) = (Vec::new(), Vec::new(), HashMap::new());
    let mut relay = Relay { poll, listener, server, once, sessions, free, of_clients };
    relay.poll.registry().register(&mut relay.listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(BATCH);
    let mut buffers = vec![vec![0; LARGEST]; BATCH];
    let mut incoming = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut outgoing = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    loop {
        match relay.poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        let mut answers = Vec::with_capacity(BATCH);
        for event in events.iter().filter(|event| event.token() != LISTENER) {
            answers.extend(relay.answer(event.token().0, &mut buffers[answers.len()]));
        }
        let slices: Vec<_> =
            answers.iter().zip(&buffers).map(|((length, _), buffer)| [IoSlice::new(&buffer[..*length])]).collect();
        let clients: Vec<_> = answers.iter().map(|(_, client)| Some(*client)).collect();
        if !answers.is_empty() {
            sendmmsg(relay.listener.as_raw_fd(), &mut outgoing, &slices, &clients, [], MsgFlags::empty())?;
        }
        if events.iter().any(|event| event.token() == LISTENER) {
            while relay.requests(&mut incoming, &mut buffers)? {}
        }
    }
}
