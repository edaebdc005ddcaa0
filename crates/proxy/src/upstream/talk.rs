//! A request on a stream of HTTP/2 to a server. Both directions are open at the same time: the response may begin, and go on,
//! while the request is still being sent.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use balanza_config::model::Settings;
use balanza_http2::client::{Stream, StreamError};
use balanza_message::Fields;
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};

use super::request::Payload;
use crate::body::{BodyError, Store};
use crate::exchange::Exchange;
use crate::reading;
use crate::servers::multiplexed::Seat;

/// A request and its response on a stream.
pub(super) struct Talk {
    /// Goes before the seat: a stream that is given up is reset while its connection still counts it.
    pub stream: Stream,
    _seat: Seat,
    payload: Payload,
    /// Read position in what is stored.
    offset: u64,
    /// A piece of the client's body that is to be sent: a range of the input buffer.
    piece: Range<usize>,
    /// A piece of a stored file that is to be sent.
    read: Option<Buffer>,
    trailers: Fields,
    /// Nothing is left to send.
    pub sent: bool,
    /// The server takes no more of the request.
    pub refused: bool,
    /// Bytes of the body sent.
    pub total: u64,
    /// The client's body is awaited, not the server.
    pub awaits_client: bool,
    /// When the wait for one of them ends.
    pub deadline: Nanos,
    /// `client_body_timeout` and `proxy_send_timeout`.
    times: (Duration, Duration),
}

impl Talk {
    /// A request whose head has been sent, with `ends` as all there is.
    pub fn new(stream: Stream, seat: Seat, payload: Payload, ends: bool, settings: &Settings) -> Talk {
        let times = (settings.client_body_timeout, settings.proxy.send_timeout);
        Talk {
            stream,
            _seat: seat,
            payload,
            offset: 0,
            piece: 0..0,
            read: None,
            trailers: Fields::default(),
            sent: ends,
            refused: false,
            total: 0,
            awaits_client: false,
            deadline: clock::after(times.1),
            times,
        }
    }

    /// Whether a request is its head alone.
    pub fn is_empty(x: &Exchange, payload: Payload) -> bool {
        match payload {
            Payload::None => true,
            Payload::Text => x.upstream.body.is_empty(),
            Payload::Stored => x.body.store.len() == 0 && x.body.decoder().trailers().is_empty(),
            Payload::Streamed => false,
        }
    }

    /// Sends as much of the request as can be sent; ready when all is sent, or the server takes no more of it.
    pub fn poll_request(&mut self, cx: &mut Context<'_>, x: &mut Exchange) -> Poll<Result<(), BodyError>> {
        let before = (self.total, std::mem::replace(&mut self.awaits_client, false));
        let result = self.poll_rest(cx, x);
        if result.is_pending() && before != (self.total, self.awaits_client) {
            self.deadline = clock::after(if self.awaits_client { self.times.0 } else { self.times.1 });
        }
        result
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>, x: &mut Exchange) -> Poll<Result<(), BodyError>> {
        if self.sent {
            return Poll::Ready(Ok(()));
        }
        match self.payload {
            Payload::None => self.sent = true,
            Payload::Text => {
                let body = std::mem::take(&mut x.upstream.body);
                let result = self.poll_bytes(cx, &body, true);
                x.upstream.body = body;
                ready!(result);
            }
            Payload::Stored => ready!(self.poll_stored(cx, x))?,
            Payload::Streamed => ready!(self.poll_streamed(cx, x))?,
        }
        Poll::Ready(Ok(()))
    }

    /// The server takes no more: what it makes of the request is in its response.
    fn give_up(&mut self) {
        (self.sent, self.refused) = (true, true);
    }

    /// Sends the rest of a body held in one piece; with `ends` nothing follows it.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, body: &[u8], ends: bool) -> Poll<()> {
        while let Some(rest) = body.get(self.offset as usize..).filter(|rest| !rest.is_empty()) {
            let Some(length) = ready!(self.stream.poll_send(cx, rest, ends)) else {
                self.give_up();
                return Poll::Ready(());
            };
            self.offset += length as u64;
            self.total += length as u64;
        }
        self.sent |= ends;
        Poll::Ready(())
    }

    fn poll_stored(&mut self, cx: &mut Context<'_>, x: &Exchange) -> Poll<Result<(), BodyError>> {
        let trailers = x.body.decoder().trailers();
        let ends = trailers.is_empty();
        match &x.body.store {
            Store::Nowhere => {}
            Store::Input(range) => ready!(self.poll_bytes(cx, &x.body.input_bytes()[range.clone()], ends)),
            Store::Memory(body) => ready!(self.poll_bytes(cx, body, ends)),
            Store::File(temporary) => {
                let length = x.body.store.len();
                ready!(self.poll_file(cx, &temporary.file, length))?;
            }
        }
        if !self.sent {
            trailers.iter().for_each(|(name, value)| self.trailers.push(name, value));
            self.stream.end(&self.trailers);
            self.sent = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_file(&mut self, cx: &mut Context<'_>, file: &std::fs::File, length: u64) -> Poll<Result<(), BodyError>> {
        while self.offset < length {
            let piece = match &mut self.read {
                Some(piece) => piece,
                none => {
                    let piece = none.insert(Buffer::take());
                    let read = file.read_at(piece.space(), self.offset).map_err(BodyError::File)?;
                    if read == 0 {
                        return Poll::Ready(Err(BodyError::File(io::ErrorKind::UnexpectedEof.into())));
                    }
                    piece.end += read;
                    piece
                }
            };
            let Some(sent) = ready!(self.stream.poll_send(cx, piece.unread(), false)) else {
                self.give_up();
                return Poll::Ready(Ok(()));
            };
            piece.start += sent;
            if piece.is_empty() {
                self.read = None;
            }
            self.offset += sent as u64;
            self.total += sent as u64;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_streamed(&mut self, cx: &mut Context<'_>, x: &mut Exchange) -> Poll<Result<(), BodyError>> {
        loop {
            while !self.piece.is_empty() {
                let piece = &x.body.input_bytes()[self.piece.clone()];
                let Some(sent) = ready!(self.stream.poll_send(cx, piece, false)) else {
                    self.give_up();
                    return Poll::Ready(Ok(()));
                };
                self.piece.start += sent;
                self.total += sent as u64;
            }
            self.awaits_client = true;
            if x.body.is_finished() {
                ready!(x.downstream.poll_trailers(cx, &mut self.trailers)).map_err(|_| BodyError::Closed)?;
                let trailers = x.body.decoder().trailers();
                trailers.iter().for_each(|(name, value)| self.trailers.push(name, value));
                self.stream.end(&self.trailers);
                (self.sent, self.awaits_client) = (true, false);
                return Poll::Ready(Ok(()));
            }
            x.body.consumed = true;
            self.piece = ready!(reading::poll_body_piece(cx, x))?;
            self.awaits_client = false;
        }
    }

    /// Reads into the free space of a buffer, up to so many bytes; 0 is the end of the body, and its trailers have been read.
    pub fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Buffer,
        most: usize,
        trailers: &mut Fields,
    ) -> Poll<Result<usize, StreamError>> {
        match ready!(self.stream.poll_body(cx, into, most)) {
            Ok(0) => self.stream.poll_trailers(cx, trailers).map_ok(|()| 0),
            read => Poll::Ready(read),
        }
    }
}
