//! Which requests are taken, whatever protocol they come by: limits, and fields that could be misread.

use std::fmt;

use crate::Header;
use crate::bytes::{PLAIN_NAME, TOKEN, is};

/// Fields that may come once only, as in NGINX. Those that say how a body is delimited are left to the protocols.
pub const ONCE: u64 = Header::Host.bit()
    | Header::IfModifiedSince.bit()
    | Header::IfUnmodifiedSince.bit()
    | Header::IfMatch.bit()
    | Header::IfNoneMatch.bit()
    | Header::IfRange.bit()
    | Header::ContentRange.bit()
    | Header::Expect.bit()
    | Header::Authorization.bit()
    // NGINX takes several; then one could ask for what the first hides.
    | Header::Upgrade.bit();

/// Fields that mean nothing, or harm, after the body (RFC 9110, 6.5.1): they concern one connection, or had to be known
/// before the body. They are dropped.
pub const NO_TRAILER: u64 = Header::HOP_BY_HOP
    | Header::Trailer.bit()
    | Header::Expect.bit()
    | Header::MaxForwards.bit()
    | Header::Pragma.bit()
    | Header::CacheControl.bit()
    | Header::Range.bit()
    | Header::IfRange.bit()
    | Header::IfMatch.bit()
    | Header::IfNoneMatch.bit()
    | Header::IfModifiedSince.bit()
    | Header::IfUnmodifiedSince.bit()
    | Header::Authorization.bit()
    | Header::ProxyAuthorization.bit()
    | Header::ProxyAuthenticate.bit()
    | Header::WwwAuthenticate.bit()
    | Header::Cookie.bit()
    | Header::SetCookie.bit()
    | Header::Age.bit()
    | Header::Date.bit()
    | Header::Expires.bit()
    | Header::Location.bit()
    | Header::Vary.bit()
    | Header::ContentType.bit()
    | Header::ContentEncoding.bit()
    | Header::ContentRange.bit()
    | Header::Forwarded.bit()
    | Header::XForwardedFor.bit()
    | Header::XForwardedHost.bit()
    | Header::XForwardedProto.bit()
    | Header::XRealIp.bit()
    | Header::XAccelRedirect.bit()
    | Header::XAccelBuffering.bit()
    | Header::XAccelLimitRate.bit()
    | Header::XAccelExpires.bit()
    | Header::XAccelCharset.bit();

/// What a request head may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request line, its end included; 414 beyond.
    pub line: usize,
    /// Bytes of a field line, its end included; 494 beyond, as for the next two.
    pub field: usize,
    /// Bytes of the whole head.
    pub head: usize,
    /// Number of fields.
    pub fields: usize,
    /// `underscores_in_headers`: names with underscores are valid.
    pub underscores: bool,
    /// `ignore_invalid_headers`: fields with invalid names are dropped. Otherwise those that are tokens are kept and the
    /// others refused.
    pub ignore_invalid: bool,
}

impl Default for Limits {
    /// Those of NGINX's defaults.
    fn default() -> Limits {
        Limits {
            line: 8192,
            field: 8192,
            head: 1024 + 4 * 8192,
            fields: 1000,
            underscores: false,
            ignore_invalid: true,
        }
    }
}

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

    /// An error with this status.
    pub const fn new(status: u16, reason: &'static str) -> RequestError {
        RequestError { status, reason }
    }

    /// A request that is malformed.
    pub const fn bad(reason: &'static str) -> RequestError {
        RequestError::new(400, reason)
    }

    /// A head that is larger than it may be.
    pub const fn too_large(reason: &'static str) -> RequestError {
        RequestError::new(RequestError::TOO_LARGE, reason)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for RequestError {}

/// Whether a field is kept though its name is not of letters, digits and hyphens, NGINX's idea of a valid one:
/// underscores may be allowed too; and if names that are invalid are not dropped, those that are tokens are kept.
///
/// # Errors
/// The request is refused for its name.
#[cold]
pub fn keeps_name(name: &[u8], classes: u8, limits: &Limits) -> Result<bool, RequestError> {
    if limits.underscores && name.iter().all(|&b| is(b, PLAIN_NAME) || b == b'_') {
        return Ok(true);
    }
    if disguises_framing(name) {
        return Err(RequestError::bad("framing field with an invalid name"));
    }
    if !limits.ignore_invalid && classes & TOKEN == 0 {
        return Err(RequestError::bad("invalid field name"));
    }
    Ok(!limits.ignore_invalid)
}

/// Whether a dropped field could be a disguised framing field: what is left of the name without everything but letters,
/// digits and hyphens is one.
fn disguises_framing(name: &[u8]) -> bool {
    let mut plain = [0; 32];
    let mut len = 0;
    for &b in name.iter().filter(|b| b.is_ascii_alphanumeric() || **b == b'-') {
        if len == plain.len() {
            return false;
        }
        plain[len] = b;
        len += 1;
    }
    matches!(Header::recognise(&plain[..len]), Header::ContentLength | Header::TransferEncoding)
}
