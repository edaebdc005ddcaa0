//! Sends the request to a server: its head, and its body with our own framing.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use balanza_config::model::{HttpVersion, Location, Matcher, ProxyPass, ProxyTarget};
use balanza_http1::{Body, write_chunk, write_last_chunk};
use balanza_message::{Fields, Header, Length, Method, Version, uri};

use crate::body::{BodyError, Store};
use crate::exchange::{Exchange, LARGE_HEAD};
use crate::reading;
use crate::response::{self, head};
use crate::running_config::plan::Plan;
use crate::servers::pool::ServerConnection;
use crate::undecided::Undecided;
use crate::variables;

/// Room for what a head has beside its fields and its URI.
const LINES: usize = 128;

/// What follows the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing.
    None,
    /// The text of `proxy_set_body`.
    Text,
    /// The body that was buffered.
    Stored,
    /// The body as it comes from the client.
    Streamed,
}

/// Composes the head in `x.upstream.head` and tells what follows it.
///
/// # Errors
/// A regular expression is undecided.
pub fn compose(x: &mut Exchange, location: &Location, pass: &ProxyPass, plan: &Plan) -> Result<Payload, Undecided> {
    let proxy = &location.settings.proxy;
    write_method(x, location)?;
    write_uri(x, location, pass);
    x.upstream.upgrade_sent = false;
    x.upstream.fields.clear();
    let mut value = std::mem::take(&mut x.scratch);
    for index in &plan.set {
        let header = &proxy.set_headers[*index];
        value.clear();
        variables::render(&header.value, x, &mut value)?;
        let cleartext_http2 = header.name.eq_ignore_ascii_case(b"upgrade") && names_h2c(&value);
        if !value.is_empty() && !cleartext_http2 && head::is_sendable(&header.name, &value, x) {
            x.upstream.upgrade_sent |= header.name.eq_ignore_ascii_case(b"upgrade");
            x.upstream.fields.push(&header.name, &value);
        }
    }
    x.scratch = value;
    let (payload, framing) = choose_payload(x, location)?;
    if proxy.pass_request_headers {
        copy_fields(x, plan);
    }
    match proxy.http_version {
        HttpVersion::Http10 => write_head(x, Version::Http10, framing),
        HttpVersion::Http11 => write_head(x, Version::Http11, framing),
        HttpVersion::Http2 => {
            if pass.grpc && !plan.sets_te && x.client_takes_trailers() {
                x.upstream.fields.push(b"te", b"trailers");
            }
            x.upstream.length = match framing {
                Body::Length(length) => Some(length),
                _ => None,
            };
        }
    }
    Ok(payload)
}

/// Writes the head as HTTP/1 has it.
fn write_head(x: &mut Exchange, version: Version, framing: Body) {
    let head = &mut x.upstream.head;
    head.clear();
    // A large head must not take twice its size.
    head.reserve_exact(x.upstream.fields.lines().len() + x.upstream.uri.len() + LINES);
    balanza_http1::write_request_line(head, &x.upstream.method, &x.upstream.uri, version);
    head.extend_from_slice(x.upstream.fields.lines());
    balanza_http1::write_framing(head, framing);
    head.extend_from_slice(b"\r\n");
    if x.request.text.len() >= LARGE_HEAD {
        // They stand in the head now.
        x.upstream.fields = Fields::default();
        x.weigh();
    }
}

/// Whether an Upgrade asks for HTTP/2 in clear text, which a proxy must not pass on unseen.
fn names_h2c(value: &[u8]) -> bool {
    balanza_message::list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"h2c"))
}

fn write_method(x: &mut Exchange, location: &Location) -> Result<(), Undecided> {
    let mut method = std::mem::take(&mut x.upstream.method);
    method.clear();
    if let Some(template) = &location.settings.proxy.method {
        variables::render(template, x, &mut method)?;
    }
    if !balanza_message::is_token(&method) {
        method.clear();
        method.extend_from_slice(if x.route.method_is_get { b"GET" } else { x.text(x.request.method_name) });
    }
    x.upstream.method = method;
    Ok(())
}

