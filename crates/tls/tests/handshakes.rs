//! Contexts that talk to each other in memory, and what is said of the certificates that they show.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use balanza_tls::certificates::{self, FileError};
use balanza_tls::hello::{self, First};
use balanza_tls::protocols::Protocols;
use balanza_tls::server::{Clients, Verified, Verify};
use balanza_tls::sessions::SessionCache;
use balanza_tls::stapling::Shown;
use balanza_tls::verification::Trust;
use balanza_tls::{ciphers, client, groups, identity, server};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, HandshakeKind, ServerConnection};

/// An authority that issues certificates.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Ärzte, Ltd");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str, by: Option<&Authority>) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = match by {
        Some(by) => params.signed_by(&key, &by.issuer).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    Authority { certificate, issuer: Issuer::new(params, key) }
}

impl Authority {
    fn issue(&self, params: CertificateParams, algorithm: &'static rcgen::SignatureAlgorithm) -> Arc<CertifiedKey> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = certificates::read_key(key.serialize_pem().as_bytes(), &[]).unwrap();
        let chain = certificates::read_chain(certificate.pem().as_bytes()).unwrap();
        certificates::certified(chain, key).unwrap()
    }

    fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }
}

fn ecdsa(authority: &Authority, name: &str) -> Arc<CertifiedKey> {
    authority.issue(params(name), &rcgen::PKCS_ECDSA_P256_SHA256)
}

fn server_settings(certificates: Vec<Arc<CertifiedKey>>) -> server::Settings {
    server::Settings {
        certificates: certificates.into_iter().map(Shown::Plain).collect(),
        named: Vec::new(),
        protocols: Protocols::ALL,
        suites: ciphers::select("HIGH:!aNULL:!MD5").unwrap().suites,
        suites_tls13: ciphers::tls13(),
        prefer_server: false,
        groups: groups::auto(),
        sessions: None,
        session_timeout: Duration::from_secs(300),
        tickets: true,
        ticket_keys: Arc::new([]),
        clients: Clients::default(),
        early_data: false,
        record_size: 16384,
        alpn: Vec::new(),
    }
}

fn client_settings(trust: Option<Trust>) -> client::Settings {
    client::Settings {
        certificate: None,
        protocols: Protocols::ALL,
        suites: ciphers::select("HIGH").unwrap().suites,
        suites_tls13: ciphers::tls13(),
        trust,
        send_name: true,
        reuse: true,
        alpn: Vec::new(),
    }
}

/// Moves what either has to say until neither has; returns the connections, or why one has given up.
fn shake(
    client: &client::Context,
    server: &server::Context,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let mut client = ClientConnection::new(client.for_server("127.0.0.1:1"), client::server_name(name.as_bytes()))?;
    let mut server = ServerConnection::new(Arc::clone(&server.config))?;
    client.writer().write_all(b"hello").unwrap();
    loop {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let sent = bytes.len();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let answered = bytes.len();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
        if sent + answered == 0 {
            let mut text = [0; 5];
            server.reader().read_exact(&mut text).unwrap();
            assert_eq!(&text, b"hello");
            return Ok((client, server));
        }
    }
}

fn trust(authority: &Authority) -> Trust {
    Trust::new(vec![authority.der()], 1).unwrap()
}

#[test]
fn a_context_gets_its_certificates_at_a_handshake() {
    let ca = authority("authority", None);
    let settings = |name: &[u8]| server::Settings { named: vec![name.to_vec()], ..server_settings(Vec::new()) };
    let common = server::Context::new(&settings(b"$name.pem")).unwrap();
    assert!(!common.rejects && server::Context::new(&server_settings(Vec::new())).unwrap().rejects);
    let client = client::Context::new(&client_settings(Some(trust(&ca)))).unwrap();
    assert!(shake(&client, &common, "a.test").is_err());
    for name in ["a.test", "b.test"] {
        let certificate = ecdsa(&ca, name);
        let context = common.with(vec![certificate.clone()]);
        assert!(!context.rejects && common.is_equivalent(&context));
        let (shown, server) = shake(&client, &context, name).unwrap();
        assert_eq!(shown.peer_certificates().unwrap()[0], certificate.cert[0]);
        assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
        // A session goes on with other certificates of the same names, as in NGINX.
        let (_, server) = shake(&client, &common.with(vec![ecdsa(&ca, name)]), name).unwrap();
        assert_eq!(server.handshake_kind(), Some(HandshakeKind::Resumed));
    }
    assert!(!common.is_equivalent(&server::Context::new(&settings(b"$other.pem")).unwrap()));
}

