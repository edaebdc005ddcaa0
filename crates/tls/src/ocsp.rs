//! OCSP (RFC 6960): the request for the status of a certificate, and what a response says of it.

use std::time::Duration;

use aws_lc_rs::digest;
use pkcs8::der::asn1::{AnyRef, BitStringRef, GeneralizedTime, ObjectIdentifier, OctetStringRef};
use pkcs8::der::{self, Decode, Encode, Reader, SliceReader, Tag};
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::extensions::{GeneralName, ParsedExtension};

use crate::provider;

/// How far the clock of a responder may be ahead.
const SKEW: Duration = Duration::from_secs(300);
/// How long a response holds that does not say it. Without a limit, an old one could be sent again for ever.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
/// The type of response that all responders have.
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
/// In "authority information access": where a responder answers.
const RESPONDER: &str = "1.3.6.1.5.5.7.48.1";
/// The purpose of a certificate that may sign in place of the issuer: 1.3.6.1.5.5.7.3.9.
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];

/// Why a response cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is not DER, or not what the standard describes.
    #[error("it is not an OCSP response")]
    Broken,
    /// There is no status in it.
    #[error("the responder says \"{0}\"")]
    Refused(&'static str),
    /// It says nothing of the certificate.
    #[error("it is for another certificate")]
    OtherCertificate,
    /// Neither the issuer nor a certificate that may sign for it has signed it.
    #[error("it is not signed by the issuer of the certificate or in its name")]
    Signature,
    /// Its `thisUpdate` is in the future.
    #[error("it is not valid yet")]
    NotYetValid,
    /// Its `nextUpdate` is over.
    #[error("it has expired")]
    Expired,
    /// A valid response says that the certificate is revoked.
    #[error("the certificate is revoked")]
    Revoked,
    /// A valid response says that the responder does not know the certificate.
    #[error("the responder does not know the certificate")]
    Unknown,
    /// `ssl_stapling_verify`: nothing that is trusted has signed the issuer.
    #[error("the issuer of the certificate is not trusted: {0}")]
    Untrusted(&'static str),
}

impl From<der::Error> for Unusable {
    fn from(_: der::Error) -> Unusable {
        Unusable::Broken
    }
}

/// Names a certificate by its issuer and its serial number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertId {
    issuer_name: Vec<u8>,
    issuer_key: Vec<u8>,
    serial: Vec<u8>,
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

fn sequence(content: &[u8]) -> der::Result<Vec<u8>> {
    AnyRef::new(Tag::Sequence, content)?.to_der()
}

impl CertId {
    /// That of a certificate; none if one of them cannot be read.
    pub fn new(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> Option<CertId> {
        let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let (_, issuer) = x509_parser::parse_x509_certificate(issuer).ok()?;
        Some(CertId {
            issuer_name: sha1(certificate.issuer().as_raw()),
            issuer_key: sha1(&issuer.public_key().subject_public_key.data),
            serial: certificate.raw_serial().to_vec(),
        })
    }

    /// A request for the status, without extensions: responses may have been made before it.
    ///
    /// # Errors
    /// The serial number has more bytes than DER can say.
    pub fn request(&self) -> der::Result<Vec<u8>> {
        let algorithm = sequence(&[SHA1.to_der()?, AnyRef::NULL.to_der()?].concat())?;
        let octets = |bytes: &[u8]| OctetStringRef::new(bytes)?.to_der();
        let serial = AnyRef::new(Tag::Integer, &self.serial)?.to_der()?;
        let id = [algorithm, octets(&self.issuer_name)?, octets(&self.issuer_key)?, serial].concat();
        // CertID, Request, requestList, TBSRequest, OCSPRequest.
        (0..5).try_fold(id, |inner, _| sequence(&inner))
    }

    fn is(&self, id: AnyRef<'_>) -> der::Result<bool> {
        let mut parts = content(id, Tag::Sequence)?;
        let mut algorithm = content(AnyRef::decode(&mut parts)?, Tag::Sequence)?;
        let is_sha1 = ObjectIdentifier::decode(&mut algorithm)? == SHA1;
        let name = <&OctetStringRef>::decode(&mut parts)?.as_bytes();
        let key = <&OctetStringRef>::decode(&mut parts)?.as_bytes();
        let serial = AnyRef::decode(&mut parts)?.value();
        Ok(is_sha1 && (name, key, serial) == (&self.issuer_name, &self.issuer_key, &self.serial))
    }
}

/// What is inside of a value that must have this tag.
fn content<'a>(value: AnyRef<'a>, tag: Tag) -> der::Result<SliceReader<'a>> {
    tag_of(value, tag)?;
    SliceReader::new(value.value())
}

