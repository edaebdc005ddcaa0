//! Files with servers, which are read as an upstream that has them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::load;
use crate::diagnostics::{Diagnostic, Severity};
use crate::load::{Builder, Options, Protocol};
use crate::model::{ServerList, Upstream, UpstreamServer, membership};
use crate::source::{Secret, Source};
use crate::tree::Statement;

impl Builder<'_> {
    /// The servers in the file that a `state` or `server_list` names.
    pub(super) fn listed(&mut self, list: &ServerList, text: &[u8], s: &Statement) -> Vec<UpstreamServer> {
        let protocol = match self.protocol {
            Protocol::Http => membership::Protocol::Http,
            Protocol::Stream => membership::Protocol::Stream,
        };
        read_servers(self.source, text, protocol).unwrap_or_else(|problem| {
            self.error(s.words[1].span, format!("in \"{}\": {problem}", list.path.display()));
            Vec::new()
        })
    }
}

/// The source of a list: its text, and otherwise that of the configuration.
struct Text<'a> {
    source: &'a dyn Source,
    text: Vec<u8>,
}

impl Source for Text<'_> {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.text.clone())
    }

    fn secret(&self, _: &Path) -> io::Result<Secret> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn glob(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.source.resolve(host)
    }
}

/// The servers in a file: lines `server ADDRESS …;` as in an upstream, or only `ADDRESS …` with an IP address; comments and
/// blank lines. Host names are resolved by `source`, once.
///
/// # Errors
/// What is wrong, with the number of the line.
pub fn read_servers(
    source: &dyn Source,
    text: &[u8],
    protocol: membership::Protocol,
) -> Result<Vec<UpstreamServer>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut servers = 0;
    let mut directives = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        // A line of the file is one of the directives, so that errors name it.
        directives.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        let of_address = of_address(line);
        let line = of_address.as_deref().unwrap_or(line);
        let is_server = line.strip_prefix("server").is_some_and(|rest| rest.starts_with([' ', '\t']));
        if !is_server || !line.ends_with(';') || line.contains(['{', '}']) || line.matches(';').count() != 1 {
            let possible = "only lines \"server ADDRESS ...;\" and \"IP-ADDRESS[:PORT] ...\" are possible";
            return Err(format!("line {}: {possible}", index + 1));
        }
        if line.contains(" resolve") {
            return Err(format!("line {}: \"resolve\" is possible in the configuration only", index + 1));
        }
        directives.push_str(line);
        servers += 1;
    }
    if servers == 0 {
        return Ok(Vec::new());
    }
    // A reserve of its own, so that a list of backups is as good as any.
    let inside = format!("upstream list {{ zone list 64k; server unix:/;{directives}\n}}");
    let said = |error: Diagnostic| match &error.place {
        Some(place) => format!("line {}: {}", place.line.saturating_sub(1), error.message),
        None => error.message,
    };
    trial(source, protocol, "/list", &inside, said).map(|list| list.servers[1..].to_vec())
}

/// The directive of a line that has only an IP address, with or without a port and parameters.
fn of_address(line: &str) -> Option<String> {
    let (first, parameters) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let address = match first.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => first.parse::<SocketAddr>().ok()?.to_string(),
    };
    Some(format!("server {address} {parameters};"))
}

/// Reads a configuration with one upstream, which begins in its first line.
///
/// # Errors
/// What `said` says of the first error.
pub(super) fn trial(
    source: &dyn Source,
    protocol: membership::Protocol,
    file: &str,
    upstream: &str,
    said: impl FnOnce(Diagnostic) -> String,
) -> Result<Arc<Upstream>, String> {
    let block = match protocol {
        membership::Protocol::Http => "http",
        membership::Protocol::Stream => "stream",
    };
    let text = Text { source, text: format!("events {{ }} {block} {{ {upstream} }}").into_bytes() };
    let (config, problems) = load(&text, &Options::new("/", file));
    let upstream = config.and_then(|config| config.upstreams_of(protocol).first().cloned());
    upstream.ok_or_else(|| {
        let error = problems.into_iter().find(|problem| problem.severity == Severity::Error);
        error.map_or_else(String::new, said)
    })
}
