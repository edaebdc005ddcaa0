//! Parts of the settings of `proxy_…` and `grpc_…`.

use super::{ProxyRedirect, RedirectPattern};
use crate::template::Template;

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

/// `proxy_cookie_…`: what is changed in cookies that a server sets.
#[derive(Debug, Clone, Default)]
pub struct CookieRules {
    /// `proxy_cookie_domain`: a pattern is the whole domain, without a dot in front.
    pub domains: Vec<ProxyRedirect>,
    /// `proxy_cookie_path`.
    pub paths: Vec<ProxyRedirect>,
    /// `proxy_cookie_flags`.
    pub flags: Vec<CookieFlags>,
}

impl CookieRules {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.paths.is_empty() && self.flags.is_empty()
    }
}

/// `proxy_cookie_flags`.
#[derive(Debug, Clone)]
pub struct CookieFlags {
    /// The name of the cookie.
    pub name: RedirectPattern,
    /// The flags to set and to remove.
    pub flags: Vec<Template>,
}

/// Sizes of the system's buffers of a connection to a server, in bytes; the system chooses those that are not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketBuffers {
    /// SO_RCVBUF.
    pub receive: Option<usize>,
    /// SO_SNDBUF.
    pub send: Option<usize>,
}
