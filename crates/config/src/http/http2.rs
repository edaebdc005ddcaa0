//! `http2…`.

use crate::load::Builder;
use crate::tree::Statement;

/// The largest window that a stream can have.
const LARGEST_WINDOW: u64 = (1 << 31) - 1;

/// The largest frame that there can be.
const LARGEST_FRAME: u64 = (1 << 24) - 1;

/// What is offered to clients in the handshake of TLS, best first.
pub fn application_protocols(http2: bool) -> Vec<Vec<u8>> {
    let all: [&[u8]; 4] = [b"h2", b"http/1.1", b"http/1.0", b"http/0.9"];
    all[usize::from(!http2)..].iter().map(|name| name.to_vec()).collect()
}

impl Builder<'_> {
    /// `http2_body_preread_size`.
    pub fn preread_size(&mut self, s: &Statement) -> Option<u32> {
        let size: u64 = self.size(s)?;
        if size > LARGEST_WINDOW {
            self.error(s.words[1].span, format!("the maximum body preread buffer size is {LARGEST_WINDOW}"));
            return None;
        }
        u32::try_from(size).ok()
    }

    /// `http2_chunk_size`.
    pub fn chunk_size(&mut self, s: &Statement) -> Option<usize> {
        let size: u64 = self.size(s)?;
        if size == 0 {
            self.error(s.words[1].span, "the http2 chunk size cannot be zero");
            return None;
        }
        usize::try_from(size.min(LARGEST_FRAME)).ok()
    }
}
