//! `resolver` and `resolver_timeout`, of all contexts.

use std::path::Path;
use std::sync::Arc;

use crate::address::{self, Host, Use};
use crate::load::Builder;
use crate::model::Resolver;
use crate::tree::Statement;
use crate::values;

/// The port of name servers.
const PORT: u16 = 53;
/// Where the system's own name servers are named.
const SYSTEM: &str = "/etc/resolv.conf";

impl Builder<'_> {
    /// `resolver ADDRESS … [valid=] [ipv4=] [ipv6=] [status_zone=]`; the word `system` stands for the name servers in
    /// /etc/resolv.conf.
    pub fn resolver(&mut self, resolver: &mut Arc<Resolver>, s: &Statement) {
        let mut new = Resolver { timeout: resolver.timeout, ipv4: true, ipv6: true, ..Resolver::default() };
        let errors = self.error_count();
        for word in s.args() {
            let (name, value) = word.parameter();
            match (name, word.value.as_slice()) {
                (b"valid=", _) => match values::seconds(value) {
                    Some(valid) => new.valid = Some(valid),
                    None => self.error(word.span, format!("invalid parameter: {}", word.text())),
                },
                (b"ipv4=" | b"ipv6=", _) => match value {
                    b"on" | b"off" if name == b"ipv4=" => new.ipv4 = value == b"on",
                    b"on" | b"off" => new.ipv6 = value == b"on",
                    _ => self.error_hint(word.span, format!("invalid parameter: {}", word.text()), "`on` or `off`"),
                },
                (b"status_zone=", _) if !value.is_empty() => {
                    new.status_zone = Some(String::from_utf8_lossy(value).into_owned());
                }
                (_, b"system") => match self.system_resolvers() {
                    Ok(servers) => new.servers.extend(servers),
                    Err(problem) => self.error(word.span, format!("\"{SYSTEM}\" {problem}")),
                },
                _ => match address::parse(&word.value, PORT, Use::Server).and_then(|address| {
                    if matches!(address.host, Host::Unix(_)) {
                        return Err("invalid host");
                    }
                    address::resolve(self.source, &address.host, address.port)
                }) {
                    Ok(servers) => new.servers.extend(servers),
                    Err(problem) => {
                        let message = format!("{problem} in resolver \"{}\"", word.text());
                        self.error_hint(
                            word.span,
                            message,
                            "a name server's address, or `system` for /etc/resolv.conf",
                        );
                    }
                },
            }
        }
        if !new.ipv4 && !new.ipv6 {
            self.error(s.span(), "\"ipv4\" and \"ipv6\" cannot both be \"off\"");
        } else if new.servers.is_empty() && self.error_count() == errors {
            self.error(s.span(), "no name servers defined");
        }
        *resolver = Arc::new(new);
    }

    /// The name servers of the system.
    fn system_resolvers(&mut self) -> Result<Vec<std::net::SocketAddr>, String> {
        let text = self.source.read(Path::new(SYSTEM)).map_err(|error| format!("cannot be read: {error}"))?;
        let text = String::from_utf8_lossy(&text);
        let servers = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
            // An address of the link may name its interface.
            let address = address.split('%').next().unwrap_or(address);
            address.parse().ok().map(|ip| std::net::SocketAddr::new(ip, PORT))
        });
        let servers: Vec<_> = servers.collect();
        if servers.is_empty() { Err("names no name server".to_owned()) } else { Ok(servers) }
    }
}
