//! Methods and versions.

/// A request's method. The name as sent is `RequestHead::method_name`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum Method {
    /// GET.
    #[default]
    Get,
    /// HEAD: the response has no body.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// PATCH.
    Patch,
    /// LOCK (WebDAV), known because it must not be repeated.
    Lock,
    /// TRACE: refused in requests.
    Trace,
    /// CONNECT: opens a tunnel.
    Connect,
    /// Any other.
    Other,
}

impl Method {
    /// The method of this name; names are case-sensitive.
    #[inline]
    pub fn recognise(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            b"LOCK" => Method::Lock,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// Whether a request that may have reached a server may be sent to another: as in NGINX, all but POST, LOCK and
    /// PATCH.
    #[inline]
    pub fn is_idempotent(self) -> bool {
        !matches!(self, Method::Post | Method::Lock | Method::Patch)
    }
}

/// The version of the protocol of a message: minor versions above 1.1 are read as 1.1 (RFC 9110, 2.5).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2.
    Http2,
}
