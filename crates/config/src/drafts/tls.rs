//! TLS with servers, and what it shares with that of clients.

use std::collections::HashMap;
use std::sync::Arc;

use balanza_tls::SupportedCipherSuite;
use balanza_tls::ciphers;
use balanza_tls::groups::{self, Group};
use balanza_tls::pki_types::{CertificateDer, CertificateRevocationListDer};
use balanza_tls::protocols::Protocols;
use balanza_tls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::lexer::Word;

/// What a block says of TLS with servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientDraft {
    pub certificate: Option<Named>,
    pub key: Option<Named>,
    /// `proxy_ssl_certificate_cache`, by its number.
    pub cache: Option<usize>,
    pub passwords: Option<Passwords>,
    pub negotiation: Negotiation,
    pub verify: bool,
    pub depth: usize,
    pub trusted: Option<Arc<[CertificateDer<'static>]>>,
    pub crls: Option<Crls>,
    pub send_name: bool,
    pub reuse: bool,
}

/// What is spoken to servers over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientUse {
    Http1,
    Http2,
    /// `grpc_ssl_…`: HTTP/2 too.
    Grpc,
    /// Bytes of `stream`.
    Stream,
}

/// What may be negotiated.
#[derive(Debug, Clone)]
pub(crate) struct Negotiation {
    pub protocols: Protocols,
    pub suites: Vec<SupportedCipherSuite>,
    pub suites_tls13: Vec<SupportedCipherSuite>,
    pub groups: Vec<Group>,
    /// What `ssl_conf_command Options` says of tickets, over `ssl_session_tickets`.
    pub tickets: Option<bool>,
    /// And of whose order of suites counts, over `ssl_prefer_server_ciphers`.
    pub prefer_server: Option<bool>,
}

impl Default for Negotiation {
    fn default() -> Negotiation {
        Negotiation {
            protocols: Protocols::ALL,
            suites: Vec::new(),
            suites_tls13: ciphers::tls13(),
            groups: groups::auto(),
            tickets: None,
            prefer_server: None,
        }
    }
}

/// A certificate or a key as it is written, and where.
pub(crate) type Named = Arc<Word>;

/// What has been read already: by the names of the certificate, its key and its stapled answer.
pub(crate) type Loaded = HashMap<(Vec<u8>, Vec<u8>, Vec<u8>), Option<Arc<CertifiedKey>>>;

/// The passwords of keys, in the order in which they are tried.
pub(crate) type Passwords = Arc<[Zeroizing<Vec<u8>>]>;

/// Lists of revoked certificates.
pub(crate) type Crls = Arc<[CertificateRevocationListDer<'static>]>;
