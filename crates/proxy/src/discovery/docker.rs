//! Docker: containers that run and have a label.
//!
//! `/containers/json` has the containers with their labels, networks and ports; `/events` tells when the list is to be read
//! again. The stream of events begins before the list is read, so that no change is lost between them. Paths without a
//! version are those of the daemon's own version; Podman's interface for Docker has them as well.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use balanza_config::model::{ServerAddress, UpstreamServer, discover};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::api::{self, PATIENCE, Request, encode};
use super::server;
use super::sink::{Entries, Sink, sort_out};
use super::task::Discovery;

/// After so long without an event the list is read again: the other end may be gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Some events are told a moment before the list has what they tell of: it is read once more after this time.
const SETTLED: Duration = Duration::from_millis(200);

/// What may change the list. A health check's command causes other events, which are many.
const EVENTS: [&str; 9] =
    ["start", "die", "destroy", "pause", "unpause", "health_status", "rename", "connect", "disconnect"];

/// What labels with parameters begin with.
const PREFIX: &str = "balanza.";
/// The label with the port.
const PORT: &str = "balanza.port";

/// A source.
pub struct Docker {
    conf: discover::Docker,
}

impl Discovery for Docker {
    async fn follow(&mut self, to: &mut Sink) -> Result<(), String> {
        let request = Request { target: events_target(SystemTime::now()), ..Request::default() };
        let mut events = api::send(&self.conf.api, &request, PATIENCE).await?.good().await?;
        self.tell(to).await?;
        let (mut changed, mut later) = (false, None);
        loop {
            tokio::select! {
                line = timeout(SILENCE, events.line()) => {
                    let Ok(line) = line else { return Ok(()) };
                    let line = line?.ok_or("the stream of events was closed")?;
                    serde_json::from_slice::<Value>(line).map_err(|error| format!("an event is not JSON: {error}"))?;
                    (changed, later) = (true, Some(Instant::now() + SETTLED));
                    yield_now().await;
                }
                () = to.ready(), if changed => {
                    changed = false;
                    self.tell(to).await?;
                }
                () = sleep_until(later.unwrap_or_else(Instant::now)), if later.is_some() => {
                    later = None;
                    self.tell(to).await?;
                }
            }
        }
    }
}

impl Docker {
    /// With this configuration.
    pub fn new(conf: discover::Docker) -> Docker {
        Docker { conf }
    }

    /// Reads the list.
    async fn tell(&self, to: &mut Sink) -> Result<(), String> {
        let filters = json!({ "label": [format!("{}={}", self.conf.label, self.conf.value)], "status": ["running"] });
        let target = format!("/containers/json?filters={}", encode(&filters.to_string()));
        let request = Request { target, ..Request::default() };
        let answer = api::send(&self.conf.api, &request, PATIENCE).await?.json().await?;
        to.tell(self.read(to.template(), &answer)?)
    }

    /// The servers of an answer, and what is wrong with the others.
    fn read(&self, template: &UpstreamServer, answer: &Value) -> Result<Entries, String> {
        let containers = answer.as_array().ok_or("the answer is not a list")?;
        let name = |container: &&Value| {
            let name = container["Names"][0].as_str().or(container["Id"].as_str()).unwrap_or("?");
            format!("container \"{}\"", name.trim_start_matches('/'))
        };
        let ready = containers.iter().filter(|container| is_ready(container));
        Ok(sort_out(ready, |container| self.read_container(template, container), name))
    }

    fn read_container(&self, template: &UpstreamServer, container: &Value) -> Result<UpstreamServer, String> {
        let address = SocketAddr::new(self.ip(container)?, self.port(container)?);
        let mut server = server::at(template, ServerAddress::Inet(address));
        for (label, value) in container["Labels"].as_object().into_iter().flatten() {
            let Some(name) = label.strip_prefix(PREFIX) else { continue };
            if *label == self.conf.label || label == PORT || name == "upstream" {
                continue;
            }
            match value.as_str().unwrap_or_default() {
                "false" => {}
                "true" | "" => server::set(&mut server, name)?,
                value => server::set(&mut server, &format!("{name}={value}"))?,
            }
        }
        server::settle(&mut server);
        Ok(server)
    }

