//! Runs of datagrams that the kernel joins: one read for all that a sender has sent at once (UDP_GRO).
//!
//! It is asked for once datagrams come in bulk. A message that tells how long each of them is comes with a run alone, so
//! headers cannot be used again, and single datagrams cost more than without it. It is never given up while somebody reads the
//! socket: a run that waits there would come as one datagram.

use std::cell::Cell;
use std::os::fd::AsFd;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, getsockopt, setsockopt, sockopt};

/// So many equal datagrams of one sender, one behind the other, could have been a run.
pub(super) const LEAST: usize = 3;
/// Batches in bulk after which a kernel that could not is asked again.
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
pub(super) struct Joining {
    is_on: Cell<bool>,
    /// Batches in bulk before it is asked again.
    pause: Cell<u16>,
}

impl Joining {
    /// That of a socket, as it may have been left by an earlier configuration or program.
    pub fn of(socket: &impl AsFd) -> Joining {
        Joining { is_on: Cell::new(is_asked_for(socket)), pause: Cell::new(0) }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// A batch was received in which there are datagrams that could have been a run.
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
        assert_eq!(lengths(&[0; 3], 0), [3], "no run");
        assert_eq!(lengths(&[], 0), [0], "an empty datagram is one");
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
