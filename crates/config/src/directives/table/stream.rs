//! `stream`.

use std::sync::Arc;

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{
    FLAG, MAIN, NONE, ONE, SS, STREAM, STREAM_SERVER, TWO, at_least, between, block, no_effect, refused, stream,
};
use crate::model::StreamTarget;
use crate::tuning;

use super::HASH;
pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("ngx_stream_access_module", STREAM_ACCESS),
    ("ngx_stream_core_module", STREAM_CORE),
    ("ngx_stream_geo_module", STREAM_GEO),
    ("ngx_stream_geoip_module", STREAM_GEOIP),
    ("ngx_stream_limit_conn_module", STREAM_LIMIT_CONN),
    ("ngx_stream_log_module", STREAM_LOG),
    ("ngx_stream_map_module", STREAM_MAP),
    ("ngx_stream_pass_module", STREAM_PASS),
    ("ngx_stream_proxy_module", STREAM_PROXY),
    ("ngx_stream_realip_module", STREAM_REALIP),
    ("ngx_stream_return_module", STREAM_RETURN),
    ("ngx_stream_set_module", STREAM_SET),
    ("ngx_stream_split_clients_module", STREAM_SPLIT_CLIENTS),
    ("ngx_stream_ssl_module", super::protocols::STREAM_SSL),
    ("ngx_stream_ssl_preread_module", STREAM_SSL_PREREAD),
];

const STREAM_ACCESS: &[Directive] = &[
    stream("allow", SS, ONE, "", |b, t, s| t.given.list(&mut t.server.access).extend(b.access_rule(s, true)))
        .again()
        .sets("access"),
    stream("deny", SS, ONE, "", |b, t, s| t.given.list(&mut t.server.access).extend(b.access_rule(s, false)))
        .again()
        .sets("access"),
];

const STREAM_CORE: &[Directive] = &[
    stream("error_log", SS, at_least(1), "", |b, t, s| t.given.list(&mut t.server.error_log).extend(b.error_log(s)))
        .again()
        .documented("that of the main context"),
    stream("listen", STREAM_SERVER, at_least(1), "", |b, t, s| b.listen(&mut t.listens, s)).again(),
    stream("preread_buffer_size", SS, ONE, "16k", |b, t, s| {
        put(&mut t.server.preread_buffer_size, b.stream_buffer_size(s))
    }),
    stream("preread_timeout", SS, ONE, "30s", |b, t, s| put(&mut t.server.preread_timeout, b.msec(s))),
    stream("proxy_protocol_timeout", SS, ONE, "30s", |b, t, s| put(&mut t.server.proxy_protocol_timeout, b.msec(s))),
    stream("resolver", SS, at_least(1), "", |b, t, s| b.resolver(&mut t.server.resolver, s)),
    stream("resolver_timeout", SS, ONE, "30s", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.server.resolver).timeout, b.msec(s))
    }),
    block("server", STREAM, NONE.block()).again(),
    stream("server_name", STREAM_SERVER, at_least(1), "", |b, t, s| b.server_names(&mut t.names, s)).again(),
    no_effect("server_names_hash_bucket_size", STREAM, ONE, "64", tuning::number, HASH),
    no_effect("server_names_hash_max_size", STREAM, ONE, "512", tuning::number, HASH),
    block("stream", MAIN, NONE.block()),
    stream("tcp_nodelay", SS, FLAG, "on", |b, t, s| put(&mut t.server.tcp_nodelay, b.flag(s))),
    no_effect("variables_hash_bucket_size", STREAM, ONE, "64", tuning::number, HASH),
    no_effect("variables_hash_max_size", STREAM, ONE, "1024", tuning::number, HASH),
];

const STREAM_GEO: &[Directive] = &[block("geo", STREAM, between(1, 2).block()).again()];

const STREAM_GEOIP: &[Directive] = &[
    refused("geoip_city", STREAM, between(1, 2)),
    refused("geoip_country", STREAM, between(1, 2)),
    refused("geoip_org", STREAM, between(1, 2)),
];

const STREAM_LIMIT_CONN: &[Directive] = &[
    stream("limit_conn", SS, TWO, "", |b, t, s| b.limit_conn(&t.given, Arc::make_mut(&mut t.server.limits), s)).again(),
    stream("limit_conn_dry_run", SS, FLAG, "off", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.server.limits).connection_dry_run, b.flag(s))
    }),
    stream("limit_conn_log_level", SS, ONE, "error", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.server.limits).connection_level, b.limit_level(s))
    }),
    stream("limit_conn_zone", STREAM, TWO, "", |b, _, s| b.limit_conn_zone(s)).again(),
];

const STREAM_LOG: &[Directive] = &[
    stream("access_log", SS, at_least(1), "", |b, t, s| b.access_log(&t.given, &mut t.server.access_logs, s))
        .again()
        .documented("off"),
    stream("log_format", STREAM, at_least(2), "", |b, _, s| b.log_format(s)).again(),
    no_effect(
        "open_log_file_cache",
        SS,
        between(1, 4),
        "off",
        tuning::open_log_file_cache,
        "a log with variables in its path is opened for each line",
    ),
];

const STREAM_MAP: &[Directive] = &[
    block("map", STREAM, TWO.block()).again(),
    no_effect("map_hash_bucket_size", STREAM, ONE, "64", tuning::number, HASH),
    no_effect("map_hash_max_size", STREAM, ONE, "2048", tuning::number, HASH),
];

const STREAM_PASS: &[Directive] = &[stream("pass", STREAM_SERVER, ONE, "", |b, t, s| t.target = b.pass_to(s))];

