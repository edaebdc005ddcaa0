//! `ntlm` and a request: whether it authenticates its connection to the server, and the connection that its client is bound
//! to. `servers/bound` has the connections.

use std::rc::Rc;

use balanza_balancing::Member;
use balanza_config::model::UpstreamTls;

use super::forward::pool_tag;
use crate::exchange::Exchange;
use crate::servers::bound::BoundServer;
use crate::servers::group::Upstream;
use crate::servers::membership::ServerId;
use crate::servers::pool::{Private, ServerConnection};
use crate::servers::search::{Choice, Target};

/// What the value of Authorization begins with, in any case, if it is about the connection. SPNEGO's is either NTLM or Kerberos.
const SCHEMES: [&[u8]; 2] = [b"ntlm", b"negotiate"];

/// The server that the client is bound to.
pub(super) fn bound_server(x: &mut Exchange, target: &Target) -> Option<BoundServer> {
    let Target::Group(upstream) = target else { return None };
    let home = upstream.bound.as_ref()?;
    x.upstream.bindings.as_mut()?.server(home)
}

/// Whether the request that is about to be sent authenticates its connection, if that matters to the upstream.
pub(super) fn authenticates(x: &Exchange, choice: &Choice) -> bool {
    let matters = choice.lease.as_ref().is_some_and(|lease| lease.upstream.bound.is_some());
    matters && names_scheme(&x.upstream.head)
}

/// Whether a head has such an Authorization. What is sent counts, whether it comes from the client or the configuration.
fn names_scheme(head: &[u8]) -> bool {
    const NAME: &[u8] = b"authorization:";
    let begins = |line: &[u8], text: &[u8]| line.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text));
    let lines = head.split(|byte| *byte == b'\n').filter(|line| begins(line, NAME));
    lines.map(|line| line[NAME.len()..].trim_ascii_start()).any(|value| SCHEMES.iter().any(|it| begins(value, it)))
}

/// Whether a connection can belong to the client of this request: only if the client's own connection is the request's alone.
pub(super) fn may_bind(x: &Exchange) -> bool {
    x.downstream.own_socket().is_some()
}

/// What a private connection of this request is made with.
pub(super) fn private(x: &Exchange, tls: Option<&UpstreamTls>) -> Private {
    // Connections of one location are not kept from the others: they are the client's in any case.
    Private(tls.map_or(0, |tls| pool_tag(0, tls, x)))
}

/// The connection that the client is bound to, if it leads to the server that was chosen. The binding ends: what becomes of the
/// request decides whether there is another one.
pub(super) fn take(x: &mut Exchange, tls: Option<&UpstreamTls>, choice: &Choice) -> Option<Box<ServerConnection>> {
    let lease = choice.lease.as_ref()?;
    let home = lease.upstream.bound.as_ref()?;
    x.upstream.bindings.as_ref()?;
    x.upstream.bound = None;
    let private = private(x, tls);
    x.upstream.bindings.as_mut()?.take(home, lease.server(), private)
}

/// A private connection has had its response: it stays bound to the client, or is closed.
pub(super) fn put_back(
    x: &mut Exchange,
    upstream: &Upstream,
    (server, hint): (ServerId, Member),
    connection: Box<ServerConnection>,
) {
    if let Some(home) = upstream.bound.as_ref().map(Rc::clone)
        && may_bind(x)
        && x.sent.keeps_connection()
        && let Some(binding) = home.bind(server, hint, connection)
    {
        x.upstream.bindings.get_or_insert_default().put(binding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_authenticate() {
        let head = |field: &str| format!("GET /authorization: HTTP/1.1\r\nHost: a\r\n{field}\r\nX: y\r\n\r\n");
        for field in [
            "Authorization: NTLM TlRMTVNTUAAB",
            "authorization: ntlm",
            "AUTHORIZATION:Negotiate YII=",
            "Authorization: \tnegotiate YII=",
            "Authorization: Basic eDp5\r\nAuthorization: NTLM TlRMTVNTUAAB",
        ] {
            assert!(names_scheme(head(field).as_bytes()), "{field}");
        }
        for field in [
            "Authorization: Basic NTLM",
            "Authorization: NT",
            "Authorization:",
            "X-Authorization: NTLM a",
            "Proxy-Authorization: NTLM a",
            "Cookie: authorization: NTLM a",
            "Authorization: Bearer negotiate",
        ] {
            assert!(!names_scheme(head(field).as_bytes()), "{field}");
        }
    }
}
