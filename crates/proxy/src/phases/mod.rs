//! The phases of a request, in NGINX's order: server rewrite, find location, rewrite, access, content, log. Redirects and
//! error pages go through some of them again.

mod access;
mod content;
mod errors;
mod location;
mod log;
mod precontent;
mod real_ip;
mod rewrite;
mod server;

use balanza_config::log_text::Escaped;
use balanza_config::model::Level;
use balanza_http1::Body;

use self::errors::{answer_error, error_page};
use self::location::{enter_location, enter_named};
pub use self::log::log;
pub use self::server::{address_group, enter_default_server};
use crate::exchange::Exchange;
use crate::paths;
use crate::step::Step;

/// Internal redirects that a request may go through, as in NGINX.
const MAX_REDIRECTS: u8 = 10;

/// Answers a request.
pub async fn run(x: &mut Exchange) {
    let step = server::begin(x).await;
    follow(x, step).await;
}

/// Answers a request whose head is invalid; an `error_page` may do it.
pub async fn refuse(x: &mut Exchange, status: u16) {
    x.sent.keep_alive = false;
    x.body.begin(Body::None, false);
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
                x.sent.keep_alive = false;
                x.sent.dropped = true;
                return;
            }
            Step::Error(status) => {
                // An error on the way to an error's page has a status of its own.
                x.route.error_status = 0;
                match error_page(x, status) {
                    Some(next) => next,
                    None => return Box::pin(answer_error(x, status)).await,
                }
            }
            Step::Internal(path, args) => redirect(x, Some((path, args))),
            Step::Named(name) => match redirect(x, None) {
                Step::Find => Box::pin(enter_named(x, &name)).await,
                failed => failed,
            },
        };
    }
}

/// Prepares an internal redirect: to a URI, or, without one, to a named location.
fn redirect(x: &mut Exchange, to: Option<(Vec<u8>, Vec<u8>)>) -> Step {
    if x.route.redirects >= MAX_REDIRECTS {
        let uri = Escaped(&x.route.uri);
        let text = "rewrite or internal redirection cycle while redirect to";
        x.report(Level::Error, format_args!("{text} \"{uri}\""));
        return Step::Error(500);
    }
    x.route.redirects += 1;
    x.route.internal = true;
    x.route.extends_alias = false;
    if let Some((path, args)) = to {
        if paths::climbs(&path) {
            x.report(Level::Error, format_args!("unsafe URI \"{}\" was detected", Escaped(&path)));
            return Step::Error(404);
        }
        x.route.uri = path;
        x.route.args = args;
        x.route.uri_changed = true;
    }
    Step::Find
}
