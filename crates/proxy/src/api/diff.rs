//! `/balanza/diff`: what runs otherwise than the configuration has it.

use std::collections::BTreeMap;

use balanza_config::model::UpstreamServer;
use balanza_config::model::membership::{Protocol, ServerKey, keys};
use serde_json::{Map, Value, json};

use super::plane::{Plane, View};
use super::upstreams::parameters;
use crate::servers::membership::Shared;

/// Both protocols; upstreams that are as configured are left out.
pub fn all(plane: &dyn Plane, view: &View) -> Value {
    let of = |protocol: Protocol| -> Map<String, Value> {
        let named = view.upstreams_of(protocol);
        named.filter_map(|shared| one(plane, shared).map(|found| (shared.conf.name.clone(), found))).collect()
    };
    json!({ "http": of(Protocol::Http), "stream": of(Protocol::Stream) })
}

/// An upstream; none if it is as configured.
fn one(plane: &dyn Plane, shared: &Shared) -> Option<Value> {
    let membership = shared.membership();
    let is_listed = plane.listed(shared.protocol, &shared.conf.name);
    let listed = is_listed.as_deref().unwrap_or(&shared.conf.servers);
    let found = Compared {
        protocol: shared.protocol,
        configured: by_key(&shared.conf.servers),
        listed: by_key(listed),
        running: &membership.servers,
        own: plane.own(shared.protocol, &shared.conf.name).unwrap_or(membership.servers.len()),
    };
    let (added, removed, changed) = (found.added(), found.removed(), found.changed());
    let method = membership.balancing.chosen.as_ref();
    if method.is_none() && added.is_empty() && removed.is_empty() && changed.is_empty() {
        return None;
    }
    let mut object = json!({ "added": added, "removed": removed, "changed": changed });
    if let Some(method) = method {
        object["method"] = json!({ "configured": shared.conf.method, "running": method });
    }
    Some(object)
}

fn by_key(servers: &[UpstreamServer]) -> BTreeMap<ServerKey, &UpstreamServer> {
    keys(servers).into_iter().zip(servers).collect()
}

struct Compared<'a> {
    protocol: Protocol,
    /// As the configuration was loaded.
    configured: BTreeMap<ServerKey, &'a UpstreamServer>,
    /// The same with what a watched file says now.
    listed: BTreeMap<ServerKey, &'a UpstreamServer>,
    running: &'a [UpstreamServer],
    /// How many of these, the first ones, do not come from names or other sources.
    own: usize,
}

impl Compared<'_> {
    fn added(&self) -> Vec<Value> {
        let new = |(nth, (key, server)): (usize, (ServerKey, &UpstreamServer))| {
            let by = match self.listed.get(&key) {
                _ if nth >= self.own => "source",
                _ if self.configured.contains_key(&key) => return None,
                Some(_) => "file",
                None => "api",
            };
            let mut object = parameters(self.protocol, server);
            object.insert("by".into(), json!(by));
            Some(Value::Object(object))
        };
        keys(self.running).into_iter().zip(self.running).enumerate().filter_map(new).collect()
    }

    fn removed(&self) -> Vec<Value> {
        let running = by_key(self.running);
        let gone = self.configured.keys().filter(|key| !running.contains_key(*key));
        let by = |key: &ServerKey| if self.listed.contains_key(key) { "api" } else { "file" };
        gone.map(|key| json!({ "server": key.address.to_string(), "by": by(key) })).collect()
    }

    fn changed(&self) -> Vec<Value> {
        let other = |(key, server): (ServerKey, &UpstreamServer)| {
            let before = self.configured.get(&key).filter(|before| ***before != *server)?;
            let by = if self.listed.get(&key).is_some_and(|listed| *listed == server) { "file" } else { "api" };
            let (was, is) = (parameters(self.protocol, before), parameters(self.protocol, server));
            let names = was.keys().chain(is.keys().filter(|name| !was.contains_key(*name)));
            let values = |name: &String| {
                let (was, is) = (was.get(name), is.get(name));
                (was != is).then(|| (name.clone(), json!({ "configured": was, "running": is })))
            };
            let differs: Map<String, Value> = names.filter_map(values).collect();
            Some(json!({ "server": key.address.to_string(), "by": by, "parameters": differs }))
        };
        let own = &self.running[..self.own.min(self.running.len())];
        keys(own).into_iter().zip(own).filter_map(other).collect()
    }
}