    /// Where a container is: in the network of the configuration, or in its only one.
    fn ip(&self, container: &Value) -> Result<IpAddr, String> {
        if container["HostConfig"]["NetworkMode"] == "host" {
            return Ok(Ipv4Addr::LOCALHOST.into());
        }
        let networks = container["NetworkSettings"]["Networks"].as_object();
        let networks = networks.into_iter().flatten();
        let wanted: Vec<(&String, &Value)> = match &self.conf.network {
            Some(network) => networks.filter(|(name, _)| *name == network).collect(),
            None => networks.collect(),
        };
        let address = match (wanted.as_slice(), &self.conf.network) {
            ([(_, only)], _) => *only,
            ([], Some(network)) => return Err(format!("it is not in the network \"{network}\"")),
            ([], None) => return Err("it has no network".into()),
            _ => {
                let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
                return Err(format!("it has several networks ({}): set network=", names.join(", ")));
            }
        };
        let of = |field: &str| address[field].as_str().and_then(|text| text.parse().ok());
        of("IPAddress").or_else(|| of("GlobalIPv6Address")).ok_or_else(|| "it has no IP address".into())
    }

    /// The port in its label, in the configuration, or the only one that it exposes.
    fn port(&self, container: &Value) -> Result<u16, String> {
        if let Some(label) = container["Labels"][PORT].as_str() {
            let port = label.parse().ok().filter(|port| *port > 0);
            return port.ok_or_else(|| format!("\"{label}\" in the label \"{PORT}\" is not a port"));
        }
        if let Some(port) = self.conf.port {
            return Ok(port);
        }
        let exposed = container["Ports"].as_array().into_iter().flatten();
        let exposed = exposed.filter(|port| port["Type"] == "tcp").filter_map(|port| port["PrivatePort"].as_u64());
        let exposed: BTreeSet<u64> = exposed.collect();
        match (exposed.len(), exposed.first().and_then(|port| u16::try_from(*port).ok())) {
            (1, Some(port)) => Ok(port),
            (0, _) => Err(format!("it exposes no port: set port= or the label \"{PORT}\"")),
            _ => Err(format!("it exposes several ports: set port= or the label \"{PORT}\"")),
        }
    }
}

/// The target of a stream of events from a moment before `now` on.
fn events_target(now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let filters = json!({ "type": ["container", "network"], "event": EVENTS });
    format!("/events?since={}&filters={}", now.saturating_sub(1), encode(&filters.to_string()))
}

/// Whether a container takes requests: it is neither paused nor stopping, and its health check, if it has one, passes.
fn is_ready(container: &Value) -> bool {
    let status = container["Status"].as_str().unwrap_or_default();
    let is_running = container["State"].as_str().is_none_or(|state| state == "running");
    is_running && !["(unhealthy)", "(health: starting)", "(Paused)"].iter().any(|not| status.ends_with(not))
}

#[cfg(test)]
mod tests {
    use balanza_config::model::discover::{Api, Place};

    use super::*;
    use crate::discovery::sink::tests::server;

    fn docker(network: Option<&str>, port: Option<u16>) -> Docker {
        let api = Api { place: Place::Unix("/run/d".into()), authority: "localhost".into(), tls: None, token: None };
        let (label, value) = ("balanza.upstream".into(), "app".into());
        Docker::new(discover::Docker { api, label, value, network: network.map(str::to_owned), port })
    }

    /// As a daemon of version 20.10 describes a container.
    fn container(name: &str, labels: &Value, networks: &Value, ports: &Value) -> Value {
        let mut labels = labels.clone();
        labels["balanza.upstream"] = json!("app");
        json!({"Id": "8540fc471a98", "Names": [format!("/{name}")], "Image": "t", "Command": "/server a",
            "Ports": ports, "Labels": labels, "State": "running", "Status": "Up 2 seconds",
            "HostConfig": {"NetworkMode": "web"}, "NetworkSettings": {"Networks": networks}, "Mounts": []})
    }

    fn net(address: &str) -> Value {
        json!({"Gateway": "172.30.9.1", "IPAddress": address, "IPPrefixLen": 24, "GlobalIPv6Address": ""})
    }

    fn tcp(port: u16) -> Value {
        json!([{"PrivatePort": port, "Type": "tcp"}, {"PrivatePort": 53, "Type": "udp"}])
    }

    fn one(docker: &Docker, container: &Value) -> Result<UpstreamServer, String> {
        docker.read_container(&server(0), container)
    }

