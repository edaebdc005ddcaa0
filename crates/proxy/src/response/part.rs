//! `proxy_force_ranges`: a piece of a server's response, though the server has sent the whole.

use balanza_message::Header;

use super::head;
use crate::conditions;
use crate::exchange::Exchange;
use crate::filters::Part;
use crate::ranges::{self, Ranges};

/// Makes a complete head that of the range which the request asks for. If there is no such range,
/// [`Reply::unsatisfiable`](crate::exchange::Reply) is set.
pub fn begin(x: &mut Exchange) {
    // What the server can do does not matter: ranges are made here.
    x.reply.fields.change(Header::AcceptRanges, |_| None);
    let most = x.location().settings.answers.max_ranges;
    let Some(length) = x.reply.content_length.filter(|_| x.status == 200 && !x.route.subrequest && most > 0) else {
        return;
    };
    let etag = x.reply.fields.find(Header::Etag).unwrap_or_default();
    let changed = x.reply.fields.find(Header::LastModified).and_then(conditions::parse_date);
    let range = match x.request_field(Header::Range) {
        // One range only: the body comes by once.
        Some(range) if conditions::range_holds(x, etag, changed) => ranges::parse(range, length, 1),
        _ => Ranges::Whole,
    };
    match range {
        Ranges::One(range) => {
            x.status = 206;
            x.reply.reason = None;
            let value = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            x.reply.fields.push(b"Content-Range", value.as_bytes());
            if head::is_bodiless(x) {
                x.reply.length = Some(range.end - range.start);
            } else {
                head::length(x, Some(range.end - range.start));
                x.sent.filters.get_or_insert_default().add_first(Part::new(&range));
            }
        }
        Ranges::Unsatisfiable => {
            x.upstream.passed_fields.push(b"Content-Range", format!("bytes */{length}").as_bytes());
            x.reply.unsatisfiable = true;
        }
        Ranges::Whole | Ranges::Several(_) => x.reply.fields.push(b"Accept-Ranges", b"bytes"),
    }
}
