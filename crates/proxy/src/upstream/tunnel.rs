//! Relays bytes in both directions after a 101, until both sides have closed or the connection has been idle for too
//! long.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use balanza_net::buffer::{self, Buffer};
use balanza_net::clock;
use balanza_net::half::Half;

use crate::exchange::Exchange;
use crate::servers::pool::ServerConnection;

/// Relays until the end. `from_client` and `from_server` hold what has arrived already. Returns the bytes sent to
/// the client and to the server.
pub async fn relay(
    x: &mut Exchange,
    server: &ServerConnection,
    from_client: Buffer,
    from_server: Buffer,
) -> (u64, u64) {
    let timeout: Duration = x.location().settings.proxy.read_timeout;
    x.downstream.socket().set_nodelay();
    server.socket.set_nodelay();
    let mut up = Half::new(Some(from_client), buffer::CAPACITY, true);
    let mut down = Half::new(Some(from_server), buffer::CAPACITY, true);
    let mut deadline = clock::after(timeout);
    poll_fn(|cx| {
        let moved_up = up.poll(cx, x.downstream.socket(), &server.socket);
        let moved_down = down.poll(cx, &server.socket, x.downstream.socket());
        match (moved_up, moved_down) {
            (Ok(up_moved), Ok(down_moved)) => {
                if up.closed && down.closed {
                    return Poll::Ready(());
                }
                if up_moved || down_moved {
                    deadline = clock::after(timeout);
                }
            }
            _ => return Poll::Ready(()),
        }
        if x.downstream.timer.poll_expired(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (down.sent, up.sent)
}