const STREAM_PROXY: &[Directive] = &[
    stream("proxy_bind", SS, between(1, 2), "", |b, t, s| put(&mut t.server.bind, b.proxy_bind(s))),
    stream("proxy_buffer_size", SS, ONE, "16k", |b, t, s| put(&mut t.server.buffer_size, b.stream_buffer_size(s))),
    stream("proxy_connect_timeout", SS, ONE, "60s", |b, t, s| put(&mut t.server.connect_timeout, b.msec(s))),
    stream("proxy_download_rate", SS, ONE, "0", |b, t, s| put(&mut t.server.download_rate, b.size_template(s))),
    refused("proxy_downstream_buffer", SS, ONE),
    stream("proxy_half_close", SS, FLAG, "off", |b, t, s| put(&mut t.server.half_close, b.flag(s))),
    stream("proxy_next_upstream", SS, FLAG, "on", |b, t, s| put(&mut t.server.next_upstream, b.flag(s))),
    stream("proxy_next_upstream_timeout", SS, ONE, "0", |b, t, s| put(&mut t.server.next_upstream_timeout, b.msec(s))),
    stream("proxy_next_upstream_tries", SS, ONE, "0", |b, t, s| put(&mut t.server.next_upstream_tries, b.count(s))),
    stream("proxy_pass", STREAM_SERVER, ONE, "", |b, t, s| t.target = b.stream_pass(s)),
    stream("proxy_protocol", SS, FLAG, "off", |b, t, s| put(&mut t.server.proxy_protocol, b.flag(s))),
    stream("proxy_requests", SS, ONE, "0", |b, t, s| put(&mut t.server.requests, b.count(s))),
    stream("proxy_responses", SS, ONE, "", |b, t, s| put(&mut t.server.responses, b.count(s).map(Some)))
        .documented("no limit"),
    stream("proxy_socket_keepalive", SS, FLAG, "off", |b, t, s| put(&mut t.server.socket_keepalive, b.flag(s))),
    stream("proxy_socket_rcvbuf", SS, ONE, "", |b, t, s| {
        put(&mut t.server.socket_buffers.receive, b.size(s).map(Some))
    })
    .documented("the system's choice"),
    stream("proxy_socket_sndbuf", SS, ONE, "", |b, t, s| put(&mut t.server.socket_buffers.send, b.size(s).map(Some)))
        .documented("the system's choice"),
    stream("proxy_ssl", SS, FLAG, "off", |b, t, s| put(&mut t.server.proxy_ssl, b.flag(s))),
    stream("proxy_ssl_certificate", SS, ONE, "", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).certificate, b.tls_name(s).map(Some))
    }),
    stream("proxy_ssl_certificate_cache", SS, between(1, 3), "off", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).cache, b.tls_certificate_cache(s))
    }),
    stream("proxy_ssl_certificate_key", SS, ONE, "", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).key, b.tls_name(s).map(Some))
    }),
    stream("proxy_ssl_ciphers", SS, ONE, "DEFAULT", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).negotiation.suites, b.tls_ciphers(s))
    }),
    stream("proxy_ssl_conf_command", SS, TWO, "", |b, t, s| {
        b.tls_command(&mut Arc::make_mut(&mut t.proxy_tls).negotiation, s)
    })
    .again(),
    stream("proxy_ssl_crl", SS, ONE, "", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).crls, b.tls_crls(s).map(Some))
    }),
    stream("proxy_ssl_name", SS, ONE, "", |b, t, s| put(&mut t.server.ssl_name, b.template(&s.words[1]).map(Some)))
        .documented("the host of proxy_pass"),
    stream("proxy_ssl_password_file", SS, ONE, "", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).passwords, b.tls_passwords(s).map(Some))
    }),
    stream("proxy_ssl_protocols", SS, at_least(1), "TLSv1.2 TLSv1.3", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).negotiation.protocols, b.tls_protocols(s))
    }),
    stream("proxy_ssl_server_name", SS, FLAG, "off", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).send_name, b.flag(s))
    }),
    stream("proxy_ssl_session_reuse", SS, FLAG, "on", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).reuse, b.flag(s))
    }),
    stream("proxy_ssl_trusted_certificate", SS, ONE, "", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).trusted, b.tls_trusted(s).map(Some))
    }),
    stream("proxy_ssl_verify", SS, FLAG, "off", |b, t, s| put(&mut Arc::make_mut(&mut t.proxy_tls).verify, b.flag(s))),
    stream("proxy_ssl_verify_depth", SS, ONE, "1", |b, t, s| {
        put(&mut Arc::make_mut(&mut t.proxy_tls).depth, b.number(s))
    }),
    stream("proxy_timeout", SS, ONE, "10m", |b, t, s| put(&mut t.server.timeout, b.msec(s))),
    stream("proxy_upload_rate", SS, ONE, "0", |b, t, s| put(&mut t.server.upload_rate, b.size_template(s))),
    refused("proxy_upstream_buffer", SS, ONE),
];

const STREAM_REALIP: &[Directive] = &[stream("set_real_ip_from", SS, ONE, "", |b, t, s| {
    t.given.list(&mut t.server.real_ip_from).extend(b.real_ip_from(s));
})
.again()];

const STREAM_RETURN: &[Directive] =
    &[stream("return", STREAM_SERVER, ONE, "", |b, t, s| t.target = b.template(&s.words[1]).map(StreamTarget::Return))];

const STREAM_SET: &[Directive] =
    &[stream("set", STREAM_SERVER, TWO, "", |b, t, s| t.server.sets.extend(b.stream_set(s))).again()];

const STREAM_SPLIT_CLIENTS: &[Directive] = &[block("split_clients", STREAM, TWO.block()).again()];

const STREAM_SSL_PREREAD: &[Directive] =
    &[stream("ssl_preread", SS, FLAG, "off", |b, t, s| put(&mut t.server.ssl_preread, b.flag(s)))];
