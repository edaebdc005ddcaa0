//! Files under `root` or `alias`: index, media types, validators and ranges.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use balanza_config::log_text::Escaped;
use balanza_config::model::{GzipStatic, Level, Location};
use balanza_message::{Header, Method};
use balanza_net::buffer::{self, Buffer};
use balanza_net::shortage::describe;

use crate::conditions::{self, Verdict};
use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::listing;
use crate::paths::{as_path, is_missing, open_failure};
use crate::ranges::{self, Ranges};
use crate::reading;
use crate::response::{Unsent, filters, head, send};
use crate::step::{self, Step};
use crate::variables;

/// Answers with a file.
pub async fn serve(x: &mut Exchange, location: &Arc<Location>) -> Step {
    let method = x.method();
    if !matches!(method, Method::Get | Method::Head | Method::Post) {
        return Step::Error(405);
    }
    let mut path = Vec::new();
    if let Err(undecided) = variables::map_path(x, &mut path) {
        return undecided.into();
    }
    if x.route.uri.ends_with(b"/") {
        return match index(x, location, &path) {
            Some(step) => step,
            None if location.settings.answers.autoindex.enabled && method != Method::Post => {
                listing::serve(x, location, &path).await
            }
            None => forbidden(x, location, &path),
        };
    }
    let mut varies = false;
    if location.settings.gzip_static != GzipStatic::Off && method != Method::Post {
        match packed(x, location, &path) {
            Ok(Packed::Send(file, metadata)) => {
                let found =
                    Found { file, metadata, packed: true, varies: location.settings.gzip_static == GzipStatic::On };
                return answer(x, location, &found).await;
            }
            Ok(Packed::Exists) => varies = true,
            Ok(Packed::None) => {}
            Err(step) => return step,
        }
    }
    match open(&path) {
        Ok((_, metadata)) if metadata.is_dir() => step::add_slash(x),
        Ok((_, metadata)) if !metadata.is_file() => {
            x.report(Level::Crit, format_args!("\"{}\" is not a regular file", Escaped(&path)));
            Step::Error(404)
        }
        Ok(_) if method == Method::Post => Step::Error(405),
        Ok((file, metadata)) => answer(x, location, &Found { file, metadata, packed: false, varies }).await,
        Err(error) => failed(x, location, &path, &error),
    }
}

/// A file that is to be sent.
struct Found {
    file: File,
    metadata: Metadata,
    /// It is the one with `.gz` behind its name.
    packed: bool,
    /// There is one, so that the response depends on Accept-Encoding.
    varies: bool,
}

async fn answer(x: &mut Exchange, location: &Location, found: &Found) -> Step {
    if let Err(step) = reading::leave_body(x).await {
        return step;
    }
    match send_file(x, location, found).await {
        Ok(step) => step,
        Err(unsent) => unsent.step(x),
    }
}

/// What `gzip_static` comes to.
enum Packed {
    Send(File, Metadata),
    /// The client does not get it.
    Exists,
    None,
}

/// Looks for the compressed form of a file.
///
/// # Errors
/// What has its name is no file.
fn packed(x: &Exchange, location: &Location, path: &[u8]) -> Result<Packed, Step> {
    let always = location.settings.gzip_static == GzipStatic::Always;
    let clients = &location.settings.filters.gzip_clients;
    let takes = always || filters::takes_gzip(x, clients);
    if !takes && !clients.vary {
        return Ok(Packed::None);
    }
    let path = [path, b".gz"].concat();
    match open(&path) {
        Ok(_) if !takes => Ok(Packed::Exists),
        Ok((_, metadata)) if metadata.is_dir() => Ok(if always { Packed::None } else { Packed::Exists }),
        Ok((_, metadata)) if !metadata.is_file() => {
            x.report(Level::Crit, format_args!("\"{}\" is not a regular file", Escaped(&path)));
            Err(Step::Error(404))
        }
        Ok((file, metadata)) => Ok(Packed::Send(file, metadata)),
        Err(error) if is_missing(&error) => Ok(Packed::None),
        Err(error) => {
            let (_, level) = open_failure(&error);
            x.report(level, format_args!("open() \"{}\" failed {}", Escaped(&path), describe(&error)));
            Ok(Packed::None)
        }
    }
}

