//! `server` and `priority` of an upstream.

use std::path::PathBuf;

use super::{UpstreamBlock, addresses, place};
use crate::address::{self, Host, Use};
use crate::load::Builder;
use crate::model::{Group, ResolvedServer, ServerAddress, UpstreamServer};
use crate::parameter::{Argument, Parameter, Wrong, parameter, set, unsupported};
use crate::tree::Statement;
use crate::values;

/// A route is as long as the hash that names a server without one, at most.
const LONGEST_ROUTE: usize = 32;

/// What a `server` says.
struct Draft {
    server: UpstreamServer,
    /// Its addresses are looked up while the program runs.
    resolve: bool,
    service: Option<String>,
}

/// The parameters of `server`.
const PARAMETERS: &[Parameter<Draft>] = &[
    parameter("weight=", |_, draft, a| set(&mut draft.server.weight, number(a).filter(|weight| *weight > 0))),
    parameter("max_conns=", |_, draft, a| set(&mut draft.server.max_conns, number(a))),
    parameter("max_fails=", |_, draft, a| set(&mut draft.server.max_fails, number(a))),
    parameter("fail_timeout=", |_, draft, a| set(&mut draft.server.fail_timeout, values::seconds(a.value))),
    parameter("slow_start=", |_, draft, a| set(&mut draft.server.slow_start, values::milliseconds(a.value))),
    parameter("backup", |_, draft, _| set(&mut draft.server.backup, Some(true))),
    parameter("down", |_, draft, _| set(&mut draft.server.down, Some(true))),
    parameter("drain", |_, draft, _| set(&mut draft.server.draining, Some(true))),
    parameter("route=", |_, draft, a| set(&mut draft.server.route, Some(Some(route(a)?)))),
    parameter("priority=", |_, draft, a| set(&mut draft.server.priority, number(a))),
    parameter("soft_max_conns=", |_, draft, a| {
        set(&mut draft.server.soft_max_conns, number(a).filter(|limit| *limit > 0))
    }),
    parameter("report=", |b, draft, a| {
        draft.server.report = Some(b.report_address(a)?);
        Ok(())
    }),
    parameter("resolve", |_, draft, _| set(&mut draft.resolve, Some(true))),
    parameter("service=", |_, draft, a| set(&mut draft.service, Some(Some(service(a)?)))),
    unsupported("sid="),
];

