//! Certificates and private keys from their files.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::der::SecretDocument;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys};
use zeroize::Zeroizing;

use crate::provider;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is not PEM, or something in it is not what it says.
    #[error("{0}")]
    Broken(String),
    /// There is nothing of what is looked for.
    #[error("there is no {0} in it")]
    Missing(&'static str),
    /// The key is encrypted, and no password is given.
    #[error("the key is encrypted, and no password is given")]
    Encrypted,
    /// None of the passwords opens it.
    #[error("none of the passwords decrypts the key")]
    WrongPassword,
    /// It is encrypted in the way of OpenSSL's first releases.
    #[error("the key is encrypted in OpenSSL's old format")]
    OldEncryption,
    /// Not a key that can sign here.
    #[error("the key cannot be used: {0}")]
    Unusable(String),
    /// It belongs to another certificate.
    #[error("the key does not belong to the certificate")]
    Mismatch,
}

const NOT_BASE64: &str = "the PEM text is not Base64";

fn broken(error: pem::Error) -> FileError {
    FileError::Broken(match error {
        pem::Error::MissingSectionEnd { .. } => "a section of the PEM text has no end".into(),
        pem::Error::IllegalSectionStart { .. } => "a section of the PEM text has no proper beginning".into(),
        pem::Error::Base64Decode(_) => NOT_BASE64.into(),
        error => error.to_string(),
    })
}

/// The certificates of a PEM text: of a chain, the server's first.
///
/// # Errors
/// The text is broken, or none is in it.
pub fn read_chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(broken)?;
    if chain.is_empty() {
        return Err(FileError::Missing("certificate"));
    }
    for certificate in &chain {
        x509_parser::parse_x509_certificate(certificate)
            .map_err(|_| FileError::Broken("a certificate is not valid X.509".into()))?;
    }
    Ok(chain)
}

/// The revocation lists of a PEM text.
///
/// # Errors
/// The text is broken, or none is in it.
pub fn read_crls(text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let lists: Vec<_> = CertificateRevocationListDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(broken)?;
    if lists.is_empty() {
        return Err(FileError::Missing("revocation list"));
    }
    Ok(lists)
}

/// The private key of a PEM text: PKCS#8, encrypted or not, PKCS#1 or SEC1. The passwords are tried in their order.
///
/// # Errors
/// See [`FileError`].
pub fn read_key(text: &[u8], passwords: &[Zeroizing<Vec<u8>>]) -> Result<PrivateKeyDer<'static>, FileError> {
    if contains(text, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") {
        return decrypt(text, passwords);
    }
    if contains(text, b"Proc-Type: 4,ENCRYPTED") {
        return Err(FileError::OldEncryption);
    }
    let (kind, der) = pem_key(text)?;
    Ok(match kind {
        KeyKind::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
        KeyKind::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
        KeyKind::Sec1 => PrivateKeyDer::Sec1(der.into()),
    })
}

#[derive(Clone, Copy)]
enum KeyKind {
    Pkcs8,
    Pkcs1,
    Sec1,
}

/// The first private key of a PEM text. General readers of PEM leave its lines in memory that they free; this one wipes them.
fn pem_key(text: &[u8]) -> Result<(KeyKind, Vec<u8>), FileError> {
    const KINDS: [(&[u8], &[u8], KeyKind); 3] = [
        (b"-----BEGIN PRIVATE KEY-----", b"-----END PRIVATE KEY-----", KeyKind::Pkcs8),
        (b"-----BEGIN RSA PRIVATE KEY-----", b"-----END RSA PRIVATE KEY-----", KeyKind::Pkcs1),
        (b"-----BEGIN EC PRIVATE KEY-----", b"-----END EC PRIVATE KEY-----", KeyKind::Sec1),
    ];
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let found = lines.find_map(|line| KINDS.into_iter().find(|(begin, ..)| line == *begin));
    let (_, end, kind) = found.ok_or(FileError::Missing("private key"))?;
    // Room for all of it: a vector that grows leaves copies behind.
    let mut base64 = Zeroizing::new(Vec::with_capacity(text.len()));
    loop {
        let line = lines.next().ok_or_else(|| broken(pem::Error::MissingSectionEnd { end_marker: end.to_vec() }))?;
        if line == end {
            break;
        }
        base64.extend_from_slice(line);
    }
    let mut der = Zeroizing::new(vec![0; base64.len()]);
    let length = STANDARD.decode_slice(&*base64, &mut der).map_err(|_| FileError::Broken(NOT_BASE64.into()))?;
    Ok((kind, der[..length].to_vec()))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn decrypt(text: &[u8], passwords: &[Zeroizing<Vec<u8>>]) -> Result<PrivateKeyDer<'static>, FileError> {
    let not_pem = || FileError::Broken("the PEM text of the encrypted key is broken".into());
    let text = std::str::from_utf8(text).map_err(|_| not_pem())?;
    let start = text.find("-----BEGIN ENCRYPTED PRIVATE KEY-----").ok_or_else(not_pem)?;
    let (_, document) = SecretDocument::from_pem(&text[start..]).map_err(|_| not_pem())?;
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|error| FileError::Unusable(format!("its encryption is not supported ({error})")))?;
    if passwords.is_empty() {
        return Err(FileError::Encrypted);
    }
    let key = passwords.iter().find_map(|password| encrypted.decrypt(password.as_slice()).ok());
    let key = key.ok_or(FileError::WrongPassword)?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec())))
}

/// A chain with its key, ready to sign.
///
/// # Errors
/// The key cannot sign, or belongs to another certificate.
pub fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, FileError> {
    pair(chain, signing_key(key)?)
}

/// A key, ready to sign.
///
/// # Errors
/// It cannot sign.
pub fn signing_key(key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, FileError> {
    provider().key_provider.load_private_key(key).map_err(|error| FileError::Unusable(error.to_string()))
}

/// A chain with its key.
///
/// # Errors
/// The key belongs to another certificate.
pub fn pair(chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> Result<Arc<CertifiedKey>, FileError> {
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(Error::InconsistentKeys(_)) => Err(FileError::Mismatch),
        Err(error) => Err(FileError::Broken(error.to_string())),
    }
}

/// The passwords of `ssl_password_file`: one a line.
pub fn passwords(text: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty()).map(|line| Zeroizing::new(line.to_vec())).collect()
}

/// When a certificate ends, in seconds since 1970.
pub fn expires(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}
