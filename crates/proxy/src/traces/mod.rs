//! Spans of requests on their way to a collector: a worker collects them in batches, which a thread sends.
//!
//! Nothing here waits for the collector. A worker has at most `batch_count` batches that are not sent yet, and what comes
//! on top is dropped and counted. The thread belongs to an [`Exporter`] and ends when all that could give it batches is
//! gone.

mod collector;
mod exporter;
mod failure;
mod grpc;
mod http;
mod losses;
mod otlp;
mod tracer;

pub use self::exporter::Exporter;
pub use self::tracer::Tracer;
use crate::trace_context::{SpanId, TraceId};

/// The span of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// The trace.
    pub trace_id: TraceId,
    /// Its identifier.
    pub span_id: SpanId,
    /// The client's span.
    pub parent_id: Option<SpanId>,
    /// `tracestate`.
    pub state: String,
    /// When it began, in nanoseconds since 1970.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// What is known of the request.
    pub attributes: Vec<(Box<str>, Value)>,
    /// The answer was an error of a server.
    pub failed: bool,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// A list of one text: fields of messages may be repeated.
    List(String),
}
