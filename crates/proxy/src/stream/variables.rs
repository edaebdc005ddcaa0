//! The values of a session's variables.

use std::net::IpAddr;
use std::rc::Rc;

use balanza_config::model::{Geo, Level};
use balanza_config::regex::{Captures, MatchError, Regex};
use balanza_config::template::{ClientValue, Part, Ssl, Template, Variable};
use balanza_net::clock;
use balanza_net::listening::Peer;

use super::{Session, rdp, show};
use crate::lookup::{self, Known, Subject, parse_address, set_user};
use crate::secure;
use crate::undecided::Undecided;
use crate::values::{attempts, found, number, of_header, of_peer, of_process, probability, seconds, write};

/// Values of variables that were set or worked out.
#[derive(Default)]
pub struct Values {
    /// Groups of the last regular expression.
    captures: Captures,
    /// User variables; empty when not set.
    pub users: Vec<Option<Vec<u8>>>,
    /// Values of `map`s, evaluated once.
    maps: Known,
}

impl Subject for Session {
    fn render(&mut self, template: &Template, out: &mut Vec<u8>) -> Result<(), Undecided> {
        render(template, self, out)
    }

    fn known(&mut self) -> &mut Known {
        &mut self.values.maps
    }

    fn captures(&mut self) -> &mut Captures {
        &mut self.values.captures
    }

    fn keep_named_groups(&mut self, regex: &Regex) {
        for (group, slot) in regex.named() {
            let value = self.values.captures.group(*group).map(<[u8]>::to_vec);
            set_user(&mut self.values.users, *slot, value);
        }
    }

    fn undecided(&self, error: &MatchError) -> Undecided {
        self.report(Level::Alert, format_args!("{error}"));
        Undecided
    }

    fn pair(&self, zone: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.listener.running.keyvals.stream[zone].find(key)
    }

    fn address(&self, geo: &Geo, source: &[u8]) -> Option<IpAddr> {
        match self.peer {
            _ if !geo.of_client => parse_address(source),
            Peer::Inet(address) => Some(address.ip()),
            Peer::Unix => None,
        }
    }
}

/// Appends a template's value.
///
/// # Errors
/// A regular expression is undecided.
pub fn render(template: &Template, session: &mut Session, out: &mut Vec<u8>) -> Result<(), Undecided> {
    for part in template.parts() {
        match part {
            Part::Literal(bytes) => out.extend_from_slice(bytes),
            Part::Variable(variable) => {
                value(variable, session, out)?;
            }
        }
    }
    Ok(())
}

/// Appends a variable's value; false when it has none.
///
/// # Errors
/// A regular expression is undecided.
pub fn value(variable: &Variable, session: &mut Session, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    match variable {
        Variable::Map(index) => {
            let running = Rc::clone(&session.listener.running);
            lookup::value(&running.config.stream.maps, *index, session, out)
        }
        Variable::Changed(slot, before) => match session.values.users.get(*slot) {
            Some(Some(value)) => Ok(found(Some(value), out)),
            _ => value(before, session, out),
        },
        Variable::User(slot) => match session.values.users.get(*slot) {
            Some(Some(value)) => Ok(found(Some(value), out)),
            // One of `set` that was not set yet is empty; those of expressions have no value.
            _ => Ok(matches!(session.listener.running.config.stream.set_names.get(*slot), Some(Some(_)))),
        },
        Variable::Capture(group) => Ok(found(session.values.captures.group(usize::from(*group)), out)),
        other => Ok(known(other, session, out)),
    }
}

/// Appends the value of a variable of fixed meaning.
fn known(variable: &Variable, session: &mut Session, out: &mut Vec<u8>) -> bool {
    let list = &session.attempts;
    match variable {
        Variable::RemoteAddr | Variable::BinaryRemoteAddr | Variable::RemotePort => {
            of_peer(variable, session.peer, out)
        }
        Variable::Client(ClientValue::RealIpRemoteAddr) => of_peer(&Variable::RemoteAddr, session.client.peer, out),
        Variable::Client(ClientValue::RealIpRemotePort) => of_peer(&Variable::RemotePort, session.client.peer, out),
        Variable::Client(variable) => {
            session.client.proxy_protocol.get().is_some_and(|header| of_header(variable, header, out))
        }
        Variable::ServerAddr => match session.local() {
            Some(address) => write(out, format_args!("{}", address.ip())),
            None => found(Some(show(&session.listener.conf().address).as_bytes()), out),
        },
        Variable::ServerPort => match session.local() {
            Some(address) => number(u64::from(address.port()), out),
            None => true,
        },
        Variable::Connection => number(session.client.serial, out),
        Variable::LimitConnStatus => found(session.limited.map(|status| status.text().as_bytes()), out),
        Variable::Protocol => found(Some(if session.flow().is_some() { b"UDP" } else { b"TCP" }), out),
        Variable::Status => number(session.status as u64, out),
        Variable::BytesReceived => number(session.received, out),
        Variable::BytesSent => number(session.sent, out),
        Variable::SessionTime => seconds(Some(clock::now() - session.client.accepted), out),
        Variable::Ssl(variable @ (Ssl::PrereadAlpnProtocols | Ssl::PrereadProtocol | Ssl::PrereadServerName)) => {
            session.hello.as_ref().is_some_and(|hello| secure::of_hello(hello, *variable, out))
        }
        Variable::Ssl(variable) => session.client.tls_value(*variable, out),
        Variable::RdpCookie(name) => found(cookie(session.request.as_deref(), name), out),
        Variable::UpstreamAddr => {
            attempts(list, out, |attempt, out| found(attempt.address.as_deref().map(str::as_bytes), out))
        }
        Variable::UpstreamBytesReceived => attempts(list, out, |attempt, out| number(attempt.bytes_received, out)),
        Variable::UpstreamBytesSent => attempts(list, out, |attempt, out| number(attempt.bytes_sent, out)),
        Variable::UpstreamConnectTime => attempts(list, out, |attempt, out| seconds(attempt.connect_time, out)),
        Variable::UpstreamFirstByteTime => attempts(list, out, |attempt, out| seconds(attempt.header_time, out)),
        Variable::UpstreamSessionTime => attempts(list, out, |attempt, out| seconds(attempt.response_time, out)),
        Variable::UpstreamLastAddr => {
            found(list.last().and_then(|attempt| attempt.server_address()).map(str::as_bytes), out)
        }
        Variable::UpstreamLastServerName => {
            found(list.last().and_then(|attempt| attempt.server_name()).map(str::as_bytes), out)
        }
        Variable::UpstreamExperiment => {
            attempts(list, out, |attempt, out| found(attempt.arm.as_deref().map(str::as_bytes), out))
        }
        Variable::UpstreamPickReason => {
            attempts(list, out, |attempt, out| found(attempt.reason().map(str::as_bytes), out))
        }
        Variable::UpstreamChoiceProbability => {
            attempts(list, out, |attempt, out| probability(attempt.probability(), out))
        }
        Variable::UpstreamShadow(name) => attempts(list, out, |attempt, out| found(attempt.shadow(name), out)),
        other => of_process(other, out),
    }
}

fn cookie<'a>(packet: Option<&'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    match rdp::read(packet?) {
        rdp::First::Request(request) => request.cookie(name),
        rdp::First::Incomplete | rdp::First::Other => None,
    }
}
