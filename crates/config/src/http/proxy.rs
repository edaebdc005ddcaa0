//! `proxy_…`.

use std::sync::Arc;

use balanza_balancing::registry::nearest;

use super::block::{HttpBlock, Written};
use crate::address::{self, Host, Use};
use crate::load::Builder;
use crate::model::{
    HttpVersion, IgnoredFields, NextUpstream, ProxyBind, ProxyRedirect, ProxyTarget, RedirectPattern, SetHeader,
};
use crate::template::{Part, Template, Variable};
use crate::tree::Statement;
use crate::tuning;

/// What a `proxy_pass` says, before it is known what it is in.
#[derive(Debug)]
pub(crate) struct Pass {
    pub target: ProxyTarget,
    /// `proxy_redirect default`, unless the URL has variables.
    pub redirect: Option<ProxyRedirect>,
}

/// Fields of a response that are NGINX's own or of one connection.
const HIDDEN: [&str; 8] = [
    "date",
    "server",
    "x-pad",
    "x-accel-expires",
    "x-accel-redirect",
    "x-accel-limit-rate",
    "x-accel-buffering",
    "x-accel-charset",
];

/// Fields of the client's request that are not passed on.
const DROPPED: [&str; 5] = ["Connection", "TE", "Keep-Alive", "Expect", "Upgrade"];

/// NGINX's page size, which its buffers have unless given.
const PAGE: usize = 4096;

/// The fields of a response that a client does not get.
pub(crate) fn hidden_headers(written: &Written) -> Vec<Box<[u8]>> {
    let hidden = HIDDEN.iter().map(|name| name.as_bytes().into()).chain(written.hide_headers.iter().cloned());
    hidden.filter(|name| !written.pass_headers.contains(name)).collect()
}

/// The fields of the request to a server, with the defaults for those that are not set.
pub(crate) fn request_headers(written: &Written) -> Vec<SetHeader> {
    let mut headers = written.set_headers.clone();
    let host = Template::new(vec![Part::Variable(Variable::ProxyHost)]);
    let defaults = std::iter::once(("Host", host)).chain(DROPPED.map(|name| (name, Template::default())));
    for (name, value) in defaults {
        if !headers.iter().any(|header| header.name.eq_ignore_ascii_case(name.as_bytes())) {
            headers.push(SetHeader { name: name.as_bytes().into(), value });
        }
    }
    headers
}

/// Without rules from any level `proxy_pass` brings its own, which levels further inside inherit.
pub(crate) fn keep_redirect_rule(block: &mut HttpBlock, pass: Option<&Pass>) {
    if !block.written.redirects
        && let Some(rule) = pass.and_then(|pass| pass.redirect.clone())
    {
        block.written.redirects = true;
        block.proxy().redirects = vec![rule];
    }
}

