//! Variables of what is known of a client.

/// What is known of a client, beside its connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ClientValue {
    ProxyProtocolAddr,
    ProxyProtocolPort,
    ProxyProtocolServerAddr,
    ProxyProtocolServerPort,
    ProxyProtocolTlv(Box<[u8]>),
    /// The address that `set_real_ip_from` has replaced.
    RealIpRemoteAddr,
    RealIpRemotePort,
    /// `$invalid_referer`: "1" if no `valid_referers` is the request's.
    InvalidReferer,
    SecureLink,
    SecureLinkExpires,
    UidGot,
    UidSet,
    AncientBrowser,
    ModernBrowser,
    Msie,
}
