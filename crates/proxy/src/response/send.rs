//! Sends a response: head, pieces of the body, trailers.

use balanza_config::model::Level;
use balanza_message::Fields;
use balanza_net::buffer::{self, Buffer};
use balanza_net::event_loop::let_others_run;

use super::head::{applies, is_sendable};
use super::status::reason_phrase;
use super::{http1, http2, insertions};
use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::filters::{Broken, Chain, Flow, Pulled};
use crate::variables;

/// Sends the head with the beginning of a body behind it.
///
/// # Errors
/// The client has gone.
pub async fn send_head(x: &mut Exchange, body: &[u8]) -> Result<(), SendError> {
    x.sent.head = true;
    if x.downstream.is_http2() {
        http2::send_head(x)?;
        return send_body(x, body).await;
    }
    let timeout = x.location().settings.send_timeout;
    if !body.is_empty() && (x.sent.rate.limit != 0 || body.len() > buffer::CAPACITY) {
        x.downstream.send(&x.sent.text, b"", timeout).await?;
        x.sent.bytes += x.sent.text.len() as u64;
        return send_body(x, body).await;
    }
    x.downstream.send(&x.sent.text, body, timeout).await?;
    x.sent.bytes += (x.sent.text.len() + body.len()) as u64;
    x.sent.body_bytes += body.len() as u64;
    Ok(())
}

/// Sends a piece of the body, as a chunk if the response is chunked, at the response's rate.
///
/// # Errors
/// The client has gone.
pub async fn send_body(x: &mut Exchange, mut body: &[u8]) -> Result<(), SendError> {
    let timeout = x.location().settings.send_timeout;
    while !body.is_empty() {
        let allowed = match x.sent.rate.limit {
            0 => body.len().min(buffer::CAPACITY),
            _ => x.downstream.allowance(x.sent.rate, x.sent.bytes, x.started, body.len()).await,
        };
        let (now, later) = body.split_at(allowed.min(body.len()));
        let framing = if x.sent.chunked {
            let mut size = [0; 20];
            let size = balanza_http1::write_chunk_head(&mut size, now.len() as u64);
            x.downstream.send(size, now, timeout).await?;
            x.downstream.send(b"\r\n", b"", timeout).await?;
            size.len() + 2
        } else {
            x.downstream.send(now, b"", timeout).await?;
            0
        };
        x.sent.bytes += (now.len() + framing) as u64;
        x.sent.body_bytes += (now.len() + framing) as u64;
        body = later;
        if !body.is_empty() {
            // A client that reads as fast as it is sent to would hold the thread until the end: the other tasks have their turn.
            let_others_run().await;
        }
    }
    Ok(())
}

/// Up to so many bytes of a body that filters have made go out together with the head.
const JOINED: usize = 16 * 1024;

/// Sends a piece of the body through the filters of the response. The head goes out with the first that they make.
///
/// # Errors
/// The client has gone, or the body is malformed and the connection is to be closed.
pub async fn send_through_filters(x: &mut Exchange, piece: Buffer) -> Result<(), SendError> {
    let Some(mut chain) = x.sent.filters.take() else { return Ok(()) };
    chain.push(piece, Flow::More);
    let sent = drain(x, &mut chain).await;
    x.sent.filters = Some(chain);
    sent
}

/// Ends a body that goes through filters.
///
/// # Errors
/// As [`send_through_filters`].
pub async fn end_filters(x: &mut Exchange) -> Result<(), SendError> {
    let Some(mut chain) = x.sent.filters.take() else { return Ok(()) };
    chain.end();
    let sent = drain(x, &mut chain).await;
    x.sent.filters = Some(chain);
    sent?;
    if !x.sent.head && joins(x) {
        if x.sent.chunked {
            let end = last_chunk(x);
            x.sent.text.extend_from_slice(&end);
            x.sent.body_bytes += end.len() as u64;
        }
        return send_head(x, b"").await;
    }
    if !x.sent.head {
        send_head(x, b"").await?;
    }
    send_end(x).await
}

/// Whether the head and the beginning of the body may lie behind each other.
fn joins(x: &Exchange) -> bool {
    !x.downstream.is_http2() && x.sent.rate.limit == 0
}

