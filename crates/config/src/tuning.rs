//! Directives that tune how NGINX works inside. Their values are checked as NGINX checks them and have no effect here.

use crate::load::Builder;
use crate::model::IgnoredFields;
use crate::tree::Statement;
use crate::values;

pub(crate) fn number(b: &mut Builder<'_>, s: &Statement) {
    b.number::<u64>(s);
}

pub(crate) fn size(b: &mut Builder<'_>, s: &Statement) {
    b.size::<u64>(s);
}

pub(crate) fn offset(b: &mut Builder<'_>, s: &Statement) {
    b.offset(s);
}

pub(crate) fn msec(b: &mut Builder<'_>, s: &Statement) {
    b.msec(s);
}

pub(crate) fn seconds(b: &mut Builder<'_>, s: &Statement) {
    if values::seconds(&s.words[1].value).is_none() {
        b.invalid_value(s, &s.words[1]);
    }
}

pub(crate) fn flag(b: &mut Builder<'_>, s: &Statement) {
    b.flag(s);
}

pub(crate) fn buffers(b: &mut Builder<'_>, s: &Statement) {
    b.buffers(s);
}

/// `proxy_cache_path PATH keys_zone=NAME:SIZE …`: what NGINX requires of it.
pub(crate) fn cache_path(b: &mut Builder<'_>, s: &Statement) {
    let zone = s.words[2..].iter().find_map(|word| Some((word, word.value.strip_prefix(b"keys_zone=")?)));
    let Some((word, zone)) = zone else {
        return b.error(s.span(), format!("\"{}\" must have \"keys_zone\" parameter", s.name()));
    };
    let size = zone.iter().position(|byte| *byte == b':').map(|at| &zone[at + 1..]);
    if size.and_then(|size| values::size(size, false)).is_none() {
        b.error(word.span, format!("invalid keys zone size \"{}\"", word.text()));
    }
}

/// `proxy_ignore_headers FIELD …`.
pub(crate) fn ignore_headers(b: &mut Builder<'_>, s: &Statement) {
    ignored_fields(b, s);
}

/// The fields that it names; `None` if one cannot be ignored.
pub(crate) fn ignored_fields(b: &mut Builder<'_>, s: &Statement) -> Option<IgnoredFields> {
    let mut ignored = IgnoredFields::default();
    const FIELDS: [&str; 9] = [
        "X-Accel-Redirect",
        "X-Accel-Expires",
        "X-Accel-Limit-Rate",
        "X-Accel-Buffering",
        "X-Accel-Charset",
        "Expires",
        "Cache-Control",
        "Set-Cookie",
        "Vary",
    ];
    for word in s.args() {
        match FIELDS.iter().position(|field| field.as_bytes().eq_ignore_ascii_case(&word.value)) {
            Some(0) => ignored.redirect = true,
            Some(2) => ignored.limit_rate = true,
            Some(3) => ignored.buffering = true,
            Some(_) => {}
            None => {
                let hint = format!("one of {}", FIELDS.join(", "));
                b.error_hint(word.span, format!("invalid value \"{}\"", word.text()), hint);
                return None;
            }
        }
    }
    Some(ignored)
}

