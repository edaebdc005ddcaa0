//! `upstream`, and the groups that `proxy_pass` to an address implies.

mod balance;
pub(crate) mod checks;
mod list;
mod overload;
mod reports;
mod rules;
mod server;
mod sticky;
mod zone;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{self, Address, Host};
use crate::block::{Given, defaults};
use crate::diagnostics::Span;
use crate::directives::{Context, Reader};
use crate::lexer::Word;
use crate::load::{Builder, Protocol};
use crate::model::{
    Balance, Group, LoadReport, Overload, QueueLimits, ResolvedServer, Resolver, ServerAddress, ServerList, Sticky,
    Upstream, UpstreamKeepalive, UpstreamServer,
};
use crate::tree::Statement;
use crate::values;

pub use list::{read_servers, write_servers};
pub(crate) use zone::{Purpose, SMALLEST as SMALLEST_ZONE, Zone};

/// An upstream, and by what `proxy_pass` finds it.
#[derive(Debug)]
pub(crate) struct UpstreamDraft {
    pub upstream: Arc<Upstream>,
    /// The host as written in the URL, for implied groups; the name otherwise.
    pub host: Vec<u8>,
    /// For implied groups.
    port: Option<u16>,
    /// Until the block around it has been read.
    resolving: Option<Resolving>,
}

/// What an upstream with `resolve` says of its resolver.
#[derive(Debug)]
struct Resolving {
    /// The first `resolve`.
    span: Span,
    /// The upstream.
    place: Span,
    resolver: Option<Arc<Resolver>>,
    timeout: Option<Duration>,
}

