//! Receives runs of datagrams: the kernel joins datagrams that a sender has sent together (UDP_GRO).
//!
//! UDP_GRO is switched on once datagrams arrive in bulk. The control message with the length of each datagram comes
//! only with a run, so headers cannot be reused, and single datagrams cost more than without UDP_GRO. It is never
//! switched off while the socket is in use: a run that waits in the socket would then be received as one datagram.

use std::cell::Cell;
use std::os::fd::AsFd;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, getsockopt, setsockopt, sockopt};

/// This many equal datagrams in a row from one sender may have been sent as a run.
pub(super) const LEAST: usize = 3;
/// Batches in bulk after which UDP_GRO is tried again if the kernel has refused it.
const PAUSE: u16 = 4096;
/// Messages that are received with one system call while UDP_GRO is on.
pub(super) const BATCH: usize = 8;

/// Consecutive datagrams of one sender.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    bytes: &'a [u8],
    /// The length of each datagram; the last one may be shorter.
    each: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(bytes: &'a [u8], each: usize) -> Run<'a> {
        Run { bytes, each: if each == 0 { bytes.len() } else { each } }
    }

    /// The number of datagrams. An empty datagram counts as one.
    pub fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.each.max(1)).max(1)
    }

    /// The bytes of all datagrams.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The length of each datagram; the last one may be shorter.
    pub fn each(&self) -> usize {
        self.each
    }

    /// The datagrams.
    pub fn datagrams(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.count()).map(move |index| {
            let rest = &self.bytes[index * self.each..];
            &rest[..self.each.min(rest.len())]
        })
    }
}

/// Whether UDP_GRO is on for a socket; it is off for a new one.
#[derive(Default)]
pub(super) struct Joining {
    is_on: Cell<bool>,
    /// Batches in bulk before UDP_GRO is tried again.
    pause: Cell<u16>,
}

impl Joining {
    /// Reads the state of a socket: an earlier configuration or program may have switched UDP_GRO on.
    pub fn of(socket: &impl AsFd) -> Joining {
        Joining { is_on: Cell::new(is_asked_for(socket)), pause: Cell::new(0) }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Call this after a batch with datagrams that may have been sent as a run.
    pub fn after_bulk(&self, socket: &impl AsFd) {
        match self.pause.get() {
            _ if self.is_on.get() => {}
            0 => {
                self.is_on.set(setsockopt(socket, sockopt::UdpGroSegment, &true).is_ok());
                self.pause.set(PAUSE);
            }
            pause => self.pause.set(pause - 1),
        }
    }
}

fn is_asked_for(socket: &impl AsFd) -> bool {
    getsockopt(socket, sockopt::UdpGroSegment).unwrap_or(false)
}

/// New headers for a batch that may contain runs; `more` is the space for other control messages.
pub(super) fn headers<S: Copy + nix::sys::socket::SockaddrLike>(more: usize) -> MultiHeaders<S> {
    let length = nix::cmsg_space!(i32).capacity() + more;
    MultiHeaders::preallocate(BATCH, Some(Vec::with_capacity(length)))
}

/// The length of each datagram, if a message is a run.
pub(super) fn each(part: &ControlMessageOwned) -> Option<usize> {
    match part {
        ControlMessageOwned::UdpGroSegments(each) => usize::try_from(*each).ok().filter(|each| *each > 0),
        _ => None,
    }
}

/// Whether another program has switched UDP_GRO on, so that this message is a run whose datagrams cannot be separated.
pub(super) fn is_unreadable<S>(message: &RecvMsg<'_, '_, S>, socket: &impl AsFd) -> bool {
    message.flags.contains(MsgFlags::MSG_CTRUNC) && is_asked_for(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_divided_as_they_were_sent() {
        let lengths = |bytes: &[u8], each| Run::new(bytes, each).datagrams().map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[0; 10], 4), [4, 4, 2]);
        assert_eq!(lengths(&[0; 8], 4), [4, 4]);
        assert_eq!(lengths(&[0; 3], 4), [3]);
        assert_eq!(lengths(&[0; 3], 0), [3], "not a run");
        assert_eq!(lengths(&[], 0), [0], "an empty datagram counts as one");
        assert_eq!(Run::new(&[0; 10], 4).count(), 3);
        assert_eq!(Run::new(&[], 0).count(), 1);
    }

    #[test]
    fn it_stays_on_and_a_later_reader_knows() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let joining = Joining::of(&socket);
        assert!(!joining.is_on());
        joining.after_bulk(&socket);
        assert!(joining.is_on() && Joining::of(&socket).is_on());
        joining.after_bulk(&socket);
        assert!(joining.is_on());
    }
}
