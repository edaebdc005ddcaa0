//! The pairs of `keyval` zones.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Failure;
use crate::keyval::{Change, Pairs, Unchanged};

impl From<Unchanged> for Failure {
    fn from(unchanged: Unchanged) -> Failure {
        match unchanged {
            Unchanged::Exists => Failure::new(409, "KeyvalKeyExists", "key already exists"),
            Unchanged::Missing => Failure::new(404, "KeyvalKeyNotFound", "key not found"),
            Unchanged::Format => Failure::new(400, "KeyvalFormatError", "the key is not of the zone's type"),
            Unchanged::Full => Failure::new(507, "KeyvalNoSpace", "the zone is full"),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All zones.
pub fn all(zones: &[Arc<Pairs>]) -> Value {
    Value::Object(zones.iter().map(|zone| (zone.conf.name.clone(), object(zone))).collect())
}

fn object(zone: &Pairs) -> Value {
    Value::Object(zone.all().into_iter().map(|(key, pair)| (text(&key), json!(text(&pair.value)))).collect())
}

/// A zone, or one pair of it.
///
/// # Errors
/// There is no such key.
pub fn one(zone: &Pairs, key: Option<&str>) -> Result<Value, Failure> {
    let Some(key) = key else { return Ok(object(zone)) };
    let mut decoded = Vec::new();
    decode(key.as_bytes(), &mut decoded);
    let pair = zone.all().into_iter().find(|(known, _)| *known == decoded);
    let (_, pair) = pair.ok_or(Unchanged::Missing)?;
    Ok(json!({ text(&decoded): text(&pair.value) }))
}

/// Decodes what is escaped in an argument.
fn decode(mut escaped: &[u8], out: &mut Vec<u8>) {
    while let Some((first, rest)) = escaped.split_first() {
        let digits = rest.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                escaped = &rest[2..];
            }
            None => {
                out.push(*first);
                escaped = rest;
            }
        }
    }
}

fn changes(zone: &Pairs, body: &[u8], may_remove: bool) -> Result<Vec<Change>, Failure> {
    let value: Value =
        serde_json::from_slice(body).map_err(|error| Failure::new(415, "JsonError", format!("json error: {error}")))?;
    let Value::Object(object) = value else { return Err(format("an object is needed")) };
    if object.is_empty() {
        return Err(format("no key is given"));
    }
    object.into_iter().map(|(key, value)| change(zone, key, value, may_remove)).collect()
}

fn format(text: impl Into<String>) -> Failure {
    Failure::new(400, "KeyvalFormatError", text)
}

fn change(zone: &Pairs, key: String, value: Value, may_remove: bool) -> Result<Change, Failure> {
    let wrong = format!("invalid value of key \"{key}\"");
    let key = key.into_bytes();
    match value {
        Value::String(value) => Ok(Change { key, value: Some(value.into_bytes()), expire: None }),
        Value::Null if may_remove => Ok(Change { key, value: None, expire: None }),
        Value::Object(object) => {
            if zone.conf.timeout.is_none() && object.contains_key("expire") {
                return Err(format("\"expire\" needs a zone with \"timeout\""));
            }
            let expire = expiry(&object).map_err(|()| format(wrong.clone()))?;
            let value = match object.get("value") {
                Some(Value::String(value)) => value.clone().into_bytes(),
                // The time alone is changed.
                None if may_remove => current(zone, &key)?,
                _ => return Err(format(wrong)),
            };
            Ok(Change { key, value: Some(value), expire })
        }
        _ => Err(format(wrong)),
    }
}

fn current(zone: &Pairs, key: &[u8]) -> Result<Vec<u8>, Failure> {
    let pair = zone.all().into_iter().find(|(known, _)| known == key);
    pair.map(|(_, pair)| pair.value).ok_or_else(|| Unchanged::Missing.into())
}

fn expiry(object: &Map<String, Value>) -> Result<Option<Duration>, ()> {
    if object.keys().any(|name| name != "value" && name != "expire") {
        return Err(());
    }
    match object.get("expire") {
        None => Ok(None),
        Some(millis) => millis.as_u64().map(|millis| Some(Duration::from_millis(millis))).ok_or(()),
    }
}

/// Adds pairs. Returns whether their file has them too.
///
/// # Errors
/// A key is there already, or something is wrong with it.
pub fn add(zone: &Pairs, body: &[u8]) -> Result<io::Result<()>, Failure> {
    Ok(zone.add(changes(zone, body, false)?)?)
}

/// Changes or, with `null`, removes pairs. Returns whether their file is changed too.
///
/// # Errors
/// A key is not there, or something is wrong with it.
pub fn set(zone: &Pairs, body: &[u8]) -> Result<io::Result<()>, Failure> {
    Ok(zone.set(changes(zone, body, true)?)?)
}
