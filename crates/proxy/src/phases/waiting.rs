//! A pause before the response.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use balanza_config::model::Level;
use balanza_net::clock;

use crate::exchange::Exchange;
use crate::step::Step;

/// Waits, unless the client goes.
///
/// # Errors
/// The client has gone.
pub(super) async fn wait(x: &mut Exchange, duration: Duration) -> Result<(), Step> {
    clock::now();
    let deadline = clock::after(duration);
    let stayed = poll_fn(|cx| {
        if x.downstream.poll_peer_closed(cx).is_ready() {
            Poll::Ready(false)
        } else if x.downstream.timer.poll_expired(cx, deadline) {
            Poll::Ready(true)
        } else {
            Poll::Pending
        }
    })
    .await;
    clock::now();
    if stayed {
        return Ok(());
    }
    x.status = 499;
    x.sent.end_connection();
    x.report(Level::Info, format_args!("client prematurely closed connection"));
    Err(Step::Drop)
}
