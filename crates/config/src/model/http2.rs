//! HTTP/2 with clients.

/// What a server says of HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Http2 {
    /// `http2`, or `listen … http2`: spoken by those who ask for it.
    pub enabled: bool,
    /// `http2_max_concurrent_streams` (128): requests at once on a connection.
    pub max_concurrent_streams: u32,
    /// `http2_body_preread_size` (64k): bytes of a request's body that may come before they are asked for.
    pub body_preread_size: u32,
}
