//! Relays bytes in both directions after a 101 or the answer to a CONNECT, until both sides have closed or the connection has
//! been idle for too long.

use std::future::poll_fn;
use std::io::IoSlice;
use std::task::{Context, Poll};
use std::time::Duration;

use balanza_message::Fields;
use balanza_net::buffer::{self, Buffer};
use balanza_net::clock;
use balanza_net::half::Half;

use crate::downstream::Downstream;
use crate::exchange::Exchange;
use crate::servers::pool::ServerConnection;

/// The limits of a relay.
pub struct Limits {
    /// How long nothing may move.
    pub idle: Duration,
    /// The same while there is something that the server does not take.
    pub send: Duration,
    /// The most bytes that are read at a time.
    pub piece: usize,
}

/// Relays after a 101. `from_client` and `from_server` hold what has arrived already. Returns the bytes sent to the client
/// and to the server.
pub async fn relay(
    x: &mut Exchange,
    server: &ServerConnection,
    from_client: Buffer,
    from_server: Buffer,
) -> (u64, u64) {
    let timeout: Duration = x.location().settings.proxy.read_timeout;
    let limits = Limits { idle: timeout, send: timeout, piece: buffer::CAPACITY };
    relay_within(x, server, Some(from_client), Some(from_server), &limits).await
}

/// Relays until the end.
pub async fn relay_within(
    x: &mut Exchange,
    server: &ServerConnection,
    from_client: Option<Buffer>,
    from_server: Option<Buffer>,
    limits: &Limits,
) -> (u64, u64) {
    x.downstream.socket().set_nodelay();
    server.socket.set_nodelay();
    let mut up = Half::new(from_client, limits.piece, true);
    let mut down = Half::new(from_server, limits.piece, true);
    let mut moved_last = clock::recent();
    poll_fn(|cx| {
        let moved_up = up.poll(cx, x.downstream.socket(), &server.socket);
        let moved_down = down.poll(cx, &server.socket, x.downstream.socket());
        match (moved_up, moved_down) {
            (Ok(up_moved), Ok(down_moved)) => {
                if up.closed && down.closed {
                    return Poll::Ready(());
                }
                if up_moved || down_moved {
                    moved_last = clock::recent();
                }
            }
            _ => return Poll::Ready(()),
        }
        let patience = if up.is_flushed() { limits.idle } else { limits.idle.min(limits.send) };
        let deadline = moved_last.saturating_add(clock::nanos(patience));
        if x.downstream.timer.poll_expired(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (down.sent, up.sent)
}

/// How many pieces are moved at a time in one direction, so that the others of the event loop get their turn.
const PIECES: usize = 16;

/// The same for a client's stream of HTTP/2.
pub async fn relay_stream(x: &mut Exchange, server: &ServerConnection, from_server: Buffer) -> (u64, u64) {
    let timeout: Duration = x.location().settings.proxy.read_timeout;
    server.socket.set_nodelay();
    let mut up = Direction::default();
    let mut down = Direction { buffer: Some(from_server).filter(|buffer| !buffer.is_empty()), ..Direction::default() };
    let mut deadline = clock::after(timeout);
    poll_fn(|cx| {
        let moved_up = up.poll_up(cx, &mut x.downstream, server);
        let moved_down = down.poll_down(cx, server, &mut x.downstream);
        let (Ok(up_moved), Ok(down_moved)) = (moved_up, moved_down) else { return Poll::Ready(()) };
        if up.ended && down.ended || x.downstream.poll_peer_closed(cx).is_ready() {
            return Poll::Ready(());
        }
        if up_moved || down_moved {
            deadline = clock::after(timeout);
        }
        if x.downstream.timer.poll_expired(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    // Whatever has ended it, the client learns no more than that it is over.
    let _ = x.downstream.end(&Fields::default());
    (down.sent, up.sent)
}

/// The connection is broken.
struct Broken;

/// One direction between a stream and a server.
#[derive(Default)]
struct Direction {
    /// Held only while there is something in it.
    buffer: Option<Buffer>,
    /// The end was passed on.
    ended: bool,
    /// Bytes written.
    sent: u64,
}

impl Direction {
    /// From the client to the server; true when anything moved.
    fn poll_up(&mut self, cx: &mut Context<'_>, from: &mut Downstream, to: &ServerConnection) -> Result<bool, Broken> {
        let mut moved = false;
        for _ in 0..PIECES {
            if self.ended {
                return Ok(moved);
            }
            if let Some(buffer) = &mut self.buffer {
                let Poll::Ready(sent) = to.socket.poll_send(cx, &[IoSlice::new(buffer.unread())], false) else {
                    return Ok(moved);
                };
                self.has_sent(sent.map_err(|_| Broken)?);
            } else {
                let mut buffer = Buffer::take();
                let Poll::Ready(read) = from.poll_recv(cx, &mut buffer) else { return Ok(moved) };
                self.ended = !self.has_read(read.map_err(|_| Broken)?, buffer);
                if self.ended {
                    to.socket.shutdown_write();
                }
            }
            moved = true;
        }
        cx.waker().wake_by_ref();
        Ok(moved)
    }

    /// From the server to the client; true when anything moved.
    fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        from: &ServerConnection,
        to: &mut Downstream,
    ) -> Result<bool, Broken> {
        let mut moved = false;
        for _ in 0..PIECES {
            if self.ended {
                return Ok(moved);
            }
            if let Some(buffer) = &mut self.buffer {
                let Poll::Ready(sent) = to.poll_send(cx, buffer.unread()) else { return Ok(moved) };
                self.has_sent(sent.map_err(|_| Broken)?);
            } else {
                if from.socket.poll_readable(cx).map_err(|_| Broken)?.is_pending() {
                    return Ok(moved);
                }
                let mut buffer = Buffer::take();
                let Poll::Ready(read) = from.socket.poll_recv(cx, &mut buffer, usize::MAX) else { return Ok(moved) };
                self.ended = !self.has_read(read.map_err(|_| Broken)?, buffer);
                if self.ended {
                    to.end(&Fields::default()).map_err(|_| Broken)?;
                }
            }
            moved = true;
        }
        cx.waker().wake_by_ref();
        Ok(moved)
    }

    fn has_sent(&mut self, sent: usize) {
        self.sent += sent as u64;
        if let Some(buffer) = &mut self.buffer {
            buffer.start += sent;
            if buffer.is_empty() {
                self.buffer = None;
            }
        }
    }

    /// Keeps what was read; false at the end.
    fn has_read(&mut self, read: usize, buffer: Buffer) -> bool {
        if read > 0 {
            self.buffer = Some(buffer);
        }
        read > 0
    }
}
