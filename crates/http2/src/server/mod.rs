//! Connections from clients.
//!
//! [`core`] holds the state of a connection and does not know its transport. This file connects it to the transport and
//! to the tasks that serve requests. Buffers and tables exist only while requests need them: an idle connection has
//! none.

#[cfg(test)]
mod conversations;
mod core;
mod flow;
mod frame;
mod head;
mod output;
#[cfg(any(test, feature = "fuzzing"))]
pub mod probe;
mod streams;
mod write;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use balanza_message::{Fields, Limits, Request, RequestError};
use balanza_net::buffer::Buffer;
use balanza_net::clock::Nanos;
use balanza_net::transport::Transport;

use self::core::{Arrived, Core, Fatal, WORTHWHILE};
use self::frame::{Reason, flag, kind};
use self::head::Head;
use self::streams::{Key, watch};
use crate::PREFACE;
use crate::meter::Meter;

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Concurrent requests.
    pub streams: u32,
    /// Bytes of each request's body that the client may send before they are read.
    pub window: u32,
    /// Bytes of a request's head, counted as in HTTP/2. A larger head is answered with 431.
    pub head: u32,
}

/// State that the connection and its streams share.
struct Shared {
    core: RefCell<Core>,
    transport: Rc<Transport>,
    meter: Meter,
    /// The task that drives the connection.
    waker: RefCell<Option<Waker>>,
    /// Whether that task has been woken and has not run since.
    woken: Cell<bool>,
}

impl Shared {
    /// Wakes the task that drives the connection.
    fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Writes the collected frames.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut core = self.core.borrow_mut();
        while !core.output.is_empty() {
            let wrote = ready!(self.meter.poll_send(&self.transport, cx, core.output.first()))?;
            core.output.wrote(wrote);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes as much as possible now. The connection's task waits for the rest and handles errors.
    fn flush(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            let _ = self.poll_flush(&mut Context::from_waker(waker));
        }
    }
}

/// A connection from a client. [`Connection::poll_request`] drives it; streams read and write through it.
pub struct Connection {
    shared: Rc<Shared>,
    /// Bytes that were received and not yet processed.
    input: Option<Buffer>,
}

/// A request as the client sent it.
pub struct Asked {
    head: Head,
    /// Nothing follows the head.
    ends: bool,
}

impl Asked {
    /// Converts it to a [`Request`]. A request that opens a WebSocket is converted to one of HTTP/1.1 with this key.
    ///
    /// # Errors
    /// The request is not valid, or is larger than allowed. `to` contains what was read before the error.
    pub fn translate(
        &self,
        limits: &Limits,
        key: impl FnOnce() -> String,
        to: &mut Request,
    ) -> Result<(), RequestError> {
        head::translate(&self.head, self.ends, limits, key, to)
    }

    /// Whether the request opens a WebSocket: an extended CONNECT (RFC 8441).
    pub fn opens_websocket(&self) -> bool {
        self.head.opens_websocket()
    }
}

impl Connection {
    /// Starts HTTP/2 on a transport from which `received` has already been read. Waits for the client's preface.
    ///
    /// # Errors
    /// The client does not speak HTTP/2, or has disconnected.
    pub async fn begin(
        transport: Rc<Transport>,
        received: Option<Buffer>,
        settings: Settings,
    ) -> Result<Connection, io::Error> {
        let shared = Shared {
            core: RefCell::new(Core::new(settings)),
            transport,
            meter: Meter::default(),
            waker: RefCell::new(None),
            woken: Cell::new(false),
        };
        let mut connection = Connection { shared: Rc::new(shared), input: received };
        connection.begin_turn();
        let mut left = PREFACE;
        poll_fn(|cx| connection.poll_preface(cx, &mut left)).await?;
        Ok(connection)
    }