async fn drain(x: &mut Exchange, chain: &mut Chain) -> Result<(), SendError> {
    loop {
        match chain.pull() {
            Ok(Pulled::Nothing) => return Ok(()),
            Ok(Pulled::Due(due)) => insertions::perform(x, chain, &due),
            Ok(Pulled::Add(uri)) => insertions::add(x, chain, &uri),
            Ok(Pulled::Waiting) => {
                // What there is goes out first.
                if !x.sent.head {
                    send_head(x, b"").await?;
                }
                insertions::wait(x, chain).await?;
            }
            Ok(Pulled::Piece(piece))
                if !x.sent.head && joins(x) && x.sent.text.len() + piece.unread().len() < JOINED =>
            {
                let before = x.sent.text.len();
                if x.sent.chunked {
                    x.sent.text.extend_from_slice(http1::frame(piece).0.unread());
                } else {
                    x.sent.text.extend_from_slice(piece.unread());
                }
                x.sent.body_bytes += (x.sent.text.len() - before) as u64;
            }
            Ok(Pulled::Piece(piece)) => {
                if !x.sent.head {
                    send_head(x, b"").await?;
                }
                send_body(x, piece.unread()).await?;
                // Other connections have their turn between pieces.
                let_others_run().await;
            }
            Err(Broken(reason)) => {
                x.report(Level::Error, format_args!("{reason} while sending response to client"));
                x.sent.end_connection();
                if !x.sent.head {
                    send_head(x, b"").await?;
                }
                return Err(SendError::Closed);
            }
        }
    }
}

/// Ends the body: with the last chunk and the trailers, or with the stream.
///
/// # Errors
/// The client has gone.
pub async fn send_end(x: &mut Exchange) -> Result<(), SendError> {
    if x.downstream.is_http2() {
        compose_trailers(x);
        return x.downstream.end(&x.reply.trailers);
    }
    if !x.sent.chunked {
        return Ok(());
    }
    let end = last_chunk(x);
    let timeout = x.location().settings.send_timeout;
    x.downstream.send(&end, b"", timeout).await?;
    x.sent.bytes += end.len() as u64;
    x.sent.body_bytes += end.len() as u64;
    Ok(())
}

/// Writes what ends a chunked body: the last chunk and the trailers.
pub fn last_chunk(x: &mut Exchange) -> Vec<u8> {
    compose_trailers(x);
    let mut end = Vec::new();
    balanza_http1::write_last_chunk(&mut end, &x.reply.trailers);
    end
}

/// The trailers: those of the server, then `add_trailer`.
fn compose_trailers(x: &mut Exchange) {
    let location = x.location().clone();
    x.reply.trailers.clear();
    let passes = location.settings.proxy.pass_trailers;
    if passes && !x.upstream.trailers.is_empty() && (x.downstream.is_http2() || x.client_takes_trailers()) {
        x.reply.trailers.append(&x.upstream.trailers);
    }
    for trailer in &location.settings.add_trailers {
        if applies(trailer, x.status) {
            let mut value = Vec::new();
            // The response has gone: an undecided value is left out.
            let decided = variables::render(&trailer.value, x, &mut value).is_ok();
            if decided && !value.is_empty() && is_sendable(&trailer.name, &value, x) {
                x.reply.trailers.push(&trailer.name, &value);
            }
        }
    }
}

/// Sends an interim response.
///
/// # Errors
/// The client has gone.
pub async fn send_interim(x: &mut Exchange, status: u16, fields: &Fields) -> Result<(), SendError> {
    if x.downstream.is_http2() {
        x.sent.bytes += fields.lines().len() as u64;
        return x.downstream.send_interim(status, fields);
    }
    let mut text = Vec::new();
    balanza_http1::write_status_line(&mut text, status, reason_phrase(status).as_bytes());
    text.extend_from_slice(fields.lines());
    text.extend_from_slice(b"\r\n");
    let timeout = x.location().settings.send_timeout;
    x.downstream.send(&text, b"", timeout).await?;
    x.sent.bytes += text.len() as u64;
    Ok(())
}

/// Tells a client that waits for it to send its body.
///
/// # Errors
/// The client has gone.
pub async fn send_continue(x: &mut Exchange) -> Result<(), SendError> {
    let timeout = x.location().settings.send_timeout;
    x.downstream.send(http1::CONTINUE, b"", timeout).await
}
