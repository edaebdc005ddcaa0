//! The values of a session's variables.

use balanza_config::template::{Part, Ssl, Template, Variable};
use balanza_net::clock;

use super::{Session, rdp, show};
use crate::secure;
use crate::values::{attempts, found, number, of_peer, of_process, seconds, write};

/// Appends a template's value.
pub fn render(template: &Template, session: &mut Session, out: &mut Vec<u8>) {
    for part in template.parts() {
        match part {
            Part::Literal(bytes) => out.extend_from_slice(bytes),
            Part::Variable(variable) => {
                value(variable, session, out);
            }
        }
    }
}

/// Appends a variable's value; false when it has none.
pub fn value(variable: &Variable, session: &mut Session, out: &mut Vec<u8>) -> bool {
    let list = &session.attempts;
    match variable {
        Variable::RemoteAddr | Variable::BinaryRemoteAddr | Variable::RemotePort => {
            of_peer(variable, session.client.peer, out)
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
        Variable::Protocol => found(Some(b"TCP"), out),
        Variable::Status => number(session.status as u64, out),
        Variable::BytesReceived => number(session.received, out),
        Variable::BytesSent => number(session.sent, out),
        Variable::SessionTime => seconds(Some(clock::now() - session.client.accepted), out),
        Variable::Ssl(variable @ (Ssl::PrereadAlpnProtocols | Ssl::PrereadProtocol | Ssl::PrereadServerName)) => {
            session.hello.as_ref().is_some_and(|hello| secure::preread(hello, *variable, out))
        }
        Variable::Ssl(variable) => {
            let tls = session.client.tls.get();
            tls.is_some_and(|tls| tls.value(*variable, clock::wall().as_secs().cast_signed(), out))
        }
        Variable::RdpCookie(name) => found(cookie(session.request.as_deref(), name), out),
        Variable::UpstreamAddr => {
            attempts(list, out, |attempt, out| found(attempt.address.as_deref().map(str::as_bytes), out))
        }
        Variable::UpstreamBytesReceived => attempts(list, out, |attempt, out| number(attempt.bytes_received, out)),
        Variable::UpstreamBytesSent => attempts(list, out, |attempt, out| number(attempt.bytes_sent, out)),
        Variable::UpstreamConnectTime => attempts(list, out, |attempt, out| seconds(attempt.connect_time, out)),
        Variable::UpstreamFirstByteTime => attempts(list, out, |attempt, out| seconds(attempt.header_time, out)),
        Variable::UpstreamSessionTime => attempts(list, out, |attempt, out| seconds(attempt.response_time, out)),
        Variable::UpstreamPickReason => {
            attempts(list, out, |attempt, out| found(attempt.reason.as_deref().map(str::as_bytes), out))
        }
        other => of_process(other, out),
    }
}

fn cookie<'a>(packet: Option<&'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    match rdp::read(packet?) {
        rdp::First::Request(request) => request.cookie(name),
        rdp::First::Incomplete | rdp::First::Other => None,
    }
}
