//! `userid`: cookies that identify clients. An identifier is the address of the server or a number, the time, the process,
//! and a sequence.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, UserId, UserIdExpires, UserIdMode};
use balanza_message::Header;
use balanza_net::clock;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;

use super::fields::cookie;
use super::render;
use crate::exchange::{Exchange, Id, UserIdentity};
use crate::undecided::Undecided;
use crate::values::{is_true, write};

/// Where the sequence of `userid on` begins, and how far apart its numbers are.
const FIRST: u32 = 0x0303_0302;
const STEP: u32 = 0x100;

static SEQUENCE_V1: AtomicU32 = AtomicU32::new(1);
static SEQUENCE: AtomicU32 = AtomicU32::new(FIRST);

/// Appends `$uid_got`; false if the client has sent none.
pub fn got(x: &mut Exchange, out: &mut Vec<u8>) -> bool {
    let location = Arc::clone(x.location());
    let settings = &location.settings.client.user_id;
    if settings.mode == UserIdMode::Off {
        return false;
    }
    look(x, settings);
    match &known(x).got {
        Some((_, Some(id))) => show(settings, id, out),
        _ => false,
    }
}

/// Appends `$uid_set`; false if the client keeps its own.
///
/// # Errors
/// A regular expression is undecided.
pub fn set(x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    let location = Arc::clone(x.location());
    let settings = &location.settings.client.user_id;
    if !settings.is_set() {
        return Ok(false);
    }
    decide(x, settings)?;
    Ok(match known(x).set {
        Some(id) => show(settings, &id, out),
        None => false,
    })
}

/// Adds the cookie to the response.
///
/// # Errors
/// A regular expression is undecided.
pub fn add_cookie(x: &mut Exchange) -> Result<(), Undecided> {
    let location = Arc::clone(x.location());
    let settings = &location.settings.client.user_id;
    decide(x, settings)?;
    let known = known(x);
    let Some(id) = known.set else { return Ok(()) };
    let mut text = settings.name.to_vec();
    text.push(b'=');
    match &known.got {
        // Only the mark is added.
        Some((cookie, Some(got))) if *got == id => {
            text.extend(cookie.iter().take(22));
            text.extend([settings.mark.unwrap_or(b'='), b'=']);
        }
        _ => {
            text.extend(BASE64_STANDARD.encode(id).as_bytes());
            if let (Some(mark), Some(place)) = (settings.mark, text.len().checked_sub(2)) {
                text[place] = mark;
            }
        }
    }
    match settings.expires {
        UserIdExpires::Off => {}
        UserIdExpires::Max => text.extend(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
        UserIdExpires::After(time) => {
            text.extend(b"; expires=");
            crate::dates::write_cookie_time(time, &mut text);
        }
    }
    if let Some(domain) = &settings.domain {
        text.extend(b"; domain=");
        text.extend(domain);
    }
    text.extend(b"; path=");
    text.extend(&settings.path);
    text.extend(&settings.flags);
    x.reply.fields.push(b"Set-Cookie", &text);
    if let Some(p3p) = &settings.p3p {
        x.reply.fields.push(b"P3P", p3p);
    }
    Ok(())
}

fn known(x: &mut Exchange) -> &mut UserIdentity {
    x.values.user_id.get_or_insert_default()
}

/// Looks for the client's cookie, once.
fn look(x: &mut Exchange, settings: &UserId) {
    if std::mem::replace(&mut known(x).looked, true) {
        return;
    }
    let mut text = Vec::new();
    if !cookie(&settings.name, x, &mut text) {
        return;
    }
    let field = || x.request_field(Header::Cookie).unwrap_or_default();
    if text.len() < 22 {
        let message = "client sent too short userid cookie";
        x.report(Level::Error, format_args!("{message} \"{}\"", Escaped(field())));
        return;
    }
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    let decoded = GeneralPurpose::new(&base64::alphabet::STANDARD, config).decode(&text[..22]);
    let Some(id) = decoded.ok().and_then(|bytes| Id::try_from(bytes).ok()) else {
        x.report(Level::Error, format_args!("client sent invalid userid cookie \"{}\"", Escaped(field())));
        return;
    };
    // An identifier ends with a number that is not 0.
    let id = Some(id).filter(|id| id[12..] != [0; 4]);
    known(x).got = Some((text, id));
}

/// Decides which identifier the client is to have, once.
fn decide(x: &mut Exchange, settings: &UserId) -> Result<(), Undecided> {
    if std::mem::replace(&mut known(x).decided, true) {
        return Ok(());
    }
    look(x, settings);
    let got = match &known(x).got {
        Some((text, Some(id))) => Some((text.get(22..24) == Some(&[settings.mark.unwrap_or(b'='), b'='][..]), *id)),
        _ => None,
    };
    if let Some((marked, id)) = got
        && !is_reset(x, settings, &id)?
    {
        known(x).set = Some(id).filter(|_| settings.mark.is_some() && !marked);
        return Ok(());
    }
    let id = fresh(x, settings);
    known(x).set = Some(id);
    Ok(())
}

/// Whether `$uid_reset` asks for another identifier.
fn is_reset(x: &mut Exchange, settings: &UserId, id: &Id) -> Result<bool, Undecided> {
    let running = std::rc::Rc::clone(x.running());
    let Some(template) = &running.config.http.uid_reset else { return Ok(false) };
    let mut value = Vec::new();
    render(template, x, &mut value)?;
    if value == b"log" {
        let mut shown = Vec::new();
        show(settings, id, &mut shown);
        x.report(Level::Notice, format_args!("userid cookie \"{}\" was reset", Escaped(&shown)));
    }
    Ok(is_true(&value))
}

/// A new identifier.
fn fresh(x: &Exchange, settings: &UserId) -> Id {
    static START: OnceLock<u32> = OnceLock::new();
    let start = *START.get_or_init(|| (clock::wall().subsec_micros() / 20) << 16 | std::process::id() & 0xffff);
    // The time has 32 bits, as in NGINX.
    let seconds = (clock::wall().as_secs() & u64::from(u32::MAX)) as u32;
    let mut id = Id::default();
    let parts = id.as_chunks_mut::<4>().0;
    if settings.mode == UserIdMode::V1 {
        let sequence = SEQUENCE_V1.fetch_add(STEP, Relaxed);
        let numbers = [settings.service.unwrap_or(0), seconds, start, sequence];
        parts.iter_mut().zip(numbers).for_each(|(part, number)| *part = number.to_le_bytes());
        return id;
    }
    let next = |sequence: u32| Some(sequence.wrapping_add(STEP).max(FIRST));
    let sequence = SEQUENCE.fetch_update(Relaxed, Relaxed, next).unwrap_or(FIRST);
    let numbers = [settings.service.unwrap_or(0), seconds, start, sequence];
    parts.iter_mut().zip(numbers).for_each(|(part, number)| *part = number.to_be_bytes());
    if settings.service.is_none() {
        parts[0] = match x.local_address().map(|address| address.ip()) {
            Some(IpAddr::V4(ip)) => ip.octets(),
            Some(IpAddr::V6(ip)) => ip.octets().last_chunk().copied().unwrap_or_default(),
            None => [0; 4],
        };
    }
    id
}

/// Appends an identifier as variables have it.
fn show(settings: &UserId, id: &Id, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&settings.name);
    let mut digits = String::from("=");
    for part in id.as_chunks::<4>().0 {
        // Writing to memory cannot fail.
        let _ = write!(digits, "{:08X}", u32::from_le_bytes(*part));
    }
    write(out, format_args!("{digits}"))
}