/// An `upstream` while it is read. The statements are kept for the places of messages.
pub(crate) struct UpstreamBlock<'s> {
    name: String,
    servers: Vec<(UpstreamServer, &'s Statement)>,
    balance: Option<(Balance, &'s Statement)>,
    sticky: Option<(Sticky, &'s Statement)>,
    groups: Vec<(Group, &'s Statement)>,
    reports: Vec<(LoadReport, &'s Statement)>,
    zone: Option<String>,
    pub queue: Option<QueueLimits>,
    pub overload: Overload,
    /// `state` or `server_list`, and what the file says.
    list: Option<(ServerList, Vec<UpstreamServer>, &'s Statement)>,
    /// Servers with `resolve`.
    resolved: Vec<(ResolvedServer, &'s Statement)>,
    pub resolver: Option<Arc<Resolver>>,
    pub resolver_timeout: Option<Duration>,
    pub keepalive: UpstreamKeepalive,
    given: Given,
}

impl UpstreamBlock<'_> {
    fn new(name: String) -> Self {
        UpstreamBlock {
            name,
            servers: Vec::new(),
            balance: None,
            sticky: None,
            groups: Vec::new(),
            reports: Vec::new(),
            zone: None,
            queue: None,
            overload: Overload::default(),
            list: None,
            resolved: Vec::new(),
            resolver: None,
            resolver_timeout: None,
            keepalive: UpstreamKeepalive::default(),
            given: Given::default(),
        }
    }
}

/// The place of a parameter that begins like this; without it the whole directive.
fn place(statement: &Statement, parameter: &str) -> Span {
    let word = statement.args().iter().find(|word| word.value.starts_with(parameter.as_bytes()));
    word.map_or_else(|| statement.span(), |word| word.span)
}

impl Builder<'_> {
    /// An `upstream` block.
    pub fn upstream(&mut self, s: &Statement) {
        let name = s.words[1].text();
        let mut draft = UpstreamBlock::new(name.clone());
        draft.keepalive = self.upstream_defaults();
        for inner in s.block.iter().flatten() {
            let context = match self.protocol {
                Protocol::Http => Context::Upstream,
                Protocol::Stream => Context::StreamUpstream,
            };
            if let Some(directive) = self.check(inner, context)
                && self.admit(&mut draft.given, directive, inner)
            {
                match directive.reader {
                    Reader::Upstream(read) => read(self, &mut draft, inner),
                    Reader::Check(check) => check(self, inner),
                    _ => {}
                }
            }
        }
        let servers = s.block.iter().flatten().any(|inner| inner.words[0].value == b"server");
        self.check_list(&mut draft, servers);
        // The API and files may add servers later.
        let later = draft.zone.is_some() || draft.list.is_some();
        if !servers && !later {
            self.error(s.span(), "no servers are inside upstream");
        } else if !draft.servers.is_empty()
            && draft.resolved.is_empty()
            && draft.list.is_none()
            && draft.servers.iter().all(|(server, _)| server.backup)
        {
            self.error(s.span(), format!("no servers in upstream \"{name}\""));
        }
        // The algorithms add weights up in 32 bits.
        if draft.servers.iter().map(|(server, _)| u64::from(server.weight)).sum::<u64>() > u64::from(u32::MAX) {
            self.error(s.span(), format!("the sum of the weights in upstream \"{name}\" is too large"));
        }
        self.check_combinations(&draft);
        draft.hold_loads();
        let known = self.upstreams.iter().any(|known| known.host.eq_ignore_ascii_case(&s.words[1].value));
        if known {
            return self.error(s.words[1].span, format!("duplicate upstream \"{name}\""));
        }
        if let Some((_, statement)) = draft.resolved.first()
            && draft.zone.is_none()
        {
            let at = self.place(s.span());
            let message =
                format!("resolving names at run time requires upstream \"{name}\" in {at} to be in shared memory");
            self.error_hint(place(statement, "resolve"), message, "add `zone NAME SIZE;` to the upstream");
        }
        let unresolved = draft.resolved.first().map(|(_, statement)| place(statement, "resolve"));
        let listed = draft.list.as_mut().map(|(_, listed, _)| std::mem::take(listed)).into_iter().flatten();
        let balance = draft.balance.map_or_else(balance::default, |(balance, _)| balance);
        let upstream = Upstream {
            name,
            implicit: false,
            servers: draft.servers.into_iter().map(|(server, _)| server).chain(listed).collect(),
            resolved: draft.resolved.into_iter().map(|(server, _)| server).collect(),
            resolver: None,
            balance,
            sticky: draft.sticky.map(|(sticky, _)| sticky),
            groups: draft.groups.into_iter().map(|(group, _)| group).collect(),
            reports: draft.reports.into_iter().map(|(report, _)| report).collect(),
            zone: draft.zone,
            queue: draft.queue,
            overload: draft.overload,
            list: draft.list.map(|(list, _, _)| list),
            checks: Vec::new(),
            keepalive: draft.keepalive,
        };
        let host = s.words[1].value.clone();
        let resolving = unresolved.map(|span| Resolving {
            span,
            place: s.span(),
            resolver: draft.resolver,
            timeout: draft.resolver_timeout,
        });
        self.upstreams.push(UpstreamDraft { upstream: Arc::new(upstream), host, port: None, resolving });
    }

    /// Gives upstreams with `resolve` the resolver of the block around them, unless they have their own. All directives of
    /// that block have been read.
    pub fn set_resolvers(&mut self, outer: &Resolver) {
        let mut missing = Vec::new();
        for draft in &mut self.upstreams {
            let Some(Resolving { span, place, resolver, timeout }) = draft.resolving.take() else { continue };
            let mut resolver = resolver.map_or_else(|| outer.clone(), |own| Resolver::clone(&own));
            resolver.timeout = timeout.unwrap_or(outer.timeout);
            if resolver.servers.is_empty() {
                missing.push((span, place, draft.upstream.name.clone()));
            } else if let Some(upstream) = Arc::get_mut(&mut draft.upstream) {
                upstream.resolver = Some(Arc::new(resolver));
            }
        }
        for (span, place, name) in missing {
            let at = self.place(place);
            let message = format!("no resolver defined to resolve names at run time in upstream \"{name}\" in {at}");
            self.error_hint(
                span,
                message,
                "add `resolver ADDRESS;`, or `resolver system;` for those in /etc/resolv.conf",
            );
        }
    }

    /// A quote inside a word is a character like any other, and a space behind it ends the word.
    fn check_quotes(&mut self, word: &Word) -> Option<()> {
        let (name, value) = word.parameter();
        if !matches!(value.first(), Some(b'"' | b'\'')) {
            return Some(());
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let hint = format!("put the quotes around the whole word: \"{name}some value\"");
        self.error_hint(word.span, format!("a quote inside the word {}", word.text()), hint);
        None
    }

    /// A stream has no port of its own.
    fn lacks_port(&self, address: &Address) -> bool {
        self.protocol == Protocol::Stream && address.no_port && !matches!(address.host, Host::Unix(_))
    }

    /// What an upstream keeps by default.
    fn upstream_defaults(&mut self) -> UpstreamKeepalive {
        let mut block = UpstreamBlock::new(String::new());
        for (directive, statement) in defaults() {
            if let Reader::Upstream(read) = directive.reader {
                read(self, &mut block, statement);
            }
        }
        block.keepalive
    }

    /// `keepalive CONNECTIONS [local]`.
    pub fn keepalive(&mut self, block: &mut UpstreamBlock<'_>, s: &Statement) {
        let Some(connections) = values::number(&s.words[1].value) else {
            let message = format!("invalid value \"{}\" in \"keepalive\" directive", s.words[1].text());
            return self.error(s.words[1].span, message);
        };
        block.keepalive.local = match s.words.get(2) {
            None => false,
            Some(word) if word.value == b"local" => true,
            Some(word) => return self.invalid_parameter(word, &["local"]),
        };
        block.keepalive.connections = usize::try_from(connections).unwrap_or(usize::MAX);
    }

    /// The upstream of a `proxy_pass`: a block of this name, or a group that is made for the address.
    pub fn reference_upstream(&mut self, address: &Address, span: Span) -> Option<usize> {
        for (i, known) in self.upstreams.iter().enumerate() {
            if !known.host.eq_ignore_ascii_case(&address.host_text) {
                continue;
            }
            match known.port {
                None if !address.no_port && !matches!(address.host, Host::Unix(_)) => {
                    let name = String::from_utf8_lossy(&address.host_text).into_owned();
                    self.error(span, format!("upstream \"{name}\" may not have port {}", address.port));
                    return None;
                }
                None => return Some(i),
                Some(port) if port == address.port => return Some(i),
                Some(_) => {}
            }
        }
        let host = String::from_utf8_lossy(&address.host_text).into_owned();
        let without_port = address.no_port && address.port == 0 && !matches!(address.host, Host::Unix(_));
        if self.lacks_port(address) || without_port {
            let hint = format!("there is no upstream \"{host}\", and a host needs a port");
            self.error_hint(span, format!("no port in upstream \"{host}\""), hint);
            return None;
        }
        let addresses = match addresses(self.source, address) {
            Ok(addresses) => addresses,
            Err(problem) => {
                let hint = format!("there is neither an upstream nor a host \"{host}\"");
                self.error_hint(span, format!("{problem} in upstream \"{host}\""), hint);
                return None;
            }
        };
        let name = if address.no_port { host } else { format!("{host}:{}", address.port) };
        let servers = addresses
            .into_iter()
            .map(|address| {
                let name = match &address {
                    ServerAddress::Inet(address) => address.to_string(),
                    ServerAddress::Unix(path) => format!("unix:{}", path.display()),
                };
                UpstreamServer::new(name, address)
            })
            .collect();
        let upstream = Upstream {
            name,
            implicit: true,
            servers,
            resolved: Vec::new(),
            resolver: None,
            balance: balance::default(),
            sticky: None,
            groups: Vec::new(),
            reports: Vec::new(),
            zone: None,
            queue: None,
            overload: Overload::default(),
            list: None,
            checks: Vec::new(),
            keepalive: self.upstream_defaults(),
        };
        let draft = UpstreamDraft {
            upstream: Arc::new(upstream),
            host: address.host_text.clone(),
            port: Some(address.port),
            resolving: None,
        };
        self.upstreams.push(draft);
        Some(self.upstreams.len() - 1)
    }
}

/// The addresses of a server, each once.
fn addresses(source: &dyn crate::source::Source, address: &Address) -> Result<Vec<ServerAddress>, &'static str> {
    if let Host::Unix(path) = &address.host {
        return Ok(vec![ServerAddress::Unix(path.clone())]);
    }
    let found: Vec<SocketAddr> = address::resolve(source, &address.host, address.port)?;
    Ok(found.into_iter().map(ServerAddress::Inet).collect())
}
