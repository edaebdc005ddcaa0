//! TLS, HTTP/2 and HTTP/3 to clients.

use std::sync::Arc;

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{
    FLAG, HS, HSL, HTTP, ONE, SS, TWO, at_least, between, http, left_out, no_effect, only, refused, stream,
};
use crate::tuning;

pub(super) const MODULES: &[(&str, &[Directive])] =
    &[("ngx_http_ssl_module", SSL), ("ngx_http_v2_module", V2), ("ngx_http_v3_module", V3)];

/// The rows that servers of `http` and of `stream` have in common, and some more.
macro_rules! ssl {
    ($row:ident, $contexts:ident, $($more:expr),* $(,)?) => {
        &[
            $($more,)*
            $row("ssl_certificate", $contexts, ONE, "", |b, h, s| {
                h.given.list(&mut h.tls.certificates).extend(b.tls_name(s))
            })
            .again(),
            $row("ssl_certificate_cache", $contexts, between(1, 3), "off", |b, h, s| {
                put(&mut h.tls.cache, b.tls_certificate_cache(s))
            }),
            left_out("ssl_certificate_compression", $contexts, FLAG).unless("off"),
            $row("ssl_certificate_key", $contexts, ONE, "", |b, h, s| {
                h.given.list(&mut h.tls.keys).extend(b.tls_name(s))
            })
            .again(),
            $row("ssl_ciphers", $contexts, ONE, "HIGH:!aNULL:!MD5", |b, h, s| {
                put(&mut h.tls.negotiation.suites, b.tls_ciphers(s))
            }),
            $row("ssl_client_certificate", $contexts, ONE, "", |b, h, s| {
                put(&mut h.tls.client_certificate, b.tls_trusted(s).map(Some))
            }),
            $row("ssl_conf_command", $contexts, TWO, "", |b, h, s| b.tls_command(&mut h.tls.negotiation, s)).again(),
            $row("ssl_crl", $contexts, ONE, "", |b, h, s| put(&mut h.tls.crls, b.tls_crls(s).map(Some))),
            no_effect("ssl_dhparam", $contexts, ONE, "", |_, _| {}, "no cipher suite here needs it"),
            $row("ssl_ecdh_curve", $contexts, ONE, "auto", |b, h, s| {
                put(&mut h.tls.negotiation.groups, b.tls_groups(s))
            }),
            refused("ssl_ech_file", $contexts, ONE),
            only("ssl_ocsp", $contexts, ONE, "off"),
            left_out("ssl_ocsp_cache", $contexts, ONE).unless("off"),
            left_out("ssl_ocsp_responder", $contexts, ONE),
            $row("ssl_password_file", $contexts, ONE, "", |b, h, s| {
                put(&mut h.tls.passwords, b.tls_passwords(s).map(Some))
            }),
            $row("ssl_prefer_server_ciphers", $contexts, FLAG, "off", |b, h, s| {
                put(&mut h.tls.prefer_server, b.flag(s))
            }),
            $row("ssl_protocols", $contexts, at_least(1), "TLSv1.2 TLSv1.3", |b, h, s| {
                put(&mut h.tls.negotiation.protocols, b.tls_protocols(s))
            }),
            $row("ssl_reject_handshake", $contexts, FLAG, "off", |b, h, s| {
                put(&mut h.tls.reject_handshake, b.flag(s))
            }),
            $row("ssl_session_cache", $contexts, between(1, 2), "none", |b, h, s| {
                put(&mut h.tls.sessions, b.ssl_session_cache(s))
            }),
            $row("ssl_session_ticket_key", $contexts, ONE, "", |b, h, s| {
                h.given.list(&mut h.tls.ticket_keys).extend(b.ssl_session_ticket_key(s))
            })
            .again(),
            $row("ssl_session_tickets", $contexts, FLAG, "on", |b, h, s| put(&mut h.tls.tickets, b.flag(s))),
            $row("ssl_session_timeout", $contexts, ONE, "5m", |b, h, s| {
                put(&mut h.tls.session_timeout, b.ssl_session_timeout(s))
            }),
            $row("ssl_stapling", $contexts, FLAG, "off", |b, h, s| put(&mut h.tls.stapling, b.flag(s))),
            $row("ssl_stapling_file", $contexts, ONE, "", |b, h, s| put(&mut h.tls.staple, b.tls_name(s).map(Some))),
            $row("ssl_stapling_responder", $contexts, ONE, "", |_, h, s| {
                h.tls.responder = Some(Arc::new(s.words[1].clone()))
            }),
            $row("ssl_stapling_verify", $contexts, FLAG, "off", |b, h, s| put(&mut h.tls.stapling_verify, b.flag(s))),
            $row("ssl_trusted_certificate", $contexts, ONE, "", |b, h, s| {
                put(&mut h.tls.trusted_certificate, b.tls_trusted(s).map(Some))
            }),
            $row("ssl_verify_client", $contexts, ONE, "off", |b, h, s| {
                put(&mut h.tls.verify, b.ssl_verify_client(s).map(Some))
            }),
            $row("ssl_verify_depth", $contexts, ONE, "1", |b, h, s| put(&mut h.tls.depth, b.number(s))),
        ]
    };
}

