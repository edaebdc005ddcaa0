//! `upstream`, and the groups that `proxy_pass` to an address implies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use balanza_balancing::registry::{self, Spec};

use crate::address::{self, Address, Host, Use};
use crate::check::Verdict;
use crate::diagnostics::Span;
use crate::directives::Context;
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Balance, ServerAddress, Upstream, UpstreamKeepalive, UpstreamServer};
use crate::template::Template;
use crate::tree::Statement;
use crate::values;

/// An upstream, and by what `proxy_pass` finds it.
#[derive(Debug)]
pub(crate) struct UpstreamDraft {
    pub upstream: Arc<Upstream>,
    /// The host as written in the URL, for implied groups; the name otherwise.
    host: Vec<u8>,
    /// For implied groups.
    port: Option<u16>,
}

/// What an `upstream` block has set so far.
#[derive(Default)]
struct Draft {
    servers: Vec<UpstreamServer>,
    balance: Option<Balance>,
    zone: Option<String>,
    keepalive: Option<(u64, bool)>,
    requests: Option<u64>,
    time: Option<Duration>,
    timeout: Option<Duration>,
}

const PARAMETERS: [&str; 6] = ["weight=", "max_conns=", "max_fails=", "fail_timeout=", "backup", "down"];
/// Parameters of `server` that NGINX has.
const NGINX_PARAMETERS: [&str; 6] = ["resolve", "service=", "slow_start=", "route=", "drain", "sid="];

/// A shared memory zone: several upstreams may name it, and one must give its size.
#[derive(Debug)]
pub(crate) struct Zone {
    size: Option<u64>,
    span: Span,
}

