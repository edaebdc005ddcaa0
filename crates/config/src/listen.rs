//! `listen`: addresses to sockets, and the virtual servers behind each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::address::{self, Host, Use};
use crate::diagnostics::{Severity, Span};
use crate::load::{Builder, Protocol};
use crate::model::{AddressGroup, Listen, ListenAddress, ListenOptions, Server, StreamServer, TcpKeepalive};
use crate::names::{NameKind, ServerNames, classify};
use crate::parameter::{Argument, Parameter, Wrong, parameter, set, unsupported};
use crate::regex::Regex;
use crate::tree::Statement;
use crate::values;

/// NGINX's backlog on Linux.
const BACKLOG: i32 = 511;
const DEFAULTS: ListenOptions = ListenOptions {
    backlog: BACKLOG,
    reuseport: false,
    ipv6only: true,
    deferred: false,
    rcvbuf: None,
    sndbuf: None,
    keepalive: None,
    fastopen: None,
};
/// The parameters of `listen`.
const PARAMETERS: &[Parameter<ListenDraft>] = &[
    parameter("default_server", |_, listen, _| set(&mut listen.default_server, Some(true))),
    parameter("default", |_, listen, _| set(&mut listen.default_server, Some(true))),
    parameter("bind", |_, listen, _| set(&mut listen.bind, Some(true))),
    parameter("fastopen=", |_, listen, a| option(listen, a, |options| &mut options.fastopen, number(a).map(Some))),
    parameter("backlog=", |_, listen, a| {
        option(listen, a, |options| &mut options.backlog, number(a).filter(|length| *length > 0))
    }),
    parameter("rcvbuf=", |_, listen, a| option(listen, a, |options| &mut options.rcvbuf, size(a).map(Some))),
    parameter("sndbuf=", |_, listen, a| option(listen, a, |options| &mut options.sndbuf, size(a).map(Some))),
    parameter("deferred", |_, listen, a| option(listen, a, |options| &mut options.deferred, Some(true))),
    parameter("ipv6only=", |_, listen, a| option(listen, a, |options| &mut options.ipv6only, Some(ipv6only(a)?))),
    parameter("reuseport", |_, listen, a| option(listen, a, |options| &mut options.reuseport, Some(true))),
    parameter("so_keepalive=", |_, listen, a| {
        option(listen, a, |options| &mut options.keepalive, Some(Some(keepalive(a)?)))
    }),
    parameter("udp", |b, listen, _| match b.protocol {
        Protocol::Http => Err(Wrong::Parameter),
        Protocol::Stream => set(&mut listen.udp, Some(true)),
    }),
    parameter("ssl", |_, listen, _| set(&mut listen.ssl, Some(true))),
    parameter("http2", listen_http2),
    parameter("proxy_protocol", |_, listen, _| set(&mut listen.proxy_protocol, Some(true))),
    unsupported("http3"),
    unsupported("quic"),
    unsupported("multipath"),
];

/// Sets an option of the socket, so that the address gets a socket of its own.
fn option<V>(
    listen: &mut ListenDraft,
    a: &Argument<'_>,
    field: fn(&mut ListenOptions) -> &mut V,
    value: Option<V>,
) -> Result<(), Wrong> {
    let name = a.word.text();
    let name = name.split('=').next().unwrap_or_default();
    let invalid = || Wrong::Message(format!("invalid {name} \"{}\"", a.word.text()));
    *field(&mut listen.options) = value.ok_or_else(invalid)?;
    listen.bind = true;
    Ok(())
}

/// `http2`, which NGINX has moved to a directive of its own.
fn listen_http2(b: &mut Builder<'_>, listen: &mut ListenDraft, a: &Argument<'_>) -> Result<(), Wrong> {
    if b.protocol == Protocol::Stream {
        return Err(Wrong::Parameter);
    }
    let message = "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead";
    b.warning(a.word.span, message);
    set(&mut listen.http2, Some(true))
}

fn number(a: &Argument<'_>) -> Option<i32> {
    values::number(a.value).and_then(|number| i32::try_from(number).ok())
}

