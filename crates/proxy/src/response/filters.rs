//! Which filters change a response, and what they change of its head. In NGINX's order: `gunzip`, `sub_filter`, `charset`,
//! `ssi`, what subrequests bring, `gzip`.

use std::sync::Arc;
use std::time::SystemTime;

use balanza_config::log_text::Escaped;
use balanza_config::model::{
    CharsetName, CharsetTable, Charsets, Filters, GzipClients, GzipProxied, HttpVersion, Level, SubFilter,
};
use balanza_config::regex::Captures;
use balanza_message::{Fields, Header, Version};

use crate::exchange::Exchange;
use crate::filters::{Chain, Charset, Gunzip, Gzip, Joint, Pair, Sub};
use crate::ssi::Page;
use crate::undecided::Undecided;
use crate::variables;

/// Changes a head that is complete except for its framing, and prepares the filters of the body unless there is none. A head
/// whose `content_length` is unknown afterwards needs other framing.
///
/// # Errors
/// A value is undecided.
pub fn begin(x: &mut Exchange, bodiless: bool) -> Result<(), Undecided> {
    let location = Arc::clone(x.location());
    let filters: &Filters = &location.settings.filters;
    let mut chain = Chain::default();
    if filters.gunzip {
        gunzip(x, filters, &mut chain);
    }
    if !filters.sub.pairs.is_empty() {
        sub(x, &filters.sub, &mut chain)?;
    }
    // By the type without the character set that is added now.
    let media = media_type(x).0;
    let adds = filters.addition.is_any() && filters.addition.types.contain(media);
    let is_page = filters.ssi.enabled && filters.ssi.types.contain(media);
    let packs = filters.gzip.enabled && filters.gzip.types.contain(media);
    charset(x, filters, &mut chain)?;
    if adds || is_page {
        join(x, filters, &mut chain, adds, is_page);
    }
    if packs {
        gzip(x, filters, &mut chain);
    }
    if x.reply.content_length.is_none() && !x.reply.is_proxied {
        // There are parts only of what has a known length.
        x.reply.fields.change(Header::AcceptRanges, |_| None);
    }
    if !chain.is_empty() && !bodiless {
        x.sent.filters = Some(Box::new(chain));
    }
    Ok(())
}

fn gunzip(x: &mut Exchange, filters: &Filters, chain: &mut Chain) {
    let packed = x.reply.fields.find(Header::ContentEncoding).is_some_and(|it| it.eq_ignore_ascii_case(b"gzip"));
    if !packed {
        return;
    }
    vary(x, &filters.gzip_clients);
    if takes_gzip(x, &filters.gzip_clients) {
        return;
    }
    x.reply.fields.change(Header::ContentEncoding, |_| None);
    forget_length(x);
    x.reply.fields.change(Header::AcceptRanges, |_| None);
    weaken_tag(x);
    chain.add(Gunzip::default());
}

fn sub(x: &mut Exchange, filter: &SubFilter, chain: &mut Chain) -> Result<(), Undecided> {
    if x.reply.content_length == Some(0) || !filter.types.contain(media_type(x).0) {
        return Ok(());
    }
    let mut pairs = Vec::with_capacity(filter.pairs.len());
    for (search, replacement) in &filter.pairs {
        let mut pair = Pair { search: Vec::new(), replacement: Vec::new() };
        variables::render(search, x, &mut pair.search)?;
        variables::render(replacement, x, &mut pair.replacement)?;
        pair.search.make_ascii_lowercase();
        // A search string with variables may be empty.
        if !pair.search.is_empty() {
            pairs.push(pair);
        }
    }
    if pairs.is_empty() {
        return Ok(());
    }
    forget_length(x);
    if filter.last_modified {
        weaken_tag(x);
    } else {
        x.reply.fields.change(Header::LastModified, |_| None);
        x.reply.fields.change(Header::Etag, |_| None);
    }
    chain.add(Sub::new(pairs, filter.once));
    Ok(())
}

