//! `return`: the client gets a text, and the session ends.

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::Poll;

use balanza_config::model::{Level, StreamTarget};
use balanza_net::clock;

use super::{ClientSide, Session, Status, variables};

/// Sends the text over the client's connection, as far as the client takes it within `proxy_timeout`.
pub async fn answer(session: &mut Session) -> Status {
    let Some(text) = session.returned() else { return Status::InternalError };
    let deadline = clock::after(session.server.timeout);
    let mut sent = 0;
    while sent < text.len() {
        let wrote = poll_fn(|cx| {
            let ClientSide::Stream(socket) = &session.socket else { return Poll::Ready(None) };
            match socket.poll_send(cx, &[IoSlice::new(&text[sent..])], true) {
                Poll::Ready(wrote) => Poll::Ready(wrote.ok()),
                Poll::Pending if session.timer.poll_expired(cx, deadline) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        let Some(wrote) = wrote else { break };
        sent += wrote;
        session.sent = sent as u64;
    }
    Status::Ok
}

impl Session {
    /// The text of `return`; none if it cannot be worked out.
    pub(super) fn returned(&mut self) -> Option<Vec<u8>> {
        let server = Arc::clone(&self.server);
        let StreamTarget::Return(template) = &server.target else { return None };
        let mut text = Vec::new();
        match variables::render(template, self, &mut text) {
            Ok(()) => Some(text),
            Err(_) => {
                self.report(Level::Error, format_args!("no text to return, because a value is undecided"));
                None
            }
        }
    }
}
