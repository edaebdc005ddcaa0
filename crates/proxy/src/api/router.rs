//! What a path means.

use std::sync::Arc;

use balanza_config::model::Level;
use balanza_config::model::membership::Protocol;
use balanza_net::shortage::describe;
use serde_json::{Value, json};

use super::objects::only_fields;
use super::plane::View;
use super::service::Service;
use super::{Failure, keyvals, own, prometheus, server, upstreams, zones};
use crate::desk::{Answer, Ask};
use crate::keyval::Pairs;
use crate::log::error::ErrorWriter;
use crate::running_config::Generation;

/// The versions that are answered, all with the objects of the last one.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=9;

/// A method that is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

/// What is sent back.
pub enum Reply {
    /// JSON.
    Value(u16, Value),
    /// A status alone.
    Done(u16),
}

impl From<Value> for Reply {
    fn from(value: Value) -> Reply {
        Reply::Value(200, value)
    }
}

/// Answers a request.
pub fn answer(service: &mut Service, ask: &Ask) -> Answer {
    if ask.metrics {
        return match service.view() {
            Ok(view) => {
                let body = prometheus::text(service, &view).into_bytes();
                Answer { status: 200, content_type: "text/plain; version=0.0.4", body }
            }
            Err(failure) => failure.answer(""),
        };
    }
    match route(service, ask) {
        Ok(Reply::Value(status, value)) => {
            let value = match argument(&ask.args, "fields") {
                Some(fields) if ask.method != "POST" && ask.method != "PATCH" => {
                    let fields: Vec<&str> = fields.split(',').filter(|name| !name.is_empty()).collect();
                    only_fields(value, &fields, is_collection(&ask.path))
                }
                _ => value,
            };
            Answer { status, content_type: "application/json", body: value.to_string().into_bytes() }
        }
        Ok(Reply::Done(status)) => Answer { status, ..Answer::default() },
        Err(failure) => failure.answer(&ask.request_id),
    }
}

/// Whether a path has several objects.
fn is_collection(path: &str) -> bool {
    const COLLECTIONS: [&str; 10] = [
        "server_zones",
        "location_zones",
        "limit_conns",
        "limit_reqs",
        "upstreams",
        "caches",
        "slabs",
        "resolvers",
        "keyvals",
        "workers",
    ];
    path.trim_end_matches('/').rsplit('/').next().is_some_and(|last| COLLECTIONS.contains(&last))
}