    #[test]
    fn containers_are_servers() {
        let (web, both) = (json!({"web": net("10.0.0.1")}), json!({"web": net("10.0.0.1"), "db": net("10.1.0.1")}));
        let name = |docker: &Docker, container: &Value| one(docker, container).unwrap().name;
        let plain = container("a", &json!({}), &web, &tcp(8000));
        assert_eq!(name(&docker(None, None), &plain), "10.0.0.1:8000");
        assert_eq!(name(&docker(Some("web"), Some(81)), &plain), "10.0.0.1:81");
        let labelled = container("a", &json!({"balanza.port": "82"}), &both, &json!([]));
        assert_eq!(name(&docker(Some("db"), Some(81)), &labelled), "10.1.0.1:82");
        // A port that is published at two addresses is one port.
        let ports = json!([{"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"},
            {"IP": "::", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"}]);
        assert_eq!(name(&docker(None, None), &container("a", &json!({}), &web, &ports)), "10.0.0.1:80");
        let six = json!({"six": {"IPAddress": "", "GlobalIPv6Address": "fd00::5"}});
        assert_eq!(name(&docker(None, None), &container("a", &json!({}), &six, &tcp(80))), "[fd00::5]:80");
        let mut host = container("a", &json!({}), &json!({"host": net("")}), &json!([]));
        host["HostConfig"]["NetworkMode"] = json!("host");
        assert_eq!(name(&docker(None, Some(9000)), &host), "127.0.0.1:9000");
        let labels = json!({"balanza.weight": "3", "balanza.backup": "true", "balanza.drain": "", "balanza.down": "false",
            "com.example.team": "web"});
        let server = one(&docker(None, None), &container("a", &labels, &web, &tcp(80))).unwrap();
        assert_eq!((server.weight, server.backup, server.draining, server.down), (3, true, true, false));
    }

    #[test]
    fn what_is_wrong_with_a_container_is_said() {
        let web = json!({"web": net("10.0.0.1")});
        let both = json!({"web": net("10.0.0.1"), "db": net("10.1.0.1")});
        let none = json!({});
        let wrong = |docker: &Docker, labels: &Value, networks: &Value, ports: &Value| {
            one(docker, &container("a", labels, networks, ports)).unwrap_err()
        };
        let (plain, inside) = (docker(None, None), docker(Some("x"), None));
        let several = "it has several networks (db, web): set network=";
        assert_eq!(wrong(&plain, &none, &both, &tcp(80)), several);
        assert_eq!(wrong(&inside, &none, &both, &tcp(80)), "it is not in the network \"x\"");
        assert_eq!(wrong(&plain, &none, &none, &tcp(80)), "it has no network");
        assert_eq!(wrong(&plain, &none, &json!({"web": net("")}), &tcp(80)), "it has no IP address");
        let no_port = "it exposes no port: set port= or the label \"balanza.port\"";
        assert_eq!(wrong(&plain, &none, &web, &json!([])), no_port);
        let ports = json!([{"PrivatePort": 1, "Type": "tcp"}, {"PrivatePort": 2, "Type": "tcp"}]);
        assert!(wrong(&plain, &none, &web, &ports).starts_with("it exposes several ports"));
        let label = wrong(&plain, &json!({"balanza.port": "http"}), &web, &tcp(80));
        assert_eq!(label, "\"http\" in the label \"balanza.port\" is not a port");
        assert!(
            wrong(&plain, &json!({"balanza.wieght": "3"}), &web, &tcp(80)).contains("invalid parameter \"wieght=3\"")
        );
        assert!(one(&plain, &json!({"Id": "a"})).is_err());
    }

    #[test]
    fn lists_are_read_as_a_whole() {
        let web = json!({"web": net("10.0.0.1")});
        let mut list: Vec<Value> = (0..5).map(|_| container("a", &json!({}), &web, &tcp(80))).collect();
        list[1]["Status"] = json!("Up 5 seconds (health: starting)");
        list[2]["Status"] = json!("Up 5 minutes (unhealthy)");
        list[3]["State"] = json!("paused");
        list[4]["Status"] = json!("Up 5 minutes (healthy)");
        list.push(container("b", &json!({}), &json!({}), &tcp(80)));
        let (servers, complaints) = docker(None, None).read(&server(0), &Value::Array(list)).unwrap();
        assert_eq!(servers.len(), 2, "the first and the last");
        assert_eq!(complaints.first().unwrap(), "container \"b\" is left out: it has no network");
        let wrong = docker(None, None).read(&server(0), &json!({"message": "no"}));
        assert_eq!(wrong.unwrap_err(), "the answer is not a list");
    }

    #[test]
    fn events_begin_a_moment_ago() {
        let target = events_target(UNIX_EPOCH + Duration::from_secs(100));
        assert!(target.starts_with("/events?since=99&filters=%7B%22event%22%3A%5B%22start%22"), "{target}");
    }
}
