//! Relays the bytes of a session in both directions, until one side has ended (with `proxy_half_close` both) or the
//! session has been idle for too long.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use balanza_config::model::{FirstSign, Level};
use balanza_net::buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::half::Half;
use balanza_net::transport::Transport;

use super::{ClientSide, Session};
use crate::downstream::Rate;
use crate::servers::lease::Lease;

/// How a session came to its end.
enum End {
    /// A side closed its connection, or both; true for the server's.
    Closed(bool),
    /// A connection broke.
    Broken,
    TimedOut,
}

/// Lets a direction read what its rate allows now, or nothing; then the time after which there will be more.
fn pace(half: &mut Half, rate: Rate, prior: u64, elapsed: Nanos, limit: usize) -> Nanos {
    match rate.allowance(prior + half.received, elapsed, limit) {
        Ok(allowed) => {
            half.read_at_most(Some(allowed.min(limit)));
            Nanos::MAX
        }
        Err(pause) => {
            half.read_at_most(None);
            clock::nanos(pause)
        }
    }
}

/// Relays until the end.
pub async fn relay(session: &mut Session, server: &Transport, lease: Option<&mut Lease>, first_sign: FirstSign) {
    let conf = Arc::clone(&session.server);
    let ClientSide::Stream(socket) = &session.socket else { return };
    let limit = conf.buffer_size.min(buffer::CAPACITY);
    // The header of the PROXY protocol.
    let told = session.attempts.last().map_or(0, |attempt| attempt.bytes_sent);
    if conf.tcp_nodelay {
        socket.set_nodelay();
        if told > 0 || !server.splices() {
            server.set_nodelay();
        }
    }
    let early = session.early.take();
    session.received += early.as_ref().map_or(0, |buffer| buffer.end as u64);
    let sent = early.as_ref().map_or(0, |buffer| buffer.start as u64);
    let mut up = Half::new(early.or_else(|| session.preread.take()), limit, conf.half_close);
    up.sent = sent;
    up.nodelay = conf.tcp_nodelay;
    let mut down = Half::new(None, limit, conf.half_close);
    let prior = session.received;
    let mut lease = lease.filter(|_| first_sign == FirstSign::FirstByte);
    let mut deadline = clock::after(conf.timeout);
    let begun = clock::recent();
    let (upload, download) = (session.upload, session.download);
    let end = poll_fn(|cx| {
        let now = clock::now();
        let ClientSide::Stream(socket) = &session.socket else { return Poll::Ready(End::Broken) };
        if session.is_broken {
            return Poll::Ready(End::Broken);
        }
        let mut resume = Nanos::MAX;
        if upload.limit > 0 {
            resume = pace(&mut up, upload, prior, now - begun, limit);
        }
        if download.limit > 0 {
            resume = resume.min(pace(&mut down, download, 0, now - begun, limit));
        }
        // Last bytes wait for the end that follows them, which must come at once.
        up.closes = !conf.half_close && down.is_flushed() && !server.has_news();
        let moved_up = up.poll(cx, socket, server);
        down.closes = !conf.half_close && up.is_flushed();
        let moved_down = down.poll(cx, server, socket);
        session.received = prior + up.received;
        session.sent = down.sent;
        let attempt = session.attempt();
        attempt.bytes_received = down.received;
        attempt.bytes_sent = told + up.sent;
        if down.received > 0 && attempt.header_time.is_none() {
            attempt.header_time = Some(now - attempt.started);
            if let Some(lease) = lease.take() {
                lease.header(now);
            }
        }
        let (Ok(moved_up), Ok(moved_down)) = (moved_up, moved_down) else { return Poll::Ready(End::Broken) };
        let over = match conf.half_close {
            true => up.closed && down.closed,
            false => (up.ended || down.ended) && up.is_flushed() && down.is_flushed(),
        };
        if over {
            return Poll::Ready(End::Closed(down.ended && !up.ended));
        }
        if moved_up || moved_down || resume < Nanos::MAX {
            deadline = clock::after(conf.timeout);
        }
        let resume = resume.saturating_add(now);
        if !session.timer.poll_expired(cx, deadline.min(resume)) {
            return Poll::Pending;
        }
        if deadline <= resume {
            return Poll::Ready(End::TimedOut);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    match end {
        End::Closed(by_server) if session.wants(Level::Info) => {
            let (who, bytes) =
                (if by_server { "upstream" } else { "client" }, session.bytes_text(down.received, up.sent));
            session.note(Level::Info, format_args!("*{} {who} disconnected, {bytes}", session.client.serial));
        }
        End::TimedOut => {
            let text = "connection timed out (110: Connection timed out) while proxying connection";
            session.report(Level::Info, format_args!("{text}"));
        }
        End::Closed(_) | End::Broken => {}
    }
}