#[test]
fn sessions_are_resumed_by_tickets_and_by_ids_but_not_elsewhere() {
    let ca = authority("authority", None);
    let certificate = ecdsa(&ca, "a.test");
    let one = server::Context::new(&server_settings(vec![certificate.clone()])).unwrap();
    let again = server::Context::new(&server_settings(vec![certificate.clone()])).unwrap();
    let other = server::Context::new(&server_settings(vec![ecdsa(&ca, "a.test")])).unwrap();
    assert!(one.is_equivalent(&again) && !one.is_equivalent(&other));
    for protocols in [Protocols { tls13: false, ..Protocols::ALL }, Protocols { tls12: false, ..Protocols::ALL }] {
        let client =
            client::Context::new(&client::Settings { protocols, ..client_settings(Some(trust(&ca))) }).unwrap();
        let kind = |server| shake(&client, server, "a.test").unwrap().1.handshake_kind().unwrap();
        assert_eq!(kind(&one), HandshakeKind::Full);
        assert_eq!(kind(&one), HandshakeKind::Resumed);
        assert_eq!(kind(&again), HandshakeKind::Resumed, "after a reload");
        assert_eq!(kind(&other), HandshakeKind::Full, "other certificates");
        let cache = SessionCache::named("handshakes", 1 << 20);
        let cached =
            server::Settings { tickets: false, sessions: Some(cache), ..server_settings(vec![certificate.clone()]) };
        let cached = server::Context::new(&cached).unwrap();
        let client =
            client::Context::new(&client::Settings { protocols, ..client_settings(Some(trust(&ca))) }).unwrap();
        let kind = |server| shake(&client, server, "a.test").unwrap().1.handshake_kind().unwrap();
        assert_eq!((kind(&cached), kind(&cached)), (HandshakeKind::Full, HandshakeKind::Resumed));
        let none = server::Settings { tickets: false, ..server_settings(vec![certificate.clone()]) };
        let none = server::Context::new(&none).unwrap();
        assert_eq!((kind(&none), kind(&none)), (HandshakeKind::Full, HandshakeKind::Full));
    }
}

#[test]
fn a_server_chooses_the_certificate_that_the_client_can_verify() {
    let ca = authority("authority", None);
    let rsa = ca.issue(params("a.test"), &rcgen::PKCS_RSA_SHA256);
    let both = server::Context::new(&server_settings(vec![rsa.clone(), ecdsa(&ca, "a.test")])).unwrap();
    let with = |list: &str| {
        let settings = client::Settings {
            protocols: Protocols { tls13: false, ..Protocols::ALL },
            suites: ciphers::select(list).unwrap().suites,
            ..client_settings(Some(trust(&ca)))
        };
        let (client, _) = shake(&client::Context::new(&settings).unwrap(), &both, "a.test").unwrap();
        ciphers::name(client.negotiated_cipher_suite().unwrap())
    };
    assert_eq!(with("aRSA+AES128"), "ECDHE-RSA-AES128-GCM-SHA256");
    assert_eq!(with("ECDHE-ECDSA-AES128-GCM-SHA256"), "ECDHE-ECDSA-AES128-GCM-SHA256");
}

