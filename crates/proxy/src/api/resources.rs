//! What the operations of the paths do.

use std::sync::Arc;

use balanza_config::model::Level;
use balanza_config::model::membership::Protocol;
use balanza_net::shortage::describe;
use serde_json::{Map, Value, json};

use super::experiments::{Ground, Plan};
use super::row::{Call, Reply};
use super::service::Service;
use super::{Failure, diff, keyvals, openapi, own, server, shadows, sources, upstreams, zones};
use crate::keyval::Pairs;
use crate::log::error::ErrorWriter;
use crate::running_config::Generation;
use crate::servers::membership::Shared;

/// What every operation returns.
pub type Answered = Result<Reply, Failure>;

fn not_found(code: &'static str, what: &str) -> Failure {
    Failure::new(404, code, format!("{what} not found"))
}

/// `openapi.json`.
pub fn description(call: &mut Call<'_>) -> Answered {
    Ok(openapi::document(call.table, &call.ask.base, call.ask.write).into())
}

/// `/nginx`.
pub fn about(call: &mut Call<'_>) -> Answered {
    Ok(server::about(call.view, &call.ask.address).into())
}

/// `/processes`.
pub fn processes(call: &mut Call<'_>) -> Answered {
    Ok(json!({ "respawned": call.view.respawned.saturating_sub(call.service.respawned) }).into())
}

/// Resets it.
pub fn reset_processes(call: &mut Call<'_>) -> Answered {
    call.service.respawned = call.view.respawned;
    Ok(Reply::Done(204))
}

/// `/connections`.
pub fn connections(call: &mut Call<'_>) -> Answered {
    Ok(server::connections(&call.view.generation.metrics.connections.sum(&())).into())
}

/// Resets it.
pub fn reset_connections(call: &mut Call<'_>) -> Answered {
    call.view.generation.metrics.connections.reset(&(), |before, now| {
        (before.accepted, before.dropped) = (now.accepted, now.dropped);
    });
    Ok(Reply::Done(204))
}

/// `/ssl`.
pub fn handshakes(call: &mut Call<'_>) -> Answered {
    Ok(server::handshakes(&call.view.generation.metrics.connections.sum(&())).into())
}

/// Resets it.
pub fn reset_handshakes(call: &mut Call<'_>) -> Answered {
    call.view.generation.metrics.connections.reset(&(), |before, now| {
        before.handshakes = now.handshakes;
        before.handshakes_failed = now.handshakes_failed;
        before.session_reuses = now.session_reuses;
    });
    Ok(Reply::Done(204))
}

/// What Balanza does not have.
pub fn nothing(_: &mut Call<'_>) -> Answered {
    Ok(json!({}).into())
}

/// `/slabs/{zone}`.
pub fn no_slab(_: &mut Call<'_>) -> Answered {
    Err(not_found("SlabNotFound", "slab"))
}

/// `/http/caches/{cache}`.
pub fn no_cache(_: &mut Call<'_>) -> Answered {
    Err(not_found("CacheNotFound", "cache"))
}

/// `/resolvers`.
pub fn resolvers(call: &mut Call<'_>) -> Answered {
    Ok(server::resolvers(call.service, call.view).into())
}

/// One of them.
pub fn resolver(call: &mut Call<'_>) -> Answered {
    let counts = server::resolver(call.view, call.names[0]);
    let counts = counts.ok_or_else(|| not_found("ResolverZoneNotFound", "resolver zone"))?;
    Ok(server::resolver_object(call.service.resolvers.get(call.names[0]), &counts).into())
}

/// Resets it.
pub fn reset_resolver(call: &mut Call<'_>) -> Answered {
    let counts = server::resolver(call.view, call.names[0]);
    let counts = counts.ok_or_else(|| not_found("ResolverZoneNotFound", "resolver zone"))?;
    call.service.resolvers.insert(call.names[0].to_owned(), counts);
    Ok(Reply::Done(204))
}

fn worker_of(call: &Call<'_>) -> Result<usize, Failure> {
    let id = call.names[0].parse().ok().filter(|id| *id < call.view.workers.len());
    id.ok_or_else(|| not_found("WorkerNotFound", "worker"))
}

/// `/workers`.
pub fn workers(call: &mut Call<'_>) -> Answered {
    let all = 0..call.view.workers.len();
    Ok(all.map(|id| server::worker(call.service, call.view, id)).collect::<Value>().into())
}

/// One of them.
pub fn worker(call: &mut Call<'_>) -> Answered {
    Ok(server::worker(call.service, call.view, worker_of(call)?).into())
}