/// The URI: as the client sent it, or with the matched prefix replaced, or as a URL with variables came out.
fn write_uri(x: &mut Exchange, location: &Location, pass: &ProxyPass) {
    let mut uri = std::mem::take(&mut x.upstream.uri);
    uri.clear();
    append_uri(x, location, pass, &mut uri);
    x.upstream.uri = uri;
}

fn append_uri(x: &Exchange, location: &Location, pass: &ProxyPass, out: &mut Vec<u8>) {
    let replaced = match &pass.target {
        // A URI that `rewrite … break` has replaced is sent as it is.
        ProxyTarget::Fixed { uri, .. } => uri.as_deref().filter(|_| !x.route.is_detached()),
        ProxyTarget::Dynamic(_) if !x.upstream.target.url_path.is_empty() => {
            response::escape_blanks(&x.upstream.target.url_path, out);
            return;
        }
        ProxyTarget::Dynamic(_) => None,
    };
    match replaced {
        None if !x.route.uri_changed() => {
            if x.request.empty_path {
                out.push(b'/');
            }
            let target = x.text(x.request.origin);
            // A target has no fragment (RFC 9112, 3.2): the server could take one for a part of the path.
            let end = target.iter().position(|byte| *byte == b'#').unwrap_or(target.len());
            out.extend_from_slice(&target[..end]);
            return;
        }
        // `set $args` leaves the path as the client sent it.
        None if !x.route.is_internal() && !x.text(x.request.path).contains(&b'%') => {
            out.extend_from_slice(&x.route.uri)
        }
        None => uri::escape(&x.route.uri, uri::Escape::Uri, out),
        Some(replacement) => {
            out.extend_from_slice(replacement);
            let matched = match &location.matcher {
                Matcher::Prefix { prefix, .. } | Matcher::Exact(prefix) => prefix.len(),
                Matcher::Regex(_) | Matcher::Named(_) => x.route.uri.len(),
            };
            let rest = x.route.uri.get(matched..).unwrap_or_default();
            if x.request.plain_path && !x.route.uri_changed() {
                out.extend_from_slice(rest);
            } else {
                uri::escape(rest, uri::Escape::Uri, out);
            }
        }
    }
    if !x.route.args.is_empty() {
        out.push(b'?');
        response::escape_blanks(&x.route.args, out);
    }
}

/// What follows the head, and how it is delimited.
fn choose_payload(x: &mut Exchange, location: &Location) -> Result<(Payload, Body), Undecided> {
    let Some(template) = &location.settings.proxy.set_body else {
        return Ok(client_payload(x, location));
    };
    let mut body = std::mem::take(&mut x.upstream.body);
    body.clear();
    variables::render(template, x, &mut body)?;
    let length = body.len() as u64;
    x.upstream.body = body;
    Ok((Payload::Text, Body::Length(length)))
}

/// The same for the client's body.
fn client_payload(x: &Exchange, location: &Location) -> (Payload, Body) {
    let proxy = &location.settings.proxy;
    if !proxy.pass_request_body || x.route.method_is_get {
        return (Payload::None, Body::None);
    }
    let nothing = || (Payload::None, if has_body(x) { Body::Length(0) } else { Body::None });
    if x.body.buffered {
        let trailers = !x.body.decoder().trailers().is_empty() && x.upstream.takes_streams();
        return match x.body.store.len() {
            _ if x.request.body == Length::Unknown && trailers => (Payload::Stored, Body::Chunked),
            0 => nothing(),
            length => (Payload::Stored, Body::Length(length)),
        };
    }
    match x.body.remaining() {
        Some(0) => nothing(),
        Some(length) => (Payload::Streamed, Body::Length(length)),
        None => (Payload::Streamed, Body::Chunked),
    }
}

/// Whether the client's request said anything about a body, if only that it is empty.
fn has_body(x: &Exchange) -> bool {
    (Header::ContentLength.bit() | Header::TransferEncoding.bit()) & x.request.has != 0
        && !(x.request.body == Length::None && x.request.method == Method::Get)
}

