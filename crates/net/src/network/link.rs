//! A connection in memory: two ends, with the behaviour of TCP sockets on Linux.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::Network;
use crate::clock::Nanos;
use crate::event_loop::{Registration, Reporter};

/// What arrives at an end.
pub enum Content {
    /// The connection stands.
    Established,
    /// It was refused.
    Refused,
    /// Bytes, sent before the peer's reset if one follows.
    Bytes(Vec<u8>),
    /// The peer writes no more.
    End,
    /// The peer has reset the connection.
    Reset,
}

/// A connection.
pub struct Link {
    network: Weak<Network>,
    number: u64,
    addresses: [SocketAddr; 2],
    sides: RefCell<[Side; 2]>,
}

/// One end of it.
#[derive(Default)]
struct Side {
    established: bool,
    /// What has arrived and was not read.
    arrived: VecDeque<u8>,
    /// The peer's bytes under way.
    travelling: usize,
    /// Most bytes that travel to this end or wait here.
    capacity: usize,
    /// When the last of them arrives.
    last: Nanos,
    /// The peer's end has arrived.
    ended: bool,
    /// This end writes no more.
    shut: bool,
    /// The connection does not exist any more: reset or refused.
    broken: bool,
    /// Why, until a system call has told it.
    error: Option<Errno>,
    /// The owner has dropped it.
    closed: bool,
    /// A close resets.
    lingers_not: bool,
    /// A write found no room.
    wants_room: bool,
    reporter: Option<Reporter>,
    waker: Option<Waker>,
    /// The owner is about to be told of news.
    changed: bool,
}

impl Side {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.travelling + self.arrived.len())
    }
}

impl Link {
    pub fn new(network: &Rc<Network>, addresses: [SocketAddr; 2], capacities: [usize; 2]) -> Link {
        let sides = capacities.map(|capacity| Side { capacity, ..Side::default() });
        Link { network: Rc::downgrade(network), number: network.number(), addresses, sides: RefCell::new(sides) }
    }

    /// Its network, which may be gone when a test ends.
    fn network(&self) -> Option<Rc<Network>> {
        self.network.upgrade()
    }

    fn change(self: &Rc<Self>, side: usize) {
        if !std::mem::replace(&mut self.sides.borrow_mut()[side].changed, true)
            && let Some(network) = self.network()
        {
            network.change(self, side);
        }
    }

