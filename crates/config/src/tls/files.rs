//! Certificates, keys, passwords and lists of revoked certificates: read once each.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use balanza_tls::certificates::{self, FileError};
use balanza_tls::ocsp;
use balanza_tls::pki_types::CertificateDer;
use balanza_tls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::drafts::{Crls, Named, Passwords};
use crate::lexer::Word;
use crate::load::Builder;
use crate::tree::{Statement, plain};

impl Builder<'_> {
    /// A path relative to the configuration's directory.
    pub fn conf_path(&self, bytes: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        let file = plain(&self.options.prefix.join(&self.options.file));
        let directory = file.parent().unwrap_or(&self.options.prefix);
        plain(&directory.join(std::ffi::OsStr::from_bytes(bytes)))
    }

    /// A word that names a certificate or a key, by variables or without.
    pub fn tls_name(&mut self, s: &Statement) -> Option<Named> {
        let word = self.tls_word(s)?;
        self.template(word)?;
        Some(Arc::new(word.clone()))
    }

    /// What is not in OpenSSL's stores.
    fn tls_word<'s>(&mut self, s: &'s Statement) -> Option<&'s Word> {
        let word = &s.words[1];
        if word.value.starts_with(b"engine:") || word.value.starts_with(b"store:") {
            let hint = "Balanza reads certificates and keys from files, and after \"data:\"";
            self.error_hint(word.span, "keys of OpenSSL's engines and stores are not possible", hint);
            return None;
        }
        Some(word)
    }

    /// The certificates of `ssl_trusted_certificate` and the like.
    pub fn tls_trusted(&mut self, s: &Statement) -> Option<Arc<[CertificateDer<'static>]>> {
        let word = &s.words[1];
        let text = self.tls_text(word, "certificate", false)?;
        match certificates::read_chain(&text) {
            Ok(chain) => Some(chain.into()),
            Err(error) => self.tls_failed(word, "certificate", &error),
        }
    }

    /// `ssl_crl`.
    pub fn tls_crls(&mut self, s: &Statement) -> Option<Crls> {
        let word = &s.words[1];
        let text = self.tls_text(word, "revocation list", false)?;
        match certificates::read_crls(&text) {
            Ok(lists) => Some(lists.into()),
            Err(error) => self.tls_failed(word, "revocation list", &error),
        }
    }

    /// `ssl_password_file`.
    pub fn tls_passwords(&mut self, s: &Statement) -> Option<Passwords> {
        let text = self.tls_text(&s.words[1], "password file", true)?;
        Some(certificates::passwords(&text).into())
    }

    /// A chain with its key; each pair is read once. What is wrong with it is said once, too.
    pub fn tls_certificate(
        &mut self,
        certificate: &Named,
        key: &Named,
        passwords: &[Zeroizing<Vec<u8>>],
        staple: Option<&Named>,
    ) -> Option<Arc<CertifiedKey>> {
        let stapled = staple.map(|word| word.value.clone()).unwrap_or_default();
        let names = (certificate.value.clone(), key.value.clone(), stapled);
        if let Some(known) = self.certificates.get(&names) {
            return known.clone();
        }
        let mut certified = self.load_certificate(certificate, key, passwords);
        if let (Some(known), Some(word)) = (&certified, staple) {
            let ocsp = self.tls_response(word);
            certified = ocsp.map(|ocsp| Arc::new(CertifiedKey { ocsp: Some(ocsp), ..CertifiedKey::clone(known) }));
        }
        self.certificates.insert(names, certified.clone());
        certified
    }

    /// `ssl_stapling_file`.
    fn tls_response(&mut self, word: &Word) -> Option<Vec<u8>> {
        let response = self.tls_text(word, "OCSP response", false)?;
        if !ocsp::is_response(&response) {
            let message = format!("cannot load OCSP response \"{}\": it is not one in DER", shown(word));
            self.error_hint(word.span, message, "write it with: openssl ocsp … -respout FILE");
            return None;
        }
        Some(response.to_vec())
    }

    fn load_certificate(
        &mut self,
        certificate: &Named,
        key: &Named,
        passwords: &[Zeroizing<Vec<u8>>],
    ) -> Option<Arc<CertifiedKey>> {
        let text = self.tls_text(certificate, "certificate", false)?;
        let chain = match certificates::read_chain(&text) {
            Ok(chain) => chain,
            Err(error) => return self.tls_failed(certificate, "certificate", &error),
        };
        let text = self.tls_text(key, "certificate key", true)?;
        match certificates::read_key(&text, passwords).and_then(|key| certificates::certified(chain, key)) {
            Ok(certified) => Some(certified),
            Err(FileError::Mismatch) => {
                let (of, named) = (shown(certificate), shown(key));
                self.error(key.span, format!("the key \"{named}\" does not belong to the certificate \"{of}\""));
                None
            }
            Err(error) => self.tls_failed(key, "certificate key", &error),
        }
    }

    /// The contents of a file, or what follows `data:`.
    pub fn tls_text(&mut self, word: &Word, what: &str, secret: bool) -> Option<Zeroizing<Vec<u8>>> {
        if let Some(data) = word.value.strip_prefix(b"data:") {
            return Some(Zeroizing::new(data.to_vec()));
        }
        let path = self.conf_path(&word.value);
        let read: io::Result<Zeroizing<Vec<u8>>> = match secret {
            true => self.source.secret(&path).map(|secret| Zeroizing::new(secret.expose().to_vec())),
            false => self.source.data(&path).map(Zeroizing::new),
        };
        match read {
            Ok(text) => Some(text),
            Err(error) => {
                let reason = crate::tree::os_error(&error);
                self.error(word.span, format!("cannot load {what} \"{}\": {reason}", path.display()));
                None
            }
        }
    }

    fn tls_failed<T>(&mut self, word: &Word, what: &str, error: &FileError) -> Option<T> {
        let message = format!("cannot load {what} \"{}\": {error}", shown(word));
        match error {
            FileError::OldEncryption => {
                let hint = "convert it: openssl pkcs8 -topk8 -in OLD -out NEW";
                self.error_hint(word.span, message, hint);
            }
            FileError::Encrypted => self.error_hint(word.span, message, "name a file with it in ssl_password_file"),
            _ => self.error(word.span, message),
        }
        None
    }
}

/// A file's name; never what follows `data:`, which may be a key.
pub(super) fn shown(word: &Word) -> String {
    if word.value.starts_with(b"data:") { "data:…".into() } else { word.text() }
}
