//! `discover`: sources of servers.

use std::path::PathBuf;
use std::sync::Arc;

use balanza_tls::certificates;
use balanza_tls::ciphers;
use balanza_tls::client::{Context, Settings};
use balanza_tls::protocols::Protocols;
use balanza_tls::verification::Trust;

use super::server::number;
use super::{UpstreamBlock, place};
use crate::address::{self, Host, Use};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::discover::{Api, Consul, Discover, Docker, Etcd, Kubernetes, Place, Source, Tls};
use crate::model::{ServerAddress, UpstreamServer};
use crate::parameter::{Argument, Parameter, Wrong, parameter, set};
use crate::tree::{Statement, os_error};
use crate::values;

/// How many certificates may stand between a source's and a trusted one.
const DEPTH: usize = 9;

/// The forms of a URL, for hints.
const FORMS: &str = "write http://HOST:PORT, https://HOST:PORT or unix:/PATH";

/// The label of containers unless the configuration names another.
const LABEL: &str = "balanza.upstream";

/// Where Docker's daemon listens unless the configuration says otherwise.
const DOCKER: &str = "unix:/var/run/docker.sock";
/// The API server in a cluster.
const KUBERNETES: &str = "https://kubernetes.default.svc";
/// Where a pod finds its token and the cluster's certificates.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A `discover` while it is read.
struct Draft {
    template: UpstreamServer,
    prefix: String,
    service: String,
    tags: Vec<String>,
    datacenter: Option<String>,
    label: String,
    network: Option<String>,
    port: Option<String>,
    user: Option<String>,
    password: Option<PathBuf>,
    /// The file of `ca=`, and what it has.
    ca: Option<Vec<u8>>,
    token: Option<PathBuf>,
}

impl Draft {
    fn new() -> Draft {
        Draft {
            template: UpstreamServer::new(String::new(), ServerAddress::Unix(PathBuf::new())),
            prefix: String::new(),
            service: String::new(),
            tags: Vec::new(),
            datacenter: None,
            label: LABEL.to_owned(),
            network: None,
            port: None,
            user: None,
            password: None,
            ca: None,
            token: None,
        }
    }
}

type Row = Parameter<Draft>;

/// Parameters of `server` that hold for all servers of a source.
const COMMON: &[Row] = &[
    parameter("weight=", |_, draft, a| set(&mut draft.template.weight, number(a).filter(|weight| *weight > 0))),
    parameter("max_conns=", |_, draft, a| set(&mut draft.template.max_conns, number(a))),
    parameter("max_fails=", |_, draft, a| set(&mut draft.template.max_fails, number(a))),
    parameter("fail_timeout=", |_, draft, a| set(&mut draft.template.fail_timeout, values::seconds(a.value))),
    parameter("slow_start=", |_, draft, a| set(&mut draft.template.slow_start, values::milliseconds(a.value))),
    parameter("priority=", |_, draft, a| set(&mut draft.template.priority, number(a))),
    parameter("backup", |_, draft, _| set(&mut draft.template.backup, Some(true))),
];

/// The certificates that a source is verified with.
const CA: Row = parameter("ca=", |b, draft, a| {
    let path = b.conf_path(a.value);
    let text = b.source.data(&path).map_err(|error| {
        Wrong::Message(format!("cannot load certificate \"{}\": {}", path.display(), os_error(&error)))
    })?;
    set(&mut draft.ca, Some(Some(text)))
});

/// A file with a token, which is read when it is needed.
const TOKEN: Row = parameter("token_file=", |b, draft, a| {
    text(a)?;
    set(&mut draft.token, Some(Some(b.conf_path(a.value))))
});

/// The parameters of `discover consul`.
const CONSUL: &[Row] = &[
    parameter("service=", |_, draft, a| set(&mut draft.service, Some(text(a)?))),
    parameter("tag=", |_, draft, a| {
        draft.tags.push(text(a)?);
        Ok(())
    }),
    parameter("datacenter=", |_, draft, a| set(&mut draft.datacenter, Some(Some(text(a)?)))),
    TOKEN,
    CA,
];

/// The parameters of `discover docker`.
const DOCKER_TABLE: &[Row] = &[
    parameter("label=", |_, draft, a| set(&mut draft.label, Some(text(a)?))),
    parameter("network=", |_, draft, a| set(&mut draft.network, Some(Some(text(a)?)))),
    parameter("port=", |_, draft, a| {
        let port = number(a).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        set(&mut draft.port, port.map(|port| Some(port.to_string())))
    }),
    CA,
];

/// The parameters of `discover kubernetes`.
const KUBERNETES_TABLE: &[Row] = &[
    parameter("service=", |_, draft, a| set(&mut draft.service, Some(text(a)?))),
    parameter("port=", |_, draft, a| set(&mut draft.port, Some(Some(text(a)?)))),
    TOKEN,
    CA,
];

