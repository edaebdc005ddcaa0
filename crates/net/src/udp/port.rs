//! A bound datagram socket, which the sessions of all its clients share.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, setsockopt,
    sockopt,
};
use rustix::net::getsockname;

use super::joining::{self, Joining, Run};
use super::segments::Segments;
use super::{BATCH, LONGEST, with_space};
use crate::event_loop::{self, Deferred, Registration};

/// Batches that are received before the other tasks get their turn.
const BATCHES: usize = 4;
/// How much may wait for room in the socket; what comes then is lost, as it would be in the socket's queue.
const MOST_WAITING: usize = 4 << 20;

/// A message of a batch: a datagram, or a run of them.
#[derive(Clone, Copy)]
struct Message {
    /// The client.
    from: SocketAddr,
    /// The local address that it has sent to.
    to: SocketAddr,
    length: usize,
    /// How long each datagram of a run is; 0 for one datagram.
    each: usize,
}

/// A bound datagram socket in the event loop. The supervisor has a copy of it, so its watch is ended expressly.
pub struct Port {
    registration: Registration,
    socket: OwnedFd,
    local: SocketAddr,
    /// It receives for all addresses of the machine, so that each datagram has a local address of its own.
    any: bool,
    /// For batches in which there is no run.
    received: RefCell<MultiHeaders<SockaddrStorage>>,
    joining: Joining,
    /// For what leaves from the socket's own address.
    leaving: RefCell<MultiHeaders<SockaddrStorage>>,
    outgoing: RefCell<Outgoing>,
    segments: Segments,
    /// The socket has no room; its task sends what waits when there is some.
    is_full: Cell<bool>,
    /// Its socket is watched by another.
    is_retired: Cell<bool>,
}

/// Datagrams for clients, one behind the other.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    datagrams: Vec<Datagram>,
    /// How many of them have been sent.
    sent: usize,
    /// The end of those that have been sent, in `bytes`.
    start: usize,
}

#[derive(Clone, Copy)]
struct Datagram {
    to: SocketAddr,
    from: SocketAddr,
    length: usize,
}

