//! `upstream`, of `http` and of `stream`.

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{
    HTTP, LOCATION, NONE, ONE, SS, STREAM, STREAM_SERVER, STREAM_UPSTREAM, TWO, UPSTREAM, UPSTREAMS, at_least, between,
    block, http, stream, upstream,
};

pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("balanza", OWN_UPSTREAM),
    ("ngx_http_upstream_hash_module", UPSTREAM_HASH),
    ("ngx_http_upstream_hc_module", UPSTREAM_CHECKS),
    ("ngx_http_upstream_ip_hash_module", UPSTREAM_IP_HASH),
    ("ngx_http_upstream_keepalive_module", UPSTREAM_KEEPALIVE),
    ("ngx_http_upstream_least_conn_module", UPSTREAM_LEAST_CONN),
    ("ngx_http_upstream_least_time_module", UPSTREAM_LEAST_TIME),
    ("ngx_http_upstream_module", UPSTREAM_CORE),
    ("ngx_http_upstream_random_module", UPSTREAM_RANDOM),
    ("ngx_http_upstream_sticky_module", UPSTREAM_STICKY),
    ("ngx_http_upstream_zone_module", UPSTREAM_ZONE),
    ("ngx_stream_upstream_hash_module", STREAM_UPSTREAM_HASH),
    ("ngx_stream_upstream_hc_module", STREAM_UPSTREAM_CHECKS),
    ("ngx_stream_upstream_least_conn_module", STREAM_UPSTREAM_LEAST_CONN),
    ("ngx_stream_upstream_least_time_module", STREAM_UPSTREAM_LEAST_TIME),
    ("ngx_stream_upstream_module", STREAM_UPSTREAM_CORE),
    ("ngx_stream_upstream_random_module", STREAM_UPSTREAM_RANDOM),
    ("ngx_stream_upstream_zone_module", STREAM_UPSTREAM_ZONE),
];

const OWN_UPSTREAM: &[Directive] = &[
    upstream("balance", UPSTREAMS, at_least(1), "", |b, u, s| b.balance_directive(u, s))
        .again()
        .documented("round_robin"),
    upstream("concurrency", UPSTREAM, at_least(0), "", |b, u, s| u.overload.concurrency = b.overload(s)),
    upstream("discover", UPSTREAMS, at_least(1), "", |b, u, s| b.discover(u, s)).again(),
    upstream("experiment", UPSTREAMS, at_least(0), "", |b, u, s| b.experiment(u, s)),
    upstream("experiment_arm", UPSTREAMS, at_least(1), "", |b, u, s| b.experiment_arm(u, s)).again(),
    upstream("hedge", UPSTREAM, at_least(0), "", |b, u, s| u.overload.hedge = b.overload(s)),
    upstream("load_report", UPSTREAMS, at_least(1), "", |b, u, s| b.load_report(u, s)).again(),
    upstream("outlier", UPSTREAMS, at_least(0), "", |b, u, s| u.overload.outlier = b.overload(s)),
    upstream("priority", UPSTREAMS, TWO, "", |b, u, s| b.priority(u, s)).again(),
    upstream("retry_budget", UPSTREAMS, at_least(0), "", |b, u, s| u.overload.retry_budget = b.overload(s)),
    upstream("server_list", UPSTREAMS, ONE, "", |b, u, s| b.server_list(u, s)).sets("state"),
    upstream("shadow", UPSTREAMS, at_least(1), "", |b, u, s| b.shadow(u, s)).again(),
    upstream("two_choices", UPSTREAMS, at_least(0), "", |b, u, s| b.balance_directive(u, s)).again(),
];

const UPSTREAM_HASH: &[Directive] =
    &[upstream("hash", UPSTREAM, between(1, 3), "", |b, u, s| b.balance_directive(u, s)).again()];

const UPSTREAM_CHECKS: &[Directive] = &[
    http("health_check", LOCATION, at_least(0), "", |b, h, s| h.own.health_checks.extend(b.health_check(s))).again(),
    block("match", HTTP, ONE.block()).again(),
];

const UPSTREAM_IP_HASH: &[Directive] =
    &[upstream("ip_hash", UPSTREAM, NONE, "", |b, u, s| b.balance_directive(u, s)).again()];