impl Builder<'_> {
    /// Zones that no upstream gives a size.
    pub fn check_zones(&mut self) {
        let missing = self.zones.iter().filter(|(_, zone)| zone.size.is_none());
        let missing: Vec<(String, Span)> = missing.map(|(name, zone)| (name.clone(), zone.span)).collect();
        for (name, span) in missing {
            self.error(span, format!("zero size shared memory zone \"{name}\""));
        }
    }

    /// An `upstream` block.
    pub fn upstream(&mut self, s: &Statement) {
        let name = s.words[1].text();
        let mut draft = Draft::default();
        for inner in s.block.iter().flatten() {
            if self.check(inner, Context::Upstream) == Verdict::Use {
                self.upstream_directive(&mut draft, inner);
            }
        }
        let servers = s.block.iter().flatten().any(|inner| inner.words[0].value == b"server");
        if !servers {
            self.error(s.span(), "no servers are inside upstream");
        } else if !draft.servers.is_empty() && draft.servers.iter().all(|server| server.backup) {
            self.error(s.span(), format!("no servers in upstream \"{name}\""));
        }
        // The algorithms add weights up in 32 bits.
        if draft.servers.iter().map(|server| u64::from(server.weight)).sum::<u64>() > u64::from(u32::MAX) {
            self.error(s.span(), format!("the sum of the weights in upstream \"{name}\" is too large"));
        }
        let known = self.upstreams.iter().any(|known| known.host.eq_ignore_ascii_case(&s.words[1].value));
        if known {
            return self.error(s.words[1].span, format!("duplicate upstream \"{name}\""));
        }
        let (connections, local) = draft.keepalive.unwrap_or((32, true));
        let Some(balance) = draft.balance.or_else(round_robin) else { return };
        let upstream = Upstream {
            name,
            implicit: false,
            servers: draft.servers,
            balance,
            zone: draft.zone,
            keepalive: UpstreamKeepalive {
                connections: usize::try_from(connections).unwrap_or(usize::MAX),
                local,
                requests: draft.requests.unwrap_or(1000),
                time: draft.time.unwrap_or(Duration::from_secs(3600)),
                timeout: draft.timeout.unwrap_or(Duration::from_secs(60)),
            },
        };
        let host = s.words[1].value.clone();
        self.upstreams.push(UpstreamDraft { upstream: Arc::new(upstream), host, port: None });
    }

    fn upstream_directive(&mut self, draft: &mut Draft, s: &Statement) {
        let first = s.words.get(1).map(|word| word.value.as_slice());
        let second = s.words.get(2).map(|word| word.value.as_slice());
        match s.words[0].value.as_slice() {
            b"server" => self.server(draft, s),
            b"zone" => self.zone(draft, s),
            b"keepalive" => self.keepalive(draft, s),
            b"keepalive_requests" => self.assign(&mut draft.requests, s, |b, s| b.number(s)),
            b"keepalive_time" => self.assign(&mut draft.time, s, |b, s| b.msec(s)),
            b"keepalive_timeout" => self.assign(&mut draft.timeout, s, |b, s| b.msec(s)),
            b"least_conn" => self.method(draft, s, "least_conn", &[], None),
            b"ip_hash" => self.method(draft, s, "ip_hash", &[], None),
            b"hash" => {
                let consistent = match second {
                    None => "off",
                    Some(b"consistent") => "on",
                    Some(_) => return self.invalid_parameter(&s.words[2], &["consistent"]),
                };
                let Some(key) = self.template(&s.words[1]) else { return };
                self.method(draft, s, "hash", &[("consistent", consistent)], Some(key));
            }
            b"random" => match (first, second) {
                (None, _) => self.method(draft, s, "random", &[], None),
                (Some(b"two"), None | Some(b"least_conn")) => {
                    self.method(draft, s, "two_choices", &[("by", "least_conn")], None);
                }
                (Some(b"two"), Some(b"least_time=header")) => {
                    self.method(draft, s, "two_choices", &[("by", "header")], None);
                }
                (Some(b"two"), Some(b"least_time=last_byte")) => {
                    self.method(draft, s, "two_choices", &[("by", "last_byte")], None);
                }
                (Some(b"two"), Some(_)) => {
                    let known = ["least_conn", "least_time=header", "least_time=last_byte"];
                    self.invalid_parameter(&s.words[2], &known);
                }
                (Some(_), _) => self.invalid_parameter(&s.words[1], &["two"]),
            },
            b"least_time" => {
                let Some(by) = self.choice(s, &[("header", "header"), ("last_byte", "last_byte")]) else { return };
                let inflight = match second {
                    None => "off",
                    Some(b"inflight") => "on",
                    Some(_) => return self.invalid_parameter(&s.words[2], &["inflight"]),
                };
                self.method(draft, s, "least_time", &[("by", by), ("inflight", inflight)], None);
            }
            _ => self.no_handler(s),
        }
    }

    fn method(
        &mut self,
        draft: &mut Draft,
        s: &Statement,
        name: &str,
        parameters: &[(&str, &str)],
        key: Option<Template>,
    ) {
        if draft.balance.is_some() {
            self.warning(s.words[0].span, "load balancing method redefined");
        }
        let spec = registry::find(name).map(|entry| Spec::new(entry, parameters));
        match spec {
            Some(Ok(spec)) => {
                draft.balance = Some(Balance { spec, key });
            }
            Some(Err(error)) => self.error(s.span(), error.to_string()),
            None => self.no_handler(s),
        }
    }

    fn zone(&mut self, draft: &mut Draft, s: &Statement) {
        if s.words[1].value.is_empty() {
            return self.error(s.words[1].span, "invalid zone name \"\"");
        }
        let name = s.words[1].text();
        let mut known = self.zones.remove(&name).unwrap_or(Zone { size: None, span: s.span() });
        if let Some(word) = s.words.get(2) {
            match values::size(&word.value, false) {
                None => return self.error(word.span, format!("invalid zone size \"{}\"", word.text())),
                // Eight pages are the least that NGINX's allocator works with.
                Some(size) if size < 8 * 4096 => {
                    return self.error(word.span, format!("zone \"{name}\" is too small"));
                }
                Some(size) => match known.size {
                    Some(declared) if declared != size => {
                        let message = format!(
                            "the size {size} of shared memory zone \"{name}\" conflicts with already declared size \
                             {declared}"
                        );
                        self.error(word.span, message);
                    }
                    _ => known.size = Some(size),
                },
            }
        }
        self.zones.insert(name.clone(), known);
        // Given twice, the last one holds.
        draft.zone = Some(name);
    }

    fn keepalive(&mut self, draft: &mut Draft, s: &Statement) {
        self.assign(&mut draft.keepalive, s, |b, s| {
            let Some(connections) = values::number(&s.words[1].value) else {
                let message = format!("invalid value \"{}\" in \"keepalive\" directive", s.words[1].text());
                b.error(s.words[1].span, message);
                return None;
            };
            match s.words.get(2) {
                None => Some((connections, false)),
                Some(word) if word.value == b"local" => Some((connections, true)),
                Some(word) => {
                    b.invalid_parameter(word, &["local"]);
                    None
                }
            }
        });
    }

    fn server(&mut self, draft: &mut Draft, s: &Statement) {
        let mut server = UpstreamServer {
            name: s.words[1].text(),
            address: ServerAddress::Unix("".into()),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            backup: false,
            down: false,
        };
        let mut good = true;
        for word in s.words.iter().skip(2) {
            good &= self.server_parameter(draft, s, &mut server, word);
        }
        let word = &s.words[1];
        let resolved = address::parse(&word.value, 80, Use::Server)
            .and_then(|address| addresses(self.source, &address).map(|addresses| (address, addresses)));
        match resolved {
            Ok((_, addresses)) if good => {
                let servers = addresses.into_iter().map(|address| UpstreamServer { address, ..server.clone() });
                draft.servers.extend(servers);
            }
            Ok(_) => {}
            Err(problem) => self.error(word.span, format!("{problem} in upstream \"{}\"", word.text())),
        }
    }

    fn server_parameter(&mut self, draft: &Draft, s: &Statement, server: &mut UpstreamServer, word: &Word) -> bool {
        let text = word.value.as_slice();
        let (name, value) = match text.iter().position(|b| *b == b'=') {
            Some(at) => (&text[..=at], &text[at + 1..]),
            None => (text, &b""[..]),
        };
        let number = || values::number(value).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let done = match name {
            b"weight=" => number().filter(|weight| *weight > 0).map(|number| server.weight = number),
            b"max_conns=" => number().map(|number| server.max_conns = number),
            b"max_fails=" => number().map(|number| server.max_fails = number),
            b"fail_timeout=" => values::seconds(value).map(|time| server.fail_timeout = time),
            b"down" => {
                server.down = true;
                Some(())
            }
            b"backup" => {
                server.backup = true;
                if draft.balance.as_ref().is_some_and(|balance| !balance.spec.entry().backup) {
                    self.error(word.span, "balancing method does not support parameter \"backup\"");
                    return false;
                }
                Some(())
            }
            _ if NGINX_PARAMETERS.iter().any(|known| known.as_bytes() == name) => {
                self.unsupported_parameter(s, word);
                return false;
            }
            _ => None,
        };
        if done.is_none() {
            self.invalid_parameter(word, &PARAMETERS);
        }
        done.is_some()
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
        let addresses = match addresses(self.source, address) {
            Ok(addresses) => addresses,
            Err(problem) => {
                let hint = format!("neither an upstream nor a host of the name \"{host}\" is known");
                self.error_hint(span, format!("{problem} in upstream \"{host}\""), hint);
                return None;
            }
        };
        let name = if address.no_port { host } else { format!("{host}:{}", address.port) };
        let servers = addresses
            .into_iter()
            .map(|address| UpstreamServer {
                name: match &address {
                    ServerAddress::Inet(address) => address.to_string(),
                    ServerAddress::Unix(path) => format!("unix:{}", path.display()),
                },
                address,
                weight: 1,
                max_conns: 0,
                max_fails: 1,
                fail_timeout: Duration::from_secs(10),
                backup: false,
                down: false,
            })
            .collect();
        let upstream = Upstream {
            name,
            implicit: true,
            servers,
            balance: round_robin()?,
            zone: None,
            keepalive: UpstreamKeepalive {
                connections: 32,
                local: true,
                requests: 1000,
                time: Duration::from_secs(3600),
                timeout: Duration::from_secs(60),
            },
        };
        let draft =
            UpstreamDraft { upstream: Arc::new(upstream), host: address.host_text.clone(), port: Some(address.port) };
        self.upstreams.push(draft);
        Some(self.upstreams.len() - 1)
    }
}

fn round_robin() -> Option<Balance> {
    let spec = Spec::new(registry::find("round_robin")?, &[]).ok()?;
    Some(Balance { spec, key: None })
}

/// The addresses of a server, each once.
fn addresses(source: &dyn crate::source::Source, address: &Address) -> Result<Vec<ServerAddress>, &'static str> {
    if let Host::Unix(path) = &address.host {
        return Ok(vec![ServerAddress::Unix(path.clone())]);
    }
    let found: Vec<SocketAddr> = address::resolve(source, &address.host, address.port)?;
    Ok(found.into_iter().map(ServerAddress::Inet).collect())
}
