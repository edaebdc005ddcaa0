//! `otel_…`: traces of requests.

use std::fmt;
use std::time::Duration;

use super::discover::{Api, Place};
use crate::template::Template;

/// `otel_exporter`, and what all spans have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exporter {
    /// `endpoint`: what takes OTLP.
    pub endpoint: Api,
    /// `protocol` (grpc).
    pub protocol: ExporterProtocol,
    /// `header`: names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// `interval` (5s).
    pub interval: Duration,
    /// `batch_size` (512): spans of a worker that are sent together.
    pub batch_size: usize,
    /// `batch_count` (4): batches of a worker that wait or are being sent.
    pub batch_count: usize,
    /// `otel_service_name` and `otel_resource_attr`.
    pub resource: Vec<(String, String)>,
}

/// Where spans go, without a query: it may have a key.
impl fmt::Display for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)?;
        match (&self.protocol, &self.endpoint.place) {
            (ExporterProtocol::Http { path }, Place::Host(..)) => {
                f.write_str(path.split('?').next().unwrap_or_default())
            }
            _ => Ok(()),
        }
    }
}

/// How spans are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExporterProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP/1.1, messages in protobuf.
    Http {
        /// The path of `endpoint` with its query (/v1/traces).
        path: String,
    },
}

/// What a location says of traces.
#[derive(Debug, Clone, Default)]
pub struct Tracing {
    /// `otel_trace` (off); a value of "on" or "1" asks for a span.
    pub on: Option<Template>,
    /// `otel_trace_context extract` or `propagate`: the client's context is continued.
    pub extract: bool,
    /// `otel_trace_context inject` or `propagate`: servers are sent the request's context.
    pub inject: bool,
    /// `otel_span_name`; without it the location's name.
    pub name: Option<Template>,
    /// `otel_span_attr`, in order.
    pub attributes: Vec<(Box<str>, Template)>,
}
