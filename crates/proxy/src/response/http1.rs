//! A response as HTTP/1 carries it: its framing, and whether the connection is kept.

use balanza_config::model::KeepaliveDisable;
use balanza_http1::Body;
use balanza_message::{Header, Method, Version, push_decimal};
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock;

use super::status::reason_phrase;
use crate::exchange::Exchange;

/// What a client that waits for it is told before it sends its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Room in front of a piece of a chunked body, for its size.
pub const CHUNK_HEAD: usize = 24;
/// Room behind it, for the line end.
pub const CHUNK_TAIL: usize = 2;

/// Begins a response: from here on it is known whether the connection could be kept, by the settings of the location that
/// answers.
pub fn begin(x: &mut Exchange) {
    x.sent.chunked = false;
    let settings = &x.location().settings;
    let kept = !settings.keepalive_timeout.is_zero()
        && x.ordinal < settings.keepalive_requests
        && x.started - x.client().accepted < clock::nanos(settings.keepalive_time);
    let disable = settings.keepalive_disable;
    if (disable.safari || disable.msie6 && x.request.method == Method::Post) && must_not_be_kept(x, disable) {
        x.sent.end_connection();
    }
    // A client that waits for "100 Continue" may send its body or not: the next request could not be told from it.
    if !kept || x.must_end() || !x.body.continued && !x.body.is_finished() {
        x.sent.end_connection();
    }
}

/// Whether `keepalive_disable` means this client, by NGINX's reading of its name.
fn must_not_be_kept(x: &Exchange, disable: KeepaliveDisable) -> bool {
    let agent = x.request_field(Header::UserAgent).unwrap_or_default();
    let at = |text: &[u8]| agent.windows(text.len()).position(|window| window == text);
    let has = |text: &[u8]| at(text).is_some();
    if has(b"Opera") {
        return false;
    }
    if let Some(name) = at(b"MSIE ").map(|at| &agent[at..]).filter(|name| name.len() > 7) {
        let old = match (name[5], name[6]) {
            (b'4' | b'5', b'.') => true,
            (b'6', b'.') => !name[8..].windows(3).any(|window| window == b"SV1"),
            _ => false,
        };
        return old && disable.msie6 && x.request.method == Method::Post;
    }
    let safari = !has(b"Gecko/") && !has(b"Chrome/") && has(b"Safari/") && has(b"Mac OS X");
    safari && disable.safari
}

/// Chooses how the body is delimited: by its length, in chunks, which trailers need, or by the end of the connection.
pub fn delimit(x: &mut Exchange, length: Option<u64>, trailers: bool) {
    let chunks_understood =
        x.request.version == Version::Http11 && x.head_complete && x.location().settings.answers.chunked;
    match length {
        Some(_) if !(trailers && chunks_understood) => x.reply.length = length,
        _ if chunks_understood => x.sent.chunked = true,
        _ => x.sent.end_connection(),
    }
}

/// Writes the head.
pub fn write_head(x: &mut Exchange) {
    let keepalive_header = x.keepalive_header();
    let keeps_connection = x.sent.keeps_connection();
    let (out, reply) = (&mut x.sent.text, &x.reply);
    out.clear();
    let reason = reply.reason.map_or(reason_phrase(x.status).as_bytes(), |reason| x.upstream.response.of(reason));
    balanza_http1::write_status_line(out, x.status, reason);
    out.extend_from_slice(reply.fields.lines());
    balanza_http1::write_framing(
        out,
        match reply.length {
            _ if x.sent.chunked => Body::Chunked,
            Some(length) => Body::Length(length),
            None => Body::None,
        },
    );
    if let Some(protocol) = reply.upgrade {
        out.extend_from_slice(b"Connection: upgrade\r\nUpgrade: ");
        out.extend_from_slice(x.upstream.response.of(protocol));
        out.extend_from_slice(b"\r\n");
    } else if keeps_connection {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
        if let Some(timeout) = keepalive_header {
            out.extend_from_slice(b"Keep-Alive: timeout=");
            push_decimal(out, timeout);
            out.extend_from_slice(b"\r\n");
        }
    } else if x.status != 101 {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Makes a chunk of a piece, whose size and line end fit into the room around it. What does not fit is returned as the next
/// piece: only the bytes that came with a head can lie at the border of their buffer.
pub fn frame(mut piece: Buffer) -> (Buffer, Option<Buffer>) {
    let mut size = [0; 20];
    let size = balanza_http1::write_chunk_head(&mut size, (piece.end - piece.start) as u64);
    if piece.start < size.len() || piece.end + CHUNK_TAIL > buffer::CAPACITY {
        let payload = piece.unread().len().min(buffer::CAPACITY - CHUNK_HEAD - CHUNK_TAIL);
        let mut moved = Buffer::take();
        moved.start = CHUNK_HEAD;
        moved.end = CHUNK_HEAD + payload;
        moved.unread_mut().copy_from_slice(&piece.unread()[..payload]);
        piece.start += payload;
        return (frame(moved).0, Some(piece).filter(|rest| !rest.is_empty()));
    }
    piece.start -= size.len();
    let start = piece.start;
    piece.bytes_mut()[start..start + size.len()].copy_from_slice(size);
    let end = piece.end;
    piece.bytes_mut()[end..end + CHUNK_TAIL].copy_from_slice(b"\r\n");
    piece.end += CHUNK_TAIL;
    (piece, None)
}
