//! `otel_…`: traces of requests.

use std::time::Duration;

use super::block::HttpBlock;
use crate::address::{self, Host, Use};
use crate::drafts::Traces;
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::discover::{Api, Place};
use crate::model::{Exporter, ExporterProtocol};
use crate::tree::{Statement, os_error};

/// The port of OTLP over gRPC.
const GRPC_PORT: u16 = 4317;
/// The port of OTLP over HTTP, and where it takes spans.
const HTTP_PORT: u16 = 4318;
const HTTP_PATH: &str = "/v1/traces";
/// Most spans of a batch, and most batches.
const MOST: usize = 65_536;
/// What `https` trusts unless `trusted_certificate` says otherwise: the files of Debian, of Red Hat, and of Alpine.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
const GRPC_FORMS: &str = "write HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:/PATH";
const HTTP_FORMS: &str = "write http://HOST:PORT, https://HOST:PORT, either with a path, HOST:PORT or unix:/PATH";

/// `otel_exporter` while it is read.
#[derive(Default)]
struct Draft<'s> {
    endpoint: Option<&'s Word>,
    /// `http/protobuf`.
    is_http: Option<bool>,
    trusted: Option<&'s Word>,
    headers: Vec<(String, String)>,
    interval: Option<Duration>,
    batch_size: Option<usize>,
    batch_count: Option<usize>,
}

