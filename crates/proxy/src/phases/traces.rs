//! The span of a request, from its first location to its end.

use std::time::{SystemTime, UNIX_EPOCH};

use balanza_message::{Header, Length};
use balanza_net::clock;
use balanza_net::listening::Peer;

use crate::exchange::Exchange;
use crate::traces::{Span, Value};
use crate::undecided::Undecided;
use crate::values::found;
use crate::{trace_context, variables};

/// Decides whether the request has a span, and gives servers its context. Locations that it comes to later do not change
/// that.
///
/// # Errors
/// A regular expression is undecided.
pub fn begin(x: &mut Exchange) -> Result<(), Undecided> {
    let tracing = std::sync::Arc::clone(&x.location().settings.tracing);
    let sampled = match &tracing.on {
        None => false,
        Some(template) => {
            let mut text = std::mem::take(&mut x.scratch);
            text.clear();
            let rendered = variables::render(template, x, &mut text);
            let sampled = matches!(text.as_slice(), b"on" | b"1");
            x.scratch = text;
            rendered?;
            sampled
        }
    };
    if !sampled && !tracing.inject {
        return Ok(());
    }
    let context = variables::trace::context(x);
    context.sampled = sampled;
    if tracing.inject {
        let (parent, state) = (context.traceparent(), context.state.clone());
        x.request.replace(b"traceparent", &parent);
        x.request.replace(b"tracestate", &state);
    }
    Ok(())
}

/// Gives the span of the request to the exporter, if it has one.
#[cold]
pub fn end(x: &mut Exchange) {
    let Some(context) = x.values.trace.clone().filter(|context| context.sampled) else { return };
    let Some(tracer) = x.running().tracer.clone() else { return };
    tracer.add(span(x, *context));
}

fn span(x: &mut Exchange, context: trace_context::Context) -> Span {
    let location = std::sync::Arc::clone(x.location());
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let end = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
    let name = match &location.settings.tracing.name {
        Some(name) => rendered(x, |x, out| variables::render(name, x, out).is_ok()),
        None if location.name.is_empty() => rendered(x, method),
        None => location.name.clone(),
    };
    let mut attributes = Vec::with_capacity(14);
    defaults(x, &location.name, &mut attributes);
    for (name, value) in &location.settings.tracing.attributes {
        let value = rendered(x, |x, out| variables::render(value, x, out).is_ok());
        let is_field = name.starts_with("http.request.header.") || name.starts_with("http.response.header.");
        attributes.push((name.clone(), if is_field { Value::List(value) } else { Value::Text(value) }));
    }
    Span {
        name,
        trace_id: context.trace_id,
        span_id: context.span_id,
        parent_id: context.parent.map(|parent| parent.span_id),
        state: String::from_utf8_lossy(&context.state).into_owned(),
        begin: end.saturating_sub(clock::now() - x.started),
        end,
        attributes,
        failed: x.status >= 500,
    }
}

/// What every span has, by the names of OpenTelemetry's conventions for HTTP of version 1.16, as NGINX's module has them.
fn defaults(x: &mut Exchange, route: &str, to: &mut Vec<(Box<str>, Value)>) {
    let mut text = |name: &str, value: String| {
        if !value.is_empty() {
            to.push((name.into(), Value::Text(value)));
        }
    };
    text("http.method", rendered(x, method));
    text("http.target", rendered(x, |x, out| variables::request_uri(x, out)));
    text("http.scheme", if x.client().speaks_tls() { "https" } else { "http" }.into());
    text("http.route", route.into());
    text("http.flavor", rendered(x, |x, out| variables::flavor(x, out)));
    text("http.user_agent", rendered(x, |x, out| found(x.request_field(Header::UserAgent), out)));
    let name = if x.server().name.is_empty() {
        rendered(x, |x, out| {
            variables::host(x, out);
            true
        })
    } else {
        x.server().name.clone()
    };
    text("net.host.name", name);
    let peer = x.peer();
    text("net.sock.peer.addr", peer.to_string());
    let mut number =
        |name: &str, value: u64| to.push((name.into(), Value::Number(value.try_into().unwrap_or(i64::MAX))));
    let received = match x.request.body {
        Length::Known(length) => length,
        _ => x.body.received,
    };
    number("http.request_content_length", received);
    number("http.response_content_length", x.sent.body_bytes);
    if x.status != 0 {
        number("http.status_code", x.status.into());
    }
    if let Peer::Inet(address) = peer
        && address.port() != 0
    {
        number("net.sock.peer.port", address.port().into());
    }
    let usual = if x.client().speaks_tls() { 443 } else { 80 };
    if let Some(address) = x.local_address().filter(|address| address.port() != usual) {
        number("net.host.port", address.port().into());
    }
}

fn method(x: &mut Exchange, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(x.text(x.request.method_name));
    true
}

/// A value as a text; empty where there is none.
fn rendered(x: &mut Exchange, value: impl FnOnce(&mut Exchange, &mut Vec<u8>) -> bool) -> String {
    let mut text = std::mem::take(&mut x.scratch);
    text.clear();
    let found = value(x, &mut text);
    let value = if found { String::from_utf8_lossy(&text).into_owned() } else { String::new() };
    x.scratch = text;
    value
}
