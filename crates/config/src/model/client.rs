//! What is known of a client.

use super::AccessWho;

/// Directives about the client.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    /// Where its address comes from.
    pub real_ip: RealIp,
}

/// `set_real_ip_from` and what belongs to it.
#[derive(Debug, Clone, Default)]
pub struct RealIp {
    /// `set_real_ip_from`: those who are believed; none if addresses are not replaced.
    pub from: Vec<AccessWho>,
    /// `real_ip_header` (X-Real-IP).
    pub header: RealIpHeader,
    /// `real_ip_recursive` (off).
    pub recursive: bool,
}

/// `real_ip_header`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RealIpHeader {
    /// `X-Real-IP`.
    #[default]
    XRealIp,
    /// A field, all of its lines. Lower case.
    Field(Box<[u8]>),
    /// `proxy_protocol`.
    ProxyProtocol,
}
