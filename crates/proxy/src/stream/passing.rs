//! `pass`: another listening socket of this process serves the connection, with all that the client has sent.

use std::mem;
use std::sync::Arc;

use balanza_config::at_run_time::{self, NoAddress};
use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, ListenAddress, Pass, ServerAddress, StreamTarget};

use super::{ClientSide, Session, Status, show, variables};
use crate::ports::Handed;

/// How often a connection is passed at most.
const TIMES: u32 = 10;

/// Hands the connection over.
pub fn pass(session: &mut Session) -> Status {
    let address = match address(session) {
        Ok(address) => address,
        Err(problem) => {
            session.report(Level::Error, format_args!("{problem} while passing connection to port"));
            return Status::InternalError;
        }
    };
    if session.client.passed.as_ref().is_some_and(|passed| passed.times >= TIMES) {
        session.report(Level::Error, format_args!("stream pass cycle while passing connection to port"));
        return Status::InternalError;
    }
    let Some(serve) = session.listener.ports.upgrade().and_then(|ports| ports.find(&address)) else {
        let shown = show(&address);
        session.report(Level::Error, format_args!("port not found for \"{shown}\" while passing connection to port"));
        return Status::Ok;
    };
    let ClientSide::Stream(socket) = mem::replace(&mut session.socket, ClientSide::Passed) else {
        return Status::InternalError;
    };
    let (peer, places) = (session.peer, mem::take(&mut session.places));
    let client = session.client.pass_on(peer, address.inet(), places);
    serve(Handed { client, socket, received: session.preread.take() });
    Status::Ok
}

/// The address of the listening socket.
fn address(session: &mut Session) -> Result<ListenAddress, String> {
    if session.flow().is_some() {
        return Err("cannot pass udp connection".to_owned());
    }
    let server = Arc::clone(&session.server);
    let template = match &server.target {
        StreamTarget::Pass(Pass::To(address)) => return Ok(address.clone()),
        StreamTarget::Pass(Pass::Dynamic(template)) => template,
        _ => return Err("no address".to_owned()),
    };
    let mut text = Vec::new();
    let undecided = |_| "no address, because a value is undecided".to_owned();
    variables::render(template, session, &mut text).map_err(undecided)?;
    let shown = Escaped(&text);
    match at_run_time::address(&String::from_utf8_lossy(&text), None) {
        Ok(ServerAddress::Inet(address)) => Ok(ListenAddress::Inet(address)),
        Ok(ServerAddress::Unix(path)) => Ok(ListenAddress::Unix(path)),
        Err(NoAddress::Name) => Err(format!("no addresses in pass \"{shown}\"")),
        Err(NoAddress::Invalid(problem)) => Err(format!("{problem} in pass \"{shown}\"")),
    }
}
