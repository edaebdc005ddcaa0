//! The parameters of a server as a request gives them.

use std::time::{Duration, SystemTime};

use balanza_config::at_run_time::{self, NoAddress};
use balanza_config::model::membership::{Change, Protocol, ServerKey};
use balanza_config::model::{ServerAddress, UpstreamServer};
use serde_json::{Map, Value};

use super::super::Failure;
use crate::servers::membership::Shared;

/// The longest route, as in a configuration.
const LONGEST_ROUTE: usize = 32;

/// Parameters of a server; none for those that are not given.
#[derive(Debug, Default, PartialEq)]
pub struct Written {
    /// `server` as it was written.
    pub name: Option<String>,
    /// `server`.
    pub address: Option<ServerAddress>,
    weight: Option<u32>,
    max_conns: Option<u32>,
    max_fails: Option<u32>,
    fail_timeout: Option<Duration>,
    slow_start: Option<Duration>,
    route: Option<String>,
    backup: Option<bool>,
    down: Option<bool>,
    drain: Option<bool>,
    /// `null` removes it.
    drain_timeout: Option<Option<Duration>>,
}

/// The object of a request's body.
///
/// # Errors
/// It is something else.
pub fn object(body: &[u8]) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::format("an object is needed")),
        Err(error) => Err(Failure::new(415, "JsonError", format!("json error: {error}"))),
    }
}

impl Written {
    /// Reads a request's body.
    ///
    /// # Errors
    /// It is not an object of known parameters with values of their kinds.
    pub fn read(body: &[u8], protocol: Protocol) -> Result<Written, Failure> {
        Written::of(&object(body)?, protocol)
    }

    fn of(object: &Map<String, Value>, protocol: Protocol) -> Result<Written, Failure> {
        let mut written = Written::default();
        for (name, value) in object {
            let wrong = |code: &'static str| Failure::new(400, code, format!("invalid \"{name}\": {value}"));
            let number = |code: &'static str| {
                value.as_u64().and_then(|number| u32::try_from(number).ok()).ok_or_else(|| wrong(code))
            };
            let flag = || value.as_bool().ok_or_else(|| wrong("UpstreamConfFormatError"));
            match name.as_str() {
                "id" => {}
                "server" => {
                    let text = value.as_str().ok_or_else(|| wrong("UpstreamBadAddress"))?;
                    written.address = Some(address(text, protocol)?);
                    written.name = Some(text.to_owned());
                }
                "weight" => {
                    let weight = number("UpstreamBadWeight")?;
                    written.weight = Some(weight).filter(|weight| *weight > 0);
                    written.weight.ok_or_else(|| wrong("UpstreamBadWeight"))?;
                }
                "max_conns" => written.max_conns = Some(number("UpstreamBadMaxConns")?),
                "max_fails" => written.max_fails = Some(number("UpstreamBadMaxFails")?),
                "fail_timeout" => {
                    let time = value.as_str().and_then(at_run_time::seconds);
                    written.fail_timeout = Some(time.ok_or_else(|| wrong("UpstreamBadFailTimeout"))?);
                }
                "slow_start" => {
                    let time = value.as_str().and_then(at_run_time::milliseconds);
                    written.slow_start = Some(time.ok_or_else(|| wrong("UpstreamBadSlowStart"))?);
                }
                "route" if protocol == Protocol::Http => {
                    let route = value.as_str().filter(|route| route.len() <= LONGEST_ROUTE);
                    written.route = Some(route.ok_or_else(|| wrong("UpstreamBadRoute"))?.to_owned());
                }
                "service" => {
                    let text = "a service cannot be looked up at run time";
                    return Err(Failure::new(400, "UpstreamBadService", text));
                }
                "backup" => written.backup = Some(flag()?),
                "down" => written.down = Some(flag()?),
                "drain" => written.drain = Some(flag()?),
                "drain_timeout" if value.is_null() => written.drain_timeout = Some(None),
                "drain_timeout" => {
                    let time = value.as_str().and_then(at_run_time::milliseconds);
                    written.drain_timeout = Some(Some(time.ok_or_else(|| wrong("UpstreamConfFormatError"))?));
                }
                _ => return Err(Failure::format(format!("unknown parameter \"{name}\""))),
            }
        }
        Ok(written)
    }

    /// Sets what is given.
    ///
    /// # Errors
    /// The algorithm has no backups, or the server is a backup or not already.
    pub fn apply(&self, server: &mut UpstreamServer, shared: &Shared, is_new: bool) -> Result<(), Failure> {
        let Written { name: _, address: _, weight, max_conns, max_fails, fail_timeout, .. } = self;
        if let Some(backup) = self.backup {
            if backup && !shared.membership().balancing.balance.spec.entry().backup {
                let text = "the balancing method has no backup servers";
                return Err(Failure::new(400, "UpstreamNoBackup", text));
            }
            if !is_new && backup != server.backup {
                return Err(Failure::format("\"backup\" cannot be changed"));
            }
            server.backup = backup;
        }
        set(&mut server.weight, *weight);
        set(&mut server.max_conns, *max_conns);
        set(&mut server.max_fails, *max_fails);
        set(&mut server.fail_timeout, *fail_timeout);
        set(&mut server.slow_start, self.slow_start);
        set(&mut server.down, self.down);
        set(&mut server.draining, self.drain);
        if let Some(route) = &self.route {
            server.route = Some(route.clone()).filter(|route| !route.is_empty());
        }
        if matches!(self.drain_timeout, Some(Some(_))) && (is_new || !server.draining) {
            return Err(Failure::format("\"drain_timeout\" is for a server that drains: send \"drain\": true with it"));
        }
        if server.down && server.draining {
            return Err(Failure::format("a server cannot both drain and be down"));
        }
        Ok(())
    }
}

