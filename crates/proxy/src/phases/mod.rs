//! The phases of a request, in NGINX's order: server rewrite, find location, rewrite, preaccess, access, content, log. Redirects and
//! error pages go through some of them again.

mod access;
mod auth_request;
mod content;
mod errors;
mod location;
mod log;
mod mirror;
mod passwords;
mod preaccess;
mod precontent;
mod real_ip;
mod rewrite;
mod server;
mod subrequest;
mod traces;
mod waiting;

use balanza_config::log_text::Escaped;
use balanza_config::model::Level;
use balanza_http1::Body;

use self::errors::{answer_error, error_page};
use self::location::{enter_location, enter_named};
pub use self::log::log;
pub use self::server::enter_default_server;
use crate::exchange::Exchange;
use crate::paths;
use crate::step::Step;

/// Answers a request.
pub async fn run(x: &mut Exchange) {
    x.begin_subrequest = Some(subrequest::begin);
    let step = server::begin(x).await;
    follow(x, step).await;
    if let Some(background) = x.background.take() {
        // As in NGINX, the request ends with the last one that it has begun, and the connection is kept for it.
        Box::pin(background.wait()).await;
    }
}

/// Answers a request whose head is invalid; an `error_page` may do it.
pub async fn refuse(x: &mut Exchange, status: u16) {
    x.sent.end_connection();
    x.body.begin(Body::None, false);
    x.begin_subrequest = Some(subrequest::begin);
    if !x.request.line.is_empty() {
        // The part read before the error can be logged, and an error page may use it.
        x.head_complete = true;
        server::take_uri(x);
    }
    match error_page(x, status) {
        Some(step) => follow(x, step).await,
        None => answer_error(x, status).await,
    }
}

/// Goes on until there is a response.
async fn follow(x: &mut Exchange, mut step: Step) {
    loop {
        step = match step {
            Step::Sent => return,
            Step::Find => enter_location(x).await,
            Step::Drop => {
                x.sent.drop_connection();
                return;
            }
            Step::Error(_) if x.route.stub.is_some() && !x.sent.head => subrequest::answer_stub(x).await,
            Step::Error(status) => {
                // An error on the way to an error's page has a status of its own.
                x.route.forget_error_status();
                match error_page(x, status) {
                    Some(next) => next,
                    None => return Box::pin(answer_error(x, status)).await,
                }
            }
            Step::Internal(path, args) => match redirect(x, path, args) {
                // The server's own rewriting is done for the new URI too.
                Step::Find => server::rewrite_again(x).await,
                failed => failed,
            },
            Step::Named(name) => match redirect_to_named(x, &name) {
                Step::Find => Box::pin(enter_named(x, &name)).await,
                failed => failed,
            },
        };
    }
}

/// Prepares an internal redirect to a URI.
fn redirect(x: &mut Exchange, path: Vec<u8>, args: Vec<u8>) -> Step {
    if !x.route.redirects_again() {
        return cycle(x, "internally redirecting to", &path);
    }
    x.route.redirect_internally();
    if paths::climbs(&path) {
        x.report(Level::Error, format_args!("unsafe URI \"{}\" was detected", Escaped(&path)));
        return Step::Error(404);
    }
    x.route.replace_uri(path, args);
    Step::Find
}

/// Prepares a redirect to a named location.
fn redirect_to_named(x: &mut Exchange, name: &[u8]) -> Step {
    if !x.route.redirects_again() {
        return cycle(x, "redirect to named location", name);
    }
    x.route.redirect_internally();
    Step::Find
}

/// There were too many redirects.
fn cycle(x: &mut Exchange, doing: &str, target: &[u8]) -> Step {
    let target = Escaped(target);
    x.report(Level::Error, format_args!("rewrite or internal redirection cycle while {doing} \"{target}\""));
    Step::Error(500)
}
