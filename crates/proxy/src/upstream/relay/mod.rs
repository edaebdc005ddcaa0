//! Relays a response's body from server to client: source, queue, client.
//!
//! The server is read as long as there is room: `proxy_buffers` in memory, then a temporary file, so that a slow client
//! does not hold a server. Without buffering the server waits for the client. Large bodies that need no change of
//! framing go through a pipe and never enter user space.

mod filtered;
mod queue;
mod source;
mod stream;

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use balanza_config::model::Location;
use balanza_http1::Body;
use balanza_http2::client::StreamError;
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock::{self, Nanos};
use balanza_net::pipe::Pipe;
use balanza_net::transport::Transport;

use self::filtered::Filtered;
use self::queue::Queue;
pub(super) use self::source::Source;
use super::line::Line;
use super::store::Storing;
use crate::body::BodyError;
use crate::downstream::{Rate, SendError};
use crate::exchange::Exchange;
use crate::filters::Flow;
use crate::response::{http1, send};
use crate::undecided::Undecided;
use crate::variables;

/// A client that has taken nothing for so long is slow: its bytes are copied out of the pipe, and into a file when
/// memory is full. Before that, waiting costs less.
const STALL: Duration = Duration::from_millis(100);

/// How long a request waits that its response is put into.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A head and a body piece up to this size are put together: one buffer costs less to write than two.
const JOINED: usize = 4096;

/// So many pieces are made by filters before other connections have their turn.
const PIECES: usize = 2;

