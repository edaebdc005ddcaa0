//! Finds the location of a request, and takes the request through its phases.

use std::sync::Arc;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Handler, Level, Location, Matcher};
use balanza_message::Length;

use super::rewrite::rewrite;
use crate::exchange::Exchange;
use crate::step::{self, Step};
use crate::variables;
use crate::{access, static_files, upstream};

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
    if location.internal && !x.route.internal {
        return Step::Error(404);
    }
    if location.redirects(&x.route.uri) {
        return step::add_slash(x);
    }
    visit(x, location).await
}

pub async fn enter_named(x: &mut Exchange, name: &[u8]) -> Step {
    let Some(location) = x.server().locations.named(name).cloned() else {
        x.report(Level::Error, format_args!("could not find named location \"{}\"", Escaped(name)));
        return Step::Error(500);
    };
    x.route.enter(&location);
    visit(x, &location).await
}

/// The phases of a location: limits, rewriting, access, handler.
async fn visit(x: &mut Exchange, location: &Arc<Location>) -> Step {
    let settings = &location.settings;
    if !x.route.internal
        && let Length::Known(length) = x.request.body
        && settings.client_max_body_size != 0
        && length > settings.client_max_body_size
    {
        x.report(Level::Error, format_args!("client intended to send too large body: {length} bytes"));
        return Step::Error(413);
    }
    if let Some(step) = rewrite(x, &location.rewrite).await {
        return step;
    }
    if !settings.access.is_empty() && !access::is_allowed(&settings.access, x.client().peer) {
        x.report(Level::Error, format_args!("access forbidden by rule"));
        return Step::Error(403);
    }
    match &location.handler {
        Handler::Static => Box::pin(static_files::serve(x, location)).await,
        Handler::Proxy(pass) => upstream::serve(x, location, pass).await,
    }
}
