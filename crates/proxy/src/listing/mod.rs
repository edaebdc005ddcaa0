//! Directories as answers: `autoindex` lists their files, `random_index` chooses one.

mod format;

use std::fs::{self, Metadata};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, ListingFormat, Location};
use balanza_message::Header;
use balanza_net::shortage::describe;

use self::format::{Entry, Kind, Page};
use crate::conditions::{self, Verdict};
use crate::exchange::Exchange;
use crate::paths::{as_path, open_failure};
use crate::reading;
use crate::response::{self, Local, head};
use crate::step::Step;
use crate::variables;

/// The longest name of a function in a JSONP answer.
const LONGEST_CALLBACK: usize = 128;

/// Lists a directory.
pub async fn serve(x: &mut Exchange, location: &Location, directory: &[u8]) -> Step {
    if let Err(step) = reading::leave_body(x).await {
        return step;
    }
    let settings = location.settings.answers.autoindex;
    let mut format = settings.format;
    let mut callback = Vec::new();
    if format == ListingFormat::Jsonp {
        match callback_name(&x.route.args) {
            Ok(Some(name)) => callback = name,
            Ok(None) => format = ListingFormat::Json,
            Err(name) => {
                x.report(Level::Info, format_args!("client sent invalid callback name: \"{}\"", Escaped(&name)));
                return Step::Error(400);
            }
        }
    }
    let directory = directory.strip_suffix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(directory);
    let listing = match fs::read_dir(as_path(directory)) {
        Ok(listing) => listing,
        Err(error) => return failed(x, directory, &error),
    };
    let content_type: &[u8] = match format {
        ListingFormat::Html => b"text/html",
        ListingFormat::Json => b"application/json",
        ListingFormat::Jsonp => b"application/javascript",
        ListingFormat::Xml => b"text/xml; charset=utf-8",
    };
    match conditions::judge_text(x, 200) {
        Verdict::Send => {}
        Verdict::NotModified => {
            x.route.forget_error_status();
            return match response::send(x, Local { status: 304, ..Local::default() }).await {
                Ok(()) => Step::Sent,
                Err(unsent) => unsent.step(x),
            };
        }
        Verdict::PreconditionFailed => return Step::Error(412),
    }
    if let Err(unsent) = response::begin_stream(x, 200, content_type) {
        return unsent.step(x);
    }
    let mut body = Vec::new();
    if !head::is_bodiless(x) {
        let Ok(entries) = entries(x, directory, listing) else { return Step::Error(500) };
        let utf8 = x.reply.fields.find(Header::ContentType).is_some_and(ends_in_utf8);
        let page =
            Page { uri: &x.route.uri, entries: &entries, settings, utf8, offset: local_offset(settings.localtime) };
        match format {
            ListingFormat::Html => page.html(&mut body),
            ListingFormat::Xml => page.xml(&mut body),
            ListingFormat::Json | ListingFormat::Jsonp => page.json(&callback, &mut body),
        }
    }
    match response::send_stream(x, &body).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}

fn ends_in_utf8(content_type: &[u8]) -> bool {
    let end = b"charset=utf-8";
    content_type.len() >= end.len() && content_type[content_type.len() - end.len()..].eq_ignore_ascii_case(end)
}

/// The file of a directory that `random_index` answers with; `None` if there is none.
///
/// # Errors
/// The directory cannot be read, which has been reported.
pub fn choose(x: &Exchange, directory: &[u8]) -> Result<Option<Vec<u8>>, Step> {
    let listing = fs::read_dir(as_path(directory)).map_err(|error| failed(x, directory, &error))?;
    let names = listing.flatten().map(|entry| entry.file_name().into_vec());
    let is_file = |name: &Vec<u8>| {
        let path = [directory, name].concat();
        fs::metadata(as_path(&path)).is_ok_and(|metadata| metadata.is_file())
    };
    let mut names: Vec<Vec<u8>> = names.filter(|name| !name.starts_with(b".") && is_file(name)).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    Ok(Some(names.swap_remove((random % names.len() as u64) as usize)))
}

