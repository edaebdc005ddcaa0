//! Fields of responses that have no effect of their own.

/// `proxy_ignore_headers`, of the fields that have an effect here. Those that only concern a cache have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IgnoredFields {
    /// `X-Accel-Redirect`.
    pub redirect: bool,
    /// `X-Accel-Limit-Rate`.
    pub limit_rate: bool,
    /// `X-Accel-Buffering`.
    pub buffering: bool,
}
