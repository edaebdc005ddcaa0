//! The trace that a request belongs to: `$otel_…`.

use balanza_config::template::TraceValue;

use super::fields::request_field;
use crate::exchange::Exchange;
use crate::trace_context::{self, Context, Parent, write_hex};
use crate::values::found;

/// The trace, which a request has once something asks for it.
pub fn context(x: &mut Exchange) -> &mut Context {
    if x.values.trace.is_none() {
        let parent = if x.location().settings.tracing.extract { parent(x) } else { None };
        x.values.trace = Some(Box::new(Context::new(parent)));
    }
    x.values.trace.as_mut().expect("it was made if there was none")
}

/// What the client says, if it is valid.
fn parent(x: &Exchange) -> Option<(Parent, Vec<u8>)> {
    let mut text = Vec::new();
    // Two fields are joined, which is not valid.
    request_field(b"traceparent", x, &mut text);
    let parent = trace_context::parse(&text)?;
    let mut state = Vec::new();
    request_field(b"tracestate", x, &mut state);
    if !trace_context::is_state(&state) {
        state.clear();
    }
    Some((parent, state))
}

/// Appends a value; false when there is none.
pub fn value(which: TraceValue, x: &mut Exchange, out: &mut Vec<u8>) -> bool {
    let context = context(x);
    let id: &[u8] = match which {
        TraceValue::TraceId => &context.trace_id,
        TraceValue::SpanId => &context.span_id,
        TraceValue::ParentId => match &context.parent {
            Some(parent) => &parent.span_id,
            None => return false,
        },
        TraceValue::ParentSampled => {
            let sampled = context.parent.as_ref().is_some_and(|parent| parent.sampled);
            return found(Some(if sampled { b"1" } else { b"0" }), out);
        }
    };
    write_hex(id, out);
    true
}
