//! The content phase: the handler of the location.

use std::pin::Pin;
use std::sync::Arc;

use balanza_config::model::{Handler, Location};

use crate::exchange::Exchange;
use crate::step::Step;
use crate::{api, dashboard, empty_gif, static_files, stub_status, upstream};

/// Answers the request. The phases before have a shorter way for requests that are passed on.
pub fn answer<'a>(x: &'a mut Exchange, location: &'a Arc<Location>) -> Pin<Box<dyn Future<Output = Step> + 'a>> {
    match &location.handler {
        Handler::Api { write } => Box::pin(api::serve(x, location, *write)),
        Handler::Metrics => Box::pin(api::serve_metrics(x)),
        Handler::Dashboard { api } => Box::pin(dashboard::serve(x, api)),
        Handler::StubStatus => Box::pin(stub_status::serve(x)),
        Handler::EmptyGif => Box::pin(empty_gif::serve(x, location)),
        Handler::Static => Box::pin(static_files::serve(x, location)),
        Handler::Tunnel(target) => Box::pin(upstream::open_tunnel(x, location, target)),
        Handler::Proxy(pass) => Box::pin(upstream::serve(x, location, pass)),
    }
}
