//! `/balanza/http/upstreams/{upstream}/sources`: how the names and the sources of an upstream are.

use serde_json::{Value, json};

use super::objects::timestamp;
use super::plane::View;
use crate::servers::membership::Shared;
use crate::source_condition::Condition;

/// Those of an upstream.
pub fn all(view: &View, shared: &Shared) -> Value {
    let outside = view.generation.outside();
    let shown = |all: Vec<Condition>| all.iter().map(one).collect::<Value>();
    json!({
        "names": shown(outside.names(shared.protocol, &shared.conf)),
        "sources": shown(outside.sources(shared.protocol, &shared.conf)),
    })
}

fn one(condition: &Condition) -> Value {
    json!({
        "name": condition.name,
        "servers": condition.servers,
        "wrong": condition.wrong,
        "answered": condition.answered.map(timestamp),
        "error": condition.error,
    })
}
