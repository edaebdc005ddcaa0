//! `/balanza/http/upstreams/{upstream}/shadows`: what the shadows of an upstream would have chosen.

use balanza_balancing::{Member, ServerSpec};
use serde_json::{Value, json};

use crate::servers::membership::{Membership, Shared};
use crate::servers::shadows::Beside;

/// What the numbers cannot show.
const NOTE: &str = "How often other servers would have been chosen. The numbers say nothing about response times: the servers \
    had the load of the requests that they really got.";

/// The shadows of an upstream.
pub fn all(shared: &Shared) -> Value {
    json!({ "note": NOTE, "shadows": list(&shared.membership()) })
}

/// Each shadow.
pub fn list(membership: &Membership) -> Value {
    membership.shadows.iter().map(|beside| one(membership, beside)).collect()
}

/// Resets all counters to 0.
pub fn reset(shared: &Shared) {
    shared.membership().shadows.iter().for_each(|beside| beside.shadow.reset());
}

/// `part` as a fraction of the whole; none if the whole is 0.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

fn one(membership: &Membership, beside: &Beside) -> Value {
    let shadow = &beside.shadow;
    let counts = shadow.counts();
    let chosen: Vec<(u64, u64)> = membership.fleet.members().map(|member| shadow.chosen(member)).collect();
    let (of_shadow, really) = chosen.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let server = |(nth, (by_shadow, by_real)): (usize, &(u64, u64))| {
        json!({
            "id": membership.ids[nth].number(),
            "server": membership.servers[nth].address.to_string(),
            "weight": membership.servers[nth].weight,
            "shadow": by_shadow,
            "real": by_real,
            "shadow_share": share(*by_shadow, of_shadow),
            "real_share": share(*by_real, really),
        })
    };
    let servers: Vec<Value> = chosen.iter().enumerate().map(server).collect();
    let mut object = json!({
        "name": beside.name,
        "shadow": beside.text,
        "picks": counts.picks,
        "agreed": counts.agreed,
        "agreement": share(counts.agreed, counts.picks),
        "nobody": counts.nobody,
        "deviation": {
            "shadow": deviation(membership, |nth| share(chosen[nth].0, of_shadow)),
            "real": deviation(membership, |nth| share(chosen[nth].1, really)),
        },
        "cost": { "timed": counts.timed, "mean_ns": counts.time.checked_div(counts.timed) },
        "servers": servers,
    });
    if shadow.is_keyed() {
        object["keys"] = json!({ "picks": counts.keys, "moved": counts.keys_moved });
    }
    if shadow.judges_sessions() && membership.affinity.is_some() {
        object["sessions"] = json!({ "picks": counts.sessions, "left": counts.sessions_left });
    }
    object
}

/// The largest difference between a server's share and its weight, among the servers of the first priority.
fn deviation(membership: &Membership, share: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    let server = |nth: usize| membership.fleet.server(Member(nth as u32));
    let count = membership.servers.len();
    let first = (0..count).filter(|nth| !server(*nth).backup).map(|nth| server(nth).priority).min()?;
    let is_first = |server: &ServerSpec| !server.backup && !server.down && server.priority == first;
    let total: u64 = (0..count).map(server).filter(|server| is_first(server)).map(|one| u64::from(one.weight)).sum();
    let of = |nth: usize| {
        let weight = if is_first(server(nth)) { f64::from(server(nth).weight) / total.max(1) as f64 } else { 0.0 };
        Some((share(nth)? - weight).abs())
    };
    (0..count).filter_map(of).reduce(f64::max)
}
