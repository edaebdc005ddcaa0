//! Runs of datagrams that the kernel divides: one system call and one way through the kernel for all (UDP_SEGMENT).

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

/// Fewer are not worth a call of their own.
pub(super) const LEAST: usize = 3;
/// As many as every kernel divides.
const MOST: usize = 64;
/// Bytes of a run: below what one datagram may have, with its headers.
const MOST_BYTES: usize = 65_000;

/// How long datagrams may be that the kernel divides on this socket.
pub(super) struct Segments {
    /// Such long ones it has refused: it lacks the means, or they do not fit into the path's packets.
    refused: Cell<usize>,
}

impl Default for Segments {
    fn default() -> Segments {
        Segments { refused: Cell::new(usize::MAX) }
    }
}

impl Segments {
    /// How many datagrams of these lengths go out as one: equal ones, and a shorter one behind them. 0 if it is not worth it.
    pub fn count(&self, lengths: impl Iterator<Item = usize>) -> usize {
        let (mut first, mut count, mut total) = (0, 0, 0);
        for length in lengths.take(MOST) {
            if count == 0 {
                first = length;
            }
            if length == 0 || length > first || length >= self.refused.get() || total + length > MOST_BYTES {
                break;
            }
            (count, total) = (count + 1, total + length);
            if length < first {
                break;
            }
        }
        if count < LEAST { 0 } else { count }
    }

    /// Sends a run; false if the kernel does not divide it.
    ///
    /// # Errors
    /// There is no room, the call was interrupted, or the receiver cannot be reached.
    pub fn send(
        &self,
        fd: RawFd,
        bytes: &[u8],
        length: usize,
        to: Option<&SockaddrStorage>,
        source: Option<ControlMessage<'_>>,
        flags: MsgFlags,
    ) -> nix::Result<bool> {
        let Ok(each) = u16::try_from(length) else { return Ok(false) };
        let segment = ControlMessage::UdpGsoSegments(&each);
        let sent = match source {
            None => sendmsg(fd, &[IoSlice::new(bytes)], &[segment], flags, to),
            Some(source) => sendmsg(fd, &[IoSlice::new(bytes)], &[segment, source], flags, to),
        };
        match sent {
            Ok(_) => Ok(true),
            Err(error @ (Errno::EAGAIN | Errno::EINTR)) => Err(error),
            Err(Errno::EINVAL | Errno::EMSGSIZE | Errno::EIO | Errno::ENOPROTOOPT | Errno::EOPNOTSUPP) => {
                self.refused.set(length.min(self.refused.get()));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_equal_datagrams_and_one_shorter() {
        let segments = Segments::default();
        let count = |lengths: &[usize]| segments.count(lengths.iter().copied());
        assert_eq!(count(&[1200; 10]), 10);
        assert_eq!(count(&[1200, 1200, 1200, 700, 700]), 4);
        assert_eq!(count(&[1200, 1200, 1200, 1300]), 3);
        assert_eq!(count(&[1200, 700, 700, 700]), 0, "two are sent as they are");
        assert_eq!(count(&[1200; 2]), 0);
        assert_eq!(count(&[1200, 1200, 1200, 0, 1200]), 3, "an empty one is no segment");
        assert_eq!(count(&[0; 9]), 0);
        assert_eq!(count(&[100; 200]), MOST);
        assert_eq!(count(&[20_000; 9]), 3);
        assert_eq!(count(&[]), 0);
    }

    #[test]
    fn what_the_kernel_refuses_is_not_tried_again() {
        let segments = Segments::default();
        segments.refused.set(1400);
        assert_eq!(segments.count([1400; 5].into_iter()), 0);
        assert_eq!(segments.count([1399; 5].into_iter()), 5);
    }
}
