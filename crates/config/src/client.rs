//! What is known of a client: `set_real_ip_from` and the like.

use crate::address::{self, Host};
use crate::http::network;
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{AccessWho, RealIpHeader};
use crate::tree::Statement;

impl Builder<'_> {
    /// `set_real_ip_from`: an address, a network, a name, or `unix:`.
    pub fn real_ip_from(&mut self, s: &Statement) -> Vec<AccessWho> {
        let word = &s.words[1];
        if word.value == b"unix:" {
            return vec![AccessWho::Unix];
        }
        if let Some((ip, length, clean)) = network(&word.value) {
            if !clean {
                self.warning(word.span, format!("low address bits of {} are meaningless", word.text()));
            }
            return vec![AccessWho::Net(ip, length)];
        }
        self.trusted_name(word)
    }

    fn trusted_name(&mut self, word: &Word) -> Vec<AccessWho> {
        match address::resolve(self.source, &Host::Name(word.text()), 0) {
            Ok(found) => found.iter().map(|a| AccessWho::Net(a.ip(), if a.is_ipv4() { 32 } else { 128 })).collect(),
            Err(problem) => {
                let message = format!("{problem} in set_real_ip_from \"{}\"", word.text());
                self.error_hint(word.span, message, "an address, a network such as 10.0.0.0/8, a host name, or unix:");
                Vec::new()
            }
        }
    }

    /// `real_ip_header`.
    pub fn real_ip_header(&mut self, s: &Statement) -> Option<RealIpHeader> {
        let name = &s.words[1].value;
        Some(match name.as_slice() {
            b"X-Real-IP" => RealIpHeader::XRealIp,
            b"proxy_protocol" => RealIpHeader::ProxyProtocol,
            _ => RealIpHeader::Field(name.to_ascii_lowercase().into()),
        })
    }
}