fn failed(x: &Exchange, location: &Location, path: &[u8], error: &io::Error) -> Step {
    let (status, level) = open_failure(error);
    if status != 404 || location.settings.log_not_found {
        x.report(level, format_args!("open() \"{}\" failed {}", Escaped(path), describe(error)));
    }
    Step::Error(status)
}

/// A file of a directory that answers for it, by an internal redirect: one that `random_index` chooses, or the first of
/// `index` that exists.
fn index(x: &mut Exchange, location: &Arc<Location>, directory: &[u8]) -> Option<Step> {
    if location.settings.answers.random_index {
        match listing::choose(x, directory) {
            Ok(Some(name)) => return Some(Step::Internal([&x.route.uri, &name[..]].concat(), x.route.args.clone())),
            Ok(None) => {}
            Err(step) => return Some(step),
        }
    }
    for template in &location.settings.index {
        let mut name = Vec::new();
        if let Err(undecided) = variables::render(template, x, &mut name) {
            return Some(undecided.into());
        }
        if name.starts_with(b"/") {
            return Some(Step::Internal(name, x.route.args.clone()));
        }
        let path = [directory, &name].concat();
        match std::fs::metadata(as_path(&path)) {
            Ok(metadata) if metadata.is_file() => {
                return Some(Step::Internal([&x.route.uri, &name[..]].concat(), x.route.args.clone()));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Some(failed(x, location, &path, &error));
            }
            _ => {}
        }
    }
    None
}

/// Nothing answers for a directory.
fn forbidden(x: &Exchange, location: &Location, directory: &[u8]) -> Step {
    match std::fs::metadata(as_path(directory)) {
        Ok(metadata) if metadata.is_dir() => {
            x.report(Level::Error, format_args!("directory index of \"{}\" is forbidden", Escaped(directory)));
            Step::Error(403)
        }
        Ok(_) => Step::Error(404),
        Err(error) => failed(x, location, directory, &error),
    }
}

fn open(path: &[u8]) -> io::Result<(File, Metadata)> {
    // A FIFO must not block the worker.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(as_path(path))?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Seconds since the epoch of the last change.
fn modified(metadata: &Metadata) -> u64 {
    u64::try_from(metadata.mtime()).unwrap_or(0)
}

/// The media type for a name's extension.
pub fn media_type<'a>(location: &'a Location, uri: &[u8]) -> &'a str {
    let name = uri.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let extension = name.iter().rposition(|byte| *byte == b'.').map(|dot| name[dot + 1..].to_ascii_lowercase());
    extension
        .and_then(|extension| String::from_utf8(extension).ok())
        .and_then(|extension| location.settings.types.get(extension.as_str()))
        .unwrap_or(&location.settings.default_type)
}

/// A file that answers, as its head describes it.
struct Document<'a> {
    file: &'a File,
    size: u64,
    etag: String,
    date: String,
    content_type: Vec<u8>,
    /// It is the one with `.gz` behind its name.
    packed: bool,
    /// There is one.
    varies: bool,
}