impl Builder<'_> {
    /// Whether this program has what the directive needs.
    fn has_traces(&mut self, s: &Statement) -> bool {
        let has = cfg!(feature = "otel");
        if !has {
            let message = format!("\"{}\": this build has no OpenTelemetry", s.name());
            self.error_hint(s.words[0].span, message, "build it with --features otel");
        }
        has
    }

    /// `otel_exporter { endpoint …; protocol …; header …; trusted_certificate …; interval …; batch_size …; batch_count …; }`.
    pub fn otel_exporter(&mut self, s: &Statement) {
        if !self.has_traces(s) {
            return;
        }
        self.traces.has_exporter = true;
        let mut draft = Draft::default();
        for line in s.block.iter().flatten() {
            self.otel_exporter_line(&mut draft, line);
        }
        let Some(word) = draft.endpoint else {
            if !s.block.iter().flatten().any(|line| line.words[0].value == b"endpoint") {
                let hint = "for example: endpoint localhost:4317;";
                self.error_hint(s.words[0].span, "\"otel_exporter\" requires \"endpoint\"", hint);
            }
            return;
        };
        let is_http = draft.is_http.unwrap_or(false);
        let Some((endpoint, protocol)) = self.otel_endpoint(word, is_http, draft.trusted) else { return };
        self.traces.exporter = Some(Exporter {
            endpoint,
            protocol,
            headers: draft.headers,
            interval: draft.interval.unwrap_or(Duration::from_secs(5)),
            batch_size: draft.batch_size.unwrap_or(512),
            batch_count: draft.batch_count.unwrap_or(4),
            resource: Vec::new(),
        });
    }

    fn otel_exporter_line<'s>(&mut self, draft: &mut Draft<'s>, line: &'s Statement) {
        const NAMES: [&str; 7] =
            ["endpoint", "protocol", "header", "trusted_certificate", "interval", "batch_size", "batch_count"];
        let name = line.name();
        if line.block.is_some() {
            return self.error(line.span(), "unexpected \"{\"");
        }
        if !NAMES.contains(&name.as_str()) {
            let message = format!("unknown directive \"{name}\" in \"otel_exporter\"");
            return self.error_hint(line.words[0].span, message, format!("there are: {}", NAMES.join(", ")));
        }
        let expected = if name == "header" { 2 } else { 1 };
        if line.args().len() != expected {
            let message = format!("invalid number of arguments in \"{name}\" directive of \"otel_exporter\"");
            return self.error_hint(line.span(), message, format!("{expected} expected, {} given", line.args().len()));
        }
        let word = &line.words[1];
        let count = |b: &mut Self, field: &mut Option<usize>| match b.size(line) {
            Some(count @ 1..=MOST) => *field = Some(count),
            Some(_) => b.error(word.span, format!("\"{name}\" must be between 1 and {MOST}")),
            None => {}
        };
        let is_given = match name.as_str() {
            "endpoint" => draft.endpoint.replace(word).is_some(),
            "protocol" => {
                if !matches!(&word.value[..], b"grpc" | b"http/protobuf") {
                    let message = format!("unknown protocol \"{}\" in \"otel_exporter\"", word.text());
                    self.error_hint(word.span, message, "write grpc or http/protobuf");
                }
                // If it is neither, the endpoint may have a path: one error is enough.
                draft.is_http.replace(&word.value[..] != b"grpc").is_some()
            }
            "trusted_certificate" => draft.trusted.replace(word).is_some(),
            "interval" => {
                let given = draft.interval.is_some();
                match self.msec(line) {
                    Some(Duration::ZERO) => self.error(word.span, "\"interval\" must not be 0"),
                    interval => draft.interval = interval.or(draft.interval),
                }
                given
            }
            "batch_size" => {
                let given = draft.batch_size.is_some();
                count(self, &mut draft.batch_size);
                given
            }
            "batch_count" => {
                let given = draft.batch_count.is_some();
                count(self, &mut draft.batch_count);
                given
            }
            _ => {
                draft.headers.extend(self.otel_header(line));
                false
            }
        };
        if is_given {
            self.duplicate(line);
        }
    }

    /// A field of the requests to the collector, its name in lower case.
    fn otel_header(&mut self, line: &Statement) -> Option<(String, String)> {
        let (name, value) = (line.words[1].text().to_ascii_lowercase(), line.words[2].text());
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
        // Those are the exporter's own, and "-bin" is for values in base64.
        const OWN: [&str; 9] = [
            "te",
            "content-type",
            "content-length",
            "content-encoding",
            "transfer-encoding",
            "host",
            "connection",
            "expect",
            "upgrade",
        ];
        let is_own = name.starts_with("grpc-") || OWN.contains(&name.as_str());
        if name.is_empty() || !name.bytes().all(is_name) || is_own {
            self.error(line.words[1].span, format!("invalid header name \"{}\"", line.words[1].text()));
            return None;
        }
        if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            // Not shown: it may be a key.
            self.error(line.words[2].span, format!("invalid value of header \"{name}\""));
            return None;
        }
        Some((name, value))
    }

    /// `[http://|https://]HOST:PORT` or `unix:/PATH`; over HTTP a path may follow the port.
    fn otel_endpoint(&mut self, word: &Word, is_http: bool, trusted: Option<&Word>) -> Option<(Api, ExporterProtocol)> {
        let shown = word.text();
        let (default_port, forms) = if is_http { (HTTP_PORT, HTTP_FORMS) } else { (GRPC_PORT, GRPC_FORMS) };
        let wrong = |b: &mut Self, what: &str, hint: &str| -> Option<(Api, ExporterProtocol)> {
            b.error_hint(word.span, format!("{what} in endpoint \"{shown}\""), hint);
            None
        };
        let is_unix = |text: &str| text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("unix:"));
        let (is_tls, rest) = match shown.split_once("://").filter(|_| !is_unix(&shown)) {
            None => (false, &shown[..]),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return wrong(self, "unknown scheme", forms),
        };
        let is_unix = is_unix(rest);
        let end = rest.find(['/', '?', '#']).filter(|_| !is_unix).unwrap_or(rest.len());
        let (rest, path) = rest.split_at(end);
        if !is_http && !matches!(path, "" | "/") {
            let hint = "OTLP over gRPC has no path; most collectors take it at port 4317. \
                        For OTLP over HTTP, write: protocol http/protobuf;";
            return wrong(self, "a path", hint);
        }
        if !path.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'#') {
            return wrong(self, "invalid path", "percent-encode it; there can be no fragment (\"#…\")");
        }
        let address = match address::parse(rest.as_bytes(), default_port, Use::Server) {
            Ok(address) if is_unix || rest.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'@') => address,
            other => return wrong(self, other.err().unwrap_or("invalid host"), forms),
        };
        let protocol = match (is_http, path) {
            (false, _) => ExporterProtocol::Grpc,
            (true, "") => ExporterProtocol::Http { path: HTTP_PATH.into() },
            (true, path) if path.starts_with('?') => ExporterProtocol::Http { path: format!("{HTTP_PATH}{path}") },
            (true, path) => ExporterProtocol::Http { path: path.into() },
        };
        let (place, authority) = match address.host {
            Host::Unix(path) => (Place::Unix(path), "localhost".to_string()),
            Host::Ip(ip) => (Place::Host(ip.to_string(), address.port), rest.to_string()),
            Host::Name(name) => (Place::Host(name, address.port), rest.to_string()),
        };
        let authority = if address.no_port { format!("{authority}:{default_port}") } else { authority };
        let tls = match (is_tls, trusted) {
            (false, None) => None,
            (false, Some(trusted)) => {
                let hint = "write https:// in \"endpoint\"";
                self.error_hint(trusted.span, "\"trusted_certificate\" without https", hint);
                return None;
            }
            (true, trusted) => {
                let (path, span) = match trusted {
                    Some(trusted) => (self.conf_path(&trusted.value), trusted.span),
                    None => {
                        let found = TRUSTED.iter().find(|path| self.source.data(path.as_ref()).is_ok());
                        (found.unwrap_or(&TRUSTED[0]).into(), word.span)
                    }
                };
                let text = match self.source.data(&path) {
                    Ok(text) => text,
                    Err(error) => {
                        let why = os_error(&error);
                        let message = format!("cannot load certificate \"{}\": {why}", path.display());
                        self.error_hint(span, message, "name the certificates to trust with \"trusted_certificate\"");
                        return None;
                    }
                };
                let alpn: &[u8] = if is_http { b"http/1.1" } else { b"h2" };
                Some(self.api_tls(&text, vec![alpn.to_vec()], span)?)
            }
        };
        Some((Api { place, authority, tls, token: None }, protocol))
    }

    /// `otel_service_name NAME`.
    pub fn otel_service_name(&mut self, s: &Statement) {
        if self.has_traces(s) {
            self.traces.service = Some(s.words[1].text());
        }
    }

    /// `otel_resource_attr NAME VALUE`. As in NGINX, the last value of a name holds.
    pub fn otel_resource_attr(&mut self, s: &Statement) {
        if !self.has_traces(s) {
            return;
        }
        let name = s.words[1].text();
        self.traces.resource.retain(|(known, _)| *known != name);
        self.traces.resource.push((name, s.words[2].text()));
    }

    /// `otel_trace on|off|$variable`.
    pub fn otel_trace(&mut self, block: &mut HttpBlock, s: &Statement) {
        if !self.has_traces(s) {
            return;
        }
        let word = &s.words[1];
        let Some(template) = self.template(word) else { return };
        let on = match template.as_literal() {
            None => Some(template),
            Some(b"on" | b"1") => Some(template),
            Some(b"off" | b"0") => None,
            Some(_) => {
                self.choice::<bool>(s, &[("on", true), ("off", false)]);
                return;
            }
        };
        if on.is_some() {
            self.traces.traced_at.get_or_insert(word.span);
        }
        block.tracing().on = on;
    }

    /// `otel_trace_context extract|inject|propagate|ignore`.
    pub fn otel_trace_context(&mut self, block: &mut HttpBlock, s: &Statement) {
        if !self.has_traces(s) {
            return;
        }
        let choices = [
            ("extract", (true, false)),
            ("inject", (false, true)),
            ("propagate", (true, true)),
            ("ignore", (false, false)),
        ];
        if let Some((extract, inject)) = self.choice(s, &choices) {
            let tracing = block.tracing();
            (tracing.extract, tracing.inject) = (extract, inject);
        }
    }

    /// `otel_span_name NAME`.
    pub fn otel_span_name(&mut self, block: &mut HttpBlock, s: &Statement) {
        if self.has_traces(s)
            && let Some(name) = self.template(&s.words[1])
        {
            block.tracing().name = Some(name);
        }
    }

    /// `otel_span_attr NAME VALUE`.
    pub fn otel_span_attr(&mut self, block: &mut HttpBlock, s: &Statement) {
        if self.has_traces(s)
            && let Some(value) = self.template(&s.words[2])
        {
            let is_first = block.given.is_first();
            let attributes = &mut block.tracing().attributes;
            if is_first {
                attributes.clear();
            }
            attributes.push((s.words[1].text().into(), value));
        }
    }

    /// The exporter with its resource, once all of `http` has been read.
    pub fn exporter(&mut self) -> Option<std::sync::Arc<Exporter>> {
        let Traces { exporter, has_exporter, service, mut resource, traced_at } = std::mem::take(&mut self.traces);
        if let Some(span) = traced_at.filter(|_| !has_exporter) {
            let hint = "write where the spans go to: otel_exporter { endpoint localhost:4317; }";
            self.error_hint(span, "\"otel_exporter\" block is missing", hint);
        }
        const SERVICE: &str = "service.name";
        let known = resource.iter().any(|(name, _)| name == SERVICE);
        if service.is_some() || !known {
            resource.retain(|(name, _)| name != SERVICE);
            resource.insert(0, (SERVICE.into(), service.unwrap_or("unknown_service:balanza".into())));
        }
        exporter.map(|exporter| Exporter { resource, ..exporter }.into())
    }
}

#[cfg(all(test, not(feature = "otel")))]
mod tests {
    use crate::{Bundle, Options, load};

    #[test]
    fn a_build_without_traces_says_so() {
        for directive in ["otel_exporter { endpoint a; }", "otel_trace on;", "otel_trace off;", "otel_service_name a;"]
        {
            let mut files = Bundle::default();
            files.add_file("/a.conf", format!("events {{ }} http {{ {directive} }}"));
            let (config, problems) = load(&files, &Options::new("/", "/a.conf"));
            let name = directive.split(' ').next().unwrap_or_default();
            assert!(config.is_none() && problems.len() == 1, "{problems:?}");
            assert_eq!(problems[0].message, format!("\"{name}\": this build has no OpenTelemetry"));
            assert_eq!(problems[0].hint.as_deref(), Some("build it with --features otel"));
        }
    }
}