const SSL: &[Directive] = ssl!(
    http,
    HS,
    http("ssl_buffer_size", HS, ONE, "16k", |b, h, s| put(&mut h.tls.buffer_size, b.record_size(s).map(Some))),
    http("ssl_early_data", HS, FLAG, "off", |b, h, s| put(&mut h.tls.early_data, b.flag(s))),
);

/// `ngx_stream_ssl_module`.
pub(super) const STREAM_SSL: &[Directive] = ssl!(
    stream,
    SS,
    stream("ssl_alpn", SS, at_least(1), "", |b, t, s| put(&mut t.tls.alpn, b.ssl_alpn(s))),
    stream("ssl_handshake_timeout", SS, ONE, "60s", |b, t, s| { put(&mut t.server.handshake_timeout, b.msec(s)) }),
);

const V2: &[Directive] = &[
    http("http2", HS, FLAG, "off", |b, h, s| put(&mut h.connection.http2.enabled, b.flag(s))),
    http("http2_body_preread_size", HS, ONE, "64k", |b, h, s| {
        put(&mut h.connection.http2.body_preread_size, b.preread_size(s))
    }),
    http("http2_chunk_size", HSL, ONE, "8k", |b, h, s| put(&mut h.settings.http2_chunk_size, b.chunk_size(s))),
    left_out("http2_idle_timeout", HS, ONE).note("obsolete: use keepalive_timeout"),
    left_out("http2_max_concurrent_pushes", HS, ONE).note("obsolete: no browser takes pushed responses"),
    http("http2_max_concurrent_streams", HS, ONE, "128", |b, h, s| {
        put(&mut h.connection.http2.max_concurrent_streams, b.number(s))
    }),
    left_out("http2_max_field_size", HS, ONE).note("obsolete: use large_client_header_buffers"),
    left_out("http2_max_header_size", HS, ONE).note("obsolete: use large_client_header_buffers"),
    left_out("http2_max_requests", HS, ONE).note("obsolete: use keepalive_requests"),
    no_effect("http2_pool_size", HS, ONE, "4k", tuning::size, "memory is taken from pools of the worker"),
    left_out("http2_push", HSL, ONE).unless("off").note("obsolete: no browser takes pushed responses"),
    left_out("http2_push_preload", HSL, FLAG).unless("off").note("obsolete: no browser takes pushed responses"),
    no_effect("http2_recv_buffer_size", HTTP, ONE, "256k", tuning::size, "buffers of 64 kilobytes"),
    left_out("http2_recv_timeout", HS, ONE).note("obsolete: use client_header_timeout"),
    no_effect("http2_streams_index_size", HS, ONE, "32", tuning::number, "streams are in a hash table"),
];

const V3: &[Directive] = &[
    only("http3", HS, FLAG, "off"),
    refused("http3_hq", HS, FLAG),
    refused("http3_max_concurrent_streams", HS, ONE),
    refused("http3_stream_buffer_size", HS, ONE),
    refused("quic_active_connection_id_limit", HS, ONE),
    refused("quic_gso", HS, FLAG),
    refused("quic_host_key", HS, ONE),
    refused("quic_retry", HS, FLAG),
];
