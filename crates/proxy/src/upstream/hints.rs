//! `early_hints`: interim responses (103) of a server go on to the client.

use balanza_config::model::{Location, Settings};
use balanza_message::{Fields, Header, Response, Version};

use super::unanswered::HINTS;
use crate::exchange::Exchange;
use crate::response::send;
use crate::servers::failure::{Cause, Doing};
use crate::values;
use crate::variables;

/// Fields about a connection or a body, which an interim response of ours has not.
const LEFT_OUT: u64 = Header::HOP_BY_HOP | Header::ContentLength.bit() | Header::Trailer.bit();

/// Whether the client of this request may get hints. The conditions are asked with each.
pub(super) fn may_pass(x: &Exchange, settings: &Settings) -> bool {
    let understands = x.downstream.is_http2() || x.head_complete && x.request.version == Version::Http11;
    !settings.early_hints.is_empty() && understands && !x.route.subrequest && !x.sent.head
}

/// Passes an interim response on, if a condition holds.
///
/// # Errors
/// The client has gone, or does not read.
pub(super) async fn pass(x: &mut Exchange, location: &Location, hints: &Response) -> Result<(), (Cause, Doing)> {
    if hints.status != HINTS || !holds(x, &location.settings) {
        return Ok(());
    }
    let mut fields = Fields::default();
    let hidden = &location.settings.proxy.hide_headers;
    for field in &hints.fields {
        let name = hints.of(field.name);
        let is_hidden = hidden.iter().any(|hidden| hidden.eq_ignore_ascii_case(name));
        if !is_hidden && !field.header.is_in(LEFT_OUT) && !hints.nominates(name) {
            fields.push(name, hints.of(field.value));
        }
    }
    // As in NGINX, an interim response without fields says nothing.
    if fields.is_empty() {
        return Ok(());
    }
    send::send_interim(x, HINTS, &fields).await.map_err(|_| (Cause::ClientGone, Doing::Reading))
}

/// Whether a condition is neither empty nor "0".
fn holds(x: &mut Exchange, settings: &Settings) -> bool {
    settings.early_hints.iter().any(|condition| {
        let mut value = Vec::new();
        variables::render(condition, x, &mut value).is_ok() && values::is_true(&value)
    })
}
