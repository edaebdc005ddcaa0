//! Sends the request to a server: its head, and its body with our own framing.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use balanza_config::model::{HttpVersion, Location, Matcher, ProxyPass, ProxyTarget};
use balanza_http1::{Header, Method, push_decimal, uri};

use super::ServerConnection;
use super::plan::Plan;
use crate::body::{BodyError, Store};
use crate::connection::Client;
use crate::exchange::Exchange;
use crate::reading;
use crate::respond::{self, field};
use crate::variables::{self, Undecided};

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

/// Composes the head in `x.upstream_head` and tells what follows it.
///
/// # Errors
/// A regular expression is undecided.
pub fn compose(
    x: &mut Exchange,
    client: &Client,
    location: &Location,
    pass: &ProxyPass,
    plan: &Plan,
) -> Result<Payload, Undecided> {
    let proxy = &location.settings.proxy;
    let mut head = std::mem::take(&mut x.upstream_head);
    head.clear();
    write_method(x, client, location, &mut head)?;
    head.push(b' ');
    let begin = head.len();
    write_uri(x, location, pass, &mut head);
    x.upstream_uri.clear();
    x.upstream_uri.extend_from_slice(&head[begin..]);
    head.extend_from_slice(match proxy.http_version {
        HttpVersion::Http10 => b" HTTP/1.0\r\n",
        HttpVersion::Http11 => b" HTTP/1.1\r\n",
    });
    x.upgrade_sent = false;
    let mut value = std::mem::take(&mut x.scratch);
    for index in &plan.set {
        let header = &proxy.set_headers[*index];
        value.clear();
        variables::render(&header.value, x, client, &mut value)?;
        let cleartext_http2 = header.name.eq_ignore_ascii_case(b"upgrade") && names_h2c(&value);
        if !value.is_empty() && !cleartext_http2 && respond::is_sendable(&header.name, &value, x, client) {
            x.upgrade_sent |= header.name.eq_ignore_ascii_case(b"upgrade");
            field(&mut head, &header.name, &value);
        }
    }
    x.scratch = value;
    let payload = write_framing(x, client, location, &mut head)?;
    if proxy.pass_request_headers {
        write_fields(x, plan, &mut head);
    }
    head.extend_from_slice(b"\r\n");
    x.upstream_head = head;
    Ok(payload)
}

/// Whether an Upgrade asks for HTTP/2 in clear text, which a proxy must not pass on unseen.
fn names_h2c(value: &[u8]) -> bool {
    balanza_http1::list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"h2c"))
}

fn write_method(x: &mut Exchange, client: &Client, location: &Location, head: &mut Vec<u8>) -> Result<(), Undecided> {
    let begin = head.len();
    if let Some(template) = &location.settings.proxy.method {
        variables::render(template, x, client, head)?;
    }
    if !balanza_http1::is_token(&head[begin..]) || head.len() == begin {
        head.truncate(begin);
        match x.method_is_get {
            true => head.extend_from_slice(b"GET"),
            false => head.extend_from_slice(x.text(x.head.method_name)),
        }
    }
    Ok(())
}

/// The URI: as the client sent it, or with the matched prefix replaced, or as a URL with variables came out.
fn write_uri(x: &Exchange, location: &Location, pass: &ProxyPass, head: &mut Vec<u8>) {
    let replaced = match &pass.target {
        ProxyTarget::Fixed { uri, .. } => uri.as_deref(),
        ProxyTarget::Dynamic(_) if !x.proxy_uri.is_empty() => {
            respond::escape_blanks(&x.proxy_uri, head);
            return;
        }
        ProxyTarget::Dynamic(_) => None,
    };
    match replaced {
        None if !x.uri_changed => {
            if x.head.empty_path {
                head.push(b'/');
            }
            head.extend_from_slice(x.text(x.head.origin));
            return;
        }
        None => uri::escape(&x.uri, uri::Escape::Uri, head),
        Some(replacement) => {
            head.extend_from_slice(replacement);
            let matched = match &location.matcher {
                Matcher::Prefix { prefix, .. } | Matcher::Exact(prefix) => prefix.len(),
                Matcher::Regex(_) | Matcher::Named(_) => x.uri.len(),
            };
            let rest = x.uri.get(matched..).unwrap_or_default();
            if x.head.plain_path && !x.uri_changed {
                head.extend_from_slice(rest);
            } else {
                uri::escape(rest, uri::Escape::Uri, head);
            }
        }
    }
    if !x.args.is_empty() {
        head.push(b'?');
        respond::escape_blanks(&x.args, head);
    }
}

fn write_framing(
    x: &mut Exchange,
    client: &Client,
    location: &Location,
    head: &mut Vec<u8>,
) -> Result<Payload, Undecided> {
    let Some(template) = &location.settings.proxy.set_body else {
        return Ok(write_body_framing(x, location, head));
    };
    let mut body = std::mem::take(&mut x.proxy_body);
    body.clear();
    variables::render(template, x, client, &mut body)?;
    write_length(head, body.len() as u64);
    x.proxy_body = body;
    Ok(Payload::Text)
}

