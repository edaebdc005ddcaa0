//! A certificate with the latest response of OCSP: responses are put here when they were fetched, and handshakes take them.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::CertifiedKey;

use crate::ocsp::{self, CertId, Unusable};
use crate::verification::Trust;

/// A certificate as clients are shown it.
#[derive(Debug, Clone)]
pub enum Shown {
    /// As it is, with the response of `ssl_stapling_file` if there is one.
    Plain(Arc<CertifiedKey>),
    /// With the latest response.
    Stapled(Arc<Staple>),
}

impl Shown {
    /// The certificate without a response that was fetched.
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        match self {
            Shown::Plain(certified) => certified,
            Shown::Stapled(staple) => &staple.certified,
        }
    }

    /// What a handshake shows at present.
    pub(crate) fn at_present(&self) -> Arc<CertifiedKey> {
        match self {
            Shown::Plain(certified) => Arc::clone(certified),
            Shown::Stapled(staple) => staple.at(UnixTime::now()),
        }
    }
}

/// A certificate whose responses are fetched.
#[derive(Debug)]
pub struct Staple {
    certified: Arc<CertifiedKey>,
    id: CertId,
    issuer: CertificateDer<'static>,
    /// `ssl_stapling_verify`: what the certificate and so its issuer must be trusted by.
    trust: Option<Trust>,
    current: ArcSwapOption<Current>,
}

#[derive(Debug)]
struct Current {
    certified: Arc<CertifiedKey>,
    fetched: UnixTime,
    until: UnixTime,
}

impl Staple {
    /// Without a response yet. The issuer is looked for behind the certificate, then among `others`; none if it is not there.
    pub fn new(
        certified: Arc<CertifiedKey>,
        others: &[CertificateDer<'static>],
        trust: Option<Trust>,
    ) -> Option<Staple> {
        let (leaf, chain) = certified.cert.split_first()?;
        let issuer = ocsp::issuer_of(leaf, chain.iter().chain(others))?.clone();
        let id = CertId::new(leaf, &issuer)?;
        Some(Staple { id, issuer, trust, current: ArcSwapOption::empty(), certified })
    }

    /// The certificate without a response.
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    /// The certificates that the issuer must be trusted by; empty if it need not be.
    pub fn trusted(&self) -> &[CertificateDer<'static>] {
        self.trust.as_ref().map(Trust::certificates).unwrap_or_default()
    }

    /// The request for a response.
    ///
    /// # Errors
    /// The certificate's serial number is too long.
    pub fn request(&self) -> Result<Vec<u8>, Unusable> {
        Ok(self.id.request()?)
    }

    /// Takes a response, if it is valid and the certificate is good. If the certificate is revoked, the response before it is
    /// not shown any more either. All others stay.
    ///
    /// # Errors
    /// Why the response is not used.
    pub fn take(&self, response: Vec<u8>, now: UnixTime) -> Result<(), Unusable> {
        if let Some(trust) = &self.trust {
            trust.verify_server(&self.certified.cert, now).map_err(|why| Unusable::Untrusted(why.reason))?;
        }
        match ocsp::verify(&response, &self.id, &self.issuer, now) {
            Ok(until) => {
                let certified = CertifiedKey { ocsp: Some(response), ..CertifiedKey::clone(&self.certified) };
                self.current.store(Some(Arc::new(Current { certified: Arc::new(certified), fetched: now, until })));
                Ok(())
            }
            Err(why) => {
                if why == Unusable::Revoked {
                    self.current.store(None);
                }
                Err(why)
            }
        }
    }

    /// When the present response was fetched, and until when it holds.
    pub fn times(&self) -> Option<(UnixTime, UnixTime)> {
        self.current.load().as_ref().map(|current| (current.fetched, current.until))
    }

    /// Takes over the response that another configuration has for the same certificate.
    pub fn continue_from(&self, before: &Staple) {
        let is_same =
            self.certified.cert == before.certified.cert && self.id == before.id && self.trusted() == before.trusted();
        if let (true, Some(current)) = (is_same, &*before.current.load()) {
            let ocsp = current.certified.ocsp.clone();
            let certified = Arc::new(CertifiedKey { ocsp, ..CertifiedKey::clone(&self.certified) });
            let (fetched, until) = (current.fetched, current.until);
            self.current.store(Some(Arc::new(Current { certified, fetched, until })));
        }
    }

    /// The certificate, with its response if that holds at a time.
    fn at(&self, now: UnixTime) -> Arc<CertifiedKey> {
        match &*self.current.load() {
            Some(current) if now < current.until => Arc::clone(&current.certified),
            _ => Arc::clone(&self.certified),
        }
    }
}
