//! The link between the supervisor and its worker: messages in JSON and file descriptors, over a socket pair.
//!
//! A frame is a header of 8 bytes (length of the text and number of descriptors, both big-endian), then one byte for
//! each parcel of at most [`PARCEL`] descriptors, which travel beside it as `SCM_RIGHTS`, then the text.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::sys;

/// Descriptors that go with one byte; the kernel takes no more than 253 (`SCM_MAX_FD`).
pub const PARCEL: usize = 200;

/// How long the other side may leave a message unread. Its main thread only reads, so after this time it hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest valid message.
const TEXT_MAX: usize = 1 << 30;

/// One end of the link.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
}

impl Link {
    /// Both ends.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self::over(one)?, Self::over(other)?))
    }

    /// The end behind an inherited descriptor.
    ///
    /// # Errors
    /// When it is not a socket.
    pub fn over(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream })
    }

    /// The descriptor of this end.
    pub fn into_fd(self) -> OwnedFd {
        self.stream.into()
    }

    /// Sends one message with its descriptors.
    ///
    /// # Errors
    /// `BrokenPipe` when the other side is gone, `WouldBlock` when it has stopped reading.
    pub fn send<M: Serialize>(&self, message: &M, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut header = [0; 8];
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "message too long");
        header[..4].copy_from_slice(&u32::try_from(text.len()).map_err(too_long)?.to_be_bytes());
        header[4..].copy_from_slice(&u32::try_from(descriptors.len()).map_err(too_long)?.to_be_bytes());
        // Rust ignores SIGPIPE, so a write to a dead worker is an error and not a signal.
        (&self.stream).write_all(&header)?;
        for parcel in descriptors.chunks(PARCEL) {
            let raw: Vec<RawFd> = parcel.iter().map(AsRawFd::as_raw_fd).collect();
            let rights = [ControlMessage::ScmRights(&raw)];
            sendmsg::<()>(self.stream.as_raw_fd(), &[IoSlice::new(b"+")], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
        }
        (&self.stream).write_all(&text)
    }

    /// Receives one message; call it when the link is readable. `None` when the other side is gone, also in the middle
    /// of a message.
    ///
    /// # Errors `InvalidData` for an invalid message, `WouldBlock` for an incomplete one.
    pub fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut header = [0; 8];
        match (&self.stream).read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let (length, count) = (word(0), word(4));
        if length > TEXT_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
        }
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            if !self.receive_parcel(&mut descriptors)? {
                return Ok(None);
            }
        }
        let mut text = vec![0; length];
        match (&self.stream).read_exact(&mut text) {
            Ok(()) => Ok(Some((serde_json::from_slice(&text)?, descriptors))),
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// False when the other side is gone.
    fn receive_parcel(&self, descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let mut byte = [0];
        let mut slices = [IoSliceMut::new(&mut byte)];
        let mut space = nix::cmsg_space!([RawFd; PARCEL]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(self.stream.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
        let before = descriptors.len();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = message {
                descriptors.extend(sys::adopt_received(&raw));
            }
        }
        if received.bytes == 0 {
            return Ok(false);
        }
        if descriptors.len() == before {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing (RLIMIT_NOFILE?)"));
        }
        Ok(true)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    #[test]
    fn messages_and_descriptors_arrive_in_order() {
        let (one, other) = Link::pair().unwrap();
        let files: Vec<std::fs::File> = (0..450)
            .map(|number| {
                let mut file = tempfile::tempfile().unwrap();
                write!(file, "{number}").unwrap();
                file.rewind().unwrap();
                file
            })
            .collect();
        let text = "x".repeat(1 << 20);
        let sender = std::thread::spawn(move || {
            let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            one.send(&text, &descriptors).unwrap();
            one.send(&7, &[]).unwrap();
        });
        let (text, descriptors) = other.receive::<String>().unwrap().unwrap();
        assert_eq!(text.len(), 1 << 20);
        assert_eq!(descriptors.len(), 450);
        for (number, descriptor) in descriptors.into_iter().enumerate() {
            let mut content = String::new();
            std::fs::File::from(descriptor).read_to_string(&mut content).unwrap();
            assert_eq!(content, number.to_string());
        }
        assert_eq!(other.receive::<u32>().unwrap().unwrap().0, 7);
        sender.join().unwrap();
        assert!(other.receive::<u32>().unwrap().is_none(), "the other side is gone");
        assert_eq!(other.send(&1, &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_message_that_breaks_off_is_the_end() {
        for part in [1, 8, 9, 20] {
            let (one, other) = Link::pair().unwrap();
            one.send(&"a text that is long enough", &[io::stdin().as_fd()]).unwrap();
            let (cut, end) = UnixStream::pair().unwrap();
            let mut whole = vec![0; 64];
            let length = (&other.stream).read(&mut whole).unwrap();
            // Without the descriptor, which the copy cannot carry: as if the sender had died before or after it.
            whole.truncate(part.min(length));
            whole.iter_mut().skip(4).take(4).for_each(|count| *count = 0);
            (&cut).write_all(&whole).unwrap();
            drop(cut);
            assert!(Link::over(end).unwrap().receive::<String>().unwrap().is_none(), "{part} bytes");
        }
    }

    #[test]
    fn descriptors_are_not_inherited_over_exec() {
        let (one, other) = Link::pair().unwrap();
        one.send(&(), &[io::stdin().as_fd()]).unwrap();
        let (_, descriptors) = other.receive::<()>().unwrap().unwrap();
        let flags = nix::fcntl::fcntl(&descriptors[0], nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
}
