//! Values of parameters: variables in them, and how values are written into a page.

use balanza_config::log_text::Escaped;
use balanza_message::uri::{self, Escape};

use crate::html;

use super::{Common, Host};

/// A command cannot be performed. The log says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// Appends the value of a variable, by its name in any case; false if there is none.
pub fn variable(name: &[u8], common: &Common, host: &mut impl Host, out: &mut Vec<u8>) -> Result<bool, Failed> {
    let name = name.to_ascii_lowercase();
    match common.get(&name) {
        Some(value) => {
            out.extend_from_slice(&value);
            Ok(true)
        }
        None => host.variable(&name, out).map_err(|_| Failed),
    }
}

/// A text with the values of its variables, and without the backslashes that protect something.
pub fn evaluate(text: &[u8], common: &Common, host: &mut impl Host) -> Result<Vec<u8>, Failed> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'\\' => {
                let Some((&protected, after)) = rest.split_first() else { break };
                rest = after;
                if !matches!(protected, b'\\' | b'\'' | b'"' | b'$') {
                    out.push(b'\\');
                }
                out.push(protected);
            }
            b'$' => {
                let braces = rest.first() == Some(&b'{');
                let from = usize::from(braces);
                let length = rest[from..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
                let (name, after) = rest[from..].split_at(length);
                rest = after;
                if braces {
                    let Some(after) = rest.strip_prefix(b"}") else {
                        let name = Escaped(name);
                        host.report(format_args!("the closing bracket in \"{name}\" variable is missing"));
                        return Err(Failed);
                    };
                    rest = after;
                }
                if name.is_empty() {
                    host.report(format_args!("invalid variable name in \"{}\"", Escaped(text)));
                    return Err(Failed);
                }
                variable(name, common, host, &mut out)?;
            }
            _ => out.push(byte),
        }
    }
    Ok(out)
}

/// The path and the arguments of what is to be included: a path that does not begin with a slash begins where the page is.
pub fn target(text: &[u8], common: &Common, host: &mut impl Host) -> Result<(Vec<u8>, Vec<u8>), Failed> {
    let mut uri = evaluate(text, common, host)?;
    let nothing = uri.is_empty() && text.contains(&b'$');
    if uri.first() != Some(&b'/') && !nothing {
        let path = host.path();
        let directory = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        uri.splice(..0, path[..directory].iter().copied());
    }
    let (path, args) = match uri.iter().position(|byte| *byte == b'?') {
        Some(mark) => (&uri[..mark], &uri[mark + 1..]),
        None => (&uri[..], &b""[..]),
    };
    let decoded = unescape(path);
    if path.is_empty() || crate::paths::climbs(path) || crate::paths::climbs(&decoded) || decoded.contains(&0) {
        host.report(format_args!("unsafe URI \"{}\" was detected", Escaped(&uri)));
        return Err(Failed);
    }
    Ok((decoded, args.to_vec()))
}

/// Decodes a path as NGINX does: what is no escape loses its percent sign.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let Some((&first, after)) = rest.split_first() else { break };
        rest = after;
        let Some(high) = balanza_message::hex_digit(first) else {
            out.push(first);
            continue;
        };
        let Some((&second, after)) = rest.split_first() else { break };
        rest = after;
        if let Some(low) = balanza_message::hex_digit(second) {
            out.push(high << 4 | low);
        }
    }
    out
}

/// How `echo` writes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    None,
    Url,
    Entity,
}

impl Encoding {
    /// Appends a value.
    pub fn write(self, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Encoding::None => out.extend_from_slice(value),
            Encoding::Url => uri::escape(value, Escape::Text, out),
            Encoding::Entity => html::escape(value, out),
        }
    }
}
