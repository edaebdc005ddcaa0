//! Requests and responses of OCSP as OpenSSL writes them (tests/data/ocsp).

use std::sync::Arc;

use balanza_tls::ocsp::{self, CertId, Unusable};
use balanza_tls::pki_types::{CertificateDer, UnixTime};
use balanza_tls::stapling::Staple;
use balanza_tls::verification::Trust;
use balanza_tls::{certificates, sign};
use proptest::prelude::*;

/// Between `thisUpdate` and `nextUpdate` of the responses, in seconds since 1970, and how long they hold.
const BEGIN: u64 = 1_795_639_147;
const HOUR: u64 = 3600;

const GOOD: &[u8] = include_bytes!("data/ocsp/good.der");
const REVOKED: &[u8] = include_bytes!("data/ocsp/revoked.der");
const UNKNOWN: &[u8] = include_bytes!("data/ocsp/unknown.der");
/// Signed with a certificate for this purpose.
const DELEGATED: &[u8] = include_bytes!("data/ocsp/delegated.der");
/// Signed with a certificate of the same issuer for another purpose.
const UNDELEGATED: &[u8] = include_bytes!("data/ocsp/undelegated.der");

fn pem(text: &[u8]) -> CertificateDer<'static> {
    certificates::read_chain(text).unwrap().remove(0)
}

fn authority() -> CertificateDer<'static> {
    pem(include_bytes!("data/ocsp/ca.pem"))
}

fn leaf() -> CertificateDer<'static> {
    pem(include_bytes!("data/ocsp/leaf.pem"))
}

fn other() -> CertificateDer<'static> {
    pem(include_bytes!("data/ocsp/other.pem"))
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
}

fn verify(response: &[u8], now: u64) -> Result<u64, Unusable> {
    let id = CertId::new(&leaf(), &authority()).unwrap();
    ocsp::verify(response, &id, &authority(), at(now)).map(|until| until.as_secs())
}

#[test]
fn a_request_is_that_of_openssl() {
    let id = CertId::new(&leaf(), &authority()).unwrap();
    assert_eq!(id.request().unwrap(), include_bytes!("data/ocsp/request.der"));
}

#[test]
fn issuers_and_responders_are_found() {
    let (authority, leaf, other) = (authority(), leaf(), other());
    let all = [leaf.clone(), other.clone(), authority.clone()];
    assert_eq!(ocsp::issuer_of(&leaf, all.iter()), Some(&authority));
    assert_eq!(ocsp::issuer_of(&leaf, all[..2].iter()), None);
    assert_eq!(ocsp::responder_of(&leaf).as_deref(), Some("http://ocsp.test/a"));
    assert_eq!(ocsp::responder_of(&other), None);
    assert!(ocsp::is_response(GOOD) && !ocsp::is_response(&leaf) && !ocsp::is_response(b""));
}

#[test]
fn responses_hold_for_their_time() {
    let end = BEGIN + HOUR;
    assert_eq!(verify(GOOD, BEGIN), Ok(end));
    assert_eq!(verify(GOOD, end - 1), Ok(end));
    assert_eq!(verify(GOOD, end), Err(Unusable::Expired));
    assert_eq!(verify(GOOD, BEGIN - 300), Ok(end), "clocks may differ by five minutes");
    assert_eq!(verify(GOOD, BEGIN - 301), Err(Unusable::NotYetValid));
    assert_eq!(verify(REVOKED, end), Err(Unusable::Expired));
}

#[test]
fn responses_that_are_not_good() {
    assert_eq!(verify(REVOKED, BEGIN), Err(Unusable::Revoked));
    assert_eq!(verify(UNKNOWN, BEGIN), Err(Unusable::Unknown));
    // `unauthorized`, as responders answer for certificates of others.
    assert_eq!(verify(&[0x30, 3, 0x0a, 1, 6], BEGIN), Err(Unusable::Refused("unauthorized")));
    let id = CertId::new(&other(), &authority()).unwrap();
    assert_eq!(ocsp::verify(GOOD, &id, &authority(), at(BEGIN)), Err(Unusable::OtherCertificate));
}

#[test]
fn only_the_issuer_or_its_delegate_signs() {
    assert_eq!(verify(DELEGATED, BEGIN), Ok(BEGIN + HOUR));
    assert_eq!(verify(UNDELEGATED, BEGIN), Err(Unusable::Signature));
    let id = CertId::new(&leaf(), &authority()).unwrap();
    assert_eq!(ocsp::verify(GOOD, &id, &other(), at(BEGIN)), Err(Unusable::Signature));
    assert_eq!(ocsp::verify(DELEGATED, &id, &other(), at(BEGIN)), Err(Unusable::Signature));
}

/// One wrong bit, wherever it is, makes a response useless.
#[test]
fn no_bit_of_a_response_may_change() {
    for (place, bit) in (0..GOOD.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut response = GOOD.to_vec();
        response[place] ^= 1u8 << bit;
        assert!(verify(&response, BEGIN).is_err(), "bit {bit} of byte {place}");
    }
}

#[test]
fn a_part_of_a_response_is_useless() {
    for length in 0..GOOD.len() {
        assert!(verify(&GOOD[..length], BEGIN).is_err(), "{length} bytes");
    }
}

proptest! {
    #[test]
    fn anything_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..DELEGATED.len()) {
        prop_assert!(verify(&bytes, BEGIN).is_err());
        let mut response = DELEGATED.to_vec();
        response.splice(at.., bytes);
        prop_assert!(verify(&response, BEGIN).is_err());
    }
}

/// The leaf with its issuer behind it. The key is another one: nothing is signed with it here.
fn staple(trust: Option<Trust>) -> Staple {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let key = certificates::signing_key(certificates::read_key(key.as_bytes(), &[]).unwrap()).unwrap();
    let certified = sign::CertifiedKey::new(vec![leaf(), authority()], key);
    Staple::new(Arc::new(certified), &[], trust).unwrap()
}

#[test]
fn the_last_good_response_stays_until_the_certificate_is_revoked() {
    let one = staple(None);
    assert_eq!(one.times(), None);
    one.take(GOOD.to_vec(), at(BEGIN)).unwrap();
    let known = Some((at(BEGIN), at(BEGIN + HOUR)));
    assert_eq!(one.times(), known);
    for bad in [UNKNOWN, UNDELEGATED, b"<html>"] {
        assert!(one.take(bad.to_vec(), at(BEGIN + 1)).is_err());
        assert_eq!(one.times(), known);
    }
    let next = staple(None);
    next.continue_from(&one);
    assert_eq!(next.times(), known);
    assert_eq!(one.take(REVOKED.to_vec(), at(BEGIN + 2)), Err(Unusable::Revoked));
    assert_eq!((one.times(), next.times()), (None, known));
}

#[test]
fn the_issuer_must_be_trusted_if_that_is_asked_for() {
    let trusting = |certificate| staple(Some(Trust::new(vec![certificate], 9).unwrap()));
    let one = trusting(authority());
    one.take(GOOD.to_vec(), at(BEGIN)).unwrap();
    let other = trusting(other());
    assert!(matches!(other.take(GOOD.to_vec(), at(BEGIN)), Err(Unusable::Untrusted(_))));
    // What was not verified for a configuration is not shown by it.
    other.continue_from(&one);
    assert_eq!(other.times(), None);
}
