//! Connections of clients.
//!
//! [`core`] has the state of a connection and knows no transport; here it meets its transport and the tasks that serve its
//! requests. What only a request needs is held while there is one: an idle connection has neither buffers nor tables.

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
use std::io::{self, IoSlice};
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

/// What a connection allows its client.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Requests at once.
    pub streams: u32,
    /// Bytes of each request's body that may come before they are read.
    pub window: u32,
    /// Bytes of a request's head, as HTTP/2 counts them; what is larger is answered with 431.
    pub head: u32,
}

/// What the connection and its streams share.
struct Shared {
    core: RefCell<Core>,
    transport: Rc<Transport>,
    meter: Meter,
    /// The task that drives the connection.
    waker: RefCell<Option<Waker>>,
    /// It has been woken and has not run yet.
    woken: Cell<bool>,
}

impl Shared {
    /// Has the connection driven.
    fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Writes what is to be written.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut core = self.core.borrow_mut();
        while !core.output.is_empty() {
            match self.transport.poll_send(cx, &[IoSlice::new(core.output.first())], false) {
                Poll::Ready(wrote) => {
                    self.meter.takes();
                    core.output.wrote(wrote?);
                }
                Poll::Pending => {
                    self.meter.takes_nothing();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what can be written at once. It is the connection's task that waits, and learns of an error.
    fn flush(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            let _ = self.poll_flush(&mut Context::from_waker(waker));
        }
    }
}

/// A client's connection. It moves while it is asked for requests: streams read and write through it.
pub struct Connection {
    shared: Rc<Shared>,
    /// What has come and could not be read yet.
    input: Option<Buffer>,
}

/// What a client asks.
pub struct Asked {
    head: Head,
    /// Nothing follows the head.
    ends: bool,
}

impl Asked {
    /// Makes a request of it. One that opens a WebSocket becomes the request that opens it in HTTP/1.1, with this key.
    ///
    /// # Errors
    /// It is not valid, or larger than allowed. What was read before the fault is in `to`.
    pub fn translate(
        &self,
        limits: &Limits,
        key: impl FnOnce() -> String,
        to: &mut Request,
    ) -> Result<(), RequestError> {
        head::translate(&self.head, self.ends, limits, key, to)
    }

    /// Whether it opens a WebSocket: an extended CONNECT (RFC 8441).
    pub fn opens_websocket(&self) -> bool {
        self.head.opens_websocket()
    }
}

impl Connection {
    /// Begins HTTP/2 on a transport, of which `received` was read before: waits for the client's preface.
    ///
    /// # Errors
    /// The client does not speak HTTP/2, or has gone.
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
                    // A client may wait for what is allowed.
                    let _ = self.shared.poll_flush(cx)?;
                    return Poll::Pending;
                }
            };
        }
    }

    /// Reads more; 0 is the end.
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
            // Streams that were complete are; what the end cuts off shows by itself.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
            Poll::Pending if self.input.as_ref().is_some_and(Buffer::is_empty) => self.input = None,
            _ => {}
        }
        read
    }

    /// Begins a turn, in which so much is read that other connections do not wait for long. To be called whenever the task
    /// of the connection runs.
    pub fn begin_turn(&mut self) {
        self.shared.meter.begin_turn();
    }

    /// Moves the connection, and waits for a request; none when it has ended in order.
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

    /// Reads what has come, up to a request.
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

    /// Sends the last frames of a connection that is over.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input = None;
        ready!(self.shared.poll_flush(cx))?;
        Poll::Ready(match self.shared.core.borrow().error() {
            Some(fatal) => Err(io::Error::other(fatal.text)),
            None => Ok(()),
        })
    }

    /// Tells the client to send no more requests here, and ends when all are answered (GOAWAY).
    pub fn end_gracefully(&mut self) {
        self.shared.core.borrow_mut().end_gracefully();
    }

    /// Ends at once: the client is told which requests were not looked at, and whether it asks too much.
    pub fn end_abruptly(&mut self, floods: bool) {
        let reason = if floods { Reason::EnhanceYourCalm } else { Reason::NoError };
        self.shared.core.borrow_mut().end_abruptly(reason);
    }

    /// Whether the client sends little but frames without content.
    pub fn is_flooded(&self) -> bool {
        self.shared.meter.is_flooded()
    }

    /// When the client will have read nothing for so long, if it does not read.
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

/// A request's way to its client. One that is dropped before its end is reset (CANCEL).
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

    /// Reads the trailers behind the body.
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
    /// The client has gone.
    pub fn send_interim(&mut self, status: u16, fields: &Fields) -> io::Result<()> {
        self.send_block(false, |block| write::head(block, status, fields, None))
    }

    /// Sends the head of the response; with `ends` it is all there is.
    ///
    /// # Errors
    /// The client has gone.
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

    /// Sends what the client takes of these bytes, in frames of up to so many; `ends` tells that nothing follows them.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        most: usize,
        ends: bool,
    ) -> Poll<io::Result<usize>> {
        let mut sent = 0;
        while sent < bytes.len() {
            // Who has sent something comes again before it waits.
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
            // The turn is another's.
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
        // A turn is one frame, so that all who wait go on equally.
        core.end_turn(self.key);
        // As in NGINX: the window updates of a long download are no flood.
        self.shared.meter.use_bytes(length);
        if last {
            core.finish(self.key);
        }
        Poll::Ready(Ok(length))
    }

    /// Ends the response, with trailers if there are any.
    ///
    /// # Errors
    /// The client has gone.
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

    /// Waits until the client has given the request up, or has gone.
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

    /// Gives the response up, unless it was sent whole: the client must not take what it has for all of it.
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
        // For a frame that tells of it, for the turn of another, and for an end that waits for it.
        self.shared.wake();
    }
}

/// What those learn who serve a request that is no more.
fn gone() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}
