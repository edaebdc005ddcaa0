//! Why a message was refused.

use std::fmt;

/// A request that is refused; the connection must be closed after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestError {
    /// The status to answer: 400, 405, 414, 505, or [`RequestError::TOO_LARGE`], which is NGINX's own number.
    pub status: u16,
    /// Why, for the log.
    pub reason: &'static str,
}

impl RequestError {
    /// NGINX's number for "Request Header Or Cookie Too Large": an `error_page` can name it; clients are sent 400.
    pub const TOO_LARGE: u16 = 494;

    pub(crate) const fn new(status: u16, reason: &'static str) -> RequestError {
        RequestError { status, reason }
    }

    pub(crate) const fn bad(reason: &'static str) -> RequestError {
        RequestError::new(400, reason)
    }

    pub(crate) const fn too_large(reason: &'static str) -> RequestError {
        RequestError::new(RequestError::TOO_LARGE, reason)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for RequestError {}

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
