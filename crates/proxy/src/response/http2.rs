//! A response as HTTP/2 carries it.

use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::response::head::is_bodiless;

/// Begins a response: a stream serves one request, and its connection goes on.
pub fn begin(x: &mut Exchange) {
    x.sent.chunked = false;
    x.sent.trailers = false;
}

/// Says how long the body is, if that is known, and whether trailers end it.
pub fn delimit(x: &mut Exchange, length: Option<u64>, trailers: bool) {
    x.reply.length = length;
    x.sent.trailers = trailers;
}

/// Sends the head. A response whose end is known ends with its head, or with the last byte of its body.
///
/// # Errors
/// The client has gone.
pub fn send_head(x: &mut Exchange) -> Result<(), SendError> {
    x.downstream.limit_page(x.location().settings.subrequests.output_buffer);
    if x.reply.upgrade.is_some() {
        // Its own protocol does not change: the bytes on the stream are another one's from here on (RFC 8441, 4).
        return x.downstream.send_head(200, &x.reply.fields, None, false, None, usize::MAX);
    }
    let length = x.reply.length;
    let ends = is_bodiless(x) || length == Some(0) && !x.sent.trailers;
    let left = length.filter(|_| !x.sent.trailers);
    let chunk = x.location().settings.http2_chunk_size;
    x.sent.bytes += x.reply.fields.lines().len() as u64;
    x.downstream.send_head(x.status, &x.reply.fields, length, ends, left, chunk)
}
