//! Traces of requests.

use crate::directives::Directive;
use crate::directives::row::{HSL, HTTP, NONE, ONE, TWO, http};

pub(super) const MODULES: &[(&str, &[Directive])] = &[("ngx_otel_module", OTEL)];

const OTEL: &[Directive] = &[
    http("otel_exporter", HTTP, NONE.block(), "", |b, _, s| b.otel_exporter(s)),
    http("otel_resource_attr", HTTP, TWO, "", |b, _, s| b.otel_resource_attr(s)).again(),
    http("otel_service_name", HTTP, ONE, "", |b, _, s| b.otel_service_name(s)).documented("unknown_service:balanza"),
    http("otel_span_attr", HSL, TWO, "", |b, h, s| b.otel_span_attr(h, s)).again(),
    http("otel_span_name", HSL, ONE, "", |b, h, s| b.otel_span_name(h, s)),
    http("otel_trace", HSL, ONE, "", |b, h, s| b.otel_trace(h, s)).documented("off"),
    http("otel_trace_context", HSL, ONE, "", |b, h, s| b.otel_trace_context(h, s)).documented("ignore"),
];
