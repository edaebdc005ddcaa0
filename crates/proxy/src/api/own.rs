//! `/api/balanza`: what NGINX Plus's API does not have.

use std::time::{Duration, SystemTime};

use balanza_balancing::Member;
use balanza_balancing::registry::{Entry, Host, entries};
use balanza_config::model::membership::Protocol;
use balanza_net::clock;
use serde_json::{Map, Value, json};

use super::history::{Known, STEP_SECONDS, Series, Subject};
use super::objects::timestamp;
use super::plane::View;
use super::service::Service;
use super::{shadows, upstreams, zones};
use crate::metrics::Times;
use crate::servers::membership::{Membership, ServerId, Shared};
use crate::servers::picks::Pick;

/// `/balanza/events`: those above a number.
pub fn events(service: &Service, since: u64) -> Value {
    let event = |(id, time, event): &(u64, SystemTime, super::history::Event)| {
        let mut object = json!({ "id": id, "time": timestamp(*time), "kind": event.kind, "text": event.text });
        if let Some((protocol, upstream)) = &event.upstream {
            object["protocol"] = json!(if *protocol == Protocol::Http { "http" } else { "stream" });
            object["upstream"] = json!(upstream);
        }
        if let Some(server) = &event.server {
            object["server"] = json!(server);
        }
        object
    };
    service.history.events.since(since).map(event).collect()
}

/// Milliseconds, to the microsecond.
fn millis(nanos: u64) -> f64 {
    (nanos as f64 / 1e3).round() / 1e3
}

fn percentiles(times: &Times) -> Value {
    let shares = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)];
    let mut object: Map<String, Value> =
        shares.iter().map(|(name, share)| ((*name).to_owned(), json!(times.quantile(*share).map(millis)))).collect();
    object.insert("count".into(), json!(times.count()));
    Value::Object(object)
}

/// Rates in requests a second, percentiles in milliseconds, and the steps of the last quarter of an hour.
fn course(series: Option<&Series>, times: &Times) -> Map<String, Value> {
    let empty = Series::default();
    let series = series.unwrap_or(&empty);
    let mut rates = Map::new();
    let mut failures = Map::new();
    for (name, steps) in [("last", 1), ("minute", 6), ("quarter_hour", 90)] {
        let (requests, failed, counted) = series.sum(steps);
        let seconds = f64::from(STEP_SECONDS) * counted.max(1) as f64;
        rates.insert(name.into(), json!(requests as f64 / seconds));
        failures.insert(name.into(), json!(failed as f64 / seconds));
    }
    let (requests, failed): (Vec<u64>, Vec<u64>) = series.steps().unzip();
    let mut object = Map::new();
    object.insert("rate".into(), rates.into());
    object.insert("failure_rate".into(), failures.into());
    object.insert("times".into(), percentiles(&series.recent(times)));
    object.insert("times_all".into(), percentiles(times));
    object.insert("history".into(), json!({ "step": STEP_SECONDS, "requests": requests, "failures": failed }));
    object
}

/// `/balanza/http/server_zones` or `/balanza/stream/server_zones`.
pub fn server_zones(service: &Service, view: &View, protocol: Protocol) -> Value {
    let object = |(name, zone): (&str, crate::metrics::Requests)| {
        let series = service.history.series(&Subject::Zone(protocol, name.to_owned()));
        (name.to_owned(), Value::Object(course(series, &zone.times)))
    };
    Value::Object(zones::counted(view, protocol).into_iter().map(object).collect())
}

/// `/balanza/http/location_zones`.
pub fn location_zones(service: &Service, view: &View) -> Value {
    let object = |name: &String| {
        let series = service.history.series(&Subject::Location(name.clone()));
        let times = view.generation.metrics.locations.sum(name).times;
        (name.clone(), Value::Object(course(series, &times)))
    };
    Value::Object(view.generation.config.http.location_zones.iter().map(object).collect())
}

/// `/balanza/http/upstreams` or `/balanza/stream/upstreams`.
pub fn upstreams(service: &Service, view: &View, protocol: Protocol) -> Value {
    let named = view.upstreams_of(protocol);
    Value::Object(named.map(|shared| (shared.conf.name.clone(), upstream(service, view, shared))).collect())
}

