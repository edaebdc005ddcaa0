//! `bind` lines of a frontend.

use super::lines::Line;
use super::nginx::Node;
use super::notes::Notes;

/// What a frontend listens on.
#[derive(Debug, Clone, Default)]
pub struct Binds {
    /// `listen` directives, without semicolons.
    pub listens: Vec<String>,
    /// Directives of TLS.
    pub tls: Vec<String>,
    /// HTTP/2 after TLS.
    pub http2: bool,
    /// `accept-proxy`: the client's address is that of the header.
    pub proxy_protocol: bool,
}

impl Binds {
    /// Whose header of the PROXY protocol is believed: that of all clients, as in HAProxy.
    pub fn real_ip(&self) -> Vec<Node> {
        let from = ["set_real_ip_from 0.0.0.0/0", "set_real_ip_from ::/0", "set_real_ip_from unix:"];
        if self.proxy_protocol { from.map(Node::line).into() } else { Vec::new() }
    }
}

/// Reads them.
pub fn read(lines: &[Line], notes: &mut Notes) -> Binds {
    let mut binds = Binds::default();
    // What the first line with TLS says, but for its certificate.
    let mut first: Option<Vec<String>> = None;
    for line in lines {
        let mut parameters = Vec::new();
        let mut rest = line.from(2).iter().map(String::as_str);
        let mut tls = Vec::new();
        let mut is_dual = false;
        let mut verify = None;
        let mut http2 = false;
        while let Some(word) = rest.next() {
            let mut value = || rest.next().unwrap_or_default().to_string();
            match word {
                "ssl" => parameters.push("ssl".to_string()),
                "crt" => certificate(&value(), line, &mut tls, notes),
                "alpn" => http2 |= value().split(',').any(|it| it == "h2"),
                "proto" => http2 |= value() == "h2",
                "accept-proxy" => {
                    binds.proxy_protocol = true;
                    parameters.push("proxy_protocol".into());
                }
                "backlog" => parameters.push(format!("backlog={}", value())),
                "defer-accept" => parameters.push("deferred".into()),
                "v4v6" => is_dual = true,
                "v6only" => {}
                "ca-file" => tls.push(format!("ssl_client_certificate {}", value())),
                "verify" => verify = Some(value()),
                "ciphers" => tls.push(format!("ssl_ciphers {}", value())),
                "ssl-min-ver" => tls.extend(protocols(&value())),
                "no-sslv3" | "no-tlsv10" | "no-tlsv11" | "no-tls-tickets" | "tfo" | "prefer-client-ciphers" => {}
                // Names of the socket, and how HAProxy's threads share it.
                "name" | "id" | "process" | "thread" | "shards" | "nice" | "mss" | "tcp-ut" => drop(value()),
                "user" | "group" | "mode" | "uid" | "gid" | "level" | "maxconn" | "ciphersuites" | "curves"
                | "ecdhe" => {
                    let value = value();
                    notes.add(line, format!("\"{word} {value}\" has no counterpart"));
                }
                "strict-sni" | "transparent" | "allow-0rtt" | "generate-certificates" => {
                    notes.add(line, format!("\"{word}\" has no counterpart"));
                }
                other => notes.add(line, format!("\"{other}\" has no counterpart")),
            }
        }
        match verify.as_deref() {
            Some("required") => tls.push("ssl_verify_client on".into()),
            Some("optional") => tls.push("ssl_verify_client optional".into()),
            _ => tls.retain(|it| !it.starts_with("ssl_client_certificate")),
        }
        binds.http2 |= http2;
        if parameters.iter().any(|it| it == "ssl") {
            let mut own: Vec<_> = tls.iter().filter(|it| !it.starts_with("ssl_certificate")).cloned().collect();
            own.extend(http2.then(|| "http2 on".to_string()));
            own.sort_unstable();
            if *first.get_or_insert_with(|| own.clone()) != own {
                notes.add(line, "TLS differs from that of a line before: the addresses of a server have the same");
            }
        }
        for address in line.word(1).split(',') {
            match listen(address, is_dual) {
                Ok(address) => {
                    binds.listens.push([vec![format!("listen {address}")], parameters.clone()].concat().join(" "))
                }
                Err(why) => notes.add(line, why),
            }
        }
        for directive in tls {
            let is_certificate = directive.starts_with("ssl_certificate");
            let name = directive.split(' ').next().unwrap_or_default();
            if binds.tls.contains(&directive) {
                continue;
            }
            // The stricter of two holds.
            if directive == "ssl_verify_client on" {
                binds.tls.retain(|it| !it.starts_with("ssl_verify_client"));
            }
            if binds.tls.iter().any(|it| it.split(' ').next() == Some(name)) {
                if is_certificate && name == "ssl_certificate" {
                    notes.add(
                        line,
                        format!("a further certificate: give \"{directive};\" a server of its own with server_name"),
                    );
                }
                continue;
            }
            binds.tls.push(directive);
        }
    }
    binds
}

