//! Names of variables to [`Variable`]s, and texts to [`Template`]s.

use std::collections::HashMap;

use crate::diagnostics::Span;
use crate::template::{Part, Template, UserSlot, Variable};

/// The variables that every request has.
const BUILTIN: &[(&str, Variable)] = &[
    ("args", Variable::Args),
    ("query_string", Variable::Args),
    ("binary_remote_addr", Variable::BinaryRemoteAddr),
    ("body_bytes_sent", Variable::BodyBytesSent),
    ("bytes_sent", Variable::BytesSent),
    ("connection", Variable::Connection),
    ("connection_requests", Variable::ConnectionRequests),
    ("connection_time", Variable::ConnectionTime),
    ("content_length", Variable::ContentLength),
    ("content_type", Variable::ContentType),
    ("document_root", Variable::DocumentRoot),
    ("document_uri", Variable::Uri),
    ("host", Variable::Host),
    ("hostname", Variable::Hostname),
    ("https", Variable::Https),
    ("is_args", Variable::IsArgs),
    ("limit_rate", Variable::LimitRate),
    ("msec", Variable::Msec),
    ("nginx_version", Variable::NginxVersion),
    ("pid", Variable::Pid),
    ("pipe", Variable::Pipe),
    ("proxy_add_x_forwarded_for", Variable::ProxyAddXForwardedFor),
    ("proxy_host", Variable::ProxyHost),
    ("proxy_port", Variable::ProxyPort),
    ("realpath_root", Variable::RealpathRoot),
    ("remote_addr", Variable::RemoteAddr),
    ("remote_port", Variable::RemotePort),
    ("remote_user", Variable::RemoteUser),
    ("request", Variable::Request),
    ("request_body", Variable::RequestBody),
    ("request_body_file", Variable::RequestBodyFile),
    ("request_completion", Variable::RequestCompletion),
    ("request_filename", Variable::RequestFilename),
    ("request_id", Variable::RequestId),
    ("request_length", Variable::RequestLength),
    ("request_method", Variable::RequestMethod),
    ("request_time", Variable::RequestTime),
    ("request_uri", Variable::RequestUri),
    ("scheme", Variable::Scheme),
    ("server_addr", Variable::ServerAddr),
    ("server_name", Variable::ServerName),
    ("server_port", Variable::ServerPort),
    ("server_protocol", Variable::ServerProtocol),
    ("status", Variable::Status),
    ("time_iso8601", Variable::TimeIso8601),
    ("time_local", Variable::TimeLocal),
    ("uri", Variable::Uri),
    ("upstream_addr", Variable::UpstreamAddr),
    ("upstream_bytes_received", Variable::UpstreamBytesReceived),
    ("upstream_bytes_sent", Variable::UpstreamBytesSent),
    ("upstream_connect_time", Variable::UpstreamConnectTime),
    ("upstream_header_time", Variable::UpstreamHeaderTime),
    ("upstream_pick_reason", Variable::UpstreamPickReason),
    ("upstream_response_length", Variable::UpstreamResponseLength),
    ("upstream_response_time", Variable::UpstreamResponseTime),
    ("upstream_status", Variable::UpstreamStatus),
];

/// Makes a variable of the rest of its name.
type Family = fn(Box<[u8]>) -> Variable;

/// Families of variables, by what their names begin with.
const FAMILIES: &[(&str, Family)] = &[
    ("arg_", Variable::Arg),
    ("cookie_", Variable::Cookie),
    ("http_", Variable::Http),
    ("sent_http_", Variable::SentHttp),
    ("sent_trailer_", Variable::SentTrailer),
    ("upstream_http_", Variable::UpstreamHttp),
    ("upstream_cookie_", Variable::UpstreamCookie),
    ("upstream_trailer_", Variable::UpstreamTrailer),
];

/// Variables of NGINX's modules that Balanza has not; a name that ends in "_" stands for a family.
const UNSUPPORTED: &[&str] = &[
    "ancient_browser",
    "connections_",
    "date_gmt",
    "date_local",
    "fastcgi_",
    "geoip_",
    "gzip_ratio",
    "http2",
    "http3",
    "invalid_referer",
    "is_request_port",
    "limit_conn_status",
    "limit_req_status",
    "memcached_key",
    "modern_browser",
    "msie",
    "proxy_internal_",
    "proxy_protocol_",
    "realip_",
    "request_port",
    "secure_link",
    "secure_link_",
    "slice_range",
    "ssl_",
    "tcpinfo_",
    "uid_",
    "upstream_cache_",
    "upstream_last_",
    "upstream_queue_time",
];

/// Looks a name of the dialect up among the fixed variables.
fn builtin(name: &str) -> Option<Variable> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, variable)| variable.clone())
}

fn unsupported(name: &str) -> bool {
    UNSUPPORTED.iter().any(|known| if known.ends_with('_') { name.starts_with(known) } else { *known == name })
}

/// The variables of one configuration.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    maps: HashMap<String, usize>,
    slots: HashMap<String, Slot>,
    /// `$upstream_pick_reason` is used somewhere.
    pub explains_picks: bool,
}

#[derive(Debug)]
struct Slot {
    index: UserSlot,
    defined: bool,
    used: Option<Span>,
}

