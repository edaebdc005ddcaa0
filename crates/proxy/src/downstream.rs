//! One request's way to its client: its body comes from there, and the response goes there.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use balanza_http2::server::Stream;
use balanza_message::Fields;
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::pipe::Pipe;
use balanza_net::timer::Timer;
use balanza_net::transport::Transport;

use crate::insertion::Sender;

/// Why writing to a client ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// It closed or reset the connection.
    Closed,
    /// `send_timeout` passed.
    TimedOut,
}

/// The rules of a client's `limit_rate`.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second; 0 for no limit.
    pub limit: u64,
    /// Bytes before the limit holds.
    pub after: u64,
}

impl Rate {
    /// Bytes that may be sent now, or how long to wait for some, as NGINX counts: the first second's share at once.
    pub fn allowance(self, sent: u64, elapsed: Nanos, wanted: usize) -> Result<usize, Duration> {
        if self.limit == 0 {
            return Ok(wanted);
        }
        let seconds = elapsed as f64 / 1e9;
        let earned = self.limit as f64 * (seconds.floor() + 1.0) + self.after as f64;
        let left = earned - sent as f64;
        if left >= 1.0 {
            return Ok((left as usize).clamp(1, wanted.max(1)));
        }
        // Nothing changes before the next second begins.
        let seconds_over = (-left / self.limit as f64).max(0.0).floor();
        Err(Duration::from_secs_f64(1.0 - seconds.fract() + seconds_over))
    }
}

/// How a request's client is reached.
#[derive(Default)]
enum Carrier {
    /// There is none.
    #[default]
    None,
    /// A connection of HTTP/1, which carries one request at a time.
    Http1(Transport),
    /// A stream of HTTP/2.
    Http2(Box<Http2>),
    /// None: the request is part of another one, which needs the head of the response only.
    Nowhere,
    /// Into the response of another request.
    Page(Sender),
}

/// A response on a stream of HTTP/2.
struct Http2 {
    stream: Stream,
    /// Bytes of the body that are still to come, if nothing but they end the response.
    left: Option<u64>,
    /// Most bytes in a frame.
    chunk: usize,
    /// The request opens a WebSocket (RFC 8441).
    opens_websocket: bool,
}

impl Http2 {
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.stream.poll_send(cx, bytes, self.chunk, self.left == Some(bytes.len() as u64)))?;
        self.left = self.left.map(|left| left.saturating_sub(sent as u64));
        Poll::Ready(Ok(sent))
    }
}

/// One request's way to its client.
#[derive(Default)]
pub struct Downstream {
    carrier: Carrier,
    /// The only timer of the request, and of a connection that carries one request at a time.
    pub timer: Timer,
    /// The next data sent is the last of the connection: a close follows at once.
    pub ends: bool,
}

impl Downstream {
    /// The connection of an HTTP/1 client.
    pub fn http1(socket: Transport) -> Downstream {
        Downstream { carrier: Carrier::Http1(socket), timer: Timer::default(), ends: false }
    }

    /// A stream of an HTTP/2 client, which may open a WebSocket.
    pub fn http2(stream: Stream, opens_websocket: bool) -> Downstream {
        let carrier = Carrier::Http2(Box::new(Http2 { stream, left: None, chunk: usize::MAX, opens_websocket }));
        Downstream { carrier, ..Downstream::default() }
    }

    /// The way of a request that is part of another one: its body is not read here, and the response is not sent.
    pub fn nowhere() -> Downstream {
        Downstream { carrier: Carrier::Nowhere, ..Downstream::default() }
    }

    /// The way of a request whose response is put into that of another one.
    pub fn page(sender: Sender) -> Downstream {
        Downstream { carrier: Carrier::Page(sender), ..Downstream::default() }
    }

    /// The connection of an HTTP/1 client, to be used by another protocol, and the timer.
    ///
    /// # Panics
    /// As [`Downstream::socket`].
    pub fn into_parts(self) -> (Transport, Timer) {
        match self.carrier {
            Carrier::Http1(socket) => (socket, self.timer),
            _ => panic!("a request without a connection of its own uses it"),
        }
    }

    /// Whether heads and bodies are framed by what carries them, as in HTTP/2, and not by their text.
    pub fn is_http2(&self) -> bool {
        matches!(self.carrier, Carrier::Http2(_) | Carrier::Nowhere | Carrier::Page(_))
    }

    /// Whether another protocol may follow the head of the response: what carries the request is its own.
    pub fn can_switch(&self) -> bool {
        matches!(self.carrier, Carrier::Http1(_)) || self.opens_websocket()
    }

    /// Whether the request opens a WebSocket by HTTP/2, so that a response of 200 says that it is open.
    pub fn opens_websocket(&self) -> bool {
        matches!(&self.carrier, Carrier::Http2(it) if it.opens_websocket)
    }

