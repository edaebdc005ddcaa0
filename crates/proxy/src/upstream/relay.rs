//! Relays a response's body from server to client.
//!
//! The server is read as long as there is room: `proxy_buffers` in memory, then a temporary file, so that a slow client
//! does not hold a server. Without buffering the server waits for the client. Large bodies that need no change of
//! framing go through a pipe and never enter user space.

use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use balanza_config::model::{Location, TempPath};
use balanza_http1::{Body, ChunkedDecoder, write_chunk_head};
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock::{self, Nanos};
use balanza_net::memory::{self, Pressure};
use balanza_net::pipe::Pipe;

use super::ServerConnection;
use crate::downstream::Rate;
use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::variables::{self, Undecided};
use crate::{respond, temporary};

/// Room in front of a piece for its chunk head, and behind it for the line end.
const CHUNK_HEAD: usize = 24;
const CHUNK_TAIL: usize = 2;

/// From this length on a body goes through a pipe.
const SPLICE_FROM: u64 = 64 * 1024;

/// A client that has taken nothing for so long is slow: its bytes are copied out of the pipe, and into a file when
/// memory is full. Before that, waiting costs less.
const STALL: Duration = Duration::from_millis(100);

/// A head and a body piece up to this size are put together: one buffer costs less to write than two.
const JOINED: usize = 4096;

/// Why a response was cut off.
#[derive(Debug)]
pub enum RelayError {
    /// The client has gone, or does not read.
    Client(SendError),
    /// The server closed or reset the connection before the end.
    Server(Option<io::Error>),
    /// The server was silent for `proxy_read_timeout`.
    ServerTimedOut,
    /// The server's chunks are malformed.
    Malformed(&'static str),
    /// The temporary file failed.
    File(io::Error),
}

/// How the server's body is delimited, and what is left of it.
enum Source {
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    Done,
}

/// A response's body on its way.
pub struct Relay {
    source: Source,
    /// Pieces for the client, framed.
    pending: VecDeque<Buffer>,
    pending_bytes: usize,
    /// What memory may hold.
    memory: usize,
    /// Most bytes written at once (`proxy_busy_buffers_size`).
    quantum: usize,
    spill: Option<Spill>,
    /// Where the temporary file is.
    temp_path: Option<Arc<TempPath>>,
    /// Most bytes of the temporary file; 0 for none.
    spill_limit: u64,
    pipe: Option<Pipe>,
    /// Pipes can be had.
    splices: bool,
    chunked: bool,
    /// The last chunk is among the pieces.
    ended: bool,
    /// Bytes of the body received, framing included.
    pub wire: u64,
    /// The server's connection is at the border of a response, with nothing behind it.
    pub clean: bool,
    /// When the client last took something.
    progressed: Nanos,
    /// Something waits for the client.
    client_waited_for: bool,
    /// `proxy_limit_rate`, counted from `begun`.
    server_rate: Rate,
    begun: Nanos,
    times: Times,
    read_deadline: Nanos,
    send_deadline: Nanos,
    /// A rate allows nothing before then.
    paused_until: Nanos,
    /// The client has gone, and the server is read to its end all the same (`proxy_ignore_client_abort`).
    deaf: bool,
}

/// A temporary file between server and client.
struct Spill {
    file: File,
    read: u64,
    written: u64,
}

impl Spill {
    fn append(&mut self, piece: &Buffer) -> Result<(), RelayError> {
        self.file.write_all_at(piece.unread(), self.written).map_err(RelayError::File)?;
        self.written += piece.unread().len() as u64;
        Ok(())
    }
}

impl Relay {
    /// A relay for the response at hand, whose body is delimited like this. `buffering` is the location's, or what the server asked for.
    ///
    /// # Errors
    /// A regular expression is undecided.
    pub fn new(x: &mut Exchange, location: &Location, body: Body, buffering: bool) -> Result<Relay, Undecided> {
        let proxy = &location.settings.proxy;
        let server_rate = match &proxy.limit_rate {
            Some(rate) => Rate { limit: variables::render_size(rate, x)?, after: 0 },
            None => Rate::default(),
        };
        let times = Times { read: proxy.read_timeout, send: location.settings.send_timeout };
        let source = match body {
            Body::None | Body::Length(0) => Source::Done,
            Body::Length(length) => Source::Length(length),
            Body::Chunked => Source::Chunked(Box::default()),
            Body::UntilClose => Source::UntilClose,
        };
        let memory = match proxy.buffers {
            Some((count, size)) if buffering => count * size,
            _ => buffer::CAPACITY,
        };
        Ok(Relay {
            source,
            pending: VecDeque::new(),
            pending_bytes: 0,
            memory: memory.max(1),
            quantum: proxy.busy_buffers_size.unwrap_or(usize::MAX).max(1),
            spill: None,
            temp_path: proxy.temp_path.clone(),
            spill_limit: if buffering { proxy.max_temp_file_size } else { 0 },
            pipe: None,
            splices: x.rate.limit == 0 && server_rate.limit == 0,
            chunked: x.chunked,
            ended: false,
            wire: 0,
            clean: false,
            progressed: clock::recent(),
            client_waited_for: false,
            server_rate,
            begun: clock::recent(),
            read_deadline: clock::after(times.read),
            send_deadline: clock::after(times.send),
            times,
            paused_until: Nanos::MAX,
            deaf: false,
        })
    }

