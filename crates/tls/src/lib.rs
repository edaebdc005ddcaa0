//! TLS as Balanza uses it, on top of rustls: certificates and their keys, what may be negotiated in OpenSSL's spelling,
//! sessions and tickets, verification of the peer, and the first message of a client ([`hello`]).
//!
//! There is no I/O here, and no connection: those are `balanza-net`'s. A [`server::Settings`] or a [`client::Settings`] is
//! what a configuration says; a context is made of it once and is shared by all connections.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod certificates;
pub mod ciphers;
pub mod client;
pub mod encode;
pub mod groups;
pub mod hello;
pub mod identity;
pub mod names;
pub mod ocsp;
pub mod protocols;
pub mod server;
pub mod sessions;
pub mod stapling;
pub mod tickets;
pub mod verification;

use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
pub use rustls::{SupportedCipherSuite, pki_types, sign};

/// The cryptography of all contexts, with everything that it can negotiate.
pub fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
    &PROVIDER
}