impl Written {
    /// The change of the deadline of a server that drains.
    pub fn deadline(&self, server: ServerKey, now: SystemTime) -> Option<Change> {
        self.drain_timeout.map(|timeout| Change::Drain(server, timeout.map(|timeout| now + timeout)))
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn address(text: &str, protocol: Protocol) -> Result<ServerAddress, Failure> {
    let port = if protocol == Protocol::Http { Some(80) } else { None };
    at_run_time::address(text, port).map_err(|error| match error {
        NoAddress::Name => {
            let text = format!("\"{text}\" is a name: names of servers are looked up for the configuration only");
            Failure::new(400, "UpstreamConfNoResolver", text)
        }
        NoAddress::Invalid(why) => Failure::new(400, "UpstreamBadAddress", format!("{why} in \"{text}\"")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str, protocol: Protocol) -> String {
        match Written::read(body.as_bytes(), protocol) {
            Ok(_) => "ok".to_owned(),
            Err(failure) => {
                let answer: Value = serde_json::from_slice(&failure.answer("").body).unwrap();
                answer["error"]["code"].as_str().unwrap().to_owned()
            }
        }
    }

    #[test]
    fn parameters_are_checked() {
        let http = |body: &str| code(body, Protocol::Http);
        assert_eq!(http(r#"{"server":"10.0.0.1","weight":2,"max_conns":0,"fail_timeout":"1m","drain":true}"#), "ok");
        assert_eq!(http(r#"{"id":3,"server":"unix:/run/a","slow_start":"150ms","route":"","backup":false}"#), "ok");
        assert_eq!(http("{"), "JsonError");
        assert_eq!(http("[]"), "UpstreamConfFormatError");
        assert_eq!(http(r#"{"wieght":1}"#), "UpstreamConfFormatError");
        assert_eq!(http(r#"{"weight":0}"#), "UpstreamBadWeight");
        assert_eq!(http(r#"{"weight":{"a":1}}"#), "UpstreamBadWeight");
        assert_eq!(http(r#"{"max_conns":-1}"#), "UpstreamBadMaxConns");
        assert_eq!(http(r#"{"max_fails":5000000000}"#), "UpstreamBadMaxFails");
        assert_eq!(http(r#"{"fail_timeout":"soon"}"#), "UpstreamBadFailTimeout");
        assert_eq!(http(r#"{"slow_start":3}"#), "UpstreamBadSlowStart");
        assert_eq!(http(&format!(r#"{{"route":"{}"}}"#, "r".repeat(33))), "UpstreamBadRoute");
        assert_eq!(http(r#"{"server":"10.0.0.1:99999"}"#), "UpstreamBadAddress");
        assert_eq!(http(r#"{"server":"app.example.com:80"}"#), "UpstreamConfNoResolver");
        assert_eq!(code(r#"{"server":"10.0.0.1"}"#, Protocol::Stream), "UpstreamBadAddress");
        assert_eq!(code(r#"{"route":"a"}"#, Protocol::Stream), "UpstreamConfFormatError");
        assert_eq!(http(r#"{"drain":true,"drain_timeout":"30s"}"#), "ok");
        assert_eq!(http(r#"{"drain_timeout":null}"#), "ok");
        assert_eq!(http(r#"{"drain_timeout":30}"#), "UpstreamConfFormatError");
    }
}
