//! Reading a request's body: piece by piece, or completely before a server is chosen.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use balanza_config::model::Level;
use balanza_message::Length;
use balanza_net::clock;
use balanza_net::shortage::describe;

use crate::body::BodyError;
use crate::exchange::Exchange;
use crate::response::send;
use crate::step::Step;

/// The next piece of the request's body, a range of `x.body.input`; empty at its end.
pub fn poll_body_piece(cx: &mut Context<'_>, x: &mut Exchange) -> Poll<Result<Range<usize>, BodyError>> {
    let piece = x.body.poll_piece(cx, &mut x.downstream);
    let limit = x.location().settings.client_max_body_size;
    if limit != 0 && x.body.received > limit && x.request.body == Length::Unknown {
        return Poll::Ready(Err(BodyError::TooLarge));
    }
    piece
}

/// Reads the whole body and keeps it.
///
/// # Errors
/// Whatever ends a body early.
pub async fn buffer_body(x: &mut Exchange) -> Result<(), BodyError> {
    if x.body.buffered {
        return Ok(());
    }
    let settings = Arc::clone(&x.location().settings);
    invite_body(x).await?;
    while !x.body.is_finished() {
        clock::now();
        let deadline = clock::after(settings.client_body_timeout);
        let piece = std::future::poll_fn(|cx| match poll_body_piece(cx, x) {
            Poll::Pending if x.downstream.timer.poll_expired(cx, deadline) => Poll::Ready(Err(BodyError::TimedOut)),
            piece => piece,
        })
        .await?;
        x.body.keep(piece, &settings)?;
    }
    x.body.buffered = true;
    Ok(())
}

/// Tells a client that waits for it to send its body.
///
/// # Errors
/// The client has gone.
pub async fn invite_body(x: &mut Exchange) -> Result<(), BodyError> {
    if x.body.continued || x.body.is_finished() {
        return Ok(());
    }
    x.body.continued = true;
    send::send_continue(x).await.map_err(|_| BodyError::Closed)
}

/// Begins to answer without the body: a client that waits may send it, and what has come of it must be well-formed.
///
/// # Errors
/// What to do instead.
pub async fn leave_body(x: &mut Exchange) -> Result<(), Step> {
    if x.route.discards_body() {
        return Ok(());
    }
    x.route.discard_body();
    let left = match invite_body(x).await {
        Ok(()) => x.body.skip_arrived(),
        Err(error) => Err(error),
    };
    left.map_err(|error| body_failed(x, error))
}

/// What a failure to read the body comes to: an error page, or the end of the connection.
pub fn body_failed(x: &mut Exchange, error: BodyError) -> Step {
    x.sent.end_connection();
    x.route.discard_body();
    match error {
        BodyError::Closed => {
            x.status = 400;
            x.report(Level::Info, format_args!("client prematurely closed connection"));
            Step::Drop
        }
        BodyError::TimedOut => {
            x.status = 408;
            x.sent.time_out();
            x.report(Level::Info, format_args!("client timed out"));
            Step::Drop
        }
        BodyError::Malformed(reason) => {
            x.report(Level::Info, format_args!("client sent invalid chunked body: {reason}"));
            Step::Error(400)
        }
        BodyError::TooLarge => {
            x.report(Level::Error, format_args!("client intended to send too large chunked body"));
            Step::Error(413)
        }
        BodyError::NoMemory => {
            x.client().thread.clients.alert_of_memory(x.running());
            x.report(Level::Error, format_args!("no memory for the request's body"));
            Step::Error(503)
        }
        BodyError::File(error) => {
            let place = x.location().settings.client_body_temp_path.clone();
            let directory = place.map_or_else(std::env::temp_dir, |place| place.directory.clone());
            let (directory, error) = (directory.display(), describe(&error));
            let message = format_args!("temporary file of a request's body in \"{directory}\" failed {error}");
            x.report(Level::Crit, message);
            Step::Error(500)
        }
    }
}
