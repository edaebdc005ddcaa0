//! Conditions of requests: whether the client has what it asks for, or wants it only if it is what it knows.

use std::time::UNIX_EPOCH;

use balanza_config::model::{IfModifiedSince, Location};
use balanza_message::Header;

use crate::exchange::Exchange;

/// What the request's conditions make of an answer.
pub enum Verdict {
    /// It is sent.
    Send,
    /// The client has it: 304.
    NotModified,
    /// It is not what the client knows: 412.
    PreconditionFailed,
}

/// If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since, in NGINX's order.
pub fn judge(x: &Exchange, location: &Location, changed: u64, etag: &[u8]) -> Verdict {
    let date = |header| x.request_field(header).and_then(parse_date);
    if date(Header::IfUnmodifiedSince).is_some_and(|since| changed > since) {
        return Verdict::PreconditionFailed;
    }
    if x.request_field(Header::IfMatch).is_some_and(|wanted| !names_tag(wanted, etag, false)) {
        return Verdict::PreconditionFailed;
    }
    let since = x.request_field(Header::IfModifiedSince);
    let none_match = x.request_field(Header::IfNoneMatch);
    if since.is_none() && none_match.is_none() {
        return Verdict::Send;
    }
    let fresh_by_date = since.is_none_or(|since| match (location.settings.if_modified_since, parse_date(since)) {
        (IfModifiedSince::Off, _) | (_, None) => false,
        (IfModifiedSince::Exact, Some(since)) => since == changed,
        (IfModifiedSince::Before, Some(since)) => since >= changed,
    });
    let fresh_by_tag = none_match.is_none_or(|tags| names_tag(tags, etag, true));
    if fresh_by_date && fresh_by_tag { Verdict::NotModified } else { Verdict::Send }
}

/// The same for a text, which has neither a date nor a tag. Conditions are about answers of status 200, be it that of an
/// `error_page`.
pub fn judge_text(x: &Exchange, status: u16) -> Verdict {
    if x.route.error_status().unwrap_or(status) != 200 || x.route.subrequest {
        return Verdict::Send;
    }
    let field = |header| x.request_field(header);
    if field(Header::IfUnmodifiedSince).is_some() || field(Header::IfMatch).is_some_and(|tags| tags != b"*") {
        return Verdict::PreconditionFailed;
    }
    let is_known = field(Header::IfNoneMatch) == Some(b"*") && field(Header::IfModifiedSince).is_none();
    if is_known { Verdict::NotModified } else { Verdict::Send }
}

/// Whether If-Range lets the range hold.
pub fn range_holds(x: &Exchange, etag: &[u8], changed: Option<u64>) -> bool {
    match x.request_field(Header::IfRange) {
        None => true,
        Some(tag) if tag.len() >= 2 && tag.ends_with(b"\"") => !etag.is_empty() && tag == etag,
        Some(date) => changed.is_some() && parse_date(date) == changed,
    }
}

/// Seconds since the epoch.
pub fn parse_date(text: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Whether a list of entity tags names this one.
fn names_tag(list: &[u8], etag: &[u8], weak: bool) -> bool {
    if list == b"*" {
        return true;
    }
    balanza_message::list(list).any(|tag| {
        let tag = if weak { tag.strip_prefix(b"W/").unwrap_or(tag) } else { tag };
        !etag.is_empty() && tag == etag
    })
}
