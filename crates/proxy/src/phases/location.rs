//! Finds the location of a request, and takes the request through its phases: rewriting, access,
//! precontent, content.

use std::sync::Arc;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, Location, Matcher};
use balanza_message::Length;

use super::rewrite::rewrite;
use super::{access, content, precontent, real_ip};
use crate::exchange::Exchange;
use crate::step::{self, Step};
use crate::variables;

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

/// Takes the request through the phases of a location.
async fn visit(x: &mut Exchange, location: &Arc<Location>) -> Step {
    if let Err(step) = limit_body(x, location) {
        return step;
    }
    if let Some(step) = rewrite(x, &location.rewrite).await {
        return step;
    }
    real_ip::find(x);
    if let Err(step) = access::check(x, location) {
        return step;
    }
    if let Err(step) = precontent::try_files(x, location) {
        return step;
    }
    content::answer(x, location).await
}

/// Refuses a body that is known to be too large. An internal redirect has been through this before.
fn limit_body(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let most = location.settings.client_max_body_size;
    match x.request.body {
        Length::Known(length) if !x.route.internal && most != 0 && length > most => {
            x.report(Level::Error, format_args!("client intended to send too large body: {length} bytes"));
            Err(Step::Error(413))
        }
        _ => Ok(()),
    }
}
