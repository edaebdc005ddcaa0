//! Where a request goes: the group of servers that `proxy_pass` names, or an address that a variable gave.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::registry;
use balanza_config::log_text::Escaped;
use balanza_config::model::{
    Balance, Level, ProxyPass, ProxySettings, ProxyTarget, ServerAddress, Shadow, UpstreamTls,
};

use crate::certificates;
use crate::exchange::Exchange;
use crate::paths::as_path;
use crate::servers::address::{parse_local, strip_port};
use crate::servers::group::Upstream;
use crate::servers::search::Target;
use crate::step::Step;
use crate::undecided::Undecided;
use crate::values;
use crate::variables;

/// The target of this request. None if a variable gave a host name: [`look_up`] finds its addresses.
///
/// # Errors The response instead, if a URL with variables has no valid target.
pub(super) fn find_target(x: &mut Exchange, pass: &ProxyPass) -> Result<Option<Target>, Step> {
    let running = Rc::clone(x.running());
    match &pass.target {
        ProxyTarget::Fixed { upstream, host, port, tls, .. } => {
            x.upstream.target.tls = *tls;
            x.upstream.target.host.clear();
            x.upstream.target.host.extend_from_slice(host);
            x.upstream.target.port = *port;
            Ok(Some(Target::Group(Rc::clone(&running.upstreams[*upstream]))))
        }
        ProxyTarget::Dynamic(template) => {
            let mut url = Vec::new();
            variables::render(template, x, &mut url)?;
            let begins = |scheme: &[u8]| url.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
            if pass.grpc {
                let scheme = if begins(b"grpcs://") { 8 } else { 7 * usize::from(begins(b"grpc://")) };
                x.upstream.target.tls = scheme == 8;
                return parse_grpc(x, &url[scheme..]);
            }
            x.upstream.target.tls = begins(b"https://");
            if !x.upstream.target.tls && !begins(b"http://") {
                let url = Escaped(&url);
                x.report(Level::Error, format_args!("invalid URL prefix in \"{url}\""));
                return Err(Step::Error(500));
            }
            let scheme = if x.upstream.target.tls { 8 } else { 7 };
            if url.len() == scheme {
                x.report(Level::Error, format_args!("no host in upstream \"{}\"", Escaped(&url)));
                return Err(Step::Error(500));
            }
            Ok(parse_url(x, &url[scheme..], false))
        }
    }
}

/// The addresses of the host name that a variable gave.
///
/// # Errors The response instead, if there are none.
pub(super) async fn look_up(x: &mut Exchange) -> Result<Target, Step> {
    let authority = String::from_utf8_lossy(&x.upstream.target.host).into_owned();
    let (host, port) = match authority.rsplit_once(':') {
        None => (authority.as_str(), Some(x.upstream.target.port)),
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)),
    };
    let problem = match port {
        None => "invalid port",
        Some(_) if host.is_empty() => "no host",
        Some(_) => "",
    };
    let Some(port) = port.filter(|_| problem.is_empty()) else {
        x.report(Level::Error, format_args!("{problem} in upstream \"{}\"", Escaped(authority.as_bytes())));
        return Err(Step::Error(500));
    };
    x.upstream.target.port = port;
    let resolver = Arc::clone(&x.location().settings.resolver);
    let names = Arc::clone(&x.running().names);
    let found = match resolver.servers.is_empty() {
        true => Err(format!("no resolver defined to resolve {}", Escaped(host.as_bytes()))),
        false => names.find(&resolver, host, port).await.map_err(|failure| {
            let host = Escaped(host.as_bytes());
            format!("{host} could not be resolved ({}: {failure})", failure.code())
        }),
    };
    match found {
        Ok(addresses) => Ok(Target::addresses(addresses)),
        Err(problem) => {
            x.report(Level::Error, format_args!("{problem}"));
            Err(Step::Error(502))
        }
    }
}

/// What a `grpc_pass` with variables names: `host[:port]` or `unix:/path`, without a URI.
fn parse_grpc(x: &mut Exchange, address: &[u8]) -> Result<Option<Target>, Step> {
    let problem = match address {
        b"" => "no host",
        [b'u', b'n', b'i', b'x', b':', ..] => "",
        _ if address.iter().any(|byte| matches!(byte, b'/' | b'?')) => "invalid host",
        _ => "",
    };
    if !problem.is_empty() {
        x.report(Level::Error, format_args!("{problem} in upstream \"{}\"", Escaped(address)));
        return Err(Step::Error(500));
    }
    let target = parse_url(x, address, true);
    x.upstream.target.url_path.clear();
    // There is no default port.
    if x.upstream.target.port == 0
        && !address.starts_with(b"unix:")
        && !matches!(target, Some(Target::Group(_)))
        && !address.contains(&b':')
    {
        x.report(Level::Error, format_args!("no port in upstream \"{}\"", Escaped(address)));
        return Err(Step::Error(500));
    }
    Ok(target)
}

