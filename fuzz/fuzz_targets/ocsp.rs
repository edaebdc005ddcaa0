//! Responses of OCSP: no panic, and what is accepted holds until the time that the responder has signed.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use balanza_tls::certificates;
use balanza_tls::ocsp::{CertId, is_response, responder_of, verify};
use balanza_tls::pki_types::{CertificateDer, UnixTime};
use libfuzzer_sys::fuzz_target;

/// When the responses of the corpus begin, and when they end.
const BEGIN: Duration = Duration::from_secs(1_795_639_147);
const END: Duration = Duration::from_secs(1_795_639_147 + 3600);

static ISSUER: LazyLock<CertificateDer<'static>> =
    LazyLock::new(|| pem(include_bytes!("../../crates/tls/tests/data/ocsp/ca.pem")));
static ID: LazyLock<CertId> = LazyLock::new(|| {
    let leaf = pem(include_bytes!("../../crates/tls/tests/data/ocsp/leaf.pem"));
    CertId::new(&leaf, &ISSUER).expect("the certificate can be read")
});

fn pem(text: &[u8]) -> CertificateDer<'static> {
    certificates::read_chain(text).expect("it is a certificate").remove(0)
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(until) = verify(bytes, &ID, &ISSUER, UnixTime::since_unix_epoch(BEGIN)) {
        assert_eq!(until, UnixTime::since_unix_epoch(END));
        assert!(is_response(bytes));
    }
    responder_of(&CertificateDer::from(bytes));
});
