//! The server's side: what the `ssl_…` directives of a virtual server say, and the context that is made of it.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite};

use crate::groups::Group;
use crate::protocols::Protocols;
use crate::provider;
use crate::sessions::{ScopedSessions, SessionCache};
use crate::stapling::Shown;
use crate::tickets::{self, Scope, TicketKey, Ticketer};
use crate::verification::{AnyClient, Rejection, Trust};

/// Bytes of early data that a client may send.
const EARLY_DATA_MAX: u32 = 16384;

/// What a virtual server's directives say.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ssl_certificate` with `ssl_certificate_key`: chains with their keys. Without any, handshakes are refused.
    pub certificates: Vec<Shown>,
    /// The names of certificates that are known at a handshake only, as they are written (see [`Context::with`]).
    pub named: Vec<Vec<u8>>,
    /// `ssl_protocols`.
    pub protocols: Protocols,
    /// `ssl_ciphers`: suites of TLS 1.2, best first.
    pub suites: Vec<SupportedCipherSuite>,
    /// Suites of TLS 1.3, best first.
    pub suites_tls13: Vec<SupportedCipherSuite>,
    /// `ssl_prefer_server_ciphers`.
    pub prefer_server: bool,
    /// `ssl_ecdh_curve`, best first.
    pub groups: Vec<Group>,
    /// `ssl_session_cache`: the shared one, if there is one.
    pub sessions: Option<Arc<SessionCache>>,
    /// `ssl_session_timeout`.
    pub session_timeout: Duration,
    /// `ssl_session_tickets`.
    pub tickets: bool,
    /// `ssl_session_ticket_key`: the first encrypts.
    pub ticket_keys: Arc<[TicketKey]>,
    /// `ssl_verify_client` and what belongs to it.
    pub clients: Clients,
    /// `ssl_early_data`.
    pub early_data: bool,
    /// `ssl_buffer_size`: bytes of a record at most.
    pub record_size: usize,
    /// Application protocols, best first; without any, whatever a client offers is ignored.
    pub alpn: Vec<Vec<u8>>,
}

/// `ssl_verify_client`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// No certificate is asked for.
    #[default]
    Off,
    /// One that is trusted is required.
    On,
    /// One may be missing; one that is not trusted is refused.
    Optional,
    /// Whoever has issued it.
    OptionalNoCa,
}

/// What is asked of clients.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    /// Whether a certificate is required.
    pub verify: Verify,
    /// `ssl_client_certificate` and `ssl_trusted_certificate`.
    pub trust: Trust,
    /// Of these, those whose names are sent to the client.
    pub named: Trust,
}

impl Clients {
    /// What `$ssl_client_verify` shows of a client that has shown this chain.
    pub fn verify(&self, chain: Option<&[CertificateDer<'_>]>) -> Verified {
        match chain {
            None | Some([]) => Verified::None,
            Some(chain) => match self.trust.verify_client(chain, UnixTime::now()) {
                Ok(()) => Verified::Success,
                Err(rejection) => Verified::Failed(rejection),
            },
        }
    }
}

/// The result of the verification of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// It has shown no certificate.
    None,
    /// Its certificate is trusted.
    Success,
    /// It is not.
    Failed(Rejection),
}

/// Everything that a handshake with a client needs.
#[derive(Debug)]
pub struct Context {
    /// For rustls.
    pub config: Arc<ServerConfig>,
    /// What is asked of clients.
    pub clients: Arc<Clients>,
    /// There is no certificate: handshakes are refused (`ssl_reject_handshake`).
    pub rejects: bool,
    scope: Scope,
}

