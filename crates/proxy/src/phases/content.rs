//! The content phase: the handler of the location.

use std::sync::Arc;

use balanza_config::model::{Handler, Location};

use crate::exchange::Exchange;
use crate::step::Step;
use crate::{api, dashboard, empty_gif, static_files, stub_status, upstream};

/// Answers the request.
pub async fn answer(x: &mut Exchange, location: &Arc<Location>) -> Step {
    match &location.handler {
        Handler::Api { write } => Box::pin(api::serve(x, location, *write)).await,
        Handler::Metrics => Box::pin(api::serve_metrics(x)).await,
        Handler::Dashboard { api } => Box::pin(dashboard::serve(x, api)).await,
        Handler::StubStatus => Box::pin(stub_status::serve(x)).await,
        Handler::EmptyGif => Box::pin(empty_gif::serve(x, location)).await,
        Handler::Static => Box::pin(static_files::serve(x, location)).await,
        Handler::Proxy(pass) => upstream::serve(x, location, pass).await,
    }
}
