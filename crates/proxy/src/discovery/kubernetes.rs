//! Kubernetes: the endpoints of a service, from its EndpointSlices.
//!
//! The slices are listed once, and a watch from the list's resource version on tells of every change. The API server ends
//! a watch after a minute; the next one begins where it ended, with the version of the last event or bookmark. If that
//! version is too old (410 Gone), the slices are listed again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use balanza_config::model::{ServerAddress, UpstreamServer, discover};
use serde_json::Value;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::api::{self, PATIENCE, Request, encode};
use super::server;
use super::sink::{Entries, Sink, limit, short};
use super::task::{Discovery, LEAST};

/// How long a watch lasts.
const WATCH: Duration = Duration::from_secs(60);
/// The API server's word for a version that it does not have any more.
const GONE: u64 = 410;

/// A source.
pub struct Kubernetes {
    conf: discover::Kubernetes,
}

/// The endpoints of a slice, and what is wrong with the others.
#[derive(Debug, Default)]
struct Slice {
    is_v6: bool,
    servers: Vec<UpstreamServer>,
    complaints: BTreeSet<String>,
}

/// What is known: slices by name, and the version that they are of.
#[derive(Debug, Default)]
struct Known {
    slices: BTreeMap<String, Slice>,
    /// How many entries the slices have.
    entries: usize,
    version: String,
}

impl Slice {
    fn entries(&self) -> usize {
        1 + self.servers.len() + self.complaints.len()
    }
}

impl Known {
    fn insert(&mut self, name: String, slice: Slice) -> Result<(), String> {
        self.entries += slice.entries();
        let before = self.slices.insert(name, slice);
        self.entries -= before.map_or(0, |slice| slice.entries());
        limit(self.entries)
    }

    fn remove(&mut self, name: &str) {
        self.entries -= self.slices.remove(name).map_or(0, |slice| slice.entries());
    }
}

/// What a line of a watch did.
#[derive(Debug, PartialEq)]
enum News {
    Changed,
    /// Only the version is another one.
    Version,
    /// The slices are to be listed again.
    Again,
}

impl Discovery for Kubernetes {
    async fn follow(&mut self, to: &mut Sink) -> Result<(), String> {
        let request = Request { target: self.target(None), ..Request::default() };
        let list = api::send(&self.conf.api, &request, PATIENCE).await?.json().await?;
        let mut known = self.read_list(to.template(), &list)?;
        to.tell(servers(&known))?;
        let mut changed = false;
        loop {
            let begun = Instant::now();
            let request = Request { target: self.target(Some(&known.version)), ..Request::default() };
            let watch = api::send(&self.conf.api, &request, PATIENCE).await?;
            if u64::from(watch.status) == GONE {
                return Ok(());
            }
            let mut watch = watch.good().await?;
            loop {
                tokio::select! {
                    line = timeout(WATCH + PATIENCE, watch.line()) => {
                        let Some(line) = line.map_err(|_| "the watch did not end in time")?? else { break };
                        match self.apply(&mut known, to.template(), line)? {
                            News::Changed => changed = true,
                            News::Version => {}
                            News::Again => return Ok(()),
                        }
                        yield_now().await;
                    }
                    () = to.ready(), if changed => {
                        changed = false;
                        to.tell(servers(&known))?;
                    }
                }
            }
            // As rarely as a source is asked from the beginning.
            sleep_until(begun + LEAST).await;
        }
    }
}

impl Kubernetes {
    /// With this configuration.
    pub fn new(conf: discover::Kubernetes) -> Kubernetes {
        Kubernetes { conf }
    }

