//! The servers that run, from the API's answers, and those that a command line names.

use serde_json::Value;

/// A server of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// "http" or "stream".
    pub protocol: &'static str,
    /// Its upstream.
    pub upstream: String,
    /// Whether the API may change it: the upstream has a `zone`.
    pub changeable: bool,
    /// Its number in the API.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// Its name in the configuration.
    pub name: String,
    /// "up", "down", "draining", "unavail", "checking" or "unhealthy".
    pub state: String,
    /// `weight`.
    pub weight: u64,
    /// `backup`.
    pub backup: bool,
    /// Requests or sessions in flight.
    pub active: u64,
    /// Requests a second in the last minute.
    pub rate: f64,
    /// Failures a second in the last minute.
    pub failures: f64,
    /// The time that 95 % of the last requests took at most, in milliseconds.
    pub p95: Option<f64>,
    /// Milliseconds until `outlier` tries it again.
    pub ejected_for: Option<u64>,
}

impl Server {
    /// As people see it: the name in the configuration, with the address unless it is the same.
    pub fn shown(&self) -> String {
        match self.name.as_str() {
            name if name.is_empty() || name == self.address => self.address.clone(),
            name => format!("{name} ({})", self.address),
        }
    }
}

/// Reads the servers of a protocol from /balanza/PROTOCOL/upstreams and /9/PROTOCOL/upstreams.
pub fn read(protocol: &'static str, courses: &Value, upstreams: &Value) -> Vec<Server> {
    let mut servers = Vec::new();
    for (upstream, course) in courses.as_object().into_iter().flatten() {
        let peers = upstreams[upstream]["peers"].as_array();
        for server in course["servers"].as_array().into_iter().flatten() {
            let peer = peers.into_iter().flatten().find(|peer| peer["id"] == server["id"]).unwrap_or(&Value::Null);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let number = |value: &Value| value.as_u64().unwrap_or_default();
            servers.push(Server {
                protocol,
                upstream: upstream.clone(),
                changeable: course["changeable"].as_bool().unwrap_or(false),
                id: number(&server["id"]),
                address: text(&server["server"]),
                name: text(&peer["name"]),
                state: text(&server["state"]),
                weight: number(&server["weight"]),
                backup: peer["backup"].as_bool().unwrap_or(false),
                active: number(&server["active"]),
                rate: server["rate"]["minute"].as_f64().unwrap_or_default(),
                failures: server["failure_rate"]["minute"].as_f64().unwrap_or_default(),
                p95: server["times"]["p95"].as_f64(),
                ejected_for: server["ejected_for"].as_u64(),
            });
        }
    }
    servers
}

/// The names of the upstreams, each once.
fn upstreams(servers: &[Server]) -> Vec<String> {
    let mut names: Vec<String> = servers.iter().map(|it| format!("{} ({})", it.upstream, it.protocol)).collect();
    names.dedup();
    names
}

/// The servers of an upstream. `protocol` says which one if `http` and `stream` have one of this name.
///
/// # Errors
/// There is none, or there are two: what there is.
pub fn of_upstream<'a>(all: &'a [Server], name: &str, protocol: Option<&str>) -> Result<Vec<&'a Server>, String> {
    let wanted = |server: &&Server| server.upstream == name && protocol.is_none_or(|it| it == server.protocol);
    let found: Vec<&Server> = all.iter().filter(wanted).collect();
    match found.first() {
        None if all.is_empty() => Err("the balancer has no upstream with a server".into()),
        None => Err(format!("there is no upstream \"{name}\"; there are: {}", upstreams(all).join(", "))),
        Some(first) if found.iter().any(|server| server.protocol != first.protocol) => {
            Err(format!("http and stream have an upstream \"{name}\": add --protocol http or --protocol stream"))
        }
        Some(_) => Ok(found),
    }
}

/// Those of them that have this name in the configuration or this address: several if a name has several addresses.
///
/// # Errors
/// There is none: which there are.
pub fn named<'a>(servers: &[&'a Server], name: &str) -> Result<Vec<&'a Server>, String> {
    // As in the configuration, a port that is left out is 80.
    let with_port = format!("{name}:80");
    let is_it = |server: &&&Server| [name, &with_port].iter().any(|it| server.name == *it || server.address == *it);
    let found: Vec<&Server> = servers.iter().filter(is_it).copied().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let list: Vec<String> = servers.iter().map(|server| server.shown()).collect();
    let upstream = servers.first().map(|server| server.upstream.as_str()).unwrap_or_default();
    Err(format!("upstream \"{upstream}\" has no server \"{name}\"; there are: {}", list.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn servers() -> Vec<Server> {
        let server = |id: u64, address: &str| json!({ "id": id, "server": address, "state": "up", "weight": 1 });
        let courses = json!({ "app": { "changeable": true, "servers": [
            server(1, "10.0.0.1:8080"), server(2, "10.0.0.2:80"), server(3, "10.0.0.3:80"),
        ] } });
        let peers = json!({ "app": { "peers": [
            { "id": 1, "name": "10.0.0.1:8080" }, { "id": 2, "name": "web:80" }, { "id": 3, "name": "web:80" },
        ] } });
        let mut all = read("http", &courses, &peers);
        all.extend(read("stream", &json!({ "app": courses["app"], "db": courses["app"] }), &Value::Null));
        all
    }

    #[test]
    fn servers_have_the_names_of_the_configuration() {
        let all = servers();
        assert_eq!(all.len(), 9);
        let app = of_upstream(&all, "app", Some("http")).unwrap();
        let ids = |name: &str| named(&app, name).map(|found| found.iter().map(|it| it.id).collect::<Vec<_>>());
        assert_eq!(ids("10.0.0.1:8080"), Ok(vec![1]));
        assert_eq!(ids("10.0.0.2"), Ok(vec![2]));
        assert_eq!(ids("web"), Ok(vec![2, 3]));
        let there_are = "there are: 10.0.0.1:8080, web:80 (10.0.0.2:80), web:80 (10.0.0.3:80)";
        assert_eq!(ids("10.0.0.1"), Err(format!("upstream \"app\" has no server \"10.0.0.1\"; {there_are}")));
    }

    #[test]
    fn upstreams_of_two_protocols_are_told_apart() {
        let all = servers();
        assert!(of_upstream(&all, "app", None).unwrap_err().contains("--protocol stream"));
        assert_eq!(of_upstream(&all, "db", None).unwrap().len(), 3);
        let unknown = of_upstream(&all, "shop", None).unwrap_err();
        assert!(unknown.ends_with("there are: app (http), app (stream), db (stream)"), "{unknown}");
        assert!(of_upstream(&[], "app", None).is_err());
    }
}