    /// Whether the server has sent everything.
    pub fn is_received(&self) -> bool {
        matches!(self.source, Source::Done)
    }

    /// Whether the client closed before the end, and the rest was read and discarded.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Sends the response's head with what of the body came with it.
    ///
    /// # Errors
    /// The client has gone, or the body is malformed from its beginning.
    pub async fn begin(&mut self, x: &mut Exchange, mut first: Buffer) -> Result<(), RelayError> {
        self.decode(&mut first, x)?;
        if self.chunked || x.rate.limit != 0 {
            self.push(first);
            if self.is_received() && self.chunked {
                self.end(x)?;
            }
            if x.rate.limit == 0 && self.pending_bytes <= 4 * JOINED {
                for piece in self.pending.drain(..) {
                    x.out.extend_from_slice(piece.unread());
                }
                x.body_bytes_sent += std::mem::take(&mut self.pending_bytes) as u64;
            }
            let sent = respond::send_head(x, b"").await;
            return sent.map_err(RelayError::Client);
        }
        send_joined(x, &first).await.map_err(RelayError::Client)
    }

    /// Reads payload out of a buffer of the server's bytes: afterwards it holds payload alone.
    fn decode(&mut self, input: &mut Buffer, x: &mut Exchange) -> Result<(), RelayError> {
        let available = input.end - input.start;
        self.wire += available as u64;
        match &mut self.source {
            Source::Done => {
                self.clean = available == 0;
                input.end = input.start;
            }
            Source::UntilClose => {}
            Source::Length(left) => {
                let taken = (available as u64).min(*left);
                *left -= taken;
                if *left == 0 {
                    // Whatever follows was not asked for.
                    self.clean = taken == available as u64;
                    self.source = Source::Done;
                }
                input.end = input.start + taken as usize;
            }
            Source::Chunked(decoder) => {
                let decoded =
                    decoder.decode(input.unread_mut()).map_err(|error| RelayError::Malformed(error.reason))?;
                if decoded.finished {
                    self.clean = decoded.consumed == available;
                    for (name, value) in decoder.trailers().iter() {
                        x.response_trailers.push(name, value);
                    }
                    self.source = Source::Done;
                }
                input.end = input.start + decoded.produced;
            }
        }
        Ok(())
    }

    /// Adds payload, framed for the client. In front of it and behind it there is room for the framing.
    fn push(&mut self, mut piece: Buffer) {
        if self.deaf {
            return;
        }
        if self.chunked {
            if piece.is_empty() {
                return;
            }
            let mut size = [0; 20];
            let size = write_chunk_head(&mut size, (piece.end - piece.start) as u64);
            if piece.start < size.len() || piece.end + CHUNK_TAIL > buffer::CAPACITY {
                // Only the bytes that came with the head can lie at the border of their buffer.
                let payload = piece.unread().len().min(buffer::CAPACITY - CHUNK_HEAD - CHUNK_TAIL);
                let mut moved = Buffer::take();
                moved.start = CHUNK_HEAD;
                moved.end = CHUNK_HEAD + payload;
                moved.unread_mut().copy_from_slice(&piece.unread()[..payload]);
                piece.start += payload;
                self.push(moved);
                return self.push(piece);
            }
            piece.start -= size.len();
            let start = piece.start;
            piece.bytes_mut()[start..start + size.len()].copy_from_slice(size);
            let end = piece.end;
            piece.bytes_mut()[end..end + CHUNK_TAIL].copy_from_slice(b"\r\n");
            piece.end += CHUNK_TAIL;
        }
        self.enqueue(piece);
    }

