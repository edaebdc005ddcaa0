//! `balanza status`: the servers of a running balancer, for people and for checks of a monitoring system.

use std::collections::BTreeMap;

use balanza_plot::columns;
use serde_json::{Value, json};

use super::servers::Server;

/// How the servers are, as the exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Every server is up, or an operator took it out.
    Good = 0,
    /// A server does not work.
    Degraded = 1,
    /// No server of an upstream works.
    Critical = 2,
}

/// How they are.
pub fn health(servers: &[Server]) -> Health {
    let mut of_upstreams: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for server in servers {
        of_upstreams.entry((server.protocol, &server.upstream)).or_default().push(&server.state);
    }
    let of = |states: &Vec<&str>| {
        if !states.contains(&"up") {
            Health::Critical
        } else if states.iter().any(|state| !matches!(*state, "up" | "down" | "draining")) {
            Health::Degraded
        } else {
            Health::Good
        }
    };
    of_upstreams.values().map(of).max().unwrap_or(Health::Good)
}

/// What there is to say of a server besides.
fn note(server: &Server) -> String {
    let mut notes = Vec::new();
    if server.backup {
        notes.push("backup".to_string());
    }
    if let Some(milliseconds) = server.ejected_for {
        notes.push(format!("outlier, tried again in {} s", milliseconds.div_ceil(1000)));
    }
    if server.state == "draining" || (server.state == "down" && server.active > 0) {
        notes.push(format!("{} left", server.active));
    }
    notes.join("; ")
}

fn colour_of(state: &str) -> &'static str {
    match state {
        "up" => "32",
        "down" | "draining" => "33",
        _ => "31",
    }
}

/// A line for each server.
pub fn table(servers: &[Server], colour: bool) -> String {
    let head = ["upstream", "", "server", "state", "weight", "active", "requests/s", "failures/s", "p95 ms", ""];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for server in servers {
        rows.push(vec![
            server.upstream.clone(),
            server.protocol.to_string(),
            server.shown(),
            server.state.clone(),
            server.weight.to_string(),
            server.active.to_string(),
            format!("{:.1}", server.rate),
            format!("{:.2}", server.failures),
            server.p95.map_or("-".to_string(), |time| format!("{time:.1}")),
        ]);
    }
    let mut text = String::new();
    for (nth, line) in columns(&rows, 4).lines().enumerate() {
        let server = nth.checked_sub(1).and_then(|nth| servers.get(nth));
        let painted = match server.filter(|_| colour) {
            Some(server) => {
                let state = format!("  {}", server.state);
                line.replacen(&state, &format!("  \x1b[{}m{}\x1b[0m", colour_of(&server.state), server.state), 1)
            }
            None => line.to_string(),
        };
        let note = server.map(note).filter(|note| !note.is_empty());
        text.push_str(&painted);
        text.push_str(&note.map(|note| format!("  {note}")).unwrap_or_default());
        text.push('\n');
    }
    text
}

/// The servers as JSON.
pub fn json(servers: &[Server]) -> Value {
    let each = servers.iter().map(|server| {
        json!({
            "protocol": server.protocol, "upstream": server.upstream, "server": server.address, "name": server.name,
            "state": server.state, "weight": server.weight, "backup": server.backup, "active": server.active,
            "rate": server.rate, "failure_rate": server.failures, "p95": server.p95,
            "ejected_for": server.ejected_for,
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::super::servers::read;
    use super::*;

    fn of(states: &[(&str, &str)]) -> Vec<Server> {
        let mut all = Vec::new();
        for (upstream, state) in states {
            let mut one = json!({ "changeable": true, "servers": [] });
            one["servers"] = json!([{ "id": 1, "server": "10.0.0.1:80", "state": state, "weight": 1, "active": 2 }]);
            all.extend(read("http", &json!({ *upstream: one }), &Value::Null));
        }
        all
    }

    #[test]
    fn the_exit_code_says_how_bad_it_is() {
        for (states, expected) in [
            (&[("a", "up"), ("a", "down"), ("b", "up")][..], Health::Good),
            (&[("a", "up"), ("a", "unavail")], Health::Degraded),
            (&[("a", "up"), ("b", "unhealthy")], Health::Critical),
            (&[("a", "draining")], Health::Critical),
            (&[], Health::Good),
        ] {
            assert_eq!(health(&of(states)), expected, "{states:?}");
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_server() {
        let servers = of(&[("app", "up"), ("app", "draining")]);
        let expected = "\
upstream        server       state     weight  active  requests/s  failures/s  p95 ms
app       http  10.0.0.1:80  up             1       2         0.0        0.00       -
app       http  10.0.0.1:80  draining       1       2         0.0        0.00       -  2 left
";
        assert_eq!(table(&servers, false), expected);
        assert!(table(&servers, true).contains("\x1b[33mdraining\x1b[0m"));
        assert_eq!(json(&servers)[1]["state"], "draining");
    }
}
