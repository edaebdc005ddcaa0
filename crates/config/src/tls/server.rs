//! `ssl_…`: the server's side.

use std::sync::Arc;
use std::time::Duration;

use balanza_tls::pki_types::CertificateDer;
use balanza_tls::server::{Clients, Context, Settings, Verify};
use balanza_tls::sessions::SessionCache;
use balanza_tls::tickets::TicketKey;
use balanza_tls::verification::Trust;

use crate::diagnostics::Span;
use crate::drafts::{Crls, Named, Negotiation, Passwords};
use crate::load::Builder;
use crate::model::{CertificateCache, NamedCertificates, Resolver, ServerTls};
use crate::parameter::{Parameter, parameter, set};
use crate::template::Template;
use crate::tree::Statement;
use crate::values;

/// A megabyte has room for so many sessions, and NGINX refuses a cache smaller than this.
const CACHE_LEAST: u64 = 8 * 4096;

/// What a block says of TLS with clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerDraft {
    pub certificates: Vec<Named>,
    pub keys: Vec<Named>,
    pub passwords: Option<Passwords>,
    /// `ssl_certificate_cache`, by its number.
    pub cache: Option<usize>,
    pub negotiation: Negotiation,
    pub prefer_server: bool,
    pub sessions: Sessions,
    pub session_timeout: Duration,
    pub tickets: bool,
    pub ticket_keys: Vec<Arc<[u8]>>,
    pub verify: Option<(Verify, Span)>,
    pub depth: usize,
    pub client_certificate: Option<Arc<[CertificateDer<'static>]>>,
    pub trusted_certificate: Option<Arc<[CertificateDer<'static>]>>,
    pub crls: Option<Crls>,
    pub early_data: bool,
    /// `ssl_buffer_size`, where there is such a directive.
    pub buffer_size: Option<usize>,
    pub reject_handshake: bool,
    pub stapling: bool,
    /// `ssl_stapling_file`.
    pub staple: Option<Named>,
    /// `ssl_stapling_responder`.
    pub responder: Option<Named>,
    pub stapling_verify: bool,
    pub alpn: Vec<Vec<u8>>,
}

/// `ssl_session_cache`.
#[derive(Debug, Clone, Default)]
pub(crate) enum Sessions {
    /// Nothing is kept; tickets are, unless they are off.
    #[default]
    None,
    /// Kept by name and size in bytes.
    Shared(Arc<str>, u64),
}

/// `ssl_certificate_cache`, and whether it is off.
const CACHE: &[Parameter<(CertificateCache, bool)>] = &[
    parameter("max=", |_, (cache, _), a| {
        let max = values::number(a.value).and_then(|max| usize::try_from(max).ok());
        set(&mut cache.max, max.filter(|max| *max > 0))
    }),
    parameter("inactive=", |_, (cache, _), a| set(&mut cache.inactive, values::seconds(a.value))),
    parameter("valid=", |_, (cache, _), a| set(&mut cache.valid, values::seconds(a.value))),
    parameter("off", |_, (_, off), _| {
        *off = true;
        Ok(())
    }),
];

impl Builder<'_> {
    /// `ssl_certificate_cache` and its like: the number of the cache.
    pub fn tls_certificate_cache(&mut self, s: &Statement) -> Option<Option<usize>> {
        let seconds = Duration::from_secs;
        let mut cache = (CertificateCache { max: 0, inactive: seconds(10), valid: seconds(60) }, false);
        if !self.parameters(CACHE, &mut cache, s, 1) {
            return None;
        }
        match cache {
            (_, true) => Some(None),
            (cache, false) if cache.max == 0 => {
                self.error(s.span(), format!("\"{}\" must have the \"max\" parameter", s.name()));
                None
            }
            (cache, false) => {
                self.certificate_caches.push(cache);
                Some(Some(self.certificate_caches.len() - 1))
            }
        }
    }

    /// `ssl_session_cache`.
    pub fn ssl_session_cache(&mut self, s: &Statement) -> Option<Sessions> {
        let mut sessions = Sessions::None;
        for word in s.args() {
            let text = word.text();
            match text.split_once(':') {
                _ if matches!(&*text, "off" | "none") => sessions = Sessions::None,
                // One worker process has one cache: a worker's own is a shared one that has no name.
                _ if text == "builtin" => sessions = Sessions::Shared("builtin".into(), 5 << 20),
                Some(("builtin", count)) if values::number(count.as_bytes()).is_some_and(|count| count > 0) => {
                    sessions = Sessions::Shared("builtin".into(), 5 << 20);
                }
                Some(("shared", rest)) => {
                    let parts = rest.split_once(':').filter(|(name, _)| !name.is_empty());
                    let size = parts.and_then(|(_, size)| values::size(size.as_bytes(), false));
                    let (Some((name, _)), Some(size)) = (parts, size) else {
                        self.error(word.span, format!("invalid session cache \"{text}\""));
                        return None;
                    };
                    if size < CACHE_LEAST {
                        self.error(word.span, format!("session cache \"{text}\" is too small"));
                        return None;
                    }
                    let known = *self.session_caches.entry(name.to_string()).or_insert(size);
                    if known != size {
                        let message = format!("the size {size} of session cache \"{name}\" conflicts with {known}");
                        self.error(word.span, message);
                        return None;
                    }
                    sessions = Sessions::Shared(name.into(), size);
                }
                _ => {
                    self.error(word.span, format!("invalid session cache \"{text}\""));
                    return None;
                }
            }
        }
        Some(sessions)
    }

    /// `ssl_session_timeout`, a time of whole seconds.
    pub fn ssl_session_timeout(&mut self, s: &Statement) -> Option<Duration> {
        let time = values::seconds(&s.words[1].value);
        if time.is_none() {
            self.invalid_value(s, &s.words[1]);
        }
        time
    }

    /// `ssl_session_ticket_key`.
    pub fn ssl_session_ticket_key(&mut self, s: &Statement) -> Option<Arc<[u8]>> {
        let word = &s.words[1];
        let text = self.tls_text(word, "session ticket key", true)?;
        if let Err(problem) = TicketKey::from_file(&text) {
            self.error(word.span, format!("session ticket key file \"{}\" {problem}", word.text()));
            return None;
        }
        Some(text.as_slice().into())
    }

    /// `ssl_buffer_size`: bytes of a record.
    pub fn record_size(&mut self, s: &Statement) -> Option<usize> {
        let size: usize = self.size(s)?;
        if size == 0 {
            self.error(s.words[1].span, format!("invalid value \"{}\"", s.words[1].text()));
            return None;
        }
        Some(size.clamp(512, 16384))
    }

    /// `ssl_alpn`: protocols, best first.
    pub fn ssl_alpn(&mut self, s: &Statement) -> Option<Vec<Vec<u8>>> {
        let long = s.args().iter().find(|word| word.value.is_empty() || word.value.len() > 255);
        if let Some(word) = long {
            self.error(word.span, "the name of a protocol has 1 to 255 bytes");
            return None;
        }
        Some(s.args().iter().map(|word| word.value.clone()).collect())
    }

    /// `ssl_verify_client`.
    pub fn ssl_verify_client(&mut self, s: &Statement) -> Option<(Verify, Span)> {
        let choices = [
            ("off", Verify::Off),
            ("on", Verify::On),
            ("optional", Verify::Optional),
            ("optional_no_ca", Verify::OptionalNoCa),
        ];
        Some((self.choice(s, &choices)?, s.span()))
    }

    /// What a complete server says of TLS; none if it has no certificate.
    pub fn server_tls(
        &mut self,
        draft: &ServerDraft,
        alpn: Vec<Vec<u8>>,
        resolver: &Arc<Resolver>,
    ) -> Option<Arc<ServerTls>> {
        if draft.certificates.is_empty() && !draft.reject_handshake {
            return None;
        }
        if draft.keys.len() < draft.certificates.len() {
            let word = &draft.certificates[draft.keys.len()];
            let message = format!("no \"ssl_certificate_key\" is defined for certificate \"{}\"", word.text());
            self.error(word.span, message);
            return None;
        }
        let passwords = draft.passwords.clone().unwrap_or_else(|| Arc::new([]));
        let (mut certificates, mut names) = (Vec::new(), Vec::new());
        let pairs = draft.certificates.iter().zip(&draft.keys);
        let named = self.named_certificates(pairs, &passwords, draft.cache)?;
        let staple = draft.staple.as_ref().filter(|_| draft.stapling);
        match (&draft.certificates[..], &named) {
            ([first, ..], Some(_)) if draft.stapling => {
                let message = "\"ssl_stapling\" has no effect on certificates that are named by variables";
                self.warning(first.span, message);
            }
            _ => {}
        }
        for (certificate, key) in draft.certificates.iter().zip(&draft.keys) {
            match named {
                Some(_) => names.push(certificate.value.clone()),
                None => {
                    let certified = self.tls_certificate(certificate, key, &passwords, staple)?;
                    certificates.push(self.shown(draft, certificate, certified, resolver));
                }
            }
        }
        let clients = self.tls_clients(draft)?;
        let settings = Settings {
            certificates,
            named: names,
            protocols: draft.negotiation.protocols,
            suites: draft.negotiation.suites.clone(),
            suites_tls13: draft.negotiation.suites_tls13.clone(),
            prefer_server: draft.negotiation.prefer_server.unwrap_or(draft.prefer_server),
            groups: draft.negotiation.groups.clone(),
            sessions: match &draft.sessions {
                Sessions::None => None,
                Sessions::Shared(name, size) => Some(SessionCache::named(name, *size)),
            },
            session_timeout: draft.session_timeout,
            tickets: draft.negotiation.tickets.unwrap_or(draft.tickets),
            ticket_keys: draft.ticket_keys.iter().filter_map(|bytes| TicketKey::from_file(bytes).ok()).collect(),
            clients,
            early_data: draft.early_data,
            record_size: draft.buffer_size.unwrap_or(16384),
            alpn,
        };
        match Context::new(&settings) {
            Ok(context) => Some(Arc::new(ServerTls { context: Arc::new(context), named })),
            Err(problem) => {
                let at = draft.certificates.first().map(|word| word.span);
                let message = format!("TLS is not possible with these settings: {problem}");
                match at {
                    Some(span) => self.error(span, message),
                    None => self.diagnostics.push(crate::diagnostics::Diagnostic::new(
                        crate::diagnostics::Severity::Error,
                        &message,
                        None,
                    )),
                }
                None
            }
        }
    }

    /// Certificates and their keys, if one of them is named by variables: then all are loaded at handshakes.
    pub(super) fn named_certificates<'w>(
        &mut self,
        pairs: impl Iterator<Item = (&'w Named, &'w Named)>,
        passwords: &Passwords,
        cache: Option<usize>,
    ) -> Option<Option<NamedCertificates>> {
        let mut templates: Vec<(Template, Template)> = Vec::new();
        for (certificate, key) in pairs {
            templates.push((self.template(certificate)?, self.template(key)?));
        }
        let is_literal = |template: &Template| template.as_literal().is_some();
        if templates.iter().all(|(certificate, key)| is_literal(certificate) && is_literal(key)) {
            return Some(None);
        }
        let (directory, passwords) = (self.conf_path(b""), Arc::clone(passwords));
        Some(Some(NamedCertificates { pairs: templates, directory, passwords, cache }))
    }

    /// What is asked of clients.
    fn tls_clients(&mut self, draft: &ServerDraft) -> Option<Clients> {
        let Some((verify, span)) = draft.verify.filter(|(verify, _)| *verify != Verify::Off) else {
            return Some(Clients::default());
        };
        let (client, trusted) = (&draft.client_certificate, &draft.trusted_certificate);
        if client.is_none() && trusted.is_none() && verify != Verify::OptionalNoCa {
            self.error(span, "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client");
            return None;
        }
        let of = |certificates: &Option<Arc<[CertificateDer<'static>]>>| -> Vec<CertificateDer<'static>> {
            certificates.iter().flat_map(|certificates| certificates.iter().cloned()).collect()
        };
        let made = Trust::new([of(client), of(trusted)].concat(), draft.depth)
            .and_then(|trust| trust.with_crls(draft.crls.as_deref().unwrap_or_default()))
            .and_then(|trust| Ok((trust, Trust::new(of(client), draft.depth)?)));
        match made {
            Ok((trust, named)) => Some(Clients { verify, trust, named }),
            Err(problem) => {
                self.error(span, format!("clients cannot be verified: {problem}"));
                None
            }
        }
    }
}
