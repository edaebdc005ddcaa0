//! The servers of a frontend that knows bytes only.

use super::acl::{self, Test};
use super::backend;
use super::bind::Binds;
use super::choice::choices;
use super::lines::Line;
use super::nginx::{Node, Tree};
use super::notes::Notes;
use super::proxy::Proxy;
use super::rules::Rule;
use super::{server, time};

/// Writes the server of a section in `mode tcp`.
pub fn server(front: &Proxy, proxies: &[Proxy], binds: Binds, tree: &mut Tree, notes: &mut Notes) {
    let mut nodes: Vec<Node> = binds.listens.iter().map(Node::line).collect();
    nodes.extend(binds.tls.iter().map(Node::line));
    nodes.extend(binds.real_ip());
    nodes.extend(access(front, binds.proxy_protocol, notes));
    let (chosen, last) = choices(front, proxies, notes);
    let Some(first) = last.or(chosen.first().map(|(back, ..)| *back)) else {
        notes.add(&front.head, "there is no backend");
        return;
    };
    let target = if chosen.is_empty() {
        first.own.clone()
    } else {
        let named: Vec<_> = chosen.iter().map(|(back, condition, _)| (back.own.clone(), condition.clone())).collect();
        // Without a last resort HAProxy closes the connection, as an upstream that does not exist does here.
        let fallback = last.map_or("none".to_string(), |back| back.own.clone());
        match front.variables().choice("backend", &named, &fallback, &mut tree.stream_variables) {
            Ok(variable) => variable,
            Err(why) => {
                notes.add(&front.head, format!("no backend is chosen by conditions: {why}"));
                first.own.clone()
            }
        }
    };
    let of = |back: &Proxy, name: &str| {
        back.timeouts.get(name).or(front.timeouts.get(name)).copied().filter(|time| *time > 0)
    };
    let idle = |back: &Proxy| of(back, "tunnel").or(of(back, "server").max(of(back, "client")));
    let mut settings = server::settings(first);
    let is_front = |back: &Proxy| back.name == front.name && back.kind == front.kind;
    for back in chosen.iter().map(|(back, ..)| *back).chain(last) {
        if !is_front(back) {
            for (line, ..) in back.rules.iter().filter(|(_, rule, _)| *rule != Rule::Accept) {
                notes.add(line, "has no counterpart in stream");
            }
        }
        let own = server::settings(back);
        let mut words = settings.differences(&own);
        words.extend((of(back, "connect") != of(first, "connect")).then_some("timeout connect"));
        words.extend((idle(back) != idle(first)).then_some("timeout server"));
        if !words.is_empty() {
            let words = words.join(", ");
            notes.add(&back.head, format!("differs from {} in {words}: here a server has one of each", first.name));
            settings = settings.and(&own);
        }
    }
    nodes.push(Node::line(format!("proxy_pass {target}")));
    let tls = if settings.ssl { backend::tls(&settings, "proxy_ssl") } else { Vec::new() };
    // The variable of the choice comes from others, of which some have the name.
    let variables = &tree.stream_variables.nodes;
    let reads_name = variables.iter().any(|node| matches!(node, Node::Block(head, _) if head.contains("$ssl_preread")));
    if reads_name && target.starts_with('$') || tls.iter().any(|line| line.contains("$ssl_preread")) {
        nodes.push(Node::line("ssl_preread on"));
    }
    if let Some(time) = of(first, "connect") {
        nodes.push(Node::line(format!("proxy_connect_timeout {}", time::written(time))));
    }
    if let Some(time) = idle(first) {
        nodes.push(Node::line(format!("proxy_timeout {}", time::written(time))));
    }
    if settings.proxy_protocol {
        nodes.push(Node::line("proxy_protocol on"));
    }
    if settings.ssl {
        nodes.push(Node::line("proxy_ssl on"));
        nodes.extend(tls.into_iter().map(Node::Line));
    }
    let own = format!("stream {}", first.own);
    // A check needs the name of an upstream.
    if settings.check && target.starts_with('$') {
        notes.add(&front.head, "servers are not checked: a health_check needs one upstream, whose name is no variable");
    } else if settings.check && !tree.checked.contains(&own) {
        tree.checked.push(own);
        let port = settings.port.as_ref().map(|port| format!(" port={port}")).unwrap_or_default();
        let (interval, fails, passes) = (time::written(settings.interval), settings.fall, settings.rise);
        nodes.push(Node::line(format!("health_check interval={interval} fails={fails} passes={passes}{port}")));
    }
    tree.stream_servers.push(Node::Block("server".into(), nodes));
}

/// `allow` and `deny`, of which the first that matches decides.
fn access(front: &Proxy, accepts_proxy: bool, notes: &mut Notes) -> Vec<Node> {
    let rejects = front.rules.iter().any(|(_, rule, _)| *rule == Rule::Reject);
    // HAProxy reads the rules of connections before those of their content.
    let (first, then): (Vec<_>, Vec<_>) = front.rules.iter().partition(|(line, ..)| line.word(1) == "connection");
    let mut nodes = Vec::new();
    let all = |word: &str, networks: &[String]| {
        networks.iter().map(|it| Node::line(format!("{word} {it}"))).collect::<Vec<_>>()
    };
    // What is allowed alone, which has to follow everything that is denied.
    let mut only: Option<Vec<String>> = None;
    // Connections may have been accepted that are not known here.
    let mut is_unclear = false;
    for (line, rule, condition) in first.into_iter().chain(then) {
        let tested = condition.as_ref().map(|condition| front.variables().sources(condition)).transpose();
        let is_outer = accepts_proxy && line.word(1) == "connection";
        match (rule, condition, tested, sources(front, line)) {
            (Rule::Accept, ..) if !rejects => {}
            (Rule::Reject, ..) if is_outer => {
                notes.add(line, "tests the address of the balancer before this one, which allow and deny do not know");
            }
            (Rule::Accept, _, _, Some((networks, true))) if only.is_none() => nodes.extend(all("allow", &networks)),
            (Rule::Accept, ..) => {
                is_unclear = true;
                notes.add(line, "accepts what rules after it reject: write it with allow and deny");
            }
            (Rule::Reject, None, ..) if !is_unclear => {
                nodes.push(Node::line("deny all"));
                return nodes;
            }
            (Rule::Reject, Some(_), _, Some((networks, true))) => nodes.extend(all("deny", &networks)),
            (Rule::Reject, Some(_), _, Some((networks, false))) if only.is_none() => only = Some(networks),
            (Rule::Reject, Some(_), _, Some(_)) => {
                notes.add(line, "a second list of what is allowed: the first one holds")
            }
            (Rule::Reject, _, Err(why), _) => notes.add(line, why),
            (Rule::Reject, ..) => notes.add(line, "write it with allow and deny"),
            _ => notes.add(line, "has no counterpart in stream"),
        }
    }
    if let Some(networks) = only {
        nodes.extend(all("allow", &networks));
        nodes.push(Node::line("deny all"));
    }
    nodes
}

/// The networks of "if { src … }" and the like, and whether it is they that the rule is for.
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
        acl::read(&words[1..end]).ok()?
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
        Test::Source(networks) => Some((networks, negated == (line.word(at) == "unless"))),
        _ => None,
    }
}
