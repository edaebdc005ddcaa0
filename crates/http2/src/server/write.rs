//! Encodes the fields of a response.

use std::cell::RefCell;

use balanza_message::bytes::{TOKEN, VALUE, all};
use balanza_message::{Fields, Header};

use crate::fields::{OF_A_CONNECTION, is_left_out};
use crate::hpack;

thread_local! {
    /// Reused for every block, because a block is put into frames as soon as it is complete.
    static BLOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The most capacity of it that is kept.
const KEPT: usize = 16 * 1024;

/// Calls `write` with an empty block.
pub fn with_block<T>(write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    BLOCK.with_borrow_mut(|block| {
        block.clear();
        block.shrink_to(KEPT);
        write(block)
    })
}

/// Writes a head. Fields that HTTP/2 forbids or cannot carry are left out.
pub fn head(block: &mut Vec<u8>, status: u16, fields: &Fields, length: Option<u64>) {
    hpack::status(block, if (100..1000).contains(&status) { status } else { 500 });
    // HTTP/2 opens a WebSocket without this field (RFC 8441, 5).
    let mut left_out = OF_A_CONNECTION | Header::SecWebsocketAccept.bit();
    if length.is_some() {
        left_out |= Header::ContentLength.bit();
    }
    write(block, fields, left_out);
    if let Some(length) = length {
        hpack::number(block, Header::ContentLength, length);
    }
}

/// Writes trailers.
pub fn trailers(block: &mut Vec<u8>, fields: &Fields) {
    write(block, fields, OF_A_CONNECTION);
}

fn write(block: &mut Vec<u8>, fields: &Fields, left_out: u64) {
    for (header, name, value) in fields.known() {
        if is_left_out(header, value, left_out) {
            continue;
        }
        if !name.is_empty() && all(name, TOKEN) && all(value, VALUE) {
            hpack::field(block, header, name, value);
        }
    }
}
