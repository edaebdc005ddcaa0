//! One direction of a relay: what comes from one socket goes to another.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use crate::buffer::Buffer;
use crate::transport::Transport;

/// How many pieces are moved at a time, so that a fast connection leaves something of the event loop to the others.
const PIECES: usize = 16;

/// One direction.
pub struct Half {
    /// Held only while there is something in it.
    buffer: Option<Buffer>,
    /// How much is read at a time.
    limit: usize,
    /// How often is read before the others get their turn.
    pieces: usize,
    /// The end of the source is passed on.
    passes_end: bool,
    /// The source has ended.
    pub ended: bool,
    /// The end was passed on.
    pub closed: bool,
    /// Bytes read, those that were there before left out.
    pub received: u64,
    /// Bytes written.
    pub sent: u64,
}

impl Half {
    /// A direction in which `first` is on its way already.
    pub fn new(first: Option<Buffer>, limit: usize, passes_end: bool) -> Half {
        let buffer = first.filter(|buffer| !buffer.is_empty());
        Half { buffer, limit, pieces: PIECES, passes_end, ended: false, closed: false, received: 0, sent: 0 }
    }

    /// Whether everything that was read has been written.
    pub fn is_flushed(&self) -> bool {
        self.buffer.is_none()
    }

    /// Each poll reads once, and so much at most; with `None` not at all.
    pub fn read_at_most(&mut self, limit: Option<usize>) {
        self.pieces = 1;
        self.limit = limit.unwrap_or(0);
    }

    /// Moves what can be moved; true when anything did.
    ///
    /// # Errors
    /// One of the connections is broken.
    pub fn poll(&mut self, cx: &mut Context<'_>, from: &Transport, to: &Transport) -> io::Result<bool> {
        let mut progress = false;
        for _ in 0..self.pieces {
            if let Some(buffer) = &mut self.buffer {
                while !buffer.is_empty() {
                    match to.poll_send(cx, &[IoSlice::new(buffer.unread())], false) {
                        Poll::Ready(wrote) => {
                            let wrote = wrote?;
                            buffer.start += wrote;
                            self.sent += wrote as u64;
                            progress = true;
                        }
                        Poll::Pending => return Ok(progress),
                    }
                }
                self.buffer = None;
            }
            if self.ended {
                if self.passes_end && !self.closed {
                    self.closed = true;
                    to.shutdown_write();
                }
                return Ok(progress);
            }
            if self.limit == 0 {
                return Ok(progress);
            }
            match from.poll_readable(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Ok(progress),
            }
            let mut buffer = Buffer::take();
            match from.poll_recv(cx, &mut buffer, self.limit) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(read) => {
                    self.received += read? as u64;
                    self.buffer = Some(buffer);
                }
                Poll::Pending => return Ok(progress),
            }
            progress = true;
        }
        cx.waker().wake_by_ref();
        Ok(progress)
    }
}
