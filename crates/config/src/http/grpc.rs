//! `grpc_pass` and `grpc_…`: the same settings as those of `proxy_pass`, with other defaults and nothing buffered.

use super::block::HttpBlock;
use super::proxy::Pass;
use crate::address::{self, Host, Use};
use crate::load::Builder;
use crate::model::{HttpVersion, IgnoredFields, NextUpstream, ProxyTarget, SetHeader};
use crate::template::{Part, Template, Variable};
use crate::tree::Statement;
use crate::tuning;

/// Lists that the model has combined with the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    pub set_headers: Vec<SetHeader>,
    /// In lower case.
    pub hide_headers: Vec<Box<[u8]>>,
    /// In lower case.
    pub pass_headers: Vec<Box<[u8]>>,
}

/// Fields of a response that are NGINX's own.
const HIDDEN: [&str; 7] = [
    "date",
    "server",
    "x-accel-expires",
    "x-accel-redirect",
    "x-accel-limit-rate",
    "x-accel-buffering",
    "x-accel-charset",
];

impl Written {
    fn set_headers(&self) -> Vec<SetHeader> {
        let mut headers = self.set_headers.clone();
        if !headers.iter().any(|header| header.name.eq_ignore_ascii_case(b"host")) {
            let host = Template::new(vec![Part::Variable(Variable::ProxyHost)]);
            headers.push(SetHeader { name: b"Host".as_slice().into(), value: host });
        }
        headers
    }

    fn hidden(&self) -> Vec<Box<[u8]>> {
        let hidden = HIDDEN.iter().map(|name| name.as_bytes().into()).chain(self.hide_headers.iter().cloned());
        hidden.filter(|name| !self.pass_headers.contains(name)).collect()
    }
}

impl HttpBlock {
    /// What no directive sets.
    pub fn default_grpc(&mut self) {
        let (set_headers, hide_headers) = (self.written.grpc.set_headers(), self.written.grpc.hidden());
        let grpc = self.grpc();
        grpc.http_version = HttpVersion::Http2;
        (grpc.buffering, grpc.request_buffering) = (false, false);
        (grpc.pass_request_headers, grpc.pass_request_body, grpc.pass_trailers) = (true, true, true);
        (grpc.set_headers, grpc.hide_headers) = (set_headers, hide_headers);
        grpc.ignored.buffering = true;
    }

    /// Makes the model's form of what has another when it is written.
    pub(super) fn complete_grpc(&mut self) {
        if self.given.has("grpc_set_header") {
            self.grpc().set_headers = self.written.grpc.set_headers();
        }
        if self.given.has("grpc_hide_header") || self.given.has("grpc_pass_header") {
            self.grpc().hide_headers = self.written.grpc.hidden();
        }
        if self.given.has("grpc_next_upstream") && self.grpc.next_upstream.off {
            self.grpc().next_upstream = NextUpstream { off: true, ..NextUpstream::default() };
        }
    }
}

impl Builder<'_> {
    pub fn grpc_next_upstream(&mut self, block: &mut HttpBlock, s: &Statement) {
        let before = block.grpc.next_upstream;
        block.grpc().next_upstream = self.next_upstream(block, before, s);
    }

    pub fn grpc_ignore_headers(&mut self, block: &mut HttpBlock, s: &Statement) {
        let Some(more) = tuning::ignored_fields(self, s) else { return };
        let is_first = block.given.is_first();
        // X-Accel-Buffering has no effect with "grpc_pass".
        let none = IgnoredFields { buffering: true, ..IgnoredFields::default() };
        let ignored = &mut block.grpc().ignored;
        let before = if is_first { none } else { *ignored };
        *ignored = IgnoredFields {
            redirect: before.redirect | more.redirect,
            limit_rate: before.limit_rate | more.limit_rate,
            buffering: true,
        };
    }

    pub fn grpc_pass(&mut self, block: &mut HttpBlock, s: &Statement) {
        block.own.grpc_pass = self.grpc_target(s);
    }

    fn grpc_target(&mut self, s: &Statement) -> Option<Pass> {
        let word = &s.words[1];
        let template = self.template(word)?;
        if template.as_literal().is_none() {
            return Some(Pass { target: ProxyTarget::Dynamic(template), redirect: None });
        }
        let begins = |scheme: &[u8]| word.value.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
        let tls = begins(b"grpcs://");
        let rest = &word.value[if tls { 8 } else { 7 * usize::from(begins(b"grpc://")) }..];
        let address = match address::parse(rest, 0, Use::Server) {
            Ok(address) => address,
            Err(problem) => {
                let shown = String::from_utf8_lossy(rest);
                let message = format!("{problem} in upstream \"{shown}\"");
                match shown.contains('/') && !shown.starts_with("unix:") {
                    true => self.error_hint(word.span, message, "the address has no URI: grpc://host:port"),
                    false => self.error(word.span, message),
                }
                return None;
            }
        };
        let host: Box<[u8]> = match address.host {
            Host::Unix(_) => Box::from(*b"localhost"),
            _ if address.no_port => address.host_text.as_slice().into(),
            _ => [&address.host_text[..], b":", address.port.to_string().as_bytes()].concat().into(),
        };
        let port = address.port;
        let upstream = self.reference_upstream(&address, word.span)?;
        Some(Pass { target: ProxyTarget::Fixed { upstream, host, port, tls, uri: None }, redirect: None })
    }
}
