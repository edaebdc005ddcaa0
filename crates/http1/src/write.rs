//! Heads and framing as they are written.

use balanza_message::{Fields, push_decimal};

use crate::{Body, Version};

/// Appends a request line.
pub fn write_request_line(out: &mut Vec<u8>, method: &[u8], target: &[u8], version: Version) {
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(match version {
        Version::Http10 => b" HTTP/1.0\r\n",
        Version::Http11 | Version::Http2 => b" HTTP/1.1\r\n",
    });
}

/// Appends a status line, always of HTTP/1.1.
pub fn write_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    if status == 200 && reason == b"OK" {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        push_decimal(out, u64::from(status));
        out.push(b' ');
        out.extend_from_slice(reason);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the field that says how the body is delimited, if there is one.
pub fn write_framing(out: &mut Vec<u8>, body: Body) {
    match body {
        Body::None | Body::UntilClose => {}
        Body::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            push_decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Body::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}

/// Appends a chunk, unless it is empty.
pub fn write_chunk(out: &mut Vec<u8>, payload: &[u8]) {
    if !payload.is_empty() {
        out.extend_from_slice(write_chunk_head(&mut [0; 20], payload.len() as u64));
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the last chunk and the trailers.
pub fn write_last_chunk(out: &mut Vec<u8>, trailers: &Fields) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers.lines());
    out.extend_from_slice(b"\r\n");
}

/// The line in front of a chunk of `len` bytes: the size in hexadecimal and CRLF. A length of 0 is the last chunk.
#[inline]
pub fn write_chunk_head(out: &mut [u8; 20], mut len: u64) -> &[u8] {
    out[18..].copy_from_slice(b"\r\n");
    let mut at = 18;
    loop {
        at -= 1;
        out[at] = b"0123456789abcdef"[(len & 15) as usize];
        len >>= 4;
        if len == 0 {
            return &out[at..];
        }
    }
}
