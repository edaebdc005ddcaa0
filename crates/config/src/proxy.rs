//! `proxy_…`.

use std::sync::Arc;
use std::time::Duration;

use crate::address::{self, Host, Use};
use crate::load::Builder;
use crate::model::{
    HttpVersion, NextUpstream, ProxyBind, ProxyRedirect, ProxySettings, ProxyTarget, RedirectPattern, SetHeader,
    TempPath,
};
use crate::template::{Part, Template, Variable};
use crate::tree::Statement;

macro_rules! layer {
    ($($field:ident: $type:ty,)*) => {
        /// What a level sets with `proxy_…`; `None` is inherited.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct ProxyLayer {
            $(pub $field: Option<$type>,)*
        }

        impl ProxyLayer {
            /// Takes what is not set from the level above.
            pub fn inherit(&mut self, above: &ProxyLayer) {
                $(if self.$field.is_none() {
                    self.$field.clone_from(&above.$field);
                })*
            }
        }
    };
}

layer! {
    set_headers: Vec<SetHeader>,
    http_version: HttpVersion,
    method: Template,
    set_body: Template,
    pass_request_headers: bool,
    pass_request_body: bool,
    hide_headers: Vec<Box<[u8]>>,
    pass_headers: Vec<Box<[u8]>>,
    redirects: Redirects,
    buffering: bool,
    buffers: (usize, usize),
    buffer_size: u64,
    busy_buffers_size: u64,
    max_temp_file_size: u64,
    temp_path: Arc<TempPath>,
    request_buffering: bool,
    connect_timeout: Duration,
    read_timeout: Duration,
    send_timeout: Duration,
    next_upstream: NextUpstream,
    next_upstream_tries: u64,
    next_upstream_timeout: Duration,
    intercept_errors: bool,
    bind: Option<ProxyBind>,
    limit_rate: Template,
    socket_keepalive: bool,
    ignore_client_abort: bool,
}

/// `proxy_redirect` of a level.
#[derive(Debug, Clone)]
pub(crate) enum Redirects {
    Off,
    Rules(Vec<ProxyRedirect>),
}

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
const PAGE: u64 = 4096;
const MINUTE: Duration = Duration::from_secs(60);

impl ProxyLayer {
    /// The settings with defaults.
    pub fn settings(&self) -> ProxySettings {
        let hidden = HIDDEN.iter().map(|name| name.as_bytes().into());
        let mut hide_headers: Vec<Box<[u8]>> = hidden.chain(self.hide_headers.iter().flatten().cloned()).collect();
        hide_headers.retain(|name| !self.pass_headers.iter().flatten().any(|passed| passed == name));
        let to_size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let next_upstream = NextUpstream { error: true, timeout: true, ..NextUpstream::default() };
        let next_upstream = self.next_upstream.unwrap_or(next_upstream);
        ProxySettings {
            set_headers: self.request_headers(),
            http_version: self.http_version.unwrap_or(HttpVersion::Http11),
            method: self.method.clone(),
            set_body: self.set_body.clone(),
            pass_request_headers: self.pass_request_headers.unwrap_or(true),
            pass_request_body: self.pass_request_body.unwrap_or(true),
            hide_headers,
            redirects: match &self.redirects {
                Some(Redirects::Rules(rules)) => rules.clone(),
                Some(Redirects::Off) | None => Vec::new(),
            },
            buffering: self.buffering.unwrap_or(true),
            buffers: self.buffers,
            buffer_size: self.buffer_size.map(to_size),
            busy_buffers_size: self.busy_buffers_size.map(to_size),
            max_temp_file_size: self.max_temp_file_size.unwrap_or(1024 * 1024 * 1024),
            temp_path: self.temp_path.clone(),
            request_buffering: self.request_buffering.unwrap_or(true),
            connect_timeout: self.connect_timeout.unwrap_or(MINUTE),
            read_timeout: self.read_timeout.unwrap_or(MINUTE),
            send_timeout: self.send_timeout.unwrap_or(MINUTE),
            next_upstream: if next_upstream.off {
                NextUpstream { off: true, ..NextUpstream::default() }
            } else {
                next_upstream
            },
            next_upstream_tries: u32::try_from(self.next_upstream_tries.unwrap_or(0)).unwrap_or(u32::MAX),
            next_upstream_timeout: self.next_upstream_timeout.unwrap_or_default(),
            intercept_errors: self.intercept_errors.unwrap_or(false),
            bind: self.bind.clone().flatten(),
            limit_rate: self.limit_rate.clone(),
            socket_keepalive: self.socket_keepalive.unwrap_or(false),
            ignore_client_abort: self.ignore_client_abort.unwrap_or(false),
        }
    }

