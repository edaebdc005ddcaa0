//! What follows a 101: bytes both ways, until both sides have closed or nothing has moved for too long.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use std::time::Duration;

use super::ServerConnection;
use crate::buffer::Buffer;
use crate::clock;
use crate::connection::Client;
use crate::exchange::Exchange;
use crate::net::socket::Socket;

/// One direction.
struct Half {
    /// Held only while there is something in it.
    buffer: Option<Buffer>,
    /// The source has ended.
    ended: bool,
    /// The end was passed on.
    closed: bool,
    moved: u64,
}

impl Half {
    fn new(buffer: Buffer) -> Half {
        Half { buffer: Some(buffer).filter(|buffer| !buffer.is_empty()), ended: false, closed: false, moved: 0 }
    }

    /// Moves what can be moved; true when anything did.
    fn poll(&mut self, cx: &mut Context<'_>, from: &Socket, to: &Socket) -> io::Result<bool> {
        let mut progress = false;
        loop {
            if let Some(buffer) = &mut self.buffer {
                while !buffer.is_empty() {
                    match to.poll_send(cx, &[IoSlice::new(buffer.unread())], false) {
                        Poll::Ready(wrote) => {
                            let wrote = wrote?;
                            buffer.start += wrote;
                            self.moved += wrote as u64;
                            progress = true;
                        }
                        Poll::Pending => return Ok(progress),
                    }
                }
                self.buffer = None;
            }
            if self.ended {
                if !self.closed {
                    self.closed = true;
                    to.shutdown_write();
                }
                return Ok(progress);
            }
            match from.poll_readable(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Ok(progress),
            }
            let mut buffer = Buffer::take();
            match from.poll_recv(cx, buffer.space()) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(read) => {
                    buffer.end = read?;
                    self.buffer = Some(buffer);
                }
                Poll::Pending => return Ok(progress),
            }
            progress = true;
        }
    }
}

/// Relays until the end. `from_client` and `from_server` hold what has arrived already. Returns the bytes sent to
/// the client and to the server.
pub async fn relay(
    client: &mut Client,
    x: &Exchange,
    server: &ServerConnection,
    from_client: Buffer,
    from_server: Buffer,
) -> (u64, u64) {
    let timeout: Duration = x.location().settings.proxy.read_timeout;
    client.socket.set_nodelay();
    server.socket.set_nodelay();
    let mut up = Half::new(from_client);
    let mut down = Half::new(from_server);
    let mut deadline = clock::after(timeout);
    poll_fn(|cx| {
        let moved_up = up.poll(cx, &client.socket, &server.socket);
        let moved_down = down.poll(cx, &server.socket, &client.socket);
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
        if client.timer.poll_expired(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (down.moved, up.moved)
}
