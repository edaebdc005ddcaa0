//! TLS with clients and with servers.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use balanza_tls::client;
use balanza_tls::server::Context;
use balanza_tls::stapling::Staple;
use zeroize::Zeroizing;

use super::resolver::Resolver;
use crate::template::Template;

/// What a server says of TLS.
#[derive(Debug)]
pub struct ServerTls {
    /// For handshakes; with `named`, what all of them have in common.
    pub context: Arc<Context>,
    /// Certificates that only a handshake names.
    pub named: Option<NamedCertificates>,
}

/// What a location or a server of `stream` says of TLS with servers.
#[derive(Debug)]
pub struct UpstreamTls {
    /// Tells the settings from all others that this process has had: connections that were made by settings that have gone are
    /// not those of later ones, which may stand at the same address.
    pub number: u64,
    /// For handshakes; with `named`, what all of them have in common.
    pub context: Arc<client::Context>,
    /// The one certificate that is shown, if only a request names it. None is shown if its value is empty.
    pub named: Option<NamedCertificates>,
}

/// `ssl_certificate` and `ssl_certificate_key`, or those of `proxy_ssl` and `grpc_ssl`, with variables.
pub struct NamedCertificates {
    /// The files of each certificate and its key. A value that begins with `data:` is the text itself.
    pub pairs: Vec<(Template, Template)>,
    /// Where relative paths begin.
    pub directory: PathBuf,
    /// `ssl_password_file` or its like.
    pub passwords: Arc<[Zeroizing<Vec<u8>>]>,
    /// `ssl_certificate_cache` or its like: an index into [`Config::certificate_caches`](super::Config::certificate_caches).
    pub cache: Option<usize>,
}

impl fmt::Debug for NamedCertificates {
    /// Without the passwords, and without what follows `data:`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedCertificates").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// `ssl_certificate_cache`, `proxy_ssl_certificate_cache`, `grpc_ssl_certificate_cache`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateCache {
    /// `max`: certificates and keys, each of which counts.
    pub max: usize,
    /// `inactive` (10s): what is not used for longer goes.
    pub inactive: Duration,
    /// `valid` (60s): how long a file is not looked at again.
    pub valid: Duration,
}

/// `ssl_stapling`: a certificate whose responses of OCSP are fetched.
#[derive(Debug)]
pub struct Stapling {
    /// Where they are put.
    pub staple: Arc<Staple>,
    /// The certificate's subject, for messages.
    pub name: String,
    /// From where they come.
    pub responder: Responder,
    /// `ssl_stapling_responder`, as it is written.
    pub given: Option<Vec<u8>>,
    /// `resolver` (none), for the responder's name.
    pub resolver: Arc<Resolver>,
}

/// A responder of OCSP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Responder {
    /// For the field `Host`.
    pub authority: String,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Its path, which begins with a slash.
    pub path: String,
    /// Its addresses; none if they are asked for when they are needed.
    pub addresses: Vec<SocketAddr>,
}

impl fmt::Display for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}
