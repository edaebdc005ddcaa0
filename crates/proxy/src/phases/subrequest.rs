//! Takes a subrequest through the phases: those of its location, without the access phase, as in NGINX.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use balanza_net::clock;

use super::{follow, log, server};
use crate::exchange::Exchange;

/// After this time it is watched whether the client closes the connection.
const WATCH_CLIENT_AFTER: Duration = Duration::from_millis(100);

/// Answers a subrequest. It is boxed because the phases of a request contain it.
pub fn run(sub: &mut Exchange) -> Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(async move {
        let step = server::own_rewriting(sub).await;
        follow(sub, step).await;
        if sub.location().settings.subrequests.log {
            log::write(sub);
        }
    })
}

/// Answers a subrequest that the request waits for; false if the client has gone.
pub async fn wait_for(x: &mut Exchange, sub: &mut Exchange) -> bool {
    let ignores_abort = x.location().settings.proxy.ignore_client_abort;
    let watch = clock::after(WATCH_CLIENT_AFTER);
    let mut running = run(sub);
    poll_fn(|cx| {
        if running.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let watches = !ignores_abort && x.downstream.timer.poll_expired(cx, watch);
        if watches && x.downstream.poll_peer_closed(cx).is_ready() {
            return Poll::Ready(false);
        }
        Poll::Pending
    })
    .await
}
