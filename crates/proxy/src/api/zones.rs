//! The objects of zones: servers, locations, limits.

use balanza_config::model::membership::Protocol;
use serde_json::{Map, Value, json};

use super::objects::{classes, requests};
use super::plane::View;
use super::service::Service;
use crate::limits::{Decisions, Zones};
use crate::metrics::Requests;

/// The names of the zones of servers.
pub fn names(view: &View, protocol: Protocol) -> &[String] {
    match protocol {
        Protocol::Http => &view.generation.config.http.status_zones,
        Protocol::Stream => &view.generation.config.stream.status_zones,
    }
}

/// `/http/requests`.
pub fn all_requests(view: &View) -> Value {
    let metrics = &view.generation.metrics;
    let current: u64 = counted(view, Protocol::Http).iter().map(|(_, requests)| requests.processing).sum();
    json!({ "total": metrics.connections.sum(&()).requests, "current": current })
}

/// What each zone has counted.
pub fn counted(view: &View, protocol: Protocol) -> Vec<(&str, Requests)> {
    let names = names(view, protocol);
    let keys: Vec<_> = names.iter().map(|name| (protocol, name.clone())).collect();
    names.iter().map(String::as_str).zip(view.generation.metrics.zones.sums(keys.iter())).collect()
}

/// `/http/server_zones` or `/stream/server_zones`.
pub fn servers(view: &View, protocol: Protocol) -> Value {
    let objects = counted(view, protocol).into_iter().map(|(name, sum)| (name.to_owned(), object(&sum, protocol)));
    Value::Object(objects.collect())
}

/// One of them.
pub fn server(view: &View, protocol: Protocol, name: &str) -> Value {
    object(&view.generation.metrics.zones.sum(&(protocol, name.to_owned())), protocol)
}

fn object(of: &Requests, protocol: Protocol) -> Value {
    if protocol == Protocol::Http {
        let mut object = requests(of, of.processing);
        object.insert("processing".into(), json!(of.processing));
        return Value::Object(object);
    }
    let [_, ok, _, refused, failed] = classes(&of.statuses);
    let sessions = json!({ "2xx": ok, "4xx": refused, "5xx": failed, "total": ok + refused + failed });
    json!({
        "processing": of.processing,
        "connections": of.ended() + of.processing,
        "sessions": sessions,
        "discarded": of.discarded,
        "received": of.received,
        "sent": of.sent,
    })
}

/// `/http/location_zones`.
pub fn locations(view: &View) -> Value {
    let names = &view.generation.config.http.location_zones;
    let sums = view.generation.metrics.locations.sums(names.iter());
    let objects = names.iter().cloned().zip(sums.iter().map(|sum| Value::Object(requests(sum, 0))));
    Value::Object(objects.collect())
}

/// One of them.
pub fn location(view: &View, name: &str) -> Value {
    Value::Object(requests(&view.generation.metrics.locations.sum(&name.to_owned()), 0))
}

/// A kind of limits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    /// `limit_req_zone`.
    Requests,
    /// `limit_conn_zone` of `http`.
    Connections,
    /// `limit_conn_zone` of `stream`.
    Sessions,
}

impl Limits {
    /// Those of `limit_conn`.
    pub fn of_connections(protocol: Protocol) -> Limits {
        if protocol == Protocol::Http { Limits::Connections } else { Limits::Sessions }
    }

    /// A name for it.
    pub fn text(self) -> &'static str {
        match self {
            Limits::Requests => "requests",
            Limits::Connections => "connections",
            Limits::Sessions => "sessions",
        }
    }

    /// The zones with what they have decided.
    pub fn zones(self, zones: &Zones) -> Vec<(String, Decisions)> {
        let of_connections = match self {
            Limits::Requests => {
                return zones.requests.iter().map(|zone| (zone.name.clone(), zone.counts().sum())).collect();
            }
            Limits::Connections => &zones.connections,
            Limits::Sessions => &zones.sessions,
        };
        of_connections.iter().map(|zone| (zone.name.clone(), zone.counts().sum())).collect()
    }
}

/// `/http/limit_reqs`, `/http/limit_conns` or `/stream/limit_conns`.
pub fn limits(service: &Service, view: &View, kind: Limits) -> Value {
    let zones = kind.zones(&view.generation.limits).into_iter();
    let objects = zones.map(|(name, decisions)| {
        let shown = limit(service, kind, &name, &decisions);
        (name, shown)
    });
    Value::Object(objects.collect())
}

/// What a zone has decided since it was reset.
pub fn limit(service: &Service, kind: Limits, name: &str, now: &Decisions) -> Value {
    let counts = decided(service, kind, name, now).into_iter();
    Value::Object(counts.map(|(name, count)| (name.to_owned(), json!(count))).collect::<Map<_, _>>())
}

/// The same by the names of the API. Zones of connections delay nothing.
pub fn decided(service: &Service, kind: Limits, name: &str, now: &Decisions) -> Vec<(&'static str, u64)> {
    let before = service.decisions.get(&(kind.text(), name.to_owned())).copied().unwrap_or_default();
    let counts = [
        ("passed", now.passed, before.passed),
        ("rejected", now.rejected, before.rejected),
        ("rejected_dry_run", now.rejected_dry_run, before.rejected_dry_run),
        ("delayed", now.delayed, before.delayed),
        ("delayed_dry_run", now.delayed_dry_run, before.delayed_dry_run),
    ];
    let shown = if kind == Limits::Requests { &counts[..] } else { &counts[..3] };
    shown.iter().map(|(name, now, before)| (*name, now.saturating_sub(*before))).collect()
}