fn size(a: &Argument<'_>) -> Option<usize> {
    values::size(a.value, false).and_then(|size| usize::try_from(size).ok())
}

fn ipv6only(a: &Argument<'_>) -> Result<bool, Wrong> {
    match a.value {
        b"on" => Ok(true),
        b"off" => Ok(false),
        [b'o', ..] => Err(Wrong::Message(format!("invalid ipv6only flags \"{}\"", String::from_utf8_lossy(a.value)))),
        _ => Err(Wrong::Parameter),
    }
}

/// `on`, `off`, or `idle:interval:count` with parts left out.
fn keepalive(a: &Argument<'_>) -> Result<TcpKeepalive, Wrong> {
    let invalid = || Wrong::Message(format!("invalid so_keepalive value: \"{}\"", String::from_utf8_lossy(a.value)));
    keepalive_times(a.value).ok_or_else(invalid)
}

/// One address that a server listens on.
#[derive(Debug, Clone)]
pub(crate) struct ListenDraft {
    pub address: ListenAddress,
    pub options: ListenOptions,
    /// A parameter of the socket is given: the address gets a socket of its own.
    pub bind: bool,
    pub default_server: bool,
    /// `ssl`.
    pub ssl: bool,
    /// `http2`.
    pub http2: bool,
    /// `proxy_protocol`.
    pub proxy_protocol: bool,
    /// `udp`.
    pub udp: bool,
    pub span: Span,
}

/// A name of a server.
#[derive(Debug, Clone)]
pub(crate) enum NameDraft {
    /// Lower case.
    Plain(Vec<u8>),
    Regex(Regex),
}

/// A server with what the listeners need of it.
pub(crate) struct ServerDraft<T = Server> {
    pub server: Arc<T>,
    pub listens: Vec<ListenDraft>,
    pub names: Vec<(NameDraft, Span)>,
    /// Its certificate could not be used, which was said.
    pub tls_failed: bool,
}

/// A server that others may share an address with.
pub(crate) trait Virtual {
    /// It has a certificate.
    fn speaks_tls(&self) -> bool;
    /// It speaks HTTP/2.
    fn speaks_http2(&self) -> bool;
}

impl Virtual for Server {
    fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    fn speaks_http2(&self) -> bool {
        self.connection.http2.enabled
    }
}

impl Virtual for StreamServer {
    fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    fn speaks_http2(&self) -> bool {
        false
    }
}