/// The parameters of `discover etcd`.
const ETCD: &[Row] = &[
    parameter("prefix=", |_, draft, a| set(&mut draft.prefix, Some(text(a)?))),
    parameter("user=", |_, draft, a| set(&mut draft.user, Some(Some(text(a)?)))),
    parameter("password_file=", |b, draft, a| set(&mut draft.password, Some(Some(b.conf_path(a.value))))),
    CA,
];

/// A value that is not empty.
fn text(a: &Argument<'_>) -> Result<String, Wrong> {
    match a.value {
        [] => Err(Wrong::Message(format!("\"{}\" is empty", a.word.text().trim_end_matches('=')))),
        value => Ok(String::from_utf8_lossy(value).into_owned()),
    }
}

/// The URL of a source: what stands in its place and is no parameter.
fn url(s: &Statement) -> Option<&Word> {
    let is_parameter = |word: &Word| {
        let name = word.value.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.len() < word.value.len() && name.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_')
    };
    s.words.get(2).filter(|word| !is_parameter(word) && word.value != b"backup")
}

impl Builder<'_> {
    /// `discover SOURCE …`.
    pub fn discover<'s>(&mut self, block: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let read = match s.words[1].value.as_slice() {
            b"consul" => self.discover_consul(s),
            b"docker" => self.discover_docker(&block.name, s),
            b"etcd" => self.discover_etcd(s),
            b"kubernetes" => self.discover_kubernetes(s),
            _ => {
                let message = format!("unknown source \"{}\" in \"discover\"", s.words[1].text());
                return self.error_hint(s.words[1].span, message, "the sources are: consul, docker, etcd, kubernetes");
            }
        };
        let Some((source, template)) = read else { return };
        if self.check_server(block, &template, s) {
            block.discovers.push((Discover { source, template }, s));
        }
    }

    /// `discover consul URL service=NAME [tag=TAG …] [datacenter=NAME] [token_file=FILE] [ca=FILE]`.
    fn discover_consul(&mut self, s: &Statement) -> Option<(Source, UpstreamServer)> {
        let draft = self.discover_parameters(CONSUL, s)?;
        let api = self.discover_api(None, 8500, &draft, s)?;
        if draft.service.is_empty() {
            self.error_hint(s.span(), "no \"service=\" in \"discover consul\"", "for example service=web");
            return None;
        }
        let Draft { service, tags, datacenter, template, .. } = draft;
        Some((Source::Consul(Consul { api, service, tags, datacenter }), template))
    }

    /// `discover docker [URL] [label=LABEL[=VALUE]] [network=NAME] [port=NUMBER] [ca=FILE]`.
    fn discover_docker(&mut self, upstream: &str, s: &Statement) -> Option<(Source, UpstreamServer)> {
        let draft = self.discover_parameters(DOCKER_TABLE, s)?;
        let api = self.discover_api(Some(DOCKER), 2375, &draft, s)?;
        let Draft { label, network, port, template, .. } = draft;
        let (label, value) = match label.split_once('=') {
            Some((label, value)) => (label.to_owned(), value.to_owned()),
            None => (label, upstream.to_owned()),
        };
        let port = port.and_then(|port| port.parse().ok());
        Some((Source::Docker(Docker { api, label, value, network, port }), template))
    }

    /// `discover kubernetes [URL] service=NAMESPACE/NAME [port=PORT] [token_file=FILE] [ca=FILE]`. Without a URL the pod's
    /// own account is used.
    fn discover_kubernetes(&mut self, s: &Statement) -> Option<(Source, UpstreamServer)> {
        let mut draft = self.discover_parameters(KUBERNETES_TABLE, s)?;
        if url(s).is_none() {
            draft.token.get_or_insert_with(|| PathBuf::from(format!("{ACCOUNT}/token")));
            if draft.ca.is_none() {
                let path = PathBuf::from(format!("{ACCOUNT}/ca.crt"));
                match self.source.data(&path) {
                    Ok(text) => draft.ca = Some(text),
                    Err(error) => {
                        let why = os_error(&error);
                        let message = format!("cannot load certificate \"{}\": {why}", path.display());
                        let hint = "outside of a cluster, name the API server: discover kubernetes https://HOST:PORT …";
                        self.error_hint(s.span(), message, hint);
                        return None;
                    }
                }
            }
        }
        let api = self.discover_api(Some(KUBERNETES), 443, &draft, s)?;
        let is_name = |name: &str| {
            let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            !name.is_empty() && name.bytes().all(is_part)
        };
        let parts = draft.service.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name));
        let Some((namespace, service)) = parts else {
            let (message, hint) = match draft.service.as_str() {
                "" => ("no \"service=\" in \"discover kubernetes\"".to_owned(), "for example service=default/web"),
                it => (format!("invalid service \"{it}\""), "write service=NAMESPACE/NAME"),
            };
            self.error_hint(place(s, "service="), message, hint);
            return None;
        };
        let (namespace, service) = (namespace.to_owned(), service.to_owned());
        let Draft { port, template, .. } = draft;
        Some((Source::Kubernetes(Kubernetes { api, namespace, service, port }), template))
    }

    /// `discover etcd URL prefix=KEY [user=NAME password_file=FILE] [ca=FILE]`.
    fn discover_etcd(&mut self, s: &Statement) -> Option<(Source, UpstreamServer)> {
        let draft = self.discover_parameters(ETCD, s)?;
        let api = self.discover_api(None, 2379, &draft, s)?;
        if draft.prefix.is_empty() {
            self.error_hint(s.span(), "no \"prefix=\" in \"discover etcd\"", "for example prefix=/services/web/");
            return None;
        }
        let user = match (draft.user, draft.password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user, password)),
            (Some(_), None) => {
                self.error(place(s, "user="), "\"user=\" needs \"password_file=\"");
                return None;
            }
            (None, Some(_)) => {
                self.error(place(s, "password_file="), "\"password_file=\" needs \"user=\"");
                return None;
            }
        };
        Some((Source::Etcd(Etcd { api, prefix: draft.prefix, user }), draft.template))
    }

    /// The parameters of a source, behind its URL if it has one.
    fn discover_parameters(&mut self, own: &[Row], s: &Statement) -> Option<Draft> {
        let mut draft = Draft::new();
        let first = if url(s).is_some() { 3 } else { 2 };
        self.parameters_of(&[own, COMMON], &mut draft, s, first).then_some(draft)
    }

    /// Where a source answers: `http://HOST[:PORT]`, `https://HOST[:PORT]` or `unix:PATH`; `usual` without a URL.
    fn discover_api(&mut self, usual: Option<&str>, port: u16, draft: &Draft, s: &Statement) -> Option<Api> {
        let word = url(s);
        let at = word.map_or_else(|| s.span(), |word| word.span);
        let Some(shown) = word.map(Word::text).or(usual.map(str::to_owned)) else {
            self.error_hint(at, format!("no URL in \"discover {}\"", s.words[1].text()), FORMS);
            return None;
        };
        let wrong = |b: &mut Self, why: &str, hint: &str| -> Option<Api> {
            b.error_hint(at, format!("{why} in URL \"{shown}\" of \"discover\""), hint);
            None
        };
        let url = shown.as_str();
        let token = draft.token.clone();
        if let Some(path) = url.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return wrong(self, "no path", FORMS);
            }
            let place = Place::Unix(PathBuf::from(path));
            return Some(Api { place, authority: "localhost".into(), tls: None, token });
        }
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return wrong(self, "invalid scheme", FORMS),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            // Not shown: it may be a password.
            let hint = "passwords and tokens are read from files, which parameters name";
            self.error_hint(at, "a user or a password in the URL of \"discover\"", hint);
            return None;
        }
        let address = match address::parse(rest.as_bytes(), port, Use::Server) {
            Ok(address) => address,
            Err(problem) => return wrong(self, problem, FORMS),
        };
        let host = match &address.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
            Host::Unix(_) => return wrong(self, "invalid host", FORMS),
        };
        let authority = match address.no_port {
            true => format!("{rest}:{port}"),
            false => rest.to_owned(),
        };
        let tls = match (is_tls, &draft.ca) {
            (false, None) => None,
            (false, Some(_)) => {
                self.error_hint(place(s, "ca="), "\"ca=\" without https", "write https:// in the URL");
                return None;
            }
            (true, None) => {
                let hint = "name the certificates to trust, for example ca=/etc/ssl/certs/ca-certificates.crt";
                self.error_hint(at, "no \"ca=\" for https in \"discover\"", hint);
                return None;
            }
            (true, Some(trusted)) => Some(self.api_tls(trusted, Vec::new(), place(s, "ca="))?),
        };
        Some(Api { place: Place::Host(host, address.port), authority, tls, token })
    }

    /// How an interface is verified, with these protocols for ALPN.
    pub fn api_tls(&mut self, trusted: &[u8], alpn: Vec<Vec<u8>>, at: crate::diagnostics::Span) -> Option<Tls> {
        let trust = certificates::read_chain(trusted)
            .map_err(|error| error.to_string())
            .and_then(|chain| Trust::new(chain, DEPTH));
        let suites = ciphers::select("HIGH:!aNULL:!MD5").map(|selection| selection.suites);
        let context = trust.and_then(|trust| {
            Context::new(&Settings {
                certificate: None,
                protocols: Protocols::ALL,
                suites: suites?,
                suites_tls13: ciphers::tls13(),
                trust: Some(trust),
                send_name: true,
                reuse: false,
                alpn,
            })
        });
        match context {
            Ok(context) => Some(Tls { trusted: trusted.to_vec(), context: Arc::new(context) }),
            Err(problem) => {
                self.error(at, format!("the certificates to trust cannot be used: {problem}"));
                None
            }
        }
    }
}