async fn send_file(
    x: &mut Exchange,
    location: &Location,
    Found { file, metadata, packed, varies }: &Found,
) -> Result<Step, Unsent> {
    let (size, changed) = (metadata.len(), modified(metadata));
    let etag = if location.settings.etag { format!("\"{changed:x}-{size:x}\"") } else { String::new() };
    // `error_page … =200 FILE` makes the file an answer like any other.
    if x.route.error_status() == Some(200) {
        x.route.forget_error_status();
    }
    // An error page is a page, and a part is a part, whatever the request's conditions were about.
    let plain = x.route.error_status().is_none() && !x.route.subrequest;
    let verdict = if plain { conditions::judge(x, location, changed, etag.as_bytes()) } else { Verdict::Send };
    if matches!(verdict, Verdict::PreconditionFailed) {
        if *varies && location.settings.filters.gzip_clients.vary {
            x.upstream.passed_fields.push(b"Vary", b"Accept-Encoding");
        }
        return Ok(Step::Error(412));
    }
    let not_modified = matches!(verdict, Verdict::NotModified);
    let content_type = match x.upstream.content_type.take() {
        Some(given) => given,
        None => media_type(location, &x.route.uri).as_bytes().to_vec(),
    };
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(changed));
    let mut document = Document { file, size, etag, date, content_type, packed: *packed, varies: *varies };
    let mut ranges = match x.request_field(Header::Range) {
        Some(range)
            if plain && !not_modified && conditions::range_holds(x, document.etag.as_bytes(), Some(changed)) =>
        {
            ranges::parse(range, size, location.settings.answers.max_ranges)
        }
        _ => Ranges::Whole,
    };
    if location.settings.filtered && !matches!(ranges, Ranges::Whole) {
        // There are parts only of a body whose length filters leave alone.
        compose(x, &document, &Ranges::Whole, 200)?;
        let is_changed = x.sent.filters.is_some() && matches!(ranges, Ranges::Several(_));
        if x.reply.content_length.is_none() || is_changed {
            ranges = Ranges::Whole;
        } else if let Some(content_type) = x.reply.fields.find(Header::ContentType) {
            document.varies |= x.reply.varies;
            if matches!(ranges, Ranges::Several(_)) {
                document.content_type = content_type.to_vec();
            }
        }
    }
    if matches!(ranges, Ranges::Unsatisfiable) {
        // The field goes with whatever page answers.
        x.upstream.passed_fields.push(b"Content-Range", format!("bytes */{size}").as_bytes());
        return Ok(Step::Error(416));
    }
    let status = match ranges {
        _ if not_modified => 304,
        Ranges::Whole => 200,
        _ => 206,
    };
    let parts = compose(x, &document, &ranges, status)?;
    if not_modified || head::is_bodiless(x) {
        send::send_head(x, b"").await?;
        x.sent.finish(true);
        return Ok(Step::Sent);
    }
    if x.sent.filters.is_some() {
        return send_changed(x, &document, parts).await;
    }
    match &parts[..] {
        [ranges::Part::File(range)] if range.end - range.start <= buffer::CAPACITY as u64 && !x.sent.chunked => {
            let mut data = Buffer::take();
            let length = (range.end - range.start) as usize;
            if let Err(error) = file.read_exact_at(&mut data.bytes_mut()[..length], range.start) {
                return Ok(truncated(x, &error));
            }
            send::send_head(x, &data.bytes()[..length]).await?;
        }
        parts => {
            send::send_head(x, b"").await?;
            for part in parts {
                let sent = match part {
                    ranges::Part::Text(text) => send::send_body(x, text).await.map(Ok),
                    ranges::Part::File(range) if x.sent.chunked || x.sent.rate.limit != 0 => {
                        copy(x, file, range.clone()).await
                    }
                    ranges::Part::File(range) => send_kernel(x, file, range.clone()).await,
                };
                if let Err(error) = sent? {
                    return Ok(truncated(x, &error));
                }
            }
            send::send_end(x).await?;
        }
    }
    x.sent.finish(true);
    Ok(Step::Sent)
}