/// The framing of the client's body.
fn write_body_framing(x: &Exchange, location: &Location, head: &mut Vec<u8>) -> Payload {
    let proxy = &location.settings.proxy;
    if !proxy.pass_request_body || x.method_is_get {
        return Payload::None;
    }
    if x.body.buffered {
        let trailers = !x.body.decoder().trailers().is_empty() && proxy.http_version == HttpVersion::Http11;
        if x.head.body == balanza_http1::Body::Chunked && trailers {
            head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            return Payload::Stored;
        }
        let length = x.body.store.len();
        if length > 0 || has_body(x) {
            write_length(head, length);
        }
        return if length > 0 { Payload::Stored } else { Payload::None };
    }
    match x.body.remaining() {
        Some(0) => {
            if has_body(x) {
                write_length(head, 0);
            }
            Payload::None
        }
        Some(length) => {
            write_length(head, length);
            Payload::Streamed
        }
        None => {
            head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            Payload::Streamed
        }
    }
}

/// Whether the client's request said anything about a body, if only that it is empty.
fn has_body(x: &Exchange) -> bool {
    (Header::ContentLength.bit() | Header::TransferEncoding.bit()) & x.head.has != 0
        && !(x.head.body == balanza_http1::Body::None && x.head.method == Method::Get)
}

fn write_length(head: &mut Vec<u8>, length: u64) {
    head.extend_from_slice(b"Content-Length: ");
    push_decimal(head, length);
    head.extend_from_slice(b"\r\n");
}

/// The client's fields, less those that are about its connection or that the configuration sets.
fn write_fields(x: &Exchange, plan: &Plan, head: &mut Vec<u8>) {
    let input = x.input_bytes();
    for item in &x.head.fields {
        let name = item.name.of(input);
        if plan.dropped.contain(item.header, name) || is_nominated(&x.head.connection_names, input, name) {
            continue;
        }
        respond::copy_field(head, item, input);
    }
}

/// Whether Connection names this field as one for the next hop only.
pub fn is_nominated(names: &[balanza_http1::Span], text: &[u8], name: &[u8]) -> bool {
    !names.is_empty() && names.iter().any(|nominated| nominated.of(text).eq_ignore_ascii_case(name))
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
                x.head.body == balanza_http1::Body::Chunked
                    && !x.body.decoder().trailers().is_empty()
                    && x.upstream_is_http11
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
        client: &Client,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        self.awaits_client = false;
        while !self.done {
            match self.payload {
                Payload::None => ready!(self.poll_pieces(cx, x, server, b""))?,
                Payload::Text => {
                    let body = std::mem::take(&mut x.proxy_body);
                    let result = self.poll_pieces(cx, x, server, &body);
                    x.proxy_body = body;
                    ready!(result)?;
                }
                Payload::Stored if self.chunked => ready!(self.poll_stored_chunks(cx, x, server))?,
                Payload::Stored => ready!(self.poll_stored(cx, x, server))?,
                Payload::Streamed => ready!(self.poll_streamed(cx, x, client, server))?,
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
        let head = &x.upstream_head;
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
        while self.sent < x.upstream_head.len() {
            self.sent += ready!(self.poll_write(cx, server, &[IoSlice::new(&x.upstream_head[self.sent..])]))?;
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
                let body = &x.input_bytes()[range.clone()];
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
                Store::Input(range) => frame(&mut self.frame, &x.input_bytes()[range.clone()][begin..begin + wanted]),
                Store::Memory(body) => frame(&mut self.frame, &body[begin..begin + wanted]),
                Store::File(temporary) => {
                    let mut piece = vec![0; wanted];
                    let read = std::os::unix::fs::FileExt::read_exact_at(&temporary.file, &mut piece, begin as u64);
                    if let Err(error) = read {
                        return Poll::Ready(Err(SendingError::Client(BodyError::File(error))));
                    }
                    frame(&mut self.frame, &piece);
                }
            }
        }
    }

    fn frame_last(&mut self, x: &Exchange) {
        self.frame.extend_from_slice(b"0\r\n");
        for (name, value) in x.body.decoder().trailers().iter() {
            field(&mut self.frame, name, value);
        }
        self.frame.extend_from_slice(b"\r\n");
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
        client: &Client,
        server: &ServerConnection,
    ) -> Poll<Result<(), SendingError>> {
        ready!(self.poll_head(cx, x, server))?;
        loop {
            ready!(self.poll_frame(cx, server))?;
            while !self.piece.is_empty() {
                let slice = &x.input_bytes()[self.piece.clone()];
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
            let piece = ready!(reading::poll_body_piece(cx, x, client)).map_err(SendingError::Client)?;
            self.awaits_client = false;
            if self.chunked {
                if !piece.is_empty() {
                    let input = x.input_bytes();
                    frame(&mut self.frame, &input[piece]);
                }
            } else {
                self.piece = piece;
            }
        }
    }
}

/// Appends a chunk.
fn frame(out: &mut Vec<u8>, payload: &[u8]) {
    if payload.is_empty() {
        return;
    }
    let mut size = [0; 20];
    out.extend_from_slice(balanza_http1::write_chunk_head(&mut size, payload.len() as u64));
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}
