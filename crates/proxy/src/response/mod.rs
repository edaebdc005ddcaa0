//! Responses: `head` composes one, `send` sends it, `http1` is how HTTP/1 carries it. Here are those of Balanza's own.

mod expires;
pub mod filters;
pub mod head;
pub mod http1;
pub mod http2;
pub mod insertions;
mod msie;
mod part;
pub mod send;
mod status;

use balanza_message::push_decimal;
use balanza_net::buffer::{self, Buffer};

use self::head::{begin, finish, is_bodiless, length};
use self::send::{send_body, send_end, send_head};
use self::status::error_title;
use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::html;
use crate::step::{Step, note_send_error};
use crate::undecided::Undecided;
use crate::variables;

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
    send_with(x, local, &[]).await
}

/// The same with more fields.
///
/// # Errors
/// As [`send`].
pub async fn send_with(x: &mut Exchange, local: Local<'_>, fields: &[(&[u8], &[u8])]) -> Result<(), Unsent> {
    begin(x, local.status);
    let head_only = is_bodiless(x);
    if !local.content_type.is_empty() && !matches!(x.status, 204 | 304) {
        x.reply.fields.push(b"Content-Type", local.content_type);
    }
    if x.status != 304 {
        length(x, Some(local.body.len() as u64));
    }
    for (name, value) in local.field.iter().chain(fields) {
        x.reply.fields.push(name, value);
    }
    finish(x)?;
    if head_only || x.sent.filters.is_some() || x.sent.chunked {
        return send_stream(x, local.body).await;
    }
    x.downstream.ends = !x.sent.keeps_connection() && x.sent.rate.limit == 0 && x.body.heard_all();
    send_head(x, local.body).await?;
    send_end(x).await?;
    x.sent.finish(true);
    Ok(())
}

/// Begins a response made here whose length is not told, though its body will be in memory. Filters may add to its head.
///
/// # Errors
/// A field's value is undecided.
pub fn begin_stream(x: &mut Exchange, status: u16, content_type: &[u8]) -> Result<(), Unsent> {
    begin(x, status);
    x.reply.fields.push(b"Content-Type", content_type);
    if !is_bodiless(x) {
        length(x, None);
    }
    finish(x)?;
    Ok(())
}

/// Sends it with its body.
///
/// # Errors
/// The client has gone.
pub async fn send_stream(x: &mut Exchange, body: &[u8]) -> Result<(), Unsent> {
    if is_bodiless(x) {
        send_head(x, b"").await?;
    } else if x.sent.filters.is_some() {
        for part in body.chunks(buffer::CAPACITY) {
            send::send_through_filters(x, Buffer::holding(part)).await?;
        }
        send::end_filters(x).await?;
    } else {
        send_head(x, b"").await?;
        send_body(x, body).await?;
        send_end(x).await?;
    }
    x.sent.finish(true);
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
    let signature = variables::server_signature(x);
    let title = error_title(status);
    // As in NGINX, a status that it does not know has no page.
    if title.is_empty() && status >= 400 {
        return send(x, Local { status: shown, field, ..Local::default() }).await;
    }
    let heading = format!("{shown} {title}");
    page.extend_from_slice(
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>{heading}</title></head>\n\
             <body style=\"font-family: sans-serif; text-align: center\">\n<h1>{heading}</h1>\n<hr>\n"
        )
        .as_bytes(),
    );
    if !signature.is_empty() {
        page.extend_from_slice(b"<p>");
        html::escape(&signature, &mut page);
        page.extend_from_slice(b"</p>\n");
    }
    page.extend_from_slice(b"</body>\n</html>\n");
    if shown >= 400 && x.location().settings.answers.msie_padding && msie::wants_padding(x) {
        msie::pad(&mut page);
    }
    send(x, Local { status: shown, content_type: HTML, body: &page, field }).await
}

/// Sends a redirect to `target`.
///
/// # Errors
/// As [`send`].
pub async fn send_redirect(x: &mut Exchange, status: u16, target: &[u8]) -> Result<(), Unsent> {
    if matches!(status, 301 | 302) && x.location().settings.answers.msie_refresh && msie::is_msie(x) {
        return msie::send_refresh(x, target).await;
    }
    let mut location = Vec::new();
    absolute(target, x, &mut location);
    send_page(x, status, Some((b"Location", &location))).await
}

/// Appends a redirect's target; a path gets scheme, host and port in front, unless that is switched off.
pub fn absolute(target: &[u8], x: &mut Exchange, out: &mut Vec<u8>) {
    let location = x.location().clone();
    let settings = &location.settings;
    if target.first() == Some(&b'/') && settings.absolute_redirect {
        out.extend_from_slice(if x.client().tls.get().is_some() { b"https://" } else { b"http://" });
        if settings.server_name_in_redirect {
            out.extend_from_slice(x.server().name.as_bytes());
        } else if x.head_complete && x.request.host.is_some_and(|host| !host.is_empty()) {
            variables::host(x, out);
        } else if let Some(address) = x.local_address() {
            out.extend_from_slice(address.ip().to_string().as_bytes());
        } else {
            // Its socket has no address.
            variables::host(x, out);
        }
        if settings.port_in_redirect
            && let Some(address) = x.local_address()
            && address.port() != if x.client().tls.get().is_some() { 443 } else { 80 }
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