    fn poll_preface(&mut self, cx: &mut Context<'_>, left: &mut &[u8]) -> Poll<io::Result<()>> {
        loop {
            if let Some(input) = &mut self.input {
                let length = left.len().min(input.unread().len());
                let (expected, rest) = left.split_at(length);
                if !input.unread().starts_with(expected) {
                    return Poll::Ready(Err(io::Error::other("invalid http2 connection preface")));
                }
                input.start += length;
                *left = rest;
                if input.is_empty() {
                    self.input = None;
                }
            }
            if left.is_empty() {
                return Poll::Ready(Ok(()));
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(read) => read?,
                Poll::Pending => {
                    // The client may wait for our SETTINGS.
                    let _ = self.shared.poll_flush(cx)?;
                    return Poll::Pending;
                }
            };
        }
    }

    /// Reads more bytes; 0 is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let meter = &self.shared.meter;
        if !meter.has_turn() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(input) = &mut self.input {
            input.shift(0);
        }
        let read = self.shared.transport.poll_recv_buffer(cx, &mut self.input);
        match read {
            Poll::Ready(Ok(read)) => meter.receive(read),
            // Streams that have ended are complete; the others report the missing end themselves.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
            Poll::Pending if self.input.as_ref().is_some_and(Buffer::is_empty) => self.input = None,
            _ => {}
        }
        read
    }

    /// Begins a turn, which limits how much is read, so that other connections do not wait long. Call it whenever the
    /// connection's task runs.
    pub fn begin_turn(&mut self) {
        self.shared.meter.begin_turn();
    }

    /// Drives the connection and waits for a request; none when the connection has ended normally.
    pub fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<(Asked, Stream)>>> {
        self.shared.woken.set(false);
        watch(&mut self.shared.waker.borrow_mut(), cx.waker());
        loop {
            match self.read_input() {
                Ok(None) => {}
                Ok(Some(arrived)) => return Poll::Ready(Some(Ok(self.serve(arrived)))),
                Err(fatal) => self.shared.core.borrow_mut().fail(fatal),
            }
            let (is_over, is_congested) = {
                let core = self.shared.core.borrow();
                (core.is_over(), core.output.is_congested())
            };
            if is_over {
                return self.poll_end(cx).map(|ended| ended.err().map(Err));
            }
            if is_congested {
                if let Err(error) = ready!(self.shared.poll_flush(cx)) {
                    return Poll::Ready(Some(Err(error)));
                }
                continue;
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    self.shared.core.borrow_mut().give_up_all();
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => break,
            }
        }
        if let Poll::Ready(Err(error)) = self.shared.poll_flush(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        self.shared.core.borrow_mut().give_turns();
        Poll::Pending
    }

    /// Processes the received bytes, up to the next request.
    fn read_input(&mut self) -> Result<Option<Arrived>, Fatal> {
        let Some(input) = &mut self.input else { return Ok(None) };
        let mut core = self.shared.core.borrow_mut();
        if core.is_over() || core.output.is_congested() {
            return Ok(None);
        }
        let (read, arrived) = core.receive(input.unread())?;
        input.start += read;
        if input.is_empty() {
            self.input = None;
        }
        Ok(arrived)
    }

    fn serve(&self, arrived: Arrived) -> (Asked, Stream) {
        let Arrived { head, ends, key, id } = arrived;
        self.shared.meter.use_bytes(frame::HEAD + head.len());
        let stream = Stream { shared: Rc::clone(&self.shared), key, id };
        (Asked { head, ends }, stream)
    }

    /// Sends the last frames of a connection that has ended.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input = None;
        ready!(self.shared.poll_flush(cx))?;
        Poll::Ready(match self.shared.core.borrow().error() {
            Some(fatal) => Err(io::Error::other(fatal.text)),
            None => Ok(()),
        })
    }

    /// Tells the client to send no more requests (GOAWAY). The connection ends when all requests have been answered.
    pub fn end_gracefully(&mut self) {
        self.shared.core.borrow_mut().end_gracefully();
    }

    /// Ends the connection now. GOAWAY tells the client which requests were not processed; `floods` makes its code
    /// ENHANCE_YOUR_CALM.
    pub fn end_abruptly(&mut self, floods: bool) {
        let reason = if floods { Reason::EnhanceYourCalm } else { Reason::NoError };
        self.shared.core.borrow_mut().end_abruptly(reason);
    }

    /// Whether most of what the client sends is frames without content.
    pub fn is_flooded(&self) -> bool {
        self.shared.meter.is_flooded()
    }

    /// When the client will have read nothing for `patience`, if it has stopped reading.
    pub fn stalls_until(&self, patience: Nanos) -> Option<Nanos> {
        self.shared.meter.stalls_until(patience)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut core = self.shared.core.borrow_mut();
        core.give_up_all();
        core.output = Default::default();
        self.shared.waker.take();
    }
}