/// Prepares what subrequests bring into a response whose type is right: `add_before_body`, `add_after_body` and `ssi`.
fn join(x: &mut Exchange, filters: &Filters, chain: &mut Chain, adds: bool, is_page: bool) {
    let (ssi, addition) = (&filters.ssi, &filters.addition);
    let adds = adds && x.status == 200 && !x.route.subrequest;
    let is_page = is_page && x.reply.content_length != Some(0);
    if adds {
        forget_length(x);
        x.reply.fields.change(Header::AcceptRanges, |_| None);
        weaken_tag(x);
    }
    if is_page {
        forget_length(x);
        x.reply.fields.change(Header::AcceptRanges, |_| None);
        if ssi.last_modified {
            weaken_tag(x);
        } else {
            x.reply.fields.change(Header::LastModified, |_| None);
            x.reply.fields.change(Header::Etag, |_| None);
        }
        chain.add_page(Page::new(ssi.value_length, ssi.silent_errors, x.pages()));
    }
    if adds || is_page {
        let uri = |uri: &[u8]| (adds && !uri.is_empty()).then(|| Box::from(uri));
        chain.add_joint(Joint::new(x.pages(), uri(&addition.before), uri(&addition.after)));
    }
}

fn gzip(x: &mut Exchange, filters: &Filters, chain: &mut Chain) {
    let gzip = &filters.gzip;
    if !matches!(x.status, 200 | 403 | 404)
        || x.reply.content_length.is_some_and(|length| length < gzip.min_length)
        || x.reply.fields.find(Header::ContentEncoding).is_some_and(|encoding| !encoding.is_empty())
    {
        return;
    }
    vary(x, &filters.gzip_clients);
    if !takes_gzip(x, &filters.gzip_clients) {
        return;
    }
    let mut window = gzip.window;
    // A small body needs no large window.
    if let Some(length) = x.reply.content_length.filter(|length| *length > 0) {
        while window > 9 && length < (1 << (window - 1)) - 262 {
            window -= 1;
        }
    }
    x.reply.fields.push(b"Content-Encoding", b"gzip");
    forget_length(x);
    x.reply.fields.change(Header::AcceptRanges, |_| None);
    weaken_tag(x);
    chain.add(Gzip::new(gzip.level, window));
}

/// Says that the response depends on Accept-Encoding (`gzip_vary`).
pub fn vary(x: &mut Exchange, clients: &GzipClients) {
    if clients.vary && !x.reply.varies {
        x.reply.varies = true;
        x.reply.fields.push(b"Vary", b"Accept-Encoding");
    }
}

fn forget_length(x: &mut Exchange) {
    x.reply.length = None;
    x.reply.content_length = None;
}

/// The bytes of a changed response need not be the same each time.
fn weaken_tag(x: &mut Exchange) {
    x.reply.fields.change(Header::Etag, |tag| match tag {
        [b'W', b'/', _, ..] => Some(tag.to_vec()),
        [b'"', ..] => Some([b"W/", tag].concat()),
        _ => None,
    });
}

/// The media type without parameters, and the character set that goes with it. As in NGINX only a server's Content-Type is
/// taken apart.
fn media_type(x: &Exchange) -> (&[u8], Option<&[u8]>) {
    let value = x.reply.fields.find(Header::ContentType).unwrap_or_default();
    if !x.reply.is_proxied {
        return (value, None);
    }
    let mut rest = value;
    while let Some(at) = rest.iter().position(|byte| *byte == b';') {
        rest = rest[at + 1..].trim_ascii_start();
        let Some((_, name)) = rest.split_at_checked(8).filter(|(word, _)| word.eq_ignore_ascii_case(b"charset="))
        else {
            continue;
        };
        let begin = value.len() - rest.len();
        let media = value[..begin].trim_ascii_end();
        let media = media.strip_suffix(b";").unwrap_or(media);
        let name = name.strip_prefix(b"\"").unwrap_or(name);
        return (media, Some(name.strip_suffix(b"\"").unwrap_or(name)));
    }
    (value, None)
}

/// A character set by its name, and its number if the configuration knows it.
type Named = (Vec<u8>, Option<usize>);

fn named(x: &mut Exchange, charset: &CharsetName) -> Result<Named, Undecided> {
    match charset {
        CharsetName::Known(index) => {
            let name = x.running().config.http.charsets.names.get(*index).map(|name| name.as_bytes().to_vec());
            Ok((name.unwrap_or_default(), Some(*index)))
        }
        CharsetName::Dynamic(template) => {
            let mut name = Vec::new();
            variables::render(template, x, &mut name)?;
            let number = x.running().config.http.charsets.find(&name);
            Ok((name, number))
        }
    }
}

