//! The client's address behind proxies: after the server is chosen, and again in the location.

use std::sync::Arc;

use balanza_config::model::RealIpHeader;

use crate::exchange::Exchange;
use crate::real_ip::{believed, forwarded};

/// Replaces the client's address for this request, once.
pub fn find(x: &mut Exchange) {
    let location = x.location();
    if location.settings.client.real_ip.from.is_empty() || x.values.peer.is_some() {
        return;
    }
    let location = Arc::clone(location);
    let settings = &location.settings.client.real_ip;
    let (connected, trusted, recursive) = (x.client().peer, &settings.from, settings.recursive);
    let fields = || x.request.fields.iter().rev();
    let named = |name: &[u8]| {
        let values = fields().filter(|field| field.name.of(&x.request.text).eq_ignore_ascii_case(name));
        values.map(|field| field.value.of(&x.request.text)).collect::<Vec<_>>()
    };
    x.values.peer = match &settings.header {
        RealIpHeader::Field(name) => forwarded(connected, named(name).into_iter(), trusted, recursive),
        RealIpHeader::XRealIp => {
            // The first one is the one that NGINX knows.
            let first = named(b"x-real-ip").pop();
            forwarded(connected, first.into_iter(), trusted, recursive)
        }
        RealIpHeader::ProxyProtocol => {
            let header = x.client().proxy_protocol.get();
            header.and_then(|header| believed(connected, header, trusted))
        }
    };
}