/// Resets it.
pub fn reset_worker(call: &mut Call<'_>) -> Answered {
    let id = worker_of(call)?;
    server::reset_worker(call.service, call.view, id);
    Ok(Reply::Done(204))
}

/// `/http/requests`.
pub fn requests(call: &mut Call<'_>) -> Answered {
    Ok(zones::all_requests(call.view).into())
}

/// Resets it.
pub fn reset_requests(call: &mut Call<'_>) -> Answered {
    call.view.generation.metrics.connections.reset(&(), |before, now| before.requests = now.requests);
    Ok(Reply::Done(204))
}

fn server_zone_of<'c>(call: &Call<'c>) -> Result<&'c str, Failure> {
    let name = call.names[0];
    match zones::names(call.view, call.protocol).iter().any(|zone| zone == name) {
        true => Ok(name),
        false => Err(not_found("ServerZoneNotFound", "server zone")),
    }
}

/// `/http/server_zones` or `/stream/server_zones`.
pub fn server_zones(call: &mut Call<'_>) -> Answered {
    Ok(zones::servers(call.view, call.protocol).into())
}

/// One of them.
pub fn server_zone(call: &mut Call<'_>) -> Answered {
    Ok(zones::server(call.view, call.protocol, server_zone_of(call)?).into())
}

/// Resets it.
pub fn reset_server_zone(call: &mut Call<'_>) -> Answered {
    let key = (call.protocol, server_zone_of(call)?.to_owned());
    call.view.generation.metrics.zones.reset(&key, |before, now| *before = now);
    Ok(Reply::Done(204))
}

fn location_zone_of<'c>(call: &Call<'c>) -> Result<&'c str, Failure> {
    let name = call.names[0];
    match call.view.generation.config.http.location_zones.iter().any(|zone| zone == name) {
        true => Ok(name),
        false => Err(not_found("LocationZoneNotFound", "location zone")),
    }
}

/// `/http/location_zones`.
pub fn location_zones(call: &mut Call<'_>) -> Answered {
    Ok(zones::locations(call.view).into())
}

/// One of them.
pub fn location_zone(call: &mut Call<'_>) -> Answered {
    Ok(zones::location(call.view, location_zone_of(call)?).into())
}

/// Resets it.
pub fn reset_location_zone(call: &mut Call<'_>) -> Answered {
    let key = location_zone_of(call)?.to_owned();
    call.view.generation.metrics.locations.reset(&key, |before, now| *before = now);
    Ok(Reply::Done(204))
}

fn pairs_of<'c>(call: &Call<'c>) -> &'c [Arc<Pairs>] {
    let keyvals = &call.view.generation.keyvals;
    if call.protocol == Protocol::Http { &keyvals.http } else { &keyvals.stream }
}

fn pairs_named<'c>(call: &Call<'c>) -> Result<&'c Arc<Pairs>, Failure> {
    let zone = pairs_of(call).iter().find(|zone| zone.conf.name == call.names[0]);
    zone.ok_or_else(|| not_found("KeyvalNotFound", "keyval"))
}

/// `/http/keyvals` or `/stream/keyvals`.
pub fn keyvals(call: &mut Call<'_>) -> Answered {
    Ok(keyvals::all(pairs_of(call)).into())
}

/// One of them.
pub fn keyval(call: &mut Call<'_>) -> Answered {
    keyvals::one(pairs_named(call)?, call.ask.argument("key")).map(Reply::from)
}

/// Adds pairs.
pub fn add_pairs(call: &mut Call<'_>) -> Answered {
    let zone = pairs_named(call)?;
    Ok(changed_pairs(call, zone, 201, keyvals::add(zone, &call.ask.body)?))
}

/// Changes or removes pairs.
pub fn set_pairs(call: &mut Call<'_>) -> Answered {
    let zone = pairs_named(call)?;
    Ok(changed_pairs(call, zone, 204, keyvals::set(zone, &call.ask.body)?))
}

/// Removes all pairs.
pub fn clear_pairs(call: &mut Call<'_>) -> Answered {
    let zone = pairs_named(call)?;
    Ok(changed_pairs(call, zone, 204, zone.clear()))
}

fn changed_pairs(call: &Call<'_>, zone: &Pairs, status: u16, saved: std::io::Result<()>) -> Reply {
    if let Err(error) = saved {
        let Generation { config, logs, .. } = &*call.view.generation;
        let name = &zone.conf.name;
        ErrorWriter::new(&config.core.error_log, logs).write(
            Level::Error,
            format_args!("the state of keyval zone \"{name}\" was not written {}", describe(&error)),
        );
    }
    Reply::Done(status)
}