impl Builder<'_> {
    pub fn set_header(&mut self, s: &Statement) -> Option<SetHeader> {
        self.field_name(&s.words[1])?;
        Some(SetHeader { name: s.words[1].value.as_slice().into(), value: self.template(&s.words[2])? })
    }

    pub fn http_version(&mut self, s: &Statement) -> Option<HttpVersion> {
        let choices = [("1.0", HttpVersion::Http10), ("1.1", HttpVersion::Http11), ("2", HttpVersion::Http2)];
        self.choice(s, &choices)
    }

    pub fn proxy_next_upstream(&mut self, block: &mut HttpBlock, s: &Statement) {
        let before = block.settings.proxy.next_upstream;
        block.proxy().next_upstream = self.next_upstream(block, before, s);
    }

    /// `proxy_next_upstream` and the like; `before` is what the same directive has set before in the block.
    pub fn next_upstream(&mut self, block: &HttpBlock, before: NextUpstream, s: &Statement) -> NextUpstream {
        let mut set = if block.given.is_first() { NextUpstream::default() } else { before };
        for word in s.args() {
            let flag = match word.value.as_slice() {
                b"error" => &mut set.error,
                b"timeout" => &mut set.timeout,
                b"invalid_header" => &mut set.invalid_header,
                b"non_idempotent" => &mut set.non_idempotent,
                b"http_500" => &mut set.http_500,
                b"http_502" => &mut set.http_502,
                b"http_503" => &mut set.http_503,
                b"http_504" => &mut set.http_504,
                b"http_403" => &mut set.http_403,
                b"http_404" => &mut set.http_404,
                b"http_429" => &mut set.http_429,
                b"denied" => &mut set.denied,
                b"off" => &mut set.off,
                b"updating" if s.name().starts_with("proxy") => {
                    self.unsupported_parameter(s, word);
                    continue;
                }
                _ => {
                    let text = word.text();
                    let known = ["error", "timeout", "denied", "invalid_header", "non_idempotent", "off"];
                    let codes = ["http_500", "http_502", "http_503", "http_504", "http_403", "http_404", "http_429"];
                    let hint =
                        nearest(&text, known.into_iter().chain(codes)).map(|near| format!("did you mean `{near}`?"));
                    let message = format!("invalid value \"{text}\"");
                    self.report(crate::diagnostics::Severity::Error, word.span, message).hint = hint;
                    continue;
                }
            };
            if std::mem::replace(flag, true) {
                self.warning(word.span, format!("duplicate value \"{}\"", word.text()));
            }
        }
        set
    }

    /// `proxy_ignore_headers`.
    pub fn ignored_fields(&mut self, block: &mut HttpBlock, s: &Statement) {
        let Some(more) = tuning::ignored_fields(self, s) else { return };
        let first = block.given.is_first();
        let ignored = &mut block.proxy().ignored;
        if first {
            *ignored = IgnoredFields::default();
        }
        ignored.redirect |= more.redirect;
        ignored.limit_rate |= more.limit_rate;
        ignored.buffering |= more.buffering;
    }

    pub fn proxy_bind(&mut self, s: &Statement) -> Option<Option<ProxyBind>> {
        let word = &s.words[1];
        if word.value == b"off" && s.words.len() == 2 {
            return Some(None);
        }
        let address = self.template(word)?;
        if let Some(text) = address.as_literal() {
            // An address, perhaps with a port; a name is not resolved.
            let parsed = address::parse(text, 0, Use::Server);
            let bare_v6 = std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok());
            if !bare_v6 && !matches!(parsed, Ok(address::Address { host: Host::Ip(_), .. })) {
                self.error(word.span, format!("invalid address \"{}\"", word.text()));
                return None;
            }
        }
        let transparent = match s.words.get(2) {
            None => false,
            Some(word) if word.value == b"transparent" => true,
            Some(word) => {
                self.invalid_parameter(word, &["transparent"]);
                return None;
            }
        };
        Some(Some(ProxyBind { address, transparent }))
    }

    /// The checks on buffers that NGINX makes once a level is complete.
    pub fn check_proxy_buffers(&mut self, block: &HttpBlock, s: &Statement) {
        let proxy = &block.settings.proxy;
        let (count, each) = proxy.buffers.unwrap_or((8, PAGE));
        let first = proxy.buffer_size.unwrap_or(PAGE);
        let largest = first.max(each);
        let busy = proxy.busy_buffers_size.unwrap_or(2 * largest);
        let file = proxy.max_temp_file_size;
        let largest_of = "the maximum of the value of \"proxy_buffer_size\" and one of the \"proxy_buffers\"";
        let problem = if count < 2 {
            "there must be at least 2 \"proxy_buffers\"".to_string()
        } else if busy < largest {
            format!("\"proxy_busy_buffers_size\" must be equal to or greater than {largest_of}")
        } else if busy > (count - 1).saturating_mul(each) {
            "\"proxy_busy_buffers_size\" must be less than the size of all \"proxy_buffers\" minus one buffer".into()
        } else if block.written.temp_file_write_size.is_some_and(|size| size < largest) {
            format!("\"proxy_temp_file_write_size\" must be equal to or greater than {largest_of}")
        } else if file != 0 && file < largest as u64 {
            format!(
                "\"proxy_max_temp_file_size\" must be equal to zero to disable temporary files usage or must be equal \
                 to or greater than {largest_of}"
            )
        } else {
            return;
        };
        let hint =
            format!("here: proxy_buffers {count} {each}, proxy_buffer_size {first}, proxy_busy_buffers_size {busy}");
        self.error_hint(s.span(), problem, hint);
    }

    pub fn proxy_pass(&mut self, block: &mut HttpBlock, s: &Statement) {
        let location = block.own.location.as_ref().filter(|location| location.replaces);
        block.own.grpc_pass = None;
        block.own.pass = self.pass(s, location.map(|location| location.name.as_bytes()));
    }

    /// `location` is the name of the location, or `None` where a URI must not be given.
    fn pass(&mut self, s: &Statement, location: Option<&[u8]>) -> Option<Pass> {
        let word = &s.words[1];
        let template = self.template(word)?;
        let lower = word.value.to_ascii_lowercase();
        if template.as_literal().is_none() {
            return Some(Pass { target: ProxyTarget::Dynamic(template), redirect: None });
        }
        let tls = lower.starts_with(b"https://");
        if !tls && !lower.starts_with(b"http://") {
            let text = word.text();
            // `http//name` and `http:/name` have lost a character, `name` the whole scheme.
            let rest = text.strip_prefix("http").filter(|rest| rest.starts_with([':', '/'])).unwrap_or(&text);
            let hint = format!("write `http://{}`", rest.trim_start_matches([':', '/']));
            self.error_hint(word.span, "invalid URL prefix", hint);
            return None;
        }
        let (rest, default_port) = if tls { (&word.value[8..], 443) } else { (&word.value[7..], 80) };
        let shown = String::from_utf8_lossy(rest).into_owned();
        let address = match address::parse(rest, default_port, Use::Url) {
            Ok(address) => address,
            Err(problem) => {
                self.error(word.span, format!("{problem} in upstream \"{shown}\""));
                return None;
            }
        };
        let uri: Option<Box<[u8]>> = (!address.uri.is_empty()).then(|| address.uri.as_slice().into());
        if uri.is_some() && location.is_none() {
            let message = "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside \
                           named location, or inside \"if\" statement, or inside \"limit_except\" block";
            self.error_hint(word.span, message, "remove everything after the host, also a \"/\"");
            return None;
        }
        let host: Box<[u8]> = match address.host {
            Host::Unix(_) => Box::from(*b"localhost"),
            _ if address.no_port || address.port == default_port => address.host_text.as_slice().into(),
            _ => [&address.host_text[..], b":", address.port.to_string().as_bytes()].concat().into(),
        };
        let redirect = ProxyRedirect {
            pattern: RedirectPattern::Prefix(Template::literal(match &uri {
                Some(_) => word.value.clone(),
                None => [&word.value[..], b"/"].concat(),
            })),
            replacement: Template::literal(match (&uri, location) {
                (Some(_), Some(name)) => name.to_vec(),
                _ => b"/".to_vec(),
            }),
        };
        let port = address.port;
        let upstream = self.reference_upstream(&address, word.span)?;
        Some(Pass { target: ProxyTarget::Fixed { upstream, host, port, tls, uri }, redirect: Some(redirect) })
    }

    /// `proxy_redirect`. The level's `proxy_pass` must have been read already for `default`.
    pub fn proxy_redirect(&mut self, block: &mut HttpBlock, s: &Statement) {
        let first = &s.words[1];
        let redirects = block.given.list(&mut Arc::make_mut(&mut block.settings.proxy).redirects);
        block.written.redirects = true;
        // In the same block: rules before "off", or "off" before anything.
        if !block.given.is_first() && (first.value == b"off" || redirects.is_empty()) {
            return self.duplicate(s);
        }
        let rule = match (first.value.as_slice(), s.words.get(2)) {
            (b"off", None) => return,
            (b"default", None) => match &block.own.pass {
                None => {
                    let message = "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive";
                    return self.error(s.span(), message);
                }
                Some(Pass { redirect: None, .. }) => {
                    let message = "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with \
                                   variables";
                    return self.error(s.span(), message);
                }
                Some(Pass { redirect: Some(rule), .. }) => Some(rule.clone()),
            },
            (_, None) => return self.invalid_parameter(first, &["off", "default"]),
            (text, Some(replacement)) => self.redirect_rule(text, first.span, replacement),
        };
        redirects.extend(rule);
    }

    fn redirect_rule(
        &mut self,
        text: &[u8],
        span: crate::diagnostics::Span,
        replacement: &crate::lexer::Word,
    ) -> Option<ProxyRedirect> {
        let pattern = match text.strip_prefix(b"~") {
            Some(pattern) => {
                let (pattern, caseless) = pattern.strip_prefix(b"*").map_or((pattern, false), |rest| (rest, true));
                RedirectPattern::Regex(self.regex(pattern, caseless, span)?)
            }
            None => RedirectPattern::Prefix(self.template_of(text, span, true)?),
        };
        Some(ProxyRedirect { pattern, replacement: self.template(replacement)? })
    }
}