impl Builder<'_> {
    /// `listen` with all addresses that it stands for.
    pub fn listen(&mut self, listens: &mut Vec<ListenDraft>, s: &Statement) {
        let word = &s.words[1];
        let parsed = match address::parse(&word.value, 80, Use::Listen) {
            Ok(parsed) => parsed,
            Err(problem) => {
                let message = format!("{problem} in \"{}\" of the \"listen\" directive", word.text());
                return self.error(word.span, message);
            }
        };
        if self.protocol == Protocol::Stream && parsed.no_port && !matches!(parsed.host, Host::Unix(_)) {
            return self.error(word.span, format!("no port in \"{}\" of the \"listen\" directive", word.text()));
        }
        let mut draft = ListenDraft {
            address: ListenAddress::Unix("".into()),
            options: DEFAULTS,
            bind: false,
            default_server: false,
            ssl: false,
            http2: false,
            proxy_protocol: false,
            udp: false,
            span: s.span(),
        };
        let right = self.parameters(PARAMETERS, &mut draft, s, 2) && self.fits_udp(&draft, &parsed.host, s);
        let addresses = if let Host::Unix(path) = &parsed.host {
            vec![ListenAddress::Unix(path.clone())]
        } else {
            let mut addresses = Vec::new();
            for port in parsed.port..=parsed.last_port.unwrap_or(parsed.port) {
                match address::resolve(self.source, &parsed.host, port) {
                    Ok(found) => {
                        let kind = if draft.udp { ListenAddress::Udp } else { ListenAddress::Inet };
                        addresses.extend(found.into_iter().map(kind));
                    }
                    Err(problem) => {
                        let message = format!("{problem} in \"{}\" of the \"listen\" directive", word.text());
                        return self.error(word.span, message);
                    }
                }
            }
            addresses
        };
        if !right {
            return;
        }
        let mut known: HashSet<ListenAddress> = listens.iter().map(|known| known.address.clone()).collect();
        for address in addresses {
            if !known.insert(address.clone()) {
                self.error(s.span(), format!("a duplicate listen {}", show(&address)));
                continue;
            }
            listens.push(ListenDraft { address, ..draft.clone() });
        }
    }

    /// Whether `listen … udp` has no parameter that only connections have.
    fn fits_udp(&mut self, draft: &ListenDraft, host: &Host, s: &Statement) -> bool {
        if !draft.udp {
            return true;
        }
        let options = &draft.options;
        let given = [
            ("backlog", s.args().iter().any(|word| word.parameter().0 == b"backlog=")),
            ("deferred", options.deferred),
            ("ssl", draft.ssl),
            ("so_keepalive", options.keepalive.is_some()),
            ("proxy_protocol", draft.proxy_protocol),
            ("fastopen", options.fastopen.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
            self.error(s.span(), format!("\"listen\" directive \"{name}\" parameter is incompatible with \"udp\""));
            return false;
        }
        if matches!(host, Host::Unix(_)) {
            let message = "datagrams on a Unix-domain socket are possible in NGINX, but not in Balanza yet";
            self.error_hint(s.span(), message, "listen on an address such as 127.0.0.1:514");
            return false;
        }
        true
    }

    /// The sockets of all servers, with the servers behind each.
    pub fn listens<T: Virtual>(&mut self, servers: &[ServerDraft<T>]) -> Vec<Listen<T>> {
        let mut bound: Vec<Bound> = Vec::new();
        let mut index_of: HashMap<ListenAddress, usize> = HashMap::new();
        for (index, server) in servers.iter().enumerate() {
            for listen in &server.listens {
                match index_of.get(&listen.address) {
                    Some(known) => self.add_listen(&mut bound[*known], listen, index),
                    None => {
                        index_of.insert(listen.address.clone(), bound.len());
                        bound.push(Bound {
                            address: listen.address.clone(),
                            options: listen.options,
                            span: listen.span,
                            bind: listen.bind,
                            default: listen.default_server.then_some(index),
                            ssl: listen.ssl.then_some(listen.span),
                            http2: listen.http2,
                            proxy_protocol: listen.proxy_protocol,
                            servers: vec![index],
                        });
                    }
                }
            }
        }
        // By port, family and protocol: addresses without a socket of their own share the wildcard's.
        let mut ports: BTreeMap<(u16, bool, bool), Vec<Bound>> = BTreeMap::new();
        let mut listens = Vec::new();
        let mut order: Vec<(u16, bool, bool)> = Vec::new();
        for item in bound {
            match item.address {
                ListenAddress::Unix(_) => {
                    let group = self.group(&item, None, servers);
                    let place = self.place(item.span);
                    listens.push(Listen { address: item.address, options: item.options, place, groups: vec![group] });
                }
                ListenAddress::Inet(address) | ListenAddress::Udp(address) => {
                    let is_udp = matches!(item.address, ListenAddress::Udp(_));
                    let port = (address.port(), address.is_ipv6(), is_udp);
                    let items = ports.entry(port).or_default();
                    if items.is_empty() {
                        order.push(port);
                    }
                    items.push(item);
                }
            }
        }
        for port in order {
            let items = ports.remove(&port).unwrap_or_default();
            self.port(&mut listens, items, servers);
        }
        listens
    }

    /// Adds a server to an address that another one has already.
    fn add_listen(&mut self, known: &mut Bound, listen: &ListenDraft, server: usize) {
        known.servers.push(server);
        known.ssl = known.ssl.or(listen.ssl.then_some(listen.span));
        known.http2 |= listen.http2;
        known.proxy_protocol |= listen.proxy_protocol;
        let shown = show(&listen.address);
        if listen.bind {
            if known.bind {
                let hint = "set the socket's parameters in one server only";
                self.error_hint(listen.span, format!("duplicate listen options for {shown}"), hint);
                return;
            }
            known.bind = true;
            known.options = listen.options;
        }
        if listen.default_server {
            if known.default.is_some() {
                self.error(listen.span, format!("a duplicate default server for {shown}"));
                return;
            }
            known.default = Some(server);
        }
    }

    /// The sockets of one port.
    fn port<T: Virtual>(&mut self, listens: &mut Vec<Listen<T>>, items: Vec<Bound>, servers: &[ServerDraft<T>]) {
        let is_wildcard = |item: &Bound| item.address.inet().is_some_and(|address| address.ip().is_unspecified());
        let wildcard = items.iter().position(is_wildcard);
        let mut groups = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let Some(address) = item.address.inet() else { continue };
            if Some(i) == wildcard {
                continue;
            }
            if wildcard.is_some() && !item.bind {
                groups.push(self.group(item, Some(address), servers));
            } else {
                let group = self.group(item, None, servers);
                let (address, place) = (item.address.clone(), self.place(item.span));
                listens.push(Listen { address, options: item.options, place, groups: vec![group] });
            }
        }
        if let Some(item) = wildcard.map(|i| &items[i]) {
            groups.push(self.group(item, None, servers));
            let (address, place) = (item.address.clone(), self.place(item.span));
            listens.push(Listen { address, options: item.options, place, groups });
        }
    }

    /// The servers of one address by their names.
    fn group<T: Virtual>(
        &mut self,
        item: &Bound,
        local: Option<SocketAddr>,
        servers: &[ServerDraft<T>],
    ) -> AddressGroup<T> {
        let mut names = ServerNames::default();
        let shown = show(&item.address);
        let mut warnings = Vec::new();
        for server in item.servers.iter().map(|index| &servers[*index]) {
            for (name, span) in &server.names {
                let text = match name {
                    NameDraft::Regex(regex) => {
                        names.regexes.push((regex.clone(), server.server.clone()));
                        continue;
                    }
                    NameDraft::Plain(text) => text,
                };
                let kind = classify(text);
                let fresh = match kind {
                    NameKind::Invalid => {
                        let text = String::from_utf8_lossy(text).into_owned();
                        let message = format!("invalid server name or wildcard \"{text}\" on {shown}");
                        // The only server of an address serves every name, and NGINX does not look at its own.
                        if item.servers.len() > 1 {
                            self.error(*span, message);
                        } else {
                            self.warning(*span, message);
                        }
                        continue;
                    }
                    NameKind::Exact(name) => insert(&mut names, name, &server.server),
                    NameKind::Dot(name) => {
                        insert(&mut names, name, &server.server) && names.wildcards.insert(&kind, server.server.clone())
                    }
                    NameKind::Leading(_) | NameKind::Trailing(_) => {
                        names.wildcards.insert(&kind, server.server.clone())
                    }
                };
                if !fresh {
                    let text = String::from_utf8_lossy(text).into_owned();
                    warnings.push((*span, format!("conflicting server name \"{text}\" on {shown}, ignored")));
                }
            }
        }
        for (span, message) in warnings {
            self.warning(span, message);
        }
        let default = item.default.unwrap_or(item.servers[0]);
        let default_server = servers[default].server.clone();
        if let Some(span) = item.ssl
            && !default_server.speaks_tls()
            && !servers[default].tls_failed
        {
            let message = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive";
            self.error_hint(span, message, "`balanza cert --self-signed NAME` makes one for trying things out");
        }
        let http2 = item.http2 || default_server.speaks_http2();
        let (ssl, proxy_protocol) = (item.ssl.is_some(), item.proxy_protocol);
        AddressGroup { local, ssl, http2, proxy_protocol, default_server, names }
    }

    /// `server_name`.
    pub fn server_names(&mut self, names: &mut Vec<(NameDraft, Span)>, s: &Statement) {
        for word in s.args() {
            let text = word.value.as_slice();
            if text.contains(&b'/') && text.first() != Some(&b'~') {
                let message = format!("server name \"{}\" has suspicious symbols", word.text());
                let hint = self.missing_semicolon(s);
                self.report(Severity::Warning, word.span, message).hint = hint;
            }
            if let Some(pattern) = text.strip_prefix(b"~") {
                if pattern.is_empty() {
                    self.error(word.span, "empty regex in server name \"~\"");
                    continue;
                }
                // Host names are lower case; a pattern with capitals is meant to match them all the same.
                let caseless = pattern.iter().any(u8::is_ascii_uppercase);
                if let Some(regex) = self.regex(pattern, caseless, word.span) {
                    names.push((NameDraft::Regex(regex), word.span));
                }
                continue;
            }
            if text == b"." || (text.first() == Some(&b'*') && (text.len() < 3 || text[1] != b'.')) {
                self.error(word.span, format!("server name \"{}\" is invalid", word.text()));
                continue;
            }
            let name = if text.eq_ignore_ascii_case(b"$hostname") {
                self.options.hostname.to_ascii_lowercase().into_bytes()
            } else {
                text.to_ascii_lowercase()
            };
            names.push((NameDraft::Plain(name), word.span));
        }
    }
}

