//! The servers of a frontend.

use super::backend;
use super::bind::{self, Binds};
use super::condition::{Condition, Variables};
use super::lines::Line;
use super::nginx::{Node, Tree, name, quoted};
use super::notes::Notes;
use super::proxy::{Kind, Mode, Proxy};
use super::rules::Rule;
use super::{server, time};

/// Writes the server of a section that takes requests.
pub fn server(front: &Proxy, proxies: &[Proxy], tree: &mut Tree, notes: &mut Notes) {
    let binds = bind::read(&front.binds, notes);
    if binds.listens.is_empty() {
        notes.add(&front.head, "there is no address to listen on");
        return;
    }
    match front.mode {
        Mode::Http => http(front, proxies, binds, tree, notes),
        Mode::Tcp => stream(front, proxies, binds, tree, notes),
    }
}

/// The section with this name that has servers.
fn find<'a>(proxies: &'a [Proxy], target: &str, mode: Mode, line: &Line, notes: &mut Notes) -> Option<&'a Proxy> {
    if target.contains('%') {
        notes.add(line, "a name from the request: write a map");
        return None;
    }
    let found = proxies.iter().find(|it| it.kind != Kind::Frontend && it.name == target);
    match found {
        None => notes.add(line, "there is no such backend"),
        Some(back) if back.mode != mode => notes.add(line, "the backend has another mode"),
        // A backend that only answers has no server.
        Some(back) => return Some(back),
    }
    None
}

/// The backends in the order of their conditions, and the last resort.
type Choices<'a> = (Vec<(&'a Proxy, Option<Condition>)>, Option<&'a Proxy>);

fn choices<'a>(front: &'a Proxy, proxies: &'a [Proxy], notes: &mut Notes) -> Choices<'a> {
    let mut chosen = Vec::new();
    for (line, target, condition) in &front.use_backends {
        if let Some(back) = find(proxies, target, front.mode, line, notes) {
            chosen.push((back, condition.clone()));
        }
    }
    let own = (front.kind == Kind::Listen && backend::has_servers(front)).then_some(front);
    let default = front.default_backend.as_ref().and_then(|(line, name)| find(proxies, name, front.mode, line, notes));
    (chosen, own.or(default))
}

