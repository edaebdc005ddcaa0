//! The objects of the program as a whole: its versions, connections, resolvers and workers.

use std::time::SystemTime;

use balanza_config::model::DIALECT_VERSION;
use balanza_resolver::Counts;
use serde_json::{Map, Value, json};

use super::objects::timestamp;
use super::plane::View;
use super::service::Service;
use crate::metrics::Connections;

/// `/nginx`.
pub fn about(view: &View, address: &str) -> Value {
    json!({
        "version": DIALECT_VERSION,
        "build": crate::VERSION,
        "address": address,
        "generation": view.generation.number,
        "load_timestamp": timestamp(view.generation.loaded),
        "timestamp": timestamp(SystemTime::now()),
        "pid": std::process::id(),
        "ppid": rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()),
    })
}

/// `/connections`. Those that wait for a request are idle and not active here.
pub fn connections(now: &Connections) -> Value {
    json!({
        "accepted": now.accepted,
        "dropped": now.dropped,
        "active": now.active.saturating_sub(now.idle),
        "idle": now.idle,
    })
}

/// `/ssl`: those with clients.
pub fn handshakes(now: &Connections) -> Value {
    json!({
        "handshakes": now.handshakes,
        "handshakes_failed": now.handshakes_failed,
        "session_reuses": now.session_reuses,
    })
}

/// `/resolvers`.
pub fn resolvers(service: &Service, view: &View) -> Value {
    let all = view.generation.names.statistics();
    let object = |(name, counts): (String, Counts)| {
        let shown = resolver_object(service.resolvers.get(&name), &counts);
        (name, shown)
    };
    Value::Object(all.into_iter().map(object).collect())
}

/// What a resolver has counted.
pub fn resolver(view: &View, name: &str) -> Option<Counts> {
    view.generation.names.statistics().remove(name)
}

/// What a resolver has counted since it was reset.
pub fn resolver_object(before: Option<&Counts>, now: &Counts) -> Value {
    let before = before.copied().unwrap_or_default();
    let codes = ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused"];
    let counts = now.codes.iter().zip(before.codes).map(|(now, before)| Value::from(now.saturating_sub(before)));
    let mut responses: Map<String, Value> = codes.into_iter().map(str::to_owned).zip(counts).collect();
    responses.insert("timedout".into(), json!(now.timed_out.saturating_sub(before.timed_out)));
    responses.insert("unknown".into(), json!(now.unknown.saturating_sub(before.unknown)));
    let requests = json!({
        "name": now.names.saturating_sub(before.names),
        "srv": now.services.saturating_sub(before.services),
        // Addresses are not looked up.
        "addr": 0,
    });
    json!({ "requests": requests, "responses": responses })
}

fn counted(view: &View, id: usize) -> Connections {
    let serial = view.workers[id];
    let all = view.generation.metrics.connections.of_workers(&());
    all.into_iter().find(|(known, _)| *known == serial).map(|(_, sum)| sum).unwrap_or_default()
}

/// `/workers/ID`. The workers are threads of one process, so that they have its number.
pub fn worker(service: &Service, view: &View, id: usize) -> Value {
    let now = counted(view, id);
    let before = service.workers.get(&view.workers[id]).cloned().unwrap_or_default();
    let shown = Connections {
        accepted: now.accepted.saturating_sub(before.accepted),
        dropped: now.dropped.saturating_sub(before.dropped),
        ..now.clone()
    };
    let requests = json!({ "total": now.requests.saturating_sub(before.requests), "current": now.writing() });
    json!({
        "id": id,
        "pid": std::process::id(),
        "connections": connections(&shown),
        "http": { "requests": requests },
    })
}

/// Counts a worker's connections and requests from 0 again.
pub fn reset_worker(service: &mut Service, view: &View, id: usize) {
    service.workers.retain(|serial, _| view.workers.contains(serial));
    service.workers.insert(view.workers[id], counted(view, id));
}
