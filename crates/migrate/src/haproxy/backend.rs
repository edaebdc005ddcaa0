//! The upstream of a backend, and what a location needs to send requests to it.

use super::acl::escaped;
use super::lines::Line;
use super::nginx::{Node, Tree, quoted};
use super::notes::Notes;
use super::proxy::{Check, Kind, Mode, Proxy};
use super::server::{self, Settings};
use super::{format, time};

/// What `balance` becomes: the directive, and whether the algorithm can have backup servers.
struct Balance {
    directive: Option<String>,
    backups: bool,
    /// One server after the other is filled.
    fills: bool,
}

/// HAProxy's algorithms without a key.
const PLAIN: [(&str, Option<&str>); 4] =
    [("roundrobin", None), ("static-rr", None), ("leastconn", Some("least_conn")), ("first", Some("balance first"))];

fn balance(proxy: &Proxy, notes: &mut Notes) -> Balance {
    let rotation = Balance { directive: None, backups: true, fills: false };
    if let Some(line) = &proxy.stick {
        notes.add(line, "clients keep their server by a table of last_server, whose size and time are its own");
        return Balance {
            directive: Some("balance last_server key=$remote_addr".into()),
            backups: false,
            fills: false,
        };
    }
    let Some(line) = &proxy.balance else { return rotation };
    let (kind, argument) = match line.word(1).split_once('(') {
        Some((kind, argument)) => (kind, argument.trim_end_matches(')')),
        None => (line.word(1), line.word(2)),
    };
    if let Some((_, directive)) = PLAIN.iter().find(|(known, _)| *known == kind) {
        return Balance { directive: directive.map(str::to_string), backups: true, fills: kind == "first" };
    }
    if kind == "random" {
        let directive = match argument.parse::<u32>() {
            Ok(1) => "random".to_string(),
            Ok(count @ 3..) => format!("balance two_choices choices={}", count.min(16)),
            _ => "random two least_conn".to_string(),
        };
        return Balance { directive: Some(directive), backups: false, fills: false };
    }
    let Some(key) = key(kind, argument, line, proxy.mode, notes) else {
        notes.add(line, "has no counterpart: round robin");
        return rotation;
    };
    let consistent = proxy.hash_type.as_ref().is_some_and(|line| line.word(1) == "consistent");
    let directive = match (&proxy.hash_factor, consistent) {
        (Some(factor), true) => format!("balance bounded_hash balance_factor={factor} key={key}"),
        (_, true) => format!("hash {key} consistent"),
        (_, false) => format!("hash {key}"),
    };
    Balance { directive: Some(directive), backups: false, fills: false }
}

/// The key of an algorithm that has one.
fn key(kind: &str, argument: &str, line: &Line, mode: Mode, notes: &mut Notes) -> Option<String> {
    match kind {
        // Of a sample: `balance hash req.hdr(X)`.
        "hash" => format::variable(line.word(2)),
        "source" => Some("$remote_addr".into()),
        "rdp-cookie" if matches!(argument, "" | "mstshash") => Some("$rdp_cookie".into()),
        "rdp-cookie" => Some(format!("$rdp_cookie_{}", format::field(argument)?)),
        _ if mode != Mode::Http => None,
        "uri" if argument == "whole" => Some("$request_uri".into()),
        "uri" => {
            if !matches!(argument, "" | "path-only") {
                notes.add(line, "the whole path is the key");
            }
            Some("$request_path".into())
        }
        "url_param" | "hdr" => format::variable(&format!("{kind}({argument})")),
        _ => None,
    }
}

/// Writes the upstream of a section that has servers.
pub fn upstream(proxy: &Proxy, tree: &mut Tree, notes: &mut Notes) {
    if proxy.servers.is_empty() {
        return;
    }
    let balance = balance(proxy, notes);
    let mut servers = server::read(proxy, balance.backups, notes);
    if balance.fills && !servers.limited {
        // Without a limit HAProxy never uses the second one either, which Balanza refuses to do without a word.
        servers.lines.iter_mut().for_each(|line| line.push_str(" max_conns=65535"));
    }
    if servers.lines.is_empty() {
        return;
    }
    let own = proxy.own.clone();
    let prefix = if proxy.mode == Mode::Http { "" } else { "stream_" };
    let mut nodes = vec![Node::line(format!("zone {prefix}{own} 256k"))];
    nodes.extend(balance.directive.map(Node::Line));
    nodes.extend(servers.lines.iter().map(Node::line));
    if let Some(cookie) = proxy.cookie.as_ref().filter(|_| proxy.mode == Mode::Http) {
        nodes.extend(sticky(cookie, notes).map(Node::Line));
    }
    if servers.limited && proxy.mode == Mode::Http {
        let wait = proxy.timeouts.get("queue").or(proxy.timeouts.get("connect")).copied().unwrap_or(60_000);
        nodes.push(Node::line(format!("queue 10000 timeout={}", time::written(wait))));
    }
    if let Some(port) = &servers.settings.agent {
        nodes.push(Node::line(format!("load_report agent port={port}")));
    }
    let block = Node::Block(format!("upstream {own}"), nodes);
    match proxy.mode {
        Mode::Http => tree.http_upstreams.push(block),
        Mode::Tcp => tree.stream_upstreams.push(block),
    }
}