    /// Of the list, or of a watch from a version on.
    fn target(&self, version: Option<&str>) -> String {
        let selector = encode(&format!("kubernetes.io/service-name={}", self.conf.service));
        let namespace = encode(&self.conf.namespace);
        let list = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}");
        match version {
            None => list,
            Some(version) => format!(
                "{list}&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
                WATCH.as_secs(),
                encode(version)
            ),
        }
    }

    fn read_list(&self, template: &UpstreamServer, list: &Value) -> Result<Known, String> {
        let version = version_of(list).ok_or("the answer has no resourceVersion")?;
        let items = list["items"].as_array().ok_or("the answer has no list of items")?;
        let mut known = Known { version, ..Known::default() };
        for item in items {
            known.insert(name_of(item)?, self.read_slice(template, item))?;
        }
        Ok(known)
    }

    /// Takes over a line of a watch.
    fn apply(&self, known: &mut Known, template: &UpstreamServer, line: &[u8]) -> Result<News, String> {
        let event: Value = serde_json::from_slice(line).map_err(|error| format!("an event is not JSON: {error}"))?;
        let object = &event["object"];
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "ERROR" {
            if object["code"].as_u64() == Some(GONE) {
                return Ok(News::Again);
            }
            return Err(format!("the watch has failed: {}", object["message"].as_str().unwrap_or("no message")));
        }
        let version = version_of(object).ok_or("an event has no resourceVersion")?;
        let news = match kind {
            "BOOKMARK" => News::Version,
            "ADDED" | "MODIFIED" => {
                known.insert(name_of(object)?, self.read_slice(template, object))?;
                News::Changed
            }
            "DELETED" => {
                known.remove(&name_of(object)?);
                News::Changed
            }
            _ => return Err(format!("an event has the unknown type \"{kind}\"")),
        };
        known.version = version;
        Ok(news)
    }

    fn read_slice(&self, template: &UpstreamServer, slice: &Value) -> Slice {
        let mut read = Slice { is_v6: slice["addressType"] == "IPv6", ..Slice::default() };
        let name = slice["metadata"]["name"].as_str().unwrap_or("?");
        let port = match self.port(slice) {
            Ok(port) => port,
            Err(why) => {
                read.complaints.insert(short(&format!("slice \"{name}\" is left out: {why}")).to_owned());
                return read;
            }
        };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let Some(draining) = is_draining(&endpoint["conditions"]) else { continue };
            // Its addresses are equivalent, and the first is to be used.
            let address = endpoint["addresses"][0].as_str().unwrap_or_default();
            match address.parse::<IpAddr>() {
                Ok(ip) => {
                    let mut server = server::at(template, ServerAddress::Inet(SocketAddr::new(ip, port)));
                    server.draining |= draining;
                    read.servers.push(server);
                }
                Err(_) => {
                    let why =
                        format!("an endpoint of slice \"{name}\" is left out: \"{address}\" is not an IP address");
                    read.complaints.insert(short(&why).to_owned());
                }
            }
        }
        read
    }

    /// The port with the configured name or number, or the only one.
    fn port(&self, slice: &Value) -> Result<u16, String> {
        let ports: Vec<&Value> = slice["ports"].as_array().into_iter().flatten().collect();
        let found = match &self.conf.port {
            None => match ports.as_slice() {
                [only] => Some(only["port"].clone()),
                [] => return Err("it has no port: set port=".into()),
                _ => return Err("it has several ports: set port=".into()),
            },
            Some(wanted) => {
                let is_wanted = |port: &&&Value| {
                    port["name"] == wanted.as_str() || port["port"].as_u64().is_some_and(|it| it.to_string() == *wanted)
                };
                match ports.iter().find(is_wanted) {
                    Some(port) => Some(port["port"].clone()),
                    // A slice without ports is one for all of them.
                    None if ports.is_empty() => wanted.parse::<u16>().ok().map(Value::from),
                    None => return Err(format!("it has no port \"{wanted}\"")),
                }
            }
        };
        found.as_ref().and_then(server::port).ok_or_else(|| "its port has no number".into())
    }
}

/// What the conditions of an endpoint come to: none if it takes no requests. One that terminates serves the clients that it
/// has.
fn is_draining(conditions: &Value) -> Option<bool> {
    let condition = |name: &str| conditions[name].as_bool();
    // Unknown is to be taken as ready.
    match condition("ready").unwrap_or(true) {
        true => Some(false),
        false if condition("serving") == Some(true) && condition("terminating") == Some(true) => Some(true),
        false => None,
    }
}

fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}

fn name_of(object: &Value) -> Result<String, String> {
    object["metadata"]["name"].as_str().map(str::to_owned).ok_or_else(|| "a slice has no name".into())
}

