//! `ssl_…` of servers and `proxy_ssl_…`: what `http` and `stream` have in common.
//!
//! A draft is what a block says; a context is made of it where a server or a location is complete. Certificates are read
//! with everything else, so that a wrong one is found before a configuration is used.

mod client;
mod files;
mod server;
mod stapling;

use balanza_balancing::registry::nearest;
use balanza_tls::groups::{self, Group};
use balanza_tls::protocols::Protocols;
use balanza_tls::{SupportedCipherSuite, ciphers};

use crate::drafts::Negotiation;
use crate::load::Builder;
use crate::tree::Statement;

pub(crate) use server::ServerDraft;

impl Builder<'_> {
    /// `ssl_protocols` or `proxy_ssl_protocols`.
    pub fn tls_protocols(&mut self, s: &Statement) -> Option<Protocols> {
        let mut protocols = Protocols::NONE;
        let mut old = Vec::new();
        for word in s.args() {
            match word.value.as_slice() {
                b"TLSv1.3" => protocols.tls13 = true,
                b"TLSv1.2" => protocols.tls12 = true,
                b"SSLv2" | b"SSLv3" | b"TLSv1" | b"TLSv1.1" => old.push(word.text()),
                _ => {
                    let text = word.text();
                    let known = ["TLSv1.2", "TLSv1.3", "TLSv1", "TLSv1.1"];
                    let hint = nearest(&text, known).map(|near| format!("did you mean `{near}`?"));
                    let message = format!("invalid value \"{text}\"");
                    self.report(crate::diagnostics::Severity::Error, word.span, message).hint = hint;
                    return None;
                }
            }
        }
        let old = old.join(" and ");
        if protocols == Protocols::NONE {
            let hint = "add TLSv1.2 or TLSv1.3";
            self.error_hint(s.span(), format!("Balanza does not have {old}, and nothing else may be used"), hint);
            return None;
        }
        if !old.is_empty() {
            self.warning(s.span(), format!("Balanza does not have {old}: clients that have nothing newer are refused"));
        }
        Some(protocols)
    }

    /// `ssl_ciphers` or `proxy_ssl_ciphers`. Suites that do not exist here are named once for a configuration.
    pub fn tls_ciphers(&mut self, s: &Statement) -> Option<Vec<SupportedCipherSuite>> {
        let word = &s.words[1];
        match ciphers::select(&word.text()) {
            Ok(selection) => {
                if !selection.left_out.is_empty() && !std::mem::replace(&mut self.ciphers_left_out, true) {
                    let names = selection.left_out.join(", ");
                    self.warning(word.span, format!("cipher suites that Balanza does not have are left out: {names}"));
                }
                Some(selection.suites)
            }
            Err(command) => {
                self.error(word.span, format!("invalid command \"{command}\" in the list of cipher suites"));
                None
            }
        }
    }

    /// `ssl_ecdh_curve`.
    pub fn tls_groups(&mut self, s: &Statement) -> Option<Vec<Group>> {
        let word = &s.words[1];
        let selection = match groups::select(&word.text()) {
            Ok(selection) => selection,
            Err(name) => {
                self.error(word.span, format!("unknown group \"{name}\""));
                return None;
            }
        };
        let left_out = selection.left_out.join(", ");
        if selection.groups.is_empty() {
            let hint = "add X25519 or prime256v1";
            self.error_hint(word.span, format!("Balanza does not have {left_out}, and no other group is named"), hint);
            return None;
        }
        if !left_out.is_empty() {
            self.warning(word.span, format!("groups that Balanza does not have are left out: {left_out}"));
        }
        Some(selection.groups)
    }

    /// `ssl_conf_command` or `proxy_ssl_conf_command`: what OpenSSL's configuration would say.
    pub fn tls_command(&mut self, negotiation: &mut Negotiation, s: &Statement) {
        let (command, value) = (&s.words[1], &s.words[2]);
        match command.text().to_ascii_lowercase().as_str() {
            "ciphersuites" => match ciphers::select_tls13(&value.text()) {
                Ok(suites) => negotiation.suites_tls13 = suites,
                Err(name) => self.error(value.span, format!("Balanza does not have the cipher suite \"{name}\"")),
            },
            "minprotocol" => match value.value.as_slice() {
                b"TLSv1.3" => negotiation.protocols.tls12 = false,
                b"None" | b"SSLv3" | b"TLSv1" | b"TLSv1.1" | b"TLSv1.2" => {}
                _ => self.invalid_value(s, value),
            },
            "maxprotocol" => match value.value.as_slice() {
                b"None" | b"TLSv1.3" => {}
                b"TLSv1.2" => negotiation.protocols.tls13 = false,
                _ => self.invalid_value(s, value),
            },
            "options" if value.value.split(|byte| *byte == b',').all(|option| obey(negotiation, option)) => {}
            _ => {
                let hint = "Balanza knows Ciphersuites, MinProtocol, MaxProtocol and some Options";
                self.error_hint(command.span, format!("\"{} {}\" is not possible", command.text(), value.text()), hint);
            }
        }
    }
}

/// Obeys an option of OpenSSL; false for one that asks for something that is not possible. Most of those that are known ask
/// for what is done anyway, or cannot change an answer.
fn obey(negotiation: &mut Negotiation, option: &[u8]) -> bool {
    match option {
        b"SessionTicket" => negotiation.tickets = Some(true),
        b"-SessionTicket" | b"NoTicket" => negotiation.tickets = Some(false),
        b"ServerPreference" => negotiation.prefer_server = Some(true),
        b"-ServerPreference" => negotiation.prefer_server = Some(false),
        b"PrioritizeChaCha"
        | b"-Compression"
        | b"NoRenegotiation"
        | b"-Renegotiation"
        | b"KTLS"
        | b"NoResumptionOnRenegotiation"
        | b"ExtendedMasterSecret"
        | b"EncryptThenMac"
        | b"-UnsafeLegacyRenegotiation"
        | b"MiddleboxCompat" => {}
        _ => return false,
    }
    true
}
