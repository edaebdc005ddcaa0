//! The sockets of `stream`, and the servers behind each.

use crate::listen::{ServerDraft, show};
use crate::load::Builder;
use crate::model::{Listen, ListenAddress, StreamServer};

impl Builder<'_> {
    /// The sockets of all servers. None has an address of `http`, whose sockets are `taken`.
    pub(super) fn stream_listens(
        &mut self,
        servers: &[ServerDraft<StreamServer>],
        taken: &[Listen],
    ) -> Vec<Listen<StreamServer>> {
        for draft in servers.iter().flat_map(|server| &server.listens) {
            if taken.iter().any(|listen| holds(listen, &draft.address)) {
                let hint = "an http server listens on this address; use another port";
                let message = format!("duplicate \"{}\" address and port pair", show(&draft.address));
                self.error_hint(draft.span, message, hint);
            }
        }
        self.listens(servers)
    }
}

/// Whether a socket of `http` has this address, or all addresses of its port.
fn holds(listen: &Listen, address: &ListenAddress) -> bool {
    listen.address == *address
        || match (&listen.address, address) {
            (ListenAddress::Inet(http), ListenAddress::Inet(stream)) => {
                http.port() == stream.port()
                    && http.is_ipv4() == stream.is_ipv4()
                    && (http.ip().is_unspecified() || stream.ip().is_unspecified())
            }
            _ => false,
        }
}
