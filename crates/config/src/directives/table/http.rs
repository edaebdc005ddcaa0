//! What `http` is made of: connections, files, logs, fields, rewriting.

use std::sync::Arc;

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{
    FLAG, HS, HSILI, HSL, HSLI, HSLIE, HTTP, LOCATION, MAIN, NONE, ONE, SERVER, SILI, SL, TWO, at_least, between,
    block, http, left_out, no_effect, only, refused,
};
use crate::model::{RewriteOp, Satisfy};
use crate::tuning;

use super::HASH;
use super::PARTS;
pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("ngx_http_core_module", CORE),
    ("ngx_http_headers_module", HEADERS),
    ("ngx_http_index_module", INDEX),
    ("ngx_http_log_module", LOG),
    ("ngx_http_map_module", MAP),
    ("ngx_http_rewrite_module", REWRITE),
    ("ngx_http_try_files_module", TRY_FILES),
];

const CORE: &[Directive] = &[
    http("absolute_redirect", HSL, FLAG, "on", |b, h, s| put(&mut h.settings.absolute_redirect, b.flag(s))),
    no_effect("aio", HSL, ONE, "off", tuning::aio, "there is no asynchronous input or output of files"),
    no_effect("aio_write", HSL, FLAG, "off", tuning::flag, "there is no asynchronous input or output of files"),
    http("alias", LOCATION, ONE, "", |b, h, s| b.root(h, s, true)).sets("root"),
    http("auth_delay", HSL, ONE, "0s", |b, h, s| put(&mut h.settings.auth_delay, b.msec(s))),
    http("chunked_transfer_encoding", HSL, FLAG, "on", |b, h, s| put(&mut h.answers().chunked, b.flag(s))),
    http("client_body_buffer_size", HSL, ONE, "16k", |b, h, s| put(&mut h.settings.client_body_buffer_size, b.size(s))),
    http("client_body_in_file_only", HSL, ONE, "off", |b, h, s| {
        put(&mut h.settings.client_body_files, b.body_files(s))
    }),
    no_effect(
        "client_body_in_single_buffer",
        HSL,
        FLAG,
        "off",
        tuning::flag,
        "a body in memory is always in one buffer",
    ),
    http("client_body_temp_path", HSL, between(1, 4), "", |b, h, s| {
        put(&mut h.settings.client_body_temp_path, b.temp_path(s).map(Some))
    }),
    http("client_body_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.settings.client_body_timeout, b.msec(s))),
    http("client_header_buffer_size", HS, ONE, "1k", |b, h, s| {
        put(&mut h.connection.client_header_buffer_size, b.size(s))
    }),
    http("client_header_timeout", HS, ONE, "60s", |b, h, s| put(&mut h.connection.client_header_timeout, b.msec(s))),
    http("client_max_body_size", HSL, ONE, "1m", |b, h, s| put(&mut h.settings.client_max_body_size, b.offset(s))),
    http("connection_pool_size", HS, ONE, "512", |b, h, s| b.connection_pool_size(h, s))
        .without_effect("memory does not come from such pools; `large_client_header_buffers` is compared with it"),
    http("default_type", HSL, ONE, "text/plain", |b, h, s| put(&mut h.settings.default_type, b.text(s))),
    no_effect("directio", HSL, ONE, "off", tuning::directio, "files are read through the page cache"),
    no_effect("directio_alignment", HSL, ONE, "512", tuning::offset, "files are read through the page cache"),
    only("disable_symlinks", HSL, between(1, 2), "off"),
    http("early_hints", HSL, at_least(1), "", |b, h, s| h.settings.early_hints = b.conditions(s)),
    http("error_log", HSL, at_least(1), "", |b, h, s| h.given.list(&mut h.settings.error_log).extend(b.error_log(s)))
        .again()
        .documented("that of the main context"),
    http("error_page", HSLI, at_least(2), "", |b, h, s| b.error_page(h, s)).again(),
    http("etag", HSL, FLAG, "on", |b, h, s| put(&mut h.settings.etag, b.flag(s))),
    http("gzip_disable", HSL, at_least(1), "", |b, h, s| b.gzip_disable(h, s)).again(),
    http("gzip_http_version", HSL, ONE, "1.1", |b, h, s| {
        put(&mut h.filters().gzip_clients.http_version, b.gzip_http_version(s))
    }),
    http("gzip_proxied", HSL, at_least(1), "off", |b, h, s| b.gzip_proxied(h, s)).again(),
    http("gzip_vary", HSL, FLAG, "off", |b, h, s| put(&mut h.filters().gzip_clients.vary, b.flag(s))),
    block("http", MAIN, NONE.block()),
    http("if_modified_since", HSL, ONE, "exact", |b, h, s| {
        put(&mut h.settings.if_modified_since, b.if_modified_since(s))
    }),
    http("ignore_invalid_headers", HS, FLAG, "on", |b, h, s| put(&mut h.connection.ignore_invalid_headers, b.flag(s))),
    http("internal", LOCATION, NONE, "", |_, h, _| h.own.internal = true),
    http("keepalive_disable", HSL, between(1, 2), "msie6", |b, h, s| b.keepalive_disable(h, s)).again(),
    left_out("keepalive_min_timeout", HSL, ONE),
    http("keepalive_requests", HSL, ONE, "1000", |b, h, s| put(&mut h.settings.keepalive_requests, b.number(s))),
    http("keepalive_time", HSL, ONE, "1h", |b, h, s| put(&mut h.settings.keepalive_time, b.msec(s))),
    http("keepalive_timeout", HSL, between(1, 2), "75s", |b, h, s| b.keepalive_timeout(h, s)),
    http("large_client_header_buffers", HS, TWO, "4 8k", |b, h, s| b.large_client_header_buffers(h, s)),
    block("limit_except", LOCATION, at_least(1).block()),
    http("limit_rate", HSLI, ONE, "", |b, h, s| put(&mut h.settings.limit_rate, b.size_template(s).map(Some)))
        .documented("0"),
    http("limit_rate_after", HSLI, ONE, "", |b, h, s| {
        put(&mut h.settings.limit_rate_after, b.size_template(s).map(Some))
    })
    .documented("0"),
    http("lingering_close", HSL, ONE, "on", |b, h, s| put(&mut h.settings.lingering.close, b.lingering_close(s))),
    http("lingering_time", HSL, ONE, "30s", |b, h, s| put(&mut h.settings.lingering.time, b.msec(s))),
    http("lingering_timeout", HSL, ONE, "5s", |b, h, s| put(&mut h.settings.lingering.timeout, b.msec(s))),
    http("listen", SERVER, at_least(1), "", |b, h, s| b.listen(&mut h.own.listens, s))
        .again()
        .documented("*:80, or *:8000 without root"),
    block("location", SL, between(1, 2).block()).again(),
    http("log_not_found", HSL, FLAG, "on", |b, h, s| put(&mut h.settings.log_not_found, b.flag(s))),
    http("log_subrequest", HSL, FLAG, "off", |b, h, s| put(&mut h.settings.subrequests.log, b.flag(s))),
    http("max_headers", HS, ONE, "1000", |b, h, s| put(&mut h.connection.max_headers, b.number(s))),
    http("max_ranges", HSL, ONE, "", |b, h, s| put(&mut h.answers().max_ranges, b.number(s))).documented("no limit"),
    http("merge_slashes", HS, FLAG, "on", |b, h, s| put(&mut h.connection.merge_slashes, b.flag(s))),
    http("msie_padding", HSL, FLAG, "on", |b, h, s| put(&mut h.answers().msie_padding, b.flag(s))),
    http("msie_refresh", HSL, FLAG, "off", |b, h, s| put(&mut h.answers().msie_refresh, b.flag(s))),
    no_effect(
        "open_file_cache",
        HSL,
        between(1, 2),
        "off",
        tuning::open_file_cache,
        "files are opened for each request",
    ),
    no_effect("open_file_cache_errors", HSL, FLAG, "off", tuning::flag, "files are opened for each request"),
    no_effect("open_file_cache_events", HSL, FLAG, "off", tuning::flag, "files are opened for each request"),
    no_effect("open_file_cache_min_uses", HSL, ONE, "1", tuning::number, "files are opened for each request"),
    no_effect("open_file_cache_valid", HSL, ONE, "60s", tuning::seconds, "files are opened for each request"),
    http("port_in_redirect", HSL, FLAG, "on", |b, h, s| put(&mut h.settings.port_in_redirect, b.flag(s))),
    refused("post_action", HSLI, ONE),
    no_effect("postpone_output", HSL, ONE, "1460", tuning::size, PARTS),
    no_effect("read_ahead", HSL, ONE, "0", tuning::size, "the system decides"),
    http("recursive_error_pages", HSL, FLAG, "off", |b, h, s| put(&mut h.settings.recursive_error_pages, b.flag(s))),
    no_effect("request_pool_size", HS, ONE, "4k", tuning::pool, "memory does not come from such pools"),
    http("reset_timedout_connection", HSL, FLAG, "off", |b, h, s| {
        put(&mut h.settings.reset_timedout_connection, b.flag(s))
    }),
    http("resolver", HSL, at_least(1), "", |b, h, s| b.resolver(&mut h.settings.resolver, s)),
    http("resolver_timeout", HSL, ONE, "30s", |b, h, s| {
        put(&mut Arc::make_mut(&mut h.settings.resolver).timeout, b.msec(s))
    }),
    http("root", HSLI, ONE, "html", |b, h, s| b.root(h, s, false)),
    http("satisfy", HSL, ONE, "all", |b, h, s| {
        put(&mut h.settings.satisfy, b.choice(s, &[("all", Satisfy::All), ("any", Satisfy::Any)]))
    }),
    no_effect("send_lowat", HSL, ONE, "0", tuning::size, "Linux does not have it"),
    http("send_timeout", HSL, ONE, "60s", |b, h, s| put(&mut h.settings.send_timeout, b.msec(s))),
    no_effect("sendfile", HSLI, FLAG, "off", tuning::flag, PARTS),
    no_effect("sendfile_max_chunk", HSL, ONE, "2m", tuning::size, PARTS),
    block("server", HTTP, NONE.block()).again(),
    http("server_name", SERVER, at_least(1), "", |b, h, s| b.server_names(&mut h.own.names, s))
        .again()
        .documented("\"\""),
    http("server_name_in_redirect", HSL, FLAG, "off", |b, h, s| {
        put(&mut h.settings.server_name_in_redirect, b.flag(s))
    }),
    no_effect("server_names_hash_bucket_size", HTTP, ONE, "64", tuning::number, HASH),
    no_effect("server_names_hash_max_size", HTTP, ONE, "512", tuning::number, HASH),
    http("server_tokens", HSL, ONE, "on", |b, h, s| put(&mut h.settings.server_tokens, b.server_tokens(s))),
    http("subrequest_output_buffer_size", HSL, ONE, "4k", |b, h, s| {
        put(&mut h.settings.subrequests.output_buffer, b.size(s))
    }),
    http("tcp_nodelay", HSL, FLAG, "on", |b, h, s| put(&mut h.settings.tcp_nodelay, b.flag(s))),
    no_effect("tcp_nopush", HSL, FLAG, "off", tuning::flag, PARTS),
    http("types", HSL, NONE.block(), "", |b, h, s| b.types(h, s)).again().documented("html, gif and jpg"),
    no_effect("types_hash_bucket_size", HSL, ONE, "64", tuning::number, HASH),
    no_effect("types_hash_max_size", HSL, ONE, "1024", tuning::number, HASH),
    http("underscores_in_headers", HS, FLAG, "off", |b, h, s| put(&mut h.connection.underscores_in_headers, b.flag(s))),
    no_effect("variables_hash_bucket_size", HTTP, ONE, "64", tuning::number, HASH),
    no_effect("variables_hash_max_size", HTTP, ONE, "1024", tuning::number, HASH),
];

const HEADERS: &[Directive] = &[
    http("add_header", HSLI, between(2, 3), "", |b, h, s| h.own.add_headers.extend(b.add_header(s))).again(),
    http("add_header_inherit", HSLI, ONE, "on", |b, h, s| put(&mut h.written.add_header_inherit, b.inherit(s))),
    http("add_trailer", HSLI, between(2, 3), "", |b, h, s| h.own.add_trailers.extend(b.add_header(s))).again(),
    http("add_trailer_inherit", HSLI, ONE, "on", |b, h, s| put(&mut h.written.add_trailer_inherit, b.inherit(s))),
    http("expires", HSLI, between(1, 2), "off", |b, h, s| b.expires(h, s)),
];

const INDEX: &[Directive] =
    &[http("index", HSL, at_least(1), "index.html", |b, h, s| h.given.list(&mut h.settings.index).extend(b.index(s)))
        .again()];

const LOG: &[Directive] = &[
    http("access_log", HSLIE, at_least(1), "", |b, h, s| b.access_log(&h.given, &mut h.settings.access_logs, s))
        .again()
        .documented("logs/access.log combined"),
    http("log_format", HTTP, at_least(2), "", |b, _, s| b.log_format(s)).again().documented("combined \"…\""),
    no_effect(
        "open_log_file_cache",
        HSL,
        between(1, 4),
        "off",
        tuning::open_log_file_cache,
        "a log with variables in its path is opened for each line",
    ),
];

const MAP: &[Directive] = &[
    block("map", HTTP, TWO.block()).again(),
    no_effect("map_hash_bucket_size", HTTP, ONE, "64", tuning::number, HASH),
    no_effect("map_hash_max_size", HTTP, ONE, "2048", tuning::number, HASH),
];

const REWRITE: &[Directive] = &[
    http("break", SILI, NONE, "", |_, h, _| h.own.rewrite.push(RewriteOp::Break)).again(),
    block("if", SL, at_least(1).block()).again(),
    http("return", SILI, between(1, 2), "", |b, h, s| h.own.rewrite.extend(b.return_directive(s))).again(),
    http("rewrite", SILI, between(2, 3), "", |b, h, s| h.own.rewrite.extend(b.rewrite(s))).again(),
    http("rewrite_log", HSILI, FLAG, "off", |b, h, s| put(&mut h.settings.rewrite_log, b.flag(s))),
    http("set", SILI, TWO, "", |b, h, s| h.own.rewrite.extend(b.set_variable(s))).again(),
    http("uninitialized_variable_warn", HSILI, FLAG, "on", |b, h, s| {
        put(&mut h.settings.uninitialized_variable_warn, b.flag(s))
    }),
];

const TRY_FILES: &[Directive] = &[http("try_files", SL, at_least(2), "", |b, h, s| h.own.try_files = b.try_files(s))];
