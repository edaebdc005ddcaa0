//! Rewrites the head of a server's response for the client.

use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, Location};
use balanza_message::{Header, Length};

use super::cookies;
use super::patterns::{prefix, replaced};
use crate::exchange::Exchange;
use crate::response::{self, head};
use crate::running_config::plan::Plan;
use crate::undecided::Undecided;

/// Fields of which a client gets the first only.
const ONCE: u64 = Header::ContentType.bit()
    | Header::Date.bit()
    | Header::Etag.bit()
    | Header::Expires.bit()
    | Header::LastModified.bit()
    | Header::Location.bit()
    | Header::Refresh.bit()
    | Header::Server.bit();

/// Composes the head of the reply: the server's status and fields, with our framing and connection.
///
/// # Errors
/// A regular expression is undecided.
pub fn compose(x: &mut Exchange, location: &Location, plan: &Plan) -> Result<(), Undecided> {
    // HTTP/2 has no reason phrases: ours is sent.
    let reason = Some(x.upstream.response.reason).filter(|_| !x.upstream.is_http2());
    let status = x.upstream.response.status;
    head::begin_with(x, status, reason, !plan.passes_server, !plan.passes_date);
    x.reply.is_proxied = true;
    let (redirects, cookies) = (&location.settings.proxy.redirects, &location.settings.proxy.cookies);
    let mut before = 0;
    for index in 0..x.upstream.response.fields.len() {
        let item = x.upstream.response.fields[index];
        if item.header.is_in(ONCE) {
            if item.header.is_in(before) {
                warn_of_second(x, index);
                continue;
            }
            before |= item.header.bit();
        }
        let name = item.name.of(&x.upstream.response.text);
        if plan.hidden.contain(item.header, name) || x.upstream.response.nominates(name) {
            continue;
        }
        let rewritten = match item.header {
            Header::Location | Header::Refresh if !redirects.is_empty() => redirected(x, location, index)?,
            Header::SetCookie if !cookies.is_empty() => {
                let value = item.value.of(&x.upstream.response.text).to_vec();
                cookies::changed(x, cookies, &value)?
            }
            _ => None,
        };
        match rewritten {
            Some(value) => {
                let name = item.name.of(&x.upstream.response.text);
                if head::is_sendable(name, &value, x) {
                    x.reply.fields.push(name, &value);
                }
            }
            None => x.reply.fields.copy(&item, &x.upstream.response.text),
        }
    }
    match x.upstream.response.body {
        _ if status == 101 => x.reply.upgrade = x.upstream.response.upgrade,
        // What is said about the length of a body that does not follow is the server's word about another request.
        _ if head::is_bodiless(x) => {
            x.reply.content_length = x.upstream.response.content_length;
            x.reply.length = x.reply.content_length.filter(|_| x.status != 204);
        }
        Length::None => head::length(x, Some(0)),
        Length::Known(length) => head::length(x, Some(length)),
        Length::Unknown => head::length(x, None),
    }
    head::finish(x)
}

fn warn_of_second(x: &Exchange, index: usize) {
    let response = &x.upstream.response;
    let item = response.fields[index];
    let (name, value) = (Escaped(item.name.of(&response.text)), Escaped(item.value.of(&response.text)));
    let first = Escaped(response.find(item.header).unwrap_or_default());
    let text = "upstream sent duplicate header line:";
    x.report(Level::Warn, format_args!("{text} \"{name}: {value}\", previous value: \"{name}: {first}\", ignored"));
}

/// A Location or Refresh with its URL replaced as `proxy_redirect` says; `None` when no rule fits.
fn redirected(x: &mut Exchange, location: &Location, index: usize) -> Result<Option<Vec<u8>>, Undecided> {
    let item = x.upstream.response.fields[index];
    let value = item.value.of(&x.upstream.response.text).to_vec();
    // "5; url=http://…": only the URL is rewritten.
    let begin = match item.header {
        Header::Refresh => match value.windows(4).position(|window| window.eq_ignore_ascii_case(b"url=")) {
            Some(at) => at + 4,
            None => return Ok(None),
        },
        _ => 0,
    };
    let rules = &location.settings.proxy.redirects;
    let Some(url) = replaced(x, rules, &value[begin..], prefix)? else { return Ok(None) };
    let mut result = value[..begin].to_vec();
    match item.header {
        Header::Location => response::absolute(&url, x, &mut result),
        _ => response::escape_blanks(&url, &mut result),
    }
    Ok(Some(result))
}
