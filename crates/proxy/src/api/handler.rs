//! The worker's part of a request to the API: it reads the request, waits for the answer and sends it.

use std::sync::Arc;

use balanza_config::model::{Location, Matcher};
use balanza_config::template::Variable;
use balanza_message::{Header, Length, Method};
use balanza_net::clock;

use crate::body::Store;
use crate::desk::{Answer, Ask};
use crate::exchange::Exchange;
use crate::reading::{body_failed, buffer_body};
use crate::response::{self, Local};
use crate::step::Step;
use crate::variables;

use super::Failure;

/// Answers the request.
pub async fn serve(x: &mut Exchange, location: &Location, write: bool) -> Step {
    let most = location.settings.client_body_buffer_size as u64;
    let is_too_large = |x: &Exchange| matches!(x.request.body, Length::Known(length) if length > most);
    if !is_too_large(x)
        && let Err(error) = buffer_body(x).await
    {
        return body_failed(x, error);
    }
    let mut ask = question(x, location, write);
    let changes = !matches!(ask.method.as_str(), "GET" | "HEAD" | "OPTIONS");
    let answer = match x.body.store {
        _ if is_too_large(x) || x.body.received > most => {
            Failure::new(413, "BodyReadError", "request body is too large").answer(&ask.request_id)
        }
        _ if changes && write && is_of_another_site(x) => {
            let failure = Failure::new(403, "CrossSiteRequest", "changes are not accepted from pages of other sites");
            failure.answer(&ask.request_id)
        }
        _ => {
            ask.body = match &x.body.store {
                Store::Input(range) => x.body.input_bytes()[range.clone()].to_vec(),
                Store::Memory(bytes) => bytes.clone(),
                Store::Nowhere | Store::File(_) => Vec::new(),
            };
            let desk = Arc::clone(&x.running().desk);
            let id = ask.request_id.clone();
            let busy = || Failure::new(503, "Busy", "too many requests to the API wait").answer(&id);
            desk.ask(ask).await.unwrap_or_else(busy)
        }
    };
    clock::now();
    send(x, &answer).await
}

/// Answers with all numbers in Prometheus' format.
pub async fn serve_metrics(x: &mut Exchange) -> Step {
    if !matches!(x.request.method, Method::Get | Method::Head) {
        return Step::Error(405);
    }
    let desk = Arc::clone(&x.running().desk);
    let answer = desk.ask(Ask { metrics: true, ..Ask::default() }).await;
    clock::now();
    match answer {
        Some(answer) => send(x, &answer).await,
        None => Step::Error(503),
    }
}

async fn send(x: &mut Exchange, answer: &Answer) -> Step {
    let Answer { status, content_type, body, fields } = answer;
    let cache: (&[u8], &[u8]) = (b"Cache-Control", b"no-store");
    let local = Local { status: *status, content_type: content_type.as_bytes(), body, field: Some(cache) };
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    match response::send_with(x, local, &fields).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}

fn question(x: &mut Exchange, location: &Location, write: bool) -> Ask {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let uri = &x.route.uri[..];
    let rest = match &location.matcher {
        Matcher::Prefix { prefix, .. } | Matcher::Exact(prefix) => uri.strip_prefix(&prefix[..]).unwrap_or(uri),
        Matcher::Regex(_) | Matcher::Named(_) => uri,
    };
    let base = in_addresses(&uri[..uri.len() - rest.len()]);
    let (path, args) = (text(rest), text(&x.route.args));
    let mut id = Vec::new();
    // It is always defined.
    let _ = variables::value(&Variable::RequestId, x, &mut id);
    Ask {
        metrics: false,
        write,
        // An error's page is asked for by GET.
        method: if x.route.method_is_get { "GET".to_owned() } else { text(x.text(x.request.method_name)) },
        path,
        args,
        body: Vec::new(),
        request_id: text(&id),
        address: x.local_address().map(|address| address.ip().to_string()).unwrap_or_default(),
        base,
    }
}

/// A path as it stands in addresses, without a slash at the end.
fn in_addresses(path: &[u8]) -> String {
    let mut escaped = String::new();
    for byte in path.strip_suffix(b"/").unwrap_or(path) {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(*byte)),
            _ if byte.is_ascii_alphanumeric() => escaped.push(char::from(*byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Whether a browser sends the request for a page of another site, or may do so: browsers name the origin of a page
/// that changes something, and only a page of the same site can send JSON without asking first.
fn is_of_another_site(x: &Exchange) -> bool {
    let fetched_by =
        x.request.fields.iter().find(|field| x.request.of(field.name).eq_ignore_ascii_case(b"sec-fetch-site"));
    let fetched_by = fetched_by.map(|field| x.request.of(field.value));
    if fetched_by.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return true;
    }
    let origin = x.request_field(Header::Origin);
    let is_foreign = origin.is_some_and(|origin| !is_origin_of(origin, x));
    is_foreign || (origin.is_some() || fetched_by.is_some()) && !sends_json(x)
}

/// Whether an origin has the host, and the port if it is known, that the request is for.
fn is_origin_of(origin: &[u8], x: &Exchange) -> bool {
    let Some(authority) = [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme)) else {
        return false;
    };
    if let Some(host) = x.request_field(Header::Host) {
        return authority.eq_ignore_ascii_case(host);
    }
    let port = authority.iter().rposition(|byte| *byte == b':').filter(|at| !authority[*at..].contains(&b']'));
    let host = x.request.host.map_or(&b""[..], |host| x.request.of(host));
    authority[..port.unwrap_or(authority.len())].eq_ignore_ascii_case(host)
}

/// A request without a body needs no type: a browser asks before it sends its method.
fn sends_json(x: &Exchange) -> bool {
    let media = x.request_field(Header::ContentType);
    let media = media.and_then(|media| media.split(|byte| *byte == b';').next()).map(<[u8]>::trim_ascii);
    match media {
        Some(media) => media.eq_ignore_ascii_case(b"application/json"),
        None => x.body.received == 0,
    }
}
