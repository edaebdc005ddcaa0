//! `tunnel_pass` and `tunnel_…`: the settings of `proxy_pass` that concern connections.

use super::block::HttpBlock;
use crate::address::{self, Use};
use crate::load::Builder;
use crate::model::{Handler, NextUpstream, TunnelTarget};
use crate::tree::Statement;

/// Where a client wants to go.
const TARGET_OF_CLIENT: &[u8] = b"$host:$request_port";

impl HttpBlock {
    /// Makes the model's form of what has another when it is written.
    pub(super) fn complete_tunnel(&mut self) {
        if self.given.has("tunnel_next_upstream") && self.tunnel.next_upstream.off {
            self.tunnel().next_upstream = NextUpstream { off: true, ..NextUpstream::default() };
        }
    }
}

impl Builder<'_> {
    pub fn tunnel_pass(&mut self, block: &mut HttpBlock, s: &Statement) {
        self.tunnels += 1;
        if let Some(target) = self.tunnel_target(s) {
            // The last handler of a location holds.
            (block.own.pass, block.own.grpc_pass) = (None, None);
            block.own.handler = Some(Handler::Tunnel(target));
        }
    }

    fn tunnel_target(&mut self, s: &Statement) -> Option<TunnelTarget> {
        let Some(word) = s.words.get(1) else {
            return self.template_of(TARGET_OF_CLIENT, s.span(), false).map(TunnelTarget::Dynamic);
        };
        let template = self.template(word)?;
        let Some(text) = template.as_literal() else { return Some(TunnelTarget::Dynamic(template)) };
        match address::parse(text, 0, Use::Server) {
            Ok(address) => self.reference_upstream(&address, word.span).map(TunnelTarget::Fixed),
            Err(problem) => {
                let message = format!("{problem} in upstream \"{}\"", word.text());
                self.error_hint(word.span, message, "a tunnel has no URL: write host and port only");
                None
            }
        }
    }

    pub fn tunnel_next_upstream(&mut self, block: &mut HttpBlock, s: &Statement) {
        let mut set = if block.given.is_first() { NextUpstream::default() } else { block.tunnel.next_upstream };
        for word in s.args() {
            let flag = match word.value.as_slice() {
                b"error" => &mut set.error,
                b"timeout" => &mut set.timeout,
                b"off" => &mut set.off,
                b"denied" => &mut set.denied,
                _ => {
                    self.error_hint(
                        word.span,
                        format!("invalid value \"{}\"", word.text()),
                        "one of error, timeout, denied, off",
                    );
                    continue;
                }
            };
            if std::mem::replace(flag, true) {
                self.warning(word.span, format!("duplicate value \"{}\"", word.text()));
            }
        }
        block.tunnel().next_upstream = set;
    }

    pub fn tunnel_buffer_size(&mut self, block: &mut HttpBlock, s: &Statement) {
        match self.size(s) {
            Some(0) => self.error(s.words[1].span, "\"tunnel_buffer_size\" must be greater than 0"),
            size => block.tunnel().buffer_size = size,
        }
    }
}
