//! What a certificate says of its owner, in the forms of the `$ssl_client_…` variables.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::X509Certificate;
use x509_parser::x509::X509Name;

use crate::names;

/// A certificate's owner and terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// `subject` of the owner, as RFC 2253 writes it.
    pub subject: String,
    /// `issuer`, likewise.
    pub issuer: String,
    /// The subject with slashes, as OpenSSL once wrote it.
    pub subject_legacy: String,
    /// The issuer, likewise.
    pub issuer_legacy: String,
    /// The serial number in upper-case hexadecimal digits.
    pub serial: String,
    /// When it begins, as `Nov  1 12:00:00 2026 GMT`.
    pub not_before: String,
    /// When it ends.
    pub not_after: String,
    /// The end in seconds since 1970.
    pub ends: i64,
}

/// Reads a certificate; none if it is not one.
pub fn of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, it): (_, X509Certificate<'_>) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let serial: String = it.raw_serial().iter().map(|byte| format!("{byte:02X}")).collect();
    let serial = match serial.trim_start_matches("00") {
        "" => "00".into(),
        shorter => shorter.to_string(),
    };
    Some(Identity {
        subject: names::rfc2253(it.subject()),
        issuer: names::rfc2253(it.issuer()),
        subject_legacy: names::legacy(it.subject()),
        issuer_legacy: names::legacy(it.issuer()),
        serial,
        not_before: names::time(it.validity().not_before),
        not_after: names::time(it.validity().not_after),
        ends: it.validity().not_after.timestamp(),
    })
}

/// Whether a certificate was issued by its own subject.
pub fn is_self_issued(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    parsed.is_ok_and(|(_, it)| it.subject().as_raw() == it.issuer().as_raw())
}

/// The common name of the subject, for certificates that name no host otherwise.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, it) = x509_parser::parse_x509_certificate(certificate).ok()?;
    if it.subject_alternative_name().ok().flatten().is_some_and(|names| names.value.general_names.iter().any(is_host)) {
        return None;
    }
    fn first_name(name: &X509Name<'_>) -> Option<String> {
        name.iter_common_name().next()?.as_str().ok().map(str::to_string)
    }
    first_name(it.subject())
}

fn is_host(name: &x509_parser::extensions::GeneralName<'_>) -> bool {
    matches!(name, x509_parser::extensions::GeneralName::DNSName(_))
}
