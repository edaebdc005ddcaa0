//! `server` lines of a backend.

use super::lines::Line;
use super::nginx;
use super::notes::Notes;
use super::proxy::{Mode, Proxy};
use super::{format, time};

/// How servers are connected to and checked. Each server of HAProxy has its own; an upstream here has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub ssl: bool,
    /// Their certificates are verified.
    pub verify: bool,
    pub ca_file: Option<String>,
    /// `sni`: "" for an expression without a counterpart.
    pub sni: Option<String>,
    pub verifyhost: Option<String>,
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
    /// The port of `agent-check`.
    pub agent: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ssl: false,
            verify: false,
            ca_file: None,
            sni: None,
            verifyhost: None,
            http2: false,
            proxy_protocol: false,
            check: false,
            interval: 2000,
            rise: 2,
            fall: 3,
            port: None,
            agent: None,
        }
    }
}

impl Settings {
    /// Leaves out what has no effect.
    fn effective(self) -> Settings {
        let none = Settings::default();
        let mut own = self;
        if !own.ssl {
            own = Settings { verify: false, sni: None, ..own };
        }
        if !own.verify {
            own = Settings { ca_file: None, verifyhost: None, ..own };
        }
        if !own.check {
            own = Settings { interval: none.interval, rise: none.rise, fall: none.fall, port: None, ..own };
        }
        own
    }