/// Why a response was cut off.
#[derive(Debug)]
pub enum RelayError {
    /// The client has gone, or does not read.
    Client(SendError),
    /// The server closed or reset the connection before the end.
    Server(Option<io::Error>),
    /// The server was silent for `proxy_read_timeout`.
    ServerTimedOut,
    /// The server's stream of HTTP/2 has failed.
    Stream(StreamError),
    /// The rest of the request could not be read from the client.
    Request(BodyError),
    /// The server's chunks are malformed.
    Malformed(&'static str),
    /// The temporary file failed.
    File(io::Error),
    /// A filter cannot change the body.
    Broken(&'static str),
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

/// A response's body on its way.
pub struct Relay {
    source: Source,
    queue: Queue,
    pipe: Option<Pipe>,
    /// Pipes can be had.
    splices: bool,
    /// Most bytes written at once (`proxy_busy_buffers_size`).
    quantum: usize,
    chunked: bool,
    /// The body goes through filters before it is queued, and each piece is followed by this.
    filtered: Option<Flow>,
    /// The filters wait for a subrequest.
    waits_for_part: bool,
    /// The filters were told that the body ends.
    filter_ending: bool,
    /// They have ended it.
    filter_ended: bool,
    /// The last chunk is in the queue, or the last byte that filters have made.
    ended: bool,
    /// The client has gone, and the server is read to its end all the same (`proxy_ignore_client_abort`).
    discards: bool,
    /// `proxy_limit_rate`, counted from `begun`.
    server_rate: Rate,
    /// What came with the head and `proxy_limit_rate` does not allow yet.
    held: Option<Buffer>,
    begun: Nanos,
    times: Times,
    /// When the client last took something.
    progressed: Nanos,
    /// Something waits for the client.
    client_waited_for: bool,
    read_deadline: Nanos,
    send_deadline: Nanos,
    /// A rate allows nothing before then.
    paused_until: Nanos,
    /// The body is kept as a file as well.
    store: Option<Box<Storing>>,
}

impl Relay {
    /// A relay for the response at hand, whose body is delimited like this. `buffering` is the location's, or what the
    /// server asked for.
    ///
    /// # Errors
    /// A regular expression is undecided.
    pub fn new(x: &mut Exchange, location: &Location, body: Body, buffering: bool) -> Result<Relay, Undecided> {
        let proxy = &location.settings.proxy;
        let server_rate = match &proxy.limit_rate {
            Some(rate) => Rate { limit: variables::render_size(rate, x)?, after: 0 },
            None => Rate::default(),
        };
        let send = if x.downstream.is_page() { FOREVER } else { location.settings.send_timeout };
        let times = Times { read: proxy.read_timeout, send };
        let memory = match proxy.buffers {
            Some((count, size)) if buffering => count * size,
            _ => buffer::CAPACITY,
        };
        let store = Storing::begin(x, proxy, buffering);
        let spill_limit = if buffering { proxy.max_temp_file_size } else { 0 };
        Ok(Relay {
            source: Source::new(body),
            queue: Queue::new(memory, spill_limit, proxy.temp_path.clone()),
            pipe: None,
            splices: x.sent.rate.limit == 0
                && server_rate.limit == 0
                && store.is_none()
                && x.sent.filters.is_none()
                && x.downstream.splices(),
            quantum: proxy.busy_buffers_size.unwrap_or(usize::MAX).max(1),
            chunked: x.sent.chunked,
            filtered: x.sent.filters.as_ref().map(|_| if buffering { Flow::More } else { Flow::Flush }),
            waits_for_part: false,
            filter_ending: false,
            filter_ended: false,
            ended: false,
            discards: false,
            server_rate,
            held: None,
            begun: clock::recent(),
            times,
            progressed: clock::recent(),
            client_waited_for: false,
            read_deadline: clock::after(times.read),
            send_deadline: clock::after(times.send),
            paused_until: Nanos::MAX,
            store,
        })
    }

    /// Bytes of the body received, framing included.
    pub fn received(&self) -> u64 {
        self.source.wire
    }

    /// The file that the body is kept as.
    pub fn take_store(&mut self) -> Option<Box<Storing>> {
        self.store.take()
    }

    /// Whether the server's connection is at the border of a response, with nothing behind it.
    pub fn is_clean(&self) -> bool {
        self.source.clean
    }

    /// Whether the client closed before the end, and the rest was read and discarded.
    pub fn discards(&self) -> bool {
        self.discards
    }

    /// Sends the response's head with what of the body came with it.
    ///
    /// # Errors
    /// The client has gone, or the body is malformed from its beginning.
    pub async fn begin(&mut self, x: &mut Exchange, mut first: Buffer) -> Result<(), RelayError> {
        if self.server_rate.limit != 0 {
            self.held = Some(first).filter(|first| !first.is_empty());
            return send::send_head(x, b"").await.map_err(RelayError::Client);
        }
        self.decode(&mut first, x)?;
        if self.filtered.is_none() && !self.chunked && x.sent.rate.limit == 0 {
            return send_joined(x, &first).await.map_err(RelayError::Client);
        }
        if self.filtered.is_some() {
            let filtered = self.filter(x, Some(first));
            if filtered.is_err() {
                send::send_head(x, b"").await.map_err(RelayError::Client)?;
            }
            filtered?;
        } else {
            self.push(first)?;
            if self.source.is_finished() && self.chunked {
                self.end(x)?;
            }
        }
        if x.sent.rate.limit == 0 && self.queue.bytes() <= 4 * JOINED && !x.downstream.is_http2() {
            x.sent.body_bytes += self.queue.drain_into(&mut x.sent.text) as u64;
        }
        send::send_head(x, b"").await.map_err(RelayError::Client)
    }

    /// Relays what is left. `received` is called as soon as the server has sent everything, which may be long before
    /// the client has got it.
    ///
    /// # Errors
    /// Whatever cuts the response off.
    pub async fn run(
        &mut self,
        x: &mut Exchange,
        server: &mut Option<Line>,
        mut received: impl FnMut(&mut Exchange, Option<Line>, &Relay),
    ) -> Result<(), RelayError> {
        loop {
            if self.source.is_finished() && server.is_some() {
                if self.chunked && !self.ended && self.filtered.is_none() {
                    self.end(x)?;
                }
                received(x, server.take(), self);
            }
            if self.source.is_finished() && self.is_sent() {
                if x.downstream.is_http2() && !self.discards {
                    send::send_end(x).await.map_err(RelayError::Client)?;
                }
                return Ok(());
            }
            poll_fn(|cx| self.poll(cx, x, server)).await?;
        }
    }

    fn decode(&mut self, input: &mut Buffer, x: &mut Exchange) -> Result<(), RelayError> {
        self.source.decode(input, &mut x.upstream.trailers).map_err(RelayError::Malformed)?;
        if let Some(store) = &mut self.store {
            store.add(input.unread());
        }
        Ok(())
    }

    /// Passes on what has come: through the filters, or as it is.
    fn pass_on(&mut self, x: &mut Exchange, piece: Buffer) -> Result<(), RelayError> {
        match self.filtered {
            None => self.push(piece),
            Some(_) => self.filter(x, Some(piece)).map(|_| ()),
        }
    }

    /// Adds payload, framed for the client. In front of it and behind it there is room for the framing.
    fn push(&mut self, piece: Buffer) -> Result<(), RelayError> {
        if self.discards || piece.is_empty() {
            return Ok(());
        }
        let mut next = Some(piece);
        while let Some(piece) = next.take() {
            let framed = if self.chunked {
                let (framed, rest) = http1::frame(piece);
                next = rest;
                framed
            } else {
                piece
            };
            self.queue.push(framed).map_err(RelayError::File)?;
        }
        Ok(())
    }

    /// Adds the last chunk.
    fn end(&mut self, x: &mut Exchange) -> Result<(), RelayError> {
        self.ended = true;
        for part in send::last_chunk(x).chunks(buffer::CAPACITY) {
            self.queue.push_last(Buffer::holding(part)).map_err(RelayError::File)?;
        }
        Ok(())
    }

    /// Whether the client has got everything, the last chunk included.
    fn is_sent(&self) -> bool {
        self.is_drained() && (!self.chunked && self.filtered.is_none() || self.ended || self.discards)
    }

    /// Whether nothing that has come waits for the client.
    fn is_drained(&self) -> bool {
        self.queue.is_empty() && !self.is_piped()
    }

    /// Whether something waits in the pipe.
    fn is_piped(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.filled() > 0)
    }

    /// Moves what can be moved; ready when the server has sent everything, and when the client has got everything.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        server: &mut Option<Line>,
    ) -> Poll<Result<(), RelayError>> {
        let now = clock::now();
        self.paused_until = Nanos::MAX;
        let request_deadline = Relay::poll_request(cx, x, server)?;
        let mut rounds = 0;
        loop {
            let filtered = if self.filtered.is_some() { self.filter(x, None)? } else { Filtered::All };
            if filtered == Filtered::Waiting
                && let Some(chain) = &mut x.sent.filters
            {
                chain.wake(cx);
            }
            let held = filtered == Filtered::Some;
            self.waits_for_part = filtered == Filtered::Waiting;
            match self.poll_send(cx, x) {
                Ok(false) => {}
                Ok(true) => {
                    self.progressed = now;
                    self.send_deadline = clock::after(self.times.send);
                }
                Err(RelayError::Client(_)) if x.location().settings.proxy.reads_without_client() => self.discard(),
                Err(error) => return Poll::Ready(Err(error)),
            }
            if self.waits_for_part {
                // The wait is not for the server.
                self.read_deadline = Nanos::MAX;
                break;
            }
            if self.read_deadline == Nanos::MAX {
                self.read_deadline = clock::after(self.times.read);
            }
            if self.source.is_finished() {
                if self.is_sent() {
                    return Poll::Ready(Ok(()));
                }
                if held && self.queue.has_room(|| false) {
                    cx.waker().wake_by_ref();
                }
                break;
            }
            if self.filtered.is_some() {
                rounds += 1;
                if held || rounds > 2 {
                    // Other connections have their turn before the filters go on.
                    if self.queue.has_room(|| self.is_stalled()) {
                        cx.waker().wake_by_ref();
                    }
                    self.read_deadline = clock::after(self.times.read);
                    break;
                }
            }
            let Some(line) = server else { return Poll::Ready(Err(RelayError::Server(None))) };
            match self.poll_receive(cx, line, x)? {
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
        if self.waits_for_part && self.is_drained() {
            self.client_waited_for = false;
            let watches = !x.location().settings.proxy.reads_without_client();
            if watches && x.downstream.poll_peer_closed(cx).is_ready() {
                return Poll::Ready(Err(RelayError::Client(SendError::Closed)));
            }
            return Poll::Pending;
        }
        let client_waited_for = !self.is_drained();
        if client_waited_for && !self.client_waited_for || self.paused_until != Nanos::MAX {
            self.send_deadline = clock::after(self.times.send).max(self.paused_until.wrapping_add(1));
        }
        self.client_waited_for = client_waited_for;
        self.poll_deadlines(cx, x, now, request_deadline)
    }

    fn poll_deadlines(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        now: Nanos,
        request_deadline: Nanos,
    ) -> Poll<Result<(), RelayError>> {
        let stall = self.progressed + clock::nanos(STALL);
        let deadline = match (self.client_waited_for, self.source.is_finished()) {
            (true, true) => self.send_deadline,
            (true, false) if now < stall => stall,
            (true, false) => self.send_deadline.min(self.read_deadline),
            (false, _) => self.read_deadline,
        };
        if x.downstream.timer.poll_expired(cx, deadline.min(self.paused_until).min(request_deadline)) {
            let now = clock::now();
            if self.client_waited_for && now >= self.send_deadline && self.store.is_some() {
                // As if the client had gone: the file is to be complete.
                x.sent.time_out();
                self.discard();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.client_waited_for && now >= self.send_deadline {
                return Poll::Ready(Err(RelayError::Client(SendError::TimedOut)));
            }
            if !self.source.is_finished() && now >= self.read_deadline {
                return Poll::Ready(Err(RelayError::ServerTimedOut));
            }
            // The client has just turned out to be slow, or a rate allows something again.
            cx.waker().wake_by_ref();
        }
        if !self.client_waited_for && !x.location().settings.proxy.reads_without_client() {
            // Its going away is all that the client can tell now.
            if x.downstream.poll_peer_closed(cx).is_ready() {
                return Poll::Ready(Err(RelayError::Client(SendError::Closed)));
            }
        }
        Poll::Pending
    }

    /// From now on what the server sends is read and discarded.
    pub fn discard(&mut self) {
        self.discards = true;
        self.queue.clear();
        self.pipe = None;
    }

    /// Sends what the client takes; true when it took something.
    fn poll_send(&mut self, cx: &mut Context<'_>, x: &mut Exchange) -> Result<bool, RelayError> {
        let mut progress = false;
        loop {
            let wrote = if let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.filled() > 0) {
                x.downstream.poll_splice_to(cx, pipe, !self.source.is_finished())
            } else {
                let Some(piece) = self.queue.front().map_err(RelayError::File)? else { return Ok(progress) };
                let unread = piece.unread();
                let mut wanted = unread.len().min(self.quantum);
                if x.sent.rate.limit != 0 {
                    let now = clock::now();
                    match x.sent.rate.allowance(x.sent.bytes, now - x.started, wanted) {
                        Ok(allowed) => wanted = allowed,
                        Err(pause) => {
                            self.paused_until = self.paused_until.min(now + clock::nanos(pause));
                            return Ok(progress);
                        }
                    }
                }
                let wrote = x.downstream.poll_send(cx, &unread[..wanted]);
                if let Poll::Ready(Ok(wrote)) = wrote {
                    self.queue.consume(wrote);
                }
                wrote
            };
            match wrote {
                Poll::Ready(Ok(wrote)) => {
                    progress = true;
                    x.sent.bytes += wrote as u64;
                    x.sent.body_bytes += wrote as u64;
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

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        line: &mut Line,
        x: &mut Exchange,
    ) -> Result<Received, RelayError> {
        if let Line::Http1(server) = line
            && let Some(wanted) = self.spliceable().filter(|_| server.socket.splices())
        {
            return self.poll_splice(cx, &server.socket, wanted);
        }
        if !self.queue.has_room(|| self.is_stalled()) || self.is_piped() && !self.is_stalled() {
            return Ok(Received::NoRoom);
        }
        let mut piece = Buffer::take();
        let (start, end) = match self.chunked {
            true => (http1::CHUNK_HEAD, buffer::CAPACITY - http1::CHUNK_TAIL),
            false => (0, buffer::CAPACITY),
        };
        (piece.start, piece.end) = (start, start);
        let elapsed = clock::recent() - self.begun;
        let wanted = match self.server_rate.allowance(self.source.wire, elapsed, self.source.wanted()) {
            Ok(allowed) => allowed,
            Err(pause) => {
                self.paused_until = self.paused_until.min(clock::recent() + clock::nanos(pause));
                self.read_deadline = clock::after(self.times.read).max(self.paused_until + 1);
                return Ok(Received::Nothing);
            }
        };
        let wanted = wanted.min(end - start);
        if let Some(held) = &mut self.held {
            let taken = wanted.min(held.unread().len());
            piece.space()[..taken].copy_from_slice(&held.unread()[..taken]);
            piece.end += taken;
            held.start += taken;
            self.held = self.held.take().filter(|held| !held.is_empty());
            self.decode(&mut piece, x)?;
            self.pass_on(x, piece)?;
            return Ok(if self.source.is_finished() { Received::All } else { Received::Some });
        }
        let server = match line {
            Line::Http1(server) => &server.socket,
            Line::Http2(talk) => return self.poll_stream(cx, talk, piece, wanted, x),
        };
        match server.poll_recv(cx, &mut piece, wanted) {
            Poll::Pending => return Ok(Received::Nothing),
            Poll::Ready(Err(error)) => return Err(RelayError::Server(Some(error))),
            Poll::Ready(Ok(0)) if self.source.end() => return Ok(Received::All),
            Poll::Ready(Ok(0)) => return Err(RelayError::Server(None)),
            Poll::Ready(Ok(_)) => {}
        }
        self.decode(&mut piece, x)?;
        self.pass_on(x, piece)?;
        Ok(if self.source.is_finished() { Received::All } else { Received::Some })
    }

    /// How much may go through the pipe: only with nothing kept before it, and without a change of framing or rate.
    fn spliceable(&self) -> Option<usize> {
        let allowed = self.splices && !self.discards && !self.chunked && self.quantum == usize::MAX;
        if allowed && self.is_drained() { self.source.spliceable(self.pipe.is_some()) } else { None }
    }

    fn poll_splice(&mut self, cx: &mut Context<'_>, server: &Transport, wanted: usize) -> Result<Received, RelayError> {
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
        match server.poll_splice_from(cx, pipe, wanted) {
            Poll::Pending => Ok(Received::Nothing),
            Poll::Ready(Err(error)) => Err(RelayError::Server(Some(error))),
            Poll::Ready(Ok(0)) => Err(RelayError::Server(None)),
            Poll::Ready(Ok(moved)) if self.source.spliced(moved) => {
                self.source.clean = server.is_emptied();
                Ok(Received::All)
            }
            Poll::Ready(Ok(_)) => Ok(Received::Some),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.put_back();
        }
    }
}

/// Sends the head with the beginning of a body that needs no framing, or all of it.
///
/// # Errors
/// The client has gone.
pub async fn send_joined(x: &mut Exchange, body: &Buffer) -> Result<(), SendError> {
    let length = body.unread().len();
    if length > JOINED || x.downstream.is_http2() {
        return send::send_head(x, body.unread()).await;
    }
    // One copy of a small body costs less than a second piece in the system call.
    x.sent.text.extend_from_slice(body.unread());
    let sent = send::send_head(x, b"").await;
    x.sent.body_bytes += length as u64;
    sent
}