/// Adds the client's fields, less those that are about its connection or that the configuration sets.
fn copy_fields(x: &mut Exchange, plan: &Plan) {
    for item in &x.request.fields {
        let name = x.request.of(item.name);
        if !plan.dropped.contain(item.header, name) && !x.request.nominates(name) {
            x.upstream.fields.copy(item, &x.request.text);
        }
    }
}

/// A request while it is being sent.
pub struct Sending {
    payload: Payload,
    /// Bytes of the head, and of a payload held in one piece, that have gone.
    sent: usize,
    /// Read position in a stored file.
    offset: u64,
    /// A chunk that is ready to go, and how much of it has gone.
    frame: Vec<u8>,
    framed: usize,
    /// A streamed piece with a known length: a range of the input buffer.
    piece: std::ops::Range<usize>,
    chunked: bool,
    last_sent: bool,
    /// Nothing is left to send.
    pub done: bool,
    /// Bytes sent.
    pub total: u64,
    /// The client's body is awaited, not the server.
    pub awaits_client: bool,
}

/// Why a request could not be sent.
pub enum SendingError {
    /// The server refused, closed or reset the connection.
    Server(io::Error),
    /// The client's body could not be read.
    Client(BodyError),
}

impl Sending {
    /// A request to be sent from its beginning.
    pub fn new(payload: Payload, x: &Exchange) -> Sending {
        let chunked = match payload {
            Payload::None | Payload::Text => false,
            Payload::Streamed => x.body.remaining().is_none(),
            Payload::Stored => {
                x.request.body == Length::Unknown
                    && !x.body.decoder().trailers().is_empty()
                    && x.upstream.takes_streams()
            }
        };
        Sending {
            payload,
            sent: 0,
            offset: 0,
            frame: Vec::new(),
            framed: 0,
            piece: 0..0,
            chunked,
            last_sent: false,
            done: false,
            total: 0,
            awaits_client: false,
        }
    }

