//! `ssl_stapling`: from where the OCSP responses of a certificate come.

use std::sync::Arc;

use balanza_tls::ocsp;
use balanza_tls::sign::CertifiedKey;
use balanza_tls::stapling::{Shown, Staple};
use balanza_tls::verification::Trust;

use super::ServerDraft;
use crate::address::{self, Host, Use};
use crate::drafts::Named;
use crate::load::Builder;
use crate::model::{Resolver, Responder, Stapling};

/// The port of responders.
const PORT: u16 = 80;
/// How many certificates may stand between an issuer and a trusted one: `ssl_verify_depth` is for clients.
const DEPTH: usize = 100;

impl Builder<'_> {
    /// A certificate as clients are shown it. As in NGINX, it is shown without a response if that is not possible.
    pub(super) fn shown(
        &mut self,
        draft: &ServerDraft,
        named: &Named,
        certified: Arc<CertifiedKey>,
        resolver: &Arc<Resolver>,
    ) -> Shown {
        if !draft.stapling || certified.ocsp.is_some() {
            return Shown::Plain(certified);
        }
        // Servers may have the same certificate.
        let trusted = draft.trusted_certificate.as_deref().filter(|_| draft.stapling_verify).unwrap_or_default();
        let responder = draft.responder.as_ref().map(|word| &word.value);
        let same = |known: &&Arc<Stapling>| {
            Arc::ptr_eq(known.staple.certified(), &certified)
                && known.given.as_ref() == responder
                && known.staple.trusted() == trusted
                && known.resolver == *resolver
        };
        if let Some(known) = self.staplings.iter().find(same) {
            return Shown::Stapled(Arc::clone(&known.staple));
        }
        match self.stapling(draft, &certified, resolver) {
            Ok(stapling) => {
                let shown = Shown::Stapled(Arc::clone(&stapling.staple));
                self.staplings.push(Arc::new(stapling));
                shown
            }
            Err((why, hint)) => {
                let message =
                    format!("\"ssl_stapling\" ignored, {why} for certificate \"{}\"", super::files::shown(named));
                self.warning_hint(named.span, message, hint);
                Shown::Plain(certified)
            }
        }
    }

    fn stapling(
        &mut self,
        draft: &ServerDraft,
        certified: &Arc<CertifiedKey>,
        resolver: &Arc<Resolver>,
    ) -> Result<Stapling, (String, &'static str)> {
        let trusted = draft.trusted_certificate.as_deref().unwrap_or_default();
        let trust = match draft.stapling_verify {
            false => None,
            true if trusted.is_empty() => {
                let hint = "name the certificates of the authorities in ssl_trusted_certificate";
                return Err(("no ssl_trusted_certificate for ssl_stapling_verify".into(), hint));
            }
            true => Some(Trust::new(trusted.to_vec(), DEPTH).map_err(|why| (why, "see ssl_trusted_certificate"))?),
        };
        let staple = Staple::new(Arc::clone(certified), trusted, trust).ok_or((
            "issuer certificate not found".into(),
            "add it behind the certificate in its file, or to ssl_trusted_certificate",
        ))?;
        let given = draft.responder.as_ref().map(|word| word.value.clone());
        let url = match &draft.responder {
            Some(word) => word.text(),
            None => certified.cert.first().and_then(ocsp::responder_of).ok_or((
                "no OCSP responder URL".into(),
                "name it with ssl_stapling_responder; some authorities have ended their responders",
            ))?,
        };
        let responder = self
            .responder(&url, resolver)
            .map_err(|(why, hint)| (format!("{why} in OCSP responder \"{url}\""), hint))?;
        let name = certified.cert.first().and_then(balanza_tls::identity::of).map(|it| it.subject).unwrap_or_default();
        Ok(Stapling { staple: Arc::new(staple), name, responder, given, resolver: Arc::clone(resolver) })
    }

    /// Where a responder is. Its name is resolved now if that is not possible later.
    fn responder(&mut self, url: &str, resolver: &Resolver) -> Result<Responder, (&'static str, &'static str)> {
        const FORM: &str = "write http://HOST/PATH; responses are signed and need no TLS";
        let rest = url.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).map(|_| &url[7..]);
        let rest = rest.ok_or(("invalid URL prefix", FORM))?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(("invalid character", FORM));
        }
        let address = address::parse(rest.as_bytes(), PORT, Use::Url).map_err(|why| (why, FORM))?;
        let addresses = match &address.host {
            Host::Unix(_) => return Err(("invalid host", FORM)),
            Host::Name(_) if !resolver.servers.is_empty() => Vec::new(),
            host => address::resolve(self.source, host, address.port)
                .map_err(|why| (why, "with a resolver the name is resolved when it is needed"))?,
        };
        let text = String::from_utf8_lossy(&address.host_text).into_owned();
        let uri = String::from_utf8_lossy(&address.uri).into_owned();
        Ok(Responder {
            authority: if address.no_port { text.clone() } else { format!("{text}:{}", address.port) },
            host: text,
            port: address.port,
            path: if uri.starts_with('/') { uri } else { format!("/{uri}") },
            addresses,
        })
    }
}
