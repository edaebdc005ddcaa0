//! One attempt by HTTP/1: a connection, the request, the head of the response.

use std::sync::Arc;

use balanza_config::model::{Location, ProxySettings, UpstreamTls};
use balanza_net::clock::{self, Nanos};

use super::line::{Reached, connect, shake};
use super::ntlm;
use super::request::Payload;
use super::unanswered::Unanswered;
use crate::exchange::Exchange;
use crate::servers::failure::Failure;
use crate::servers::pool::ServerConnection;
use crate::servers::search::Choice;

/// What is the same for all attempts of a request.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub location: &'a Arc<Location>,
    /// What follows the head of the request.
    pub payload: Payload,
    /// Where idle connections may be used.
    pub tag: usize,
    /// What servers are spoken to with.
    pub tls: Option<&'a UpstreamTls>,
}

/// What an attempt has come to so far.
pub(super) enum Heard {
    /// The head of a response.
    Head(Reached),
    /// Nothing yet, and it is time to ask another server too.
    Nothing(Box<Unanswered>),
}

/// Sends the request to a server and reads its response's head into `x.upstream.response`. A kept-alive connection that turns
/// out to be closed is replaced by a fresh one. If no head has come at `late`, the attempt is handed over.
///
/// # Errors
/// The attempt has failed.
pub(super) async fn reach(
    x: &mut Exchange,
    order: Order<'_>,
    choice: &mut Choice,
    mut kept: Option<Box<ServerConnection>>,
    late: Nanos,
) -> Result<Heard, Failure> {
    let proxy: &ProxySettings = &order.location.settings.proxy;
    loop {
        let (connection, fresh) = open(x, order, choice, kept.take())?;
        if let Some(tls) = order.tls.filter(|_| fresh) {
            shake(x, proxy, tls, &choice.address, &connection.socket).await?;
        }
        let mut request = Unanswered::new(connection, fresh, order.payload, x, &order.location.settings);
        let answered = request.answered(x, order.location, late).await;
        request.note(x);
        match answered {
            Ok(Some(framing)) => return Ok(Heard::Head(request.reached(x, choice, framing))),
            Ok(None) => return Ok(Heard::Nothing(Box::new(request))),
            Err(error) => {
                let failure = request.failure(error);
                if !request.is_stale(x, choice, &proxy.next_upstream, &failure) {
                    return Err(failure);
                }
            }
        }
    }
}

/// A connection that waits to be used again.
pub(super) fn take_idle(choice: &Choice, tag: usize) -> Option<Box<ServerConnection>> {
    let lease = choice.lease.as_ref()?;
    lease.upstream.idle.borrow_mut().take(lease.server(), tag, clock::recent())
}

/// Uses a connection that was kept, or begins one; true if it is new.
///
/// # Errors
/// There is none to be had.
pub(super) fn open(
    x: &mut Exchange,
    order: Order<'_>,
    choice: &Choice,
    kept: Option<Box<ServerConnection>>,
) -> Result<(Box<ServerConnection>, bool), Failure> {
    let fresh = kept.is_none();
    let mut connection = match kept {
        Some(connection) => {
            x.upstream.attempt().connect_time = Some(0);
            connection
        }
        None => {
            let proxy: &ProxySettings = &order.location.settings.proxy;
            let socket = connect(x, proxy, choice).map_err(|error| Failure::connecting(error.into()))?;
            Box::new(ServerConnection { socket, requests: 0, opened: clock::recent(), private: None })
        }
    };
    if x.upstream.authenticates {
        // Before the first byte is sent: from then on the server may take the connection for that of this client.
        connection.private = Some(ntlm::private(x, order.tls));
    }
    Ok((connection, fresh))
}
