//! The first phases: the virtual server, the URI, and the server's own rewriting.

use std::rc::Rc;
use std::sync::Arc;

use balanza_config::model::Level;
use balanza_message::{Method, Version, uri};
use balanza_tls::server::{Verified, Verify};

use super::real_ip;
use super::rewrite::{self, Rewritten};
use crate::exchange::Exchange;
use crate::step::Step;
use crate::undecided::Undecided;
use crate::variables;

/// Chooses the virtual server, normalises the URI and runs the server's own rewriting.
pub async fn begin(x: &mut Exchange) -> Step {
    if let Err(undecided) = choose_server(x) {
        return undecided.into();
    }
    x.enter_zone();
    if let Some(status) = tls_status(x) {
        return Step::Error(status);
    }
    x.sent.offer_connection(x.client_keeps_alive);
    // Before a method is refused: an error page may use it.
    let is_valid = take_uri(x);
    if matches!(x.request.method, Method::Trace | Method::Connect) && !allows_method(x) {
        return Step::Error(405);
    }
    if !is_valid {
        x.sent.end_connection();
        return Step::Error(400);
    }
    real_ip::find(x);
    own_rewriting(x).await
}

/// Whether this CONNECT or TRACE is allowed: a CONNECT is to a server that opens tunnels. Whatever becomes of it, no other
/// request follows: the client may have sent what is for the tunnel already.
#[cold]
fn allows_method(x: &mut Exchange) -> bool {
    x.sent.end_connection();
    if x.request.method == Method::Trace {
        x.report(Level::Info, format_args!("client sent TRACE method"));
        return false;
    }
    let may = x.server().opens_tunnels && x.request.version == Version::Http11;
    if !may {
        x.report(Level::Info, format_args!("client sent CONNECT method"));
    }
    may
}

/// Runs the server's own rewriting.
pub async fn own_rewriting(x: &mut Exchange) -> Step {
    if x.server().rewrite.is_empty() {
        return Step::Find;
    }
    rewrite(x).await
}

/// Runs the server's own rewriting for the URI of an internal redirect.
pub async fn rewrite_again(x: &mut Exchange) -> Step {
    x.route.leave();
    if x.server().rewrite.is_empty() { Step::Find } else { Box::pin(rewrite(x)).await }
}

async fn rewrite(x: &mut Exchange) -> Step {
    let server = Arc::clone(x.server());
    match rewrite::run(x, &server.rewrite) {
        Rewritten::Same | Rewritten::Changed => Step::Find,
        Rewritten::Step(step) => step,
        Rewritten::Return(found) => Box::pin(rewrite::answer_return(x, found)).await,
    }
}

/// The status of a request that may not come this way: without TLS, with a certificate that is not good, or for another
/// server than that of the handshake.
fn tls_status(x: &Exchange) -> Option<u16> {
    let client = x.client();
    if client.lacks_tls.get() {
        x.report(Level::Info, format_args!("client sent plain HTTP request to HTTPS port"));
        return Some(497);
    }
    // The certificate of a client that `stream` has passed on was judged there.
    let tls = client.tls.get().filter(|_| client.passed.is_none())?;
    let context = &x.server().tls.as_ref()?.context;
    let verify = context.clients.verify;
    if verify == Verify::Off {
        return None;
    }
    if tls.hello.server_name.is_some() && !context.is_equivalent(&tls.context) {
        let message = "client attempted to request the server name different from the one that was negotiated";
        x.report(Level::Info, format_args!("{message}"));
        return Some(421);
    }
    match tls.verified {
        Verified::Failed(rejection) if verify != Verify::OptionalNoCa || !rejection.is_unknown_issuer() => {
            let (code, reason) = (rejection.code, rejection.reason);
            x.report(Level::Info, format_args!("client SSL certificate verify error: ({code}:{reason})"));
            Some(495)
        }
        Verified::None if verify == Verify::On => {
            x.report(Level::Info, format_args!("client sent no required SSL certificate"));
            Some(496)
        }
        _ => None,
    }
}

/// Decodes and normalises the path; false when it leads above the root or is malformed.
pub fn take_uri(x: &mut Exchange) -> bool {
    let mut path = std::mem::take(&mut x.route.uri);
    let merge_slashes = x.server().connection.merge_slashes;
    path.clear();
    let original = x.text(x.request.path);
    let valid = if x.request.plain_path || uri::is_plain(original) {
        path.extend_from_slice(original);
        true
    } else {
        uri::normalise(original, merge_slashes, &mut path).is_ok()
    };
    x.route.uri = path;
    let mut args = std::mem::take(&mut x.route.args);
    if let Some(query) = x.request.query {
        args.extend_from_slice(x.text(query));
    }
    x.route.args = args;
    valid
}

fn choose_server(x: &mut Exchange) -> Result<(), Undecided> {
    let listener = Rc::clone(x.listener());
    let groups = &listener.conf().groups;
    let group = &groups[index_of_group(x)];
    let mut name = x.request.host.map_or(&b""[..], |host| x.request.of(host));
    if x.request.host_capitals {
        x.scratch.clear();
        x.scratch.extend_from_slice(name);
        x.scratch.make_ascii_lowercase();
        name = &x.scratch;
    }
    let found = group.names.find(name, &mut x.values.captures).map_err(|error| x.undecided(&error))?;
    if let Some((server, regex)) = found {
        if let Some(regex) = regex {
            variables::keep_named_groups(regex, x);
        }
        x.route.enter_server(server);
    }
    Ok(())
}

/// The index of the group of virtual servers for the address that the client connected to.
fn index_of_group(x: &Exchange) -> usize {
    x.listener().conf().group_index(|| x.local_address())
}

/// Enters the default server of the address that the client connected to.
pub fn enter_default_server(x: &mut Exchange) {
    let listener = Rc::clone(x.listener());
    x.route.enter_server(&listener.conf().groups[index_of_group(x)].default_server);
}