fn http(front: &Proxy, proxies: &[Proxy], binds: Binds, tree: &mut Tree, notes: &mut Notes) {
    let mut nodes: Vec<Node> = binds.listens.iter().map(Node::line).collect();
    nodes.push(Node::line(format!("server_name {}", quoted("_"))));
    nodes.push(Node::line(format!("status_zone {}", name(&front.name))));
    nodes.extend(binds.tls.iter().map(Node::line));
    if binds.http2 {
        nodes.push(Node::line("http2 on"));
    }
    nodes.push(Node::line("absolute_redirect off"));
    // HAProxy has no limit.
    nodes.push(Node::line("client_max_body_size 0"));
    for (own, directive) in [
        ("http-request", "client_header_timeout"),
        ("client", "client_body_timeout"),
        ("client", "send_timeout"),
        ("http-keep-alive", "keepalive_timeout"),
    ] {
        if let Some(time) = front.timeouts.get(own).filter(|time| **time > 0) {
            nodes.push(Node::line(format!("{directive} {}", time::written(*time))));
        }
    }
    if let Some(types) = &front.compression {
        nodes.push(Node::line("gzip on"));
        let types: Vec<&str> = types.iter().map(String::as_str).filter(|it| *it != "text/html").collect();
        if !types.is_empty() {
            nodes.push(Node::line(format!("gzip_types {}", types.join(" "))));
        }
    }
    let mut variables = Variables::new(&front.name, &front.acls);
    let (answers, fields) = rules(front, &mut variables, notes);
    nodes.extend(answers);
    nodes.extend(special(front));

    let (chosen, last) = choices(front, proxies, notes);
    let mut locations: Vec<Node> = Vec::new();
    let of_backend = |back: &Proxy, tree: &mut Tree, notes: &mut Notes| -> Vec<Node> {
        if !backend::has_servers(back) {
            let mut variables = Variables::new(&back.name, &back.acls);
            let (mut answers, _) = rules(back, &mut variables, notes);
            tree.http_maps.append(&mut variables.maps);
            answers.push(Node::line("return 503"));
            return answers;
        }
        let mut own = Vec::new();
        let mut fields = fields.clone();
        if back.name != front.name || back.kind != front.kind {
            let mut variables = Variables::new(&back.name, &back.acls);
            let (answers, more) = rules(back, &mut variables, notes);
            for node in variables.maps {
                if !tree.http_maps.contains(&node) {
                    tree.http_maps.push(node);
                }
            }
            own.extend(answers);
            fields.extend(more);
        }
        own.extend(backend::location(front, back, tree));
        own.extend(fields);
        own
    };
    if chosen.is_empty() {
        let inner = match last {
            Some(back) => of_backend(back, tree, notes),
            None => vec![Node::line("return 503")],
        };
        let taken = front.stats.as_ref().and_then(|stats| stats.uri.as_deref()) == Some("/");
        if !taken {
            locations.push(Node::Block("location /".into(), inner));
        }
    } else {
        let named: Vec<_> = chosen.iter().map(|(back, condition)| (name(&back.name), condition.clone())).collect();
        let fallback = last.map_or("none".to_string(), |back| name(&back.name));
        match variables.choice("backend", &named, &fallback) {
            Ok(variable) => {
                // Each backend has its own timeouts and fields, so it has its own location.
                let inner = vec![Node::line(format!("error_page 418 = @{variable}")), Node::line("return 418")];
                locations.push(Node::Block("location /".into(), inner));
                let mut seen: Vec<String> = Vec::new();
                for back in chosen.iter().map(|(back, _)| *back).chain(last) {
                    let own = name(&back.name);
                    if !seen.contains(&own) {
                        let inner = of_backend(back, tree, notes);
                        locations.push(Node::Block(format!("location @{own}"), inner));
                        seen.push(own);
                    }
                }
                if last.is_none() {
                    locations.push(Node::Block("location @none".into(), vec![Node::line("return 503")]));
                }
            }
            Err(why) => {
                if let Some((line, ..)) = front.use_backends.first() {
                    notes.add(line, format!("no backend is chosen by conditions: {why}"));
                }
                let inner = last.map(|back| of_backend(back, tree, notes));
                locations.push(Node::Block("location /".into(), inner.unwrap_or(vec![Node::line("return 503")])));
            }
        }
    }
    tree.http_maps.extend(variables.maps);
    nodes.extend(locations);
    tree.http_servers.push(Node::Block("server".into(), nodes));
}

