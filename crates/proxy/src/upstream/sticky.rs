//! `sticky` and a request: what it says of its server, and what its client is told.

use balanza_balancing::Member;
use balanza_config::log_text::Escaped;
use balanza_config::model::{CookieExpires, Level, Sticky, StickyCookie};
use balanza_config::template::Template;
use balanza_net::clock;

use crate::exchange::Exchange;
use crate::servers::affinity::Affinity;
use crate::undecided::Undecided;
use crate::variables;

/// Computes the server that a request names: `x.upstream.session`, empty if it names none.
///
/// # Errors
/// A regular expression is undecided.
pub fn look_up(affinity: &Affinity, x: &mut Exchange) -> Result<(), Undecided> {
    let mut name = x.upstream.session.take_name();
    first_value(&affinity.lookup, x, &mut name)?;
    x.upstream.session.begin(name);
    Ok(())
}

/// A server was chosen: `sticky cookie` tells the client its cookie, in place of that of an earlier
/// attempt.
///
/// # Errors
/// A regular expression is undecided.
pub fn tell(affinity: &Affinity, x: &mut Exchange, member: Member) -> Result<(), Undecided> {
    let Sticky::Cookie(cookie) = &affinity.sticky else { return Ok(()) };
    let mut value = Vec::new();
    write_cookie(cookie, affinity.id(member), x, &mut value)?;
    x.upstream.session.tell(b"Set-Cookie", &value);
    Ok(())
}

/// A server has answered: its response may begin a session, and a known session continues with this server. The
/// response may have been sent already, so an undecided name begins no session.
pub fn learn(affinity: &Affinity, x: &mut Exchange, member: Member) {
    let Sticky::Learn(learn) = &affinity.sticky else { return };
    let mut name = std::mem::take(&mut x.scratch);
    let Ok(begins) = first_value(&learn.create, x, &mut name) else { return };
    if !begins {
        x.upstream.session.name().clone_into(&mut name);
    }
    affinity.keep(&name, begins, member, clock::recent());
    x.scratch = name;
}

/// The first value that is not empty; false, and nothing, if there is none.
fn first_value(templates: &[Template], x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    out.clear();
    for template in templates {
        variables::render(template, x, out)?;
        if !out.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes a Set-Cookie field's value, its attributes in NGINX's order.
fn write_cookie(cookie: &StickyCookie, id: &[u8], x: &mut Exchange, out: &mut Vec<u8>) -> Result<(), Undecided> {
    out.extend_from_slice(&cookie.name);
    out.push(b'=');
    out.extend_from_slice(id);
    match cookie.expires {
        CookieExpires::Session => {}
        CookieExpires::Max => {
            out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000");
        }
        CookieExpires::After(time) => {
            out.extend_from_slice(b"; expires=");
            crate::dates::write_cookie_time(time, out);
            out.extend_from_slice(b"; max-age=");
            balanza_message::push_decimal(out, time.as_secs());
        }
    }
    let mut value = std::mem::take(&mut x.scratch);
    if let Some(domain) = &cookie.domain {
        value.clear();
        variables::render(domain, x, &mut value)?;
        attribute("domain", &value, x, out);
    }
    if cookie.httponly {
        out.extend_from_slice(b"; httponly");
    }
    if cookie.secure {
        out.extend_from_slice(b"; secure");
    }
    if let Some(samesite) = &cookie.samesite {
        value.clear();
        variables::render(samesite, x, &mut value)?;
        let known = [&b"strict"[..], b"lax", b"none"].iter().any(|word| word.eq_ignore_ascii_case(&value));
        attribute("samesite", if known || value.is_empty() { &value } else { b"strict" }, x, out);
    }
    x.scratch = value;
    if let Some(path) = &cookie.path {
        attribute("path", path, x, out);
    }
    Ok(())
}

/// An attribute, unless its value is empty or a variable made it more than one.
fn attribute(name: &str, value: &[u8], x: &Exchange, out: &mut Vec<u8>) {
    if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0 | b';')) {
        let text = "of a sticky cookie is left out, because its value has a line end, a NUL or a \";\":";
        x.report(Level::Error, format_args!("\"{name}\" {text} \"{}\"", Escaped(value)));
    } else if !value.is_empty() {
        out.extend_from_slice(b"; ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        out.extend_from_slice(value);
    }
}
