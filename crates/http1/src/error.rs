//! Why a message was refused.

use std::fmt;

/// A response that is refused: the client gets 502, the server's connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseError {
    /// Why, for the log.
    pub reason: &'static str,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for ResponseError {}

/// A chunked body that is refused: nothing after it on the connection can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkError {
    /// Why, for the log.
    pub reason: &'static str,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for ChunkError {}