    /// Sends as much as can be sent; ready when all is sent.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        self.awaits_client = false;
        while !self.done {
            match self.payload {
                Payload::None => ready!(self.poll_pieces(cx, x, server, b""))?,
                Payload::Text => {
                    let body = std::mem::take(&mut x.upstream.body);
                    let result = self.poll_pieces(cx, x, server, &body);
                    x.upstream.body = body;
                    ready!(result)?;
                }
                Payload::Stored if self.chunked => ready!(self.poll_stored_chunks(cx, x, server))?,
                Payload::Stored => ready!(self.poll_stored(cx, x, server))?,
                Payload::Streamed => ready!(self.poll_streamed(cx, x, server))?,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        server: &ServerConnection,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, SendingError>> {
        if self.total > 0 {
            server.socket.set_nodelay();
        }
        let wrote = ready!(server.socket.poll_send(cx, slices, false)).map_err(SendingError::Server)?;
        self.total += wrote as u64;
        Poll::Ready(Ok(wrote))
    }

    /// Head and a body held in one piece.
    fn poll_pieces(
        &mut self,
        cx: &mut Context<'_>,
        x: &Exchange,
        server: &ServerConnection,
        body: &[u8],
    ) -> Poll<Result<(), SendingError>> {
        let head = &x.upstream.head;
        while self.sent < head.len() + body.len() {
            let wrote = if self.sent >= head.len() {
                ready!(self.poll_write(cx, server, &[IoSlice::new(&body[self.sent - head.len()..])]))?
            } else if body.is_empty() {
                ready!(self.poll_write(cx, server, &[IoSlice::new(&head[self.sent..])]))?
            } else {
                let slices = [IoSlice::new(&head[self.sent..]), IoSlice::new(body)];
                ready!(self.poll_write(cx, server, &slices))?
            };
            self.sent += wrote;
        }
        self.done = true;
        Poll::Ready(Ok(()))
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        x: &Exchange,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        while self.sent < x.upstream.head.len() {
            self.sent += ready!(self.poll_write(cx, server, &[IoSlice::new(&x.upstream.head[self.sent..])]))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_stored(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        match &x.body.store {
            Store::Nowhere => self.poll_pieces(cx, x, server, b""),
            Store::Input(range) => {
                let body = &x.body.input_bytes()[range.clone()];
                self.poll_pieces(cx, x, server, body)
            }
            Store::Memory(body) => self.poll_pieces(cx, x, server, body),
            Store::File(_) => {
                ready!(self.poll_head(cx, x, server))?;
                self.poll_file(cx, x, server)
            }
        }
    }

    fn poll_file(
        &mut self,
        cx: &mut Context<'_>,
        x: &Exchange,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        let Store::File(temporary) = &x.body.store else { return Poll::Ready(Ok(())) };
        let length = x.body.store.len();
        while self.offset < length {
            let wanted = (length - self.offset).min(1 << 20) as usize;
            let sent = ready!(server.socket.poll_send_file(cx, &temporary.file, self.offset, wanted));
            let sent = sent.map_err(SendingError::Server)?;
            if sent == 0 {
                return Poll::Ready(Err(SendingError::Client(BodyError::File(io::ErrorKind::UnexpectedEof.into()))));
            }
            self.offset += sent as u64;
            self.total += sent as u64;
        }
        self.done = true;
        Poll::Ready(Ok(()))
    }

    /// A stored body with trailers goes out in chunks of up to 64 KiB.
    fn poll_stored_chunks(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        ready!(self.poll_head(cx, x, server))?;
        loop {
            ready!(self.poll_frame(cx, server))?;
            if self.last_sent {
                self.done = true;
                return Poll::Ready(Ok(()));
            }
            let length = x.body.store.len();
            let wanted = (length - self.offset).min(balanza_net::buffer::CAPACITY as u64) as usize;
            let begin = self.offset as usize;
            self.offset += wanted as u64;
            match &x.body.store {
                _ if wanted == 0 => self.frame_last(x),
                Store::Nowhere => {}
                Store::Input(range) => {
                    write_chunk(&mut self.frame, &x.body.input_bytes()[range.clone()][begin..begin + wanted])
                }
                Store::Memory(body) => write_chunk(&mut self.frame, &body[begin..begin + wanted]),
                Store::File(temporary) => {
                    let mut piece = vec![0; wanted];
                    let read = std::os::unix::fs::FileExt::read_exact_at(&temporary.file, &mut piece, begin as u64);
                    if let Err(error) = read {
                        return Poll::Ready(Err(SendingError::Client(BodyError::File(error))));
                    }
                    write_chunk(&mut self.frame, &piece);
                }
            }
        }
    }

    fn frame_last(&mut self, x: &Exchange) {
        let mut trailers = Fields::default();
        x.body.decoder().trailers().iter().for_each(|(name, value)| trailers.push(name, value));
        write_last_chunk(&mut self.frame, &trailers);
        self.last_sent = true;
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>, server: &ServerConnection) -> Poll<Result<(), SendingError>> {
        while self.framed < self.frame.len() {
            let frame = std::mem::take(&mut self.frame);
            let wrote = self.poll_write(cx, server, &[IoSlice::new(&frame[self.framed..])]);
            self.frame = frame;
            self.framed += ready!(wrote)?;
        }
        self.frame.clear();
        self.framed = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_streamed(
        &mut self,
        cx: &mut Context<'_>,
        x: &mut Exchange,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        ready!(self.poll_head(cx, x, server))?;
        loop {
            ready!(self.poll_frame(cx, server))?;
            while !self.piece.is_empty() {
                let slice = &x.body.input_bytes()[self.piece.clone()];
                self.piece.start += ready!(self.poll_write(cx, server, &[IoSlice::new(slice)]))?;
            }
            if self.last_sent || !self.chunked && x.body.is_finished() {
                self.done = true;
                return Poll::Ready(Ok(()));
            }
            if self.chunked && x.body.is_finished() {
                self.frame_last(x);
                continue;
            }
            self.awaits_client = true;
            x.body.consumed = true;
            let piece = ready!(reading::poll_body_piece(cx, x)).map_err(SendingError::Client)?;
            self.awaits_client = false;
            if self.chunked {
                if !piece.is_empty() {
                    let input = x.body.input_bytes();
                    write_chunk(&mut self.frame, &input[piece]);
                }
            } else {
                self.piece = piece;
            }
        }
    }
}
