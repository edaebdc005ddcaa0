//! The description of the API in OpenAPI 3.1, made of the table. Schemas are in `schemas.json`.

use serde_json::{Map, Value, json};

use super::row::{Method, Operation, Row, parts_of};

/// The greatest number that every reader of JSON has exactly.
pub const MOST: u64 = (1 << 53) - 1;

/// The schemas of bodies by name.
const SCHEMAS: &str = include_str!("schemas.json");

/// The description of what is allowed at a location with this prefix.
pub fn document(table: &[Row], base: &str, write: bool) -> Value {
    let mut paths = Map::new();
    for row in table {
        let mut item = Map::new();
        if row.path.contains('{') {
            item.insert("parameters".into(), parts_of(row.path).filter_map(name_in).map(parameter).collect());
        }
        for operation in row.allowed(write) {
            item.insert(operation.method.text().to_lowercase(), described(row, operation));
        }
        paths.insert(row.path.into(), item.into());
    }
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Balanza",
            "version": crate::VERSION,
            "description": "State and changes of a running balancer: version 9 of NGINX Plus's API, and what Balanza adds under /balanza. \
                ?fields=a,b leaves only these fields of each object that GET answers with.",
        },
        "servers": [{ "url": if base.is_empty() { "/" } else { base } }],
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// The name of a part in braces.
fn name_in(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

fn parameter(name: &str) -> Value {
    let schema = match name {
        "server" | "worker" => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn argument(name: &str) -> Value {
    let schema = match name {
        "since" => json!({ "type": "integer", "minimum": 0, "maximum": MOST }),
        _ => json!({ "type": "string" }),
    };
    json!({ "name": name, "in": "query", "required": false, "schema": schema })
}

fn content(schema: &str) -> Value {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

fn described(row: &Row, operation: &Operation) -> Value {
    let mut responses = Map::new();
    let mut success = json!({ "description": "Success" });
    if !operation.gives.is_empty() {
        success["content"] = content(operation.gives);
    }
    responses.insert(operation.status.to_string(), success);
    for status in errors(row, operation) {
        responses.insert(status.to_string(), json!({ "description": reason(status), "content": content("Failure") }));
    }
    let arguments: Vec<Value> = operation.argument.map(argument).into_iter().collect();
    let mut described = json!({ "summary": operation.summary, "responses": responses });
    if !arguments.is_empty() {
        described["parameters"] = arguments.into();
    }
    if !operation.takes.is_empty() {
        described["requestBody"] = json!({ "required": true, "content": content(operation.takes) });
    }
    described
}

/// The statuses of an operation's failures.
fn errors(row: &Row, operation: &Operation) -> Vec<u16> {
    let is_change = operation.method != Method::Get;
    let takes = !operation.takes.is_empty();
    let is_of_upstream = row.path.contains("{upstream}");
    let all = [
        (400, takes || row.path.contains("{server}") || is_change && is_of_upstream || operation.argument.is_some()),
        (403, is_change),
        (404, row.path.contains('{') || row.path.starts_with("/9/stream")),
        (409, takes),
        (413, takes),
        (415, takes),
        (503, true),
        (507, takes && row.path.contains("keyvals")),
    ];
    all.into_iter().filter(|(_, is_possible)| *is_possible).map(|(status, _)| status).collect()
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Something is wrong with the request",
        403 => "The request comes from a page of another site",
        404 => "There is no such object",
        409 => "The object exists already",
        413 => "The body is longer than client_body_buffer_size",
        415 => "The body is not JSON",
        507 => "The zone is full",
        _ => "Too many requests wait",
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::TABLE;
    use super::*;

    /// The names of the schemas that a value refers to.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(name)) = object.get("$ref") {
                    found.push(name.strip_prefix("#/components/schemas/").unwrap().to_owned());
                }
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_is_there_and_is_used() {
        let document = document(TABLE, "/api", true);
        let mut named = Vec::new();
        references(&document, &mut named);
        named.sort();
        named.dedup();
        let mut there: Vec<String> = document["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
        there.sort();
        assert_eq!(named, there);
    }

    #[test]
    fn paths_and_methods_are_those_of_the_table() {
        let all = document(TABLE, "/api", true);
        assert_eq!(all["paths"].as_object().unwrap().len(), TABLE.len());
        let server = &all["paths"]["/9/http/upstreams/{upstream}/servers/{server}"];
        let mut names: Vec<&String> = server.as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, ["delete", "get", "parameters", "patch"]);
        assert_eq!(server["parameters"][1]["name"], "server");
        assert_eq!(server["delete"]["responses"]["200"]["content"], content("Servers"));
        // What is refused everywhere is not described.
        let read = document(TABLE, "", false);
        for item in read["paths"].as_object().unwrap().values() {
            assert!(item.get("get").is_some() && item.get("delete").is_none() && item.get("post").is_none(), "{item}");
        }
    }
}
