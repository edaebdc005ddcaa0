//! Certificates as texts.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;

/// A certificate as PEM, with a final line feed.
pub fn pem(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, left) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = left;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// The SHA-1 fingerprint of a certificate in lower-case hexadecimal digits: a name for it, not a proof.
pub fn sha1(certificate: &CertificateDer<'_>) -> String {
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, certificate);
    hash.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
