//! The client's side: what the `proxy_ssl_…` directives say, and the context that is made of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

pub use rustls::ClientConfig;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{SignatureScheme, SupportedCipherSuite};

use crate::groups::{self};
use crate::protocols::Protocols;
use crate::provider;
use crate::verification::{Servers, Trust};

/// Sessions that are kept for each server.
const SESSIONS: usize = 32;
/// Servers whose sessions are kept.
const SERVERS: usize = 65_536;

/// What the directives say.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `proxy_ssl_certificate` with its key, shown to servers that ask for one.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// `proxy_ssl_protocols`.
    pub protocols: Protocols,
    /// `proxy_ssl_ciphers`: suites of TLS 1.2, best first.
    pub suites: Vec<SupportedCipherSuite>,
    /// Suites of TLS 1.3, best first.
    pub suites_tls13: Vec<SupportedCipherSuite>,
    /// `proxy_ssl_verify` with what belongs to it; none: every certificate is good.
    pub trust: Option<Trust>,
    /// `proxy_ssl_server_name`: the name is sent (SNI).
    pub send_name: bool,
    /// `proxy_ssl_session_reuse`.
    pub reuse: bool,
    /// Application protocols, best first.
    pub alpn: Vec<Vec<u8>>,
}

/// Everything that a handshake with a server needs.
#[derive(Debug)]
pub struct Context {
    config: Arc<ClientConfig>,
    reuse: bool,
    /// Configurations for servers that sessions are kept of: no server gets another one's.
    servers: Mutex<HashMap<String, Arc<ClientConfig>>>,
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
        let crypto = CryptoProvider { cipher_suites, kx_groups: groups::auto(), ..(**provider()).clone() };
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto))
            .with_protocol_versions(&settings.protocols.versions())
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Servers { trust: settings.trust.clone() }));
        let mut config = match &settings.certificate {
            Some(certified) => builder.with_client_cert_resolver(Arc::new(One(Arc::clone(certified)))),
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = settings.send_name;
        config.alpn_protocols = settings.alpn.clone();
        config.resumption = Resumption::disabled();
        Ok(Context { config: Arc::new(config), reuse: settings.reuse, servers: Mutex::default() })
    }

    /// What a handshake takes in which this certificate is shown. Its session is not kept: it would be the certificate's.
    pub fn with(&self, certificate: Arc<CertifiedKey>) -> Arc<ClientConfig> {
        let mut config = (*self.config).clone();
        config.client_auth_cert_resolver = Arc::new(One(certificate));
        Arc::new(config)
    }

    /// What a handshake with this server takes.
    pub fn for_server(&self, address: &str) -> Arc<ClientConfig> {
        if !self.reuse {
            return Arc::clone(&self.config);
        }
        let Ok(mut servers) = self.servers.lock() else { return Arc::clone(&self.config) };
        if let Some(known) = servers.get(address) {
            return Arc::clone(known);
        }
        if servers.len() >= SERVERS {
            servers.clear();
        }
        let mut config = (*self.config).clone();
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        let config = Arc::new(config);
        servers.insert(address.to_string(), Arc::clone(&config));
        config
    }
}

/// The name of a server in rustls' form. One that cannot be a host's is not sent, and no certificate is for it.
pub fn server_name(name: &[u8]) -> ServerName<'static> {
    let name = std::str::from_utf8(name).unwrap_or_default();
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    ServerName::try_from(address.to_string()).unwrap_or(ServerName::from(IpAddr::from([0, 0, 0, 0])))
}

/// The one certificate that there is.
#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesClientCert for One {
    fn resolve(&self, _names: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