/// Answers of the balancer itself, and fields for the location that sends requests on.
fn rules(proxy: &Proxy, variables: &mut Variables<'_>, notes: &mut Notes) -> (Vec<Node>, Vec<Node>) {
    let (mut answers, mut fields) = (Vec::new(), Vec::new());
    for (line, rule, condition) in &proxy.rules {
        let variable = match condition.as_ref().map(|condition| variables.condition(condition)).transpose() {
            Ok(variable) => variable,
            Err(why) => {
                notes.add(line, why);
                continue;
            }
        };
        match (rule, variable) {
            (Rule::Return(answer), None) => answers.push(Node::line(format!("return {answer}"))),
            (Rule::Return(answer), Some(variable)) => {
                answers.push(Node::Block(format!("if ({variable})"), vec![Node::line(format!("return {answer}"))]));
            }
            (Rule::RequestField(field, value), None) => {
                fields.push(Node::line(format!("proxy_set_header {field} {value}")))
            }
            (Rule::RequestField(field, value), Some(variable)) => {
                let own = format!("$set_{}_{}", name(&field.to_ascii_lowercase()), line.number);
                let before = format!("$http_{}", field.to_ascii_lowercase().replace('-', "_"));
                let lines = vec![Node::line(format!("default {before}")), Node::line(format!("1 {value}"))];
                variables.maps.push(Node::Block(format!("map {variable} {own}"), lines));
                fields.push(Node::line(format!("proxy_set_header {field} {own}")));
            }
            (Rule::ResponseField(field, Some(value)), None) => {
                fields.push(Node::line(format!("proxy_hide_header {field}")));
                fields.push(Node::line(format!("add_header {field} {value} always")));
            }
            (Rule::ResponseField(field, Some(value)), Some(variable)) => {
                let own = format!("$add_{}_{}", name(&field.to_ascii_lowercase()), line.number);
                let lines = vec![Node::line("default \"\""), Node::line(format!("1 {value}"))];
                variables.maps.push(Node::Block(format!("map {variable} {own}"), lines));
                fields.push(Node::line(format!("add_header {field} {own} always")));
            }
            (Rule::ResponseField(field, None), None) => fields.push(Node::line(format!("proxy_hide_header {field}"))),
            (Rule::ResponseField(_, None), Some(_)) | (Rule::Reject, _) => notes.add(line, "has no counterpart here"),
        }
    }
    // The last value of a field holds, as `proxy_set_header` of one name twice sends both.
    let mut kept: Vec<Node> = Vec::new();
    for node in fields {
        if let Node::Line(text) = &node
            && let Some((head, _)) = text.rsplit_once(' ').filter(|_| text.starts_with("proxy_set_header"))
        {
            let head = head.split(' ').take(2).collect::<Vec<_>>().join(" ") + " ";
            kept.retain(|it| !matches!(it, Node::Line(text) if text.starts_with(&head)));
        }
        if !kept.contains(&node) {
            kept.push(node);
        }
    }
    (answers, kept)
}

/// Statistics, metrics and `monitor-uri`.
fn special(front: &Proxy) -> Vec<Node> {
    let mut nodes = Vec::new();
    if let Some(uri) = &front.monitor {
        nodes.push(Node::Block(format!("location = {uri}"), vec![Node::line("return 200")]));
    }
    if let Some(path) = &front.metrics {
        nodes.push(Node::Block(format!("location = {path}"), vec![Node::line("metrics")]));
    }
    if let Some(stats) = &front.stats {
        let uri = stats.uri.as_deref().unwrap_or("/haproxy").split(['?', ';']).next().unwrap_or("/haproxy");
        let auth = || {
            let lines = ["auth_basic balanza", "auth_basic_user_file stats.htpasswd"].map(Node::line);
            if stats.auth { lines.to_vec() } else { Vec::new() }
        };
        let write = if stats.admin { "api write=on" } else { "api" };
        nodes.push(Node::Block("location /api".into(), [vec![Node::line(write)], auth()].concat()));
        nodes.push(Node::Block(format!("location {uri}"), [vec![Node::line("dashboard")], auth()].concat()));
    }
    nodes
}

