//! OTLP's messages, of <https://github.com/open-telemetry/opentelemetry-proto>: those that spans of requests need.

#[cfg(feature = "otel")]
pub use self::messages::{encode, reason, rejected};

/// The configuration refuses an exporter in this build.
#[cfg(not(feature = "otel"))]
pub fn encode(_resource: &[(String, String)], _spans: &[super::Span]) -> Vec<u8> {
    Vec::new()
}

/// There is no answer without an exporter.
#[cfg(not(feature = "otel"))]
pub fn rejected(_answer: &[u8]) -> (u64, String) {
    (0, String::new())
}

/// Nor is there one that refuses.
#[cfg(not(feature = "otel"))]
pub fn reason(_answer: &[u8]) -> String {
    String::new()
}

#[cfg(feature = "otel")]
mod messages {
    use prost::{Message, Oneof};

    use super::super::{Span, Value};

    /// `SPAN_KIND_SERVER`.
    const SERVER: i32 = 2;
    /// `STATUS_CODE_ERROR`.
    const ERROR: i32 = 2;

    #[derive(Clone, PartialEq, Message)]
    pub struct ExportTraceServiceRequest {
        #[prost(message, repeated, tag = "1")]
        pub resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub scope_spans: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ScopeSpans {
        #[prost(message, optional, tag = "1")]
        pub scope: Option<Scope>,
        #[prost(message, repeated, tag = "2")]
        pub spans: Vec<SpanMessage>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Scope {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub version: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct SpanMessage {
        #[prost(bytes = "vec", tag = "1")]
        pub trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        pub trace_state: String,
        #[prost(bytes = "vec", tag = "4")]
        pub parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        pub name: String,
        #[prost(int32, tag = "6")]
        pub kind: i32,
        #[prost(fixed64, tag = "7")]
        pub start_time_unix_nano: u64,
        #[prost(fixed64, tag = "8")]
        pub end_time_unix_nano: u64,
        #[prost(message, repeated, tag = "9")]
        pub attributes: Vec<KeyValue>,
        #[prost(message, optional, tag = "15")]
        pub status: Option<Status>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Status {
        #[prost(int32, tag = "3")]
        pub code: i32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct KeyValue {
        #[prost(string, tag = "1")]
        pub key: String,
        #[prost(message, optional, tag = "2")]
        pub value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct AnyValue {
        #[prost(oneof = "Any", tags = "1, 3, 5")]
        pub value: Option<Any>,
    }

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Any {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(int64, tag = "3")]
        Number(i64),
        #[prost(message, tag = "5")]
        List(ArrayValue),
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ArrayValue {
        #[prost(message, repeated, tag = "1")]
        pub values: Vec<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ExportTraceServiceResponse {
        #[prost(message, optional, tag = "1")]
        pub partial_success: Option<PartialSuccess>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct PartialSuccess {
        #[prost(int64, tag = "1")]
        pub rejected_spans: i64,
        #[prost(string, tag = "2")]
        pub error_message: String,
    }

    /// `google.rpc.Status`: what answers over HTTP say when they refuse a request.
    #[derive(Clone, PartialEq, Message)]
    pub struct Refusal {
        #[prost(string, tag = "2")]
        pub message: String,
    }

    fn any(value: Any) -> Option<AnyValue> {
        Some(AnyValue { value: Some(value) })
    }

    fn text(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: any(Any::Text(value.into())) }
    }

    fn message(span: &Span) -> SpanMessage {
        let attribute = |(key, value): &(Box<str>, Value)| {
            let value = match value {
                Value::Text(text) => Any::Text(text.clone()),
                Value::Number(number) => Any::Number(*number),
                Value::List(text) => {
                    Any::List(ArrayValue { values: any(Any::Text(text.clone())).into_iter().collect() })
                }
            };
            KeyValue { key: key.to_string(), value: any(value) }
        };
        SpanMessage {
            trace_id: span.trace_id.to_vec(),
            span_id: span.span_id.to_vec(),
            trace_state: span.state.clone(),
            parent_span_id: span.parent_id.map(|id| id.to_vec()).unwrap_or_default(),
            name: span.name.clone(),
            kind: SERVER,
            start_time_unix_nano: span.begin,
            end_time_unix_nano: span.end,
            attributes: span.attributes.iter().map(attribute).collect(),
            status: span.failed.then_some(Status { code: ERROR }),
        }
    }

    /// A request to a collector.
    pub fn encode(resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
        let attributes = resource.iter().map(|(key, value)| text(key, value)).collect();
        let scope = Scope { name: "balanza".into(), version: env!("CARGO_PKG_VERSION").into() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: spans.iter().map(message).collect() }];
        let resource = Some(Resource { attributes });
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }.encode_to_vec()
    }

    /// How many spans an answer rejects, and why.
    pub fn rejected(answer: &[u8]) -> (u64, String) {
        let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        let partial = partial.unwrap_or_default();
        (u64::try_from(partial.rejected_spans).unwrap_or(0), partial.error_message)
    }

    /// Why an answer over HTTP refuses a request.
    pub fn reason(answer: &[u8]) -> String {
        Refusal::decode(answer).map(|refusal| refusal.message).unwrap_or_default()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_request_has_all_of_a_span() {
            let attributes = vec![
                ("http.method".into(), Value::Text("GET".into())),
                ("http.status_code".into(), Value::Number(503)),
                ("http.request.header.x".into(), Value::List("é".into())),
            ];
            let span = Span {
                name: "/".into(),
                trace_id: [1; 16],
                span_id: [2; 8],
                parent_id: Some([3; 8]),
                state: "a=b".into(),
                begin: 5,
                end: 7,
                attributes,
                failed: true,
            };
            let bytes = encode(&[("service.name".into(), "shop".into())], std::slice::from_ref(&span));
            let mut request = ExportTraceServiceRequest::decode(&bytes[..]).unwrap();
            let mut of_resource = request.resource_spans.remove(0);
            assert_eq!(of_resource.resource.unwrap().attributes, [text("service.name", "shop")]);
            let mut of_scope = of_resource.scope_spans.remove(0);
            assert_eq!(of_scope.scope.unwrap().name, "balanza");
            let read = of_scope.spans.remove(0);
            assert_eq!(read, message(&span));
            assert_eq!((read.kind, read.status), (2, Some(Status { code: 2 })));
            assert_eq!(read.parent_span_id, [3; 8]);
            // As protobuf has it: field 1 with a length, again and again.
            assert_eq!(bytes[0], 0x0a);
        }

        #[test]
        fn rejected_spans_are_read() {
            let partial = PartialSuccess { rejected_spans: 3, error_message: "full".into() };
            let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
            assert_eq!(rejected(&answer.encode_to_vec()), (3, "full".into()));
            assert_eq!(rejected(b""), (0, String::new()));
            assert_eq!(rejected(b"\xff\xff\xff"), (0, String::new()));
        }
    }
}