fn tag_of(value: AnyRef<'_>, tag: Tag) -> der::Result<()> {
    if value.header().tag() == tag { Ok(()) } else { Err(tag.value_error().into()) }
}

/// The tag `[number]` of a value that stands inside.
fn inside(number: u32) -> Tag {
    Tag::ContextSpecific { constructed: true, number: der::TagNumber(number) }
}

/// The next value, if it has this tag.
fn optional<'a>(reader: &mut SliceReader<'a>, tag: Tag) -> der::Result<Option<AnyRef<'a>>> {
    let mut ahead = reader.clone();
    if reader.is_finished() || AnyRef::decode(&mut ahead)?.header().tag() != tag {
        return Ok(None);
    }
    AnyRef::decode(reader).map(Some)
}

/// Something with its signature: a certificate, or the body of a response.
struct Signed<'a> {
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    rest: SliceReader<'a>,
}

impl<'a> Signed<'a> {
    fn parse(der: &'a [u8]) -> der::Result<Signed<'a>> {
        let mut parts = content(AnyRef::from_der(der)?, Tag::Sequence)?;
        let signed = parts.tlv_bytes()?;
        let algorithm = AnyRef::decode(&mut parts)?;
        tag_of(algorithm, Tag::Sequence)?;
        // No signature ends inside of a byte.
        let signature = BitStringRef::decode(&mut parts)?.as_bytes().ok_or_else(|| Tag::BitString.value_error())?;
        Ok(Signed { signed, algorithm: algorithm.value(), signature, rest: parts })
    }

    fn is_by(&self, signer: &CertificateDer<'_>) -> bool {
        let Ok(signer) = EndEntityCert::try_from(signer) else { return false };
        let all = provider().signature_verification_algorithms.all.iter();
        let mut usable = all.filter(|algorithm| algorithm.signature_alg_id().as_ref() == self.algorithm);
        usable.any(|algorithm| signer.verify_signature(*algorithm, self.signed, self.signature).is_ok())
    }
}

/// The certificate among these that has issued another one.
pub fn issuer_of<'a>(
    certificate: &CertificateDer<'_>,
    mut others: impl Iterator<Item = &'a CertificateDer<'static>>,
) -> Option<&'a CertificateDer<'static>> {
    let (_, owner) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let signed = Signed::parse(certificate).ok()?;
    others.find(|other| {
        let named = x509_parser::parse_x509_certificate(other);
        named.is_ok_and(|(_, it)| it.subject().as_raw() == owner.issuer().as_raw()) && signed.is_by(other)
    })
}

/// The URL of the responder that a certificate names.
pub fn responder_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, it) = x509_parser::parse_x509_certificate(certificate).ok()?;
    it.extensions().iter().find_map(|extension| {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else { return None };
        access.accessdescs.iter().find_map(|described| match &described.access_location {
            GeneralName::URI(url) if described.access_method.to_id_string() == RESPONDER => Some((*url).to_owned()),
            _ => None,
        })
    })
}

/// Whether these bytes are a successful response, of whatever certificate.
pub fn is_response(der: &[u8]) -> bool {
    basic(der).is_ok_and(|body| Signed::parse(body).is_ok())
}

