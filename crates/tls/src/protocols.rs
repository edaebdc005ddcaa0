//! `ssl_protocols`: versions of TLS.

use rustls::{ProtocolVersion, SupportedProtocolVersion};

/// Versions that may be negotiated. Older ones do not exist here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
}

impl Protocols {
    /// Both.
    pub const ALL: Protocols = Protocols { tls12: true, tls13: true };
    /// Neither.
    pub const NONE: Protocols = Protocols { tls12: false, tls13: false };

    /// As rustls takes them.
    pub fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        let mut versions = Vec::new();
        if self.tls13 {
            versions.push(&rustls::version::TLS13);
        }
        if self.tls12 {
            versions.push(&rustls::version::TLS12);
        }
        versions
    }
}

/// How OpenSSL names a version.
pub fn name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        _ => "unknown",
    }
}

/// How `$ssl_preread_protocol` names the highest version that a client offers.
pub fn offered(version: u16) -> &'static str {
    match version {
        0x0002 => "SSLv2",
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLSv1.1",
        0x0303 => "TLSv1.2",
        0x0304 => "TLSv1.3",
        _ => "",
    }
}
