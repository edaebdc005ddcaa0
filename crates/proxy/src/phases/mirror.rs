//! `mirror`: copies of a request go to other URIs, and their responses nowhere.

use balanza_config::model::{Level, Location};
use balanza_message::Length;
use balanza_net::event_loop;
use balanza_net::shortage::describe;

use super::subrequest;
use crate::exchange::Exchange;
use crate::reading;
use crate::step::Step;

/// Sends the copies. They go on beside the request.
///
/// # Errors
/// The request's body, which belongs to the copies, cannot be read or shared.
pub async fn send(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let settings = &location.settings.subrequests;
    if settings.mirror_request_body
        && let Err(error) = reading::buffer_body(x).await
    {
        return Err(reading::body_failed(x, error));
    }
    for uri in &settings.mirrors {
        let mut copy = x.subrequest(uri, &x.route.args);
        x.copy_to(&mut copy);
        copy.route.method_is_get = x.route.method_is_get;
        if settings.mirror_request_body && x.body.store.len() > 0 {
            copy.body = match x.body.share() {
                Ok(body) => body,
                Err(error) => {
                    let error = describe(&error);
                    x.report(Level::Crit, format_args!("a request's body cannot be mirrored {error}"));
                    return Err(Step::Error(500));
                }
            };
            copy.request.body = Length::Known(copy.body.store.len());
        }
        let running = x.begin_beside();
        event_loop::spawn(async move {
            let _running = running;
            subrequest::run(&mut copy).await;
        });
    }
    Ok(())
}