/// `/balanza/methods`: how each algorithm is chosen by default.
pub fn methods() -> Value {
    let text = |entry: &Entry| match entry.nginx {
        Some(directive) if !directive.is_empty() && !directive.contains(' ') => directive.to_owned(),
        _ => format!("balance {}", entry.name),
    };
    let by_program = |entry: &&Entry| entry.host == Host::Program;
    entries().iter().filter(|entry| !by_program(entry)).map(text).collect()
}

/// One of them.
pub fn upstream(service: &Service, view: &View, shared: &Shared) -> Value {
    let membership = shared.membership();
    let sums = view.generation.metrics.servers.sums(membership.ids.iter());
    let mut all = Times::default();
    sums.iter().for_each(|sum| all.merge(&sum.times));
    let servers: Vec<Value> =
        sums.iter().enumerate().map(|(nth, sum)| server(service, view, &membership, nth, &sum.times)).collect();
    let spec = &membership.balancing.balance.spec;
    let method = membership.balancing.chosen.as_ref().unwrap_or(&shared.conf.method);
    let parameters: Map<String, Value> =
        spec.parameters().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    let mut object = json!({
        "algorithm": spec.entry().name,
        "parameters": parameters,
        "method": method,
        "configured_method": shared.conf.method,
        "changeable": shared.conf.zone.is_some(),
        "times_all": percentiles(&all),
        "servers": servers,
    });
    if let Some(budget) = shared.retry_budget() {
        object["retries_refused"] = json!(budget.refused());
    }
    if !membership.shadows.is_empty() {
        object["shadows"] = shadows::list(&membership);
    }
    if let Some(hedge) = shared.hedge() {
        let (sent, won) = hedge.counts();
        object["hedge"] = json!({ "sent": sent, "won": won });
        if let Some(delay) = hedge.delay(clock::now()) {
            object["hedge"]["after"] = json!(delay as f64 / 1e6);
        }
    }
    object
}

/// The last choices of its servers, the newest first.
pub fn picks(shared: &Shared) -> Value {
    let membership = shared.membership();
    let (now, today) = (clock::now(), SystemTime::now());
    let named = |id: ServerId| {
        let place = membership.ids.iter().position(|known| *known == id);
        place.map(|place| membership.servers[place].address.to_string())
    };
    let object = |pick: Pick| {
        let ago = Duration::from_nanos(now.saturating_sub(pick.time));
        let mut object = json!({
            "time": timestamp(today.checked_sub(ago).unwrap_or(today)),
            "id": pick.server.map(ServerId::number),
            "server": pick.server.and_then(named),
            "reason": pick.reason,
        });
        if let Some(probability) = pick.probability {
            object["probability"] = json!(probability);
        }
        if let Some(score) = pick.score {
            object["score"] = json!(score);
        }
        if let Some((id, score)) = pick.next {
            object["runner_up"] = json!({ "id": id.number(), "server": named(id), "score": score });
        }
        object
    };
    shared.picks.all().into_iter().map(object).collect()
}

fn server(service: &Service, view: &View, membership: &Membership, nth: usize, times: &Times) -> Value {
    let id = membership.ids[nth];
    let server = &membership.servers[nth];
    let cell = membership.fleet.state(Member(nth as u32));
    let mut object = course(service.history.series(&Subject::Server(id)), times);
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("id", json!(id.number()));
    put("server", json!(server.address.to_string()));
    put("state", json!(upstreams::state(membership, nth)));
    put("weight", json!(server.weight));
    put("share", json!(cell.share()));
    put("active", json!(cell.in_flight()));
    if let Some(limit) = cell.ceiling() {
        put("limit", json!(limit));
    }
    let outliers = membership.outliers.as_ref();
    if let Some(until) = outliers.and_then(|outliers| outliers.ejected_until(Member(nth as u32))) {
        put("ejected_for", json!(until.saturating_sub(clock::now()) / 1_000_000));
    }
    if let Some((since, begun)) = service.history.server(id).and_then(|known: &Known| known.drains) {
        let mut drain = json!({ "since": timestamp(since), "begun_with": begun, "left": cell.in_flight() });
        if let Some(deadline) = view.deadlines.get(&id) {
            let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
            drain["deadline"] = json!(timestamp(*deadline));
            drain["seconds_left"] = json!(left.as_secs_f64().ceil() as u64);
        }
        put("drain", drain);
    }
    Value::Object(object)
}
