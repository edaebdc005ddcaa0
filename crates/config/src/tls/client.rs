//! `proxy_ssl_…`: the client's side, to servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use balanza_tls::client::{Context, Settings};
use balanza_tls::verification::Trust;

use crate::diagnostics::Span;
use crate::drafts::{ClientDraft, ClientUse};
use crate::load::Builder;
use crate::model::UpstreamTls;

impl Builder<'_> {
    /// The context of a complete location or server that stands at `at`. Those that say nothing else share one.
    pub fn client_tls(&mut self, draft: &Arc<ClientDraft>, what: ClientUse, at: Span) -> Option<Arc<UpstreamTls>> {
        let mut known = self.client_contexts.iter();
        if let Some((.., known)) = known.find(|(known, it, _)| Arc::ptr_eq(known, draft) && *it == what) {
            return known.clone();
        }
        let tls = self.new_client_tls(draft, what, at).map(Arc::new);
        self.client_contexts.push((Arc::clone(draft), what, tls.clone()));
        tls
    }

    fn new_client_tls(&mut self, draft: &ClientDraft, what: ClientUse, at: Span) -> Option<UpstreamTls> {
        let module = if what == ClientUse::Grpc { "grpc" } else { "proxy" };
        let passwords = draft.passwords.clone().unwrap_or_else(|| Arc::new([]));
        // An empty name takes back one that was inherited.
        let (certificate, named) = match (draft.certificate.as_ref().filter(|word| !word.value.is_empty()), &draft.key)
        {
            (None, _) => (None, None),
            (Some(certificate), None) => {
                let text = certificate.text();
                let message = format!("no \"{module}_ssl_certificate_key\" is defined for certificate \"{text}\"");
                self.error(certificate.span, message);
                return None;
            }
            (Some(certificate), Some(key)) => {
                match self.named_certificates([(certificate, key)].into_iter(), &passwords, draft.cache)? {
                    None => (Some(self.tls_certificate(certificate, key, &passwords, None)?), None),
                    named => (None, named),
                }
            }
        };
        let trust = match (draft.verify, &draft.trusted) {
            (false, _) => None,
            (true, None) => {
                self.error(at, format!("no {module}_ssl_trusted_certificate for {module}_ssl_verify"));
                return None;
            }
            (true, Some(trusted)) => {
                let crls = draft.crls.as_deref().unwrap_or_default();
                match Trust::new(trusted.to_vec(), draft.depth).and_then(|trust| trust.with_crls(crls)) {
                    Ok(trust) => Some(trust),
                    Err(problem) => {
                        self.error(at, format!("servers cannot be verified: {problem}"));
                        return None;
                    }
                }
            }
        };
        let settings = Settings {
            certificate,
            protocols: draft.negotiation.protocols,
            suites: draft.negotiation.suites.clone(),
            suites_tls13: draft.negotiation.suites_tls13.clone(),
            trust,
            send_name: draft.send_name,
            reuse: draft.reuse,
            alpn: match what {
                ClientUse::Http2 | ClientUse::Grpc => vec![b"h2".to_vec()],
                ClientUse::Http1 | ClientUse::Stream => Vec::new(),
            },
        };
        match Context::new(&settings) {
            Ok(context) => {
                static NEXT: AtomicU64 = AtomicU64::new(0);
                let number = NEXT.fetch_add(1, Relaxed);
                Some(UpstreamTls { number, context: Arc::new(context), named })
            }
            Err(problem) => {
                self.error(at, format!("TLS is not possible with these settings: {problem}"));
                None
            }
        }
    }
}
