//! The objects of upstreams, and the changes of their servers.

use std::sync::Arc;
use std::time::SystemTime;

use balanza_balancing::{Authority, Member, ServerState};
use balanza_config::model::membership::{Change, Method, Protocol, ServerKey, keys};
use balanza_config::model::{ServerAddress, UpstreamServer};
use balanza_net::clock;
use serde_json::{Map, Value, json};

use super::Failure;
use super::history::Known;
use super::objects::{duration, histogram, millis, responses, timestamp};
use super::plane::{Plane, View};
use super::service::Service;
use crate::metrics::Attempts;
use crate::servers::health::{HealthCounts, Standing};
use crate::servers::membership::{Membership, Shared};

mod written;

use self::written::Written;
pub use self::written::object;

/// `/http/upstreams` or `/stream/upstreams`.
pub fn all(service: &Service, view: &View, protocol: Protocol) -> Value {
    let named = view.upstreams_of(protocol);
    Value::Object(named.map(|shared| (shared.conf.name.clone(), one(service, view, shared))).collect())
}

/// One of them.
pub fn one(service: &Service, view: &View, shared: &Shared) -> Value {
    let membership = shared.membership();
    let sums = view.generation.metrics.servers.sums(membership.ids.iter());
    let of = |(nth, sum): (usize, &Attempts)| {
        let known = service.history.server(membership.ids[nth]);
        peer(shared.protocol, &membership, nth, sum, known)
    };
    let peers: Vec<Value> = sums.iter().enumerate().map(of).collect();
    let zombies = view.zombies.get(&(shared.protocol, shared.conf.name.clone()));
    let mut object = Map::new();
    object.insert("peers".into(), peers.into());
    object.insert("zombies".into(), json!(zombies.copied().unwrap_or(0)));
    if let (Some(queue), Some(conf)) = (&shared.queue, shared.conf.queue) {
        let counts = queue.counts(conf.length);
        let queue = json!({ "size": counts.size, "max_size": counts.max_size, "overflows": counts.overflows });
        object.insert("queue".into(), queue);
    }
    if let Some(zone) = &shared.conf.zone {
        object.insert("zone".into(), json!(zone));
    }
    Value::Object(object)
}

/// The state of a server, in the words of the API.
pub fn state(membership: &Membership, nth: usize) -> &'static str {
    let (server, member) = (&membership.servers[nth], Member(nth as u32));
    let state = membership.fleet.state(member);
    if server.down || state.is_down_by(Authority::Operator) || state.is_down_by(Authority::Agent) {
        "down"
    } else if state.is_down_by(Authority::HealthCheck) {
        match membership.health[nth].counts().standing {
            Standing::Checking => "checking",
            _ => "unhealthy",
        }
    } else if server.draining || state.is_draining() {
        "draining"
    } else if state.is_down_by(Authority::Outlier) || is_failed(membership, nth) {
        "unavail"
    } else {
        "up"
    }
}

/// Whether it is not tried any more because of its failures.
fn is_failed(membership: &Membership, nth: usize) -> bool {
    let (server, member) = (&membership.servers[nth], Member(nth as u32));
    let state = membership.fleet.state(member);
    let has_failed = server.max_fails > 0 && state.fails() >= server.max_fails;
    has_failed && !membership.fleet.is_single() && !membership.fleet.accepts(clock::now(), member)
}

/// How long the server takes to send the head of a response, in milliseconds.
pub fn header_time(cell: &ServerState, sum: &Attempts) -> u64 {
    let mean = sum.header_time.checked_div(sum.headers).unwrap_or(0);
    millis(cell.header_time().unwrap_or(mean))
}

/// How long a whole response takes, in milliseconds.
pub fn response_time(cell: &ServerState, sum: &Attempts) -> u64 {
    let mean = sum.times.sum.checked_div(sum.times.count()).unwrap_or(0);
    millis(cell.last_byte_time().unwrap_or(mean))
}