    /// Tells the owner of an end what is ready.
    pub fn tell(&self, side: usize) {
        let (waker, reported) = {
            let mut sides = self.sides.borrow_mut();
            sides[side].changed = false;
            let flags = flags(&sides, side);
            (sides[side].waker.take(), sides[side].reporter.clone().map(|reporter| (reporter, flags)))
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some((reporter, flags)) = reported {
            reporter.report(flags);
        }
    }

    /// Something arrives at an end.
    pub fn arrive(self: &Rc<Self>, network: &Network, side: usize, content: Content) {
        let mut resets = false;
        {
            let mut sides = self.sides.borrow_mut();
            let it = &mut sides[side];
            if let Content::Bytes(bytes) = &content {
                it.travelling -= bytes.len();
            }
            if it.broken {
                return;
            }
            match content {
                Content::Established => it.established = true,
                Content::Reset if !it.established => (it.broken, it.error) = (true, Some(Errno::CONNREFUSED)),
                Content::Bytes(_) | Content::End if !it.established => return,
                Content::Refused => (it.broken, it.error) = (true, Some(Errno::CONNREFUSED)),
                // The owner has closed this end.
                Content::Bytes(_) if it.closed => resets = true,
                Content::Bytes(bytes) => it.arrived.extend(bytes),
                Content::End => it.ended = true,
                Content::Reset => {
                    (it.broken, it.error) = (true, Some(Errno::CONNRESET));
                    // Some systems discard what was not read.
                    if network.random(|random| random.percent(50)) {
                        it.arrived.clear();
                    }
                    network.note(format_args!("{}.{side} is reset", self.number));
                }
            }
        }
        if resets {
            self.reset(network, side);
        }
        self.change(side);
    }

    /// This end resets the connection.
    fn reset(self: &Rc<Self>, network: &Network, side: usize) {
        let mut sides = self.sides.borrow_mut();
        sides[side].broken = true;
        let peer = &mut sides[1 - side];
        // What is under way may be overtaken.
        let least = if network.random(|random| random.percent(50)) { peer.last } else { 0 };
        let at = network.arrival(least);
        network.schedule(at, (Rc::clone(self), 1 - side), Content::Reset);
    }

    /// The owner of an end has dropped it.
    fn close(self: &Rc<Self>, side: usize) {
        let Some(network) = self.network() else { return };
        network.open.set(network.open.get() - 1);
        let (broken, unread) = {
            let mut sides = self.sides.borrow_mut();
            let it = &mut sides[side];
            it.closed = true;
            it.reporter = None;
            it.waker = None;
            (it.broken, it.lingers_not || !it.arrived.is_empty())
        };
        network.note(format_args!("{}.{side} closes{}", self.number, if unread { " and resets" } else { "" }));
        if broken {
            return;
        }
        if unread {
            self.reset(&network, side);
        } else {
            self.shut(&network, side);
        }
    }

    /// This end writes no more.
    fn shut(self: &Rc<Self>, network: &Network, side: usize) {
        let mut sides = self.sides.borrow_mut();
        if std::mem::replace(&mut sides[side].shut, true) || sides[side].broken {
            return;
        }
        let at = network.arrival(sides[1 - side].last);
        sides[1 - side].last = at;
        network.schedule(at, (Rc::clone(self), 1 - side), Content::End);
    }
}

/// What epoll would say of an end.
fn flags(sides: &[Side; 2], side: usize) -> EventFlags {
    let (it, peer) = (&sides[side], &sides[1 - side]);
    let mut flags = EventFlags::empty();
    if !it.established && !it.broken {
        return flags;
    }
    if !it.arrived.is_empty() || it.ended || it.broken {
        flags |= EventFlags::IN;
    }
    if peer.room() > 0 || it.broken {
        flags |= EventFlags::OUT;
    }
    if it.ended || it.broken {
        flags |= EventFlags::RDHUP;
    }
    if it.broken || it.ended && it.shut {
        flags |= EventFlags::HUP;
    }
    if it.error.is_some() {
        flags |= EventFlags::ERR;
    }
    flags
}

/// One end of a connection, and its system calls. Dropping it closes it.
pub struct End {
    link: Rc<Link>,
    side: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        self.link.close(self.side);
    }
}

impl End {
    pub(super) fn new(link: &Rc<Link>, side: usize) -> End {
        End { link: Rc::clone(link), side }
    }

    pub(super) fn place(&self) -> (Rc<Link>, usize) {
        (Rc::clone(&self.link), self.side)
    }

    /// The connection's number, for the trace.
    pub fn number(&self) -> u64 {
        self.link.number
    }

    /// The connection has stood since before anything was watched.
    pub fn establish(&self) {
        self.link.sides.borrow_mut()[self.side].established = true;
    }

    /// The connection stands from a moment on; nothing arrives before.
    pub(super) fn establish_at(&self, network: &Network, at: Nanos) {
        self.link.sides.borrow_mut()[self.side].last = at;
        network.schedule(at, self.place(), Content::Established);
    }

    pub fn watch(&self, cx: &Context<'_>) {
        self.link.sides.borrow_mut()[self.side].waker = Some(cx.waker().clone());
    }

    pub fn is_broken(&self) -> bool {
        self.link.sides.borrow()[self.side].broken
    }