fn failed(x: &Exchange, directory: &[u8], error: &io::Error) -> Step {
    let (status, level) = open_failure(error);
    x.report(level, format_args!("opendir() \"{}\" failed {}", Escaped(directory), describe(error)));
    Step::Error(status)
}

/// What a listing shows: directories first, then by name.
fn entries(x: &Exchange, directory: &[u8], listing: fs::ReadDir) -> Result<Vec<Entry>, ()> {
    let mut entries = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|error| {
            x.report(Level::Crit, format_args!("readdir() \"{}\" failed {}", Escaped(directory), describe(&error)));
        })?;
        let name = entry.file_name().as_bytes().to_vec();
        if name.starts_with(b".") {
            continue;
        }
        // A link shows what it leads to; one that leads nowhere shows itself.
        let metadata: io::Result<Metadata> = match fs::metadata(entry.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound || is_loop(&error) => fs::symlink_metadata(entry.path()),
            other => other,
        };
        match metadata {
            Ok(metadata) => entries.push(Entry {
                kind: match () {
                    () if metadata.is_dir() => Kind::Directory,
                    () if metadata.is_file() => Kind::File,
                    () => Kind::Other,
                },
                size: metadata.len(),
                changed: metadata.mtime(),
                name,
            }),
            Err(error) => {
                let path = entry.path();
                let path = Escaped(path.as_os_str().as_bytes());
                x.report(Level::Crit, format_args!("stat() \"{path}\" failed {}", describe(&error)));
                if error.kind() != ErrorKind::PermissionDenied {
                    return Err(());
                }
            }
        }
    }
    entries.sort_unstable_by(|one, other| {
        let files = |entry: &Entry| entry.kind != Kind::Directory;
        files(one).cmp(&files(other)).then_with(|| one.name.cmp(&other.name))
    });
    Ok(entries)
}

fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Seconds by which local time is ahead.
fn local_offset(localtime: bool) -> i64 {
    if !localtime {
        return 0;
    }
    let now = std::time::UNIX_EPOCH + balanza_net::clock::wall();
    jiff::Zoned::try_from(now).map_or(0, |now| i64::from(now.offset().seconds()))
}

/// The argument `callback`; `None` without one.
///
/// # Errors
/// What is no name of a function.
fn callback_name(args: &[u8]) -> Result<Option<Vec<u8>>, Vec<u8>> {
    let Some(written) = variables::argument(args, b"callback").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let mut name = Vec::with_capacity(written.len());
    let mut rest = written;
    while let [byte, after @ ..] = rest {
        rest = after;
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => balanza_message::hex_digit(*high).zip(balanza_message::hex_digit(*low)),
            _ => None,
        };
        name.push(escaped.map_or(*byte, |(high, low)| high << 4 | low));
        rest = if escaped.is_some() { &after[2..] } else { rest };
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    if written.len() > LONGEST_CALLBACK || !name.iter().all(is_name) { Err(name) } else { Ok(Some(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_are_names() {
        let name =
            |args: &str| callback_name(args.as_bytes()).map(|name| name.map(|it| String::from_utf8(it).unwrap()));
        assert_eq!(name(""), Ok(None));
        assert_eq!(name("callback="), Ok(None));
        assert_eq!(name("a=1&callback=my.f_1"), Ok(Some("my.f_1".into())));
        assert_eq!(name("callback=%66"), Ok(Some("f".into())));
        for bad in ["a[0]", "a%28", "a-b"] {
            assert!(name(&format!("callback={bad}")).is_err(), "{bad}");
        }
        assert!(name(&format!("callback={}", "f".repeat(128))).is_ok());
        assert!(name(&format!("callback={}", "f".repeat(129))).is_err());
    }
}