impl Context {
    /// A context for these settings.
    ///
    /// # Errors
    /// They contradict each other, such as protocols without a suite.
    pub fn new(settings: &Settings) -> Result<Context, String> {
        let mut cipher_suites = Vec::new();
        if settings.protocols.tls13 {
            cipher_suites.extend(&settings.suites_tls13);
        }
        if settings.protocols.tls12 {
            cipher_suites.extend(&settings.suites);
        }
        let crypto = CryptoProvider { cipher_suites, kx_groups: settings.groups.clone(), ..(**provider()).clone() };
        let builder = ServerConfig::builder_with_provider(Arc::new(crypto))
            .with_protocol_versions(&settings.protocols.versions())
            .map_err(|error| error.to_string())?;
        let builder = match settings.clients.verify {
            Verify::Off => builder.with_client_cert_verifier(WebPkiClientVerifier::no_client_auth()),
            _ => builder.with_client_cert_verifier(Arc::new(AnyClient { names: settings.clients.named.names() })),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Certificates(settings.certificates.clone())));
        config.ignore_client_order = settings.prefer_server;
        config.max_fragment_size = Some(settings.record_size + RECORD_OVERHEAD);
        config.alpn_protocols = settings.alpn.clone();
        let scope = scope(settings);
        keep_sessions(&mut config, settings, scope)?;
        // rustls takes early data only with sessions that it can take once, which tickets are not: no client shall try in vain.
        if settings.early_data && settings.protocols.tls13 && !settings.tickets {
            config.max_early_data_size = EARLY_DATA_MAX;
        }
        Ok(Context {
            config: Arc::new(config),
            clients: Arc::new(settings.clients.clone()),
            rejects: settings.certificates.is_empty() && settings.named.is_empty(),
            scope,
        })
    }

    /// The same with these certificates: those that a handshake has named.
    pub fn with(&self, certificates: Vec<Arc<CertifiedKey>>) -> Context {
        let mut config = (*self.config).clone();
        config.cert_resolver = Arc::new(Certificates(certificates.into_iter().map(Shown::Plain).collect()));
        Context { config: Arc::new(config), clients: Arc::clone(&self.clients), rejects: false, scope: self.scope }
    }

    /// Whether a session of one context may go on in the other.
    pub fn is_equivalent(&self, other: &Context) -> bool {
        self.scope == other.scope
    }
}

/// The header of a record, which rustls counts as part of it.
const RECORD_OVERHEAD: usize = 5;

/// What a session is bound to: the certificates or, as in NGINX, what names them at a handshake, and what is asked of clients.
fn scope(settings: &Settings) -> Scope {
    let verify = [settings.clients.verify as u8];
    let names = settings.clients.trust.names();
    let leaves = settings.certificates.iter().filter_map(|shown| shown.certified().cert.first());
    let leaves = leaves.map(|leaf| leaf.as_ref());
    let shown = leaves.chain(settings.named.iter().map(Vec::as_slice));
    let parts = [b"certificates".as_slice()].into_iter().chain(shown).chain([b"clients".as_slice(), &verify]);
    tickets::scope(parts.chain(names.iter().map(|name| name.as_ref())))
}

fn keep_sessions(config: &mut ServerConfig, settings: &Settings, scope: Scope) -> Result<(), String> {
    config.session_storage = match &settings.sessions {
        Some(cache) => Arc::new(ScopedSessions { cache: Arc::clone(cache), scope, lifetime: settings.session_timeout }),
        None => Arc::new(NoServerSessionStorage {}),
    };
    if settings.tickets {
        let lifetime = u32::try_from(settings.session_timeout.as_secs()).unwrap_or(u32::MAX);
        let ticketer: Arc<dyn ProducesTickets> = Arc::new(Ticketer::new(scope, lifetime, settings.ticket_keys.clone()));
        config.ticketer = ticketer;
    } else if settings.sessions.is_none() {
        config.send_tls13_tickets = 0;
    }
    Ok(())
}

/// Chooses the certificate whose key the client can verify, by the client's order.
#[derive(Debug)]
struct Certificates(Vec<Shown>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let [only] = self.0.as_slice() {
            return Some(only.at_present());
        }
        let suites = hello.cipher_suites();
        let usable = |shown: &&Shown| can_authenticate(suites, shown.certified().key.algorithm());
        let schemes = hello.signature_schemes().iter();
        let mut chosen = schemes.filter_map(|scheme| {
            self.0.iter().filter(usable).find(|shown| shown.certified().key.choose_scheme(&[*scheme]).is_some())
        });
        chosen.next().or(self.0.first()).map(Shown::at_present)
    }
}

/// Whether one of the client's suites goes with a key: suites of TLS 1.3 go with all.
fn can_authenticate(suites: &[CipherSuite], key: SignatureAlgorithm) -> bool {
    let scheme = match key {
        SignatureAlgorithm::RSA => SignatureScheme::RSA_PKCS1_SHA256,
        _ => SignatureScheme::ECDSA_NISTP256_SHA256,
    };
    let mut known = provider().cipher_suites.iter().filter(|known| suites.contains(&known.suite()));
    known.any(|known| match known {
        SupportedCipherSuite::Tls13(_) => true,
        SupportedCipherSuite::Tls12(suite) => suite.sign.contains(&scheme),
    })
}
