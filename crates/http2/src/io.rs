//! The bytes of a connection as the `h2` crate reads and writes them.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use balanza_net::buffer::{Buffer, CAPACITY};
use balanza_net::clock::{self, Nanos};
use balanza_net::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read at once. What is more would keep a worker from its other connections.
const TURN: usize = 4 * CAPACITY;

/// What a connection knows of its peer.
#[derive(Default)]
pub(crate) struct Meter {
    /// Since when the peer has taken nothing although there was something; 0 while it reads.
    stalled_since: Cell<Nanos>,
    /// Bytes that it has sent.
    received: Cell<u64>,
    /// Bytes that may be read before others have their turn.
    budget: Cell<usize>,
    /// Bytes among them that were of use: heads and bodies.
    useful: Cell<u64>,
}

impl Meter {
    /// When the peer will have taken nothing for so long, if it has stopped reading.
    pub(crate) fn stalls_until(&self, patience: Nanos) -> Option<Nanos> {
        let since = self.stalled_since.get();
        (since != 0).then(|| since.saturating_add(patience))
    }

    /// Begins a turn, in which so much may be read.
    pub(crate) fn begin_turn(&self) {
        self.budget.set(TURN);
    }

    /// Notes bytes of use.
    pub(crate) fn use_bytes(&self, count: usize) {
        self.useful.set(self.useful.get() + count as u64);
    }

    /// Bytes that the peer has sent.
    pub(crate) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Whether the peer sends little but frames without content: NGINX's measure.
    pub(crate) fn is_flooded(&self) -> bool {
        self.received.get() / 8 > self.useful.get() + (1 << 20)
    }
}

/// A transport that collects what is written until it is flushed: frames are small, and system calls and records of TLS
/// are not cheap. It holds buffers only while something is in them.
pub(crate) struct Io {
    transport: Rc<Transport>,
    input: Option<Buffer>,
    output: Option<Buffer>,
    meter: Rc<Meter>,
}

impl Io {
    /// `received` was read from the transport before.
    pub(crate) fn new(transport: Rc<Transport>, received: Option<Buffer>, meter: Rc<Meter>) -> Io {
        Io { transport, input: received, output: None, meter }
    }

    /// Writes all that was collected.
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(output) = self.output.as_mut().filter(|output| !output.is_empty()) {
            match self.transport.poll_send(cx, &[IoSlice::new(output.unread())], false) {
                Poll::Ready(wrote) => {
                    self.meter.stalled_since.set(0);
                    output.start += wrote?;
                }
                Poll::Pending => {
                    if self.meter.stalled_since.get() == 0 {
                        self.meter.stalled_since.set(clock::now());
                    }
                    return Poll::Pending;
                }
            }
        }
        self.output = None;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let io = &mut *self;
        if io.input.as_ref().is_none_or(Buffer::is_empty) {
            io.input = None;
            if io.meter.budget.get() == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match io.transport.poll_recv_buffer(cx, &mut io.input) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                // Streams that were complete are; what the end cuts off shows by itself.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Poll::Ready(read) => {
                    let read = read?;
                    io.meter.received.set(io.meter.received.get() + read as u64);
                    io.meter.budget.set(io.meter.budget.get().saturating_sub(read));
                }
                Poll::Pending => {
                    io.input = None;
                    return Poll::Pending;
                }
            }
        }
        if let Some(input) = &mut io.input {
            let length = input.unread().len().min(out.remaining());
            out.put_slice(&input.unread()[..length]);
            input.start += length;
            if input.is_empty() {
                io.input = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let io = &mut *self;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if io.output.as_ref().is_some_and(|output| output.end == CAPACITY) {
            ready!(io.poll_write_out(cx))?;
        }
        let output = io.output.get_or_insert_with(Buffer::take);
        let space = output.space();
        let length = space.len().min(bytes.len());
        space[..length].copy_from_slice(&bytes[..length]);
        output.end += length;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_out(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        self.transport.shutdown_write();
        Poll::Ready(Ok(()))
    }
}
