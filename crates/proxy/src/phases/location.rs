//! Finds the location of a request, and takes the request through its phases: rewriting, access,
//! precontent, content.

use std::sync::Arc;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Handler, Level, LimitExcept, Location, Matcher};
use balanza_message::{Length, Method};

use super::rewrite::{self, Rewritten};
use super::{access, content, mirror, preaccess, precontent, real_ip, traces};
use crate::exchange::Exchange;
use crate::step::{self, Step};
use crate::{upstream, variables};

/// Finds the location of the URI and runs it.
pub async fn enter_location(x: &mut Exchange) -> Step {
    let server = x.route.server();
    let location = match server.locations.find(&x.route.uri, &mut x.values.captures) {
        Ok(found) => Arc::clone(found.unwrap_or(&server.root)),
        Err(error) => return x.undecided(&error).into(),
    };
    let location = &location;
    x.route.enter(location);
    if let Matcher::Regex(regex) = &location.matcher {
        variables::keep_named_groups(regex, x);
    }
    if location.internal && !x.route.is_internal() {
        return Step::Error(404);
    }
    if let Some(except) = &location.limit_except {
        limit_methods(x, except);
    }
    if location.settings.traced
        && x.route.is_first()
        && let Err(undecided) = traces::begin(x)
    {
        return undecided.into();
    }
    if let Err(step) = limit_body(x, location) {
        return step;
    }
    if location.redirects(&x.route.uri) {
        return step::add_slash(x);
    }
    if location.limit_except.is_some() {
        return Box::pin(visit_limited(x)).await;
    }
    // Each function on the way of a plain request is one more to wake through.
    if location.rewrite.is_empty() { serve(x, location).await } else { visit(x, location).await }
}

pub async fn enter_named(x: &mut Exchange, name: &[u8]) -> Step {
    let Some(location) = x.server().locations.named(name).cloned() else {
        x.report(Level::Error, format_args!("could not find named location \"{}\"", Escaped(name)));
        return Step::Error(500);
    };
    x.route.enter(&location);
    if let Some(except) = &location.limit_except {
        limit_methods(x, except);
        return visit_limited(x).await;
    }
    visit(x, &location).await
}

/// Enters the configuration of `limit_except` if it concerns the request's method.
fn limit_methods(x: &mut Exchange, except: &LimitExcept) {
    let limited = except.limits(if x.route.method_is_get { b"GET" } else { x.text(x.request.method_name) });
    if limited {
        x.route.enter(&except.location);
    }
}

/// Takes the request through the phases of the location or of its `limit_except`.
async fn visit_limited(x: &mut Exchange) -> Step {
    let location = Arc::clone(x.location());
    visit(x, &location).await
}

/// Takes the request through the phases of a location.
async fn visit(x: &mut Exchange, location: &Arc<Location>) -> Step {
    if location.rewrite.is_empty() {
        return serve(x, location).await;
    }
    match rewrite::run(x, &location.rewrite) {
        Rewritten::Same => {
            // An `if` may have replaced it.
            let location = Arc::clone(x.location());
            Box::pin(serve(x, &location)).await
        }
        Rewritten::Changed if x.route.redirects_again() => {
            x.route.leave();
            Step::Find
        }
        Rewritten::Changed => {
            let uri = Escaped(&x.route.uri);
            let text = "rewrite or internal redirection cycle while processing";
            x.report(Level::Error, format_args!("{text} \"{uri}\""));
            Step::Error(500)
        }
        Rewritten::Step(step) => step,
        Rewritten::Return(found) => Box::pin(rewrite::answer_return(x, found)).await,
    }
}

/// The phases behind rewriting.
async fn serve(x: &mut Exchange, location: &Arc<Location>) -> Step {
    real_ip::find(x);
    if location.settings.limited
        && let Err(step) = Box::pin(preaccess::check(x, location)).await
    {
        return step;
    }
    // As in NGINX, subrequests have no access phase.
    if access::is_restricted(location)
        && !x.route.subrequest
        && let Err(step) = Box::pin(access::check(x, location)).await
    {
        return step;
    }
    if let Err(step) = precontent::try_files(x, location) {
        return step;
    }
    if !location.settings.subrequests.mirrors.is_empty()
        && !x.route.subrequest
        && let Err(step) = Box::pin(mirror::send(x, location)).await
    {
        return step;
    }
    if x.method() == Method::Connect && !matches!(location.handler, Handler::Tunnel(_)) {
        return Step::Error(405);
    }
    match &location.handler {
        Handler::Proxy(pass) => upstream::serve(x, location, pass).await,
        _ => content::answer(x, location).await,
    }
}

/// Refuses a body that is known to be too large, unless an error page answers.
fn limit_body(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let most = location.settings.client_max_body_size;
    match x.request.body {
        Length::Known(length) if !x.route.discards_body() && most != 0 && length > most => {
            x.report(Level::Error, format_args!("client intended to send too large body: {length} bytes"));
            x.route.discard_body();
            Err(Step::Error(413))
        }
        _ => Ok(()),
    }
}