fn charset(x: &mut Exchange, filters: &Filters, chain: &mut Chain) -> Result<(), Undecided> {
    let filter = &filters.charset;
    let (media, given) = media_type(x);
    if media.is_empty() {
        return Ok(());
    }
    let (media, given) = (media.to_vec(), given.filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
    let forced = x.upstream.response_field(Header::XAccelCharset).filter(|_| x.reply.is_proxied);
    let (target, target_number) = if let Some(name) = forced.filter(|name| !name.is_empty()).map(<[u8]>::to_vec) {
        let Some(number) = x.running().config.http.charsets.find(&name) else {
            x.report(Level::Error, format_args!("unknown charset \"{}\" to override", Escaped(&name)));
            return Ok(());
        };
        (name, Some(number))
    } else {
        let Some(target) = &filter.target else { return Ok(()) };
        let applies =
            if given.is_some() { filter.override_given } else { !media.is_empty() && filter.types.contain(&media) };
        if !applies {
            return Ok(());
        }
        named(x, target)?
    };
    let (source, source_number) = match (&given, &filter.source) {
        (Some(name), _) => (name.clone(), x.running().config.http.charsets.find(name)),
        (None, Some(source)) => named(x, source)?,
        (None, None) => {
            set_charset(x, &media, &target);
            return Ok(());
        }
    };
    match (source_number, target_number) {
        (None, None) if source.eq_ignore_ascii_case(&target) => {
            if given.is_none() {
                set_charset(x, &media, &target);
            }
            return Ok(());
        }
        (Some(source), Some(target_number)) if source == target_number => {
            set_charset(x, &media, &target);
            return Ok(());
        }
        (Some(from), Some(to)) => {
            if x.reply.fields.find(Header::ContentEncoding).is_some_and(|encoding| !encoding.is_empty()) {
                return Ok(());
            }
            let charsets: &Charsets = &x.running().config.http.charsets;
            if let Some(table) = charsets.table(from, to).cloned() {
                set_charset(x, &media, &target);
                if !matches!(*table, CharsetTable::Bytes(_)) {
                    forget_length(x);
                }
                chain.add(Charset::new(table));
                return Ok(());
            }
        }
        _ => {}
    }
    let (source, target) = (Escaped(&source), Escaped(&target));
    x.report(Level::Error, format_args!("no \"charset_map\" between the charsets \"{source}\" and \"{target}\""));
    Ok(())
}

/// Sets the Content-Type field to a media type with a character set. A redirect has none, as in NGINX.
fn set_charset(x: &mut Exchange, media: &[u8], charset: &[u8]) {
    let is_sendable = !charset.is_empty() && !charset.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    let mut value = media.to_vec();
    if is_sendable && !matches!(x.status, 301 | 302) {
        value.extend_from_slice(b"; charset=");
        value.extend_from_slice(charset);
    }
    x.reply.fields.change(Header::ContentType, |_| Some(value.clone()));
}

/// Whether the client gets gzip, by what it says of itself and what is said of the response.
pub fn takes_gzip(x: &Exchange, clients: &GzipClients) -> bool {
    let accepts = x.request_field(Header::AcceptEncoding).is_some_and(accepts_gzip);
    // A subrequest's response is not for the client as it is.
    if !accepts || x.route.subrequest {
        return false;
    }
    let agent = x.request_field(Header::UserAgent);
    if clients.disable_msie6 && agent.is_some_and(is_msie6) {
        return false;
    }
    if clients.http_version == HttpVersion::Http11 && x.request.version == Version::Http10 {
        return false;
    }
    if x.request_field(Header::Via).is_some() && !proxied_takes(x, clients.proxied) {
        return false;
    }
    let Some(agent) = agent else { return true };
    !clients.disable.iter().any(|regex| {
        regex.find(agent, &mut Captures::default()).unwrap_or_else(|error| {
            x.undecided(&error);
            true
        })
    })
}

fn proxied_takes(x: &Exchange, allowed: GzipProxied) -> bool {
    let fields = &x.reply.fields;
    if allowed.off {
        return false;
    }
    if allowed.any || allowed.auth && x.request_field(Header::Authorization).is_some() {
        return true;
    }
    let date = |text: &[u8]| httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok();
    if let Some(expires) = fields.find(Header::Expires) {
        let now = fields.find(Header::Date).map_or(Some(SystemTime::now()), date);
        return allowed.expired && date(expires).zip(now).is_some_and(|(expires, now)| expires < now);
    }
    if fields.find(Header::CacheControl).is_some() {
        return allowed.no_cache && has_directive(fields, b"no-cache")
            || allowed.no_store && has_directive(fields, b"no-store")
            || allowed.private && has_directive(fields, b"private");
    }
    let has = |header| fields.find(header).is_some();
    !(allowed.no_last_modified && x.reply.is_proxied && has(Header::LastModified)
        || allowed.no_etag && has(Header::Etag))
}

/// Whether a Cache-Control field has this directive without a value.
fn has_directive(fields: &Fields, name: &[u8]) -> bool {
    let values = fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(b"cache-control"));
    values
        .flat_map(|(_, value)| value.split(|byte| matches!(byte, b',' | b';')))
        .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(name))
}