/// A text that nothing can be wrong with.
pub(crate) fn any(_: &mut Builder<'_>, _: &Statement) {}

/// `debug_points stop | abort`.
pub(crate) fn debug_points(b: &mut Builder<'_>, s: &Statement) {
    b.choice(s, &[("stop", ()), ("abort", ())]);
}

/// `use METHOD`: those that NGINX can be built with on Linux.
pub(crate) fn event_method(b: &mut Builder<'_>, s: &Statement) {
    let word = &s.words[1];
    if !matches!(word.value.as_slice(), b"epoll" | b"poll" | b"select") {
        b.error_hint(word.span, format!("invalid event type \"{}\"", word.text()), "remove the line, or write epoll");
    }
}

/// `aio on | off | threads[=POOL]`.
pub(crate) fn aio(b: &mut Builder<'_>, s: &Statement) {
    let word = &s.words[1];
    match word.value.as_slice() {
        b"on" | b"off" | b"threads" => {}
        // Its pool may have variables.
        value if value.starts_with(b"threads=") => {
            b.template(word);
        }
        _ => b.invalid_value(s, word),
    }
}

/// `directio SIZE | off`.
pub(crate) fn directio(b: &mut Builder<'_>, s: &Statement) {
    if s.words[1].value != b"off" {
        b.offset(s);
    }
}

/// The size of a pool that NGINX can work with.
pub(crate) fn pool_size(b: &mut Builder<'_>, s: &Statement) -> Option<usize> {
    const LEAST: usize = 112;
    const STEP: usize = 16;
    let size: usize = b.size(s)?;
    if size < LEAST {
        b.error(s.words[1].span, format!("the pool size must be no less than {LEAST}"));
    } else if !size.is_multiple_of(STEP) {
        b.error(s.words[1].span, format!("the pool size must be a multiple of {STEP}"));
    } else {
        return Some(size);
    }
    None
}

/// `request_pool_size SIZE`.
pub(crate) fn pool(b: &mut Builder<'_>, s: &Statement) {
    pool_size(b, s);
}

/// `thread_pool NAME threads=NUMBER [max_queue=NUMBER]`.
pub(crate) fn thread_pool(b: &mut Builder<'_>, s: &Statement) {
    let mut threads = false;
    for word in &s.words[2..] {
        let number = |name: &[u8]| word.value.strip_prefix(name).map(values::number);
        match (number(b"threads="), number(b"max_queue=")) {
            (Some(None | Some(0)), _) => {
                return b.error(word.span, format!("invalid threads value \"{}\"", word.text()));
            }
            (_, Some(None)) => return b.error(word.span, format!("invalid max_queue value \"{}\"", word.text())),
            (given, _) => threads |= given.is_some(),
        }
    }
    if !threads {
        b.error(s.span(), "\"thread_pool\" must have \"threads\" parameter");
    }
}

/// `open_file_cache off | max=NUMBER [inactive=TIME]`.
pub(crate) fn open_file_cache(b: &mut Builder<'_>, s: &Statement) {
    file_cache(b, s, "the ", |name, value| match name {
        b"max" => values::number(value).is_some_and(|number| number > 0),
        b"inactive" => values::seconds(value).is_some(),
        _ => false,
    });
}

/// `open_log_file_cache off | max=NUMBER [inactive=TIME] [min_uses=NUMBER] [valid=TIME]`.
pub(crate) fn open_log_file_cache(b: &mut Builder<'_>, s: &Statement) {
    file_cache(b, s, "", |name, value| match name {
        b"max" | b"min_uses" => values::number(value).is_some(),
        b"inactive" | b"valid" => values::seconds(value).is_some(),
        _ => false,
    });
}

fn file_cache(b: &mut Builder<'_>, s: &Statement, the: &str, is_right: impl Fn(&[u8], &[u8]) -> bool) {
    let mut enough = false;
    for word in s.args() {
        let at = word.value.iter().position(|byte| *byte == b'=').unwrap_or(word.value.len());
        let (name, value) = (&word.value[..at], word.value.get(at + 1..).unwrap_or_default());
        if word.value != b"off" && !is_right(name, value) {
            return b.error(word.span, format!("invalid \"{}\" parameter \"{}\"", s.name(), word.text()));
        }
        enough |= name == b"off" || name == b"max" && value != b"0";
    }
    if !enough {
        b.error(s.span(), format!("\"{}\" must have {the}\"max\" parameter", s.name()));
    }
}

/// `gzip_hash SIZE`.
pub(crate) fn gzip_hash(b: &mut Builder<'_>, s: &Statement) {
    let Some(size) = b.size::<u64>(s) else { return };
    if !(9..=17).any(|bits| size == 1 << bits) {
        let sizes = "512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k";
        b.error(s.words[1].span, format!("\"gzip_hash\" directive must be {sizes}"));
    }
}