    /// The words that differ.
    pub fn differences(&self, other: &Settings) -> Vec<&'static str> {
        let all = [
            ("ssl", self.ssl != other.ssl),
            ("verify", self.verify != other.verify),
            ("ca-file", self.ca_file != other.ca_file),
            ("sni", self.sni != other.sni),
            ("verifyhost", self.verifyhost != other.verifyhost),
            ("proto", self.http2 != other.http2),
            ("send-proxy", self.proxy_protocol != other.proxy_protocol),
            ("check", self.check != other.check),
            ("inter", self.interval != other.interval),
            ("rise", self.rise != other.rise),
            ("fall", self.fall != other.fall),
            ("port", self.port != other.port),
            ("agent-port", self.agent != other.agent),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// What holds for both: the stricter of two, else that of the first one.
    pub fn and(self, other: &Settings) -> Settings {
        let (with_check, without) = if self.check { (&self, other) } else { (other, &self) };
        Settings {
            ssl: self.ssl || other.ssl,
            verify: self.verify || other.verify,
            check: self.check || other.check,
            interval: with_check.interval,
            rise: with_check.rise,
            fall: with_check.fall,
            port: with_check.port.clone().or(without.port.clone()),
            http2: self.http2,
            proxy_protocol: self.proxy_protocol,
            ca_file: self.ca_file.clone().or(other.ca_file.clone()),
            sni: self.sni.clone().or(other.sni.clone()),
            verifyhost: self.verifyhost.clone().or(other.verifyhost.clone()),
            agent: self.agent.clone().or(other.agent.clone()),
        }
    }
}

/// The servers of a backend.
#[derive(Debug, Clone, Default)]
pub struct Servers {
    /// The `server` directives, without semicolons.
    pub lines: Vec<String>,
    /// What holds for all of them.
    pub settings: Settings,
    /// `maxconn` of a server.
    pub limited: bool,
}

/// One of them, while it is read.
#[derive(Default)]
struct One {
    parameters: Vec<String>,
    backup: bool,
    settings: Settings,
    /// `verify`, if it is given.
    verify: Option<bool>,
}

/// Reads the servers of a section. `backups` says whether the algorithm can have some.
pub fn read(proxy: &Proxy, backups: bool, notes: &mut Notes) -> Servers {
    let mut all = Servers::default();
    let mut common: Option<Settings> = None;
    for line in &proxy.servers {
        let mut one = One::default();
        let mut words: Vec<String> = proxy.default_server.clone();
        words.extend_from_slice(line.from(3));
        parameters(&words, proxy.mode, line, &mut one, &mut all, notes);
        one.settings.verify = one.verify.unwrap_or(!proxy.trusts_servers);
        let settings = one.settings.effective();
        unclear(&settings, line, notes);
        common = Some(match common.take() {
            None => settings,
            Some(common) => {
                let words = common.differences(&settings).join(", ");
                if !words.is_empty() {
                    notes.add(
                        line,
                        format!("differs from a server before in {words}: here all of a backend have the same"),
                    );
                }
                common.and(&settings)
            }
        });
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
    all.settings = common.unwrap_or_default();
    all
}

/// What holds for all servers of a section. Notes about them are made when its upstream is written.
pub fn settings(proxy: &Proxy) -> Settings {
    read(proxy, true, &mut Notes::default()).settings
}

/// Notes what is not clear about TLS.
fn unclear(settings: &Settings, line: &Line, notes: &mut Notes) {
    if settings.sni.as_deref() == Some("") {
        notes.add(line, "the expression of sni has no counterpart: write proxy_ssl_name");
    }
    if settings.verify && settings.ca_file.is_none() {
        notes.add(line, "certificates are verified: name the authority with proxy_ssl_trusted_certificate");
    }
    if settings.ca_file.as_deref() == Some(SYSTEM_CA) {
        notes.add(line, format!("the authorities of the system: {SYSTEM_CA} if they are there"));
    }
    if settings.verify && settings.sni.is_none() && settings.verifyhost.is_none() {
        notes.add(
            line,
            "without sni and verifyhost HAProxy checks no name; here it is that of the backend, or of proxy_ssl_name",
        );
    }
}

/// The authorities of Debian and its like.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The name of `sni EXPRESSION`; "" if it has no counterpart.
fn sni(expression: &str) -> String {
    let text = expression.strip_prefix("str(").and_then(|rest| rest.strip_suffix(')'));
    match (text, expression) {
        (Some(text), _) if !text.contains(['(', ')', ',', '$']) => text.trim_matches(['"', '\'']).to_string(),
        (_, "req.hdr(host),field(1,:)" | "hdr(host),field(1,:)" | "req.hdr(host),host_only") => "$host".into(),
        _ => format::variable(expression).unwrap_or_default(),
    }
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
            "check" => one.settings.check = true,
            "inter" => one.settings.interval = milliseconds(value()),
            "rise" => one.settings.rise = value().parse().unwrap_or(2),
            "fall" => one.settings.fall = value().parse().unwrap_or(3),
            "port" => one.settings.port = Some(value().into()),
            "ssl" => one.settings.ssl = true,
            "no-ssl" => one.settings.ssl = false,
            "verify" => one.verify = Some(value() != "none"),
            "ca-file" => {
                let file = value();
                one.settings.ca_file = Some(if file == "@system-ca" { SYSTEM_CA } else { file }.into());
            }
            "sni" => one.settings.sni = Some(sni(value())),
            "verifyhost" => one.settings.verifyhost = Some(value().into()),
            "proto" => one.settings.http2 |= value() == "h2",
            "check-proto" | "check-alpn" => drop(value()),
            "alpn" => one.settings.http2 |= value().split(',').next() == Some("h2"),
            "send-proxy" => one.settings.proxy_protocol = true,
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                one.settings.proxy_protocol = true;
                notes.add(line, "the header of the PROXY protocol is one of version 1");
            }
            "agent-check" => {}
            "agent-port" => one.settings.agent = Some(value().into()),
            "resolvers" => {
                value();
                notes.add(line, "to follow changes of the name: \"resolver ADDRESS;\" in the upstream and \"resolve\" at the server");
            }
            // What Balanza does anyway.
            "no-check" => one.settings.check = false,
            "no-backup" => one.backup = false,
            "enabled" | "check-ssl" | "no-agent-check" | "stick" | "non-stick" | "check-send-proxy" | "no-sslv3"
            | "no-tlsv10" | "no-tlsv11" | "tfo" | "no-tfo" | "ssl-reuse" => {}
            "id" | "fastinter" | "downinter" | "init-addr" | "resolve-prefer" | "resolve-opts" | "pool-max-conn"
            | "guid" | "pool-purge-delay" | "pool-low-conn" | "max-reuse" | "minconn" | "maxqueue" | "log-proto"
            | "agent-inter" | "tcp-ut" | "error-limit" | "check-sni" | "ssl-min-ver" | "ssl-max-ver" | "hash-key"
            | "ws" => {
                value();
            }
            "observe" | "on-error" | "on-marked-down" | "on-marked-up" | "track" | "redir" | "source" | "crt"
            | "addr" | "namespace" | "ciphers" | "ciphersuites" | "crl-file" | "socks4" | "agent-addr"
            | "agent-send" => {
                let value = value();
                notes.add(line, format!("\"{word} {value}\" has no counterpart"));
            }
            other => notes.add(line, format!("\"{other}\" has no counterpart")),
        }
    }
    if mode == Mode::Http && one.settings.proxy_protocol {
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