impl Port {
    /// Begins to watch a bound socket.
    ///
    /// # Errors
    /// The system's limit of watched descriptors; a socket that is not bound to an address.
    pub fn new(socket: OwnedFd) -> io::Result<Rc<Port>> {
        let local = SocketAddr::try_from(getsockname(&socket)?)?;
        let any = local.ip().is_unspecified();
        if any && local.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        } else if any {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        }
        let joining = Joining::of(&socket);
        Ok(Rc::new(Port {
            registration: Registration::new(&socket)?,
            socket,
            local,
            any,
            received: RefCell::new(plain_headers(any, local)),
            joining,
            leaving: RefCell::new(MultiHeaders::preallocate(BATCH, None)),
            outgoing: RefCell::default(),
            segments: Segments::default(),
            is_full: Cell::new(false),
            is_retired: Cell::new(false),
        }))
    }

    /// Receives datagrams for as long as it is polled: the client, the local address and the datagrams that it has sent in
    /// a run, or one, are given to `take`. It is ready only with an error.
    ///
    /// # Errors
    /// A shortage of this machine.
    pub fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(SocketAddr, SocketAddr, Run<'_>),
    ) -> Poll<io::Error> {
        if self.is_full.get() && self.registration.poll_writable(cx).is_ready() {
            self.is_full.set(false);
            self.send_waiting();
        }
        if self.is_full.get() {
            let _ = self.registration.poll_writable(cx);
        }
        for _ in 0..BATCHES {
            if self.registration.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            let received = with_space(|space| {
                let (messages, is_full) = self.receive(space)?;
                for (bytes, message) in space.chunks(LONGEST).zip(&messages) {
                    let Some(Message { from, to, length, each }) = *message else { continue };
                    take(from, to, Run::new(&bytes[..length], each));
                }
                Ok(is_full)
            });
            match received {
                Ok(true) | Err(Errno::EINTR) => {}
                Ok(false) | Err(Errno::EAGAIN) => self.registration.clear_readable(),
                Err(error) => return Poll::Ready(error.into()),
            }
        }
        if self.registration.poll_readable(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Receives a batch, and tells whether it is full.
    fn receive(&self, space: &mut [u8]) -> nix::Result<([Option<Message>; BATCH], bool)> {
        let mut pieces = space.chunks_mut(LONGEST);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(pieces.next().unwrap_or_default())]);
        let (mut kept, mut new) = (None, None);
        let (headers, most) = if self.joining.is_on() {
            let more = if self.any { nix::cmsg_space!(nix::libc::in6_pktinfo).capacity() } else { 0 };
            (new.insert(joining::headers(more)), joining::BATCH)
        } else {
            (&mut **kept.insert(self.received.borrow_mut()), BATCH)
        };
        let fd = self.socket.as_raw_fd();
        let mut messages = [None; BATCH];
        let (mut count, mut unreadable) = (0, false);
        let received = recvmmsg(fd, headers, slices[..most].iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
        for (place, message) in messages.iter_mut().zip(received) {
            count += 1;
            if joining::is_unreadable(&message, &self.socket) {
                unreadable = true;
                continue;
            }
            let (mut local, mut each) = (None, 0);
            for part in message.cmsgs().into_iter().flatten() {
                local = local.or_else(|| addressed(&part).filter(|_| self.any));
                each = joining::each(&part).unwrap_or(each);
            }
            let to = local.map_or(self.local, |ip| SocketAddr::new(ip, self.local.port()));
            // A datagram without a sender has no way back.
            let from = message.address.as_ref().and_then(address).unwrap_or(self.local);
            *place = Some(Message { from, to, length: message.bytes, each });
        }
        drop((kept, new));
        if unreadable {
            // They have shortened the space for control messages.
            *self.received.borrow_mut() = plain_headers(self.any, self.local);
        }
        if unreadable || is_bulk(&messages) {
            self.joining.after_bulk(&self.socket);
        }
        Ok((messages, count == most))
    }

    /// Sends a datagram to a client, with the others of this turn of the event loop.
    pub fn send(self: &Rc<Self>, to: SocketAddr, from: SocketAddr, bytes: &[u8]) {
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.bytes.len() + bytes.len() > MOST_WAITING {
            return;
        }
        let first = outgoing.datagrams.is_empty();
        outgoing.bytes.extend_from_slice(bytes);
        outgoing.datagrams.push(Datagram { to, from, length: bytes.len() });
        if first {
            event_loop::defer(Rc::clone(self) as Rc<dyn Deferred>);
        }
    }

    /// Sends what waits, as far as there is room.
    fn send_waiting(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        while outgoing.sent < outgoing.datagrams.len() {
            match self.send_batch(&outgoing) {
                Ok(sent) => outgoing.advance(sent.max(1)),
                Err(Errno::EINTR) => {}
                // Nobody tells a retired one when there is room again: it is lost, as on the way.
                Err(Errno::EAGAIN) if self.is_retired.get() => outgoing.advance(1),
                Err(Errno::EAGAIN) => {
                    self.registration.clear_writable();
                    self.is_full.set(true);
                    outgoing.compact();
                    return;
                }
                // This client cannot be reached; the others can.
                Err(_) => outgoing.advance(1),
            }
        }
        outgoing.compact();
    }

    /// Sends the next datagrams that leave from the same address.
    fn send_batch(&self, outgoing: &Outgoing) -> nix::Result<usize> {
        let waiting = &outgoing.datagrams[outgoing.sent..];
        let Datagram { from, to, length } = waiting[0];
        let alike = waiting.iter().take_while(|datagram| datagram.from == from && datagram.to == to);
        let run = self.segments.count(alike.map(|datagram| datagram.length));
        if run > 0 {
            match self.send_run(outgoing, run, length) {
                Ok(false) => {}
                Err(error @ (Errno::EAGAIN | Errno::EINTR)) => return Err(error),
                // The client cannot be reached, as each of the datagrams would tell.
                Ok(true) | Err(_) => return Ok(run),
            }
        }
        let count = waiting.iter().take(BATCH).take_while(|datagram| datagram.from == from).count();
        let mut start = outgoing.start;
        let mut next = |index: usize| {
            let length = waiting.get(index).filter(|_| index < count).map_or(0, |datagram| datagram.length);
            start += length;
            [IoSlice::new(&outgoing.bytes[start - length..start])]
        };
        let slices: [[IoSlice<'_>; 1]; BATCH] = std::array::from_fn(&mut next);
        let to: [Option<SockaddrStorage>; BATCH] =
            std::array::from_fn(|index| waiting.get(index).map(|datagram| SockaddrStorage::from(datagram.to)));
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        let slices = slices[..count].iter();
        let sent = match from.ip() {
            _ if !self.any || from == self.local => {
                let mut headers = self.leaving.borrow_mut();
                sendmmsg(fd, &mut headers, slices, to, [], flags)?.count()
            }
            IpAddr::V4(ip) => {
                let mut headers = MultiHeaders::preallocate(count, Some(nix::cmsg_space!(nix::libc::in_pktinfo)));
                let info = source_v4(ip);
                sendmmsg(fd, &mut headers, slices, to, [ControlMessage::Ipv4PacketInfo(&info)], flags)?.count()
            }
            IpAddr::V6(ip) => {
                let mut headers = MultiHeaders::preallocate(count, Some(nix::cmsg_space!(nix::libc::in6_pktinfo)));
                let info = source_v6(ip);
                sendmmsg(fd, &mut headers, slices, to, [ControlMessage::Ipv6PacketInfo(&info)], flags)?.count()
            }
        };
        Ok(sent)
    }

    /// Sends the next datagrams, which are alike, as one that the kernel divides; false if it does not.
    fn send_run(&self, outgoing: &Outgoing, count: usize, length: usize) -> nix::Result<bool> {
        let run = &outgoing.datagrams[outgoing.sent..outgoing.sent + count];
        let total: usize = run.iter().map(|datagram| datagram.length).sum();
        let bytes = &outgoing.bytes[outgoing.start..outgoing.start + total];
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        let to = SockaddrStorage::from(run[0].to);
        let send = |source: Option<ControlMessage<'_>>| self.segments.send(fd, bytes, length, Some(&to), source, flags);
        match run[0].from.ip() {
            _ if !self.any || run[0].from == self.local => send(None),
            IpAddr::V4(ip) => send(Some(ControlMessage::Ipv4PacketInfo(&source_v4(ip)))),
            IpAddr::V6(ip) => send(Some(ControlMessage::Ipv6PacketInfo(&source_v6(ip)))),
        }
    }

    /// Another watches the same socket from now on; this one can still send.
    pub fn retire(&self) {
        self.is_retired.set(true);
        self.is_full.set(false);
        self.registration.unwatch(&self.socket);
    }
}

impl Deferred for Port {
    fn run(&self) {
        if !self.is_full.get() {
            self.send_waiting();
        }
    }
}

impl Outgoing {
    fn advance(&mut self, sent: usize) {
        let lengths = self.datagrams[self.sent..].iter().take(sent).map(|datagram| datagram.length);
        self.start += lengths.sum::<usize>();
        self.sent += sent;
    }

    /// Forgets what was sent.
    fn compact(&mut self) {
        self.bytes.drain(..self.start);
        self.datagrams.drain(..self.sent.min(self.datagrams.len()));
        (self.start, self.sent) = (0, 0);
        if self.bytes.capacity() > MOST_WAITING / 16 && self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }
}

/// Headers for batches in which there is no run; with `any` each message tells the local address.
fn plain_headers(any: bool, local: SocketAddr) -> MultiHeaders<SockaddrStorage> {
    let control = match local {
        _ if !any => None,
        SocketAddr::V4(_) => Some(nix::cmsg_space!(nix::libc::in_pktinfo)),
        SocketAddr::V6(_) => Some(nix::cmsg_space!(nix::libc::in6_pktinfo)),
    };
    MultiHeaders::preallocate(BATCH, control)
}

/// Whether a client has sent equal datagrams, one behind the other.
fn is_bulk(messages: &[Option<Message>; BATCH]) -> bool {
    messages.windows(joining::LEAST).any(|some| {
        let first = some[0].map(|message| (message.from, message.length));
        first.is_some_and(|(_, length)| length > 0)
            && some.iter().all(|message| message.map(|message| (message.from, message.length)) == first)
    })
}

/// The local address that a datagram leaves from.
fn source_v4(ip: Ipv4Addr) -> nix::libc::in_pktinfo {
    let source = nix::libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
    let any = nix::libc::in_addr { s_addr: 0 };
    nix::libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: any }
}

/// The local address that a datagram leaves from.
fn source_v6(ip: Ipv6Addr) -> nix::libc::in6_pktinfo {
    nix::libc::in6_pktinfo { ipi6_addr: nix::libc::in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: 0 }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
        (Some(v4), _) => Some(SocketAddr::V4((*v4).into())),
        (None, Some(v6)) => Some(SocketAddr::V6((*v6).into())),
        (None, None) => None,
    }
}

