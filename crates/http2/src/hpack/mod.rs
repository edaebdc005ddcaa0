//! The compression of heads (RFC 7541).
//!
//! The decoder has a dynamic table only once its peer has put something in; what is sent needs none: NGINX's way, which
//! costs a few bytes a response and no memory.

mod decode;
mod encode;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub use decode::Decoder;
pub use encode::{field, number, size_update, status};

/// What is sent is not HPACK, or more than was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid;
