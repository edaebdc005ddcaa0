//! A server as a source tells of it: an address and parameters, on top of those that all have in common.

use balanza_config::model::{ServerAddress, UpstreamServer};
use serde_json::Value;

/// The largest weight: the algorithms add weights up in 32 bits.
const WEIGHT_MAX: u32 = 65_535;

/// The parameters that a source may set, for messages.
const KNOWN: &str = "weight=, max_conns=, max_fails=, priority=, route=, backup, down, drain";

/// A server at an address.
pub fn at(template: &UpstreamServer, address: ServerAddress) -> UpstreamServer {
    // Algorithms that hash tell the servers of a source apart.
    UpstreamServer { name: address.to_string(), address, ..template.clone() }
}

/// A port as a number in JSON.
pub fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// `ADDRESS:PORT` or `unix:/PATH`, without a host name.
///
/// # Errors
/// What is wrong.
pub fn address(text: &str) -> Result<ServerAddress, String> {
    match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') => Ok(ServerAddress::Unix(path.into())),
        Some(_) => Err(format!("\"{text}\" has no path")),
        None => match text.parse() {
            Ok(address) => Ok(ServerAddress::Inet(address)),
            Err(_) => Err(format!("\"{text}\" is not an IP address with a port")),
        },
    }
}

/// Sets a parameter, written as in `server`.
///
/// # Errors
/// There is no such parameter, or the value is wrong.
pub fn set(server: &mut UpstreamServer, word: &str) -> Result<(), String> {
    let (name, value) = word.split_at(word.find('=').map_or(word.len(), |at| at + 1));
    let wrong = || format!("invalid parameter \"{word}\" (possible: {KNOWN})");
    let number = || value.parse::<u32>().map_err(|_| wrong());
    match name {
        "weight=" => match number()? {
            weight @ 1..=WEIGHT_MAX => server.weight = weight,
            _ => return Err(format!("\"{word}\": a weight is from 1 to {WEIGHT_MAX}")),
        },
        "max_conns=" => server.max_conns = number()?,
        "max_fails=" => server.max_fails = number()?,
        "priority=" => server.priority = number()?,
        "route=" if (1..=32).contains(&value.len()) => server.route = Some(value.to_owned()),
        "backup" => server.backup = true,
        "down" => server.down = true,
        "drain" => server.draining = true,
        _ => return Err(wrong()),
    }
    Ok(())
}

/// What parameters come to together: a backup has no priority, a server that is down does not drain.
pub fn settle(server: &mut UpstreamServer) {
    if server.backup {
        server.priority = 0;
    }
    if server.down {
        server.draining = false;
    }
}

/// `ADDRESS:PORT [PARAMETER …]`, as in `server`.
///
/// # Errors
/// What is wrong.
pub fn parse(template: &UpstreamServer, text: &str) -> Result<UpstreamServer, String> {
    let mut words = text.split_ascii_whitespace();
    let mut server = at(template, address(words.next().unwrap_or_default())?);
    words.try_for_each(|word| set(&mut server, word))?;
    settle(&mut server);
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::sink::tests::server as numbered;

    #[test]
    fn servers_have_the_common_parameters_and_their_own() {
        let template = UpstreamServer { weight: 5, max_fails: 3, ..numbered(0) };
        let server = parse(&template, "10.0.0.1:80 max_conns=7 priority=2 route=a1").unwrap();
        assert_eq!((server.name.as_str(), server.weight, server.max_fails), ("10.0.0.1:80", 5, 3));
        assert_eq!((server.max_conns, server.priority, server.route.as_deref()), (7, 2, Some("a1")));
        let server = parse(&template, " [::1]:81  weight=65535 backup priority=3 down drain ").unwrap();
        assert_eq!(server.address, ServerAddress::Inet("[::1]:81".parse().unwrap()));
        assert_eq!((server.weight, server.backup, server.priority), (65_535, true, 0));
        assert_eq!((server.down, server.draining), (true, false));
        assert_eq!(parse(&template, "unix:/run/a").unwrap().name, "unix:/run/a");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let of = |text: &str| parse(&numbered(0), text).unwrap_err();
        assert_eq!(of(""), "\"\" is not an IP address with a port");
        assert_eq!(of("10.0.0.1"), "\"10.0.0.1\" is not an IP address with a port");
        assert_eq!(of("app:80"), "\"app:80\" is not an IP address with a port");
        assert_eq!(of("unix:a"), "\"unix:a\" has no path");
        assert_eq!(of("10.0.0.1:80 weight=0"), "\"weight=0\": a weight is from 1 to 65535");
        for word in ["weight=x", "weight", "max_conns=-1", "backup=1", "route=", "foo", "down=yes"] {
            let expected = format!("invalid parameter \"{word}\" (possible: {KNOWN})");
            assert_eq!(of(&format!("10.0.0.1:80 {word}")), expected);
        }
    }
}
