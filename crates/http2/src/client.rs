//! Connections to servers.

use std::fmt;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use balanza_message::{Fields, Response};
use balanza_net::buffer::Buffer;
use balanza_net::transport::Transport;
use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version, response};

use crate::body::{self, SendError};
use crate::io::Io;
use crate::meter::Meter;
use crate::{fields, response as head};

/// Bytes of a request that may wait for the connection.
const SEND_BUFFER: usize = 64 * 1024;

/// Bytes of a frame's header.
const FRAME: usize = 9;

/// Requests that may be sent before the server has announced its limit.
const UNSETTLED: usize = 1;

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Concurrent requests.
    pub streams: u32,
    /// Bytes of each response's body that the server may send before they are read.
    pub window: u32,
    /// Bytes of a response's head, counted as in HTTP/2.
    pub head: u32,
}

/// A connection to a server. It makes progress only while [`Connection::poll`] is called.
pub struct Connection {
    inner: client::Connection<Io, Bytes>,
    meter: Rc<Meter>,
}

/// Opens streams on a connection.
pub struct Opener {
    requests: SendRequest<Bytes>,
    meter: Rc<Meter>,
}

/// Starts HTTP/2 on a transport.
///
/// # Errors
/// The server has closed the connection.
pub async fn begin(transport: Rc<Transport>, settings: Settings) -> io::Result<(Connection, Opener)> {
    let meter = Rc::new(Meter::default());
    meter.begin_turn();
    let io = Io::new(transport, None, Rc::clone(&meter));
    let all_streams = settings.streams.saturating_mul(settings.window).clamp(65_535, (1 << 31) - 1);
    let (requests, inner) = client::Builder::new()
        .enable_push(false)
        .initial_max_send_streams(UNSETTLED)
        .initial_window_size(settings.window)
        .initial_connection_window_size(all_streams)
        .max_header_list_size(settings.head)
        .max_send_buffer_size(SEND_BUFFER)
        .handshake(io)
        .await
        .map_err(body::of)?;
    Ok((Connection { inner, meter: Rc::clone(&meter) }, Opener { requests, meter }))
}

impl Connection {
    /// Drives the connection; ready when it has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.meter.begin_turn();
        Pin::new(&mut self.inner).poll(cx).map_err(body::of)
    }

    /// Whether the server has announced how many concurrent requests it accepts.
    pub fn is_settled(&self) -> bool {
        self.meter.received() > 0
    }

    /// Whether most of what the server sends is frames without content.
    pub fn is_flooded(&self) -> bool {
        self.meter.is_flooded()
    }
}

/// The parts of a request that HTTP/2 sends as pseudo-fields.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// The method.
    pub method: &'a [u8],
    /// Whether the scheme is `https`.
    pub secure: bool,
    /// The value of Host; without it there is no `:authority`.
    pub host: Option<&'a [u8]>,
    /// Path and query.
    pub path: &'a [u8],
}

/// The head of a request, validated.
pub struct Head(Request<()>);

impl Head {
    /// The head of a request with these fields.
    ///
    /// # Errors
    /// HTTP/2 cannot express the request.
    pub fn new(line: &Line<'_>, fields: &Fields, length: Option<u64>) -> Result<Head, &'static str> {
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(line.method).map_err(|_| "invalid method")?;
        let path = path(line.path).ok_or("invalid URI")?;
        let authority = match line.host.filter(|host| !host.is_empty()) {
            None => None,
            Some(host) => Some(Authority::try_from(host).map_err(|_| "invalid host")?),
        };
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(path);
        // The scheme is sent only together with a host.
        if authority.is_some() {
            parts.scheme = Some(if line.secure { Scheme::HTTPS } else { Scheme::HTTP });
            parts.authority = authority;
            *request.version_mut() = Version::HTTP_2;
        }
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| "invalid URI")?;
        *request.headers_mut() = fields::of_request(fields, length);
        Ok(Head(request))
    }
}

