//! `sticky`: sessions that stay on their server. What is accepted, and what is said of the rest, is NGINX's.

use std::time::Duration;

use balanza_balancing::registry::nearest;

use super::UpstreamBlock;
use crate::diagnostics::Span;
use crate::drafts::{Purpose, SMALLEST_ZONE};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{CookieExpires, Sticky, StickyCookie, StickyLearn};
use crate::template::{Part, Template};
use crate::tree::Statement;
use crate::values;

/// What a session takes of its zone's size: NGINX counts 8000 in a megabyte.
const SESSION_BYTES: u64 = 128;

impl Builder<'_> {
    /// `sticky cookie|route|learn …`.
    pub fn sticky<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        if let Some((_, before)) = &draft.sticky {
            let line = self.files.line(before.words[0].span.file, before.words[0].span.start);
            let hint = format!("the other one is in line {line}; an upstream has one \"sticky\"");
            return self.error_hint(s.words[0].span, "\"sticky\" directive is duplicate", hint);
        }
        let sticky = match s.words[1].value.as_slice() {
            b"cookie" => self.sticky_cookie(s).map(Sticky::Cookie),
            b"route" => self.sticky_route(s).map(Sticky::Route),
            b"learn" => self.sticky_learn(&draft.name, s).map(Sticky::Learn),
            _ => return self.unknown_parameter(&s.words[1], &["cookie", "route", "learn"]),
        };
        draft.sticky = sticky.map(|sticky| (sticky, s));
    }

    /// `"sticky" directive …`.
    fn sticky_error(&mut self, span: Span, message: &str) {
        self.error(span, format!("\"sticky\" directive {message}"));
    }

    /// The same of parameters that may stand once.
    fn twice(&mut self, word: &Word, name: &str) {
        self.sticky_error(word.span, &format!("parameter \"{name}\" is duplicate"));
    }

    fn sticky_cookie(&mut self, s: &Statement) -> Option<StickyCookie> {
        if s.words[2].value.is_empty() {
            self.sticky_error(s.words[2].span, "empty cookie name");
            return None;
        }
        let mut cookie = StickyCookie {
            name: s.words[2].value.clone().into(),
            expires: CookieExpires::Session,
            domain: None,
            path: None,
            httponly: false,
            secure: false,
            samesite: None,
        };
        let mut good = true;
        for word in s.words.iter().skip(3) {
            good &= self.cookie_parameter(&mut cookie, word).is_some();
        }
        good.then_some(cookie)
    }

    fn cookie_parameter(&mut self, cookie: &mut StickyCookie, word: &Word) -> Option<()> {
        let (name, value) = word.parameter();
        let given = match name {
            b"expires=" => cookie.expires != CookieExpires::Session,
            b"domain=" => cookie.domain.is_some(),
            b"path=" => cookie.path.is_some(),
            b"samesite=" => cookie.samesite.is_some(),
            b"httponly" => std::mem::replace(&mut cookie.httponly, true),
            b"secure" => std::mem::replace(&mut cookie.secure, true),
            _ => {
                let known = ["expires=", "domain=", "path=", "samesite=", "httponly", "secure"];
                self.unknown_parameter(word, &known);
                return None;
            }
        };
        let plain = String::from_utf8_lossy(name.strip_suffix(b"=").unwrap_or(name)).into_owned();
        if given {
            self.twice(word, &plain);
            return None;
        }
        if matches!(name, b"domain=" | b"path=") && value.is_empty() {
            self.sticky_error(word.span, &format!("no value for \"{plain}\""));
            return None;
        }
        match name {
            b"expires=" => {
                let expires = match value {
                    b"max" => Some(CookieExpires::Max),
                    _ => values::seconds(value).map(CookieExpires::After),
                };
                cookie.expires = self.valid(expires, word, "expires")?;
            }
            b"domain=" => cookie.domain = Some(self.template_of(value, word.span, false)?),
            b"path=" => cookie.path = Some(value.into()),
            b"samesite=" => {
                let template = self.template_of(value, word.span, false)?;
                let words = [&b"strict"[..], b"lax", b"none"];
                let known =
                    template.as_literal().is_none_or(|text| words.iter().any(|word| text.eq_ignore_ascii_case(word)));
                cookie.samesite = Some(self.valid(known.then_some(template), word, "samesite")?);
            }
            _ => {}
        }
        Some(())
    }

    fn valid<T>(&mut self, value: Option<T>, word: &Word, name: &str) -> Option<T> {
        if value.is_none() {
            self.sticky_error(word.span, &format!("invalid \"{name}\" parameter value"));
        }
        value
    }

    fn sticky_route(&mut self, s: &Statement) -> Option<Vec<Template>> {
        let variables: Vec<Option<Template>> =
            s.words.iter().skip(2).map(|word| self.variable(&word.value, word)).collect();
        variables.into_iter().collect()
    }

    /// A text that is one variable and nothing else.
    fn variable(&mut self, text: &[u8], word: &Word) -> Option<Template> {
        let template = match text.first() {
            Some(b'$') => Some(self.template_of(text, word.span, false)?),
            _ => None,
        };
        let one = template.filter(|template| matches!(template.parts(), [Part::Variable(_)]));
        if one.is_none() {
            let text = String::from_utf8_lossy(text).into_owned();
            self.error_hint(word.span, format!("invalid variable name \"{text}\""), "one variable is expected: $name");
        }
        one
    }

    fn sticky_learn(&mut self, upstream: &str, s: &Statement) -> Option<StickyLearn> {
        let (mut create, mut lookup, mut header) = (Vec::new(), Vec::new(), false);
        let (mut zone, mut timeout) = (None, None);
        let mut good = true;
        for word in s.words.iter().skip(2) {
            let (name, value) = word.parameter();
            let done = match name {
                b"create=" => self.learn_variable("create", word).map(|variable| create.push(variable)),
                b"lookup=" => self.learn_variable("lookup", word).map(|variable| lookup.push(variable)),
                b"zone=" if zone.is_some() => {
                    self.sticky_error(word.span, "duplicate zone");
                    None
                }
                b"zone=" => self.learn_zone(word).map(|found| zone = Some((found, word.span))),
                b"timeout=" if timeout.is_some() => {
                    self.sticky_error(word.span, "duplicate timeout");
                    None
                }
                b"timeout=" => {
                    timeout = values::milliseconds(value).filter(|time| !time.is_zero());
                    if timeout.is_none() {
                        self.sticky_error(word.span, "invalid timeout");
                    }
                    timeout.map(|_| ())
                }
                b"header" => {
                    header = true;
                    Some(())
                }
                _ => {
                    self.unknown_parameter(word, &["create=", "lookup=", "zone=", "timeout=", "header"]);
                    None
                }
            };
            good &= done.is_some();
        }
        if !good {
            return None;
        }
        let missing = [("lookup", lookup.is_empty()), ("create", create.is_empty()), ("zone", zone.is_none())];
        if let Some((name, _)) = missing.into_iter().find(|(_, missing)| *missing) {
            let hint = "sticky learn create=$upstream_cookie_NAME lookup=$cookie_NAME zone=NAME:1m";
            let message = format!("\"sticky\" directive \"{name}\" parameter is not specified");
            self.error_hint(s.span(), message, hint);
            return None;
        }
        let ((zone, size), span) = zone?;
        self.declare_zone(&zone, Some(size), span, Purpose::Sessions(upstream.to_string()));
        Some(StickyLearn {
            create,
            lookup,
            zone,
            entries: usize::try_from(size / SESSION_BYTES).unwrap_or(usize::MAX),
            timeout: timeout.unwrap_or(Duration::from_secs(600)),
            header,
        })
    }

    fn learn_variable(&mut self, name: &str, word: &Word) -> Option<Template> {
        let (_, value) = word.parameter();
        if value.first() != Some(&b'$') {
            self.sticky_error(word.span, &format!("missing variable in the \"{name}\" parameter"));
            return None;
        }
        self.variable(value, word)
    }

    /// `NAME:SIZE`.
    fn learn_zone(&mut self, word: &Word) -> Option<(String, u64)> {
        let (_, value) = word.parameter();
        let colon = value.iter().position(|byte| *byte == b':');
        let problem = match colon.map(|at| (&value[..at], values::size(&value[at + 1..], false))) {
            None => "zone size is not specified",
            Some((b"", _)) => "zone name is not specified",
            Some((_, None)) => "invalid zone size",
            Some((_, Some(size))) if size < SMALLEST_ZONE => "zone is too small",
            Some((name, Some(size))) => return Some((String::from_utf8_lossy(name).into_owned(), size)),
        };
        self.sticky_error(word.span, problem);
        None
    }

    /// `unknown parameter "x"`.
    fn unknown_parameter(&mut self, word: &Word, known: &[&str]) {
        let text = word.text();
        let name = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
        let near = nearest(name, known.iter().map(|known| known.trim_end_matches('=')));
        let hint = near.map(|near| format!("did you mean `{near}`?"));
        self.report(crate::diagnostics::Severity::Error, word.span, format!("unknown parameter \"{text}\"")).hint =
            hint;
    }
}