    /// The fields of the request, with the defaults for those that are not set.
    fn request_headers(&self) -> Vec<SetHeader> {
        let mut headers: Vec<SetHeader> = self.set_headers.clone().unwrap_or_default();
        let host = Template::new(vec![Part::Variable(Variable::ProxyHost)]);
        let defaults = std::iter::once(("Host", host)).chain(DROPPED.map(|name| (name, Template::default())));
        for (name, value) in defaults {
            if !headers.iter().any(|header| header.name.eq_ignore_ascii_case(name.as_bytes())) {
                headers.push(SetHeader { name: name.as_bytes().into(), value });
            }
        }
        headers
    }
}

impl Builder<'_> {
    /// Reads a directive into a level; `false` when it is none of these.
    pub fn proxy_directive(&mut self, layer: &mut ProxyLayer, s: &Statement) -> bool {
        match s.words[0].value.as_slice() {
            b"proxy_set_header" => {
                if let Some(value) = self.field_name(&s.words[1]).and_then(|()| self.template(&s.words[2])) {
                    let header = SetHeader { name: s.words[1].value.as_slice().into(), value };
                    layer.set_headers.get_or_insert_default().push(header);
                }
            }
            b"proxy_http_version" => self.assign(&mut layer.http_version, s, Self::http_version),
            b"proxy_method" => self.assign(&mut layer.method, s, |b, s| b.template(&s.words[1])),
            b"proxy_set_body" => self.assign(&mut layer.set_body, s, |b, s| b.template(&s.words[1])),
            b"proxy_pass_request_headers" => self.assign(&mut layer.pass_request_headers, s, |b, s| b.flag(s)),
            b"proxy_pass_request_body" => self.assign(&mut layer.pass_request_body, s, |b, s| b.flag(s)),
            b"proxy_hide_header" => {
                layer.hide_headers.get_or_insert_default().push(s.words[1].value.to_ascii_lowercase().into());
            }
            b"proxy_pass_header" => {
                layer.pass_headers.get_or_insert_default().push(s.words[1].value.to_ascii_lowercase().into());
            }
            b"proxy_buffering" => self.assign(&mut layer.buffering, s, |b, s| b.flag(s)),
            b"proxy_buffers" => self.assign(&mut layer.buffers, s, |b, s| b.buffers(s)),
            b"proxy_buffer_size" => self.assign(&mut layer.buffer_size, s, |b, s| b.size(s)),
            b"proxy_busy_buffers_size" => self.assign(&mut layer.busy_buffers_size, s, |b, s| b.size(s)),
            b"proxy_max_temp_file_size" => self.assign(&mut layer.max_temp_file_size, s, |b, s| b.size(s)),
            b"proxy_temp_path" => self.assign(&mut layer.temp_path, s, Self::temp_path),
            b"proxy_request_buffering" => self.assign(&mut layer.request_buffering, s, |b, s| b.flag(s)),
            b"proxy_connect_timeout" => self.assign(&mut layer.connect_timeout, s, |b, s| b.msec(s)),
            b"proxy_read_timeout" => self.assign(&mut layer.read_timeout, s, |b, s| b.msec(s)),
            b"proxy_send_timeout" => self.assign(&mut layer.send_timeout, s, |b, s| b.msec(s)),
            b"proxy_next_upstream" => self.next_upstream(layer, s),
            b"proxy_next_upstream_tries" => self.assign(&mut layer.next_upstream_tries, s, |b, s| b.number(s)),
            b"proxy_next_upstream_timeout" => self.assign(&mut layer.next_upstream_timeout, s, |b, s| b.msec(s)),
            b"proxy_intercept_errors" => self.assign(&mut layer.intercept_errors, s, |b, s| b.flag(s)),
            b"proxy_bind" => self.assign(&mut layer.bind, s, Self::proxy_bind),
            b"proxy_limit_rate" => self.assign(&mut layer.limit_rate, s, |b, s| b.size_template(s)),
            b"proxy_socket_keepalive" => self.assign(&mut layer.socket_keepalive, s, |b, s| b.flag(s)),
            b"proxy_ignore_client_abort" => self.assign(&mut layer.ignore_client_abort, s, |b, s| b.flag(s)),
            _ => return false,
        }
        true
    }

    fn http_version(&mut self, s: &Statement) -> Option<HttpVersion> {
        if s.words[1].value == b"2" {
            self.unsupported_parameter(s, &s.words[1]);
            return None;
        }
        self.choice(s, &[("1.0", HttpVersion::Http10), ("1.1", HttpVersion::Http11)])
    }

    fn next_upstream(&mut self, layer: &mut ProxyLayer, s: &Statement) {
        let mut set = layer.next_upstream.unwrap_or_default();
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
                b"off" => &mut set.off,
                b"updating" | b"denied" => {
                    self.unsupported_parameter(s, word);
                    continue;
                }
                _ => {
                    let text = word.text();
                    let known = ["error", "timeout", "invalid_header", "non_idempotent", "off"];
                    let codes = ["http_500", "http_502", "http_503", "http_504", "http_403", "http_404", "http_429"];
                    let hint = crate::directives::nearest(&text, known.into_iter().chain(codes))
                        .map(|near| format!("did you mean `{near}`?"));
                    let message = format!("invalid value \"{text}\"");
                    self.report(crate::diagnostics::Severity::Error, word.span, message).hint = hint;
                    continue;
                }
            };
            if std::mem::replace(flag, true) {
                self.warning(word.span, format!("duplicate value \"{}\"", word.text()));
            }
        }
        layer.next_upstream = Some(set);
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
    pub fn check_proxy_buffers(&mut self, layer: &ProxyLayer, s: &Statement) {
        let (count, each) = layer.buffers.map_or((8, PAGE), |(count, size)| (count as u64, size as u64));
        let largest = layer.buffer_size.unwrap_or(PAGE).max(each);
        let busy = layer.busy_buffers_size.unwrap_or(2 * largest);
        let largest_of = "the maximum of the value of \"proxy_buffer_size\" and one of the \"proxy_buffers\"";
        let problem = if count < 2 {
            "there must be at least 2 \"proxy_buffers\"".to_string()
        } else if busy < largest {
            format!("\"proxy_busy_buffers_size\" must be equal to or greater than {largest_of}")
        } else if busy > (count - 1).saturating_mul(each) {
            "\"proxy_busy_buffers_size\" must be less than the size of all \"proxy_buffers\" minus one buffer".into()
        } else if layer.max_temp_file_size.is_some_and(|size| size != 0 && size < largest) {
            format!(
                "\"proxy_max_temp_file_size\" must be equal to zero to disable temporary files usage or must be equal \
                 to or greater than {largest_of}"
            )
        } else {
            return;
        };
        let hint = format!(
            "here: proxy_buffers {count} {each}, proxy_buffer_size {}, proxy_busy_buffers_size {busy}",
            layer.buffer_size.unwrap_or(PAGE)
        );
        self.error_hint(s.span(), problem, hint);
    }

    /// `proxy_pass`. `location` is the name of the location it is in, or `None` where a URI must not be given.
    pub fn proxy_pass(&mut self, s: &Statement, location: Option<&[u8]>) -> Option<Pass> {
        let word = &s.words[1];
        let template = self.template(word)?;
        let lower = word.value.to_ascii_lowercase();
        if lower.starts_with(b"https://") {
            self.error(word.span, "\"proxy_pass\" to \"https://\" is possible in NGINX, but not in Balanza yet");
            return None;
        }
        if template.as_literal().is_none() {
            return Some(Pass { target: ProxyTarget::Dynamic(template), redirect: None });
        }
        if !lower.starts_with(b"http://") {
            let text = word.text();
            // `http//name` and `http:/name` have lost a character, `name` the whole scheme.
            let rest = text.strip_prefix("http").filter(|rest| rest.starts_with([':', '/'])).unwrap_or(&text);
            let hint = format!("write `http://{}`", rest.trim_start_matches([':', '/']));
            self.error_hint(word.span, "invalid URL prefix", hint);
            return None;
        }
        let rest = &word.value[7..];
        let shown = String::from_utf8_lossy(rest).into_owned();
        let address = match address::parse(rest, 80, Use::Url) {
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
            _ if address.no_port || address.port == 80 => address.host_text.as_slice().into(),
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
        Some(Pass { target: ProxyTarget::Fixed { upstream, host, port, uri }, redirect: Some(redirect) })
    }

    /// `proxy_redirect`. `pass` is the level's `proxy_pass`, if it has been read already.
    pub fn proxy_redirect(&mut self, layer: &mut ProxyLayer, s: &Statement, pass: Option<&Pass>) {
        let first = &s.words[1];
        if matches!(layer.redirects, Some(Redirects::Off)) || (first.value == b"off" && layer.redirects.is_some()) {
            return self.duplicate(s);
        }
        let rule = match (first.value.as_slice(), s.words.get(2)) {
            (b"off", None) => {
                layer.redirects = Some(Redirects::Off);
                return;
            }
            (b"default", None) => match pass {
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
        match &mut layer.redirects {
            Some(Redirects::Rules(rules)) => rules.extend(rule),
            redirects => *redirects = Some(Redirects::Rules(rule.into_iter().collect())),
        }
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