fn peer(protocol: Protocol, membership: &Membership, nth: usize, sum: &Attempts, known: Option<&Known>) -> Value {
    let (server, member) = (&membership.servers[nth], Member(nth as u32));
    let cell = membership.fleet.state(member);
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("id", json!(membership.ids[nth].number()));
    put("server", json!(server.address.to_string()));
    put("name", json!(server.name));
    put("backup", json!(server.backup));
    put("weight", json!(server.weight));
    put("state", json!(state(membership, nth)));
    put("active", json!(cell.in_flight()));
    let limit = cell.max_conns_override().unwrap_or(server.max_conns);
    if limit > 0 {
        put("max_conns", json!(limit));
    }
    put("sent", json!(sum.sent));
    put("received", json!(sum.received));
    put("fails", json!(sum.failures));
    put("unavail", json!(sum.disabled));
    put("response_time", json!(response_time(cell, sum)));
    put("response_time_hist", histogram(&sum.times));
    put("health_checks", health(&membership.health[nth].counts()));
    put("downtime", json!(known.map_or(0, |known| known.downtime().as_millis() as u64)));
    if let Some(since) = known.and_then(|known| known.down_since) {
        put("downstart", json!(timestamp(since)));
    }
    if let Some(selected) = known.and_then(|known| known.selected) {
        put("selected", json!(timestamp(selected)));
    }
    let total = sum.attempts + u64::from(cell.in_flight());
    match protocol {
        Protocol::Http => {
            put("requests", json!(total));
            put("responses", responses(&sum.codes, sum.classes));
            put("header_time", json!(header_time(cell, sum)));
        }
        Protocol::Stream => {
            put("connections", json!(total));
            put("first_byte_time", json!(header_time(cell, sum)));
        }
    }
    Value::Object(object)
}

/// What checks have found out. A server that was never checked has no last result.
fn health(counts: &HealthCounts) -> Value {
    let mut object = json!({ "checks": counts.checks, "fails": counts.fails, "unhealthy": counts.unhealthy });
    if counts.checks > 0 {
        object["last_passed"] = json!(counts.last_passed);
    }
    object
}

/// The servers as they would be configured.
pub fn servers(shared: &Shared) -> Value {
    let membership = shared.membership();
    (0..membership.servers.len()).map(|nth| written(shared.protocol, &membership, nth)).collect()
}

fn written(protocol: Protocol, membership: &Membership, nth: usize) -> Value {
    let mut object = parameters(protocol, &membership.servers[nth]);
    object.insert("id".into(), json!(membership.ids[nth].number()));
    Value::Object(object)
}

/// The parameters of a server as they would be configured.
pub fn parameters(protocol: Protocol, server: &UpstreamServer) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("server", json!(server.address.to_string()));
    put("weight", json!(server.weight));
    put("max_conns", json!(server.max_conns));
    put("max_fails", json!(server.max_fails));
    put("fail_timeout", json!(duration(server.fail_timeout)));
    put("slow_start", json!(duration(server.slow_start)));
    put("backup", json!(server.backup));
    put("down", json!(server.down));
    if let Some(route) = server.route.as_ref().filter(|_| protocol == Protocol::Http) {
        put("route", json!(route));
    }
    if server.draining {
        put("drain", json!(true));
    }
    object
}

/// The place of the server of this number.
fn place(membership: &Membership, id: &str) -> Result<usize, Failure> {
    let id: u32 = id.parse().map_err(|_| Failure::new(400, "UpstreamBadServerId", "invalid server id"))?;
    let place = membership.ids.iter().position(|known| known.number() == id);
    place.ok_or_else(|| Failure::new(404, "UpstreamServerNotFound", format!("server with id {id} does not exist")))
}

/// A server as it would be configured.
///
/// # Errors
/// There is none with this number.
pub fn server(shared: &Shared, id: &str) -> Result<Value, Failure> {
    let membership = shared.membership();
    let place = place(&membership, id)?;
    Ok(written(shared.protocol, &membership, place))
}

/// The server that was changed last, as it would be configured.
fn changed(
    plane: &dyn Plane,
    protocol: Protocol,
    upstream: &str,
    find: impl Fn(&Membership) -> Option<usize>,
) -> Result<Value, Failure> {
    let lost = || Failure::new(404, "UpstreamServerNotFound", "the server was removed meanwhile");
    let view = plane.view().ok_or_else(lost)?;
    let membership = view.generation.upstream(protocol, upstream).map(Shared::membership).ok_or_else(lost)?;
    let place = find(&membership).ok_or_else(lost)?;
    Ok(written(protocol, &membership, place))
}

fn find_address(membership: &Membership, address: &ServerAddress) -> Option<usize> {
    membership.servers.iter().position(|server| server.address == *address)
}

fn refuse_double(shared: &Shared, address: &ServerAddress) -> Result<(), Failure> {
    match find_address(&shared.membership(), address) {
        Some(_) => Err(Failure::new(409, "EntryExists", "the upstream has this server already")),
        None => Ok(()),
    }
}

