//! Responses of Balanza's own, and the common parts of all responses: status line, fields, framing, rate.

use balanza_config::log_text::Escaped;
use balanza_config::model::{AddHeader, Level, Location};
use balanza_http1::Body;
use balanza_message::{Span, Version, push_decimal};
use balanza_net::buffer;

use crate::dates;
use crate::downstream::Rate;
use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::step::{Step, note_send_error};
use crate::variables::{self, Undecided};

/// The media type of built-in pages.
const HTML: &[u8] = b"text/html";

/// A response made here.
#[derive(Default)]
pub struct Local<'a> {
    /// Status.
    pub status: u16,
    /// Media type; none for a response without content.
    pub content_type: &'a [u8],
    /// The body; of a HEAD request only its length goes out.
    pub body: &'a [u8],
    /// Another field.
    pub field: Option<(&'a [u8], &'a [u8])>,
}

/// Why a response made here did not go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// The client has gone.
    Client(SendError),
    /// A field's value depends on an undecided expression. Nothing has been sent.
    Undecided(Undecided),
}

impl From<SendError> for Unsent {
    fn from(error: SendError) -> Unsent {
        Unsent::Client(error)
    }
}

impl From<Undecided> for Unsent {
    fn from(undecided: Undecided) -> Unsent {
        Unsent::Undecided(undecided)
    }
}

impl Unsent {
    /// What comes next in the handler that wanted to send it.
    pub fn step(self, x: &mut Exchange) -> Step {
        match self {
            Unsent::Client(error) => {
                note_send_error(x, Err(error));
                Step::Sent
            }
            Unsent::Undecided(undecided) => undecided.into(),
        }
    }
}

/// Sends a response made here, with its body.
///
/// # Errors
/// The client has gone, or a field's value is undecided.
pub async fn send(x: &mut Exchange, local: Local<'_>) -> Result<(), Unsent> {
    begin(x, local.status);
    let head_only = is_bodiless(x);
    if !local.content_type.is_empty() && !matches!(x.status, 204 | 304) {
        x.reply.fields.push(b"Content-Type", local.content_type);
    }
    if x.status != 304 {
        length(x, Some(local.body.len() as u64));
    }
    if let Some((name, value)) = local.field {
        x.reply.fields.push(name, value);
    }
    finish(x)?;
    if head_only {
        send_head(x, b"").await?;
    } else if x.chunked {
        send_head(x, b"").await?;
        send_body(x, local.body).await?;
        end_chunks(x).await?;
    } else {
        x.downstream.ends = !x.keep_alive && x.rate.limit == 0 && crate::reading::heard_all(x);
        send_head(x, local.body).await?;
    }
    x.completed = true;
    Ok(())
}

/// Sends the page for a status that no `error_page` covers.
///
/// # Errors
/// As [`send`]; a 500 is never undecided.
pub async fn send_error(x: &mut Exchange, status: u16) -> Result<(), Unsent> {
    send_page(x, status, None).await
}

/// The page, with another field.
async fn send_page(x: &mut Exchange, status: u16, field: Option<(&[u8], &[u8])>) -> Result<(), Unsent> {
    // 494 and its like are our own; the client knows them as 400.
    let shown = if (494..=497).contains(&status) { 400 } else { status };
    let mut page = Vec::with_capacity(256);
    let signature = variables::server_signature(&x.location().settings);
    let title = error_title(status);
    let heading = if title.is_empty() { shown.to_string() } else { format!("{shown} {title}") };
    page.extend_from_slice(
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>{heading}</title></head>\n\
             <body style=\"font-family: sans-serif; text-align: center\">\n<h1>{heading}</h1>\n<hr>\n<p>{signature}</p>\n\
             </body>\n</html>\n"
        )
        .as_bytes(),
    );
    send(x, Local { status: shown, content_type: HTML, body: &page, field }).await
}

/// Sends a redirect to `target`.
///
/// # Errors
/// As [`send`].
pub async fn send_redirect(x: &mut Exchange, status: u16, target: &[u8]) -> Result<(), Unsent> {
    let mut location = Vec::new();
    absolute(target, x, &mut location);
    send_page(x, status, Some((b"Location", &location))).await
}

/// Appends a redirect's target; a path gets scheme, host and port in front, unless that is switched off.
pub fn absolute(target: &[u8], x: &mut Exchange, out: &mut Vec<u8>) {
    let location = x.location().clone();
    let settings = &location.settings;
    if target.first() == Some(&b'/') && settings.absolute_redirect {
        out.extend_from_slice(b"http://");
        if settings.server_name_in_redirect {
            out.extend_from_slice(x.server().name.as_bytes());
        } else {
            variables::host(x, out);
        }
        if settings.port_in_redirect
            && let Some(address) = x.local_address()
            && address.port() != 80
        {
            out.push(b':');
            push_decimal(out, u64::from(address.port()));
        }
    }
    escape_blanks(target, out);
}