/// A request's stream. If it is dropped before it has ended, the stream is reset (CANCEL).
pub struct Stream {
    shared: Rc<Shared>,
    key: Key,
    id: u32,
}

impl Stream {
    /// Reads into the free space of a buffer; 0 is the end of the body.
    pub fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut Buffer) -> Poll<io::Result<usize>> {
        let mut core = self.shared.core.borrow_mut();
        let core = &mut *core;
        let is_dead = core.is_dead();
        let Some(stream) = core.streams.at(self.key) else { return Poll::Ready(Err(gone())) };
        let unread = stream.unread();
        if unread.is_empty() {
            return match (stream.received, stream.reset || is_dead) {
                (true, _) if !stream.reset => Poll::Ready(Ok(0)),
                (_, true) => Poll::Ready(Err(gone())),
                _ => {
                    watch(&mut stream.reader, cx.waker());
                    Poll::Pending
                }
            };
        }
        let space = into.space();
        let length = space.len().min(unread.len());
        space[..length].copy_from_slice(&unread[..length]);
        into.end += length;
        self.shared.meter.use_bytes(length);
        core.release(self.key, length);
        if !core.output.is_empty() {
            self.shared.wake();
        }
        Poll::Ready(Ok(length))
    }

    /// Reads the trailers after the body.
    pub fn poll_trailers(&mut self, cx: &mut Context<'_>, to: &mut Fields) -> Poll<io::Result<()>> {
        let mut core = self.shared.core.borrow_mut();
        let is_dead = core.is_dead();
        let Some(stream) = core.streams.at(self.key) else { return Poll::Ready(Err(gone())) };
        if stream.reset || is_dead && !stream.received {
            return Poll::Ready(Err(gone()));
        }
        let unread = stream.unread().len();
        if stream.received {
            if let Some(trailers) = stream.trailers.take() {
                to.append(&trailers);
            }
        } else {
            watch(&mut stream.reader, cx.waker());
        }
        let is_complete = stream.received;
        core.release(self.key, unread);
        if !core.output.is_empty() {
            self.shared.wake();
        }
        if is_complete { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Sends the head of an interim response.
    ///
    /// # Errors
    /// The client has disconnected or reset the stream.
    pub fn send_interim(&mut self, status: u16, fields: &Fields) -> io::Result<()> {
        self.send_block(false, |block| write::head(block, status, fields, None))
    }

    /// Sends the head of the response; with `ends` nothing follows it.
    ///
    /// # Errors
    /// The client has disconnected or reset the stream.
    pub fn send_head(&mut self, status: u16, fields: &Fields, length: Option<u64>, ends: bool) -> io::Result<()> {
        self.send_block(ends, |block| write::head(block, status, fields, length))?;
        if let Some(stream) = self.shared.core.borrow_mut().streams.at(self.key) {
            stream.head_sent = true;
        }
        Ok(())
    }

    /// Sends a head or trailers.
    fn send_block(&self, ends: bool, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut core = self.shared.core.borrow_mut();
        let is_dead = core.is_dead();
        core.streams.at(self.key).filter(|stream| !is_dead && !stream.reset && !stream.sent).ok_or_else(gone)?;
        write::with_block(|block| {
            core.begin_block(block);
            write(block);
            core.output.block(self.id, block, ends);
        });
        if ends {
            core.finish(self.key);
        }
        self.shared.wake();
        Ok(())
    }

    /// Sends as many of these bytes as the client's windows allow, in frames of at most `most` bytes; `ends` means that
    /// they end the body.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        most: usize,
        ends: bool,
    ) -> Poll<io::Result<usize>> {
        let mut sent = 0;
        while sent < bytes.len() {
            // A caller that has sent something calls again before it waits, so no waker is needed.
            let waiter = (sent == 0).then_some(cx.waker());
            match self.poll_send_frame(waiter, &bytes[sent..], most, ends) {
                Poll::Ready(Ok(length)) => sent += length,
                Poll::Pending if sent > 0 => break,
                other => return other,
            }
        }
        self.shared.wake();
        Poll::Ready(Ok(sent))
    }

    fn poll_send_frame(
        &self,
        waiter: Option<&Waker>,
        bytes: &[u8],
        most: usize,
        ends: bool,
    ) -> Poll<io::Result<usize>> {
        let mut core = self.shared.core.borrow_mut();
        let is_dead = core.is_dead();
        let Some(stream) = core.streams.at(self.key) else { return Poll::Ready(Err(gone())) };
        if is_dead || stream.reset || stream.sent || !stream.head_sent {
            return Poll::Ready(Err(gone()));
        }
        let (window, has_turn) = (stream.sending.room(), stream.has_turn);
        if window == 0 {
            if let Some(waker) = waiter {
                watch(&mut stream.writer, waker);
            }
            // This stream cannot use its turn, so the next one gets it.
            core.end_turn(self.key);
            self.shared.wake();
            return Poll::Pending;
        }
        let wanted = bytes.len().min(most).min(frame::MOST).min(window);
        let mut room = core.output.room();
        let others_wait = core.others_wait(has_turn);
        if room < wanted.min(WORTHWHILE) && !others_wait {
            drop(core);
            self.shared.flush();
            core = self.shared.core.borrow_mut();
            room = core.output.room();
        }
        let all = core.sending.room();
        if !has_turn && others_wait || room < wanted.min(WORTHWHILE) || all == 0 {
            if let Some(waker) = waiter {
                core.stand_in_line(self.key, waker);
            }
            self.shared.wake();
            return Poll::Pending;
        }
        let length = wanted.min(room).min(all);
        let last = ends && length == bytes.len();
        core.output.frame(kind::DATA, if last { flag::END_STREAM } else { 0 }, self.id, &bytes[..length]);
        core.sending.take(length);
        if let Some(stream) = core.streams.at(self.key) {
            stream.sending.take(length);
        }
        // A turn is one frame, so that all waiting streams progress equally.
        core.end_turn(self.key);
        // As in NGINX, so that the window updates of a long download do not count as a flood.
        self.shared.meter.use_bytes(length);
        if last {
            core.finish(self.key);
        }
        Poll::Ready(Ok(length))
    }

    /// Ends the response, with trailers if there are any.
    ///
    /// # Errors
    /// The client has disconnected or reset the stream.
    pub fn end(&mut self, trailers: &Fields) -> io::Result<()> {
        {
            let mut core = self.shared.core.borrow_mut();
            let is_dead = core.is_dead();
            let stream = core.streams.at(self.key).ok_or_else(gone)?;
            if stream.sent {
                return Ok(());
            }
            if is_dead || stream.reset || !stream.head_sent {
                return Err(gone());
            }
            if trailers.is_empty() {
                core.output.frame(kind::DATA, flag::END_STREAM, self.id, &[]);
                core.finish(self.key);
                self.shared.wake();
                return Ok(());
            }
        }
        self.send_block(true, |block| write::trailers(block, trailers))
    }

    /// Waits until the client has reset the stream or has disconnected.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut core = self.shared.core.borrow_mut();
        if core.is_dead() {
            return Poll::Ready(());
        }
        match core.streams.at(self.key) {
            Some(stream) if !stream.reset => {
                watch(&mut stream.writer, cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Resets the stream unless the whole response was sent, so that the client does not take a partial response for a
    /// complete one.
    pub fn abort(&mut self) {
        let mut core = self.shared.core.borrow_mut();
        if core.is_dead() || core.streams.at(self.key).is_none_or(|stream| stream.sent || stream.reset) {
            return;
        }
        core.give_up(self.id, Reason::InternalError);
        self.shared.wake();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.core.borrow_mut().close(self.key);
        // The connection may have to send RST_STREAM, give another stream its turn, or end.
        self.shared.wake();
    }
}

/// The error for calls on a stream that has ended.
fn gone() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}