fn stream(front: &Proxy, proxies: &[Proxy], binds: Binds, tree: &mut Tree, notes: &mut Notes) {
    let mut nodes: Vec<Node> = binds.listens.iter().map(Node::line).collect();
    nodes.extend(binds.tls.iter().map(Node::line));
    let mut variables = Variables::new(&front.name, &front.acls);
    for (line, rule, condition) in &front.rules {
        match (rule, condition.as_ref().map(|condition| variables.condition(condition)).transpose()) {
            (Rule::Reject, Ok(Some(_))) => match sources(front, line) {
                Some((networks, true)) => nodes.extend(networks.iter().map(|it| Node::line(format!("deny {it}")))),
                Some((networks, false)) => {
                    nodes.extend(networks.iter().map(|it| Node::line(format!("allow {it}"))));
                    nodes.push(Node::line("deny all"));
                }
                None => notes.add(line, "write it with allow and deny"),
            },
            (_, Err(why)) => notes.add(line, why),
            _ => notes.add(line, "has no counterpart in stream"),
        }
    }
    let mut variables = Variables::new(&front.name, &front.acls);
    let (chosen, last) = choices(front, proxies, notes);
    let Some(first) = last.or(chosen.first().map(|(back, _)| *back)) else {
        notes.add(&front.head, "there is no backend");
        return;
    };
    let target = if chosen.is_empty() {
        name(&first.name)
    } else {
        let named: Vec<_> = chosen.iter().map(|(back, condition)| (name(&back.name), condition.clone())).collect();
        // Without a last resort HAProxy closes the connection, as an upstream that does not exist does here.
        let fallback = last.map_or("none".to_string(), |back| name(&back.name));
        match variables.choice("backend", &named, &fallback) {
            Ok(variable) => variable,
            Err(why) => {
                notes.add(&front.head, format!("no backend is chosen by conditions: {why}"));
                name(&first.name)
            }
        }
    };
    let servers = server::read(first, true, &mut Notes::default());
    nodes.push(Node::line(format!("proxy_pass {target}")));
    let uses_names =
        variables.maps.iter().any(|node| matches!(node, Node::Block(head, _) if head.contains("$ssl_preread")));
    if uses_names {
        nodes.push(Node::line("ssl_preread on"));
    }
    let of = |name: &str| first.timeouts.get(name).or(front.timeouts.get(name)).copied().filter(|time| *time > 0);
    if let Some(time) = of("connect") {
        nodes.push(Node::line(format!("proxy_connect_timeout {}", time::written(time))));
    }
    let idle = of("tunnel").or(of("server").max(of("client")));
    if let Some(time) = idle {
        nodes.push(Node::line(format!("proxy_timeout {}", time::written(time))));
    }
    if servers.proxy_protocol {
        nodes.push(Node::line("proxy_protocol on"));
    }
    if servers.ssl {
        nodes.push(Node::line("proxy_ssl on"));
        nodes.extend(backend::tls(&servers, "proxy_ssl").into_iter().map(Node::Line));
    }
    let own = format!("stream {}", name(&first.name));
    // A check needs the name of an upstream.
    if servers.check && chosen.is_empty() && !tree.checked.contains(&own) {
        tree.checked.push(own);
        let port = servers.port.as_ref().map(|port| format!(" port={port}")).unwrap_or_default();
        let (interval, fails, passes) = (time::written(servers.interval), servers.fall, servers.rise);
        nodes.push(Node::line(format!("health_check interval={interval} fails={fails} passes={passes}{port}")));
    }
    tree.stream_maps.extend(variables.maps);
    tree.stream_servers.push(Node::Block("server".into(), nodes));
}

/// The networks of "reject if { src … }", and whether it is they that are rejected.
fn sources(front: &Proxy, line: &Line) -> Option<(Vec<String>, bool)> {
    let at = line.words.iter().position(|word| word == "if" || word == "unless")?;
    let words = line.from(at + 1);
    let (negated, words) = match words.first()?.as_str() {
        "!" => (true, &words[1..]),
        word if word.starts_with('!') => (true, words),
        _ => (false, words),
    };
    let test = if words.first()?.ends_with('{') {
        // Nothing may follow: another condition would reject fewer.
        let end = words.iter().position(|word| word == "}").filter(|end| end + 1 == words.len())?;
        super::acl::read(&words[1..end]).ok()?
    } else {
        let own = words.first()?.trim_start_matches('!');
        let mut of_name = front.acls.iter().filter(|acl| acl.name == own);
        let first = of_name.next()?;
        if of_name.next().is_some() || words.len() > 1 {
            return None;
        }
        first.test.clone().ok()?
    };
    match test {
        super::acl::Test::Source(networks) => Some((networks, negated == (line.word(at) == "unless"))),
        _ => None,
    }
}