/// Composes the head for these parts of a file.
fn compose(
    x: &mut Exchange,
    document: &Document<'_>,
    ranges: &Ranges,
    status: u16,
) -> Result<Vec<ranges::Part>, Unsent> {
    let Document { size, etag, date, content_type, packed, varies, .. } = document;
    let not_modified = status == 304;
    let parts = ranges::parts(ranges, *size, content_type);
    head::begin(x, status);
    match (ranges, not_modified) {
        (_, true) => {}
        (Ranges::Several(_), _) => {
            let value = [b"multipart/byteranges; boundary=", ranges::BOUNDARY].concat();
            x.reply.fields.push(b"Content-Type", &value);
        }
        _ => x.reply.fields.push(b"Content-Type", content_type),
    }
    if !not_modified {
        head::length(x, Some(parts.iter().map(ranges::Part::len).sum()));
    }
    if matches!(x.status, 200 | 206 | 304) {
        x.reply.fields.push(b"Last-Modified", date.as_bytes());
    }
    if !etag.is_empty() {
        x.reply.fields.push(b"ETag", etag.as_bytes());
    }
    if let Ranges::One(range) = ranges {
        let value = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        x.reply.fields.push(b"Content-Range", value.as_bytes());
    } else if x.status == 200 && x.location().settings.answers.max_ranges > 0 {
        x.reply.fields.push(b"Accept-Ranges", b"bytes");
    }
    if *packed && !not_modified {
        x.reply.fields.push(b"Content-Encoding", b"gzip");
    }
    if *varies {
        let location = Arc::clone(x.location());
        filters::vary(x, &location.settings.filters.gzip_clients);
    }
    head::finish(x)?;
    Ok(parts)
}

/// Sends parts of a file through the filters of the response.
async fn send_changed(x: &mut Exchange, document: &Document<'_>, parts: Vec<ranges::Part>) -> Result<Step, Unsent> {
    for part in parts {
        match part {
            ranges::Part::Text(text) => {
                for text in text.chunks(buffer::CAPACITY) {
                    send::send_through_filters(x, Buffer::holding(text)).await?;
                }
            }
            ranges::Part::File(mut range) => {
                while range.start < range.end {
                    let mut data = Buffer::take();
                    data.end = ((range.end - range.start) as usize).min(buffer::CAPACITY);
                    if let Err(error) = document.file.read_exact_at(data.unread_mut(), range.start) {
                        return Ok(truncated(x, &error));
                    }
                    range.start += data.end as u64;
                    send::send_through_filters(x, data).await?;
                }
            }
        }
    }
    send::end_filters(x).await?;
    x.sent.finish(true);
    Ok(Step::Sent)
}

/// The file became shorter while it was sent: the client must not take what it got for the whole.
fn truncated(x: &mut Exchange, error: &io::Error) -> Step {
    x.report(Level::Alert, format_args!("read() failed {} while sending a file", describe(error)));
    x.sent.end_connection();
    if x.sent.head { Step::Sent } else { Step::Error(500) }
}

type Copied = Result<io::Result<()>, SendError>;

async fn copy(x: &mut Exchange, file: &File, mut range: std::ops::Range<u64>) -> Copied {
    let mut data = Buffer::take();
    while range.start < range.end {
        let wanted = ((range.end - range.start) as usize).min(buffer::CAPACITY);
        if let Err(error) = file.read_exact_at(&mut data.bytes_mut()[..wanted], range.start) {
            return Ok(Err(error));
        }
        send::send_body(x, &data.bytes()[..wanted]).await?;
        range.start += wanted as u64;
    }
    Ok(Ok(()))
}

async fn send_kernel(x: &mut Exchange, file: &File, mut range: std::ops::Range<u64>) -> Copied {
    let timeout = x.location().settings.send_timeout;
    while range.start < range.end {
        let wanted = (range.end - range.start).min(1 << 20) as usize;
        let sent = x.downstream.send_file(file, range.start, wanted, timeout).await?;
        if sent == 0 {
            return Ok(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        range.start += sent as u64;
        x.sent.bytes += sent as u64;
        x.sent.body_bytes += sent as u64;
    }
    Ok(Ok(()))
}
