//! Verification of certificates: a client's after the handshake, so that the request can be answered with the reason; a
//! server's in the handshake.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
    anchor_from_trusted_cert,
};

use crate::{identity, provider};

/// Why a certificate is not trusted, in OpenSSL's numbers and words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// X509_V_ERR_…
    pub code: u32,
    /// What it means.
    pub reason: &'static str,
}

impl Rejection {
    const NOT_YET_VALID: Rejection = Rejection { code: 9, reason: "certificate is not yet valid" };
    const EXPIRED: Rejection = Rejection { code: 10, reason: "certificate has expired" };
    const CRL_EXPIRED: Rejection = Rejection { code: 12, reason: "CRL has expired" };
    const SELF_SIGNED: Rejection = Rejection { code: 18, reason: "self-signed certificate" };
    const UNKNOWN_ISSUER: Rejection = Rejection { code: 20, reason: "unable to get local issuer certificate" };
    const BAD_SIGNATURE: Rejection = Rejection { code: 7, reason: "certificate signature failure" };
    const TOO_LONG: Rejection = Rejection { code: 22, reason: "certificate chain too long" };
    const REVOKED: Rejection = Rejection { code: 23, reason: "certificate revoked" };
    const INVALID_CA: Rejection = Rejection { code: 79, reason: "invalid CA certificate" };
    const NO_CRL: Rejection = Rejection { code: 3, reason: "unable to get certificate CRL" };
    const PURPOSE: Rejection = Rejection { code: 26, reason: "unsuitable certificate purpose" };
    const HOST: Rejection = Rejection { code: 62, reason: "hostname mismatch" };
    const OTHER: Rejection = Rejection { code: 1, reason: "unspecified certificate verification error" };

    /// Whether `optional_no_ca` lets it pass: only the issuer is not known.
    pub fn is_unknown_issuer(self) -> bool {
        matches!(self.code, 18..=21 | 27)
    }

    fn of(error: &webpki::Error, leaf: &CertificateDer<'_>) -> Rejection {
        match error {
            webpki::Error::CertNotValidYet { .. } => Rejection::NOT_YET_VALID,
            webpki::Error::CertExpired { .. } => Rejection::EXPIRED,
            webpki::Error::CrlExpired { .. } => Rejection::CRL_EXPIRED,
            webpki::Error::UnknownIssuer | webpki::Error::CaUsedAsEndEntity if identity::is_self_issued(leaf) => {
                Rejection::SELF_SIGNED
            }
            webpki::Error::UnknownIssuer => Rejection::UNKNOWN_ISSUER,
            webpki::Error::InvalidSignatureForPublicKey => Rejection::BAD_SIGNATURE,
            webpki::Error::MaximumPathDepthExceeded | webpki::Error::PathLenConstraintViolated => Rejection::TOO_LONG,
            webpki::Error::CertRevoked => Rejection::REVOKED,
            webpki::Error::UnknownRevocationStatus => Rejection::NO_CRL,
            webpki::Error::EndEntityUsedAsCa => Rejection::INVALID_CA,
            webpki::Error::CertNotValidForName(_) => Rejection::HOST,
            webpki::Error::RequiredEkuNotFoundContext(_) => Rejection::PURPOSE,
            _ => Rejection::OTHER,
        }
    }
}

/// Certificates and lists that others are verified with.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    anchors: Vec<TrustAnchor<'static>>,
    /// The certificates themselves: one that is trusted by name may also be shown by its owner.
    certificates: Vec<CertificateDer<'static>>,
    crls: Vec<Arc<CertRevocationList<'static>>>,
    /// How many certificates may stand between the owner's and a trusted one.
    pub depth: usize,
}