/// An address with all servers on it.
struct Bound {
    address: ListenAddress,
    options: ListenOptions,
    /// Of its first `listen`.
    span: Span,
    bind: bool,
    default: Option<usize>,
    /// Where `ssl` was said first.
    ssl: Option<Span>,
    http2: bool,
    proxy_protocol: bool,
    servers: Vec<usize>,
}

fn insert<T>(names: &mut ServerNames<T>, name: &[u8], server: &Arc<T>) -> bool {
    match names.exact.entry(name.into()) {
        std::collections::hash_map::Entry::Occupied(_) => false,
        std::collections::hash_map::Entry::Vacant(entry) => {
            entry.insert(server.clone());
            true
        }
    }
}

/// An address as NGINX prints it.
pub(crate) fn show(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Inet(address) | ListenAddress::Udp(address) => address.to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}

impl Builder<'_> {
    /// The index of the name that a server's requests or sessions are counted for.
    pub fn status_zone(&mut self, name: String) -> usize {
        let next = self.status_zones.len();
        *self.status_zones.entry(name).or_insert(next)
    }

    /// All these names, in order. The next ones are numbered from 0 again.
    pub fn take_status_zones(&mut self) -> Vec<String> {
        let mut zones: Vec<(String, usize)> = std::mem::take(&mut self.status_zones).into_iter().collect();
        zones.sort_by_key(|(_, number)| *number);
        zones.into_iter().map(|(name, _)| name).collect()
    }
}

