//! One direction of a relay: what comes from one socket goes to another.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::task::{Context, Poll};

use crate::buffer::{self, Buffer};
use crate::pipe::Pipe;
use crate::transport::Transport;

/// How many pieces are moved at a time, and how many bytes, so that a fast connection leaves something of the event loop to
/// the others.
const PIECES: usize = 16;
const BYTES: u64 = 1 << 20;

/// How much a pipe takes at a time: at first no more than a buffer, because a client may be slow to take it. As long as each
/// piece is as large as it may be and taken at once, the next may be twice as large: each wakes both peers, which costs more
/// than moving it.
const SPLICED: RangeInclusive<usize> = buffer::CAPACITY..=Pipe::SIZE;

/// One direction.
pub struct Half {
    /// Held only while there is something in it.
    buffer: Option<Buffer>,
    /// Likewise. Bytes are in the buffer or in the pipe, never in both.
    pipe: Option<Pipe>,
    /// How much the next read moves into a pipe; 0 if it goes into a buffer. Only after a read that was as long as it could
    /// be, what follows is worth two system calls without a copy.
    spliced: usize,
    /// How much is read at a time.
    limit: usize,
    /// How often is read before the others get their turn.
    pieces: usize,
    /// The end of the source is passed on.
    passes_end: bool,
    /// TCP_NODELAY is set before the second write, which could be held back without it; most short connections have one.
    pub nodelay: bool,
    /// The connection is closed as soon as all of this direction is written, so that what is written last may leave with
    /// the end.
    pub closes: bool,
    /// The source is broken; what it has sent before is still to be written.
    broken: Option<io::Error>,
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
        Half {
            buffer,
            pipe: None,
            spliced: 0,
            limit,
            pieces: PIECES,
            passes_end,
            nodelay: false,
            closes: false,
            broken: None,
            ended: false,
            closed: false,
            received: 0,
            sent: 0,
        }
    }

    /// Whether everything that was read has been written.
    pub fn is_flushed(&self) -> bool {
        self.buffer.is_none() && self.pipe.is_none()
    }

    /// Each poll reads once, and so much at most; with `None` not at all.
    pub fn read_at_most(&mut self, limit: Option<usize>) {
        self.pieces = 1;
        self.spliced = 0;
        self.limit = limit.unwrap_or(0);
    }

    /// Moves what can be moved; true when anything did.
    ///
    /// # Errors
    /// One of the connections is broken.
    pub fn poll(&mut self, cx: &mut Context<'_>, from: &Transport, to: &Transport) -> io::Result<bool> {
        let before = (self.received, self.sent, self.ended);
        self.move_pieces(cx, from, to)?;
        Ok((self.received, self.sent, self.ended) != before)
    }

    fn move_pieces(&mut self, cx: &mut Context<'_>, from: &Transport, to: &Transport) -> io::Result<()> {
        let enough = self.received + BYTES;
        for _ in 0..self.pieces {
            if self.poll_flush(cx, to)?.is_pending() {
                return Ok(());
            }
            if let Some(error) = self.broken.take() {
                return Err(error);
            }
            if self.ended {
                if self.passes_end && !self.closed {
                    self.closed = true;
                    to.shutdown_write();
                }
                return Ok(());
            }
            if self.limit == 0 || from.poll_readable(cx)?.is_pending() {
                return Ok(());
            }
            match self.poll_receive(cx, from, to)? {
                Poll::Ready(0) => self.ended = true,
                Poll::Ready(read) => self.received += read as u64,
                Poll::Pending => return Ok(()),
            }
            if self.received >= enough {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Writes what was read.
    fn poll_flush(&mut self, cx: &mut Context<'_>, to: &Transport) -> io::Result<Poll<()>> {
        if self.nodelay && self.sent > 0 && !self.is_flushed() {
            to.set_nodelay();
        }
        if let Some(buffer) = &mut self.buffer {
            let last = self.ended && self.closes;
            while !buffer.is_empty() {
                let Poll::Ready(wrote) = to.poll_send(cx, &[IoSlice::new(buffer.unread())], last)? else {
                    return Ok(Poll::Pending);
                };
                buffer.start += wrote;
                self.sent += wrote as u64;
            }
            self.buffer = None;
        }
        if let Some(pipe) = &mut self.pipe {
            while pipe.filled() > 0 {
                let Poll::Ready(wrote) = to.poll_splice_to(cx, pipe, false)? else {
                    self.spliced = self.spliced.min(*SPLICED.start());
                    return Ok(Poll::Pending);
                };
                self.sent += wrote as u64;
            }
            self.put_pipe_back();
        }
        Ok(Poll::Ready(()))
    }

    /// Reads once; 0 is the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, from: &Transport, to: &Transport) -> io::Result<Poll<usize>> {
        let read = if self.spliced > 0
            && from.splices()
            && to.splices()
            && let Ok(pipe) = Pipe::take()
        {
            from.poll_splice_from(cx, self.pipe.insert(pipe), self.spliced)?
        } else {
            let buffer = self.buffer.insert(Buffer::take());
            let mut read = from.poll_recv(cx, buffer, self.limit)?;
            if let Poll::Ready(length) = &mut read
                && (1..self.limit).contains(length)
                && from.is_closed_by_peer()
            {
                // Then the end is known before this is written.
                match from.poll_recv(cx, buffer, self.limit - *length) {
                    Poll::Ready(Ok(0)) => self.ended = true,
                    Poll::Ready(Ok(more)) => *length += more,
                    Poll::Ready(Err(error)) => self.broken = Some(error),
                    Poll::Pending => {}
                }
            }
            read
        };
        let length = if let Poll::Ready(length) = read { length } else { 0 };
        if length == 0 {
            self.buffer = None;
            self.put_pipe_back();
        }
        self.spliced = match self.spliced {
            _ if length < self.limit || self.pieces == 1 => 0,
            most if most > 0 && length >= most => (2 * most).min(*SPLICED.end()),
            most => most.max(*SPLICED.start()),
        };
        Ok(read)
    }

    fn put_pipe_back(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.put_back();
        }
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.put_pipe_back();
    }
}
