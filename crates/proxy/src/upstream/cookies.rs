//! `proxy_cookie_domain`, `proxy_cookie_path`, `proxy_cookie_flags`: what is changed in a cookie that a server sets.

use balanza_config::log_text::Escaped;
use balanza_config::model::{CookieFlags, CookieRules, Level, RedirectPattern};

use super::patterns::{prefix, replaced};
use crate::exchange::Exchange;
use crate::undecided::Undecided;
use crate::variables;

/// A part of a Set-Cookie field: the cookie, or an attribute. Without "=" there is no value.
type Part = (Vec<u8>, Option<Vec<u8>>);

/// A Set-Cookie field as the rules change it; `None` when none of them fits.
///
/// # Errors
/// A regular expression is undecided.
pub fn changed(x: &mut Exchange, rules: &CookieRules, field: &[u8]) -> Result<Option<Vec<u8>>, Undecided> {
    let mut parts: Vec<Part> = field.split(|byte| *byte == b';').map(part).collect();
    if parts[0].1.is_none() {
        return Ok(None);
    }
    let mut any = false;
    for (name, value) in &mut parts[1..] {
        let Some(value) = value else { continue };
        let replaced = if name.eq_ignore_ascii_case(b"domain") {
            replaced(x, &rules.domains, value, domain)?
        } else if name.eq_ignore_ascii_case(b"path") {
            replaced(x, &rules.paths, value, prefix)?
        } else {
            None
        };
        if let Some(replaced) = replaced {
            *value = replaced;
            any = true;
        }
    }
    if let Some(wanted) = flags(x, &rules.flags, &parts[0].0)? {
        wanted.put(&mut parts);
        any = true;
    }
    if !any {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(field.len() + 16);
    for (index, (name, value)) in parts.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(name);
        if let Some(value) = value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
    Ok(Some(out))
}

fn part(text: &[u8]) -> Part {
    match text.iter().position(|byte| *byte == b'=') {
        Some(at) => (text[..at].trim_ascii().to_vec(), Some(text[at + 1..].trim_ascii().to_vec())),
        None => (text.trim_ascii().to_vec(), None),
    }
}

/// A domain that is the pattern, but for case and a dot before it, which stays.
fn domain(value: &[u8], pattern: &[u8]) -> Option<std::ops::Range<usize>> {
    let dot = usize::from(value.starts_with(b"."));
    value[dot..].eq_ignore_ascii_case(pattern).then_some(dot..value.len())
}

/// Flags of a cookie to set or to remove; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Flags {
    secure: Option<bool>,
    http_only: Option<bool>,
    same_site: Option<SameSite>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SameSite {
    Removed,
    Is(&'static str),
}

/// The flags of the first rule for this cookie.
fn flags(x: &mut Exchange, rules: &[CookieFlags], cookie: &[u8]) -> Result<Option<Flags>, Undecided> {
    for rule in rules {
        let fits = match &rule.name {
            RedirectPattern::Regex(regex) => {
                let found = regex.find(cookie, &mut x.values.captures).map_err(|error| x.undecided(&error))?;
                if found {
                    variables::keep_named_groups(regex, x);
                }
                found
            }
            RedirectPattern::Prefix(template) => {
                let mut name = Vec::new();
                variables::render(template, x, &mut name)?;
                name.eq_ignore_ascii_case(cookie)
            }
        };
        if !fits {
            continue;
        }
        let mut flags = Flags::default();
        for template in &rule.flags {
            let mut flag = Vec::new();
            variables::render(template, x, &mut flag)?;
            if !flags.note(&flag) {
                x.report(Level::Error, format_args!("invalid proxy_cookie_flags flag \"{}\"", Escaped(&flag)));
            }
        }
        return Ok(Some(flags).filter(|flags| *flags != Flags::default()));
    }
    Ok(None)
}

impl Flags {
    /// Notes a flag of the configuration; false if it is none. Nothing is no flag, and no mistake.
    fn note(&mut self, flag: &[u8]) -> bool {
        match flag {
            b"" => {}
            b"secure" => self.secure = Some(true),
            b"nosecure" => self.secure = Some(false),
            b"httponly" => self.http_only = Some(true),
            b"nohttponly" => self.http_only = Some(false),
            b"samesite=strict" => self.same_site = Some(SameSite::Is("Strict")),
            b"samesite=lax" => self.same_site = Some(SameSite::Is("Lax")),
            b"samesite=none" => self.same_site = Some(SameSite::Is("None")),
            b"nosamesite" => self.same_site = Some(SameSite::Removed),
            _ => return false,
        }
        true
    }

    /// Sets and removes the attributes of a cookie. One that is there already stays where it is.
    fn put(self, parts: &mut Vec<Part>) {
        let Flags { mut secure, mut http_only, mut same_site } = self;
        let mut first = true;
        parts.retain_mut(|(name, value)| {
            // The cookie itself may have any name.
            if std::mem::take(&mut first) {
                return true;
            }
            let flag = match () {
                () if name.eq_ignore_ascii_case(b"secure") => &mut secure,
                () if name.eq_ignore_ascii_case(b"httponly") => &mut http_only,
                () if name.eq_ignore_ascii_case(b"samesite") => {
                    match same_site {
                        None => {}
                        Some(SameSite::Removed) => return false,
                        Some(SameSite::Is(wanted)) => {
                            same_site = None;
                            if !value.as_ref().is_some_and(|is| is.eq_ignore_ascii_case(wanted.as_bytes())) {
                                (*name, *value) = (b"SameSite".to_vec(), Some(wanted.into()));
                            }
                        }
                    }
                    return true;
                }
                () => return true,
            };
            match *flag {
                Some(true) => *flag = None,
                Some(false) => return false,
                None => {}
            }
            true
        });
        if secure == Some(true) {
            parts.push((b"Secure".to_vec(), None));
        }
        if http_only == Some(true) {
            parts.push((b"HttpOnly".to_vec(), None));
        }
        if let Some(SameSite::Is(wanted)) = same_site {
            parts.push((b"SameSite".to_vec(), Some(wanted.into())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(flags: &[&str], field: &str) -> String {
        let mut wanted = Flags::default();
        for flag in flags {
            assert!(wanted.note(flag.as_bytes()), "{flag}");
        }
        let mut parts: Vec<Part> = field.split(';').map(|text| part(text.as_bytes())).collect();
        wanted.put(&mut parts);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let parts = parts.iter().map(|(name, value)| match value {
            Some(value) => format!("{}={}", text(name), text(value)),
            None => text(name),
        });
        parts.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn flags_are_set_once_and_removed() {
        assert_eq!(with(&["secure", "httponly"], "a=b"), "a=b; Secure; HttpOnly");
        assert_eq!(with(&["secure"], "a=b; secure; Path=/"), "a=b; secure; Path=/");
        assert_eq!(with(&["nosecure"], "a=b; secure; Path=/; SECURE"), "a=b; Path=/");
        assert_eq!(with(&["nosecure"], "a=b"), "a=b");
        assert_eq!(with(&["samesite=lax"], "a=b; samesite=strict"), "a=b; SameSite=Lax");
        assert_eq!(with(&["samesite=lax"], "a=b; samesite=LAX"), "a=b; samesite=LAX");
        assert_eq!(with(&["samesite=none"], "a=b; SameSite"), "a=b; SameSite=None");
        assert_eq!(with(&["nosamesite", "nohttponly"], "a=b; SameSite=Lax; HttpOnly; X"), "a=b; X");
        assert_eq!(with(&["nosecure"], "secure=1; secure"), "secure=1");
        assert!(!Flags::default().note(b"Secure") && Flags::default().note(b""));
    }
}