/// Appends a URL with blanks and control bytes escaped: a decoded variable may hold them, and they would end the field.
pub fn escape_blanks(url: &[u8], out: &mut Vec<u8>) {
    for byte in url {
        if *byte <= b' ' || *byte == 0x7f {
            balanza_message::uri::escape(&[*byte], balanza_message::uri::Escape::Component, out);
        } else {
            out.push(*byte);
        }
    }
}

/// Whether the request is a HEAD, so that no body goes out.
pub fn is_head(x: &Exchange) -> bool {
    x.method() == balanza_message::Method::Head
}

/// Whether nothing may follow the response's head, whatever there would be to send.
pub fn is_bodiless(x: &Exchange) -> bool {
    is_head(x) || matches!(x.status, 100..200 | 204 | 304)
}

/// Begins the head of a response: status, Server and Date. An error page's status goes before `status`.
pub fn begin(x: &mut Exchange, status: u16) {
    begin_with(x, status, None, true, true);
}

/// Begins a head with a server's reason phrase, or without our Server and Date where the server's are passed.
pub fn begin_with(x: &mut Exchange, status: u16, reason: Option<Span>, server: bool, date: bool) {
    x.reply.clear();
    x.chunked = false;
    x.status = if x.error_status != 0 { x.error_status } else { status };
    x.reply.reason = reason.filter(|_| x.status == status);
    // A client that waits for "100 Continue" may send its body or not: the next request could not be told from it.
    if x.must_end() || !x.body.continued && !x.body.is_finished() {
        x.keep_alive = false;
    }
    if server {
        let signature = variables::server_signature(&x.location().settings);
        x.reply.fields.push(b"Server", signature.as_bytes());
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
    let trailers = wants_trailers(x);
    let chunks_understood = x.request.version == Version::Http11 && x.head_complete;
    match length {
        Some(_) if !(trailers && chunks_understood) || is_head(x) => x.reply.length = length,
        _ if chunks_understood => x.chunked = true,
        _ => x.keep_alive = false,
    }
}

fn wants_trailers(x: &Exchange) -> bool {
    let trailers = &x.location().settings.add_trailers;
    trailers.iter().any(|trailer| applies(trailer, x.status))
}

/// Ends the head: `add_header` and the like. From here on the response's rate is known.
///
/// # Errors
/// A value is undecided. A 500 goes out without it.
pub fn finish(x: &mut Exchange) -> Result<(), Undecided> {
    if !x.rate_known && x.location().settings.limit_rate.is_some() {
        let rate = set_rate(x);
        unless_500(x, rate)?;
    }
    x.reply.fields.append(&x.kept_fields);
    x.reply.fields.append(&x.bond_fields);
    if !x.location().settings.add_headers.is_empty() {
        let location = x.location().clone();
        add_fields(x, &location)?;
    }
    write_head(x);
    Ok(())
}

/// Writes the head as HTTP/1.1 has it.
fn write_head(x: &mut Exchange) {
    let keepalive_header = keepalive_header(x);
    let (out, reply) = (&mut x.out, &x.reply);
    out.clear();
    let reason = reply.reason.map_or(reason_phrase(x.status).as_bytes(), |reason| x.response.of(reason));
    balanza_http1::write_status_line(out, x.status, reason);
    out.extend_from_slice(reply.fields.lines());
    balanza_http1::write_framing(
        out,
        match reply.length {
            _ if x.chunked => Body::Chunked,
            Some(length) => Body::Length(length),
            None => Body::None,
        },
    );
    if let Some(protocol) = reply.upgrade {
        out.extend_from_slice(b"Connection: upgrade\r\nUpgrade: ");
        out.extend_from_slice(x.response.of(protocol));
        out.extend_from_slice(b"\r\n");
    } else if x.keep_alive {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
        if let Some(timeout) = keepalive_header {
            out.extend_from_slice(b"Keep-Alive: timeout=");
            push_decimal(out, timeout);
            out.extend_from_slice(b"\r\n");
        }
    } else if x.status != 101 {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// The seconds that the client is told an idle connection may live.
pub fn keepalive_header(x: &Exchange) -> Option<u64> {
    x.location().settings.keepalive_header.map(|timeout| timeout.as_secs())
}

/// A 500 may be the answer to an undecided value: it goes out without such values.
fn unless_500(x: &Exchange, value: Result<(), Undecided>) -> Result<(), Undecided> {
    if x.status == 500 { Ok(()) } else { value }
}

fn set_rate(x: &mut Exchange) -> Result<(), Undecided> {
    x.rate_known = true;
    let location = x.location().clone();
    let size = |template: &Option<_>, x: &mut Exchange| {
        template.as_ref().map_or(Ok(0), |template| variables::render_size(template, x))
    };
    x.rate =
        Rate { limit: size(&location.settings.limit_rate, x)?, after: size(&location.settings.limit_rate_after, x)? };
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
            } else if !value.is_empty() && is_sendable(&header.name, &value, x) {
                x.reply.fields.push(&header.name, &value);
            }
        }
    }
    x.scratch = value;
    Ok(())
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

fn applies(header: &AddHeader, status: u16) -> bool {
    header.always || matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

/// Sends the head with the beginning of a body behind it.
///
/// # Errors
/// The client has gone.
pub async fn send_head(x: &mut Exchange, body: &[u8]) -> Result<(), SendError> {
    x.head_sent = true;
    let timeout = x.location().settings.send_timeout;
    if x.rate.limit != 0 && !body.is_empty() {
        x.downstream.send(&x.out, b"", timeout).await?;
        x.bytes_sent += x.out.len() as u64;
        return send_body(x, body).await;
    }
    x.downstream.send(&x.out, body, timeout).await?;
    x.bytes_sent += (x.out.len() + body.len()) as u64;
    x.body_bytes_sent += body.len() as u64;
    Ok(())
}

/// Sends a piece of the body, as a chunk if the response is chunked, at the response's rate.
///
/// # Errors
/// The client has gone.
pub async fn send_body(x: &mut Exchange, mut body: &[u8]) -> Result<(), SendError> {
    let timeout = x.location().settings.send_timeout;
    while !body.is_empty() {
        let allowed = match x.rate.limit {
            0 => body.len().min(buffer::CAPACITY),
            _ => x.downstream.allowance(x.rate, x.bytes_sent, x.started, body.len()).await,
        };
        let (now, later) = body.split_at(allowed.min(body.len()));
        let framing = if x.chunked {
            let mut size = [0; 20];
            let size = balanza_http1::write_chunk_head(&mut size, now.len() as u64);
            x.downstream.send(size, now, timeout).await?;
            x.downstream.send(b"\r\n", b"", timeout).await?;
            size.len() + 2
        } else {
            x.downstream.send(now, b"", timeout).await?;
            0
        };
        x.bytes_sent += (now.len() + framing) as u64;
        x.body_bytes_sent += (now.len() + framing) as u64;
        body = later;
    }
    Ok(())
}

/// Sends the last chunk and the trailers.
///
/// # Errors
/// The client has gone.
pub async fn end_chunks(x: &mut Exchange) -> Result<(), SendError> {
    let mut end = Vec::new();
    write_last_chunk(x, &mut end);
    let timeout = x.location().settings.send_timeout;
    x.downstream.send(&end, b"", timeout).await?;
    x.bytes_sent += end.len() as u64;
    x.body_bytes_sent += end.len() as u64;
    Ok(())
}

/// Appends the last chunk and the trailers: those of the server, then `add_trailer`.
pub fn write_last_chunk(x: &mut Exchange, end: &mut Vec<u8>) {
    let location = x.location().clone();
    x.reply.trailers.clear();
    if !x.response_trailers.is_empty() && x.client_takes_trailers() {
        x.reply.trailers.append(&x.response_trailers);
    }
    for trailer in &location.settings.add_trailers {
        if applies(trailer, x.status) {
            let mut value = Vec::new();
            // The response has gone: an undecided value is left out.
            let decided = variables::render(&trailer.value, x, &mut value).is_ok();
            if decided && !value.is_empty() && is_sendable(&trailer.name, &value, x) {
                x.reply.trailers.push(&trailer.name, &value);
            }
        }
    }
    balanza_http1::write_last_chunk(end, &x.reply.trailers);
}

/// The reason phrase of a status; "" for one without.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Time-out",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Large",
        415 => "Unsupported Media Type",
        416 => "Requested Range Not Satisfiable",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Temporarily Unavailable",
        504 => "Gateway Time-out",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

/// What a built-in page is headed with; some statuses say more there than in the status line.
fn error_title(status: u16) -> &'static str {
    match status {
        302 => "Found",
        494 => "Request Header Or Cookie Too Large",
        _ => reason_phrase(status),
    }
}
