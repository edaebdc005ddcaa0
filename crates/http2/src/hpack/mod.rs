//! Header compression, HPACK (RFC 7541).
//!
//! The decoder allocates a dynamic table only when the peer adds an entry. The encoder uses no dynamic table, as in
//! NGINX: a response is a few bytes longer, and the connection needs no memory for a table.

mod decode;
mod encode;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub use decode::Decoder;
pub use encode::{field, number, size_update, status};

/// The peer has sent something that is not HPACK, or more than was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid;
