//! `queue`, and files with servers: `state` and `server_list`.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::UpstreamBlock;
use crate::diagnostics::Severity;
use crate::load::{Builder, Options, load};
use crate::model::membership;
use crate::model::{QueueLimits, ServerAddress, ServerList, UpstreamServer};
use crate::parameter::{Parameter, parameter, set};
use crate::source::{Secret, Source};
use crate::tree::Statement;
use crate::{load as loading, values};

/// The parameters of `queue`.
const QUEUE: &[Parameter<QueueLimits>] =
    &[parameter("timeout=", |_, limits, a| set(&mut limits.timeout, values::milliseconds(a.value)))];

impl Builder<'_> {
    /// `queue NUMBER [timeout=TIME]`.
    pub fn queue(&mut self, s: &Statement) -> Option<QueueLimits> {
        let length = values::number(&s.words[1].value).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length > 0) else {
            let message = format!("invalid value \"{}\" in \"queue\" directive", s.words[1].text());
            self.error(s.words[1].span, message);
            return None;
        };
        let mut limits = QueueLimits { length, timeout: std::time::Duration::from_secs(60) };
        self.parameters(QUEUE, &mut limits, s, 2).then_some(limits)
    }

    /// `state FILE` or `server_list FILE`.
    pub fn server_list<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let is_state = s.words[0].value == b"state";
        let path = self.file_path(&s.words[1].value);
        let shown = path.display();
        let text = match self.source.read(&path) {
            Ok(text) => text,
            // It is written with the first change.
            Err(error) if is_state && error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                self.error(s.words[1].span, format!("cannot read the servers in \"{shown}\": {error}"));
                Vec::new()
            }
        };
        let protocol = match self.protocol {
            loading::Protocol::Http => membership::Protocol::Http,
            loading::Protocol::Stream => membership::Protocol::Stream,
        };
        let servers = read_servers(self.source, &text, protocol).unwrap_or_else(|problem| {
            self.error(s.words[1].span, format!("in \"{shown}\": {problem}"));
            Vec::new()
        });
        draft.list = Some((ServerList { path, is_state, own: 0 }, servers, s));
    }

    /// What a list goes together with.
    pub(super) fn check_list(&mut self, draft: &mut UpstreamBlock<'_>, servers: bool) {
        let own = draft.servers.len();
        let Some((list, _, s)) = &mut draft.list else { return };
        list.own = own;
        let (is_state, span) = (list.is_state, s.span());
        if is_state && servers {
            let hint = "the servers are those in the file; `server_list` goes together with `server`";
            self.error_hint(span, "\"state\" cannot be used with \"server\" in the same upstream", hint);
        }
        if draft.zone.is_none() {
            let name = String::from_utf8_lossy(&s.words[0].value).into_owned();
            let message = format!("\"{name}\" requires upstream \"{}\" to be in shared memory", draft.name);
            self.error_hint(span, message, "add `zone NAME SIZE;` to the upstream");
        }
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

/// The servers in a file: lines `server ADDRESS …;` as in an upstream, comments and blank lines. Host names are resolved by
/// `source`, once.
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
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        let is_server = line.strip_prefix("server").is_some_and(|rest| rest.starts_with([' ', '\t']));
        if !is_server || !line.ends_with(';') || line.contains(['{', '}']) || line.matches(';').count() != 1 {
            return Err(format!("line {}: only lines \"server ADDRESS ...;\" are possible", index + 1));
        }
        if line.contains(" resolve") {
            return Err(format!("line {}: \"resolve\" is possible in the configuration only", index + 1));
        }
        servers += 1;
    }
    if servers == 0 {
        return Ok(Vec::new());
    }
    let block = match protocol {
        membership::Protocol::Http => "http",
        membership::Protocol::Stream => "stream",
    };
    // A reserve of its own, so that a list of backups is as good as any.
    let config = format!("events {{ }} {block} {{ upstream list {{ zone list 64k; server unix:/;\n{text}\n}} }}");
    let text = Text { source, text: config.into_bytes() };
    let (config, problems) = load(&text, &Options::new("/", "/list"));
    match config {
        Some(config) => {
            let upstreams = match protocol {
                membership::Protocol::Http => &config.http.upstreams,
                membership::Protocol::Stream => &config.stream.upstreams,
            };
            Ok(upstreams.first().map(|upstream| upstream.servers[1..].to_vec()).unwrap_or_default())
        }
        None => {
            let error = problems.into_iter().find(|problem| problem.severity == Severity::Error);
            Err(error.map_or_else(String::new, |error| match &error.place {
                Some(place) => format!("line {}: {}", place.line.saturating_sub(1), error.message),
                None => error.message.clone(),
            }))
        }
    }
}

/// A file with these servers.
pub fn write_servers(servers: &[UpstreamServer]) -> String {
    let mut text = String::new();
    for server in servers {
        let plain = UpstreamServer::new(server.name.clone(), server.address.clone());
        // The address, since the name could become others.
        let _ = match &server.address {
            ServerAddress::Inet(address) => {
                let written = address.to_string();
                let short = format!("{}:80", server.name) == written;
                write!(text, "server {}", if short { &server.name } else { &written })
            }
            ServerAddress::Unix(path) => write!(text, "server unix:{}", path.display()),
        };
        let mut number = |name: &str, value: u32, usual: u32| {
            if value != usual {
                let _ = write!(text, " {name}={value}");
            }
        };
        number("weight", server.weight, plain.weight);
        number("max_conns", server.max_conns, plain.max_conns);
        number("soft_max_conns", server.soft_max_conns, plain.soft_max_conns);
        number("max_fails", server.max_fails, plain.max_fails);
        number("priority", server.priority, plain.priority);
        if server.fail_timeout != plain.fail_timeout {
            let _ = write!(text, " fail_timeout={}s", server.fail_timeout.as_secs());
        }
        if server.slow_start != plain.slow_start {
            let _ = write!(text, " slow_start={}ms", server.slow_start.as_millis());
        }
        if let Some(route) = &server.route {
            let _ = write!(text, " route={route}");
        }
        match &server.report {
            Some(ServerAddress::Inet(address)) => drop(write!(text, " report={address}")),
            Some(ServerAddress::Unix(path)) => drop(write!(text, " report=unix:{}", path.display())),
            None => {}
        }
        for (flag, name) in [(server.backup, " backup"), (server.down, " down"), (server.draining, " drain")] {
            if flag {
                text.push_str(name);
            }
        }
        text.push_str(";\n");
    }
    text
}