const UPSTREAM_KEEPALIVE: &[Directive] = &[
    upstream("keepalive", UPSTREAM, between(1, 2), "32 local", |b, u, s| b.keepalive(u, s)),
    upstream("keepalive_requests", UPSTREAM, ONE, "1000", |b, u, s| put(&mut u.keepalive.requests, b.number(s))),
    upstream("keepalive_time", UPSTREAM, ONE, "1h", |b, u, s| put(&mut u.keepalive.time, b.msec(s))),
    upstream("keepalive_timeout", UPSTREAM, ONE, "60s", |b, u, s| put(&mut u.keepalive.timeout, b.msec(s))),
];

const UPSTREAM_LEAST_CONN: &[Directive] =
    &[upstream("least_conn", UPSTREAM, NONE, "", |b, u, s| b.balance_directive(u, s)).again()];

const UPSTREAM_LEAST_TIME: &[Directive] =
    &[upstream("least_time", UPSTREAM, between(1, 2), "", |b, u, s| b.balance_directive(u, s)).again()];

const UPSTREAM_CORE: &[Directive] = &[
    upstream("ntlm", UPSTREAM, NONE, "", |_, u, _| u.ntlm = true),
    upstream("resolver", UPSTREAM, at_least(1), "", |b, u, s| b.resolver(u.resolver.get_or_insert_default(), s)),
    upstream("resolver_timeout", UPSTREAM, ONE, "", |b, u, s| u.resolver_timeout = b.msec(s))
        .documented("that of `http`"),
    upstream("queue", UPSTREAM, between(1, 2), "", |b, u, s| u.queue = b.queue(s)),
    upstream("server", UPSTREAM, at_least(1), "", |b, u, s| b.server(u, s)).again(),
    upstream("state", UPSTREAM, ONE, "", |b, u, s| b.server_list(u, s)),
    block("upstream", HTTP, ONE.block()).again(),
];

const UPSTREAM_RANDOM: &[Directive] =
    &[upstream("random", UPSTREAM, between(0, 2), "", |b, u, s| b.balance_directive(u, s)).again()];

const UPSTREAM_STICKY: &[Directive] =
    &[upstream("sticky", UPSTREAM, at_least(2), "", |b, u, s| b.sticky(u, s)).again()];

const UPSTREAM_ZONE: &[Directive] = &[upstream("zone", UPSTREAM, between(1, 2), "", |b, u, s| b.zone(u, s)).again()];

const STREAM_UPSTREAM_HASH: &[Directive] =
    &[upstream("hash", STREAM_UPSTREAM, between(1, 3), "", |b, u, s| b.balance_directive(u, s)).again()];

const STREAM_UPSTREAM_CHECKS: &[Directive] = &[
    stream("health_check", STREAM_SERVER, at_least(0), "", |b, t, s| t.health_checks.extend(b.health_check(s))).again(),
    stream("health_check_timeout", SS, ONE, "5s", |b, t, s| put(&mut t.server.health_check_timeout, b.msec(s))),
    block("match", STREAM, ONE.block()).again(),
];

const STREAM_UPSTREAM_LEAST_CONN: &[Directive] =
    &[upstream("least_conn", STREAM_UPSTREAM, NONE, "", |b, u, s| b.balance_directive(u, s)).again()];

const STREAM_UPSTREAM_LEAST_TIME: &[Directive] =
    &[upstream("least_time", STREAM_UPSTREAM, between(1, 2), "", |b, u, s| b.balance_directive(u, s)).again()];

const STREAM_UPSTREAM_CORE: &[Directive] = &[
    upstream("resolver", STREAM_UPSTREAM, at_least(1), "", |b, u, s| b.resolver(u.resolver.get_or_insert_default(), s)),
    upstream("resolver_timeout", STREAM_UPSTREAM, ONE, "", |b, u, s| u.resolver_timeout = b.msec(s))
        .documented("that of `stream`"),
    upstream("server", STREAM_UPSTREAM, at_least(1), "", |b, u, s| b.server(u, s)).again(),
    upstream("state", STREAM_UPSTREAM, ONE, "", |b, u, s| b.server_list(u, s)),
    block("upstream", STREAM, ONE.block()).again(),
];

const STREAM_UPSTREAM_RANDOM: &[Directive] =
    &[upstream("random", STREAM_UPSTREAM, between(0, 2), "", |b, u, s| b.balance_directive(u, s)).again()];

const STREAM_UPSTREAM_ZONE: &[Directive] =
    &[upstream("zone", STREAM_UPSTREAM, between(1, 2), "", |b, u, s| b.zone(u, s)).again()];
