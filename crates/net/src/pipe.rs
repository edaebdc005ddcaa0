//! Pipes for moving bodies from socket to socket inside the kernel.

use std::cell::RefCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::retry::retry;

/// How many idle pipes a worker keeps.
const KEPT: usize = 64;

thread_local! {
    static IDLE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe and how much is in it.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
    filled: usize,
}

impl Pipe {
    /// What is asked of the kernel for each pipe; it may give less to an unprivileged process.
    pub const SIZE: usize = 512 * 1024;

    /// An empty pipe: a kept one, or a new one.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn take() -> io::Result<Pipe> {
        if let Some(pipe) = IDLE.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        let _ = rustix::pipe::fcntl_setpipe_size(&write, Pipe::SIZE);
        let capacity = rustix::pipe::fcntl_getpipe_size(&write)?;
        Ok(Pipe { read, write, capacity, filled: 0 })
    }

    /// Gives the pipe back. One that still holds data is closed instead.
    pub fn put_back(self) {
        if self.filled == 0 {
            IDLE.with_borrow_mut(|idle| {
                if idle.len() < KEPT {
                    idle.push(self);
                }
            });
        }
    }

    /// Bytes in the pipe.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Moves up to `limit` bytes from a socket into the pipe; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when the socket is empty.
    pub(crate) fn fill(&mut self, from: BorrowedFd<'_>, limit: usize) -> io::Result<usize> {
        let limit = limit.min(self.capacity);
        let moved = retry(|| {
            rustix::pipe::splice(from, None, &self.write, None, limit, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)
        })?;
        self.filled += moved;
        Ok(moved)
    }

    /// Moves what the pipe holds into a socket. `more` tells that more will follow.
    ///
    /// # Errors
    /// `WouldBlock` when the socket is full.
    pub(crate) fn drain(&mut self, to: BorrowedFd<'_>, more: bool) -> io::Result<usize> {
        let mut flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        if more {
            flags |= SpliceFlags::MORE;
        }
        let moved = retry(|| rustix::pipe::splice(&self.read, None, to, None, self.filled, flags))?;
        self.filled -= moved;
        Ok(moved)
    }

    /// Moves what `read` gives, up to `limit` bytes, into the pipe.
    ///
    /// # Errors
    /// Those of `read`.
    #[cfg(feature = "simulation")]
    pub(crate) fn fill_with(
        &mut self,
        limit: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // Less than the smallest pipe, so that the write is complete.
        let mut bytes = [0; 4096];
        if self.filled + bytes.len() > 65536 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let limit = limit.min(bytes.len());
        let moved = read(&mut bytes[..limit])?;
        assert_eq!(rustix::io::write(&self.write, &bytes[..moved])?, moved, "a pipe has room");
        self.filled += moved;
        Ok(moved)
    }

    /// Moves what the pipe holds, up to `room` bytes, to `write`, which has to take all of it.
    ///
    /// # Errors
    /// Those of `write`.
    #[cfg(feature = "simulation")]
    pub(crate) fn drain_with(
        &mut self,
        room: usize,
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut bytes = vec![0; self.filled.min(room)];
        let moved = rustix::io::read(&self.read, &mut bytes)?;
        self.filled -= moved;
        assert_eq!(write(&bytes[..moved])?, moved, "there is room");
        Ok(moved)
    }
}