/// The local address that a datagram was sent to.
fn addressed(part: &ControlMessageOwned) -> Option<IpAddr> {
    match part {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            // What had come before the option was set has only the address in its header.
            let ours = if info.ipi_spec_dst.s_addr == 0 { info.ipi_addr } else { info.ipi_spec_dst };
            Some(IpAddr::from(ours.s_addr.to_ne_bytes()))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(info.ipi6_addr.s6_addr)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    /// What leaves comes as it was given: datagrams of all lengths, in their order, from the address that they should.
    fn sent(bind: &str, from: &str, lengths: &[usize]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = UdpSocket::bind(if bind.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" }).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let to = client.local_addr().unwrap();
        let socket = UdpSocket::bind(bind).unwrap();
        socket.set_nonblocking(true).unwrap();
        let from = SocketAddr::new(from.parse().unwrap(), socket.local_addr().unwrap().port());
        let pieces: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(at, length)| vec![at as u8; *length]).collect();
        let datagrams = pieces.clone();
        let main = async move {
            let port = Port::new(socket.into()).unwrap();
            for datagram in &datagrams {
                port.send(to, from, datagram);
            }
            // The end of this turn sends them.
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            port.retire();
        };
        runtime.block_on(event_loop::run(main)).unwrap();
        let mut space = vec![0; LONGEST];
        for piece in &pieces {
            let (length, sender) = client.recv_from(&mut space).unwrap();
            assert_eq!((&space[..length], sender), (&piece[..], from));
        }
    }

    /// What a client sends in runs comes as it was, also before the kernel joins it.
    fn received(bind: &str, to: [&'static str; 2]) {
        const ROUNDS: usize = 40;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = UdpSocket::bind(if bind.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" }).unwrap();
        let socket = UdpSocket::bind(bind).unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let main = async move {
            let ours = Port::new(socket.into()).unwrap();
            let (mut joined, mut got) = (0, Vec::new());
            for round in 0..ROUNDS {
                let to = SocketAddr::new(to[round % 2].parse().unwrap(), port);
                // A run, one with a shorter end, and single ones.
                let lengths = [[700; 8].as_slice(), &[900, 900, 900, 900, 5], &[0], &[1400]];
                let mut sent = Vec::new();
                for lengths in lengths {
                    let bytes: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| (at + round) as u8).collect();
                    let run = Run::new(&bytes, lengths[0]);
                    let (fd, address) = (client.as_raw_fd(), SockaddrStorage::from(to));
                    let whole =
                        |length| Segments::default().send(fd, &bytes, length, Some(&address), None, MsgFlags::empty());
                    if lengths.len() < 2 || whole(lengths[0]) != Ok(true) {
                        for datagram in run.datagrams() {
                            client.send_to(datagram, to).unwrap();
                        }
                    }
                    sent.extend(run.datagrams().map(|datagram| (datagram.to_vec(), to)));
                }
                got.clear();
                let everything = std::future::poll_fn(|cx| {
                    if let Poll::Ready(error) = ours.poll_receive(cx, |_, to, run| {
                        joined += usize::from(run.count() > 1);
                        got.extend(run.datagrams().map(|datagram| (datagram.to_vec(), to)));
                    }) {
                        panic!("{error}");
                    }
                    if got.len() < sent.len() { Poll::Pending } else { Poll::Ready(()) }
                });
                tokio::time::timeout(Duration::from_secs(10), everything).await.unwrap();
                assert!(got == sent, "round {round}");
            }
            ours.retire();
            joined
        };
        let joined = Rc::new(Cell::new(0));
        let told = Rc::clone(&joined);
        runtime.block_on(event_loop::run(async move { told.set(main.await) })).unwrap();
        assert!(joined.get() > ROUNDS, "{} of {}", joined.get(), 2 * ROUNDS);
    }

    #[test]
    fn runs_of_a_client_come_as_it_has_sent_them() {
        received("127.0.0.1:0", ["127.0.0.1"; 2]);
        received("0.0.0.0:0", ["127.0.0.1", "127.0.0.7"]);
        received("[::]:0", ["::1"; 2]);
    }

    #[test]
    fn equal_datagrams_are_divided_by_the_kernel_and_come_as_they_were() {
        let mixed = [1200, 1200, 1200, 1200, 300, 5, 5, 5, 5, 5, 0, 7, 1400, 1400, 1400, 1401, 1400, 1400];
        sent("127.0.0.1:0", "127.0.0.1", &mixed);
        sent("127.0.0.1:0", "127.0.0.1", &[1000; 100]);
        sent("0.0.0.0:0", "127.0.0.9", &mixed);
        sent("0.0.0.0:0", "127.0.0.9", &[800; 70]);
    }
}
