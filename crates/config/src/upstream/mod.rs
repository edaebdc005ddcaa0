//! `upstream`, and the groups that `proxy_pass` to an address implies.

mod balance;
pub(crate) mod checks;
mod discover;
mod experiment;
mod list;
mod overload;
mod reports;
mod rules;
mod server;
mod shadow;
mod sticky;
mod zone;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{self, Address, Host};
use crate::block::Given;
use crate::diagnostics::Span;
use crate::drafts::{Resolving, UpstreamDraft};
use crate::lexer::Word;
use crate::load::{Builder, Protocol};
use crate::model::discover::Discover;
use crate::model::{
    Balance, ExperimentArm, Group, LoadReport, Overload, QueueLimits, ResolvedServer, Resolver, ServerAddress,
    ServerList, Sticky, Upstream, UpstreamKeepalive, UpstreamServer,
};
use crate::tree::Statement;
use crate::values;

pub(crate) use balance::{METHODS, default as default_balance, default_method};
pub(crate) use experiment::ExperimentDraft;
pub use list::write_servers;

/// An `upstream` while it is read. The statements are kept for the places of messages.
pub(crate) struct UpstreamBlock<'s> {
    pub name: String,
    pub servers: Vec<(UpstreamServer, &'s Statement)>,
    pub balance: Option<(Balance, &'s Statement)>,
    pub shadows: Vec<(Balance, &'s Statement)>,
    pub experiment: Option<ExperimentDraft<'s>>,
    pub arms: Vec<(ExperimentArm, &'s Statement)>,
    pub sticky: Option<(Sticky, &'s Statement)>,
    pub groups: Vec<(Group, &'s Statement)>,
    pub reports: Vec<(LoadReport, &'s Statement)>,
    pub zone: Option<String>,
    pub queue: Option<QueueLimits>,
    pub overload: Overload,
    /// `state` or `server_list`, and what the file says.
    pub list: Option<(ServerList, Vec<u8>, &'s Statement)>,
    /// Servers with `resolve`.
    pub resolved: Vec<(ResolvedServer, &'s Statement)>,
    pub discovers: Vec<(Discover, &'s Statement)>,
    pub resolver: Option<Arc<Resolver>>,
    pub resolver_timeout: Option<Duration>,
    pub keepalive: UpstreamKeepalive,
    pub ntlm: bool,
    pub given: Given,
}

impl UpstreamBlock<'_> {
    pub fn new(name: String) -> Self {
        UpstreamBlock {
            name,
            servers: Vec::new(),
            balance: None,
            shadows: Vec::new(),
            experiment: None,
            arms: Vec::new(),
            sticky: None,
            groups: Vec::new(),
            reports: Vec::new(),
            zone: None,
            queue: None,
            overload: Overload::default(),
            list: None,
            resolved: Vec::new(),
            discovers: Vec::new(),
            resolver: None,
            resolver_timeout: None,
            keepalive: UpstreamKeepalive::default(),
            ntlm: false,
            given: Given::default(),
        }
    }
}

/// A directive as it could be written again.
pub(crate) fn written(statement: &Statement) -> String {
    let word =
        |text: String| match text.chars().any(|c| c.is_whitespace() || ";{}'\"\\#".contains(c)) || text.is_empty() {
            true => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            false => text,
        };
    statement.words.iter().map(|part| word(part.text())).collect::<Vec<_>>().join(" ")
}

/// The place of a parameter that begins like this; without it the whole directive.
pub(crate) fn place(statement: &Statement, parameter: &str) -> Span {
    let word = statement.args().iter().find(|word| word.value.starts_with(parameter.as_bytes()));
    word.map_or_else(|| statement.span(), |word| word.span)
}

impl Builder<'_> {
    /// Gives upstreams with `resolve` the resolver of the block around them, unless they have their own. All directives of
    /// that block have been read.
    pub fn set_resolvers(&mut self, outer: &Resolver) {
        let mut missing = Vec::new();
        for draft in self.upstreams.iter_mut() {
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
        for &i in self.upstreams.of_host(&address.host_text) {
            match self.upstreams[i].port {
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
        let servers = addresses.into_iter().map(|address| UpstreamServer::new(address.to_string(), address)).collect();
        let upstream = Upstream {
            name,
            implicit: true,
            servers,
            resolved: Vec::new(),
            resolver: None,
            discovers: Vec::new(),
            balance: balance::default(),
            method: balance::default_method(),
            shadows: Vec::new(),
            experiment: None,
            sticky: None,
            groups: Vec::new(),
            reports: Vec::new(),
            zone: None,
            queue: None,
            overload: Overload::default(),
            list: None,
            checks: Vec::new(),
            keepalive: self.upstream_defaults,
            ntlm: false,
        };
        let draft = UpstreamDraft {
            upstream: Arc::new(upstream),
            host: address.host_text.clone(),
            port: Some(address.port),
            resolving: None,
        };
        Some(self.upstreams.push(draft))
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
