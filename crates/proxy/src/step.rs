//! What a phase or a handler comes to.

use balanza_message::uri;

use crate::downstream::SendError;
use crate::exchange::Exchange;
use crate::undecided::Undecided;

/// The result of a handler.
pub enum Step {
    /// A response was sent, completely or not (`x.sent.is_complete()`).
    Sent,
    /// An error page is due.
    Error(u16),
    /// Look for the location of `x.route.uri`.
    Find,
    /// Start again with this URI and arguments.
    Internal(Vec<u8>, Vec<u8>),
    /// Go to a named location.
    Named(Vec<u8>),
    /// Close the connection without a response.
    Drop,
}

impl From<Undecided> for Step {
    fn from(_: Undecided) -> Step {
        Step::Error(500)
    }
}

/// The redirect to the same URI with a slash behind it.
pub fn add_slash(x: &mut Exchange) -> Step {
    let mut target = Vec::new();
    uri::escape(&x.route.uri, uri::Escape::Uri, &mut target);
    target.push(b'/');
    if !x.route.args.is_empty() {
        target.push(b'?');
        target.extend_from_slice(&x.route.args);
    }
    x.route.redirect = Some(target);
    Step::Error(301)
}

/// Remembers a time-out, so that the connection can be reset instead of closed.
pub fn note_send_error(x: &mut Exchange, sent: Result<(), SendError>) {
    if sent == Err(SendError::TimedOut) {
        x.sent.time_out();
    }
}
