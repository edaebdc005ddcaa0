//! TLS, HTTP/2 and HTTP/3 to clients.

use crate::directives::Directive;
use crate::directives::row::{FLAG, HS, HSL, HTTP, ONE, TWO, at_least, between, left_out, only, refused};

pub(super) const MODULES: &[(&str, &[Directive])] =
    &[("ngx_http_ssl_module", SSL), ("ngx_http_v2_module", V2), ("ngx_http_v3_module", V3)];

const SSL: &[Directive] = &[
    left_out("ssl_buffer_size", HS, ONE).note("Balanza does not have TLS yet"),
    refused("ssl_certificate", HS, ONE),
    left_out("ssl_certificate_cache", HS, between(1, 3)).note("Balanza does not have TLS yet"),
    left_out("ssl_certificate_compression", HS, FLAG).note("Balanza does not have TLS yet"),
    refused("ssl_certificate_key", HS, ONE),
    left_out("ssl_ciphers", HS, ONE).note("Balanza does not have TLS yet"),
    refused("ssl_client_certificate", HS, ONE),
    left_out("ssl_conf_command", HS, TWO).note("Balanza does not have TLS yet"),
    refused("ssl_crl", HS, ONE),
    left_out("ssl_dhparam", HS, ONE).note("Balanza does not have TLS yet"),
    left_out("ssl_early_data", HS, FLAG).note("Balanza does not have TLS yet"),
    left_out("ssl_ecdh_curve", HS, ONE).note("Balanza does not have TLS yet"),
    refused("ssl_ech_file", HS, ONE),
    refused("ssl_ocsp", HS, ONE),
    refused("ssl_ocsp_cache", HS, ONE),
    refused("ssl_ocsp_responder", HS, ONE),
    refused("ssl_password_file", HS, ONE),
    left_out("ssl_prefer_server_ciphers", HS, FLAG).note("Balanza does not have TLS yet"),
    left_out("ssl_protocols", HS, at_least(1)).note("Balanza does not have TLS yet"),
    refused("ssl_reject_handshake", HS, FLAG),
    left_out("ssl_session_cache", HS, between(1, 2)).note("Balanza does not have TLS yet"),
    left_out("ssl_session_ticket_key", HS, ONE).note("Balanza does not have TLS yet"),
    left_out("ssl_session_tickets", HS, FLAG).note("Balanza does not have TLS yet"),
    left_out("ssl_session_timeout", HS, ONE).note("Balanza does not have TLS yet"),
    left_out("ssl_stapling", HS, FLAG).note("Balanza does not have TLS yet"),
    left_out("ssl_stapling_file", HS, ONE).note("Balanza does not have TLS yet"),
    left_out("ssl_stapling_responder", HS, ONE).note("Balanza does not have TLS yet"),
    left_out("ssl_stapling_verify", HS, FLAG).note("Balanza does not have TLS yet"),
    refused("ssl_trusted_certificate", HS, ONE),
    refused("ssl_verify_client", HS, ONE),
    refused("ssl_verify_depth", HS, ONE),
];

const V2: &[Directive] = &[
    only("http2", HS, FLAG, "off"),
    refused("http2_body_preread_size", HS, ONE),
    refused("http2_chunk_size", HSL, ONE),
    refused("http2_idle_timeout", HS, ONE),
    refused("http2_max_concurrent_pushes", HS, ONE),
    refused("http2_max_concurrent_streams", HS, ONE),
    refused("http2_max_field_size", HS, ONE),
    refused("http2_max_header_size", HS, ONE),
    refused("http2_max_requests", HS, ONE),
    refused("http2_pool_size", HS, ONE),
    refused("http2_push", HSL, ONE),
    refused("http2_push_preload", HSL, FLAG),
    refused("http2_recv_buffer_size", HTTP, ONE),
    refused("http2_recv_timeout", HS, ONE),
    refused("http2_streams_index_size", HS, ONE),
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
