//! `proxy_pass` of `http`.

use std::sync::Arc;

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{FLAG, HSL, HTTP, LIE, ONE, TWO, at_least, between, http, left_out, no_effect, unused};
use crate::tuning;

use super::HASH;
pub(super) const MODULES: &[(&str, &[Directive])] = &[("ngx_http_proxy_module", PROXY)];

const PROXY: &[Directive] = &[
    http("proxy_allow_upstream", HSL, at_least(1), "", |b, h, s| {
        h.given.list(&mut Arc::make_mut(&mut h.settings.proxy).per_server.allow).extend(b.conditions(s))
    })
    .again(),
    http("proxy_bind", HSL, between(1, 2), "", |b, h, s| put(&mut h.proxy().bind, b.proxy_bind(s))),
    http("proxy_bind_dynamic", HSL, FLAG, "off", |b, h, s| put(&mut h.proxy().per_server.bind, b.flag(s))),
    http("proxy_buffer_size", HSL, ONE, "", |b, h, s| put(&mut h.proxy().buffer_size, b.size(s).map(Some)))
        .documented("4k"),
    http("proxy_buffering", HSL, FLAG, "on", |b, h, s| put(&mut h.proxy().buffering, b.flag(s))),
    http("proxy_buffers", HSL, TWO, "", |b, h, s| put(&mut h.proxy().buffers, b.buffers(s).map(Some)))
        .documented("8 4k"),
    http("proxy_busy_buffers_size", HSL, ONE, "", |b, h, s| put(&mut h.proxy().busy_buffers_size, b.size(s).map(Some)))
        .documented("8k"),
    left_out("proxy_cache", HSL, ONE).unless("off").note("responses are not cached, each request goes to a server"),
    unused("proxy_cache_background_update", HSL, FLAG, tuning::flag),
    unused("proxy_cache_bypass", HSL, at_least(1), tuning::any).again(),
    unused("proxy_cache_convert_head", HSL, FLAG, tuning::flag),
    unused("proxy_cache_key", HSL, ONE, tuning::any),
    unused("proxy_cache_lock", HSL, FLAG, tuning::flag),
    unused("proxy_cache_lock_age", HSL, ONE, tuning::msec),
    unused("proxy_cache_lock_timeout", HSL, ONE, tuning::msec),
    unused("proxy_cache_max_range_offset", HSL, ONE, tuning::offset),
    unused("proxy_cache_methods", HSL, at_least(1), tuning::any).again(),
    unused("proxy_cache_min_uses", HSL, ONE, tuning::number),
    unused("proxy_cache_path", HTTP, at_least(2), tuning::cache_path).again(),
    unused("proxy_cache_revalidate", HSL, FLAG, tuning::flag),
    unused("proxy_cache_use_stale", HSL, at_least(1), tuning::any).again(),
    unused("proxy_cache_valid", HSL, at_least(1), tuning::any).again(),
    http("proxy_connect_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.proxy().connect_timeout, b.msec(s))),
    http("proxy_cookie_domain", HSL, between(1, 2), "", |b, h, s| b.cookie_rule(h, s, true)).again().documented("off"),
    http("proxy_cookie_flags", HSL, between(1, 4), "", |b, h, s| b.cookie_flags(h, s)).again().documented("off"),
    http("proxy_cookie_path", HSL, between(1, 2), "", |b, h, s| b.cookie_rule(h, s, false)).again().documented("off"),
    http("proxy_force_ranges", HSL, FLAG, "off", |b, h, s| put(&mut h.proxy().force_ranges, b.flag(s))),
    no_effect("proxy_headers_hash_bucket_size", HSL, ONE, "64", tuning::number, HASH),
    no_effect("proxy_headers_hash_max_size", HSL, ONE, "512", tuning::number, HASH),
    http("proxy_hide_header", HSL, ONE, "", |b, h, s| {
        h.given.list(&mut h.written.hide_headers).extend(b.lower_case(s))
    })
    .again(),
    http("proxy_http_version", HSL, ONE, "1.1", |b, h, s| put(&mut h.proxy().http_version, b.http_version(s))),
    http("proxy_ignore_client_abort", HSL, FLAG, "off", |b, h, s| put(&mut h.proxy().ignore_client_abort, b.flag(s))),
    http("proxy_ignore_headers", HSL, at_least(1), "", |b, h, s| b.ignored_fields(h, s)).again(),
    http("proxy_intercept_errors", HSL, FLAG, "off", |b, h, s| put(&mut h.proxy().intercept_errors, b.flag(s))),
    http("proxy_limit_rate", HSL, ONE, "", |b, h, s| put(&mut h.proxy().limit_rate, b.size_template(s).map(Some)))
        .documented("0"),
    http("proxy_max_temp_file_size", HSL, ONE, "1024m", |b, h, s| put(&mut h.proxy().max_temp_file_size, b.size(s))),
    http("proxy_method", HSL, ONE, "", |b, h, s| put(&mut h.proxy().method, b.template(&s.words[1]).map(Some))),
    http("proxy_next_upstream", HSL, at_least(1), "error timeout", |b, h, s| b.proxy_next_upstream(h, s)).again(),
    http("proxy_next_upstream_timeout", HSL, ONE, "0", |b, h, s| put(&mut h.proxy().next_upstream_timeout, b.msec(s))),
    http("proxy_next_upstream_tries", HSL, ONE, "0", |b, h, s| put(&mut h.proxy().next_upstream_tries, b.count(s))),
    unused("proxy_no_cache", HSL, at_least(1), tuning::any).again(),
    http("proxy_pass", LIE, ONE, "", |b, h, s| b.proxy_pass(h, s)),
    http("proxy_pass_header", HSL, ONE, "", |b, h, s| {
        h.given.list(&mut h.written.pass_headers).extend(b.lower_case(s))
    })
    .again(),
    http("proxy_pass_request_body", HSL, FLAG, "on", |b, h, s| put(&mut h.proxy().pass_request_body, b.flag(s))),
    http("proxy_pass_request_headers", HSL, FLAG, "on", |b, h, s| put(&mut h.proxy().pass_request_headers, b.flag(s))),
    http("proxy_pass_trailers", HSL, FLAG, "off", |b, h, s| put(&mut h.proxy().pass_trailers, b.flag(s))),
    http("proxy_read_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.proxy().read_timeout, b.msec(s))),
    http("proxy_redirect", HSL, between(1, 2), "", |b, h, s| b.proxy_redirect(h, s)).again().documented("default"),
    http("proxy_request_buffering", HSL, FLAG, "on", |b, h, s| put(&mut h.proxy().request_buffering, b.flag(s))),
    no_effect("proxy_send_lowat", HSL, ONE, "0", tuning::size, "Linux does not have it"),
    http("proxy_request_dynamic", HSL, FLAG, "off", |b, h, s| put(&mut h.proxy().per_server.request, b.flag(s))),
    http("proxy_send_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.proxy().send_timeout, b.msec(s))),
    http("proxy_set_body", HSL, ONE, "", |b, h, s| put(&mut h.proxy().set_body, b.template(&s.words[1]).map(Some))),
    http("proxy_set_header", HSL, TWO, "", |b, h, s| h.given.list(&mut h.written.set_headers).extend(b.set_header(s)))
        .again()
        .documented("Host $proxy_host"),
    http("proxy_socket_keepalive", HSL, FLAG, "off", |b, h, s| put(&mut h.proxy().socket_keepalive, b.flag(s))),
    http("proxy_socket_rcvbuf", HSL, ONE, "", |b, h, s| {
        put(&mut h.proxy().socket_buffers.receive, b.size(s).map(Some))
    })
    .documented("the system's choice"),
    http("proxy_socket_sndbuf", HSL, ONE, "", |b, h, s| put(&mut h.proxy().socket_buffers.send, b.size(s).map(Some)))
        .documented("the system's choice"),
    http("proxy_ssl_certificate", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).certificate, b.tls_name(s).map(Some))
    }),
    http("proxy_ssl_certificate_cache", HSL, between(1, 3), "off", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).cache, b.tls_certificate_cache(s))
    }),
    http("proxy_ssl_certificate_key", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).key, b.tls_name(s).map(Some))
    }),
    http("proxy_ssl_ciphers", HSL, ONE, "DEFAULT", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).negotiation.suites, b.tls_ciphers(s))
    }),
    http("proxy_ssl_conf_command", HSL, TWO, "", |b, h, s| {
        b.tls_command(&mut Arc::make_mut(&mut h.proxy_tls).negotiation, s)
    })
    .again(),
    http("proxy_ssl_crl", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).crls, b.tls_crls(s).map(Some))
    }),
    http("proxy_ssl_name", HSL, ONE, "", |b, h, s| put(&mut h.proxy().ssl_name, b.template(&s.words[1]).map(Some)))
        .documented("$proxy_host"),
    http("proxy_ssl_password_file", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).passwords, b.tls_passwords(s).map(Some))
    }),
    http("proxy_ssl_protocols", HSL, at_least(1), "TLSv1.2 TLSv1.3", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).negotiation.protocols, b.tls_protocols(s))
    }),
    http("proxy_ssl_server_name", HSL, FLAG, "off", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).send_name, b.flag(s))
    }),
    http("proxy_ssl_session_reuse", HSL, FLAG, "on", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).reuse, b.flag(s))
    }),
    http("proxy_ssl_trusted_certificate", HSL, ONE, "", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).trusted, b.tls_trusted(s).map(Some))
    }),
    http("proxy_ssl_verify", HSL, FLAG, "off", |b, h, s| put(&mut Arc::make_mut(&mut h.proxy_tls).verify, b.flag(s))),
    http("proxy_ssl_verify_depth", HSL, ONE, "1", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.proxy_tls).depth, b.number(s))
    }),
    http("proxy_store", HSL, ONE, "off", |b, h, s| put(&mut h.proxy().store, b.proxy_store(s))),
    http("proxy_store_access", HSL, between(1, 3), "user:rw", |b, h, s| {
        put(&mut h.proxy().store_access, b.access_mode(s))
    }),
    http("proxy_temp_file_write_size", HSL, ONE, "", |b, h, s| {
        put(&mut h.written.temp_file_write_size, b.size(s).map(Some))
    })
    .documented("8k")
    .without_effect("only compared with the sizes of `proxy_buffers`"),
    http("proxy_temp_path", HSL, between(1, 4), "", |b, h, s| put(&mut h.proxy().temp_path, b.temp_path(s).map(Some))),
];