/// `cookie NAME insert …` as `sticky cookie`.
fn sticky(line: &Line, notes: &mut Notes) -> Option<String> {
    let words: Vec<&str> = line.from(2).iter().map(String::as_str).collect();
    if !words.contains(&"insert") {
        notes.add(line, "only \"insert\" has a counterpart; for a cookie of the application see \"sticky learn\"");
        return None;
    }
    let mut parameters = vec![format!("sticky cookie {}", line.word(1)), "path=/".to_string()];
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        match word {
            "insert" | "indirect" | "nocache" => {}
            "httponly" | "secure" => parameters.push(word.into()),
            "domain" => parameters.push(format!("domain={}", rest.next().unwrap_or_default())),
            "maxlife" | "maxidle" => {
                let time = rest.next().and_then(time::milliseconds).unwrap_or(0);
                parameters.retain(|it| !it.starts_with("expires="));
                parameters.push(format!("expires={}", time::written(time)));
            }
            "attr" => {
                notes.add(line, format!("\"attr {}\": see samesite= of sticky cookie", rest.next().unwrap_or_default()))
            }
            other => notes.add(line, format!("\"{other}\" has no counterpart")),
        }
    }
    Some(parameters.join(" "))
}

/// What a location has that sends requests to a backend, but for their fields. `front` is the section that took them.
pub fn location(front: &Proxy, back: &Proxy, tree: &mut Tree) -> Vec<Node> {
    let servers = server::settings(back);
    let own = back.own.clone();
    let scheme = if servers.ssl { "https" } else { "http" };
    let mut nodes = vec![Node::line(format!("proxy_pass {scheme}://{own}"))];
    let mut set = |text: String| nodes.push(Node::Line(text));
    if servers.http2 {
        set("proxy_http_version 2".into());
    }
    timeouts(front, back, &mut nodes);
    if let Some(retries) = back.retries {
        nodes.push(Node::line(format!("proxy_next_upstream_tries {}", retries + 1)));
    }
    if servers.ssl {
        nodes.extend(tls(&servers, "proxy_ssl").into_iter().map(Node::Line));
    }
    if servers.check && !tree.checked.contains(&own) {
        tree.checked.push(own.clone());
        nodes.push(Node::Line(check(&servers, &back.check, &own, tree)));
    }
    nodes
}

fn timeouts(front: &Proxy, back: &Proxy, nodes: &mut Vec<Node>) {
    let of = |proxy: &Proxy, name: &str| proxy.timeouts.get(name).copied();
    let mut set = |name: &str, time: Option<u64>| {
        if let Some(time) = time.filter(|time| *time > 0) {
            nodes.push(Node::line(format!("{name} {}", time::written(time))));
        }
    };
    set("proxy_connect_timeout", of(back, "connect").or(of(front, "connect")));
    let server = of(back, "server").or(of(front, "server"));
    // A connection that was upgraded has the same limit as a response.
    let tunnel = of(back, "tunnel").or(of(front, "tunnel"));
    set("proxy_read_timeout", server.max(tunnel));
    set("proxy_send_timeout", server);
}

/// How connections to servers are encrypted.
pub fn tls(servers: &Settings, prefix: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if servers.sni.is_some() {
        lines.push(format!("{prefix}_server_name on"));
    }
    // With sni HAProxy verifies that name, without it that of verifyhost.
    if let Some(name) = servers.sni.as_ref().or(servers.verifyhost.as_ref()).filter(|name| !name.is_empty()) {
        lines.push(format!("{prefix}_name {}", quoted(name)));
    }
    if servers.verify {
        lines.push(format!("{prefix}_verify on"));
        lines.extend(servers.ca_file.iter().map(|file| format!("{prefix}_trusted_certificate {}", quoted(file))));
    }
    lines
}

/// `health_check`, and the `match` that it needs.
fn check(servers: &Settings, check: &Check, own: &str, tree: &mut Tree) -> String {
    let mut text = format!(
        "health_check interval={} fails={} passes={}",
        time::written(servers.interval),
        servers.fall,
        servers.rise
    );
    if let Some(port) = &servers.port {
        text.push_str(&format!(" port={port}"));
    }
    let mut lines = Vec::new();
    if check.http {
        let uri = check.uri.as_deref().unwrap_or("/");
        text.push_str(&format!(" uri={uri}"));
        if let Some(status) = &check.status {
            lines.push(format!("status {status}"));
        }
        if let Some(body) = &check.body {
            lines.push(format!("body ~ {}", quoted(&escaped(body))));
        }
    } else {
        // HAProxy only connects: any answer is right.
        lines.push("status 100-599".to_string());
    }
    if !lines.is_empty() {
        let lines = lines.into_iter().map(Node::Line).collect();
        tree.http_maps.push(Node::Block(format!("match {own}_works"), lines));
        text.push_str(&format!(" match={own}_works"));
    }
    text
}

/// Whether a section has servers of its own.
pub fn has_servers(proxy: &Proxy) -> bool {
    proxy.kind != Kind::Frontend && !proxy.servers.is_empty()
}