/// The path and query. Bytes that are not allowed in them are percent-encoded.
fn path(text: &[u8]) -> Option<PathAndQuery> {
    // The parser would drop everything after a "#" as a fragment.
    if !text.contains(&b'#')
        && let Ok(path) = PathAndQuery::try_from(text)
    {
        return Some(path);
    }
    let mut escaped = Vec::with_capacity(text.len() + 16);
    for &byte in text {
        if byte.is_ascii_graphic()
            && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
        {
            escaped.push(byte);
        } else {
            escaped.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    PathAndQuery::try_from(escaped).ok()
}

impl Opener {
    /// How many concurrent requests the server accepts.
    pub fn capacity(&self) -> usize {
        self.requests.current_max_send_streams()
    }

    /// Whether the server has announced how many concurrent requests it accepts.
    pub fn is_settled(&self) -> bool {
        self.meter.received() > 0
    }

    /// Bytes that the server has sent.
    pub fn received(&self) -> u64 {
        self.meter.received()
    }

    /// Whether the connection still accepts requests.
    pub fn is_open(&mut self, cx: &mut Context<'_>) -> bool {
        !matches!(self.requests.poll_ready(cx), Poll::Ready(Err(_)))
    }

    /// Sends the head of a request; with `ends` nothing follows it.
    ///
    /// # Errors
    /// The connection accepts no more requests, or the head is not valid.
    pub fn open(&self, head: Head, ends: bool) -> Result<Stream, StreamError> {
        let mut requests = self.requests.clone();
        let (response, out) = requests.send_request(head.0, ends).map_err(StreamError::of)?;
        let meter = Rc::clone(&self.meter);
        Ok(Stream { response: Some(response), out, body: None, piece: Bytes::new(), meter, ended: ends })
    }
}

/// Why a response is missing or incomplete.
#[derive(Debug)]
pub enum StreamError {
    /// The server has not processed the request (REFUSED_STREAM or GOAWAY).
    Unprocessed,
    /// The server has reset the stream with this error code.
    Reset(u32),
    /// The server has sent something that is not HTTP/2, or not a response.
    Malformed(&'static str),
    /// The connection has ended.
    Connection(io::Error),
}

impl StreamError {
    fn of(error: h2::Error) -> StreamError {
        let reason = error.reason();
        match reason {
            Some(Reason::REFUSED_STREAM) if error.is_reset() && error.is_remote() => StreamError::Unprocessed,
            Some(reason) if error.is_reset() && error.is_remote() => StreamError::Reset(reason.into()),
            // Streams that the server has processed continue after a GOAWAY.
            Some(_) if error.is_go_away() && error.is_remote() => StreamError::Unprocessed,
            Some(reason) => StreamError::Malformed(fault(reason)),
            None => StreamError::Connection(body::of(error)),
        }
    }
}

/// What the server did wrong, by the error code that we send to it.
fn fault(reason: Reason) -> &'static str {
    match reason {
        // The head exceeded our limit.
        Reason::REFUSED_STREAM => "upstream sent too big header",
        Reason::COMPRESSION_ERROR => "upstream sent invalid HTTP/2 header block",
        Reason::FRAME_SIZE_ERROR => "upstream sent http2 frame of invalid size",
        Reason::FLOW_CONTROL_ERROR => "upstream violated http2 flow control",
        Reason::ENHANCE_YOUR_CALM => "upstream sent too many http2 frames",
        _ => "upstream violated the HTTP/2 protocol",
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Unprocessed => f.write_str("upstream refused the request"),
            StreamError::Reset(code) => write!(f, "upstream rejected request with error {code}"),
            StreamError::Malformed(reason) => f.write_str(reason),
            StreamError::Connection(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for StreamError {}

/// A request and its response. If it is dropped before it has ended, the stream is reset (CANCEL).
pub struct Stream {
    /// Present until the head has been received.
    response: Option<ResponseFuture>,
    out: SendStream<Bytes>,
    /// Present once the head has been received.
    body: Option<RecvStream>,
    /// Bytes of the body that were received and not yet read.
    piece: Bytes,
    meter: Rc<Meter>,
    /// The whole request has been sent.
    ended: bool,
}

impl Stream {
    /// Waits for the head of the response; true if nothing follows it. `to_head` means that the request was a HEAD.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        to_head: bool,
        to: &mut Response,
    ) -> Poll<Result<bool, StreamError>> {
        let Some(response) = &mut self.response else { return Poll::Ready(Err(StreamError::Unprocessed)) };
        let (parts, body): (response::Parts, RecvStream) = match ready!(Pin::new(response).poll(cx)) {
            Ok(response) => response.into_parts(),
            Err(error) => return Poll::Ready(Err(StreamError::of(error))),
        };
        self.response = None;
        let ends = body.is_end_stream();
        self.body = Some(body);
        head::translate(&parts, ends, to_head, to).map_err(StreamError::Malformed)?;
        self.meter.use_bytes(FRAME + to.text.len());
        Poll::Ready(Ok(ends))
    }

    /// Waits for the head of an interim response. Call it before [`Stream::poll_head`], which skips interim responses.
    pub fn poll_interim(&mut self, cx: &mut Context<'_>, to: &mut Response) -> Poll<()> {
        let Some(response) = &mut self.response else { return Poll::Pending };
        match ready!(response.poll_informational(cx)) {
            Some(Ok(interim)) => {
                head::translate_interim(&interim.into_parts().0, to);
                self.meter.use_bytes(FRAME + to.text.len());
                Poll::Ready(())
            }
            // The final response reports the error.
            Some(Err(_)) | None => Poll::Pending,
        }
    }

    /// Reads into the free space of a buffer, at most `most` bytes; 0 is the end of the body.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Buffer,
        most: usize,
    ) -> Poll<Result<usize, StreamError>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Err(StreamError::Unprocessed)) };
        body::poll_receive(body, &mut self.piece, &self.meter, cx, into, most).map_err(StreamError::of)
    }

    /// Reads the trailers after the body.
    pub fn poll_trailers(&mut self, cx: &mut Context<'_>, to: &mut Fields) -> Poll<Result<(), StreamError>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Err(StreamError::Unprocessed)) };
        body::poll_trailers(body, cx, to).map_err(StreamError::of)
    }

    /// Sends as many of these bytes as the server's window allows; `ends` means that they end the request. None if the
    /// server accepts no more of the request: its response says why.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], ends: bool) -> Poll<Option<usize>> {
        match ready!(body::poll_send(&mut self.out, cx, bytes, usize::MAX, ends)) {
            Ok((length, last)) => {
                self.ended |= last;
                Poll::Ready(Some(length))
            }
            Err(SendError::Closed | SendError::Failed(_)) => Poll::Ready(None),
        }
    }

    /// Ends the request, with trailers if there are any.
    pub fn end(&mut self, trailers: &Fields) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // If the server accepts no more of the request, its response says why.
        let _ = match trailers.is_empty() {
            true => self.out.send_data(Bytes::new(), true),
            false => self.out.send_trailers(fields::trailers(trailers)),
        };
    }

    /// Bytes that the server has sent on the connection.
    pub fn received(&self) -> u64 {
        self.meter.received()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(host: Option<&[u8]>, path: &[u8]) -> Result<Request<()>, &'static str> {
        let mut fields = Fields::default();
        for (name, value) in [("Host", "other"), ("TE", "trailers"), ("Connection", "close"), ("X-A", "b")] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let line = Line { method: b"POST", secure: true, host, path };
        Head::new(&line, &fields, Some(3)).map(|head| head.0)
    }

    #[test]
    fn a_head_has_pseudo_fields() {
        let request = head(Some(b"Shop.test:81"), b"/a%20b?c=d").unwrap();
        assert_eq!(request.uri().to_string(), "https://Shop.test:81/a%20b?c=d");
        let pairs: Vec<_> = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(pairs, [("te", &b"trailers"[..]), ("x-a", b"b"), ("content-length", b"3")]);
        assert_eq!(head(None, b"/").unwrap().uri().to_string(), "/");
        assert!(head(Some(b"a b"), b"/").is_err());
    }

    #[test]
    fn what_cannot_stand_in_a_path_is_escaped() {
        let path = |text: &[u8]| path(text).map(|path| path.as_str().to_owned());
        assert_eq!(path(b"/a?b").as_deref(), Some("/a?b"));
        assert_eq!(path(b"*").as_deref(), Some("*"));
        assert_eq!(path(b"/a<\\\xff").as_deref(), Some("/a%3C%5C%FF"));
        assert_eq!(path(b"/a?\"#").as_deref(), Some("/a?%22%23"));
    }
}
