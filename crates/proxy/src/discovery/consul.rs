//! Consul: the instances of a service that pass their checks.
//!
//! `/v1/health/service/NAME?passing=1` is asked again and again with the index of the last answer (a blocking query): the
//! agent answers when something has changed, or after a minute. An index that goes back begins from 0, and one below 1 is
//! taken as 1, as Consul's documentation asks for.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use balanza_config::model::{ServerAddress, UpstreamServer, discover};
use serde_json::Value;

use super::api::{self, PATIENCE, Request, encode};
use super::server;
use super::sink::{Entries, Sink, sort_out};
use super::task::Discovery;

/// How long the agent may wait for a change. It adds up to a sixteenth.
const WAIT: Duration = Duration::from_secs(60);

/// The key of a service's metadata with parameters of `server`.
const META: &str = "balanza";

/// A source.
pub struct Consul {
    conf: discover::Consul,
}

impl Discovery for Consul {
    async fn follow(&mut self, to: &mut Sink) -> Result<(), String> {
        let mut index = 0;
        loop {
            let request = Request { target: self.target(index), ..Request::default() };
            let answer = api::send(&self.conf.api, &request, WAIT + WAIT / 16 + PATIENCE).await?;
            let newer = answer.field("X-Consul-Index").and_then(|value| value.parse().ok());
            let value = answer.json().await?;
            let newer = newer.ok_or("the answer has no X-Consul-Index")?;
            to.tell(read(to.template(), &value)?)?;
            index = next_index(index, newer);
            // Changes that come together are adopted together.
            to.ready().await;
        }
    }
}

impl Consul {
    /// With this configuration.
    pub fn new(conf: discover::Consul) -> Consul {
        Consul { conf }
    }

    fn target(&self, index: u64) -> String {
        let mut target = format!("/v1/health/service/{}?passing=1", encode(&self.conf.service));
        for tag in &self.conf.tags {
            target.push_str(&format!("&tag={}", encode(tag)));
        }
        if let Some(datacenter) = &self.conf.datacenter {
            target.push_str(&format!("&dc={}", encode(datacenter)));
        }
        if index > 0 {
            target.push_str(&format!("&index={index}&wait={}s", WAIT.as_secs()));
        }
        target
    }
}

/// What to ask with after an answer with this index.
fn next_index(before: u64, newer: u64) -> u64 {
    if newer < before { 0 } else { newer.max(1) }
}

/// The servers of an answer, and what is wrong with the others.
fn read(template: &UpstreamServer, answer: &Value) -> Result<Entries, String> {
    let entries = answer.as_array().ok_or("the answer is not a list")?;
    let name = |entry: &&Value| format!("instance \"{}\"", entry["Service"]["ID"].as_str().unwrap_or("?"));
    Ok(sort_out(entries, |entry| read_entry(template, entry), name))
}

fn read_entry(template: &UpstreamServer, entry: &Value) -> Result<UpstreamServer, String> {
    let service = entry.get("Service").filter(|service| service.is_object()).ok_or("no \"Service\"")?;
    let own = service["Address"].as_str().filter(|address| !address.is_empty());
    // A service without an address is at that of its node.
    let host = own.or(entry["Node"]["Address"].as_str()).ok_or("no address")?;
    let ip: IpAddr = host.parse().map_err(|_| format!("\"{host}\" is not an IP address"))?;
    let port = server::port(&service["Port"]).ok_or("no port")?;
    let mut server = server::at(template, ServerAddress::Inet(SocketAddr::new(ip, port)));
    // Consul says 1 if nothing else was registered.
    if let Some(weight) = service["Weights"]["Passing"].as_u64().filter(|weight| *weight != 1) {
        server::set(&mut server, &format!("weight={weight}"))?;
    }
    let words = service["Meta"][META].as_str().unwrap_or_default();
    words.split_ascii_whitespace().try_for_each(|word| server::set(&mut server, word))?;
    server::settle(&mut server);
    Ok(server)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use balanza_config::model::discover::{Api, Place};
    use serde_json::json;

    use super::*;
    use crate::discovery::sink::tests::server;

    #[test]
    fn targets() {
        let api = Api { place: Place::Host("c".into(), 8500), authority: "c:8500".into(), tls: None, token: None };
        let conf = discover::Consul {
            api,
            service: "web app".into(),
            tags: vec!["a&b".into(), "v2".into()],
            datacenter: Some("west".into()),
        };
        let mut consul = Consul::new(conf);
        let first = "/v1/health/service/web%20app?passing=1&tag=a%26b&tag=v2&dc=west";
        assert_eq!(consul.target(0), first);
        assert_eq!(consul.target(7), format!("{first}&index=7&wait=60s"));
        (consul.conf.tags, consul.conf.datacenter) = (Vec::new(), None);
        assert_eq!(consul.target(0), "/v1/health/service/web%20app?passing=1");
    }

    #[test]
    fn indexes() {
        assert_eq!(next_index(0, 5), 5);
        assert_eq!(next_index(5, 5), 5);
        assert_eq!(next_index(5, 4), 0, "an index that goes back begins again");
        assert_eq!(next_index(0, 0), 1, "a query with index 0 does not block");
    }

    #[test]
    fn answers() {
        let of = |answer: Value| read(&server(0), &answer);
        let entry = |address: &str, port: u64, weight: u64, meta: Value| {
            json!({"Node": {"Address": "10.0.0.9"},
                "Service": {"ID": "web-1", "Address": address, "Port": port, "Weights": {"Passing": weight}, "Meta": meta}})
        };
        let answer = json!([
            entry("10.0.0.1", 80, 1, json!({"balanza": "weight=4 max_conns=2"})),
            entry("", 81, 3, Value::Null),
            entry("fd00::1", 82, 1, json!({"other": "weight=9"})),
            entry("web.example", 80, 1, json!({})),
            entry("10.0.0.2", 0, 1, json!({})),
            entry("10.0.0.3", 80, 100_000, json!({})),
            entry("10.0.0.4", 80, 1, json!({"balanza": "color"})),
            json!({"Service": 5}),
        ]);
        let (servers, complaints) = of(answer).unwrap();
        let shown: Vec<_> = servers.iter().map(|it| (it.name.as_str(), it.weight, it.max_conns)).collect();
        assert_eq!(shown, [("10.0.0.1:80", 4, 2), ("10.0.0.9:81", 3, 0), ("[fd00::1]:82", 1, 0)]);
        let complaints: Vec<String> = complaints.into_iter().collect();
        let expected = [
            "instance \"?\" is left out: no \"Service\"",
            "instance \"web-1\" is left out: \"web.example\" is not an IP address",
            "instance \"web-1\" is left out: \"weight=100000\": a weight is from 1 to 65535",
        ];
        assert_eq!(complaints[..3], expected);
        assert!(complaints[3].contains("invalid parameter \"color\"") && complaints[4].ends_with("no port"));
        assert_eq!(of(json!([])).unwrap(), (Vec::new(), BTreeSet::new()));
        assert_eq!(of(json!({})).unwrap_err(), "the answer is not a list");
        assert_eq!(of(Value::Null).unwrap_err(), "the answer is not a list");
    }
}
