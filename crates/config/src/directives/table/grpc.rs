//! `grpc_pass` of `http`.

use std::sync::Arc;

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{FLAG, HSL, LI, ONE, TWO, at_least, between, http};

pub(super) const MODULES: &[(&str, &[Directive])] = &[("ngx_http_grpc_module", GRPC)];

const GRPC: &[Directive] = &[
    http("grpc_allow_upstream", HSL, at_least(1), "", |b, h, s| {
        h.given.list(&mut Arc::make_mut(&mut h.grpc).per_server.allow).extend(b.conditions(s))
    })
    .again(),
    http("grpc_bind", HSL, between(1, 2), "", |b, h, s| put(&mut h.grpc().bind, b.proxy_bind(s))),
    http("grpc_bind_dynamic", HSL, FLAG, "off", |b, h, s| put(&mut h.grpc().per_server.bind, b.flag(s))),
    http("grpc_buffer_size", HSL, ONE, "", |b, h, s| put(&mut h.grpc().buffer_size, b.size(s).map(Some)))
        .documented("4k"),
    http("grpc_connect_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.grpc().connect_timeout, b.msec(s))),
    http("grpc_hide_header", HSL, ONE, "", |b, h, s| {
        h.given.list(&mut h.written.grpc.hide_headers).extend(b.lower_case(s))
    })
    .again(),
    http("grpc_ignore_headers", HSL, at_least(1), "", |b, h, s| b.grpc_ignore_headers(h, s)).again(),
    http("grpc_intercept_errors", HSL, FLAG, "off", |b, h, s| put(&mut h.grpc().intercept_errors, b.flag(s))),
    http("grpc_next_upstream", HSL, at_least(1), "error timeout", |b, h, s| b.grpc_next_upstream(h, s)).again(),
    http("grpc_next_upstream_timeout", HSL, ONE, "0", |b, h, s| put(&mut h.grpc().next_upstream_timeout, b.msec(s))),
    http("grpc_next_upstream_tries", HSL, ONE, "0", |b, h, s| put(&mut h.grpc().next_upstream_tries, b.count(s))),
    http("grpc_pass", LI, ONE, "", |b, h, s| b.grpc_pass(h, s)),
    http("grpc_pass_header", HSL, ONE, "", |b, h, s| {
        h.given.list(&mut h.written.grpc.pass_headers).extend(b.lower_case(s))
    })
    .again(),
    http("grpc_read_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.grpc().read_timeout, b.msec(s))),
    http("grpc_request_dynamic", HSL, FLAG, "off", |b, h, s| put(&mut h.grpc().per_server.request, b.flag(s))),
    http("grpc_send_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.grpc().send_timeout, b.msec(s))),
    http("grpc_set_header", HSL, TWO, "", |b, h, s| {
        h.given.list(&mut h.written.grpc.set_headers).extend(b.set_header(s))
    })
    .again(),
    http("grpc_socket_keepalive", HSL, FLAG, "off", |b, h, s| put(&mut h.grpc().socket_keepalive, b.flag(s))),
    http("grpc_ssl_certificate", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).certificate, b.tls_name(s).map(Some))
    }),
    http("grpc_ssl_certificate_cache", HSL, between(1, 3), "off", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).cache, b.tls_certificate_cache(s))
    }),
    http("grpc_ssl_certificate_key", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).key, b.tls_name(s).map(Some))
    }),
    http("grpc_ssl_ciphers", HSL, ONE, "DEFAULT", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).negotiation.suites, b.tls_ciphers(s))
    }),
    http("grpc_ssl_conf_command", HSL, TWO, "", |b, h, s| {
        b.tls_command(&mut Arc::make_mut(&mut h.grpc_tls).negotiation, s)
    })
    .again(),
    http("grpc_ssl_crl", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).crls, b.tls_crls(s).map(Some))
    }),
    http("grpc_ssl_name", HSL, ONE, "", |b, h, s| put(&mut h.grpc().ssl_name, b.template(&s.words[1]).map(Some)))
        .documented("host of grpc_pass"),
    http("grpc_ssl_password_file", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).passwords, b.tls_passwords(s).map(Some))
    }),
    http("grpc_ssl_protocols", HSL, at_least(1), "TLSv1.2 TLSv1.3", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).negotiation.protocols, b.tls_protocols(s))
    }),
    http("grpc_ssl_server_name", HSL, FLAG, "off", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).send_name, b.flag(s))
    }),
    http("grpc_ssl_session_reuse", HSL, FLAG, "on", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).reuse, b.flag(s))
    }),
    http("grpc_ssl_trusted_certificate", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.grpc_tls).trusted, b.tls_trusted(s).map(Some))
    }),
    http("grpc_ssl_verify", HSL, FLAG, "off", |b, h, s| put(&mut Arc::make_mut(&mut h.grpc_tls).verify, b.flag(s))),
    http("grpc_ssl_verify_depth", HSL, ONE, "1", |b, h, s| put(&mut Arc::make_mut(&mut h.grpc_tls).depth, b.number(s))),
];
