//! `server` lines of a backend.

use super::lines::Line;
use super::nginx;
use super::notes::Notes;
use super::proxy::{Mode, Proxy};
use super::time;

/// What the servers of a backend have in common, and their directives.
#[derive(Debug, Clone, Default)]
pub struct Servers {
    /// The `server` directives, without semicolons.
    pub lines: Vec<String>,
    /// `ssl`, and how the certificates are verified.
    pub ssl: bool,
    pub verify: Option<String>,
    pub verified: bool,
    pub sni: bool,
    /// `proto h2`.
    pub http2: bool,
    /// `send-proxy`.
    pub proxy_protocol: bool,
    /// `check`, with interval, rise and fall.
    pub check: bool,
    pub interval: u64,
    pub rise: u64,
    pub fall: u64,
    pub port: Option<String>,
    /// `maxconn` of a server.
    pub limited: bool,
    /// The port of `agent-check`.
    pub agent: Option<String>,
}

/// One of them, while it is read.
#[derive(Default)]
struct One {
    parameters: Vec<String>,
    backup: bool,
}

/// Reads the servers of a section. `backups` says whether the algorithm can have some.
pub fn read(proxy: &Proxy, backups: bool, notes: &mut Notes) -> Servers {
    let mut all = Servers { interval: 2000, rise: 2, fall: 3, ..Servers::default() };
    for line in &proxy.servers {
        let mut one = One::default();
        let mut words: Vec<String> = proxy.default_server.clone();
        words.extend_from_slice(line.from(3));
        parameters(&words, proxy.mode, line, &mut one, &mut all, notes);
        let address = match address(line.word(2), proxy.mode) {
            Ok(address) => address,
            Err(why) => {
                notes.add(line, why);
                continue;
            }
        };
        if one.backup && backups {
            one.parameters.push("backup".into());
        } else if one.backup {
            notes.add(line, "backup is not possible with this algorithm: the server is down until another one is");
            one.parameters.push("down".into());
        }
        // The cookie has the value of HAProxy's, so that clients keep their servers.
        one.parameters.insert(0, address);
        all.lines.push(format!("server {}", one.parameters.join(" ")));
    }
    all
}

/// An address as a server of an upstream.
fn address(text: &str, mode: Mode) -> Result<String, String> {
    let text = text.strip_prefix("ipv4@").or(text.strip_prefix("ipv6@")).unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or(text.starts_with('/').then_some(text)) {
        return Ok(format!("unix:{path}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((_, port)) if port.starts_with('+') || port.starts_with('-') => {
            return Err("a port relative to the client's has no counterpart".into());
        }
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, Some(port)),
        Some((host, "")) => (host, None),
        _ => (text, None),
    };
    if host.is_empty() || host.contains(['$', '@', '{']) {
        return Err("an address from the environment or another namespace: write it by hand".into());
    }
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_string() };
    match port {
        Some(port) => Ok(format!("{host}:{port}")),
        None if mode == Mode::Http => Ok(format!("{host}:80")),
        None => Err("without a port: HAProxy uses that of the client's connection".into()),
    }
}

