//! Outgoing frames. They are collected until the connection is driven, because system calls and TLS records are costly.

use balanza_net::buffer::{Buffer, CAPACITY};

use super::frame::{self, Head, Reason, flag, kind};

/// Space that DATA frames leave free for frames that must not wait: heads, and replies to the client's frames.
const RESERVE: usize = 8 * 1024;

/// The bytes to write. It holds a buffer only while it contains data.
#[derive(Default)]
pub struct Output {
    buffer: Option<Buffer>,
    /// Bytes that did not fit into the buffer.
    rest: Vec<u8>,
}

impl Output {
    /// The next bytes to write.
    pub fn first(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], Buffer::unread)
    }

    /// Removes `length` bytes that have been written.
    pub fn wrote(&mut self, length: usize) {
        let Some(buffer) = &mut self.buffer else { return };
        buffer.start += length;
        if !buffer.is_empty() {
            return;
        }
        self.buffer = None;
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            self.push(&rest);
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_none()
    }

    /// Whether the client reads too slowly for the frames that it causes. Then nothing more is read from it.
    pub fn is_congested(&self) -> bool {
        !self.rest.is_empty()
    }

    /// How many bytes of a body still fit, as one frame.
    pub fn room(&self) -> usize {
        let used = self.buffer.as_ref().map_or(0, |buffer| buffer.end);
        (CAPACITY - RESERVE - frame::HEAD).saturating_sub(used)
    }

    fn push(&mut self, mut bytes: &[u8]) {
        if self.rest.is_empty() {
            let buffer = self.buffer.get_or_insert_with(Buffer::take);
            let space = buffer.space();
            let length = space.len().min(bytes.len());
            space[..length].copy_from_slice(&bytes[..length]);
            buffer.end += length;
            bytes = &bytes[length..];
        }
        self.rest.extend_from_slice(bytes);
    }

    /// Appends a frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.push(&Head { length: payload.len(), kind, flags, stream }.bytes());
        self.push(payload);
    }

    /// Appends a head or trailers, in as many frames as necessary.
    pub fn block(&mut self, stream: u32, block: &[u8], ends: bool) {
        let (mut kind, mut flags) = (kind::HEADERS, if ends { flag::END_STREAM } else { 0 });
        let mut rest = block;
        loop {
            let (piece, tail) = rest.split_at(rest.len().min(frame::MOST));
            if tail.is_empty() {
                flags |= flag::END_HEADERS;
            }
            self.frame(kind, flags, stream, piece);
            if tail.is_empty() {
                return;
            }
            (kind, flags, rest) = (kind::CONTINUATION, 0, tail);
        }
    }

    /// Appends RST_STREAM.
    pub fn reset(&mut self, stream: u32, reason: Reason) {
        self.frame(kind::RST_STREAM, 0, stream, &(reason as u32).to_be_bytes());
    }

    /// Appends GOAWAY.
    pub fn goaway(&mut self, last: u32, reason: Reason) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&(reason as u32).to_be_bytes());
        self.frame(kind::GOAWAY, 0, 0, &payload);
    }

    /// Appends WINDOW_UPDATE.
    pub fn window_update(&mut self, stream: u32, by: u32) {
        self.frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    }
}
