//! The sockets of `stream`, and the server behind each.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::ServerDraft;
use crate::listen::{ListenDraft, show};
use crate::load::Builder;
use crate::model::{Listen, ListenAddress, StreamListen, StreamServer};

impl Builder<'_> {
    /// The sockets of all servers. An address has one server, and not one of `http`, whose sockets are `taken`.
    pub(super) fn stream_listens(&mut self, servers: &[ServerDraft], taken: &[Listen]) -> Vec<StreamListen> {
        let mut bound: HashMap<&ListenAddress, &Arc<StreamServer>> = HashMap::new();
        let mut drafts: Vec<(&ListenDraft, &Arc<StreamServer>)> = Vec::new();
        for (draft, server) in servers.iter().flat_map(|s| s.listens.iter().map(|draft| (draft, &s.server))) {
            let shown = show(&draft.address);
            if taken.iter().any(|listen| holds(listen, &draft.address)) {
                let hint = "an http server listens on this address; use another port";
                self.error_hint(draft.span, format!("duplicate \"{shown}\" address and port pair"), hint);
            } else if bound.insert(&draft.address, server).is_some() {
                let hint = "another server listens on this address; use another port";
                self.error_hint(draft.span, format!("duplicate \"{shown}\" address and port pair"), hint);
            } else {
                drafts.push((draft, server));
            }
        }
        let wildcards: Vec<(SocketAddr, bool)> = drafts
            .iter()
            .filter_map(|(draft, _)| inet(draft).map(|address| (address, draft.udp)))
            .filter(|(address, _)| address.ip().is_unspecified())
            .collect();
        // Addresses without a socket of their own share the wildcard's.
        let shares = |draft: &ListenDraft, (wildcard, udp): &(SocketAddr, bool)| {
            let of = |address: SocketAddr| !address.ip().is_unspecified() && same_port(address, *wildcard);
            !draft.bind && draft.udp == *udp && inet(draft).is_some_and(of)
        };
        let mut listens = Vec::new();
        for (draft, server) in &drafts {
            if wildcards.iter().any(|wildcard| shares(draft, wildcard)) {
                continue;
            }
            let mut behind = Vec::new();
            if let Some(wildcard) = inet(draft).filter(|address| address.ip().is_unspecified()) {
                let sharing = drafts.iter().filter(|(other, _)| shares(other, &(wildcard, draft.udp)));
                behind.extend(sharing.map(|(draft, server)| (inet(draft), Arc::clone(server))));
            }
            behind.push((None, Arc::clone(server)));
            let (address, place) = (draft.address.clone(), self.place(draft.span));
            listens.push(StreamListen {
                address,
                options: draft.options,
                place,
                servers: behind,
                ssl: draft.ssl,
                proxy_protocol: draft.proxy_protocol,
            });
        }
        listens
    }
}

fn inet(draft: &ListenDraft) -> Option<SocketAddr> {
    match draft.address {
        ListenAddress::Inet(address) | ListenAddress::Udp(address) => Some(address),
        ListenAddress::Unix(_) => None,
    }
}

fn same_port(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.is_ipv4() == other.is_ipv4()
}

/// Whether a socket of `http` has this address, or all addresses of its port.
fn holds(listen: &Listen, address: &ListenAddress) -> bool {
    listen.address == *address
        || match (&listen.address, address) {
            (ListenAddress::Inet(http), ListenAddress::Inet(stream)) => {
                same_port(*http, *stream) && (http.ip().is_unspecified() || stream.ip().is_unspecified())
            }
            _ => false,
        }
}