fn parameters(words: &[String], mode: Mode, line: &Line, one: &mut One, all: &mut Servers, notes: &mut Notes) {
    let mut rest = words.iter().map(String::as_str).peekable();
    let set = |one: &mut One, name: &str, value: String| {
        let start = format!("{name}=");
        one.parameters.retain(|it| !it.starts_with(&start));
        one.parameters.push(format!("{name}={value}"));
    };
    while let Some(word) = rest.next() {
        let mut value = || rest.next().unwrap_or_default();
        let milliseconds = |text: &str| time::milliseconds(text).unwrap_or(2000);
        match word {
            "weight" => match value() {
                // It is drained: only clients that are bound to it use it.
                "0" if mode == Mode::Http => one.parameters.push("drain".into()),
                "0" => one.parameters.push("down".into()),
                "1" => one.parameters.retain(|it| !it.starts_with("weight=")),
                weight => set(one, "weight", weight.into()),
            },
            "maxconn" => {
                let limit = value();
                if limit != "0" {
                    set(one, "max_conns", limit.into());
                    all.limited = true;
                }
            }
            "backup" => one.backup = true,
            "disabled" => one.parameters.push("down".into()),
            "cookie" => {
                let name = value();
                if mode == Mode::Http {
                    set(one, "route", nginx::quoted(name));
                }
            }
            "slowstart" => {
                let time = time::milliseconds(value()).unwrap_or(0);
                set(one, "slow_start", time::written(time));
            }
            "check" => all.check = true,
            "inter" => all.interval = milliseconds(value()),
            "rise" => all.rise = value().parse().unwrap_or(2),
            "fall" => all.fall = value().parse().unwrap_or(3),
            "port" => all.port = Some(value().into()),
            "ssl" => all.ssl = true,
            "verify" => all.verified = value() == "required",
            "ca-file" => all.verify = Some(value().into()),
            "sni" => {
                all.sni = true;
                value();
            }
            "proto" | "check-proto" if value() == "h2" => all.http2 = true,
            "proto" | "check-proto" => {}
            "alpn" | "check-alpn" => all.http2 |= value().split(',').next() == Some("h2") && word == "alpn",
            "send-proxy" => all.proxy_protocol = true,
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                all.proxy_protocol = true;
                notes.add(line, "the header of the PROXY protocol is one of version 1");
            }
            "agent-check" => {}
            "agent-port" => all.agent = Some(value().into()),
            "resolvers" => {
                value();
                notes.add(line, "to follow changes of the name: \"resolver ADDRESS;\" in the upstream and \"resolve\" at the server");
            }
            // What Balanza does anyway.
            "no-check" => all.check = false,
            "enabled" | "check-ssl" | "no-agent-check" | "no-backup" | "no-ssl" | "stick" | "non-stick"
            | "check-send-proxy" | "no-sslv3" | "no-tlsv10" | "no-tlsv11" | "tfo" | "no-tfo" | "ssl-reuse" => {}
            "id" | "fastinter" | "downinter" | "init-addr" | "resolve-prefer" | "resolve-opts" | "pool-max-conn"
            | "guid" | "pool-purge-delay" | "pool-low-conn" | "max-reuse" | "minconn" | "maxqueue" | "log-proto"
            | "agent-inter" | "tcp-ut" | "error-limit" | "check-sni" | "ssl-min-ver" | "ssl-max-ver" | "hash-key"
            | "ws" => {
                value();
            }
            "observe" | "on-error" | "on-marked-down" | "on-marked-up" | "track" | "redir" | "source" | "crt"
            | "addr" | "namespace" | "ciphers" | "ciphersuites" | "crl-file" | "verifyhost" | "socks4"
            | "agent-addr" | "agent-send" => {
                let value = value();
                notes.add(line, format!("\"{word} {value}\" has no counterpart"));
            }
            other => notes.add(line, format!("\"{other}\" has no counterpart")),
        }
    }
    if mode == Mode::Http && all.proxy_protocol {
        notes.add(
            line,
            "the PROXY protocol goes to servers of stream only: proxy_set_header sends the client's address",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_nginx_reads_them() {
        let of = |text: &str, mode| address(text, mode).ok();
        for (text, expected) in [
            ("10.0.0.1:80", Some("10.0.0.1:80")),
            ("10.0.0.1", Some("10.0.0.1:80")),
            ("web.test:8080", Some("web.test:8080")),
            ("[::1]:80", Some("[::1]:80")),
            ("/run/a.sock", Some("unix:/run/a.sock")),
            ("unix@/run/a.sock", Some("unix:/run/a.sock")),
            ("10.0.0.1:+1", None),
            ("${HOST}:80", None),
        ] {
            assert_eq!(of(text, Mode::Http).as_deref(), expected, "{text}");
        }
        assert_eq!(of("10.0.0.1", Mode::Tcp), None);
    }
}
