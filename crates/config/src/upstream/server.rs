//! `server` and `priority` of an upstream.

use std::path::PathBuf;

use super::{UpstreamBlock, addresses, parameter, place};
use crate::address::{self, Use};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Group, ServerAddress, UpstreamServer};
use crate::tree::Statement;
use crate::values;

const PARAMETERS: [&str; 12] = [
    "weight=",
    "max_conns=",
    "max_fails=",
    "fail_timeout=",
    "slow_start=",
    "backup",
    "down",
    "drain",
    "route=",
    "priority=",
    "soft_max_conns=",
    "report=",
];
/// Parameters of `server` that NGINX has.
const NGINX_PARAMETERS: [&str; 3] = ["resolve", "service=", "sid="];
/// A route is as long as the hash that names a server without one, at most.
const LONGEST_ROUTE: usize = 32;

impl Builder<'_> {
    /// `server ADDRESS …`.
    pub fn server<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let word = &s.words[1];
        let mut server = UpstreamServer::new(word.text(), ServerAddress::Unix(PathBuf::new()));
        let mut good = true;
        for word in s.words.iter().skip(2) {
            good &= self.server_parameter(draft, s, &mut server, word).is_some();
        }
        good &= self.check_server(&server, s);
        let resolved =
            address::parse(&word.value, 80, Use::Server).and_then(|address| match self.lacks_port(&address) {
                true => Err("no port"),
                false => addresses(self.source, &address),
            });
        match resolved {
            Ok(addresses) if good => {
                let servers = addresses.into_iter().map(|address| UpstreamServer { address, ..server.clone() });
                draft.servers.extend(servers.map(|server| (server, s)));
            }
            Ok(_) => {}
            Err(problem) => self.error(word.span, format!("{problem} in upstream \"{}\"", word.text())),
        }
    }

    /// What a server's parameters say together.
    fn check_server(&mut self, server: &UpstreamServer, s: &Statement) -> bool {
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
            return true;
        }
        false
    }

    fn server_parameter(
        &mut self,
        draft: &UpstreamBlock<'_>,
        s: &Statement,
        server: &mut UpstreamServer,
        word: &Word,
    ) -> Option<()> {
        let (name, value) = parameter(word);
        let number = || values::number(value).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let done = match name {
            b"weight=" => number().filter(|weight| *weight > 0).map(|number| server.weight = number),
            b"max_conns=" => number().map(|number| server.max_conns = number),
            b"soft_max_conns=" => number().filter(|limit| *limit > 0).map(|number| server.soft_max_conns = number),
            b"max_fails=" => number().map(|number| server.max_fails = number),
            b"fail_timeout=" => values::seconds(value).map(|time| server.fail_timeout = time),
            b"slow_start=" => values::milliseconds(value).map(|time| server.slow_start = time),
            b"priority=" => number().map(|number| server.priority = number),
            b"down" => {
                server.down = true;
                Some(())
            }
            b"drain" => {
                server.draining = true;
                Some(())
            }
            b"backup" => {
                server.backup = true;
                if draft.balance.as_ref().is_some_and(|(balance, _)| !balance.spec.entry().backup) {
                    self.error(word.span, "balancing method does not support parameter \"backup\"");
                    return None;
                }
                Some(())
            }
            b"route=" if value.is_empty() => {
                self.error(word.span, "route is empty");
                return None;
            }
            b"route=" if value.len() > LONGEST_ROUTE => {
                self.error(word.span, format!("route is longer than {LONGEST_ROUTE}"));
                return None;
            }
            b"route=" => {
                server.route = Some(String::from_utf8_lossy(value).into_owned());
                Some(())
            }
            b"report=" => {
                server.report = Some(self.report_address(word, value)?);
                Some(())
            }
            _ if NGINX_PARAMETERS.iter().any(|known| known.as_bytes() == name) => {
                self.unsupported_parameter(s, word);
                return None;
            }
            _ => None,
        };
        if done.is_none() {
            self.invalid_parameter(word, &PARAMETERS);
        }
        done
    }

    /// Where a server is asked for its load: with a port, since the server's own is that of its service.
    fn report_address(&mut self, word: &Word, value: &[u8]) -> Option<ServerAddress> {
        let resolved = address::parse(value, 0, Use::Server).and_then(|address| match address.host {
            address::Host::Unix(_) => Err("no port"),
            _ if address.no_port => Err("no port"),
            _ => addresses(self.source, &address),
        });
        match resolved {
            Ok(mut addresses) => Some(addresses.swap_remove(0)),
            Err(problem) => {
                self.error_hint(word.span, format!("{problem} in \"{}\"", word.text()), "report=HOST:PORT");
                None
            }
        }
    }

    /// `priority NUMBER max_conns=NUMBER`.
    pub fn priority<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let Some(priority) = values::number(&s.words[1].value).and_then(|number| u32::try_from(number).ok()) else {
            return self.invalid_value(s, &s.words[1]);
        };
        let (name, value) = parameter(&s.words[2]);
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
