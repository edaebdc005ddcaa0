//! A server that has been reached, and how it is.

use balanza_config::model::{ProxySettings, ServerAddress, UpstreamTls};
use balanza_http1::Body;
use balanza_net::buffer::Buffer;
use balanza_net::clock;
use balanza_net::shortage::{ConnectError, Shortage};
use balanza_net::transport::{self, ConnectOptions, Transport};
use balanza_tls::client;

use super::talk::Talk;
use crate::certificates;
use crate::exchange::Exchange;
use crate::secure;
use crate::servers::address::destination;
use crate::servers::failure::Failure;
use crate::servers::pool::ServerConnection;
use crate::servers::search::Choice;

/// The way to a server.
pub(super) enum Line {
    /// A connection of HTTP/1, which carries one request at a time.
    Http1(Box<ServerConnection>),
    /// A stream of HTTP/2.
    Http2(Box<Talk>),
}

/// A server whose response's head has been read.
pub(super) struct Reached {
    pub line: Line,
    /// What came behind the head.
    pub first: Buffer,
    /// How the body is delimited.
    pub body: Body,
    /// Whether the connection may be used again, as far as the server says.
    pub keeps_alive: bool,
}

/// Begins a connection to a server.
///
/// # Errors
/// It cannot be had, or the server refuses it.
pub(super) fn connect(x: &Exchange, proxy: &ProxySettings, choice: &Choice) -> Result<Transport, ConnectError> {
    if !x.client().thread.clients.make_room(&x.listener().running) {
        return Err(ConnectError::Own(Shortage::Connections));
    }
    let mut options = ConnectOptions {
        keepalive: proxy.socket_keepalive,
        receive_buffer: proxy.socket_buffers.receive,
        send_buffer: proxy.socket_buffers.send,
        ..ConnectOptions::default()
    };
    if let Some(bind) = &proxy.bind {
        options.bind = x.upstream.bind;
        options.transparent = bind.transparent;
    }
    let socket = transport::connect(&destination(&choice.address), &options)?;
    choice.opens(socket.hang_up());
    Ok(socket)
}

/// Waits for the connection and makes it an encrypted one, within `proxy_connect_timeout`.
///
/// # Errors
/// It does not stand, or TLS could not be agreed on.
pub(super) async fn shake(
    x: &mut Exchange,
    proxy: &ProxySettings,
    tls: &UpstreamTls,
    address: &ServerAddress,
    socket: &Transport,
) -> Result<(), Failure> {
    let deadline = clock::after(proxy.connect_timeout);
    let names = x.upstream.target.certificate.as_deref();
    let config = certificates::client_config(tls, names, &x.running().certificates, address);
    let config = config.map_err(Failure::unprepared)?;
    let timer = &mut x.downstream.timer;
    secure::connect(socket, timer, deadline, config, client::server_name(&x.upstream.target.tls_name)).await?;
    let attempt = x.upstream.attempt();
    attempt.connect_time = Some(clock::recent() - attempt.started);
    Ok(())
}

/// Tells the algorithm of the head of a response.
pub(super) fn tell_of_head(x: &Exchange, choice: &mut Choice) {
    if let Some(lease) = &mut choice.lease {
        lease.header(clock::recent());
        if let Some(feedback) = &lease.upstream.feedback {
            feedback.take(&x.upstream.response, lease.members.fleet(), lease.member, clock::recent());
        }
    }
}