/// The value of an argument of the query.
fn argument<'a>(args: &'a str, name: &str) -> Option<&'a str> {
    args.split('&')
        .filter_map(|argument| argument.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn route(service: &mut Service, ask: &Ask) -> Result<Reply, Failure> {
    let method = match ask.method.as_str() {
        "GET" | "HEAD" => Method::Get,
        "POST" if ask.write => Method::Post,
        "PATCH" if ask.write => Method::Patch,
        "DELETE" if ask.write => Method::Delete,
        _ => return Err(Failure::no_method()),
    };
    let path: Vec<&str> = ask.path.split('/').filter(|part| !part.is_empty()).collect();
    let Some((version, path)) = path.split_first() else {
        return only_get(method, || json!(VERSIONS.collect::<Vec<u8>>()));
    };
    if *version == "balanza" {
        let view = service.view()?;
        return own(service, &view, method, path, ask);
    }
    if !version.parse().is_ok_and(|version: u8| VERSIONS.contains(&version)) {
        return Err(Failure::new(404, "UnknownVersion", "unknown version"));
    }
    let view = service.view()?;
    match path {
        ["http", rest @ ..] => http(service, &view, method, rest, ask),
        ["stream", rest @ ..] if has_stream(&view) => stream(service, &view, method, rest, ask),
        _ => whole(service, &view, method, path, ask),
    }
}

fn own(service: &Service, view: &View, method: Method, path: &[&str], ask: &Ask) -> Result<Reply, Failure> {
    use Protocol::{Http, Stream};
    let upstream = |protocol: Protocol, name: &str| {
        let shared = view.upstream(protocol, name);
        shared.ok_or_else(|| Failure::new(404, "UpstreamNotFound", "upstream not found"))
    };
    match path {
        [] => only_get(method, || json!(["access", "events", "http", "stream"])),
        ["access"] => only_get(method, || json!({ "write": ask.write })),
        ["events"] => {
            let since = argument(&ask.args, "since").and_then(|number| number.parse().ok()).unwrap_or(0);
            only_get(method, || own::events(service, since))
        }
        ["http"] => only_get(method, || json!(["server_zones", "location_zones", "upstreams"])),
        ["stream"] => only_get(method, || json!(["server_zones", "upstreams"])),
        ["http", "server_zones"] => only_get(method, || own::server_zones(service, view, Http)),
        ["stream", "server_zones"] => only_get(method, || own::server_zones(service, view, Stream)),
        ["http", "location_zones"] => only_get(method, || own::location_zones(service, view)),
        ["http", "upstreams"] => only_get(method, || own::upstreams(service, view, Http)),
        ["stream", "upstreams"] => only_get(method, || own::upstreams(service, view, Stream)),
        ["http", "upstreams", name] => {
            let shared = upstream(Http, name)?;
            only_get(method, || own::upstream(service, view, shared))
        }
        ["stream", "upstreams", name] => {
            let shared = upstream(Stream, name)?;
            only_get(method, || own::upstream(service, view, shared))
        }
        _ => Err(Failure::no_path()),
    }
}

fn has_stream(view: &View) -> bool {
    let stream = &view.generation.config.stream;
    !stream.listens.is_empty() || !stream.upstreams.is_empty()
}

fn only_get(method: Method, value: impl FnOnce() -> Value) -> Result<Reply, Failure> {
    if method == Method::Get { Ok(value().into()) } else { Err(Failure::no_method()) }
}

/// An object that can be reset.
fn resettable(method: Method, value: impl FnOnce() -> Value, reset: impl FnOnce()) -> Result<Reply, Failure> {
    match method {
        Method::Get => Ok(value().into()),
        Method::Delete => {
            reset();
            Ok(Reply::Done(204))
        }
        Method::Post | Method::Patch => Err(Failure::no_method()),
    }
}

fn whole(service: &mut Service, view: &View, method: Method, path: &[&str], ask: &Ask) -> Result<Reply, Failure> {
    let metrics = &view.generation.metrics;
    match path {
        [] => only_get(method, || {
            let all = [
                "nginx",
                "processes",
                "connections",
                "slabs",
                "http",
                "stream",
                "resolvers",
                "ssl",
                "license",
                "workers",
            ];
            all.into_iter().filter(|name| *name != "stream" || has_stream(view)).collect()
        }),
        ["nginx"] => only_get(method, || server::about(view, &ask.address)),
        ["processes"] => {
            let respawned = view.respawned.saturating_sub(service.respawned);
            resettable(method, || json!({ "respawned": respawned }), || service.respawned = view.respawned)
        }
        ["connections"] => resettable(
            method,
            || server::connections(&metrics.connections.sum(&())),
            || {
                metrics.connections.reset(&(), |before, now| {
                    (before.accepted, before.dropped) = (now.accepted, now.dropped);
                });
            },
        ),
        ["ssl"] => resettable(
            method,
            || server::handshakes(&metrics.connections.sum(&())),
            || {
                metrics.connections.reset(&(), |before, now| {
                    before.handshakes = now.handshakes;
                    before.handshakes_failed = now.handshakes_failed;
                    before.session_reuses = now.session_reuses;
                });
            },
        ),
        ["slabs"] => only_get(method, || json!({})),
        ["slabs", _] => Err(Failure::new(404, "SlabNotFound", "slab not found")),
        ["license"] => only_get(method, || json!({})),
        ["resolvers"] => only_get(method, || server::resolvers(service, view)),
        ["resolvers", name] => {
            let Some(counts) = server::resolver(view, name) else {
                return Err(Failure::new(404, "ResolverZoneNotFound", "resolver zone not found"));
            };
            let shown = server::resolver_object(service.resolvers.get(*name), &counts);
            resettable(
                method,
                || shown,
                || {
                    service.resolvers.insert((*name).to_owned(), counts);
                },
            )
        }
        ["workers"] => {
            only_get(method, || (0..view.workers.len()).map(|id| server::worker(service, view, id)).collect())
        }
        ["workers", id] => match id.parse().ok().filter(|id| *id < view.workers.len()) {
            Some(id) => {
                let shown = server::worker(service, view, id);
                resettable(method, || shown, || server::reset_worker(service, view, id))
            }
            None => Err(Failure::new(404, "WorkerNotFound", "worker not found")),
        },
        _ => Err(Failure::no_path()),
    }
}

fn http(service: &mut Service, view: &View, method: Method, path: &[&str], ask: &Ask) -> Result<Reply, Failure> {
    let metrics = &view.generation.metrics;
    let protocol = Protocol::Http;
    match path {
        [] => only_get(method, || {
            json!([
                "requests",
                "server_zones",
                "location_zones",
                "caches",
                "limit_conns",
                "limit_reqs",
                "upstreams",
                "keyvals"
            ])
        }),
        ["requests"] => resettable(
            method,
            || zones::all_requests(view),
            || metrics.connections.reset(&(), |before, now| before.requests = now.requests),
        ),
        ["server_zones"] => only_get(method, || zones::servers(view, protocol)),
        ["server_zones", name] => server_zone(view, protocol, method, name),
        ["location_zones"] => only_get(method, || zones::locations(view)),
        ["location_zones", name] => {
            if !view.generation.config.http.location_zones.iter().any(|zone| zone == name) {
                return Err(Failure::new(404, "LocationZoneNotFound", "location zone not found"));
            }
            let key = (*name).to_owned();
            resettable(
                method,
                || zones::location(view, name),
                || metrics.locations.reset(&key, |before, now| *before = now),
            )
        }
        ["caches"] => only_get(method, || json!({})),
        ["caches", _] => Err(Failure::new(404, "CacheNotFound", "cache not found")),
        ["keyvals", rest @ ..] => pairs(view, &view.generation.keyvals.http, method, rest, ask),
        ["limit_conns", rest @ ..] => limits(service, view, method, zones::Limits::Connections, rest),
        ["limit_reqs", rest @ ..] => limits(service, view, method, zones::Limits::Requests, rest),
        ["upstreams", rest @ ..] => upstream(service, view, protocol, method, rest, ask),
        _ => Err(Failure::no_path()),
    }
}

fn stream(service: &mut Service, view: &View, method: Method, path: &[&str], ask: &Ask) -> Result<Reply, Failure> {
    let protocol = Protocol::Stream;
    match path {
        [] => only_get(method, || json!(["server_zones", "limit_conns", "upstreams", "keyvals"])),
        ["server_zones"] => only_get(method, || zones::servers(view, protocol)),
        ["server_zones", name] => server_zone(view, protocol, method, name),
        ["keyvals", rest @ ..] => pairs(view, &view.generation.keyvals.stream, method, rest, ask),
        ["limit_conns", rest @ ..] => limits(service, view, method, zones::Limits::Sessions, rest),
        ["upstreams", rest @ ..] => upstream(service, view, protocol, method, rest, ask),
        _ => Err(Failure::no_path()),
    }
}

fn server_zone(view: &View, protocol: Protocol, method: Method, name: &str) -> Result<Reply, Failure> {
    if !zones::names(view, protocol).iter().any(|zone| zone == name) {
        return Err(Failure::new(404, "ServerZoneNotFound", "server zone not found"));
    }
    let key = (protocol, name.to_owned());
    resettable(
        method,
        || zones::server(view, protocol, name),
        || {
            view.generation.metrics.zones.reset(&key, |before, now| *before = now);
        },
    )
}

fn pairs(view: &View, zones: &[Arc<Pairs>], method: Method, path: &[&str], ask: &Ask) -> Result<Reply, Failure> {
    let [name] = path else {
        return if path.is_empty() { only_get(method, || keyvals::all(zones)) } else { Err(Failure::no_path()) };
    };
    let zone = zones.iter().find(|zone| zone.conf.name == *name);
    let zone = zone.ok_or_else(|| Failure::new(404, "KeyvalNotFound", "keyval not found"))?;
    let (status, saved) = match method {
        Method::Get => return keyvals::one(zone, argument(&ask.args, "key")).map(Reply::from),
        Method::Post => (201, keyvals::add(zone, &ask.body)?),
        Method::Patch => (204, keyvals::set(zone, &ask.body)?),
        Method::Delete => (204, zone.clear()),
    };
    if let Err(error) = saved {
        let Generation { config, logs, .. } = &*view.generation;
        let log = ErrorWriter::new(&config.core.error_log, logs);
        log.write(
            Level::Error,
            format_args!("the state of keyval zone \"{name}\" was not written {}", describe(&error)),
        );
    }
    Ok(Reply::Done(status))
}

fn limits(
    service: &mut Service,
    view: &View,
    method: Method,
    kind: zones::Limits,
    path: &[&str],
) -> Result<Reply, Failure> {
    match path {
        [] => only_get(method, || zones::limits(service, view, kind)),
        [name] => {
            let decisions = kind.zones(&view.generation.limits).into_iter().find(|(zone, _)| zone == name);
            let Some((_, decisions)) = decisions else {
                let code = if kind == zones::Limits::Requests { "LimitReqNotFound" } else { "LimitConnNotFound" };
                return Err(Failure::new(404, code, "limit zone not found"));
            };
            let shown = zones::limit(service, kind, name, &decisions);
            let key = (kind.text(), (*name).to_owned());
            resettable(
                method,
                || shown,
                || {
                    service.decisions.insert(key, decisions);
                },
            )
        }
        _ => Err(Failure::no_path()),
    }
}

fn upstream(
    service: &mut Service,
    view: &View,
    protocol: Protocol,
    method: Method,
    path: &[&str],
    ask: &Ask,
) -> Result<Reply, Failure> {
    let [name, rest @ ..] = path else { return only_get(method, || upstreams::all(service, view, protocol)) };
    let shared = view.upstream(protocol, name);
    let shared = shared.ok_or_else(|| Failure::new(404, "UpstreamNotFound", "upstream not found"))?;
    if method != Method::Get && shared.conf.zone.is_none() {
        return Err(Failure::new(400, "UpstreamStatic", "upstream is static: it has no \"zone\""));
    }
    match (method, rest) {
        (Method::Get, []) => Ok(upstreams::one(service, view, shared).into()),
        (Method::Delete, []) => {
            let servers = &view.generation.metrics.servers;
            shared.membership().ids.iter().for_each(|id| servers.reset(id, |before, now| *before = now));
            Ok(Reply::Done(204))
        }
        (Method::Get, ["servers"]) => Ok(upstreams::servers(shared).into()),
        (Method::Get, ["servers", id]) => upstreams::server(shared, id).map(Reply::from),
        (Method::Post, ["servers"]) => {
            let added = upstreams::add(&mut *service.plane, protocol, name, &ask.body)?;
            Ok(Reply::Value(201, added))
        }
        (Method::Patch, ["servers", id]) => {
            upstreams::set(&mut *service.plane, protocol, name, id, &ask.body).map(Reply::from)
        }
        (Method::Delete, ["servers", id]) => {
            upstreams::remove(&mut *service.plane, protocol, name, id).map(Reply::from)
        }
        (_, [] | ["servers"] | ["servers", _]) => Err(Failure::no_method()),
        _ => Err(Failure::no_path()),
    }
}
