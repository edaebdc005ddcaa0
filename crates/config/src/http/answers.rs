//! `expires`, `autoindex` and what else decides about single responses.

use std::sync::Arc;

use super::block::HttpBlock;
use crate::block::put;
use crate::load::Builder;
use crate::model::{Answers, CookieFlags, Expires, ExpiresRule, ListingFormat, ProxyRedirect, RedirectPattern};
use crate::tree::Statement;

impl HttpBlock {
    /// What blocks share until one of them sets something.
    pub fn answers(&mut self) -> &mut Answers {
        Arc::make_mut(&mut self.settings.answers)
    }
}

impl Builder<'_> {
    /// `expires`.
    pub fn expires(&mut self, block: &mut HttpBlock, s: &Statement) {
        let (word, modified) = match s.args() {
            [word] => (word, false),
            [modified, word] if modified.value == b"modified" => (word, true),
            [word, ..] => return self.error(word.span, "\"expires\" directive invalid value"),
            [] => return,
        };
        let Some(value) = self.template(word) else { return };
        let rule = match value.as_literal() {
            None => Some(ExpiresRule::Dynamic { value, modified }),
            Some(text) => match Expires::read(text, modified) {
                Ok(Expires::Off) => None,
                Ok(expires) => Some(ExpiresRule::Fixed(expires)),
                Err(problem) => return self.error(word.span, format!("\"expires\" directive {problem}")),
            },
        };
        block.answers().expires = rule;
    }

    /// `autoindex_format`.
    pub fn listing_format(&mut self, block: &mut HttpBlock, s: &Statement) {
        let formats = [
            ("html", ListingFormat::Html),
            ("json", ListingFormat::Json),
            ("jsonp", ListingFormat::Jsonp),
            ("xml", ListingFormat::Xml),
        ];
        put(&mut block.answers().autoindex.format, self.choice(s, &formats));
    }

    /// `proxy_cookie_domain` or `proxy_cookie_path`.
    pub fn cookie_rule(&mut self, block: &mut HttpBlock, s: &Statement, domain: bool) {
        let cookies = &mut Arc::make_mut(&mut block.settings.proxy).cookies;
        let rules = block.given.list(if domain { &mut cookies.domains } else { &mut cookies.paths });
        let [first, rest @ ..] = s.args() else { return };
        if !block.given.is_first() && (rest.is_empty() && first.value == b"off" || rules.is_empty()) {
            return self.duplicate(s);
        }
        let [replacement] = rest else {
            if first.value != b"off" {
                self.invalid_parameter(first, &["off"]);
            }
            return;
        };
        let pattern = match first.value.strip_prefix(b"~") {
            // Domains are compared without regard to case.
            Some(pattern) if domain => self.regex(pattern, true, first.span).map(RedirectPattern::Regex),
            Some(pattern) => {
                let (pattern, caseless) = pattern.strip_prefix(b"*").map_or((pattern, false), |rest| (rest, true));
                self.regex(pattern, caseless, first.span).map(RedirectPattern::Regex)
            }
            None => {
                let text = if domain { without_dot(&first.value) } else { &first.value };
                self.template_of(text, first.span, true).map(RedirectPattern::Prefix)
            }
        };
        let is_regex = matches!(pattern, Some(RedirectPattern::Regex(_)));
        let text = if domain && !is_regex { without_dot(&replacement.value) } else { &replacement.value };
        let replacement = self.template_of(text, replacement.span, true);
        rules.extend(pattern.zip(replacement).map(|(pattern, replacement)| ProxyRedirect { pattern, replacement }));
    }

    /// `proxy_cookie_flags`.
    pub fn cookie_flags(&mut self, block: &mut HttpBlock, s: &Statement) {
        let rules = block.given.list(&mut Arc::make_mut(&mut block.settings.proxy).cookies.flags);
        let [first, rest @ ..] = s.args() else { return };
        if !block.given.is_first() && (rest.is_empty() && first.value == b"off" || rules.is_empty()) {
            return self.duplicate(s);
        }
        if rest.is_empty() {
            if first.value != b"off" {
                self.invalid_parameter(first, &["off"]);
            }
            return;
        }
        let name = match first.value.strip_prefix(b"~") {
            Some(pattern) => self.regex(pattern, true, first.span).map(RedirectPattern::Regex),
            None => self.template(first).map(RedirectPattern::Prefix),
        };
        let flags = rest.iter().map(|word| self.template(word)).collect::<Option<Vec<_>>>();
        rules.extend(name.zip(flags).map(|(name, flags)| CookieFlags { name, flags }));
    }
}

fn without_dot(domain: &[u8]) -> &[u8] {
    domain.strip_prefix(b".").unwrap_or(domain)
}