/// The servers of all slices. A service with both families has each endpoint in slices of both: those of IPv4 are used.
fn servers(known: &Known) -> Entries {
    let has_v4 = known.slices.values().any(|slice| !slice.is_v6 && !slice.servers.is_empty());
    let used = || known.slices.values().filter(|slice| !(has_v4 && slice.is_v6));
    let mut servers: Vec<UpstreamServer> = used().flat_map(|slice| slice.servers.iter().cloned()).collect();
    // While an endpoint moves to another slice it is in both.
    servers.sort_by_key(|server| server.draining);
    (servers, used().flat_map(|slice| slice.complaints.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use balanza_config::model::discover::{Api, Place};
    use serde_json::json;

    use super::*;
    use crate::discovery::sink::MOST;
    use crate::discovery::sink::tests::server;

    fn kubernetes(port: Option<&str>) -> Kubernetes {
        let api = Api { place: Place::Host("k".into(), 443), authority: "k:443".into(), tls: None, token: None };
        let (namespace, service) = ("default".into(), "web".into());
        Kubernetes::new(discover::Kubernetes { api, namespace, service, port: port.map(str::to_owned) })
    }

    fn slice(name: &str, version: &str, endpoints: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": version,
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]})
    }

    fn endpoint(address: &str, ready: bool, serving: bool, terminating: bool) -> Value {
        json!({"addresses": [address], "nodeName": "n1",
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
    }

    fn shown(known: &Known) -> Vec<(String, bool)> {
        servers(known).0.into_iter().map(|server| (server.name, server.draining)).collect()
    }

    #[test]
    fn targets() {
        let list = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
            ?labelSelector=kubernetes.io%2Fservice-name%3Dweb";
        let kubernetes = kubernetes(None);
        assert_eq!(kubernetes.target(None), list);
        let watch = format!("{list}&watch=1&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=7");
        assert_eq!(kubernetes.target(Some("7")), watch);
    }

    #[test]
    fn conditions_decide() {
        let of = |conditions| is_draining(&conditions);
        assert_eq!(of(json!({"ready": true})), Some(false));
        assert_eq!(of(Value::Null), Some(false), "unknown is ready");
        assert_eq!(of(json!({"ready": false, "serving": true, "terminating": true})), Some(true));
        assert_eq!(of(json!({"ready": false, "serving": false, "terminating": true})), None);
        assert_eq!(of(json!({"ready": false, "serving": true, "terminating": false})), None);
        assert_eq!(of(json!({"ready": false})), None);
        // publishNotReadyAddresses.
        assert_eq!(of(json!({"ready": true, "serving": true, "terminating": true})), Some(false));
    }

    #[test]
    fn lists_and_events() {
        let (kubernetes, template) = (kubernetes(None), server(0));
        let endpoints = json!([endpoint("10.0.0.1", true, true, false), endpoint("10.0.0.2", false, false, false),
            endpoint("10.0.0.3", false, true, true), {"addresses": ["pod"]}]);
        let list = json!({"metadata": {"resourceVersion": "5"}, "items": [slice("web-a", "4", &endpoints)]});
        let mut known = kubernetes.read_list(&template, &list).unwrap();
        let expected = [("10.0.0.1:8080".to_owned(), false), ("10.0.0.3:8080".to_owned(), true)];
        assert_eq!((shown(&known).as_slice(), known.version.as_str()), (expected.as_slice(), "5"));
        let complaint = "an endpoint of slice \"web-a\" is left out: \"pod\" is not an IP address";
        assert_eq!(servers(&known).1.first().unwrap(), complaint);
        let mut apply = |kind: &str, object: &Value| {
            let line = json!({"type": kind, "object": object}).to_string();
            (kubernetes.apply(&mut known, &template, line.as_bytes()), shown(&known).len(), known.version.clone())
        };
        let more = json!([endpoint("10.0.0.4", true, true, false)]);
        assert_eq!(apply("ADDED", &slice("web-b", "6", &more)), (Ok(News::Changed), 3, "6".into()));
        let bookmark = json!({"metadata": {"resourceVersion": "8"}});
        assert_eq!(apply("BOOKMARK", &bookmark), (Ok(News::Version), 3, "8".into()));
        assert_eq!(apply("MODIFIED", &slice("web-a", "9", &more)), (Ok(News::Changed), 2, "9".into()));
        assert_eq!(apply("DELETED", &slice("web-a", "10", &more)), (Ok(News::Changed), 1, "10".into()));
        let gone = json!({"kind": "Status", "code": 410, "message": "too old resource version"});
        assert_eq!(apply("ERROR", &gone).0, Ok(News::Again));
        let error = json!({"kind": "Status", "code": 500, "message": "etcd has left"});
        assert_eq!(apply("ERROR", &error).0, Err("the watch has failed: etcd has left".into()));
        assert_eq!(apply("ADDED", &json!({})).0, Err("an event has no resourceVersion".into()));
        assert_eq!(apply("ADDED", &bookmark).0, Err("a slice has no name".into()));
        assert_eq!(apply("LOST", &bookmark).0, Err("an event has the unknown type \"LOST\"".into()));
        assert!(kubernetes.apply(&mut known, &template, b"<html>").unwrap_err().starts_with("an event is not JSON"));
        let wrong = |list: Value| kubernetes.read_list(&template, &list).unwrap_err();
        assert_eq!(wrong(json!({})), "the answer has no resourceVersion");
        assert_eq!(wrong(json!({"metadata": {"resourceVersion": "1"}})), "the answer has no list of items");
    }

    #[test]
    fn too_many_entries_are_refused() {
        let (kubernetes, template) = (kubernetes(None), server(0));
        let mut known = Known::default();
        let mut apply = |kind: &str, name: &str, count: usize| {
            let endpoints = (0..count).map(|i| json!({"addresses": [format!("10.0.{}.{}", i >> 8, i & 255)]}));
            let object = slice(name, "1", &endpoints.collect());
            kubernetes.apply(&mut known, &template, json!({"type": kind, "object": object}).to_string().as_bytes())
        };
        // The slices count as well.
        apply("ADDED", "a", MOST - 4).unwrap();
        apply("MODIFIED", "a", MOST - 3).unwrap();
        apply("ADDED", "b", 1).unwrap();
        assert_eq!(apply("ADDED", "c", 0), Err("it has more than 65536 entries".into()));
        apply("DELETED", "c", 0).unwrap();
        apply("DELETED", "b", 0).unwrap();
        apply("DELETED", "b", 0).unwrap();
        apply("ADDED", "d", 1).unwrap();
        assert_eq!(known.entries, MOST);
    }

    #[test]
    fn ports() {
        let of = |port: Option<&str>, ports: Value| kubernetes(port).port(&json!({ "ports": ports }));
        let two = json!([{"name": "http", "port": 8080}, {"name": "metrics", "port": 9000}]);
        assert_eq!(of(Some("metrics"), two.clone()), Ok(9000));
        assert_eq!(of(Some("8080"), two.clone()), Ok(8080));
        assert_eq!(of(None, json!([{"port": 80}])), Ok(80));
        assert_eq!(of(Some("81"), Value::Null), Ok(81));
        assert_eq!(of(None, two.clone()), Err("it has several ports: set port=".into()));
        assert_eq!(of(Some("admin"), two), Err("it has no port \"admin\"".into()));
        assert_eq!(of(None, json!([])), Err("it has no port: set port=".into()));
        assert_eq!(of(None, json!([{"name": "http"}])), Err("its port has no number".into()));
        let complaints = kubernetes(Some("x")).read_slice(&server(0), &slice("a", "1", &json!([]))).complaints;
        assert_eq!(complaints.first().unwrap(), "slice \"a\" is left out: it has no port \"x\"");
    }

    #[test]
    fn families_and_duplicates() {
        let kubernetes = kubernetes(None);
        let mut six = slice("web-six", "1", &json!([endpoint("fd00::1", true, true, false)]));
        six["addressType"] = json!("IPv6");
        let list = |items: &[&Value]| json!({"metadata": {"resourceVersion": "1"}, "items": items});
        let shown_of = |items: &[&Value]| shown(&kubernetes.read_list(&server(0), &list(items)).unwrap());
        let four = slice("web-a", "1", &json!([endpoint("10.0.0.1", false, true, true)]));
        let moved = slice("web-b", "1", &json!([endpoint("10.0.0.1", true, true, false)]));
        assert_eq!(shown_of(&[&six]), [("[fd00::1]:8080".to_owned(), false)]);
        // The sink keeps the first of two servers with one address.
        let address = || "10.0.0.1:8080".to_owned();
        assert_eq!(shown_of(&[&six, &four, &moved]), [(address(), false), (address(), true)]);
    }
}
