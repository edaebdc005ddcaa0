//! `pass`: to which listening socket a connection is handed.

use std::net::SocketAddr;

use crate::address::{self, Host, Use};
use crate::load::Builder;
use crate::model::{ListenAddress, Pass, StreamTarget};
use crate::tree::Statement;

impl Builder<'_> {
    /// `pass`.
    pub fn pass_to(&mut self, s: &Statement) -> Option<StreamTarget> {
        let word = &s.words[1];
        let template = self.template(word)?;
        let Some(text) = template.as_literal() else { return Some(StreamTarget::Pass(Pass::Dynamic(template))) };
        let parsed = match address::parse(text, 0, Use::Server) {
            Ok(parsed) => parsed,
            Err(problem) => {
                self.error(word.span, format!("{problem} in \"{}\" of the \"pass\" directive", word.text()));
                return None;
            }
        };
        let address = match parsed.host {
            Host::Unix(path) => ListenAddress::Unix(path),
            Host::Name(_) => {
                let hint = "write the IP address and the port of a \"listen\" directive, or its unix: path";
                self.error_hint(word.span, "\"pass\" directive has no addresses", hint);
                return None;
            }
            Host::Ip(_) if parsed.no_port => {
                self.error(word.span, "\"pass\" directive has no port");
                return None;
            }
            Host::Ip(ip) => ListenAddress::Inet(SocketAddr::new(ip, parsed.port)),
        };
        Some(StreamTarget::Pass(Pass::To(address)))
    }
}
