//! How connections of clients are kept and ended.

use std::time::Duration;

/// `keepalive_disable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepaliveDisable {
    /// After a POST of an old Internet Explorer.
    pub msie6: bool,
    /// Of Safari on macOS.
    pub safari: bool,
}

/// `lingering_close`, `lingering_time` and `lingering_timeout`: how long a connection that ends is read from, so that the
/// client gets the last response before a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lingering {
    /// When.
    pub close: LingeringClose,
    /// At most in all.
    pub time: Duration,
    /// At most between two pieces.
    pub timeout: Duration,
}

/// `lingering_close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LingeringClose {
    /// Never.
    Off,
    /// When the client may still be sending.
    #[default]
    On,
    /// Always.
    Always,
}