    /// Adds a framed piece; small ones share a buffer, so that memory is bounded by what is in it.
    fn enqueue(&mut self, piece: Buffer) {
        let bytes = piece.unread();
        if bytes.is_empty() {
            return;
        }
        self.pending_bytes += bytes.len();
        if let Some(last) = self.pending.back_mut()
            && last.space().len() >= bytes.len()
        {
            last.space()[..bytes.len()].copy_from_slice(bytes);
            last.end += bytes.len();
            return;
        }
        self.pending.push_back(piece);
    }

    /// Adds the last chunk.
    fn end(&mut self, x: &mut Exchange) -> Result<(), RelayError> {
        self.ended = true;
        let mut end = Vec::new();
        respond::write_last_chunk(x, &mut end);
        for part in end.chunks(buffer::CAPACITY) {
            let mut piece = Buffer::take();
            piece.end = part.len();
            piece.unread_mut().copy_from_slice(part);
            match self.spill.as_mut().filter(|spill| spill.read < spill.written) {
                Some(spill) => spill.append(&piece)?,
                None => self.enqueue(piece),
            }
        }
        Ok(())
    }

    /// Relays what is left. `received` is called as soon as the server has sent everything, which may be long before
    /// the client has got it.
    ///
    /// # Errors
    /// Whatever cuts the response off.
    pub async fn run(
        &mut self,
        x: &mut Exchange,
        server: &mut Option<Box<ServerConnection>>,
        mut received: impl FnMut(&mut Exchange, Option<Box<ServerConnection>>, &Relay),
    ) -> Result<(), RelayError> {
        loop {
            if self.is_received() && server.is_some() {
                if self.chunked && !self.ended {
                    self.end(x)?;
                }
                received(x, server.take(), self);
            }
            if self.is_received() && self.is_sent() {
                return Ok(());
            }
            poll_fn(|cx| self.poll(cx, x, server)).await?;
        }
    }

    /// Whether the client has got everything, the last chunk included.
    fn is_sent(&self) -> bool {
        self.is_drained() && (!self.chunked || self.ended || self.deaf)
    }

    /// Whether nothing that has come waits for the client.
    fn is_drained(&self) -> bool {
        self.pending.is_empty()
            && self.pipe.as_ref().is_none_or(|pipe| pipe.filled() == 0)
            && self.spill.as_ref().is_none_or(|spill| spill.read == spill.written)
    }

    /// Moves what can be moved; ready when the server has sent everything, and when the client has got everything.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        server: &Option<Box<ServerConnection>>,
    ) -> Poll<Result<(), RelayError>> {
        let now = clock::now();
        self.paused_until = Nanos::MAX;
        loop {
            match self.poll_send(cx, x) {
                Ok(false) => {}
                Ok(true) => {
                    self.progressed = now;
                    self.send_deadline = clock::after(self.times.send);
                }
                Err(RelayError::Client(_)) if x.location().settings.proxy.ignore_client_abort => self.turn_deaf(),
                Err(error) => return Poll::Ready(Err(error)),
            }
            if self.is_received() {
                if self.is_sent() {
                    return Poll::Ready(Ok(()));
                }
                break;
            }
            let Some(connection) = server else { return Poll::Ready(Err(RelayError::Server(None))) };
            match self.poll_receive(cx, connection, x)? {
                Received::Some => self.read_deadline = clock::after(self.times.read),
                Received::All => return Poll::Ready(Ok(())),
                Received::Nothing => break,
                Received::NoRoom => {
                    // The wait is not for the server.
                    self.read_deadline = clock::after(self.times.read);
                    break;
                }
            }
        }
        let client_waited_for = !self.is_drained();
        if client_waited_for && !self.client_waited_for || self.paused_until != Nanos::MAX {
            self.send_deadline = clock::after(self.times.send).max(self.paused_until.wrapping_add(1));
        }
        self.client_waited_for = client_waited_for;
        self.poll_deadlines(cx, x, now)
    }

    fn poll_deadlines(&mut self, cx: &mut Context<'_>, x: &mut Exchange, now: Nanos) -> Poll<Result<(), RelayError>> {
        let stall = self.progressed + clock::nanos(STALL);
        let deadline = match (self.client_waited_for, self.is_received()) {
            (true, true) => self.send_deadline,
            (true, false) if now < stall => stall,
            (true, false) => self.send_deadline.min(self.read_deadline),
            (false, _) => self.read_deadline,
        };
        if x.downstream.timer.poll_expired(cx, deadline.min(self.paused_until)) {
            let now = clock::now();
            if self.client_waited_for && now >= self.send_deadline {
                return Poll::Ready(Err(RelayError::Client(SendError::TimedOut)));
            }
            if !self.is_received() && now >= self.read_deadline {
                return Poll::Ready(Err(RelayError::ServerTimedOut));
            }
            // The client has just turned out to be slow, or a rate allows something again.
            cx.waker().wake_by_ref();
        }
        if !self.client_waited_for && !x.location().settings.proxy.ignore_client_abort {
            // Its going away is all that the client can tell now.
            if x.downstream.poll_peer_closed(cx).is_ready() {
                return Poll::Ready(Err(RelayError::Client(SendError::Closed)));
            }
        }
        Poll::Pending
    }