#[test]
fn servers_are_verified_when_that_is_asked_for() {
    let (ca, foreign) = (authority("authority", None), authority("foreign", None));
    let server = |certificate| server::Context::new(&server_settings(vec![certificate])).unwrap();
    let client = |trust| client::Context::new(&client_settings(trust)).unwrap();
    let right = server(ecdsa(&ca, "a.test"));
    assert!(shake(&client(Some(trust(&ca))), &right, "a.test").is_ok());
    assert!(shake(&client(Some(trust(&ca))), &right, "b.test").is_err(), "another name");
    assert!(shake(&client(Some(trust(&foreign))), &right, "a.test").is_err(), "another authority");
    assert!(shake(&client(None), &right, "b.test").is_ok(), "not verified");
    // A certificate that is its own authority, and one that names its host in the common name only.
    let mut own = params("a.test");
    own.subject_alt_names.clear();
    let key = KeyPair::generate().unwrap();
    let certificate = own.self_signed(&key).unwrap();
    let chain = certificates::read_chain(certificate.pem().as_bytes()).unwrap();
    let key = certificates::read_key(key.serialize_pem().as_bytes(), &[]).unwrap();
    let server = server(certificates::certified(chain.clone(), key).unwrap());
    let own = || client(Some(Trust::new(chain.clone(), 1).unwrap()));
    assert!(shake(&own(), &server, "a.test").is_ok());
    assert!(shake(&own(), &server, "b.test").is_err());
}

