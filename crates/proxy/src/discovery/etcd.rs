//! etcd: each key below a prefix is a server, whose value says where it is.
//!
//! The keys are read once by a range request, and a watch from the next revision on tells of every change. Both go by the
//! JSON gateway of etcd's v3 interface (`/v3/kv/range`, `/v3/watch`; etcd 3.4 and newer). A value is written as in
//! `server`, `ADDRESS:PORT [PARAMETER …]`, or as a JSON object with `address` (or `Addr`, as gRPC's naming has it) and
//! parameters. If the revision to go on from has been compacted, the keys are read again.

use std::collections::BTreeMap;
use std::time::Duration;

use balanza_config::model::{UpstreamServer, discover};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::api::{self, Answer, PATIENCE, Request};
use super::server;
use super::sink::{Entries, Sink, limit, sort_out};
use super::task::Discovery;

/// A watch that has said nothing for so long is begun again: the other end may be gone.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest key, and the longest value of a server.
const LONGEST: usize = 8192;

/// A source.
pub struct Etcd {
    conf: discover::Etcd,
}

/// The values of the keys.
type Known = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a line of a watch says.
#[derive(Debug, PartialEq)]
enum News {
    /// Keys with their new values; none for those that were deleted.
    Events(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// The keys are to be read again.
    Again,
}

impl Discovery for Etcd {
    async fn follow(&mut self, to: &mut Sink) -> Result<(), String> {
        let token = self.authenticate().await?;
        let answer = self.send("/v3/kv/range", &self.keys(), token.as_deref()).await?;
        let (mut known, revision) = read_range(&answer.json().await?)?;
        to.tell(servers(to.template(), &known))?;
        let mut create = self.keys();
        create["start_revision"] = json!((revision + 1).to_string());
        let mut watch = self.send("/v3/watch", &json!({ "create_request": create }), token.as_deref()).await?;
        let mut changed = false;
        loop {
            tokio::select! {
                line = timeout(SILENCE, watch.line()) => {
                    let Ok(line) = line else { return Ok(()) };
                    let line = line?.ok_or("the watch was closed")?;
                    match read_watch(line)? {
                        News::Events(events) => {
                            changed |= !events.is_empty();
                            apply(&mut known, events)?;
                        }
                        News::Again => return Ok(()),
                    }
                    yield_now().await;
                }
                () = to.ready(), if changed => {
                    to.tell(servers(to.template(), &known))?;
                    changed = false;
                }
            }
        }
    }
}

impl Etcd {
    /// With this configuration.
    pub fn new(conf: discover::Etcd) -> Etcd {
        Etcd { conf }
    }

    /// All keys with the prefix.
    fn keys(&self) -> Value {
        let prefix = self.conf.prefix.as_bytes();
        json!({ "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end_of(prefix)) })
    }

    async fn send(&self, target: &str, json: &Value, token: Option<&str>) -> Result<Answer, String> {
        let authorization = token.map(str::to_owned);
        let request = Request { target: target.into(), json: Some(json), authorization, ..Request::default() };
        api::send(&self.conf.api, &request, PATIENCE).await?.good().await
    }

    /// A token for the user of the configuration.
    async fn authenticate(&self) -> Result<Option<String>, String> {
        let Some((user, file)) = &self.conf.user else { return Ok(None) };
        let json = json!({ "name": user, "password": api::secret(file)? });
        let answer = self.send("/v3/auth/authenticate", &json, None).await?.json().await?;
        let token = answer["token"].as_str().filter(|token| !token.chars().any(char::is_control));
        token.map(|token| Some(token.to_owned())).ok_or_else(|| "the answer has no token".into())
    }
}

/// The end of the range of keys that begin with a prefix: the prefix with its last byte one higher. "\0" is the end of all
/// keys.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// The keys of a range and the revision that they are of.
fn read_range(answer: &Value) -> Result<(Known, u64), String> {
    let revision = number(&answer["header"]["revision"]).ok_or("the answer has no revision")?;
    let pairs = match &answer["kvs"] {
        Value::Null => &[][..],
        Value::Array(pairs) => pairs,
        _ => return Err("\"kvs\" of the answer is not a list".into()),
    };
    limit(pairs.len())?;
    let pairs = pairs.iter().map(|pair| Ok((key_of(&pair["key"])?, value_of(&pair["value"])?)));
    Ok((pairs.collect::<Result<_, String>>()?, revision))
}

fn read_watch(line: &[u8]) -> Result<News, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("the watch is not JSON: {error}"))?;
    if let Some(error) = value.get("error") {
        let text = error["message"].as_str().or(error.as_str()).unwrap_or("an error");
        return Err(format!("the watch has failed: {text}"));
    }
    let result = value.get("result").ok_or("the watch has no result")?;
    if result["canceled"] == true {
        // Its revision was compacted; the reason says so, and reading again helps in any case.
        return match number(&result["compact_revision"]) {
            Some(_) => Ok(News::Again),
            None => Err(format!("the watch was refused: {}", result["cancel_reason"].as_str().unwrap_or("no reason"))),
        };
    }
    let events = match &result["events"] {
        Value::Null => &[][..],
        Value::Array(events) => events,
        _ => return Err("\"events\" of the watch is not a list".into()),
    };
    let event = |event: &Value| {
        let is_deleted = event["type"] == "DELETE";
        let value = if is_deleted { None } else { Some(value_of(&event["kv"]["value"])?) };
        Ok((key_of(&event["kv"]["key"])?, value))
    };
    Ok(News::Events(events.iter().map(event).collect::<Result<_, String>>()?))
}

fn apply(known: &mut Known, events: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<(), String> {
    for (key, value) in events {
        match value {
            Some(value) => known.insert(key, value),
            None => known.remove(&key),
        };
    }
    limit(known.len())
}

/// 64-bit numbers are texts in the gateway's JSON.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A key, which is kept as long as it has a value.
fn key_of(text: &Value) -> Result<Vec<u8>, String> {
    let key = bytes(text)?;
    if key.len() > LONGEST { Err(format!("a key is longer than {LONGEST} bytes")) } else { Ok(key) }
}

/// A value; of one that is too long for a server, so much that it is still too long.
fn value_of(text: &Value) -> Result<Vec<u8>, String> {
    let mut value = bytes(text)?;
    value.truncate(LONGEST + 1);
    Ok(value)
}

/// Keys and values are in base64; those that are empty are left out.
fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => STANDARD.decode(text).map_err(|_| "a key or value is not in base64".into()),
        _ => Err("a key or value is not a text".into()),
    }
}

