//! Finds what a path means, in the table.

use balanza_config::model::membership::Protocol;

use super::objects::only_fields;
use super::row::{Call, Method, Reply, Row, parts_of};
use super::service::Service;
use super::table::{TABLE, VERSIONS};
use super::{Failure, prometheus};
use crate::desk::{Answer, Ask};

/// Answers a request.
pub fn answer(service: &mut Service, ask: &Ask) -> Answer {
    if ask.metrics {
        return match service.view() {
            Ok(view) => {
                let body = prometheus::text(service, &view).into_bytes();
                Answer { status: 200, content_type: "text/plain; version=0.0.4", body, ..Answer::default() }
            }
            Err(failure) => failure.answer(""),
        };
    }
    match route(service, ask) {
        Ok(answer) => answer,
        Err(failure) => failure.answer(&ask.request_id),
    }
}

fn route(service: &mut Service, ask: &Ask) -> Result<Answer, Failure> {
    let mut path: Vec<&str> = parts_of(&ask.path).collect();
    if let Some(version) = path.first_mut().filter(|first| **first != "balanza") {
        if !version.parse().is_ok_and(|version: u8| VERSIONS.contains(&version)) {
            return Err(Failure::new(404, "UnknownVersion", "unknown version"));
        }
        // All versions have the objects of the last one.
        *version = "9";
    }
    let view = service.view()?;
    if path.starts_with(&["9", "stream"]) && !view.has_stream() {
        return Err(Failure::no_path());
    }
    let found = TABLE.iter().find_map(|row| row.names_in(&path).map(|names| (row, names)));
    let (row, names) = found.ok_or_else(Failure::no_path)?;
    let allow = || vec![("Allow", row.allow(ask.write))];
    if ask.method == "OPTIONS" {
        return Ok(Answer { status: 204, fields: allow(), ..Answer::default() });
    }
    let method = Method::of(&ask.method);
    let Some(operation) = row.allowed(ask.write).find(|operation| Some(operation.method) == method) else {
        return Ok(Answer { fields: allow(), ..Failure::no_method().answer(&ask.request_id) });
    };
    let protocol = if path.get(1) == Some(&"stream") { Protocol::Stream } else { Protocol::Http };
    let reply = (operation.handler)(&mut Call { service, view: &view, ask, names, protocol, table: TABLE })?;
    Ok(match reply {
        Reply::Value(status, value) => {
            let value = match ask.argument("fields") {
                Some(fields) if matches!(operation.method, Method::Get | Method::Delete) => {
                    let fields: Vec<&str> = fields.split(',').filter(|name| !name.is_empty()).collect();
                    only_fields(value, &fields, is_collection(row))
                }
                _ => value,
            };
            let body = value.to_string().into_bytes();
            Answer { status, content_type: "application/json", body, fields: link(row, ask) }
        }
        Reply::Done(status) => Answer { status, ..Answer::default() },
    })
}

/// The list of versions names the description of the last one.
fn link(row: &Row, ask: &Ask) -> Vec<(&'static str, String)> {
    match row.path {
        "/" => vec![("Link", format!("<{}/9/openapi.json>; rel=\"service-desc\"", ask.base))],
        _ => Vec::new(),
    }
}

/// Whether a path has several objects.
fn is_collection(row: &Row) -> bool {
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
    parts_of(row.path).last().is_some_and(|last| COLLECTIONS.contains(&last))
}