/// `/http/limit_reqs`.
pub fn request_limits(call: &mut Call<'_>) -> Answered {
    Ok(zones::limits(call.service, call.view, zones::Limits::Requests).into())
}

/// `/http/limit_conns` or `/stream/limit_conns`.
pub fn connection_limits(call: &mut Call<'_>) -> Answered {
    Ok(zones::limits(call.service, call.view, zones::Limits::of_connections(call.protocol)).into())
}

/// One of `/http/limit_reqs`.
pub fn request_limit(call: &mut Call<'_>) -> Answered {
    limit(call, zones::Limits::Requests)
}

/// One of `/http/limit_conns` or `/stream/limit_conns`.
pub fn connection_limit(call: &mut Call<'_>) -> Answered {
    limit(call, zones::Limits::of_connections(call.protocol))
}

/// Resets one of `/http/limit_reqs`.
pub fn reset_request_limit(call: &mut Call<'_>) -> Answered {
    reset_limit(call, zones::Limits::Requests)
}

/// Resets one of `/http/limit_conns` or `/stream/limit_conns`.
pub fn reset_connection_limit(call: &mut Call<'_>) -> Answered {
    reset_limit(call, zones::Limits::of_connections(call.protocol))
}

fn decisions(call: &Call<'_>, kind: zones::Limits) -> Result<crate::limits::Decisions, Failure> {
    let all = kind.zones(&call.view.generation.limits);
    let code = if kind == zones::Limits::Requests { "LimitReqNotFound" } else { "LimitConnNotFound" };
    let found = all.into_iter().find(|(zone, _)| zone == call.names[0]);
    found.map(|(_, decisions)| decisions).ok_or_else(|| not_found(code, "limit zone"))
}

fn limit(call: &Call<'_>, kind: zones::Limits) -> Answered {
    Ok(zones::limit(call.service, kind, call.names[0], &decisions(call, kind)?).into())
}

fn reset_limit(call: &mut Call<'_>, kind: zones::Limits) -> Answered {
    let now = decisions(call, kind)?;
    call.service.decisions.insert((kind.text(), call.names[0].to_owned()), now);
    Ok(Reply::Done(204))
}

fn upstream_of<'c>(call: &Call<'c>) -> Result<&'c Shared, Failure> {
    let shared = call.view.upstream(call.protocol, call.names[0]);
    shared.ok_or_else(|| not_found("UpstreamNotFound", "upstream"))
}

/// An upstream whose servers may be changed.
fn changeable<'c>(call: &Call<'c>) -> Result<&'c Shared, Failure> {
    let shared = upstream_of(call)?;
    match shared.conf.zone {
        Some(_) => Ok(shared),
        None => Err(Failure::new(400, "UpstreamStatic", "upstream is static: it has no \"zone\"")),
    }
}

/// `/http/upstreams` or `/stream/upstreams`.
pub fn upstreams(call: &mut Call<'_>) -> Answered {
    Ok(upstreams::all(call.service, call.view, call.protocol).into())
}

/// One of them.
pub fn upstream(call: &mut Call<'_>) -> Answered {
    Ok(upstreams::one(call.service, call.view, upstream_of(call)?).into())
}

/// Resets it.
pub fn reset_upstream(call: &mut Call<'_>) -> Answered {
    let servers = &call.view.generation.metrics.servers;
    changeable(call)?.membership().ids.iter().for_each(|id| servers.reset(id, |before, now| *before = now));
    Ok(Reply::Done(204))
}

/// The servers of an upstream.
pub fn servers(call: &mut Call<'_>) -> Answered {
    Ok(upstreams::servers(upstream_of(call)?).into())
}

/// One of them.
pub fn one_server(call: &mut Call<'_>) -> Answered {
    upstreams::server(upstream_of(call)?, call.names[1]).map(Reply::from)
}

/// Adds one.
pub fn add_server(call: &mut Call<'_>) -> Answered {
    changeable(call)?;
    let added = upstreams::add(&mut *call.service.plane, call.protocol, call.names[0], &call.ask.body)?;
    Ok(Reply::Value(201, added))
}

/// Changes one.
pub fn set_server(call: &mut Call<'_>) -> Answered {
    changeable(call)?;
    let plane = &mut *call.service.plane;
    upstreams::set(plane, call.protocol, call.names[0], call.names[1], &call.ask.body).map(Reply::from)
}