/// Adds a server.
///
/// # Errors
/// It is not valid here.
pub fn add(plane: &mut dyn Plane, protocol: Protocol, upstream: &str, body: &[u8]) -> Result<Value, Failure> {
    let written = Written::read(body, protocol)?;
    let given = written.address.clone();
    let address = given.ok_or_else(|| Failure::format("missing \"server\" parameter"))?;
    plane.change(protocol, upstream, &mut |shared, _| {
        refuse_double(shared, &address)?;
        let mut server = UpstreamServer::new(written.name.clone().unwrap_or_default(), address.clone());
        written.apply(&mut server, shared, true)?;
        Ok(vec![Change::Add(server)])
    })?;
    changed(plane, protocol, upstream, |membership| find_address(membership, &address))
}

/// Changes parameters of a server. One that gets another address is a new server.
///
/// # Errors
/// There is no such server, or a parameter is wrong.
pub fn set(plane: &mut dyn Plane, protocol: Protocol, upstream: &str, id: &str, body: &[u8]) -> Result<Value, Failure> {
    let written = Written::read(body, protocol)?;
    let mut of_change = None;
    plane.change(protocol, upstream, &mut |shared, configured| {
        let membership = shared.membership();
        let place = own_place(&membership, id, configured)?;
        let key = keys(&membership.servers)[place].clone();
        let mut server = membership.servers[place].clone();
        written.apply(&mut server, shared, false)?;
        let other = written.address.clone().filter(|address| *address != server.address);
        let Some(address) = other else {
            of_change = Some(server.address.clone());
            let deadline = written.deadline(key.clone(), SystemTime::now());
            return Ok(std::iter::once(Change::Set(key, server)).chain(deadline).collect());
        };
        refuse_double(shared, &address)?;
        of_change = Some(address.clone());
        let name = written.name.clone().unwrap_or_default();
        let deadline = written.deadline(ServerKey { address: address.clone(), nth: 0 }, SystemTime::now());
        let new = [Change::Remove(key), Change::Add(UpstreamServer { address, name, ..server })];
        Ok(new.into_iter().chain(deadline).collect())
    })?;
    changed(plane, protocol, upstream, |membership| {
        let same = place(membership, id).ok();
        let address = of_change.as_ref()?;
        same.filter(|place| membership.servers[*place].address == *address)
            .or_else(|| find_address(membership, address))
    })
}

/// Changes the method: `{"method": …}` as a configuration has it, or `null` for that of the configuration.
///
/// # Errors
/// There is something wrong with it.
pub fn set_method(plane: &mut dyn Plane, protocol: Protocol, upstream: &str, body: &[u8]) -> Result<(), Failure> {
    let object = written::object(body)?;
    if let Some(unknown) = object.keys().find(|name| *name != "method") {
        return Err(Failure::format(format!("unknown parameter \"{unknown}\"")));
    }
    let text = match object.get("method") {
        Some(Value::String(text)) => Some(text.trim().trim_end_matches(';').trim_end().to_owned()),
        Some(Value::Null) => None,
        Some(other) => return Err(Failure::format(format!("invalid \"method\": {other}"))),
        None => return Err(Failure::format("missing \"method\" parameter")),
    };
    plane.change(protocol, upstream, &mut |shared, _| {
        if shared.membership().balancing.block.is_some() {
            let text = "an experiment runs in this upstream, which changes the method: stop it first";
            return Err(Failure::new(409, "ExperimentRunning", text));
        }
        let other = text.clone().filter(|text| *text != shared.conf.method);
        let method = other.map(|text| Method { text, instead_of: shared.conf.method.clone() });
        Ok(vec![Change::Method(method)])
    })
}

/// Removes a server. Returns those that are left.
///
/// # Errors
/// There is no such server.
pub fn remove(plane: &mut dyn Plane, protocol: Protocol, upstream: &str, id: &str) -> Result<Value, Failure> {
    plane.change(protocol, upstream, &mut |shared, configured| {
        let membership = shared.membership();
        let place = own_place(&membership, id, configured)?;
        Ok(vec![Change::Remove(keys(&membership.servers)[place].clone())])
    })?;
    let view = plane.view().ok_or_else(|| Failure::new(503, "Ended", "the workers have ended"))?;
    Ok(view.generation.upstream(protocol, upstream).map_or(json!([]), servers))
}

/// The place of a server that does not come from a name or a source.
fn own_place(membership: &Arc<Membership>, id: &str, configured: usize) -> Result<usize, Failure> {
    let place = place(membership, id)?;
    if place >= configured {
        return Err(Failure::new(400, "UpstreamServerImmutable", "servers of names and sources cannot be changed"));
    }
    Ok(place)
}