/// The body of a successful response.
fn basic(response: &[u8]) -> Result<&[u8], Unusable> {
    let mut parts = content(AnyRef::from_der(response)?, Tag::Sequence)?;
    let status = AnyRef::decode(&mut parts)?;
    tag_of(status, Tag::Enumerated)?;
    match status.value() {
        [0] => {}
        [1] => return Err(Unusable::Refused("malformed request")),
        [2] => return Err(Unusable::Refused("internal error")),
        [3] => return Err(Unusable::Refused("try later")),
        [5] => return Err(Unusable::Refused("signature required")),
        [6] => return Err(Unusable::Refused("unauthorized")),
        _ => return Err(Unusable::Broken),
    }
    let mut bytes = content(AnyRef::decode(&mut parts)?, inside(0))?;
    let mut bytes = content(AnyRef::decode(&mut bytes)?, Tag::Sequence)?;
    if ObjectIdentifier::decode(&mut bytes)? != BASIC {
        return Err(Unusable::Broken);
    }
    Ok(<&OctetStringRef>::decode(&mut bytes)?.as_bytes())
}

/// Verifies a response for a certificate and returns until when it holds, which is after `now`.
///
/// # Errors
/// It cannot be used, or its status is another one than "good".
pub fn verify(response: &[u8], id: &CertId, issuer: &CertificateDer<'_>, now: UnixTime) -> Result<UnixTime, Unusable> {
    let mut signed = Signed::parse(basic(response)?)?;
    let status = status_of(signed.signed, id)?;
    if !signed.is_by(issuer) && !is_by_delegate(&mut signed, issuer, now)? {
        return Err(Unusable::Signature);
    }
    let now = Duration::from_secs(now.as_secs());
    if status.from > now + SKEW {
        return Err(Unusable::NotYetValid);
    }
    let until = status.until.unwrap_or(status.from + WITHOUT_END);
    if until <= now {
        return Err(Unusable::Expired);
    }
    match status.tag {
        GOOD => Ok(UnixTime::since_unix_epoch(until)),
        REVOKED => Err(Unusable::Revoked),
        _ => Err(Unusable::Unknown),
    }
}

/// Whether a certificate in the response has signed it that the issuer has issued for this purpose.
fn is_by_delegate(signed: &mut Signed<'_>, issuer: &CertificateDer<'_>, now: UnixTime) -> Result<bool, Unusable> {
    let Some(list) = optional(&mut signed.rest, inside(0))? else { return Ok(false) };
    let Ok(anchor) = anchor_from_trusted_cert(issuer) else { return Ok(false) };
    let anchors = [anchor];
    let mut list = content(AnyRef::decode(&mut SliceReader::new(list.value())?)?, Tag::Sequence)?;
    while !list.is_finished() {
        let certificate = CertificateDer::from(list.tlv_bytes()?);
        let Ok(delegate) = EndEntityCert::try_from(&certificate) else { continue };
        let (algorithms, usage) = (provider().signature_verification_algorithms.all, KeyUsage::required(OCSP_SIGNING));
        if signed.is_by(&certificate)
            && delegate.verify_for_usage(algorithms, &anchors, &[], now, usage, None, None).is_ok()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

const GOOD: u32 = 0;
const REVOKED: u32 = 1;

/// What a response says of a certificate.
struct Status {
    tag: u32,
    from: Duration,
    until: Option<Duration>,
}

fn status_of(data: &[u8], id: &CertId) -> Result<Status, Unusable> {
    let mut data = content(AnyRef::from_der(data)?, Tag::Sequence)?;
    optional(&mut data, inside(0))?;
    // Who has signed it, and when.
    AnyRef::decode(&mut data)?;
    GeneralizedTime::decode(&mut data)?;
    let mut responses = content(AnyRef::decode(&mut data)?, Tag::Sequence)?;
    while !responses.is_finished() {
        let mut one = content(AnyRef::decode(&mut responses)?, Tag::Sequence)?;
        if !id.is(AnyRef::decode(&mut one)?)? {
            continue;
        }
        let Tag::ContextSpecific { number, .. } = AnyRef::decode(&mut one)?.header().tag() else {
            return Err(Unusable::Broken);
        };
        let from = GeneralizedTime::decode(&mut one)?.to_unix_duration();
        let until = match optional(&mut one, inside(0))? {
            Some(until) => Some(GeneralizedTime::from_der(until.value())?.to_unix_duration()),
            None => None,
        };
        return Ok(Status { tag: number.value(), from, until });
    }
    Err(Unusable::OtherCertificate)
}