/// Removes one.
pub fn remove_server(call: &mut Call<'_>) -> Answered {
    changeable(call)?;
    upstreams::remove(&mut *call.service.plane, call.protocol, call.names[0], call.names[1]).map(Reply::from)
}

/// Changes the method of an upstream.
pub fn set_method(call: &mut Call<'_>) -> Answered {
    changeable(call)?;
    upstreams::set_method(&mut *call.service.plane, call.protocol, call.names[0], &call.ask.body)?;
    let view = call.service.view()?;
    let shared = view.upstream(call.protocol, call.names[0]);
    let shared = shared.ok_or_else(|| not_found("UpstreamNotFound", "upstream"))?;
    Ok(own::upstream(call.service, &view, shared).into())
}

/// `/balanza/methods`.
pub fn methods(_: &mut Call<'_>) -> Answered {
    Ok(own::methods().into())
}

/// `/balanza/diff`.
pub fn diff(call: &mut Call<'_>) -> Answered {
    Ok(diff::all(&*call.service.plane, call.view).into())
}

/// The last choices of an upstream.
pub fn picks(call: &mut Call<'_>) -> Answered {
    Ok(own::picks(upstream_of(call)?).into())
}

/// The shadows of an upstream.
pub fn shadows(call: &mut Call<'_>) -> Answered {
    Ok(shadows::all(upstream_of(call)?).into())
}

/// Resets them.
pub fn reset_shadows(call: &mut Call<'_>) -> Answered {
    shadows::reset(upstream_of(call)?);
    Ok(Reply::Done(204))
}

/// The names and sources of an upstream.
pub fn sources(call: &mut Call<'_>) -> Answered {
    Ok(sources::all(call.view, upstream_of(call)?).into())
}

/// `/balanza/experiments`.
pub fn experiments(call: &mut Call<'_>) -> Answered {
    Ok(call.service.experiments.all(call.view).into())
}

/// The experiment of an upstream.
pub fn experiment(call: &mut Call<'_>) -> Answered {
    let shown = call.service.experiments.shown(upstream_of(call)?);
    Ok(shown.ok_or_else(|| not_found("ExperimentNotFound", "experiment"))?.into())
}

/// Begins it.
pub fn begin_experiment(call: &mut Call<'_>) -> Answered {
    changeable(call)?;
    let object = if call.ask.body.is_empty() { Map::new() } else { upstreams::object(&call.ask.body)? };
    let shared = upstream_of(call)?;
    let plan = Plan::read(&object, &shared.conf)?;
    let Service { plane, experiments, history, .. } = &mut *call.service;
    experiments.begin(&mut Ground::new(&**plane, call.view, &mut history.events), shared, plan)?;
    let Reply::Value(_, shown) = experiment(call)? else { return Ok(Reply::Done(201)) };
    Ok(Reply::Value(201, shown))
}

/// Ends it.
pub fn stop_experiment(call: &mut Call<'_>) -> Answered {
    changeable(call)?;
    let shared = upstream_of(call)?;
    let Service { plane, experiments, history, .. } = &mut *call.service;
    experiments.stop(&mut Ground::new(&**plane, call.view, &mut history.events), shared)?;
    experiment(call)
}

/// `/balanza/access`.
pub fn access(call: &mut Call<'_>) -> Answered {
    Ok(json!({ "write": call.ask.write }).into())
}

/// `/balanza/events`.
pub fn events(call: &mut Call<'_>) -> Answered {
    let since = call.ask.argument("since").unwrap_or("0");
    let wrong = || Failure::new(400, "EventBadId", format!("invalid \"since\": \"{since}\""));
    let since = since.parse().ok().filter(|id| *id <= openapi::MOST).ok_or_else(wrong)?;
    Ok(own::events(call.service, since).into())
}

/// `/balanza/http/server_zones` or `/balanza/stream/server_zones`.
pub fn own_server_zones(call: &mut Call<'_>) -> Answered {
    Ok(own::server_zones(call.service, call.view, call.protocol).into())
}

/// `/balanza/http/location_zones`.
pub fn own_location_zones(call: &mut Call<'_>) -> Answered {
    Ok(own::location_zones(call.service, call.view).into())
}

/// `/balanza/http/upstreams` or `/balanza/stream/upstreams`.
pub fn own_upstreams(call: &mut Call<'_>) -> Answered {
    Ok(own::upstreams(call.service, call.view, call.protocol).into())
}

/// One of them.
pub fn own_upstream(call: &mut Call<'_>) -> Answered {
    Ok(own::upstream(call.service, call.view, upstream_of(call)?).into())
}
