//! The servers of a frontend.

use super::backend;
use super::bind::{self, Binds};
use super::choice::choices;
use super::condition::Condition;
use super::fields::Fields;
use super::lines::Line;
use super::nginx::{Maps, Node, Tree, quoted};
use super::notes::Notes;
use super::proxy::{Mode, Proxy};
use super::rules::Rule;
use super::{stream, time};

/// Writes the server of a section that takes requests.
pub fn server(front: &Proxy, proxies: &[Proxy], tree: &mut Tree, notes: &mut Notes) {
    let binds = bind::read(&front.binds, notes);
    if binds.listens.is_empty() {
        notes.add(&front.head, "there is no address to listen on");
        return;
    }
    match front.mode {
        Mode::Http => http(front, proxies, binds, tree, notes),
        Mode::Tcp => stream::server(front, proxies, binds, tree, notes),
    }
}

fn http(front: &Proxy, proxies: &[Proxy], binds: Binds, tree: &mut Tree, notes: &mut Notes) {
    let mut nodes: Vec<Node> = binds.listens.iter().map(Node::line).collect();
    nodes.push(Node::line(format!("server_name {}", quoted("_"))));
    nodes.push(Node::line(format!("status_zone {}", front.own)));
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
    if binds.proxy_protocol {
        nodes.extend(binds.real_ip());
        nodes.push(Node::line("real_ip_header proxy_protocol"));
    }
    let mut fields = Fields::of_request();
    fields.set("Host", "$http_host");
    fields.set("Upgrade", "$http_upgrade");
    fields.set("Connection", "$connection_upgrade");
    nodes.extend(requests(front, &mut fields, &mut tree.http_variables, notes));

    let (mut chosen, last) = choices(front, proxies, notes);
    chosen.retain(|(_, condition, line)| {
        let read = condition.as_ref().and_then(|condition| front.variables().sources(condition).ok());
        !is_changed(&fields, &read.unwrap_or_default(), line, notes)
    });
    let (special, is_taken) = special(front, last.is_some() || !chosen.is_empty(), notes);
    nodes.extend(special);
    let mut locations: Vec<Node> = Vec::new();
    let of_backend = |back: &Proxy, tree: &mut Tree, notes: &mut Notes| -> Vec<Node> {
        let is_other = back.name != front.name || back.kind != front.kind;
        let mut fields = fields.clone();
        let mut nodes = Vec::new();
        if is_other {
            nodes.extend(requests(back, &mut fields, &mut tree.http_variables, notes));
        }
        if !backend::has_servers(back) {
            nodes.push(Node::line("return 503"));
            return nodes;
        }
        nodes.extend(backend::location(front, back, tree));
        if let Some(line) = front.forwarded_for.as_ref().or(back.forwarded_for.as_ref()) {
            let header = line.words.iter().skip_while(|word| *word != "header").nth(1);
            fields.forwarded_for(header.map_or("X-Forwarded-For", String::as_str));
        }
        nodes.extend(fields.request());
        // The rules of the backend are the first for a response.
        let mut fields = Fields::of_response();
        if is_other {
            responses(back, &mut fields, &mut tree.http_variables, notes);
        }
        responses(front, &mut fields, &mut tree.http_variables, notes);
        nodes.extend(fields.response());
        nodes
    };
    if chosen.is_empty() {
        let inner = match last {
            Some(back) => of_backend(back, tree, notes),
            None => vec![Node::line("return 503")],
        };
        if !is_taken {
            locations.push(Node::Block("location /".into(), inner));
        }
    } else {
        let named: Vec<_> = chosen.iter().map(|(back, condition, _)| (back.own.clone(), condition.clone())).collect();
        let fallback = last.map_or("none".to_string(), |back| back.own.clone());
        match front.variables().choice("backend", &named, &fallback, &mut tree.http_variables) {
            Ok(variable) => {
                // Each backend has its own timeouts and fields, so it has its own location.
                let inner = vec![Node::line(format!("error_page 418 = @{variable}")), Node::line("return 418")];
                locations.push(Node::Block("location /".into(), inner));
                let mut seen: Vec<String> = Vec::new();
                for back in chosen.iter().map(|(back, ..)| *back).chain(last) {
                    let own = back.own.clone();
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
    nodes.extend(locations);
    tree.http_servers.push(Node::Block("server".into(), nodes));
}

/// Whether a text or a condition reads a field that a rule has changed: the variable has what the client sent.
fn is_changed(fields: &Fields, read: &str, line: &Line, notes: &mut Notes) -> bool {
    let Some(field) = fields.changed(read) else { return false };
    notes.add(line, format!("reads {field}, which a rule before has changed: only what came can be read"));
    true
}

/// The variable of a rule's condition, if it has one; an error if the rule cannot be carried over.
fn condition(
    proxy: &Proxy,
    rule: &(Line, Rule, Option<Condition>),
    fields: &Fields,
    maps: &mut Maps,
    notes: &mut Notes,
) -> Result<Option<String>, ()> {
    let (line, rule, condition) = rule;
    let variables = proxy.variables();
    let read = condition.as_ref().map(|condition| variables.sources(condition)).transpose();
    let variable = condition.as_ref().map(|condition| variables.condition(condition, maps)).transpose();
    let (read, variable) = match (read, variable) {
        (Ok(read), Ok(variable)) => (read.unwrap_or_default(), variable),
        (Err(why), _) | (_, Err(why)) => {
            notes.add(line, why);
            return Err(());
        }
    };
    let value = match rule {
        Rule::Return(text) => text,
        Rule::RequestField(change) | Rule::ResponseField(change) => change.value.as_deref().unwrap_or_default(),
        Rule::Reject | Rule::Accept => "",
    };
    // With a space between them no name runs on.
    if is_changed(fields, &format!("{read} {value}"), line, notes) { Err(()) } else { Ok(variable) }
}

/// Answers of the balancer itself, and what the rules make of the fields of a request.
fn requests(proxy: &Proxy, fields: &mut Fields, maps: &mut Maps, notes: &mut Notes) -> Vec<Node> {
    let mut answers = Vec::new();
    let rejects = proxy.rules.iter().any(|(_, rule, _)| *rule == Rule::Reject);
    for it in &proxy.rules {
        let (line, rule, _) = it;
        if matches!(rule, Rule::ResponseField(_)) || *rule == Rule::Accept && !rejects {
            continue;
        }
        let Ok(variable) = condition(proxy, it, fields, maps, notes) else { continue };
        match (rule, variable) {
            (Rule::Return(answer), None) => answers.push(Node::line(format!("return {answer}"))),
            (Rule::Return(answer), Some(variable)) => {
                answers.push(Node::Block(format!("if ({variable})"), vec![Node::line(format!("return {answer}"))]));
            }
            (Rule::RequestField(change), variable) => fields.change(change, variable.as_deref(), line.number, maps),
            _ => notes.add(line, "has no counterpart here"),
        }
    }
    answers
}

/// What the rules make of the fields of a response.
fn responses(proxy: &Proxy, fields: &mut Fields, maps: &mut Maps, notes: &mut Notes) {
    for it in &proxy.rules {
        let (line, Rule::ResponseField(change), _) = it else { continue };
        let Ok(variable) = condition(proxy, it, fields, maps, notes) else { continue };
        if variable.is_some() && !change.adds && change.name.eq_ignore_ascii_case("Set-Cookie") {
            notes.add(line, "several lines of one name cannot be kept by a condition");
            continue;
        }
        fields.change(change, variable.as_deref(), line.number, maps);
    }
}

/// Statistics, metrics and `monitor-uri`, and whether they take the place of "location /".
fn special(front: &Proxy, has_backends: bool, notes: &mut Notes) -> (Vec<Node>, bool) {
    let mut nodes = Vec::new();
    if let Some(uri) = &front.monitor {
        nodes.push(Node::Block(format!("location = {uri}"), vec![Node::line("return 200")]));
    }
    if let Some(path) = &front.metrics {
        nodes.push(Node::Block(format!("location = {path}"), vec![Node::line("metrics")]));
    }
    let Some(stats) = front.stats.as_ref().filter(|stats| !stats.guarded) else { return (nodes, false) };
    let whole = stats.uri.as_deref().unwrap_or("/haproxy?stats");
    let path = whole.split(['?', ';']).next().unwrap_or(whole);
    if path == "/" && has_backends {
        notes.add(&stats.line, "the page would take the place of \"location /\": give it a location of its own");
        return (nodes, false);
    }
    if has_backends && whole.contains('?') {
        notes.add(&stats.line, format!("the page answers for every path that begins with {path}"));
    }
    let auth = ["auth_basic balanza", "auth_basic_user_file stats.htpasswd"].map(Node::line);
    let auth = if stats.auth { auth.to_vec() } else { Vec::new() };
    let write = if stats.admin { "api write=on" } else { "api" };
    // Below the page, so that it is in the way of nothing else.
    let api = format!("{}/api", path.trim_end_matches('/'));
    nodes.push(Node::Block(format!("location {api}"), [vec![Node::line(write)], auth.clone()].concat()));
    nodes.push(Node::Block(
        format!("location {path}"),
        [vec![Node::line(format!("dashboard api={api}"))], auth].concat(),
    ));
    (nodes, path == "/")
}