/// Where a server without `listen` is.
pub(crate) fn default_listen(privileged: bool, span: Span) -> ListenDraft {
    let port = if privileged { 80 } else { 8000 };
    ListenDraft {
        address: ListenAddress::Inet(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port)),
        options: DEFAULTS,
        bind: false,
        default_server: false,
        ssl: false,
        http2: false,
        proxy_protocol: false,
        udp: false,
        span,
    }
}

fn keepalive_times(value: &[u8]) -> Option<TcpKeepalive> {
    match value {
        b"on" => return Some(TcpKeepalive::On { idle: None, interval: None, count: None }),
        b"off" => return Some(TcpKeepalive::Off),
        _ => {}
    }
    let mut parts = value.splitn(3, |b| *b == b':');
    let mut time = || match parts.next() {
        None | Some(b"") => Some(None),
        Some(text) => values::seconds(text).map(|time| Some(time).filter(|time| *time > Duration::ZERO)),
    };
    let (idle, interval) = (time()?, time()?);
    let count = match parts.next() {
        None | Some(b"") => None,
        Some(text) => Some(u32::try_from(values::number(text)?).ok()?).filter(|count| *count > 0),
    };
    if idle.is_none() && interval.is_none() && count.is_none() {
        return None;
    }
    Some(TcpKeepalive::On { idle, interval, count })
}
