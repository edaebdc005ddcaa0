//! Fields and cookies, as variables have them.

use balanza_message::{Field, Fields, Header};

use crate::exchange::Exchange;
use crate::values::found;

/// Whether a field's name is the variable's: case and "-" against "_" do not count.
fn is_named(field: &[u8], variable: &[u8]) -> bool {
    field.len() == variable.len()
        && field.iter().zip(variable).all(|(field, variable)| match field {
            b'-' => *variable == b'_',
            _ => field.to_ascii_lowercase() == *variable,
        })
}

/// Appends values, joined; false if there are none.
fn join<'v>(values: impl Iterator<Item = &'v [u8]>, separator: &[u8], out: &mut Vec<u8>) -> bool {
    let mut any = false;
    for value in values {
        if any {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(value);
        any = true;
    }
    any
}

/// Appends all fields of a name, joined.
pub fn joined(fields: &[Field], text: &[u8], name: &[u8], separator: &[u8], out: &mut Vec<u8>) -> bool {
    let values = fields.iter().filter(|field| is_named(field.name.of(text), name)).map(|field| field.value.of(text));
    join(values, separator, out)
}

/// Appends all fields of a name of a section that was composed here, joined.
pub fn composed(fields: &Fields, name: &[u8], out: &mut Vec<u8>) -> bool {
    join(fields.iter().filter(|(field, _)| is_named(field, name)).map(|(_, value)| value), b", ", out)
}

/// Appends all fields of a name of the request, joined.
pub fn request_field(name: &[u8], x: &Exchange, out: &mut Vec<u8>) -> bool {
    let separator: &[u8] = if name == b"cookie" { b"; " } else { b", " };
    x.head_complete && joined(&x.request.fields, &x.request.text, name, separator, out)
}

/// A cookie of the request.
pub fn cookie(name: &[u8], x: &Exchange, out: &mut Vec<u8>) -> bool {
    if !x.head_complete || !Header::Cookie.is_in(x.request.has) {
        return false;
    }
    let text = &x.request.text;
    let mut cookies = x.request.fields.iter().filter(|field| field.header == Header::Cookie);
    found(cookies.find_map(|field| in_cookies(field.value.of(text), name)), out)
}

/// A cookie that the server's response sets: the first of its name.
pub fn set_cookie<'a>(x: &'a Exchange, name: &[u8]) -> Option<&'a [u8]> {
    let text = &x.upstream.response.text;
    let mut cookies = x.upstream.response.fields.iter().filter(|field| field.header == Header::SetCookie);
    cookies.find_map(|field| value_of(field.value.of(text), name))
}

/// The value of a cookie in a Cookie field. Pairs end at ";" or ","; a value ends at ";" only, and names ignore case, as
/// in NGINX.
fn in_cookies<'v>(mut rest: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
    loop {
        if let Some(value) = value_of(rest, name) {
            return Some(value);
        }
        let end = rest.iter().position(|byte| matches!(byte, b';' | b','))?;
        rest = skip_blanks(&rest[end + 1..]);
    }
}

/// The value of the pair that `text` begins with, if it has this name.
fn value_of<'v>(text: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
    let (found, rest) = text.split_at_checked(name.len())?;
    if !found.eq_ignore_ascii_case(name) {
        return None;
    }
    let value = skip_blanks(skip_blanks(rest).strip_prefix(b"=")?);
    value.split(|byte| *byte == b';').next()
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| **byte == b' ').count();
    &text[blanks..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_without_regard_to_case_and_hyphens() {
        assert!(is_named(b"X-Forwarded-For", b"x_forwarded_for"));
        assert!(!is_named(b"X-Forwarded-Fo", b"x_forwarded_for"));
        assert!(!is_named(b"Xa", b"x_"));
    }

    #[test]
    fn cookies_are_found_among_others() {
        let find = |text: &'static str, name: &str| in_cookies(text.as_bytes(), name.as_bytes());
        assert_eq!(find("a=1; b=2", "b"), Some(&b"2"[..]));
        assert_eq!(find("a=1;  B = 2 ;c", "b"), Some(&b"2 "[..]));
        assert_eq!(find("b; b=2", "b"), Some(&b"2"[..]));
        assert_eq!(find("ab=1,b=2,3", "b"), Some(&b"2,3"[..]));
        assert_eq!(find("b=", "b"), Some(&b""[..]));
        assert_eq!(find("bb=1; x", "b"), None);
        assert_eq!(find("", "b"), None);
    }
}
