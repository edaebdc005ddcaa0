//! Where a request goes: the group of servers that `proxy_pass` names, or an address that a variable gave.

use std::net::SocketAddr;
use std::rc::Rc;

use balanza_balancing::{Member, Reason, Tried, registry};
use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, ProxyPass, ProxySettings, ProxyTarget, ServerAddress};
use balanza_net::clock::{self, Nanos};

use super::group::{Members, Upstream};
use super::lease::Lease;
use crate::exchange::{Attempt, Exchange};
use crate::step::Step;
use crate::values;
use crate::variables::{self, Undecided};

/// Where a request goes.
pub(super) enum Target {
    /// A group of servers, and those that it has while the request is served.
    Group(Rc<Upstream>, Rc<Members>),
    /// An address that a variable gave.
    Address(ServerAddress, Rc<str>),
}

impl Target {
    fn group(upstream: &Rc<Upstream>) -> Target {
        Target::Group(Rc::clone(upstream), upstream.members())
    }
}

/// The target of this request.
///
/// # Errors The response instead, if a URL with variables has no valid target.
pub(super) fn find_target(x: &mut Exchange, pass: &ProxyPass) -> Result<Target, Step> {
    let site = Rc::clone(x.site());
    match &pass.target {
        ProxyTarget::Fixed { upstream, host, port, .. } => {
            x.upstream.host.clear();
            x.upstream.host.extend_from_slice(host);
            x.upstream.port = *port;
            Ok(Target::group(&site.upstreams[*upstream]))
        }
        ProxyTarget::Dynamic(template) => {
            let mut url = Vec::new();
            variables::render(template, x, &mut url)?;
            if !url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"http://")) {
                let url = Escaped(&url);
                x.report(Level::Error, format_args!("invalid URL prefix in \"{url}\""));
                return Err(Step::Error(500));
            }
            if url.len() == 7 {
                x.report(Level::Error, format_args!("no host in upstream \"http://\""));
                return Err(Step::Error(500));
            }
            parse_url(x, &url[7..]).ok_or_else(|| {
                let host = Escaped(&x.upstream.host);
                x.report(Level::Error, format_args!("no resolver defined to resolve {host}"));
                Step::Error(502)
            })
        }
    }
}

/// `host[:port][/uri]` or `unix:/path[:/uri]`, where the host is an upstream's name or an IP address.
fn parse_url(x: &mut Exchange, rest: &[u8]) -> Option<Target> {
    x.upstream.url_path.clear();
    x.upstream.port = 80;
    if let Some(path) = rest.strip_prefix(b"unix:") {
        let (path, uri) = match path.iter().position(|byte| *byte == b':') {
            Some(colon) => (&path[..colon], &path[colon + 1..]),
            None => (path, &b""[..]),
        };
        x.upstream.url_path.extend_from_slice(uri);
        x.upstream.host = b"localhost".to_vec();
        let path = crate::static_files::as_path(path).to_path_buf();
        let text = format!("unix:{}", path.display()).into();
        return Some(Target::Address(ServerAddress::Unix(path), text));
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, uri) = rest.split_at(end);
    if uri.starts_with(b"?") {
        x.upstream.url_path.push(b'/');
    }
    x.upstream.url_path.extend_from_slice(uri);
    x.upstream.host = authority.to_vec();
    let text = std::str::from_utf8(authority).ok()?;
    let site = Rc::clone(x.site());
    if let Some(group) = site.upstreams.iter().find(|upstream| upstream.conf.name.eq_ignore_ascii_case(text)) {
        return Some(Target::group(group));
    }
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => SocketAddr::new(text.trim_matches(['[', ']']).parse().ok()?, 80),
    };
    x.upstream.port = address.port();
    Some(Target::Address(ServerAddress::Inet(address), address.to_string().into()))
}

/// A server to try.
pub(super) struct Choice {
    /// Its slot; none for an address that a variable gave.
    pub lease: Option<Lease>,
    /// Where to connect.
    pub address: ServerAddress,
    /// The same for `$upstream_addr`.
    pub text: Rc<str>,
    /// For `$upstream_pick_reason`.
    pub reason: Option<Box<str>>,
}