/// `host[:port][/uri]` or `unix:/path[:/uri]`, where the host is an upstream's name or an IP address.
fn parse_url(x: &mut Exchange, rest: &[u8], grpc: bool) -> Option<Target> {
    x.upstream.target.url_path.clear();
    let port = match (grpc, x.upstream.target.tls) {
        (true, _) => 0,
        (false, tls) => {
            if tls {
                443
            } else {
                80
            }
        }
    };
    x.upstream.target.port = port;
    if let Some(path) = rest.strip_prefix(b"unix:") {
        let (path, uri) = match path.iter().position(|byte| *byte == b':') {
            Some(colon) => (&path[..colon], &path[colon + 1..]),
            None => (path, &b""[..]),
        };
        x.upstream.target.url_path.extend_from_slice(uri);
        x.upstream.target.host = b"localhost".to_vec();
        let path = as_path(path).to_path_buf();
        let text = format!("unix:{}", path.display()).into();
        return Some(Target::address(ServerAddress::Unix(path), text));
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, uri) = rest.split_at(end);
    if uri.starts_with(b"?") {
        x.upstream.target.url_path.push(b'/');
    }
    x.upstream.target.url_path.extend_from_slice(uri);
    x.upstream.target.host = authority.to_vec();
    let text = std::str::from_utf8(authority).ok()?;
    let running = Rc::clone(x.running());
    if let Some(group) = running.upstreams.iter().find(|upstream| upstream.conf.name.eq_ignore_ascii_case(text)) {
        return Some(Target::Group(Rc::clone(group)));
    }
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => SocketAddr::new(text.trim_matches(['[', ']']).parse().ok()?, port),
    };
    x.upstream.target.port = address.port();
    Some(Target::address(ServerAddress::Inet(address), address.to_string().into()))
}

/// Works out the key of algorithms that hash one.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn write_key(x: &mut Exchange, upstream: &Upstream) -> Result<(), Undecided> {
    let key = std::mem::take(&mut x.upstream.key);
    let members = upstream.members();
    x.upstream.key = written_key(x, &members.shared.balancing.balance, key)?;
    if !upstream.conf.shadows.is_empty() {
        write_shadow_keys(x, &upstream.conf.shadows)?;
    }
    Ok(())
}

/// The same for its shadows.
fn write_shadow_keys(x: &mut Exchange, shadows: &[Shadow]) -> Result<(), Undecided> {
    let mut keys = std::mem::take(&mut x.upstream.shadow_keys);
    keys.resize_with(shadows.len(), Vec::new);
    for (key, shadow) in keys.iter_mut().zip(shadows) {
        *key = written_key(x, &shadow.balance, std::mem::take(key))?;
    }
    x.upstream.shadow_keys = keys;
    Ok(())
}

/// The key of an algorithm, in the room of another one.
fn written_key(x: &mut Exchange, balance: &Balance, mut key: Vec<u8>) -> Result<Vec<u8>, Undecided> {
    key.clear();
    match balance.spec.entry().key {
        registry::Key::None => {}
        registry::Key::Any => {
            if let Some(template) = &balance.key {
                variables::render(template, x, &mut key)?;
            }
        }
        registry::Key::ClientAddress => values::binary_address(x.peer(), &mut key),
    }
    Ok(key)
}

/// Works out the name that the servers' certificates are for.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn write_tls_name(x: &mut Exchange, proxy: &ProxySettings) -> Result<(), Undecided> {
    if !x.upstream.target.tls {
        return Ok(());
    }
    let mut name = std::mem::take(&mut x.upstream.target.tls_name);
    name.clear();
    match &proxy.ssl_name {
        Some(template) => variables::render(template, x, &mut name)?,
        None => name.extend_from_slice(&x.upstream.target.host),
    }
    strip_port(&mut name);
    x.upstream.target.tls_name = name;
    Ok(())
}

/// Works out anew what may depend on the server that was chosen; false if it may not be asked.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn settle_for_server(x: &mut Exchange, proxy: &ProxySettings) -> Result<bool, Undecided> {
    let mut value = Vec::new();
    for condition in &proxy.per_server.allow {
        value.clear();
        variables::render(condition, x, &mut value)?;
        if matches!(&value[..], b"" | b"0") {
            return Ok(false);
        }
    }
    if proxy.per_server.bind {
        write_bind(x, proxy)?;
    }
    write_tls_name(x, proxy)?;
    Ok(true)
}

/// Works out which certificate servers are shown, where a request names it.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn write_certificate(x: &mut Exchange, tls: Option<&Arc<UpstreamTls>>) -> Result<(), Undecided> {
    let named = tls.filter(|_| x.upstream.target.tls).and_then(|tls| tls.named.as_ref());
    let Some(named) = named else { return Ok(()) };
    let certificate = certificates::shown(named, |template, out| variables::render(template, x, out))?;
    x.upstream.target.certificate = certificate;
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