    /// Whether the response is put into another one, which looks after the client and its time-outs.
    pub fn is_page(&self) -> bool {
        matches!(self.carrier, Carrier::Page(_))
    }

    /// Whether nothing of a response's body is wanted.
    pub fn is_nowhere(&self) -> bool {
        matches!(self.carrier, Carrier::Nowhere)
    }

    /// The connection, if it belongs to this request alone.
    ///
    /// # Panics
    /// It does not.
    pub fn socket(&self) -> &Transport {
        match &self.carrier {
            Carrier::Http1(socket) => socket,
            _ => panic!("a request without a connection of its own uses it"),
        }
    }

    /// The connection and the timer, at the same time.
    ///
    /// # Panics
    /// As [`Downstream::socket`].
    pub fn parts(&mut self) -> (&Transport, &mut Timer) {
        match &self.carrier {
            Carrier::Http1(socket) => (socket, &mut self.timer),
            _ => panic!("a request without a connection of its own uses it"),
        }
    }

    /// The address that the client connected to, if the connection belongs to this request alone.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.own_socket()?.local_address()
    }

    /// The connection, if it belongs to this request alone.
    pub fn own_socket(&self) -> Option<&Transport> {
        match &self.carrier {
            Carrier::Http1(socket) => Some(socket),
            _ => None,
        }
    }

    /// Reads into the free space of a buffer; 0 is the end of the stream.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match &mut self.carrier {
            Carrier::Http2(it) => it.stream.poll_body(cx, buffer),
            Carrier::Nowhere | Carrier::Page(_) => Poll::Ready(Ok(0)),
            _ => self.socket().poll_recv(cx, buffer, usize::MAX),
        }
    }

    /// Reads the trailers behind a body that has come by HTTP/2; those of HTTP/1 are read with it.
    pub fn poll_trailers(&mut self, cx: &mut Context<'_>, to: &mut Fields) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Http2(it) => it.stream.poll_trailers(cx, to),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Writes what the client takes of these bytes.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.carrier {
            Carrier::Http2(it) => it.poll_send(cx, bytes),
            Carrier::Nowhere => Poll::Ready(Ok(bytes.len())),
            Carrier::Page(sender) => sender.poll_send(cx, bytes),
            _ => self.socket().poll_send(cx, &[IoSlice::new(bytes)], false),
        }
    }

    /// Moves what a pipe holds to the client. `more` tells that more will follow.
    pub fn poll_splice_to(&self, cx: &mut Context<'_>, pipe: &mut Pipe, more: bool) -> Poll<io::Result<usize>> {
        self.socket().poll_splice_to(cx, pipe, more)
    }

    /// Whether what goes to the client can be moved inside the kernel.
    pub fn splices(&self) -> bool {
        !self.is_http2() && self.socket().splices()
    }

    /// Waits until the client has gone. Never reads.
    pub fn poll_peer_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.carrier {
            Carrier::Http2(it) => it.stream.poll_gone(cx),
            // The request that it is part of looks after the client.
            Carrier::Nowhere => Poll::Pending,
            Carrier::Page(sender) => sender.poll_unwanted(cx),
            _ => self.socket().poll_peer_closed(cx),
        }
    }

    /// Sends a head by HTTP/2; with `ends` it is the whole response. `left` is the length of the body, if nothing but it
    /// ends the response, and `chunk` the most bytes of it in a frame.
    ///
    /// # Errors
    /// The client has gone.
    ///
    /// # Panics
    /// The request has not come by HTTP/2.
    pub fn send_head(
        &mut self,
        status: u16,
        fields: &Fields,
        length: Option<u64>,
        ends: bool,
        left: Option<u64>,
        chunk: usize,
    ) -> Result<(), SendError> {
        match &mut self.carrier {
            Carrier::Http2(it) => {
                (it.left, it.chunk) = (left, chunk);
                it.stream.send_head(status, fields, length, ends).map_err(|_| SendError::Closed)
            }
            Carrier::Nowhere => Ok(()),
            Carrier::Page(sender) => {
                sender.begin(status);
                Ok(())
            }
            _ => panic!("a head of HTTP/2 on another connection"),
        }
    }

    /// Sends the head of an interim response by HTTP/2.
    ///
    /// # Errors
    /// The client has gone.
    pub fn send_interim(&mut self, status: u16, fields: &Fields) -> Result<(), SendError> {
        match &mut self.carrier {
            Carrier::Http2(it) => it.stream.send_interim(status, fields).map_err(|_| SendError::Closed),
            _ => Ok(()),
        }
    }

    /// Ends a response by HTTP/2, unless it has ended with its body.
    ///
    /// # Errors
    /// The client has gone.
    pub fn end(&mut self, trailers: &Fields) -> Result<(), SendError> {
        match &mut self.carrier {
            Carrier::Http2(it) => it.stream.end(trailers).map_err(|_| SendError::Closed),
            _ => Ok(()),
        }
    }

    /// Says how large a response may be that becomes the value of a variable.
    pub fn limit_page(&self, most: usize) {
        if let Carrier::Page(sender) = &self.carrier {
            sender.set_most(most);
        }
    }

    /// Ends a response that is put into another one: as it should, or cut off.
    pub fn end_page(&self, completed: bool) {
        if let Carrier::Page(sender) = &self.carrier {
            sender.end(completed);
        }
    }

    /// Gives up a response by HTTP/2 that was not sent whole.
    pub fn abort(&mut self) {
        if let Carrier::Http2(it) = &mut self.carrier {
            it.stream.abort();
        }
    }

    /// Writes what the client takes of two pieces, of which so many bytes were sent before.
    fn poll_send_rest(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
        sent: usize,
    ) -> Poll<io::Result<usize>> {
        let rest = if sent < first.len() { &first[sent..] } else { &second[sent - first.len()..] };
        match &mut self.carrier {
            Carrier::Http2(it) => it.poll_send(cx, rest),
            Carrier::Nowhere => Poll::Ready(Ok(rest.len())),
            Carrier::Page(sender) => sender.poll_send(cx, rest),
            _ if sent >= first.len() || second.is_empty() => {
                self.socket().poll_send(cx, &[IoSlice::new(rest)], self.ends)
            }
            _ => self.socket().poll_send(cx, &[IoSlice::new(rest), IoSlice::new(second)], self.ends),
        }
    }

    /// Writes two pieces, the second behind the first, in as few system calls as the socket allows.
    ///
    /// # Errors
    /// The client has closed the connection, or does not read.
    pub async fn send(&mut self, first: &[u8], second: &[u8], timeout: Duration) -> Result<(), SendError> {
        let (total, mut sent) = (first.len() + second.len(), 0);
        let waits = self.is_page();
        while sent < total {
            let mut deadline = 0;
            let wrote = poll_fn(|cx| match self.poll_send_rest(cx, first, second, sent) {
                Poll::Ready(Ok(wrote)) => Poll::Ready(Ok(wrote)),
                Poll::Ready(Err(_)) => Poll::Ready(Err(SendError::Closed)),
                Poll::Pending if waits => Poll::Pending,
                Poll::Pending => {
                    if deadline == 0 {
                        clock::now();
                        deadline = clock::after(timeout);
                    }
                    match self.timer.poll_expired(cx, deadline) {
                        true => Poll::Ready(Err(SendError::TimedOut)),
                        false => Poll::Pending,
                    }
                }
            })
            .await?;
            if deadline != 0 {
                clock::now();
            }
            sent += wrote;
        }
        Ok(())
    }

    /// Sends up to `limit` bytes of a file from `offset` on, waiting while the client does not read; 0 shows that the file
    /// is shorter.
    ///
    /// # Errors
    /// The client has closed the connection, or does not read.
    pub async fn send_file(
        &mut self,
        file: &File,
        offset: u64,
        limit: usize,
        timeout: Duration,
    ) -> Result<usize, SendError> {
        let deadline = clock::after(timeout);
        if self.is_http2() {
            let mut piece = Buffer::take();
            let wanted = limit.min(piece.space().len());
            // A file that cannot be read is as one that has become shorter.
            piece.end = file.read_at(&mut piece.space()[..wanted], offset).unwrap_or(0);
            self.send(piece.unread(), b"", timeout).await?;
            return Ok(piece.end);
        }
        poll_fn(|cx| match self.socket().poll_send_file(cx, file, offset, limit) {
            Poll::Ready(Ok(sent)) => Poll::Ready(Ok(sent)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(SendError::Closed)),
            Poll::Pending if self.timer.poll_expired(cx, deadline) => Poll::Ready(Err(SendError::TimedOut)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// How many of `wanted` bytes may move now at this rate, after `sent` since `begun`; waits while there are none.
    pub async fn allowance(&mut self, rate: Rate, sent: u64, begun: Nanos, wanted: usize) -> usize {
        loop {
            match rate.allowance(sent, clock::now() - begun, wanted) {
                Ok(allowed) => return allowed,
                Err(pause) => self.timer.sleep(pause).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_each_second_its_share() {
        let rate = Rate { limit: 1000, after: 500 };
        assert_eq!(rate.allowance(0, 0, 10_000), Ok(1500));
        assert_eq!(rate.allowance(1500, 250_000_000, 10), Err(Duration::from_millis(750)));
        assert_eq!(rate.allowance(3500, 250_000_000, 10), Err(Duration::from_millis(2750)));
        assert_eq!(rate.allowance(1500, 1_000_000_000, 10_000), Ok(1000));
        assert_eq!(rate.allowance(0, 0, 10), Ok(10));
        assert_eq!(Rate::default().allowance(1 << 40, 0, 7), Ok(7));
    }
}
