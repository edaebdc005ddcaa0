//! The byte stream of a connection for the `h2` crate.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use balanza_net::buffer::{Buffer, CAPACITY};
use balanza_net::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::meter::Meter;

/// A transport that collects writes until it is flushed, because frames are small and each system call and TLS record
/// has a cost. It holds a buffer only while it contains data.
pub(crate) struct Io {
    transport: Rc<Transport>,
    input: Option<Buffer>,
    output: Option<Buffer>,
    meter: Rc<Meter>,
}

impl Io {
    /// `received` has already been read from the transport.
    pub(crate) fn new(transport: Rc<Transport>, received: Option<Buffer>, meter: Rc<Meter>) -> Io {
        Io { transport, input: received, output: None, meter }
    }

    /// Writes the collected bytes.
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(output) = self.output.as_mut().filter(|output| !output.is_empty()) {
            output.start += ready!(self.meter.poll_send(&self.transport, cx, output.unread()))?;
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
            if !io.meter.has_turn() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match io.transport.poll_recv_buffer(cx, &mut io.input) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                // Streams that have ended are complete; the others report the missing end themselves.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Poll::Ready(read) => {
                    io.meter.receive(read?);
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