/// Why a variable cannot be set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SetError {
    /// It has a fixed meaning.
    Builtin,
    /// NGINX can change it, Balanza cannot.
    Unsupported,
}

/// Why a text is no template; NGINX's wording.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateError {
    pub message: String,
    pub hint: Option<String>,
}

impl Variables {
    /// Announces a `map`, so that its variable is known before the block is read.
    pub fn add_map(&mut self, name: &str, index: usize) {
        self.maps.insert(name.to_ascii_lowercase(), index);
    }

    /// Whether a name belongs to a variable of fixed meaning, which a `map` must not take.
    pub fn is_builtin(name: &str) -> bool {
        builtin(&name.to_ascii_lowercase()).is_some()
    }

    fn slot(&mut self, name: &str) -> &mut Slot {
        let index = self.slots.len();
        self.slots.entry(name.to_ascii_lowercase()).or_insert(Slot { index, defined: false, used: None })
    }

    /// The slot that `set` or a named capture fills.
    pub fn define(&mut self, name: &str) -> Result<UserSlot, SetError> {
        let lower = name.to_ascii_lowercase();
        let changeable = matches!(lower.as_str(), "args" | "limit_rate" | "proxy_host" | "proxy_port");
        if changeable || self.maps.contains_key(&lower) || unsupported(&lower) {
            return Err(SetError::Unsupported);
        }
        if builtin(&lower).is_some() {
            return Err(SetError::Builtin);
        }
        let slot = self.slot(&lower);
        slot.defined = true;
        Ok(slot.index)
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Variables that are used and that nothing sets: names and first uses, in the order of their slots.
    pub fn undefined(&self) -> Vec<(String, Option<Span>)> {
        let mut missing: Vec<_> = self.slots.iter().filter(|(_, slot)| !slot.defined).collect();
        missing.sort_by_key(|(_, slot)| slot.index);
        missing.into_iter().map(|(name, slot)| (name.clone(), slot.used)).collect()
    }

    /// The message about an undefined variable, and what may be meant instead.
    pub fn complaint(&self, name: &str) -> (String, Option<String>) {
        if unsupported(name) {
            return (format!("\"${name}\" is a variable of NGINX that Balanza does not have yet"), None);
        }
        let known = BUILTIN.iter().map(|(known, _)| *known).chain(self.maps.keys().map(String::as_str));
        let defined = self.slots.iter().filter(|(_, slot)| slot.defined).map(|(name, _)| name.as_str());
        let near = crate::directives::nearest(name, known.chain(defined));
        (format!("unknown \"{name}\" variable"), near.map(|near| format!("did you mean `${near}`?")))
    }

    /// The variable of a name without its "$".
    pub fn lookup(&mut self, name: &str, span: Option<Span>) -> Variable {
        let lower = name.to_ascii_lowercase();
        if let Some(index) = self.maps.get(&lower) {
            return Variable::Map(*index);
        }
        if let Some(variable) = builtin(&lower) {
            self.explains_picks |= variable == Variable::UpstreamPickReason;
            return variable;
        }
        // `set $http_x …` makes an ordinary variable of a family's name, but only the exact name.
        if !self.slots.get(&lower).is_some_and(|slot| slot.defined) {
            for (prefix, variable) in FAMILIES {
                if let Some(rest) = lower.strip_prefix(prefix)
                    && !rest.is_empty()
                {
                    return variable(rest.as_bytes().into());
                }
            }
        }
        let slot = self.slot(&lower);
        slot.used = slot.used.or(span);
        Variable::User(slot.index)
    }

    /// Compiles a text. `captures` says whether `$1` … `$9` are groups of the last match there.
    pub fn template(&mut self, text: &[u8], span: Option<Span>, captures: bool) -> Result<Template, TemplateError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut literal: Vec<u8> = Vec::new();
        let mut rest = text;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte != b'$' {
                literal.push(byte);
                continue;
            }
            let variable = match rest {
                [digit @ b'1'..=b'9', tail @ ..] if captures => {
                    rest = tail;
                    Variable::Capture(digit - b'0')
                }
                _ => {
                    let name = variable_name(&mut rest)?;
                    self.lookup(&name, span)
                }
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal).into()));
            }
            parts.push(Part::Variable(variable));
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        Ok(Template::new(parts))
    }
}

/// Takes a name, or "{name}", from behind a "$".
fn variable_name(rest: &mut &[u8]) -> Result<String, TemplateError> {
    let braces = rest.first() == Some(&b'{');
    let start = usize::from(braces);
    let length = rest[start..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    let name = String::from_utf8_lossy(&rest[start..start + length]).into_owned();
    let mut end = start + length;
    if braces {
        if rest.get(end) != Some(&b'}') {
            let message = format!("the closing bracket in \"{name}\" variable is missing");
            return Err(TemplateError { message, hint: None });
        }
        end += 1;
    }
    if name.is_empty() {
        let hint = Some("a \"$\" starts a variable; there is no escape for it".to_string());
        return Err(TemplateError { message: "invalid variable name".into(), hint });
    }
    *rest = &rest[end..];
    Ok(name)
}
