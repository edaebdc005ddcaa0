//! Connections of clients.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use balanza_message::{Fields, Limits, Request, RequestError};
use balanza_net::buffer::Buffer;
use balanza_net::clock::Nanos;
use balanza_net::transport::Transport;
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::request;

use crate::body::{self, of};
use crate::io::{Io, Meter};
use crate::{fields, request as head};

/// Bytes of a response that wait for the connection, at most.
const SEND_BUFFER: usize = 64 * 1024;

/// Streams that the client has reset and that nobody has looked at yet; more end the connection.
const RESETS_WAITING: usize = 64;

/// Bytes in front of what a frame carries.
const FRAME: usize = 9;

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

/// A client's connection. It moves while it is asked for requests: streams read and write through it.
pub struct Connection {
    inner: server::Connection<Io, Bytes>,
    meter: Rc<Meter>,
}

/// What a client asks.
pub struct Asked {
    parts: request::Parts,
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
        head::translate(&self.parts, self.ends, limits, key, to)
    }

    /// Whether it opens a WebSocket: an extended CONNECT (RFC 8441).
    pub fn opens_websocket(&self) -> bool {
        head::opens_websocket(&self.parts)
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
        let meter = Rc::new(Meter::default());
        meter.begin_turn();
        let io = Io::new(transport, received, Rc::clone(&meter));
        let all_streams = settings.streams.saturating_mul(settings.window).clamp(65_535, (1 << 31) - 1);
        let inner = server::Builder::new()
            .max_concurrent_streams(settings.streams)
            .initial_window_size(settings.window)
            .initial_connection_window_size(all_streams)
            .max_header_list_size(settings.head)
            .max_send_buffer_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(RESETS_WAITING)
            .enable_connect_protocol()
            .handshake(io)
            .await
            .map_err(of)?;
        Ok(Connection { inner, meter })
    }

    /// Begins a turn, in which so much is read that other connections do not wait for long. To be called whenever the task
    /// of the connection runs.
    pub fn begin_turn(&mut self) {
        self.meter.begin_turn();
    }

    /// Moves the connection, and waits for a request; none when it has ended in order.
    pub fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<(Asked, Stream)>>> {
        let Some(accepted) = ready!(self.inner.poll_accept(cx)) else { return Poll::Ready(None) };
        Poll::Ready(Some(accepted.map_err(of).map(|(request, respond)| {
            let (parts, body) = request.into_parts();
            let ends = body.is_end_stream();
            let fields: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            self.meter.use_bytes(FRAME + fields);
            let meter = Rc::clone(&self.meter);
            (Asked { parts, ends }, Stream { body, respond, meter, out: None, piece: Bytes::new(), ended: false })
        })))
    }

    /// Tells the client to send no more requests here, and ends when all are answered (GOAWAY).
    pub fn end_gracefully(&mut self) {
        self.inner.graceful_shutdown();
    }

    /// Ends at once: the client is told which requests were not looked at, and whether it asks too much.
    pub fn end_abruptly(&mut self, floods: bool) {
        self.inner.abrupt_shutdown(if floods { Reason::ENHANCE_YOUR_CALM } else { Reason::NO_ERROR });
    }

    /// Whether the client sends little but frames without content.
    pub fn is_flooded(&self) -> bool {
        self.meter.is_flooded()
    }

    /// When the client will have read nothing for so long, if it does not read.
    pub fn stalls_until(&self, patience: Nanos) -> Option<Nanos> {
        self.meter.stalls_until(patience)
    }
}

/// A request's way to its client.
pub struct Stream {
    body: RecvStream,
    respond: SendResponse<Bytes>,
    meter: Rc<Meter>,
    /// From the head of the response on.
    out: Option<SendStream<Bytes>>,
    /// What of the body has come and is not read.
    piece: Bytes,
    /// The response has been sent whole, or given up.
    ended: bool,
}

impl Stream {
    /// Reads into the free space of a buffer; 0 is the end of the body.
    pub fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut Buffer) -> Poll<io::Result<usize>> {
        body::poll_receive(&mut self.body, &mut self.piece, &self.meter, cx, into, usize::MAX).map_err(of)
    }

    /// Reads the trailers behind the body.
    pub fn poll_trailers(&mut self, cx: &mut Context<'_>, to: &mut Fields) -> Poll<io::Result<()>> {
        body::poll_trailers(&mut self.body, cx, to).map_err(of)
    }

    /// Sends the head of an interim response.
    ///
    /// # Errors
    /// The client has gone.
    pub fn send_interim(&mut self, status: u16, fields: &Fields) -> io::Result<()> {
        self.respond.send_informational(fields::head(status, fields, None)).map_err(of)
    }

    /// Sends the head of the response; with `ends` it is all there is.
    ///
    /// # Errors
    /// The client has gone.
    pub fn send_head(&mut self, status: u16, fields: &Fields, length: Option<u64>, ends: bool) -> io::Result<()> {
        self.ended |= ends;
        let out = self.respond.send_response(fields::head(status, fields, length), ends).map_err(of)?;
        self.out = Some(out);
        Ok(())
    }

    /// Sends what the client takes of these bytes, up to so many; `ends` tells that nothing follows them.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        most: usize,
        ends: bool,
    ) -> Poll<io::Result<usize>> {
        let Some(out) = &mut self.out else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let (length, last) = ready!(body::poll_send(out, cx, bytes, most, ends))?;
        self.ended |= last;
        Poll::Ready(Ok(length))
    }

    /// Ends the response, with trailers if there are any.
    ///
    /// # Errors
    /// The client has gone.
    pub fn end(&mut self, trailers: &Fields) -> io::Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let Some(out) = &mut self.out else { return Err(io::ErrorKind::NotConnected.into()) };
        if trailers.is_empty() {
            out.send_data(Bytes::new(), true).map_err(of)
        } else {
            out.send_trailers(fields::trailers(trailers)).map_err(of)
        }
    }

    /// Waits until the client has given the request up, or has gone.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.out {
            Some(out) => out.poll_reset(cx).map(|_| ()),
            None => self.respond.poll_reset(cx).map(|_| ()),
        }
    }

    /// Gives the response up, unless it was sent whole: the client must not take what it has for all of it.
    pub fn abort(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}
