//! What `http` says of traces, until all of it has been read.

use crate::diagnostics::Span;
use crate::model::Exporter;

/// `otel_…` in `http`.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// `otel_exporter`, without the resource.
    pub exporter: Option<Exporter>,
    /// There was one, though it may be wrong.
    pub has_exporter: bool,
    /// `otel_service_name`.
    pub service: Option<String>,
    /// `otel_resource_attr`.
    pub resource: Vec<(String, String)>,
    /// The first `otel_trace` that is not `off`.
    pub traced_at: Option<Span>,
}