/// `crt FILE`: the certificate and its key are in one file.
fn certificate(path: &str, line: &Line, tls: &mut Vec<String>, notes: &mut Notes) {
    if path.ends_with('/') || !path.rsplit('/').next().unwrap_or_default().contains('.') {
        notes
            .add(line, format!("\"{path}\" may be a directory: name one file, and give each host a server of its own"));
    }
    tls.push(format!("ssl_certificate {path}"));
    tls.push(format!("ssl_certificate_key {path}"));
}

/// The protocols from a version on.
pub fn protocols(least: &str) -> Option<String> {
    match least {
        "TLSv1.3" => Some("ssl_protocols TLSv1.3".into()),
        "TLSv1.2" => Some("ssl_protocols TLSv1.2 TLSv1.3".into()),
        _ => None,
    }
}

/// An address as `listen` reads it.
fn listen(text: &str, is_dual: bool) -> Result<String, String> {
    let text = text.strip_prefix("ipv4@").or(text.strip_prefix("ipv6@")).unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or(text.starts_with('/').then_some(text)) {
        return Ok(format!("unix:{path}"));
    }
    if text.contains(['$', '@']) {
        return Err("an address from the environment, another namespace or a descriptor: write it by hand".into());
    }
    let (host, ports) = text.rsplit_once(':').ok_or("an address without a port")?;
    if ports.is_empty() || ports.parse::<u16>().is_err() && !is_range(ports) {
        return Err("an address without a port".into());
    }
    let host = match host {
        "" | "*" => return Ok(ports.to_string()),
        "::" | "[::]" if is_dual => return Ok(format!("[::]:{ports} ipv6only=off")),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        host => host.to_string(),
    };
    Ok(format!("{host}:{ports}"))
}

/// Whether this is a range of ports, as NGINX has it too.
fn is_range(text: &str) -> bool {
    text.split_once('-').is_some_and(|(first, last)| first.parse::<u16>().is_ok() && last.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_listen() {
        for (text, expected) in [
            ("*:80", Some("80")),
            (":80", Some("80")),
            ("10.0.0.1:80", Some("10.0.0.1:80")),
            ("[::1]:80", Some("[::1]:80")),
            (":::80", Some("[::]:80")),
            ("unix@/run/a", Some("unix:/run/a")),
            (":8000-8010", Some("8000-8010")),
            ("fd@3", None),
            ("80", None),
        ] {
            assert_eq!(listen(text, false).ok().as_deref(), expected, "{text}");
        }
        assert_eq!(listen("[::]:80", true).unwrap(), "[::]:80 ipv6only=off");
    }

    fn of(lines: &[&str]) -> (Binds, Vec<usize>) {
        let line = |(at, text): (usize, &&str)| Line {
            number: at + 1,
            text: text.to_string(),
            words: text.split(' ').map(str::to_string).collect(),
        };
        let lines: Vec<_> = lines.iter().enumerate().map(line).collect();
        let mut notes = Notes::default();
        let binds = read(&lines, &mut notes);
        (binds, notes.into_list().iter().map(|note| note.line).collect())
    }

    #[test]
    fn a_line_that_differs_is_noted_and_the_stricter_holds() {
        let plain = "bind :80";
        let (one, other) =
            ("bind :443 ssl crt a.pem verify optional ca-file x", "bind :444 ssl crt a.pem verify required ca-file x");
        let none = "bind :445 ssl crt a.pem";
        for (lines, noted) in
            [(vec![plain, one], vec![]), (vec![one, plain, other], vec![3]), (vec![other, one, none], vec![2, 3])]
        {
            let (binds, notes) = of(&lines);
            let is_strict = lines.contains(&other);
            assert_eq!(notes, noted, "{lines:?}");
            let verify = binds.tls.iter().filter(|it| it.starts_with("ssl_verify_client")).collect::<Vec<_>>();
            assert_eq!(verify, [if is_strict { "ssl_verify_client on" } else { "ssl_verify_client optional" }]);
        }
        assert_eq!(of(&["bind /run/x.sock mode 600 user haproxy", "bind :80 maxconn 10"]).1, [1, 2]);
    }
}
