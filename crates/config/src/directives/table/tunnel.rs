//! `tunnel_pass` of `http`.

use std::sync::Arc;

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{FLAG, HSL, ONE, SLI, at_least, between, http, no_effect};
use crate::tuning;

pub(super) const MODULES: &[(&str, &[Directive])] = &[("ngx_http_tunnel_module", TUNNEL)];

const TUNNEL: &[Directive] = &[
    http("tunnel_allow_upstream", HSL, at_least(1), "", |b, h, s| {
        h.given.list(&mut Arc::make_mut(&mut h.tunnel).per_server.allow).extend(b.conditions(s))
    })
    .again(),
    http("tunnel_bind", HSL, between(1, 2), "", |b, h, s| put(&mut h.tunnel().bind, b.proxy_bind(s))),
    http("tunnel_bind_dynamic", HSL, FLAG, "off", |b, h, s| put(&mut h.tunnel().per_server.bind, b.flag(s))),
    http("tunnel_buffer_size", HSL, ONE, "16k", |b, h, s| b.tunnel_buffer_size(h, s)),
    http("tunnel_connect_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.tunnel().connect_timeout, b.msec(s))),
    http("tunnel_next_upstream", HSL, at_least(1), "error timeout", |b, h, s| b.tunnel_next_upstream(h, s)).again(),
    http("tunnel_next_upstream_timeout", HSL, ONE, "0", |b, h, s| {
        put(&mut h.tunnel().next_upstream_timeout, b.msec(s))
    }),
    http("tunnel_next_upstream_tries", HSL, ONE, "0", |b, h, s| put(&mut h.tunnel().next_upstream_tries, b.count(s))),
    http("tunnel_pass", SLI, between(0, 1), "", |b, h, s| b.tunnel_pass(h, s)),
    http("tunnel_read_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.tunnel().read_timeout, b.msec(s))),
    no_effect("tunnel_send_lowat", HSL, ONE, "0", tuning::size, "Linux does not have it"),
    http("tunnel_send_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.tunnel().send_timeout, b.msec(s))),
    http("tunnel_socket_keepalive", HSL, FLAG, "off", |b, h, s| put(&mut h.tunnel().socket_keepalive, b.flag(s))),
    http("tunnel_socket_rcvbuf", HSL, ONE, "", |b, h, s| {
        put(&mut h.tunnel().socket_buffers.receive, b.size(s).map(unless_zero))
    })
    .documented("the system's choice"),
    http("tunnel_socket_sndbuf", HSL, ONE, "", |b, h, s| {
        put(&mut h.tunnel().socket_buffers.send, b.size(s).map(unless_zero))
    })
    .documented("the system's choice"),
];

/// A size of 0 leaves the choice to the system again.
fn unless_zero(size: usize) -> Option<usize> {
    (size > 0).then_some(size)
}
