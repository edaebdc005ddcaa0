//! Certificates for trying things out.

use anyhow::Context as _;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

/// A certificate that nobody has signed, and its key, both in PEM.
pub struct SelfSigned {
    /// The certificate.
    pub certificate: String,
    /// Its private key, in PKCS#8.
    pub key: String,
}

impl SelfSigned {
    /// Makes one for these hosts or addresses; the first is its common name.
    ///
    /// # Errors
    /// A name that no certificate can have, or none at all.
    pub fn new(names: &[String]) -> anyhow::Result<Self> {
        let first = names.first().context("a certificate needs a name")?;
        let mut params = CertificateParams::new(names)
            .with_context(|| format!("cannot make a certificate for {}", names.join(", ")))?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, first.as_str());
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params.self_signed(&key).context("cannot sign the certificate")?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
