//! `queue`, and files with servers: `state` and `server_list`.

use std::fmt::Write as _;
use std::io;

use super::UpstreamBlock;
use crate::load::Builder;
use crate::model::{QueueLimits, ServerAddress, ServerList, UpstreamServer};
use crate::parameter::{Parameter, parameter, set};
use crate::tree::Statement;
use crate::values;

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
        draft.list = Some((ServerList { path, is_state, own: 0 }, text, s));
    }

    /// What a list goes together with.
    pub fn check_list(&mut self, draft: &mut UpstreamBlock<'_>, servers: bool) {
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
            address @ ServerAddress::Unix(_) => write!(text, "server {address}"),
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
        if let Some(report) = &server.report {
            let _ = write!(text, " report={report}");
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
