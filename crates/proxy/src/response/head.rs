//! Composes the head of a response: what every handler's response has, whatever carries it to the client.

use balanza_config::log_text::Escaped;
use balanza_config::model::{AddHeader, Level, Location};
use balanza_message::{Fields, Header, Method, Span};

use super::{expires, filters, http1, http2, part};
use crate::dates;
use crate::exchange::Exchange;
use crate::undecided::Undecided;
use crate::variables;

/// Whether the request is a HEAD, so that no body goes out.
pub fn is_head(x: &Exchange) -> bool {
    x.method() == Method::Head
}

/// Whether nothing may follow the response's head, whatever there would be to send.
pub fn is_bodiless(x: &Exchange) -> bool {
    is_head(x) || matches!(x.status, 100..200 | 204 | 304) || x.downstream.is_nowhere() || x.upstream.is_tunnel
}

/// Begins the head of a response: status, Server and Date. An error page's status goes before `status`.
pub fn begin(x: &mut Exchange, status: u16) {
    begin_with(x, status, None, true, true);
}

/// Begins a head with a server's reason phrase, or without our Server and Date where the server's are passed.
pub fn begin_with(x: &mut Exchange, status: u16, reason: Option<Span>, server: bool, date: bool) {
    x.reply.clear();
    x.sent.filters = None;
    x.status = x.route.error_status().unwrap_or(status);
    // By HTTP/2, a WebSocket is open with a status of 2xx, which only the switch of a server's protocol may say.
    if x.downstream.opens_websocket() && matches!(x.status, 200..300) {
        x.status = 502;
    }
    // To a CONNECT, any 2xx says that the tunnel is open.
    if x.request.method == Method::Connect
        && matches!(x.status, 200..300)
        && !x.upstream.is_tunnel
        && !x.route.subrequest
    {
        x.status = 502;
    }
    // As in NGINX, a page of an error has the usual reason, also if the status is the server's.
    x.reply.reason = reason.filter(|_| x.status == status && x.route.error_status().is_none());
    if x.downstream.is_http2() {
        http2::begin(x);
    } else {
        http1::begin(x);
    }
    if server {
        let signature = variables::server_signature(x);
        if !signature.is_empty() {
            x.reply.fields.push(b"Server", &signature);
        }
    }
    if date {
        dates::push_date(&mut x.reply.fields);
    }
}

/// Says how long the body is, if that is known.
pub fn length(x: &mut Exchange, length: Option<u64>) {
    if x.status == 204 {
        return;
    }
    x.reply.content_length = length;
    let trailers = wants_trailers(x) && !is_head(x);
    if x.downstream.is_http2() {
        http2::delimit(x, length, trailers);
    } else {
        http1::delimit(x, length, trailers);
    }
}

fn wants_trailers(x: &Exchange) -> bool {
    let trailers = &x.location().settings.add_trailers;
    x.upstream.trailers_follow && x.downstream.is_http2() || trailers.iter().any(|trailer| applies(trailer, x.status))
}

/// Ends the head: `add_header` and the like. From here on the response's rate is known.
///
/// # Errors
/// A value is undecided. A 500 goes out without it.
pub fn finish(x: &mut Exchange) -> Result<(), Undecided> {
    if (x.sent.has_rate() || x.location().settings.limit_rate.is_some()) && !x.downstream.is_page() {
        let rate = set_rate(x);
        unless_500(x, rate)?;
    }
    if let Some(challenge) = &x.checks.challenge {
        let is_proxy = x.request.method == Method::Connect && x.status == 407;
        x.reply.fields.push(if is_proxy { b"Proxy-Authenticate" } else { b"WWW-Authenticate" }, challenge);
    }
    x.reply.fields.append(&x.upstream.passed_fields);
    x.reply.fields.append(x.upstream.session.fields());
    if x.location().settings.client.user_id.is_set() && !x.route.subrequest {
        let added = variables::user_id::add_cookie(x);
        unless_500(x, added)?;
    }
    if x.location().settings.answers.expires.is_some() {
        let location = x.location().clone();
        if let Some(rule) = &location.settings.answers.expires {
            let set = expires::set(x, rule);
            unless_500(x, set)?;
        }
    }
    if !x.location().settings.add_headers.is_empty() {
        let location = x.location().clone();
        add_fields(x, &location)?;
    }
    if x.location().settings.filtered {
        let bodiless = is_bodiless(x);
        let changed = filters::begin(x, bodiless);
        if x.reply.content_length.is_none() && !bodiless {
            length(x, None);
        }
        unless_500(x, changed)?;
    }
    if x.reply.is_proxied && x.location().settings.proxy.force_ranges {
        part::begin(x);
    }
    if !x.downstream.is_http2() {
        http1::write_head(x);
    }
    Ok(())
}

/// A 500 may be the answer to an undecided value: it goes out without such values.
fn unless_500(x: &Exchange, value: Result<(), Undecided>) -> Result<(), Undecided> {
    if x.status == 500 { Ok(()) } else { value }
}

/// Works out the response's rate: what the server or `set $limit_rate` said goes before `limit_rate`, and
/// `limit_rate_after` holds for either.
fn set_rate(x: &mut Exchange) -> Result<(), Undecided> {
    let location = x.location().clone();
    let size = |template: &Option<_>, x: &mut Exchange| {
        template.as_ref().map_or(Ok(0), |template| variables::render_size(template, x))
    };
    if !x.sent.has_rate() {
        x.sent.set_rate(0);
        let limit = size(&location.settings.limit_rate, x)?;
        x.sent.set_rate(limit);
    }
    if x.sent.rate.limit != 0 && !x.sent.has_rate_after() {
        x.sent.set_rate_after(0);
        let after = size(&location.settings.limit_rate_after, x)?;
        x.sent.set_rate_after(after);
    }
    Ok(())
}

fn add_fields(x: &mut Exchange, location: &Location) -> Result<(), Undecided> {
    let mut value = std::mem::take(&mut x.scratch);
    for header in &location.settings.add_headers {
        if applies(header, x.status) {
            value.clear();
            let rendered = variables::render(&header.value, x, &mut value);
            if rendered.is_err() {
                unless_500(x, rendered)?;
            } else if is_sendable(&header.name, &value, x) {
                add_field(&mut x.reply.fields, &header.name, &value);
            }
        }
    }
    x.scratch = value;
    Ok(())
}

/// Adds a field; of some names there is one only.
fn add_field(fields: &mut Fields, name: &[u8], value: &[u8]) {
    let header = Header::recognise(name);
    if matches!(header, Header::LastModified | Header::Etag) {
        fields.change(header, |_| None);
    }
    if !value.is_empty() {
        // White space around a value is none of it, and HTTP/2 forbids it (RFC 9113, 8.2.1).
        fields.push(name, value.trim_ascii());
    }
}

/// Whether a value can stand in a field: a decoded variable may hold line ends, which would begin another field.
fn is_one_line(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// The same; one that cannot is left out, and the log says so.
pub fn is_sendable(name: &[u8], value: &[u8], x: &Exchange) -> bool {
    let fits = is_one_line(value);
    if !fits {
        let (name, value) = (Escaped(name), Escaped(value));
        let text = "is left out, because its value has a line end or a NUL:";
        x.report(Level::Error, format_args!("field \"{name}\" {text} \"{value}\""));
    }
    fits
}

pub fn applies(header: &AddHeader, status: u16) -> bool {
    header.always || has_usual_status(status)
}

/// Whether a response gets the fields of the configuration that are not for every status.
pub fn has_usual_status(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}