    /// From now on what the server sends is read and discarded.
    fn turn_deaf(&mut self) {
        self.deaf = true;
        self.pending.clear();
        self.pending_bytes = 0;
        self.pipe = None;
        self.spill = None;
        self.spill_limit = 0;
    }

    /// Sends what the client takes; true when it took something.
    fn poll_send(&mut self, cx: &mut Context<'_>, x: &mut Exchange) -> Result<bool, RelayError> {
        let mut progress = false;
        loop {
            let wrote = if let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.filled() > 0) {
                let more = !matches!(self.source, Source::Done);
                x.downstream.poll_splice_to(cx, pipe, more)
            } else if let Some(piece) = self.pending.front_mut() {
                let unread = piece.unread();
                let mut wanted = unread.len().min(self.quantum);
                if x.rate.limit != 0 {
                    let now = clock::now();
                    match x.rate.allowance(x.bytes_sent, now - x.started, wanted) {
                        Ok(allowed) => wanted = allowed,
                        Err(pause) => {
                            self.paused_until = self.paused_until.min(now + clock::nanos(pause));
                            return Ok(progress);
                        }
                    }
                }
                let wrote = x.downstream.poll_send(cx, &unread[..wanted]);
                if let Poll::Ready(Ok(wrote)) = wrote {
                    piece.start += wrote;
                    self.pending_bytes -= wrote;
                    if piece.is_empty() {
                        self.pending.pop_front();
                    }
                }
                wrote
            } else if self.unspill()? {
                continue;
            } else {
                return Ok(progress);
            };
            match wrote {
                Poll::Ready(Ok(wrote)) => {
                    progress = true;
                    x.bytes_sent += wrote as u64;
                    x.body_bytes_sent += wrote as u64;
                }
                Poll::Ready(Err(_)) => return Err(RelayError::Client(SendError::Closed)),
                Poll::Pending => return Ok(progress),
            }
        }
    }

    /// Whether the client has taken nothing for long enough to keep the server's bytes for it.
    fn is_stalled(&self) -> bool {
        clock::now().saturating_sub(self.progressed) >= STALL.as_nanos() as Nanos
    }

    /// What memory may hold now.
    fn memory(&self) -> usize {
        if memory::pressure() < Pressure::Bodies { self.memory } else { self.memory.min(buffer::CAPACITY) }
    }

    fn has_room(&self) -> bool {
        self.pending_bytes < self.memory()
            || self.spill_limit > self.spill.as_ref().map_or(0, |spill| spill.written) && self.is_stalled()
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        server: &ServerConnection,
        x: &mut Exchange,
    ) -> Result<Received, RelayError> {
        if self.can_splice() {
            return self.poll_splice(cx, server);
        }
        let piped = self.pipe.as_ref().is_some_and(|pipe| pipe.filled() > 0);
        if !self.has_room() || piped && !self.is_stalled() {
            return Ok(Received::NoRoom);
        }
        let mut piece = Buffer::take();
        let (start, end) =
            if self.chunked { (CHUNK_HEAD, buffer::CAPACITY - CHUNK_TAIL) } else { (0, buffer::CAPACITY) };
        (piece.start, piece.end) = (start, start);
        let wanted = match self.source {
            // Bytes beyond the length show that the server does not keep to it.
            Source::Length(left) => usize::try_from(left).unwrap_or(usize::MAX).saturating_add(1),
            _ => usize::MAX,
        };
        let wanted = match self.server_rate.allowance(self.wire, clock::recent() - self.begun, wanted) {
            Ok(allowed) => allowed,
            Err(pause) => {
                self.paused_until = self.paused_until.min(clock::recent() + clock::nanos(pause));
                self.read_deadline = clock::after(self.times.read).max(self.paused_until + 1);
                return Ok(Received::Nothing);
            }
        };
        match server.socket.poll_recv(cx, &mut piece, wanted.min(end - start)) {
            Poll::Pending => return Ok(Received::Nothing),
            Poll::Ready(Err(error)) => return Err(RelayError::Server(Some(error))),
            Poll::Ready(Ok(0)) if matches!(self.source, Source::UntilClose) => {
                self.source = Source::Done;
                return Ok(Received::All);
            }
            Poll::Ready(Ok(0)) => return Err(RelayError::Server(None)),
            Poll::Ready(Ok(_)) => {}
        }
        self.decode(&mut piece, x)?;
        self.store(piece)?;
        Ok(if self.is_received() { Received::All } else { Received::Some })
    }

    /// Keeps a piece in memory, or behind what is in the file already.
    fn store(&mut self, piece: Buffer) -> Result<(), RelayError> {
        let spilling = self.spill.as_ref().is_some_and(|spill| spill.read < spill.written);
        if !spilling && (self.pending_bytes < self.memory() || self.spill_limit == 0) {
            self.push(piece);
            return Ok(());
        }
        let (pending, bytes) = (std::mem::take(&mut self.pending), self.pending_bytes);
        self.push(piece);
        let framed = std::mem::replace(&mut self.pending, pending);
        self.pending_bytes = bytes;
        for piece in framed {
            let spill = match &mut self.spill {
                Some(spill) => spill,
                none => {
                    let file = temporary::unnamed(self.temp_path.as_deref()).map_err(RelayError::File)?;
                    none.insert(Spill { file, read: 0, written: 0 })
                }
            };
            spill.append(&piece)?;
        }
        Ok(())
    }

    /// Takes the next piece out of the temporary file, once memory holds nothing before it.
    fn unspill(&mut self) -> Result<bool, RelayError> {
        let Some(spill) = self.spill.as_mut().filter(|spill| spill.read < spill.written) else { return Ok(false) };
        let mut piece = Buffer::take();
        let wanted = (spill.written - spill.read).min(buffer::CAPACITY as u64) as usize;
        spill.file.read_exact_at(&mut piece.bytes_mut()[..wanted], spill.read).map_err(RelayError::File)?;
        piece.end = wanted;
        spill.read += wanted as u64;
        if spill.read == spill.written {
            spill.file.set_len(0).map_err(RelayError::File)?;
            (spill.read, spill.written) = (0, 0);
        }
        self.pending_bytes += wanted;
        self.pending.push_back(piece);
        Ok(true)
    }

    /// A large rest of known length, or one that ends with the connection, with nothing kept before it.
    fn can_splice(&self) -> bool {
        let large = match self.source {
            Source::Length(left) => left >= SPLICE_FROM || self.pipe.is_some() && left > 0,
            _ => false,
        };
        large
            && self.splices
            && !self.deaf
            && !self.chunked
            && self.pending.is_empty()
            && self.quantum == usize::MAX
            && self.pipe.as_ref().is_none_or(|pipe| pipe.filled() == 0)
            && self.spill.as_ref().is_none_or(|spill| spill.read == spill.written)
    }

    fn poll_splice(&mut self, cx: &mut Context<'_>, server: &ServerConnection) -> Result<Received, RelayError> {
        let Source::Length(left) = &mut self.source else { return Ok(Received::Nothing) };
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            none => match Pipe::take() {
                Ok(pipe) => none.insert(pipe),
                Err(_) => {
                    // No descriptors left: the bytes can still be copied.
                    self.splices = false;
                    return Ok(Received::Some);
                }
            },
        };
        let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
        match server.socket.poll_splice_from(cx, pipe, wanted) {
            Poll::Pending => Ok(Received::Nothing),
            Poll::Ready(Err(error)) => Err(RelayError::Server(Some(error))),
            Poll::Ready(Ok(0)) => Err(RelayError::Server(None)),
            Poll::Ready(Ok(moved)) => {
                *left -= moved as u64;
                self.wire += moved as u64;
                if *left > 0 {
                    return Ok(Received::Some);
                }
                self.source = Source::Done;
                self.clean = server.socket.is_emptied();
                Ok(Received::All)
            }
        }
    }
}

/// Sends the head with the beginning of a body that needs no framing, or all of it.
///
/// # Errors
/// The client has gone.
pub async fn send_joined(x: &mut Exchange, body: &Buffer) -> Result<(), SendError> {
    let length = body.unread().len();
    if length > JOINED {
        return respond::send_head(x, body.unread()).await;
    }
    // One copy of a small body costs less than a second piece in the system call.
    x.out.extend_from_slice(body.unread());
    let sent = respond::send_head(x, b"").await;
    x.body_bytes_sent += length as u64;
    sent
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.put_back();
        }
    }
}

#[derive(Clone, Copy)]
struct Times {
    read: Duration,
    send: Duration,
}

/// What reading from the server came to.
enum Received {
    Some,
    All,
    Nothing,
    NoRoom,
}