#[test]
fn clients_are_verified_after_the_handshake() {
    let (ca, foreign) = (authority("authority", None), authority("foreign", None));
    let middle = authority("middle", Some(&ca));
    let clients = Clients { verify: Verify::Optional, trust: trust(&ca), named: trust(&ca) };
    let server = server::Context::new(&server::Settings {
        clients: clients.clone(),
        ..server_settings(vec![ecdsa(&ca, "a.test")])
    });
    let server = server.unwrap();
    let shown = |certificate: Option<Arc<CertifiedKey>>, more: &[&Authority]| {
        let certificate = certificate.map(|certified| {
            let mut certified = (*certified).clone();
            certified.cert.extend(more.iter().map(|authority| authority.der()));
            Arc::new(certified)
        });
        let settings = client::Settings { certificate, ..client_settings(Some(trust(&ca))) };
        let (_, server) = shake(&client::Context::new(&settings).unwrap(), &server, "a.test").unwrap();
        match clients.verify(server.peer_certificates()) {
            Verified::Failed(rejection) => format!("{}: {}", rejection.code, rejection.reason),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(shown(None, &[]), "None");
    assert_eq!(shown(Some(ecdsa(&ca, "me")), &[]), "Success");
    assert_eq!(shown(Some(ecdsa(&middle, "me")), &[&middle]), "Success");
    assert_eq!(shown(Some(ecdsa(&middle, "me")), &[]), "20: unable to get local issuer certificate");
    assert_eq!(shown(Some(ecdsa(&foreign, "me")), &[]), "20: unable to get local issuer certificate");
    let lower = authority("lower", Some(&middle));
    assert_eq!(shown(Some(ecdsa(&lower, "me")), &[&lower, &middle]), "22: certificate chain too long");
    let mut old = params("me");
    old.not_after = rcgen::date_time_ymd(2020, 1, 1);
    assert_eq!(shown(Some(ca.issue(old, &rcgen::PKCS_ED25519)), &[]), "10: certificate has expired");
}

#[test]
fn what_a_certificate_says_of_its_owner() {
    let ca = authority("authority", None);
    let mut params = params("me");
    params.serial_number = Some(vec![0x0a, 0x01, 0xff].into());
    params.not_before = rcgen::date_time_ymd(2026, 1, 2);
    params.not_after = rcgen::date_time_ymd(2036, 11, 30);
    let certificate = ca.issue(params, &rcgen::PKCS_ECDSA_P256_SHA256);
    let it = identity::of(&certificate.cert[0]).unwrap();
    assert_eq!(it.subject, r"CN=me,O=\C3\84rzte\, Ltd");
    assert_eq!(it.issuer, r"CN=authority,O=\C3\84rzte\, Ltd");
    assert_eq!(it.subject_legacy, r"/O=\xC3\x84rzte, Ltd/CN=me");
    assert_eq!(it.serial, "0A01FF");
    assert_eq!(
        (it.not_before.as_str(), it.not_after.as_str()),
        ("Jan  2 00:00:00 2026 GMT", "Nov 30 00:00:00 2036 GMT")
    );
}

#[test]
fn broken_files_are_told_apart() {
    let ca = authority("authority", None);
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem();
    assert_eq!(certificates::read_key(b"", &[]).unwrap_err(), FileError::Missing("private key"));
    assert_eq!(certificates::read_chain(pem.as_bytes()).unwrap_err(), FileError::Missing("certificate"));
    let cut = &pem[..pem.len() - 10];
    assert!(matches!(certificates::read_key(cut.as_bytes(), &[]).unwrap_err(), FileError::Broken(_)), "{cut}");
    let text = pem.replace("PRIVATE KEY-----\n", "PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n");
    assert_eq!(certificates::read_key(text.as_bytes(), &[]).unwrap_err(), FileError::OldEncryption);
    let chain = certificates::read_chain(ca.certificate.pem().as_bytes()).unwrap();
    let other = certificates::read_key(pem.as_bytes(), &[]).unwrap();
    assert_eq!(certificates::certified(chain, other).unwrap_err(), FileError::Mismatch);
}

/// `openssl genpkey -algorithm ed25519 -aes256 -pass pass:secret`
const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAh6b3HJiIgtXQICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEPVsJy0IUJuOET1dIDc69vUEQOgi
AMeZQHEv5hyMGF/aEsGJm53R5D+L5qzbOe2tGb12yDgAP05QBG4aGwDcmaQ3vs1D
EW5TP8EH8EkEkNpNsPU=
-----END ENCRYPTED PRIVATE KEY-----
";

#[test]
fn an_encrypted_key_needs_its_password() {
    let read = |list: &str| certificates::read_key(ENCRYPTED.as_bytes(), &certificates::passwords(list.as_bytes()));
    assert!(read("wrong\r\n\nsecret\n").is_ok());
    assert_eq!(read("wrong\n").unwrap_err(), FileError::WrongPassword);
    assert_eq!(read("").unwrap_err(), FileError::Encrypted);
}

#[test]
fn the_first_message_is_read_from_any_piece() {
    let settings = client::Settings { alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()], ..client_settings(None) };
    let context = client::Context::new(&settings).unwrap();
    let mut client = ClientConnection::new(context.for_server("x"), client::server_name(b"Www.Example.test")).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    let First::Hello(whole) = hello::read(&bytes) else { panic!("{:?}", hello::read(&bytes)) };
    assert_eq!(whole.server_name.as_deref(), Some("www.example.test"));
    assert_eq!(whole.alpn, [b"h2".as_slice().into(), b"http/1.1".as_slice().into()]);
    assert_eq!(whole.version, 0x0304);
    for length in 0..bytes.len() {
        assert_eq!(hello::read(&bytes[..length]), First::Incomplete, "{length}");
    }
    // The same in records of ten bytes.
    let split: Vec<u8> =
        bytes[5..].chunks(10).flat_map(|part| [&[22, 3, 1, 0, part.len() as u8], part].concat()).collect();
    assert_eq!(hello::read(&split), First::Hello(whole));
    for foreign in ["GET / HTTP/1.1\r\n", "\0", "PROXY TCP4"] {
        assert_eq!(hello::read(foreign.as_bytes()), First::Foreign);
    }
    assert_eq!(hello::read(&[22, 2, 0]), First::Malformed);
    assert_eq!(hello::read(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), First::Malformed, "a ServerHello");
    assert_eq!(hello::read(&[22, 3, 1, 0, 4, 1, 255, 255, 255]), First::Malformed, "too long");
}

proptest::proptest! {
    #[test]
    fn a_damaged_first_message_does_no_harm(at in 0..500usize, byte: u8, cut in 0..500usize) {
        let context = client::Context::new(&client_settings(None)).unwrap();
        let mut client = ClientConnection::new(context.for_server("x"), client::server_name(b"a.test")).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        // What is decided stays so, whatever follows.
        let whole = hello::read(&bytes);
        let part = hello::read(&bytes[..cut.min(bytes.len())]);
        proptest::prop_assert!(part == First::Incomplete || part == whole, "{part:?}, then {whole:?}");
    }
}