/// Whether an Accept-Encoding field names gzip, with a quality that is not 0. What is malformed does not.
fn accepts_gzip(value: &[u8]) -> bool {
    let mut from = 0;
    let rest = loop {
        let Some(at) = value[from..].windows(4).position(|word| word.eq_ignore_ascii_case(b"gzip")) else {
            return false;
        };
        let at = from + at;
        if at == 0 || matches!(value[at - 1], b',' | b' ') {
            break &value[at + 4..];
        }
        from = at + 4;
    };
    let rest = match rest.iter().position(|byte| *byte != b' ') {
        None => return true,
        Some(at) => &rest[at..],
    };
    match rest.split_first() {
        Some((b',', _)) | None => true,
        Some((b';', quality)) => match quality.trim_ascii_start() {
            [] => true,
            [b'q' | b'Q', b'=', quality @ ..] => is_positive(quality),
            _ => false,
        },
        Some(_) => false,
    }
}

/// Whether a quality is more than 0 and at most 1, with at most three digits behind the point.
fn is_positive(quality: &[u8]) -> bool {
    let end = quality.iter().position(|byte| matches!(byte, b',' | b' ')).unwrap_or(quality.len());
    let (Some((whole @ (b'0' | b'1'), rest)), true) = (quality[..end].split_first(), end > 0) else { return false };
    let digits = match rest {
        [] => return *whole == b'1',
        [b'.', digits @ ..] => digits,
        _ => return false,
    };
    // As NGINX adds them up.
    let sum: u32 = digits.iter().map(|digit| u32::from(digit.wrapping_sub(b'0'))).sum();
    let sum = sum + if *whole == b'1' { 100 } else { 0 };
    digits.iter().all(u8::is_ascii_digit) && digits.len() <= 3 && (1..=100).contains(&sum)
}

/// Internet Explorer up to 6, except for 6 with "SV1".
fn is_msie6(agent: &[u8]) -> bool {
    let Some(at) = agent.windows(5).position(|word| word == b"MSIE ") else { return false };
    match &agent[at + 5..] {
        [b'4' | b'5', b'.', ..] => true,
        [b'6', b'.', rest @ ..] => !rest.windows(3).any(|word| word == b"SV1"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_encoding_is_read_as_nginx_reads_it() {
        for yes in [
            "gzip",
            "gzip,x",
            "deflate, gzip",
            "GZip",
            "gzip ;",
            "gzip;q=1",
            "gzip; q=1.000",
            "gzip;Q=0.001",
            "x-gzip, gzip",
            "gzip  , br",
            "br;q=1.0, gzip;q=0.8, *;q=0.1",
            "gzip;q=0.5 ",
        ] {
            assert!(accepts_gzip(yes.as_bytes()), "{yes}");
        }
        for no in [
            "",
            "gzi",
            "x-gzip",
            "gzip;q=0",
            "gzip;q=0.000",
            "gzip;q=2",
            "gzip;q=1.1",
            "gzip;q=0.1234",
            "gzip;q=x",
            "gzip;q",
            "gzip;x=1",
            "gzipped",
            "deflate",
            "gzip;q=",
            "gzip;q=0.5x",
            "gzip q=1",
        ] {
            assert!(!accepts_gzip(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn old_explorers_are_known() {
        assert!(is_msie6(b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)"));
        assert!(is_msie6(b"MSIE 5.5"));
        assert!(!is_msie6(b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"));
        assert!(!is_msie6(b"MSIE 7.0"));
        assert!(!is_msie6(b"curl"));
    }
}