/// Takes a server of the target; none when no one is eligible.
///
/// # Errors
/// A regular expression is undecided.
pub(super) async fn choose(x: &mut Exchange, target: &mut Target, now: Nanos) -> Result<Option<Choice>, Undecided> {
    Ok(match target {
        Target::Group(upstream, members) => {
            let mut chosen = choose_member(x, upstream, members, now).await;
            if chosen.is_none() && !upstream.has(members) {
                // The servers that the request began with have left or failed, but there are others now.
                *members = upstream.members();
                x.upstream.tried.clear();
                chosen = choose_member(x, upstream, members, now).await;
            }
            let Some((member, reason)) = chosen else { return Ok(None) };
            // The time of an external program does not count for the server.
            let lease = Lease::new(upstream, members, member, clock::recent());
            if let Some(affinity) = &members.shared.affinity {
                affinity.tell(x, member)?;
            }
            if let Some(prober) = &upstream.prober {
                prober.send(members, now);
            }
            let index = member.0 as usize;
            Some(Choice {
                lease: Some(lease),
                address: members.shared.servers[index].address.clone(),
                text: Rc::clone(&members.addresses[index]),
                reason,
            })
        }
        Target::Address(address, text) => {
            Some(Choice { lease: None, address: address.clone(), text: Rc::clone(text), reason: None })
        }
    })
}

/// The server, and the reason if it is logged.
async fn choose_member(
    x: &mut Exchange,
    upstream: &Upstream,
    members: &Members,
    now: Nanos,
) -> Option<(Member, Option<Box<str>>)> {
    if let Some(affinity) = &members.shared.affinity
        && let Some(member) =
            affinity.claim(&mut members.driver.borrow_mut(), &x.upstream.session, now, &mut x.upstream.tried)
    {
        return Some((member, upstream.explains.then(|| "sticky".into())));
    }
    choose_freely(upstream, members, &x.upstream.key, &mut x.upstream.tried, now).await
}

/// The server that the algorithm or the program chooses when no client affinity decides, and the reason.
pub async fn choose_freely(
    upstream: &Upstream,
    members: &Members,
    key: &[u8],
    tried: &mut Tried,
    now: Nanos,
) -> Option<(Member, Option<Box<str>>)> {
    if let Some(external) = &upstream.external
        && let Some(member) = Box::pin(external.choose(&members.driver, now, key, tried)).await
        && members.driver.borrow_mut().claim(now, member, tried, false).is_ok()
    {
        return Some((member, upstream.explains.then(|| "external program".into())));
    }
    let mut driver = members.driver.borrow_mut();
    if !upstream.explains {
        return Some((driver.pick(now, key, tried).ok()?, None));
    }
    let mut reason = Reason::default();
    let member = driver.pick_explained(now, key, tried, &mut reason).ok()?;
    Some((member, Some(reason.words(driver.fleet()).to_string().into())))
}

/// Works out the key of algorithms that hash one.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn write_key(x: &mut Exchange, upstream: &Upstream) -> Result<(), Undecided> {
    let mut key = std::mem::take(&mut x.upstream.key);
    key.clear();
    let balance = &upstream.conf.balance;
    match balance.spec.entry().key {
        registry::Key::None => {}
        registry::Key::Any => {
            if let Some(template) = &balance.key {
                variables::render(template, x, &mut key)?;
            }
        }
        registry::Key::ClientAddress => values::binary_address(x.client().peer, &mut key),
    }
    x.upstream.key = key;
    Ok(())
}

/// Works out the local address of `proxy_bind`.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn write_bind(x: &mut Exchange, proxy: &ProxySettings) -> Result<(), Undecided> {
    x.upstream.bind = None;
    let Some(bind) = &proxy.bind else { return Ok(()) };
    let mut local = Vec::new();
    variables::render(&bind.address, x, &mut local)?;
    x.upstream.bind = parse_local(&local);
    if x.upstream.bind.is_none() && !local.is_empty() {
        let local = Escaped(&local);
        x.report(Level::Error, format_args!("invalid local address \"{local}\""));
    }
    Ok(())
}

/// The local address that `proxy_bind` came to.
pub fn parse_local(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.trim_matches(['[', ']']).parse().ok()?, 0)))
}

/// Logs once that no server is eligible, until one of them answers again.
pub(super) fn no_server(x: &mut Exchange, target: &Target, after_redirect: bool) {
    if let Target::Group(upstream, _) = target {
        x.upstream.attempts.push(Attempt {
            address: Some(upstream.conf.name.as_str().into()),
            after_redirect,
            status: 502,
            started: clock::recent(),
            response_time: Some(0),
            ..Attempt::default()
        });
        if !upstream.unavailable_logged.replace(true) {
            x.report(Level::Error, format_args!("no live upstreams while connecting to upstream"));
        }
    }
}