/// The servers that the keys name, and what is wrong with the others.
fn servers(template: &UpstreamServer, known: &Known) -> Entries {
    let name = |(key, _): &(&Vec<u8>, _)| format!("key \"{}\"", String::from_utf8_lossy(key));
    sort_out(known, |(_, value)| server_of(template, value), name)
}

fn server_of(template: &UpstreamServer, value: &[u8]) -> Result<UpstreamServer, String> {
    if value.len() > LONGEST {
        return Err(format!("the value is longer than {LONGEST} bytes"));
    }
    let text = std::str::from_utf8(value).map_err(|_| "the value is not UTF-8")?.trim();
    if !text.starts_with('{') {
        return server::parse(template, text);
    }
    let object: Value = serde_json::from_str(text).map_err(|error| format!("the value is not JSON: {error}"))?;
    let address = object.get("address").or(object.get("Addr")).and_then(Value::as_str).ok_or("no \"address\"")?;
    let mut server = server::at(template, server::address(address)?);
    for (name, value) in object.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            // What gRPC's naming has beside the address.
            ("address" | "Addr" | "Op" | "Metadata", _) | (_, Value::Bool(false)) => {}
            (_, Value::Bool(true)) => server::set(&mut server, name)?,
            (_, Value::String(text)) => server::set(&mut server, &format!("{name}={text}"))?,
            (_, value) => server::set(&mut server, &format!("{name}={value}"))?,
        }
    }
    server::settle(&mut server);
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::sink::MOST;
    use crate::discovery::sink::tests::server;

    fn encoded(text: &str) -> String {
        STANDARD.encode(text)
    }

    #[test]
    fn a_range_ends_behind_its_prefix() {
        assert_eq!(end_of(b"/web/"), b"/web0");
        assert_eq!(end_of(b"a\xff\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
    }

    #[test]
    fn ranges() {
        let (key, value) = (encoded("/web/a"), encoded("10.0.0.1:80"));
        let answer =
            json!({"header": {"revision": "12"}, "kvs": [{"key": key, "value": value}, {"key": encoded("/web/b")}]});
        let (known, revision) = read_range(&answer).unwrap();
        assert_eq!(revision, 12);
        let expected = [(b"/web/a".to_vec(), b"10.0.0.1:80".to_vec()), (b"/web/b".to_vec(), Vec::new())];
        assert_eq!(known.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(read_range(&json!({"header": {"revision": 3}})).unwrap(), (Known::new(), 3));
        let wrong = |answer| read_range(&answer).unwrap_err();
        assert_eq!(wrong(json!({})), "the answer has no revision");
        assert_eq!(wrong(json!([])), "the answer has no revision");
        assert_eq!(wrong(json!({"header": {"revision": "x"}})), "the answer has no revision");
        assert_eq!(wrong(json!({"header": {"revision": "1"}, "kvs": 5})), "\"kvs\" of the answer is not a list");
        let kvs = json!({"header": {"revision": "1"}, "kvs": [{"key": "?"}]});
        assert_eq!(wrong(kvs), "a key or value is not in base64");
        assert_eq!(wrong(json!({"header": {"revision": "1"}, "kvs": [{"key": 1}]})), "a key or value is not a text");
    }

    #[test]
    fn watches() {
        let of = |value: Value| read_watch(value.to_string().as_bytes());
        assert_eq!(of(json!({"result": {"created": true}})), Ok(News::Events(Vec::new())));
        let (key, value) = (encoded("a"), encoded("b"));
        let events = json!([{"kv": {"key": key, "value": value}}, {"type": "DELETE", "kv": {"key": key}}]);
        let expected = vec![(b"a".to_vec(), Some(b"b".to_vec())), (b"a".to_vec(), None)];
        assert_eq!(of(json!({"result": {"events": events}})), Ok(News::Events(expected)));
        assert_eq!(of(json!({"result": {"canceled": true, "compact_revision": "9"}})), Ok(News::Again));
        let refused = of(json!({"result": {"canceled": true, "cancel_reason": "no"}}));
        assert_eq!(refused, Err("the watch was refused: no".into()));
        let failed = of(json!({"error": {"message": "etcdserver: no leader"}}));
        assert_eq!(failed, Err("the watch has failed: etcdserver: no leader".into()));
        assert_eq!(of(json!({})), Err("the watch has no result".into()));
        assert_eq!(of(json!({"result": {"events": {}}})), Err("\"events\" of the watch is not a list".into()));
        assert!(read_watch(b"<html>").unwrap_err().starts_with("the watch is not JSON"));
    }

    #[test]
    fn events_change_the_keys() {
        let mut known = Known::from([(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
        let events = vec![(b"a".to_vec(), None), (b"b".to_vec(), Some(b"3".to_vec())), (b"x".to_vec(), None)];
        apply(&mut known, events).unwrap();
        assert_eq!(known.iter().collect::<Vec<_>>(), [(&b"b".to_vec(), &b"3".to_vec())]);
        let more = |count: usize| (1..=count).map(|i| (i.to_string().into_bytes(), Some(Vec::new()))).collect();
        apply(&mut known, more(MOST - 1)).unwrap();
        assert_eq!(apply(&mut known, more(MOST)), Err("it has more than 65536 entries".into()));
    }

    #[test]
    fn long_keys_and_values() {
        let of = |key: usize, value: usize| {
            let pair = json!({"key": encoded(&"k".repeat(key)), "value": encoded(&"v".repeat(value))});
            read_range(&json!({"header": {"revision": 1}, "kvs": [pair]})).map(|(known, _)| known)
        };
        assert_eq!(of(LONGEST + 1, 1).unwrap_err(), "a key is longer than 8192 bytes");
        let known = of(LONGEST, 100_000).unwrap();
        assert_eq!(known.values().next().unwrap().len(), LONGEST + 1, "no more is kept");
        let complaints = servers(&server(0), &known).1;
        assert!(complaints.first().unwrap().ends_with("the value is longer than 8192 bytes"));
    }

    #[test]
    fn values_are_servers() {
        let of = |text: &str| server_of(&server(0), text.as_bytes());
        let shown = |text| of(text).map(|server| (server.name, server.weight, server.draining)).unwrap();
        assert_eq!(shown("10.0.0.1:80 weight=3\n"), ("10.0.0.1:80".to_owned(), 3, false));
        assert_eq!(shown(r#"{"address": "10.0.0.1:80", "weight": 2, "drain": true, "backup": false}"#).1, 2);
        assert_eq!(shown(r#"{"Op": 0, "Addr": "10.0.0.1:80", "Metadata": null}"#).0, "10.0.0.1:80");
        assert_eq!(shown(r#"{"address": "10.0.0.1:80", "weight": "4"}"#).1, 4);
        assert_eq!(of(r#"{"weight": 2}"#).unwrap_err(), "no \"address\"");
        assert!(of(r#"{"address"#).unwrap_err().starts_with("the value is not JSON"));
        assert!(of(r#"{"address": "10.0.0.1:80", "colour": "red"}"#).unwrap_err().contains("\"colour=red\""));
        assert_eq!(server_of(&server(0), b"\xff").unwrap_err(), "the value is not UTF-8");
        let known = Known::from([(b"/a".to_vec(), b"10.0.0.1:80".to_vec()), (b"/b".to_vec(), b"x".to_vec())]);
        let (servers, complaints) = servers(&server(0), &known);
        assert_eq!(servers.len(), 1, "one wrong key does not hide the others");
        assert_eq!(complaints.first().unwrap(), "key \"/b\" is left out: \"x\" is not an IP address with a port");
    }
}
