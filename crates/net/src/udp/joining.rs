//! Runs of datagrams that the kernel joins: one read for all that a sender has sent at once (UDP_GRO).
//!
//! It is asked for only while datagrams come in bulk. A message that tells how long each of them is comes with a run alone,
//! so headers cannot be used again, and single datagrams would cost more than without it.

use std::cell::Cell;
use std::os::fd::AsFd;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, setsockopt, sockopt};

/// So many equal datagrams of one sender, one behind the other, could have been a run.
pub(super) const LEAST: usize = 3;
/// Batches without a run after which the kernel does not join any more.
const PATIENCE: u16 = 64;
/// Batches in bulk after which it is tried again, where it has not joined any.
const PAUSE: u16 = 4096;
/// Messages that are received at once while the kernel joins.
pub(super) const BATCH: usize = 8;

/// Datagrams of one sender, one behind the other.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    bytes: &'a [u8],
    /// How long each of them is; the last one may be shorter.
    each: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(bytes: &'a [u8], each: usize) -> Run<'a> {
        Run { bytes, each: if each == 0 { bytes.len() } else { each } }
    }

    /// How many there are. An empty datagram is one as well.
    pub fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.each.max(1)).max(1)
    }

    /// All their bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How long each of them is; the last one may be shorter.
    pub fn each(&self) -> usize {
        self.each
    }

    /// Each of them.
    pub fn datagrams(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.count()).map(move |index| {
            let rest = &self.bytes[index * self.each..];
            &rest[..self.each.min(rest.len())]
        })
    }
}

/// Whether the kernel joins the datagrams of a socket.
#[derive(Default)]
pub(super) struct Joining {
    is_on: Cell<bool>,
    /// Batches without a run since it is on; batches in bulk that it is still to stay off.
    idle: Cell<u16>,
    has_joined: Cell<bool>,
}

impl Joining {
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// A batch was received: `joined` tells of a run in it, `bulk` of datagrams that could have been one.
    pub fn after(&self, socket: &impl AsFd, joined: bool, bulk: bool) {
        if !self.is_on.get() {
            match self.idle.get() {
                _ if !bulk => {}
                0 => self.begin(socket),
                idle => self.idle.set(idle - 1),
            }
        } else if joined {
            self.has_joined.set(true);
            self.idle.set(0);
        } else if self.idle.get() < PATIENCE {
            self.idle.set(self.idle.get() + 1);
        } else {
            self.end(socket);
        }
    }

    fn begin(&self, socket: &impl AsFd) {
        self.has_joined.set(false);
        self.is_on.set(setsockopt(socket, sockopt::UdpGroSegment, &true).is_ok());
        // A kernel without it is asked again as rarely as one that joins nothing.
        self.idle.set(if self.is_on.get() { 0 } else { PAUSE });
    }

    /// What others receive from the socket is not joined any more: they need not know of runs.
    pub fn end(&self, socket: &impl AsFd) {
        if self.is_on.replace(false) {
            let _ = setsockopt(socket, sockopt::UdpGroSegment, &false);
            self.idle.set(if self.has_joined.get() { 0 } else { PAUSE });
        }
    }
}

/// New headers for a batch in which there may be runs; `more` is the space for other control messages.
pub(super) fn headers<S: Copy + nix::sys::socket::SockaddrLike>(more: usize) -> MultiHeaders<S> {
    let length = nix::cmsg_space!(i32).capacity() + more;
    MultiHeaders::preallocate(BATCH, Some(Vec::with_capacity(length)))
}

/// How long each datagram of a message is if it is a run.
pub(super) fn each(part: &ControlMessageOwned) -> Option<usize> {
    match part {
        ControlMessageOwned::UdpGroSegments(each) => usize::try_from(*each).ok().filter(|each| *each > 0),
        _ => None,
    }
}

/// Whether another program has the kernel join, so that this message is a run whose datagrams cannot be told apart.
pub(super) fn is_unreadable<S>(message: &RecvMsg<'_, '_, S>, socket: &impl AsFd) -> bool {
    message.flags.contains(MsgFlags::MSG_CTRUNC)
        && nix::sys::socket::getsockopt(socket, sockopt::UdpGroSegment).unwrap_or(false)
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
        assert_eq!(lengths(&[0; 3], 0), [3], "no run");
        assert_eq!(lengths(&[], 0), [0], "an empty datagram is one");
        assert_eq!(Run::new(&[0; 10], 4).count(), 3);
        assert_eq!(Run::new(&[], 0).count(), 1);
    }

    #[test]
    fn it_is_on_only_while_there_are_runs() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let joining = Joining::default();
        joining.after(&socket, false, false);
        assert!(!joining.is_on());
        joining.after(&socket, false, true);
        assert!(joining.is_on());
        joining.after(&socket, true, true);
        (0..=PATIENCE).for_each(|_| joining.after(&socket, false, true));
        assert!(!joining.is_on());
        joining.after(&socket, false, true);
        assert!(joining.is_on(), "it had joined some");
        (0..=PATIENCE).for_each(|_| joining.after(&socket, false, true));
        assert!(!joining.is_on());
        joining.after(&socket, false, true);
        assert!(!joining.is_on(), "it had joined none");
        (0..PAUSE).for_each(|_| joining.after(&socket, false, true));
        assert!(joining.is_on());
        joining.end(&socket);
        assert!(!nix::sys::socket::getsockopt(&socket, sockopt::UdpGroSegment).unwrap());
    }
}