impl Trust {
    /// Trusts these, and what they sign, over so many certificates between.
    ///
    /// # Errors
    /// One of them is not a certificate that can be trusted.
    pub fn new(certificates: Vec<CertificateDer<'static>>, depth: usize) -> Result<Trust, String> {
        let anchor = |certificate: &CertificateDer<'static>| {
            anchor_from_trusted_cert(certificate).map(|anchor| anchor.to_owned()).map_err(|error| error.to_string())
        };
        let anchors = certificates.iter().map(anchor).collect::<Result<_, _>>()?;
        Ok(Trust { anchors, certificates, crls: Vec::new(), depth })
    }

    /// Rejects what these lists revoke.
    ///
    /// # Errors
    /// One of them is not a list.
    pub fn with_crls(mut self, crls: &[CertificateRevocationListDer<'static>]) -> Result<Trust, String> {
        for crl in crls {
            let list = OwnedCertRevocationList::from_der(crl).map_err(|error| error.to_string())?;
            self.crls.push(Arc::new(list.into()));
        }
        Ok(self)
    }

    /// Whether nothing is trusted.
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// The names of the trusted certificates, which tell a client which of its certificates to show.
    pub fn names(&self) -> Vec<DistinguishedName> {
        self.anchors.iter().map(|anchor| DistinguishedName::in_sequence(&anchor.subject)).collect()
    }

    /// Verifies a client's chain.
    ///
    /// # Errors
    /// Why it is not trusted.
    pub fn verify_client(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Rejection> {
        self.verify(chain, now, KeyUsage::client_auth())
    }

    /// Verifies a server's chain, for whatever name.
    ///
    /// # Errors
    /// Why it is not trusted.
    pub fn verify_server(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Rejection> {
        self.verify(chain, now, KeyUsage::server_auth())
    }

    /// The trusted certificates.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime, usage: KeyUsage) -> Result<(), Rejection> {
        let Some((leaf, intermediates)) = chain.split_first() else { return Err(Rejection::UNKNOWN_ISSUER) };
        let of = |error: webpki::Error| Rejection::of(&error, leaf);
        if self.certificates.iter().any(|known| known == leaf) {
            return valid_now(leaf, now);
        }
        let owner = EndEntityCert::try_from(leaf).map_err(of)?;
        let crls: Vec<&CertRevocationList<'_>> = self.crls.iter().map(|crl| &**crl).collect();
        let revocation = RevocationOptionsBuilder::new(&crls).ok();
        let revocation = revocation.map(|options| options.with_expiration_policy(ExpirationPolicy::Enforce).build());
        let algorithms = provider().signature_verification_algorithms.all;
        let path = owner
            .verify_for_usage(algorithms, &self.anchors, intermediates, now, usage, revocation, None)
            .map_err(of)?;
        if path.intermediate_certificates().count() > self.depth {
            return Err(Rejection::TOO_LONG);
        }
        Ok(())
    }
}

/// A certificate that is trusted itself has still to be valid.
fn valid_now(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Rejection> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return Err(Rejection::OTHER) };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return Err(Rejection::NOT_YET_VALID);
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(Rejection::EXPIRED);
    }
    Ok(())
}

/// In the handshake any certificate of a client is accepted whose key it has; whether it is trusted is found out after it.
#[derive(Debug)]
pub struct AnyClient {
    /// Sent to the client, which chooses a certificate by them.
    pub names: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies servers, or (`proxy_ssl_verify off`) only that they have the key of their certificate.
#[derive(Debug)]
pub struct Servers {
    /// None: every certificate is good.
    pub trust: Option<Trust>,
}

/// Whether a certificate is for a host, by its alternative names or, without any, its common name.
fn is_for(certificate: &CertificateDer<'_>, subject: &ServerName<'_>) -> bool {
    if let ServerName::DnsName(name) = subject
        && let Some(common) = identity::common_name(certificate)
    {
        let name = name.as_ref();
        return match common.strip_prefix("*.") {
            Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
            None => common.eq_ignore_ascii_case(name),
        };
    }
    EndEntityCert::try_from(certificate).is_ok_and(|it| it.verify_is_valid_for_subject_name(subject).is_ok())
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trust) = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        let mut chain = vec![leaf.clone()];
        chain.extend(intermediates.iter().cloned());
        let trusted = trust.verify_server(&chain, now);
        let trusted = trusted.and_then(|()| if is_for(leaf, name) { Ok(()) } else { Err(Rejection::HOST) });
        trusted.map_err(|rejection| Error::InvalidCertificate(error(rejection)))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The alert that the server gets, with the reason for the log.
fn error(rejection: Rejection) -> CertificateError {
    match rejection {
        Rejection::NOT_YET_VALID => CertificateError::NotValidYet,
        Rejection::EXPIRED => CertificateError::Expired,
        Rejection::REVOKED => CertificateError::Revoked,
        Rejection::HOST => CertificateError::NotValidForName,
        Rejection::BAD_SIGNATURE => CertificateError::BadSignature,
        Rejection::PURPOSE => CertificateError::InvalidPurpose,
        Rejection::UNKNOWN_ISSUER | Rejection::SELF_SIGNED => CertificateError::UnknownIssuer,
        _ => CertificateError::ApplicationVerificationFailure,
    }
}

/// What OpenSSL would have said of a certificate that was rejected in a handshake.
pub fn rejection(error: &Error) -> Option<Rejection> {
    let Error::InvalidCertificate(error) = error else { return None };
    Some(match error {
        CertificateError::NotValidYet => Rejection::NOT_YET_VALID,
        CertificateError::Expired => Rejection::EXPIRED,
        CertificateError::Revoked => Rejection::REVOKED,
        CertificateError::NotValidForName => Rejection::HOST,
        CertificateError::BadSignature => Rejection::BAD_SIGNATURE,
        CertificateError::InvalidPurpose => Rejection::PURPOSE,
        CertificateError::UnknownIssuer => Rejection::UNKNOWN_ISSUER,
        _ => Rejection::OTHER,
    })
}