    pub fn register(&self) -> io::Result<Registration> {
        let (registration, reporter) = Registration::simulated()?;
        self.link.sides.borrow_mut()[self.side].reporter = Some(reporter);
        self.link.change(self.side);
        Ok(registration)
    }

    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        let (read, wakes_peer) = {
            let mut sides = self.link.sides.borrow_mut();
            let it = &mut sides[self.side];
            readable(it)?;
            let read = into.len().min(it.arrived.len());
            it.arrived.read_exact(&mut into[..read])?;
            // A writer is told only when there is room worth it.
            let roomy = it.room() > it.capacity / 3;
            let peer = &mut sides[1 - self.side];
            (read, read > 0 && roomy && std::mem::take(&mut peer.wants_room))
        };
        if wakes_peer {
            self.link.change(1 - self.side);
        }
        if let Some(network) = self.link.network().filter(|_| read > 0) {
            network.note(format_args!("{}.{} reads {read}", self.link.number, self.side));
        }
        Ok(read)
    }

    pub fn peek(&self) -> io::Result<()> {
        readable(&mut self.link.sides.borrow_mut()[self.side])
    }

    /// How much a write would take.
    ///
    /// # Errors
    /// `WouldBlock` when that is nothing, or what the write would return.
    pub fn room(&self) -> io::Result<usize> {
        let mut sides = self.link.sides.borrow_mut();
        let it = &mut sides[self.side];
        if let Some(error) = it.error.take() {
            return Err(error.into());
        }
        if it.broken || it.shut {
            return Err(Errno::PIPE.into());
        }
        let room = if sides[self.side].established { sides[1 - self.side].room() } else { 0 };
        if room == 0 {
            sides[self.side].wants_room = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(room)
    }

    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total == 0 {
            return Ok(0);
        }
        let taken = self.room()?.min(total);
        if taken < total {
            self.link.sides.borrow_mut()[self.side].wants_room = true;
        }
        let mut bytes = Vec::with_capacity(taken);
        for slice in slices {
            bytes.extend_from_slice(&slice[..slice.len().min(taken - bytes.len())]);
        }
        if let Some(network) = self.link.network() {
            network.note(format_args!("{}.{} sends {taken} of {total}", self.link.number, self.side));
            self.dispatch(&network, &bytes);
        }
        Ok(taken)
    }

    /// Sends all of it in one piece.
    pub fn send_together(&self, bytes: &[u8]) -> io::Result<()> {
        if self.room()? < bytes.len() {
            self.link.sides.borrow_mut()[self.side].wants_room = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(network) = self.link.network() {
            network.note(format_args!("{}.{} sends {} together", self.link.number, self.side, bytes.len()));
            self.dispatch_piece(&network, bytes);
        }
        Ok(())
    }

    /// Sends bytes on their way, in pieces.
    fn dispatch(&self, network: &Network, mut bytes: &[u8]) {
        let mut pieces = match network.random(|random| random.percent(network.conditions.split)) {
            true => network.random(|random| random.between(1, 6)),
            false => 0,
        };
        while !bytes.is_empty() {
            let cut = match pieces {
                0 => bytes.len(),
                // The beginning of a message is where most borders are.
                _ if network.random(|random| random.percent(30)) => 1,
                _ => network.random(|random| random.size(bytes.len() as u64)) as usize,
            };
            pieces = pieces.saturating_sub(1);
            let (piece, rest) = bytes.split_at(cut);
            bytes = rest;
            self.dispatch_piece(network, piece);
        }
    }

    fn dispatch_piece(&self, network: &Network, piece: &[u8]) {
        let at = {
            let mut sides = self.link.sides.borrow_mut();
            let peer = &mut sides[1 - self.side];
            peer.last = network.arrival(peer.last);
            peer.travelling += piece.len();
            peer.last
        };
        network.schedule(at, (Rc::clone(&self.link), 1 - self.side), Content::Bytes(piece.to_vec()));
    }

    pub fn send_file(&self, file: &File, offset: u64, limit: usize) -> io::Result<usize> {
        let mut bytes = vec![0; self.room()?.min(limit)];
        let read = file.read_at(&mut bytes, offset)?;
        self.send(&[IoSlice::new(&bytes[..read])])
    }

    pub fn connected(&self) -> io::Result<()> {
        let mut sides = self.link.sides.borrow_mut();
        let it = &mut sides[self.side];
        if let Some(error) = it.error.take() {
            return Err(error.into());
        }
        if it.broken {
            return Err(Errno::NOTCONN.into());
        }
        if it.established { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    pub fn shutdown_write(&self) {
        if let Some(network) = self.link.network() {
            network.note(format_args!("{}.{} shuts", self.link.number, self.side));
            self.link.shut(&network, self.side);
            self.link.change(self.side);
        }
    }

    pub fn reset_on_close(&self) {
        self.link.sides.borrow_mut()[self.side].lingers_not = true;
    }

    pub fn local_address(&self) -> SocketAddr {
        self.link.addresses[self.side]
    }
}

/// Whether a read would return something: bytes, an end or an error.
fn readable(it: &mut Side) -> io::Result<()> {
    if !it.arrived.is_empty() {
        return Ok(());
    }
    if let Some(error) = it.error.take() {
        return Err(error.into());
    }
    if it.ended || it.broken { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}
