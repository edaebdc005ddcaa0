//! Reads the header of the PROXY protocol that a client's connection begins with.

use std::future::poll_fn;
use std::task::Poll;

use balanza_config::log_text::Escaped;
use balanza_net::buffer::Buffer;
use balanza_net::clock::Nanos;
use balanza_net::timer::Timer;
use balanza_net::transport::Transport;

use crate::proxy_protocol::{First, Header, Problem, read};

/// Why a connection ends.
pub enum Refused {
    /// The client has closed it.
    Gone,
    /// No header came in time.
    TimedOut,
    /// The header is not accepted; for the log.
    Broken(String),
}

/// Reads the header. What the client has sent behind it comes with it. `received` was read from it before.
///
/// # Errors
/// There is none.
pub async fn accept(
    socket: &Transport,
    timer: &mut Timer,
    deadline: Nanos,
    received: Option<Buffer>,
) -> Result<(Option<Header>, Option<Buffer>), Refused> {
    // A client that sends nothing holds no buffer.
    let mut held: Option<Buffer> = received;
    let mut is_unseen = held.is_some();
    loop {
        if !std::mem::take(&mut is_unseen) {
            receive(socket, timer, deadline, &mut held).await?;
        }
        let Some(buffer) = &mut held else { continue };
        match read(buffer.unread()) {
            First::Incomplete => {}
            First::Header(length, header) => {
                buffer.start += length;
                buffer.shift(0);
                return Ok((header, held.filter(|buffer| !buffer.is_empty())));
            }
            First::Broken(problem) => return Err(Refused::Broken(describe(problem, buffer.unread()))),
        }
    }
}

/// Reads what has come.
async fn receive(
    socket: &Transport,
    timer: &mut Timer,
    deadline: Nanos,
    held: &mut Option<Buffer>,
) -> Result<(), Refused> {
    let read_bytes = poll_fn(|cx| {
        let received = match &mut *held {
            Some(buffer) => socket.poll_recv(cx, buffer, usize::MAX),
            none => {
                let received = socket.poll_recv_buffer(cx, none);
                if received.is_pending() {
                    *none = None;
                }
                received
            }
        };
        match received {
            Poll::Ready(received) => Poll::Ready(Some(received.unwrap_or(0))),
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    match read_bytes {
        None => Err(Refused::TimedOut),
        Some(0) => Err(Refused::Gone),
        Some(_) => Ok(()),
    }
}

fn describe(problem: Problem, bytes: &[u8]) -> String {
    match problem {
        Problem::Malformed => {
            let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
            format!("broken header: \"{}\"", Escaped(line))
        }
        Problem::TooLarge => "header is too large".into(),
        Problem::Version(version) => format!("unknown PROXY protocol version: {version}"),
    }
}