/// A number; what does not fit is as good as any.
pub(super) fn number(a: &Argument<'_>) -> Option<u32> {
    values::number(a.value).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn route(a: &Argument<'_>) -> Result<String, Wrong> {
    match a.value {
        [] => Err(Wrong::Message("route is empty".into())),
        value if value.len() > LONGEST_ROUTE => Err(Wrong::Message(format!("route is longer than {LONGEST_ROUTE}"))),
        value => Ok(String::from_utf8_lossy(value).into_owned()),
    }
}

fn service(a: &Argument<'_>) -> Result<String, Wrong> {
    match a.value {
        [] => Err(Wrong::Message("service is empty".into())),
        value => Ok(String::from_utf8_lossy(value).into_owned()),
    }
}

impl Builder<'_> {
    /// `server ADDRESS …`.
    pub fn server<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let word = &s.words[1];
        let server = UpstreamServer::new(word.text(), ServerAddress::Unix(PathBuf::new()));
        let mut written = Draft { server, resolve: false, service: None };
        let mut good = self.parameters(PARAMETERS, &mut written, s, 2);
        let Draft { server, resolve, service } = written;
        good &= self.check_server(draft, &server, s);
        let address = match address::parse(&word.value, 80, Use::Server) {
            Ok(address) => address,
            Err(problem) => return self.error(word.span, format!("{problem} in upstream \"{}\"", word.text())),
        };
        let is_name = matches!(address.host, Host::Name(_));
        let of_service = match &service {
            Some(_) if !resolve => Some("requires \"resolve\" parameter"),
            Some(_) if !address.no_port => Some("may not have port"),
            Some(_) if !is_name => Some("requires domain name"),
            _ => None,
        };
        if let Some(problem) = of_service {
            let message = format!("service upstream \"{}\" {problem}", word.text());
            return self.error(place(s, "service="), message);
        }
        if service.is_none() && self.lacks_port(&address) {
            return self.error(word.span, format!("no port in upstream \"{}\"", word.text()));
        }
        if let (true, Host::Name(host)) = (resolve, &address.host) {
            if good {
                let (host, port) = (host.clone(), address.port);
                draft.resolved.push((ResolvedServer { host, port, service, template: server }, s));
            }
            return;
        }
        match addresses(self.source, &address) {
            Ok(addresses) if good => {
                let servers = addresses.into_iter().map(|address| UpstreamServer { address, ..server.clone() });
                draft.servers.extend(servers.map(|server| (server, s)));
            }
            Ok(_) => {}
            Err(problem) => {
                let message = format!("{problem} in upstream \"{}\"", word.text());
                let hint = "`resolve` looks a name up while the program runs: server NAME resolve;";
                self.error_hint(word.span, message, hint);
            }
        }
    }

    /// What a server's parameters say together.
    pub(super) fn check_server(&mut self, block: &UpstreamBlock<'_>, server: &UpstreamServer, s: &Statement) -> bool {
        let mut good = true;
        if server.backup && block.balance.as_ref().is_some_and(|(balance, _)| !balance.spec.entry().backup) {
            self.error(place(s, "backup"), "balancing method does not support parameter \"backup\"");
            good = false;
        }
        let (soft, hard) = (server.soft_max_conns, server.max_conns);
        if soft > hard && hard > 0 {
            let message = format!("\"soft_max_conns={soft}\" is above \"max_conns={hard}\"");
            let hint =
                "new clients stop at \"soft_max_conns\", returning clients at \"max_conns\"; set the soft limit lower";
            self.error_hint(place(s, "soft_max_conns="), message, hint);
        } else if server.backup && server.priority != 0 {
            let hint = "backup servers are used when no server of any priority is available";
            self.error_hint(place(s, "priority="), "a backup server has no priority", hint);
        } else if server.down && server.draining {
            let hint = "a draining server still serves the clients bound to it; a server that is down serves no client";
            self.error_hint(place(s, "drain"), "a server cannot both drain and be down", hint);
        } else {
            return good;
        }
        false
    }

    /// Where a server is asked for its load: with a port, since the server's own is that of its service.
    fn report_address(&mut self, a: &Argument<'_>) -> Result<ServerAddress, Wrong> {
        let resolved = address::parse(a.value, 0, Use::Server).and_then(|address| match address.host {
            Host::Unix(_) => Err("no port"),
            _ if address.no_port => Err("no port"),
            _ => addresses(self.source, &address),
        });
        match resolved {
            Ok(mut addresses) => Ok(addresses.swap_remove(0)),
            Err(problem) => {
                self.error_hint(a.word.span, format!("{problem} in \"{}\"", a.word.text()), "report=HOST:PORT");
                Err(Wrong::Reported)
            }
        }
    }

    /// `priority NUMBER max_conns=NUMBER`.
    pub fn priority<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let Some(priority) = values::number(&s.words[1].value).and_then(|number| u32::try_from(number).ok()) else {
            return self.invalid_value(s, &s.words[1]);
        };
        let (name, value) = s.words[2].parameter();
        if name != b"max_conns=" {
            return self.invalid_parameter(&s.words[2], &["max_conns="]);
        }
        let limit = values::number(value).and_then(|number| u32::try_from(number).ok()).filter(|limit| *limit > 0);
        let Some(max_conns) = limit else { return self.invalid_value(s, &s.words[2]) };
        if draft.groups.iter().any(|(group, _)| group.priority == priority) {
            return self.error(s.words[1].span, format!("duplicate priority {priority}"));
        }
        draft.groups.push((Group { priority, max_conns }, s));
    }
}
