//! Parts of the settings of `proxy_…` and `grpc_…`.

/// `proxy_http_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HttpVersion {
    Http10,
    #[default]
    Http11,
    Http2,
}

/// `proxy_next_upstream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct NextUpstream {
    pub error: bool,
    pub timeout: bool,
    pub invalid_header: bool,
    pub non_idempotent: bool,
    pub http_500: bool,
    pub http_502: bool,
    pub http_503: bool,
    pub http_504: bool,
    pub http_403: bool,
    pub http_404: bool,
    pub http_429: bool,
    /// `off`: never.
    pub off: bool,
}
